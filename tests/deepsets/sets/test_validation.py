"""Messages for parts that do not make a batch."""

import pytest
import torch

from deepsets import Sets


def test_an_infinite_element_after_empty_sets_is_located():
    with pytest.raises(ValueError, match=r"set 3, element 0 holds \[inf\]"):
        Sets.from_list([[], [[1.0]], [], [[torch.inf]], []])


def test_large_finite_values_whose_sum_overflows_are_accepted():
    assert Sets.from_list([torch.full((4, 1), 3e38)]).total == 4


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([1, 3], r"offsets must begin with 0, found 1"),
        (
            [0, 2, 1, 3],
            r"offsets must not decrease: set 1 would begin at 2 and end at 1, a negative size of -1",
        ),
        ([0, 2], r"offsets end at 2, but there are 3 elements"),
        ([0, 4], r"offsets end at 4, but there are 3 elements"),
        ([], r"offsets must be a vector of B \+ 1 integers, found shape \(0,\)"),
        ([[0, 3]], r"offsets must be a vector of B \+ 1 integers, found shape \(1, 2\)"),
        ([0.0, 3.0], r"offsets must be a vector of B \+ 1 integers, found shape \(2,\) of torch.float32"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(offsets, message):
    with pytest.raises(ValueError, match=message):
        Sets(torch.zeros(3, 1), torch.tensor(offsets))


def test_unsigned_offsets_that_decrease_are_refused():
    with pytest.raises(ValueError, match="set 1 would begin at 3 and end at 2"):
        Sets(torch.zeros(2, 1), torch.tensor([0, 3, 2], dtype=torch.uint8))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.tensor([0, 3]), r"element_ids\[1\] is 3, but there are 3 distinct elements \(0..2\)"),
        (torch.tensor([-1, 0]), r"element_ids\[0\] is -1, but there are 3 distinct elements"),
        (torch.tensor([0.0, 1.0]), r"element_ids must be a vector of integers, found shape \(2,\) of torch.float32"),
        (torch.tensor([[0, 1]]), r"element_ids must be a vector of integers, found shape \(1, 2\) of torch.int64"),
    ],
)
def test_element_ids_out_of_range_are_refused(index, message):
    with pytest.raises(ValueError, match=message):
        Sets(torch.zeros(3, 1), torch.tensor([0, 2]), index)


def test_parts_that_are_not_tensors_are_refused():
    with pytest.raises(ValueError, match=r"offsets must be a torch.Tensor, found list. Sets.from_list takes arrays"):
        Sets(torch.zeros(3, 1), [0, 3])


def test_parts_on_two_devices_are_refused():
    with pytest.raises(ValueError, match=r"must be on one device: values are on cpu, offsets on meta"):
        Sets(torch.zeros(3, 1), torch.tensor([0, 3], device="meta"))


def test_a_single_number_is_not_a_batch():
    with pytest.raises(ValueError, match=r"elements on their first axis, \(N, ...\); found a single number"):
        Sets(torch.tensor(1.0), torch.tensor([0, 1]))


@pytest.mark.parametrize("weights", [torch.ones(2), torch.ones(3, 1), torch.ones(3, dtype=torch.long)])
def test_weights_need_one_floating_number_for_each_element(weights):
    with pytest.raises(ValueError, match=r"one floating-point number for each of the 3 elements, shape \(3,\); found"):
        Sets(torch.zeros(3, 1), torch.tensor([0, 3]), weights=weights)


def test_a_shared_element_that_is_not_finite_is_located_by_its_row():
    with pytest.raises(ValueError, match=r"values must be finite: element 1 holds \[nan\]"):
        Sets(torch.tensor([[0.0], [torch.nan]]), torch.tensor([0, 1]), torch.tensor([0]))


def test_offsets_that_overflow_when_subtracted_are_refused():
    huge = torch.tensor([0, 2**63 - 1, -(2**63), -1, 3])  # all differences wrap around to 0 or more
    with pytest.raises(ValueError, match=r"offsets must not decrease: set 1 would begin at 9223372036854775807"):
        Sets(torch.zeros(3, 1), huge)


def test_sparse_parts_are_refused():
    with pytest.raises(ValueError, match=r"values must be a dense tensor, found layout torch.sparse_coo"):
        Sets(torch.eye(3).to_sparse(), torch.tensor([0, 3]))

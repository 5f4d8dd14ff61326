"""Counts, maps, devices and dtypes of a batch; pickled batches are validated."""

import copy
import io
import pickle

import pytest
import torch
from hypothesis import given

from deepsets import Sets
from tests.strategies import assert_same, pairs, ragged_batches


@pytest.fixture
def three():
    """Three sets of 2, 0 and 3 elements with two features each."""
    return Sets.from_list([torch.arange(4.0).reshape(2, 2), [], torch.arange(4.0, 10).reshape(3, 2)])


def test_a_batch_counts_its_sets_and_elements(three):
    assert len(three) == 3
    assert three.total == 5
    assert three.sizes.tolist() == [2, 0, 3]
    assert three.set_ids.tolist() == [0, 0, 2, 2, 2]
    assert three.shape == (3, 2)
    assert three.width == 2


@given(ragged_batches(weights=True))
def test_counts_are_the_sums_of_the_weights_in_the_dtype_of_the_values(sets):
    expected = torch.stack([w.sum() for _, w in pairs(sets)])
    torch.testing.assert_close(sets.counts, expected)
    mixed = Sets(sets.values, sets.offsets, sets.element_ids, sets.weights.float())
    assert mixed.counts.dtype == sets.dtype


def test_counts_without_weights_are_the_sizes(three):
    assert three.counts.tolist() == [2.0, 0.0, 3.0]
    assert three.to(dtype=torch.float64).counts.dtype == torch.float64
    assert Sets.from_ids([["a"]], ["a"]).counts.dtype == torch.float32


@given(ragged_batches())
def test_a_mapped_batch_holds_the_mapped_elements(sets):
    for x, y in zip(sets, sets.map(lambda rows: rows.exp().sum(1, keepdim=True)), strict=True):
        assert torch.equal(y, x.exp().sum(1, keepdim=True))


@given(ragged_batches(index=True))
def test_a_map_never_sees_more_rows_than_elements_nor_than_stored_elements(sets):
    seen = []
    sets.map(lambda rows: seen.append(len(rows)) or rows)
    assert len(seen) == 1
    assert seen[0] <= min(len(sets.values), sets.total)


@given(ragged_batches(index=True, weights=True))
def test_a_change_of_dtype_changes_values_and_weights_only(sets):
    half = sets.to(dtype=torch.float16)
    assert (half.dtype, half.weights.dtype) == (torch.float16, torch.float16)
    assert torch.equal(half.offsets, sets.offsets)
    assert torch.equal(half.element_ids, sets.element_ids)
    assert half.element_ids.dtype == torch.int64


def test_to_moves_all_parts(three):
    moved = Sets.from_list([[[1.0]]], weights=[[2.0]]).to("meta")
    assert {moved.values.device.type, moved.offsets.device.type, moved.weights.device.type} == {"meta"}
    assert three.device.type == "cpu"


@given(ragged_batches())
def test_copies_and_pickles_hold_the_same_sets(sets):
    for other in (copy.copy(sets), copy.deepcopy(sets), pickle.loads(pickle.dumps(sets))):
        assert_same(other, sets)
        assert (other.element_ids is None) == (sets.element_ids is None)


@given(ragged_batches())
def test_broadcast_repeats_a_row_for_each_member(sets):
    broadcast_rows = sets.broadcast(torch.arange(len(sets)))
    assert broadcast_rows.tolist() == [b for b, n in enumerate(sets.sizes.tolist()) for _ in range(n)]


DAMAGE = {
    "offsets past the end": {"offsets": torch.tensor([0, 5, 300, 5])},
    "offsets that stop early": {"offsets": torch.tensor([0, 2, 2, 3])},
    "offsets that do not begin with 0": {"offsets": torch.tensor([2, 3, 4, 5])},
    "element ids out of range": {"element_ids": torch.tensor([0, 1, 2, 3, 10**9])},
    "weights of another length": {"weights": torch.ones(4)},
    "no offsets": {"offsets": None},
    "offsets that are no tensor": {"offsets": [0, 5]},
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("weights_only", [True, False])
def test_damaged_files_are_refused_when_loaded(three, damage, weights_only):
    for name, part in damage.items():
        setattr(three, name, part)
    file = io.BytesIO()
    torch.save({"batch": three}, file)
    file.seek(0)
    with pytest.raises(Exception, match=r"offsets|element_ids|weights|must be a torch.Tensor"):
        torch.load(file, weights_only=weights_only)


def test_saved_set_ids_are_computed_again(three):
    three._set_ids = torch.full((5,), 10**9)
    assert pickle.loads(pickle.dumps(three)).set_ids.tolist() == [0, 0, 2, 2, 2]


def test_missing_values_survive_a_pickle():
    sets = Sets.from_list([[[1.0], [float("nan")]]], ensure_finite=False)
    assert bool(pickle.loads(pickle.dumps(sets)).values[1].isnan())


@given(ragged_batches())
def test_saved_batches_load_without_running_code(sets):
    file = io.BytesIO()
    torch.save(sets, file)
    file.seek(0)
    assert_same(torch.load(file, weights_only=True), sets)


def test_to_takes_what_tensors_take(three):
    three = Sets(three.values, three.offsets, weights=torch.ones(5))
    for double in (
        three.to(torch.float64),
        three.double(),
        three.to("cpu", torch.float64),
        three.to(torch.zeros(1).double()),
    ):
        assert (double.dtype, double.weights.dtype, double.offsets.dtype) == (torch.float64, torch.float64, torch.int64)
    assert three.double().float().dtype == torch.float32
    assert three.cpu().device.type == "cpu"
    assert three.to(torch.int32).weights.dtype == torch.float32  # weights stay floating-point


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_moves_all_parts(three):
    moved = three.cuda()
    assert {moved.values.device.type, moved.offsets.device.type} == {"cuda"}


def test_new_values_need_a_row_for_each_element(three):
    with pytest.raises(ValueError, match=r"found 4 rows for a batch with 5"):
        three.with_values(torch.zeros(4, 1))


def test_a_deep_copy_does_not_share_memory(three):
    other = copy.deepcopy(three)
    other.values.zero_()
    assert float(three.values.sum()) == 45

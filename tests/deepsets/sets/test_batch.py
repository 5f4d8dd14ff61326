"""How a batch is shown, and how a DataLoader joins samples to one."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from deepsets import Sets
from deepsets.sets import collate


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (Sets.from_list([[[1.0, 2.0]], []]), "Sets(2 sets, 1 elements of 2 features, sizes 0..1, float32)"),
        (Sets.from_ids([["a"]], ["a"]), "Sets(1 sets, 1 elements of one value, sizes 1..1, int64)"),
        (Sets.from_list([torch.zeros(2, 4, 5)]), "Sets(1 sets, 2 elements of shape (4, 5), sizes 2..2, float32)"),
        (Sets.from_ids([], ["a"]), "Sets(0 sets, 0 elements of one value, empty, int64)"),
        (
            Sets(torch.zeros(1, 2).double(), torch.tensor([0, 2]), torch.tensor([0, 0]), torch.ones(2)),
            "Sets(1 sets, 2 elements of 2 features, sizes 2..2, 1 distinct, weighted, float64)",
        ),
    ],
)
def test_repr(sets, text):
    assert repr(sets) == text


def test_the_html_table_shows_the_first_sets_and_counts_the_others():
    sets = Sets.from_list([torch.full((n, 8), n / 3) for n in range(8)])
    text = sets._repr_html_()
    assert "Sets(8 sets, 28 elements of 8 features, sizes 0..7, float32)" in text
    assert "<td>0</td><td>0</td><td></td>" in text
    assert "<td>2</td><td>2</td><td>0.6667, 0.6667, 0.6667, 0.6667, 0.6667, 0.6667, …</td>" in text
    assert "3 more sets" in text
    assert text.count("<tr>") == 1 + 5 + 1


def test_the_html_table_of_a_small_batch_has_no_rest():
    assert "more sets" not in Sets.from_ids([["a"]], ["a"])._repr_html_()
    assert "meta" in Sets.from_list([[1.0]]).to("meta")._repr_html_()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_joins_sets_targets_and_z(workers):
    data = [(np.full((n, 2), n, dtype=np.float32), n % 3, np.ones(4, dtype=np.float32)) for n in range(1, 6)]
    batches = list(DataLoader(data, batch_size=2, collate_fn=collate, num_workers=workers))
    assert [sets.sizes.tolist() for sets, _, _ in batches] == [[1, 2], [3, 4], [5]]
    assert [target.tolist() for _, target, _ in batches] == [[1, 2], [0, 1], [2]]
    assert [tuple(z.shape) for _, _, z in batches] == [(2, 4), (2, 4), (1, 4)]
    assert batches[0][0][1].tolist() == [[2, 2], [2, 2]]


def test_a_batch_is_a_data_set_of_its_sets():
    sets = Sets.from_list([torch.full((n, 2), float(n)) for n in (1, 0, 3)])
    (joined,) = DataLoader(sets, batch_size=3, collate_fn=collate)
    assert joined.sizes.tolist() == [1, 0, 3]


def test_samples_with_different_entries_are_refused():
    with pytest.raises(ValueError, match=r"samples must have the same number of entries"):
        collate([(torch.zeros(1, 2), 1), (torch.zeros(1, 2),)])

"""Batches: every set once per epoch, balanced by elements; sources of batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from deepsets import Sets
from deepsets.train import Batch, balanced, split_rows, train
from deepsets.train.batches import as_source, fingerprint, pieces, share_of

from .helpers import assert_same, data, loss, model

sizes_of_sets = st.lists(st.one_of(st.integers(0, 9), st.sampled_from([0, 1, 1000, 5000])), min_size=1, max_size=60)


@given(sizes_of_sets, st.integers(1, 20), st.integers(0, 3))
def test_every_set_comes_once_an_epoch_and_no_batch_is_empty(sizes, batch_size, epoch):
    batches = balanced(np.array(sizes), batch_size, seed=0, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert all(len(batch) for batch in batches)
    assert len(batches) <= -(-len(sizes) // batch_size)


@given(sizes_of_sets, st.integers(1, 20))
def test_no_batch_has_more_than_its_share_of_elements_and_one_set(sizes, batch_size):
    cost = np.array(sizes) + 1
    share = cost.sum() / -(-len(sizes) // batch_size)
    for batch in balanced(np.array(sizes), batch_size, seed=1, epoch=0):
        assert cost[batch].sum() <= share + cost.max()


def test_batches_of_sets_of_one_size_are_equal():
    assert [len(b) for b in balanced(np.full(64, 7), 16, seed=0, epoch=0)] == [16] * 4


def test_batches_follow_from_seed_and_epoch_alone():
    sizes = np.arange(50)

    def order(**at):
        return np.concatenate(balanced(sizes, 8, **at)).tolist()

    first = order(seed=3, epoch=5)
    np.random.default_rng(0).random()
    assert order(seed=3, epoch=5) == first
    assert order(seed=3, epoch=6) != first
    assert order(seed=4, epoch=5) != first


@given(sizes_of_sets, st.integers(1, 4))
def test_processes_share_a_batch_without_loss_and_evenly(sizes, world):
    sizes, batch = np.array(sizes), np.arange(len(sizes))
    parts = [share_of(batch, sizes, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(parts).tolist()) == batch.tolist()
    loads = [(sizes[part] + 1).sum() for part in parts]
    assert max(loads) - min(loads) <= sizes.max() + 1


@given(sizes_of_sets, st.integers(1, 2000))
def test_micro_batches_are_consecutive_pieces_of_bounded_size(sizes, most):
    sizes, batch = np.array(sizes), np.arange(len(sizes))
    cut = [batch[piece] for piece in pieces(sizes, most)]
    assert np.concatenate(cut).tolist() == batch.tolist()
    assert all(len(piece) and sizes[piece].sum() <= most + sizes.max() for piece in cut)


@given(st.integers(1, 200), st.floats(0, 0.9))
def test_a_validation_split_holds_whole_sets(count, share):
    rows, held = split_rows(count, share, seed=0)
    assert sorted([*rows, *held]) == list(range(count))
    assert len(held) == round(count * share)


def test_moving_a_batch_moves_all_its_parts_and_copies_none_that_is_there():
    sets = Sets(torch.randn(3, 2), torch.tensor([0, 2, 3]), weights=torch.ones(3))
    batch = Batch(sets, y=torch.ones(2, 1), z=None, weight=torch.ones(2))
    there = batch.to(torch.device("meta"))
    assert {there.sets.values.device.type, there.sets.offsets.device.type, there.y.device.type} == {"meta"}
    assert there.sets.weights.device.type == there.weight.device.type == "meta"
    assert there.z is None
    here = batch.to(torch.device("cpu"))
    assert here.sets is sets
    assert here.y is batch.y


def test_taking_rows_of_a_batch_takes_everything_that_belongs_to_them():
    what = data(6)._replace(z=torch.arange(6.0)[:, None], weight=torch.arange(6.0))
    for rows in (np.array([4, 1]), torch.tensor([4, 1]), slice(2, 4)):
        wanted = [2, 3] if isinstance(rows, slice) else [4, 1]
        taken = what.take(rows)
        assert taken.weight.tolist() == taken.z[:, 0].tolist() == wanted
        assert torch.equal(taken.y, what.y[wanted])
        assert all(torch.equal(a, what.sets[b]) for a, b in zip(taken.sets, wanted, strict=True))


def test_fingerprints_differ_for_every_part():
    what = data(6)._replace(z=torch.zeros(6, 1), weight=torch.ones(6))
    others = [what, what._replace(y=what.y + 1), what._replace(z=None), what._replace(weight=torch.zeros(6)), data(5)]
    assert len({fingerprint(other) for other in others}) == len(others)
    assert fingerprint(what) == fingerprint(what.take(np.arange(6)))


# ------------------------------------------------------------------------------------------- sources of batches


def loader(shuffle: bool) -> DataLoader:
    what = data()
    rows = DataLoader(range(40), batch_size=10, shuffle=shuffle, collate_fn=lambda rows: what.take(np.array(rows)))
    return rows


def test_a_list_of_batches_is_passed_through_in_every_epoch():
    seen = []

    def watch(model, batch):
        seen.append(batch.y)
        return loss(model, batch)

    batches = [data(4, seed=seed) for seed in range(3)]
    train(model(), watch, batches, epochs=2)
    assert len(seen) == 6
    assert all(torch.equal(y, batches[i % 3].y) for i, y in enumerate(seen))


@pytest.mark.parametrize("stop_at", [1, 3, 5, 8])
def test_a_data_loader_that_shuffles_resumes_exactly(tmp_path, stop_at):
    def stopping(model, batch):
        nonlocal steps
        steps += 1
        if steps == stop_at:
            raise RuntimeError("power failure")
        return loss(model, batch)

    whole, again, steps = model(dropout=0.2), model(dropout=0.2), 0
    train(whole, loss, loader(shuffle=True), epochs=3)
    options = {"epochs": 3, "checkpoint_dir": tmp_path, "checkpoint_seconds": 0}
    with pytest.raises(RuntimeError, match="power failure"):
        train(model(dropout=0.2), stopping, loader(shuffle=True), **options)
    train(again, loss, loader(shuffle=True), **options)
    assert_same(whole, again)


def test_a_data_loader_gives_another_order_in_every_epoch():
    source = as_source(loader(shuffle=True), 64)
    first, again, second = (
        torch.cat([batch.y for batch in source.epoch(epoch, seed=0, start=0, rank=0, world=1)[1]])
        for epoch in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(first.sort(0).values, data().y.sort(0).values)


@given(st.integers(1, 4), st.integers(1, 12))
def test_processes_share_the_batches_of_a_list(world, count):
    source = as_source([data(count), data(2, seed=1)], 64)
    shares = [list(source.epoch(0, seed=0, start=0, rank=rank, world=world)[1]) for rank in range(world)]
    assert {len(share) for share in shares} == {2}
    found = torch.cat([share[0].y for share in shares if share[0] is not None])
    assert sorted(found.flatten().tolist()) == sorted(data(count).y.flatten().tolist())


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        (7, TypeError, "found data of type int; expected a Batch, a collection of batches with a length"),
        (iter([]), TypeError, "found data of type list_iterator"),
        ([], ValueError, "there are no batches to train on"),
        (data().take(np.zeros(0, dtype=int)), ValueError, "there are no sets to train on"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(what, error, message):
    with pytest.raises(error, match=message):
        train(model(), loss, what)

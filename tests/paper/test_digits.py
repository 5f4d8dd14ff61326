import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paper.baselines.networks import Recurrent
from paper.datasets.digits import deform, draw, small_images, sums
from paper.experiments.digits_networks import Reader, sum_model
from paper.experiments.digits_pools import train_on_pools
from paper.experiments.digits_text import curve, figure
from paper.metrics import exact_sums
from torch import nn
from torch.testing import assert_close

from deepsets import Sets
from deepsets.nn import DeepSet
from deepsets.testing import assert_invariant
from paper import Record, Trial
from paper.experiments import digits_image, digits_text

# ------------------------------------------------------------------------------------------------------ sets and images


@given(st.integers(0, 20), st.integers(0, 6), st.integers(0, 6), st.integers(0, 9))
def test_sums_equal_the_plain_loop(count, least, more, seed):
    digits = torch.arange(10).flip(0)
    sets = draw(torch.zeros(10, 2), count, (least, least + more), torch.Generator().manual_seed(seed))
    slow = [int(digits[sets.element_ids[a:b]].sum()) for a, b in itertools.pairwise(sets.offsets.tolist())]
    assert sums(sets, digits).tolist() == slow
    assert all(least <= size <= least + more for size in sets.sizes.tolist())


def test_the_same_generator_draws_the_same_sets():
    one, two = (draw(torch.arange(10), 50, (1, 10), torch.Generator().manual_seed(3)) for _ in range(2))
    assert one.offsets.equal(two.offsets) and one.index.equal(two.index)


def test_no_deformation_leaves_an_image_as_it_is():
    images = torch.rand(4, 28, 28)
    assert_close(deform(images, 0.0), images, atol=1e-5, rtol=0)


def test_a_deformation_keeps_most_of_the_ink_in_the_middle():
    images = torch.zeros(200, 28, 28)
    images[:, 10:18, 10:18] = 1.0
    moved = deform(images, generator=torch.Generator().manual_seed(0))
    assert moved.shape == images.shape and moved.min() >= 0 and moved.max() <= 1 + 1e-6
    assert (moved - images).abs().amax((1, 2)).min() > 0.1  # none is left alone
    assert 0.8 < moved.sum() / images.sum() < 1.25
    assert moved[:, 7:21, 7:21].sum() / moved.sum() > 0.9


def test_small_images_are_split_without_overlap():
    (train, y), (test, z) = small_images("train"), small_images("test")
    assert len(train) + len(test) == len(y) + len(z) == 1797
    assert train.max() == 255 and set(z.tolist()) == set(range(10))


def test_accuracy_wants_one_answer_for_each_set():
    with pytest.raises(ValueError, match=r"shapes \(3, 1\) and \(3,\)"):
        exact_sums(torch.zeros(3, 1), torch.zeros(3))


# --------------------------------------------------------------------------------------------------------------- models


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 99))
def test_the_distribution_of_sums_equals_the_one_counted_out(sizes, seed):
    source = torch.Generator().manual_seed(seed)
    sets = Sets.from_list([torch.randn(n, 10, generator=source).mul(3).softmax(1) for n in sizes])
    for found, rows in zip(sum_model(nn.Identity(), most=36)(sets), sets, strict=True):
        slow = torch.ones(1, dtype=torch.float64)
        for row in rows.double():  # the distribution of a sum is the convolution of the two
            slow = torch.nn.functional.conv1d(slow[None, None], row.flip(0)[None, None], padding=9)[0, 0]
        assert_close(found[: len(slow)], slow, atol=1e-6, rtol=0)
        assert found[len(slow) :].abs().max().item() < 1e-9 if len(slow) < 37 else True


def test_the_gradient_of_the_likelihood_is_that_of_the_counted_out_one():
    logits = torch.randn(2, 10, dtype=torch.float64, requires_grad=True)
    p = logits.softmax(1)
    fast = sum_model(nn.Identity(), most=18)(Sets(p, torch.tensor([0, 2])))[0, 11].log()
    slow = sum(p[0, d] * p[1, 11 - d] for d in range(2, 10)).log()
    assert_close(torch.autograd.grad(fast, logits, retain_graph=True), torch.autograd.grad(slow, logits))


def test_our_model_is_invariant():
    sets = draw(torch.rand(20, 8, 8, dtype=torch.float64), 6, (1, 10)).materialize()
    assert_invariant(sum_model(Reader(8).eval(), most=90).double(), sets)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_network_reads_each_set_alone_and_in_order(cell):
    torch.manual_seed(0)
    model = Recurrent(cell, nn.Linear(3, 5), width=5, state=7, out=2).eval()
    sets = Sets.from_list([torch.randn(n, 3) for n in (4, 1, 0, 6)])
    slow = []
    for rows in sets:
        read = model.phi(rows) if len(rows) else torch.zeros(1, 5)
        slow.append(model.rho(model.cell(read[None])[0][0, -1]))
    assert_close(model(sets), torch.stack(slow))
    assert model(Sets(torch.zeros(0, 3), torch.tensor([0, 0]))).shape == (1, 2)
    with pytest.raises(AssertionError):
        assert_invariant(model, sets)


def test_in_training_the_order_changes_and_the_members_stay():
    torch.manual_seed(0)
    model = Recurrent("gru", nn.Identity(), width=3, state=4, out=1)
    ordered = Sets.from_list([torch.randn(9, 3), torch.randn(1, 3)])
    one, two = model(ordered), model(ordered)
    assert not torch.allclose(one[0], two[0]) and torch.equal(one[1], two[1])


def test_another_cell_is_refused():
    with pytest.raises(ValueError, match="'lstm' or 'gru', found 'rnn'"):
        Recurrent("rnn", nn.Identity(), width=1, state=1, out=1)


# ------------------------------------------------------------------------------------------------------------- training


def test_a_training_that_was_stopped_ends_with_the_same_weights(tmp_path, monkeypatch):
    images, digits = small_images("train")
    common = {"epochs": 2, "rate": 1e-3, "pool": 128, "sets": 32, "seed": 5}

    def build():
        torch.manual_seed(0)
        return DeepSet(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh()), nn.Linear(8, 1), pool="sum")

    def loss(model, batch):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return (model(batch.sets)[:, 0] - batch.y).abs().sum(), len(batch.y)

    whole, stopped = build(), build()
    left = 1000
    before = torch.get_rng_state()
    train_on_pools(whole, loss, images, digits, folder=tmp_path / "a", **common)
    assert torch.get_rng_state().equal(before)
    left = 13
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        clock = itertools.count(step=60)
        patch.setattr("time.monotonic", lambda: next(clock))  # a checkpoint is due at every step
        train_on_pools(stopped, loss, images, digits, folder=tmp_path / "b", **common)
    left = 9  # 22 steps in all
    again = build()
    train_on_pools(again, loss, images, digits, folder=tmp_path / "b", **common)
    for a, b in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)


def test_text_digits_are_learnt_exactly(tmp_path, monkeypatch):
    outcome = digits_text.EXPERIMENT.methods["Deep Sets"](Trial(False, 0, tmp_path), "all")
    accuracy = {row.data: row.value for row in outcome.measures}
    assert min(accuracy[f"M={m}"] for m in range(5, 101, 5)) == 1.0
    assert accuracy["M=1000"] >= 0.99


def test_sums_alone_teach_to_read_digits(tmp_path):
    images, digits = small_images("train")
    torch.manual_seed(0)
    model = sum_model(Reader(8), most=90)
    train_on_pools(
        model,
        digits_image._surprise,
        images,
        digits,
        epochs=6,
        rate=4e-3,
        amount=0.3,
        average=0.9,
        seed=0,
        folder=tmp_path,
    )
    test, truth = small_images("test")
    with torch.no_grad():
        read = model.phi[0].eval()(test / 255).argmax(1)
    assert (read == truth).float().mean() > 0.85


# -------------------------------------------------------------------------------------------------------------- figures


def record(method, seed, values):
    rows = [{"data": f"M={m}", "metric": "accuracy", "value": v} for m, v in values.items()]
    return Record("digits-image", True, method, seed, "", [], parts={"all": {"measures": rows}})


def test_the_curve_is_the_mean_over_the_seeds():
    found = [record("Ours", 0, {1: 0.99, 50: 0.6}), record("Ours", 1, {1: 0.99, 50: 0.8}), record("GRU", 0, {50: 0.0})]
    sizes, mean, deviation = curve(found, "Ours")
    assert sizes.tolist() == [1, 50] and mean.tolist() == pytest.approx([0.99, 0.7])
    assert deviation.tolist() == pytest.approx([0, 0.1])


def test_the_figure_draws_every_method_and_its_bound():
    pytest.importorskip("matplotlib")
    found = [record("Ours", 0, {1: 0.99, 5: 0.95, 50: 0.6}), record("GRU", 0, {5: 0.5, 50: 0.0})]
    (axes,) = figure(found, 50, ("Ours", "Deep Sets")).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines) == ["Ours", "(1 − p)^M, p = 1.00 %", "GRU"]
    assert lines["(1 − p)^M, p = 1.00 %"].get_ydata()[-1] == pytest.approx(0.99**50)

"""The training loop: what it computes, log and progress, early stopping, devices, threads."""

import json
import random
import threading

import numpy as np
import pytest
import torch

from deepsets import Sets
from deepsets.train import Batch, evaluate, train

from .helpers import assert_same, data, fitted, loss, model


def test_clipping_shortens_long_gradients_and_leaves_short_ones():
    def steps(clip):
        rate = {"optimizer": lambda ps: torch.optim.SGD(ps, 1.0), "warmup": 0.0, "schedule": "constant"}
        net, _ = fitted(clip=clip, epochs=1, batch_size=40, **rate)
        vector = torch.nn.utils.parameters_to_vector
        return (vector(net.parameters()) - vector(model().parameters())).detach()

    free = steps(None)
    assert float(free.norm()) > 0.1
    torch.testing.assert_close(steps(0.05), free * 0.05 / free.norm(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(steps(100.0), free)


def test_training_lowers_the_loss():
    _, history = fitted(epochs=30, learning_rate=0.02)
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]


@pytest.mark.parametrize("micro", [1, 7, 50])
def test_micro_batches_give_the_weights_of_whole_batches(micro):
    what = data()
    what = Batch(what.sets.to(dtype=torch.float64), what.y.double())
    whole, _ = fitted(model(dtype=torch.float64), what, micro_elements=None)
    small, _ = fitted(model(dtype=torch.float64), what, micro_elements=micro)
    for a, b in zip(whole.parameters(), small.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-12)


def test_a_subset_of_every_set_is_seen_and_another_one_at_each_step():
    seen = []

    def watch(model, batch):
        seen.append(batch.sets)
        return loss(model, batch)

    what = Batch(Sets.from_list([torch.randn(50, 3) for _ in range(4)]), torch.randn(4, 1))
    train(model(), watch, what, epochs=3, batch_size=4, subset=8)
    assert all(sets.sizes.tolist() == [8] * 4 for sets in seen)
    everything = {tuple(row) for row in what.sets.values.tolist()}
    drawn = [{tuple(row) for row in sets.values.tolist()} for sets in seen]
    assert all(rows < everything for rows in drawn)
    assert drawn[0] != drawn[1] != drawn[2]


def test_early_stopping_puts_the_best_weights_back():
    held = data(20, seed=5)
    net, history = fitted(model(), validation=held, patience=3, epochs=60, learning_rate=0.05, schedule="constant")
    scores = [row["validation"] for row in history]
    assert len(history) < 60
    assert scores.index(min(scores)) == len(scores) - 4
    assert evaluate(net, loss, held) == pytest.approx(min(scores), rel=1e-6)


def test_a_validation_without_labels_is_an_error():
    with pytest.raises(ValueError, match="none of the 5 sets to be evaluated has a label"):
        evaluate(model(), lambda model, batch: (model(batch.sets).sum() * 0, 0), data(5))


def test_the_mode_of_the_model_survives_an_evaluation():
    net = model(dropout=0.5).train()
    assert evaluate(net, loss, data()) == evaluate(net, loss, data(), batch_size=40)
    assert net.training


def test_losses_are_means_even_for_tiny_weights():
    def weighed(model, batch):
        return (loss(model, batch)[0] * 1e-3, len(batch.sets) * 1e-3)

    history = train(model(), weighed, data(), epochs=1, batch_size=40, validation=data())
    _, plain = fitted(epochs=1, batch_size=40, validation=data())
    assert history[0]["loss"] == pytest.approx(plain[0]["loss"], rel=1e-5)
    assert history[0]["validation"] == pytest.approx(plain[0]["validation"], rel=1e-5)


def test_a_batch_without_labels_changes_nothing():
    net = model()
    train(net, lambda model, batch: (model(batch.sets).sum() * 0, 0), data(), epochs=2)
    assert_same(net, model())


def test_the_same_seed_gives_the_same_weights_and_another_one_others():
    a, b, c = (fitted(model(dropout=0.3), seed=seed)[0] for seed in (7, 7, 8))
    assert_same(a, b)
    assert not torch.equal(next(a.parameters()), next(c.parameters()))


def test_the_global_generators_are_left_as_they_were():
    net, held = model(dropout=0.3), data(8)
    torch.manual_seed(11)
    np.random.seed(11)  # noqa: NPY002
    random.seed(11)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    fitted(net, validation=held, subset=2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert random.getstate() == before[2]


def test_the_log_has_one_line_per_epoch(tmp_path):
    _, history = fitted(checkpoint_dir=tmp_path / "new" / "run", validation=data(8))
    lines = [json.loads(line) for line in (tmp_path / "new" / "run" / "log.jsonl").read_text().splitlines()]
    assert lines == history
    assert [sorted(line) for line in lines] == [["epoch", "loss", "rate", "seconds", "validation"]] * 2


def test_a_log_without_its_checkpoint_is_started_again(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"epoch": 0, "loss": 1.0}\n{"epoch": 1, "lo')
    fitted(checkpoint_dir=tmp_path)
    assert [json.loads(line)["epoch"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [0, 1]


def test_progress_is_shown_when_asked_for_and_only_then(capsys):
    fitted(progress=False)
    fitted(progress=None)  # no terminal here
    assert capsys.readouterr().err == ""
    fitted(progress=True, validation=data(8))
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "loss=" in shown
    assert "validation=" in shown


# ------------------------------------------------------------------------------------------------------- options


def test_on_epoch_sees_the_numbers_of_every_epoch():
    seen = []
    _, history = fitted(epochs=3, validation=data(8), on_epoch=seen.append)
    assert seen == history
    assert len(seen) == 3


def test_on_epoch_stops_the_training_for_good(tmp_path):
    options = {"epochs": 9, "on_epoch": lambda numbers: numbers["epoch"] == 1, "checkpoint_dir": tmp_path}
    stopped, history = fitted(**options)
    assert len(history) == 2
    again, same = fitted(**options)
    assert_same(again, stopped)
    assert same == history


def test_averaged_weights_are_the_moving_average_written_out():
    followed: list[torch.Tensor] = []

    def watch(model, batch):
        followed.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone())
        return loss(model, batch)

    net, last = model(), model()
    train(net, watch, data(), epochs=3, batch_size=10, average_weights=0.6)
    train(last, loss, data(), epochs=3, batch_size=10)
    steps = [*followed[1:], torch.nn.utils.parameters_to_vector(last.parameters()).detach()]
    wanted = followed[0]
    for number, weights in enumerate(steps):
        keep = min(0.6, (1 + number) / (10 + number))
        wanted = keep * wanted + (1 - keep) * weights
    found = torch.nn.utils.parameters_to_vector(net.parameters()).detach()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_validation_scores_the_averaged_weights_and_keeps_the_best_of_them():
    held = data(20, seed=5)
    net, history = fitted(epochs=6, learning_rate=0.05, validation=held, average_weights=0.9)
    assert evaluate(net, loss, held) == pytest.approx(min(row["validation"] for row in history), rel=1e-6)
    _, plain = fitted(epochs=6, learning_rate=0.05, validation=held)
    assert plain[0]["loss"] == history[0]["loss"]
    assert plain[0]["validation"] != history[0]["validation"]


def test_an_average_counts_steps_but_does_not_average_them():
    class WithCounter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model()
            self.register_buffer("calls", torch.tensor(0))

        def forward(self, sets):
            self.calls += 1
            return self.inner(sets)

    net = WithCounter()
    fitted(net, average_weights=0.5)
    assert int(net.calls) == 8


def test_autocast_leaves_weights_in_float32_and_learns_nearly_the_same():
    exact, rough = fitted(epochs=5)[0], fitted(epochs=5, autocast=torch.bfloat16)[0]
    pairs = list(zip(exact.parameters(), rough.parameters(), strict=True))
    assert all(b.dtype == torch.float32 for _, b in pairs)
    assert any(not torch.equal(a, b) for a, b in pairs)
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=0.1, atol=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": -1}, "epochs must be 0 or more; found -1"),
        ({"batch_size": 0}, "batch_size must be 1 or more; found 0"),
        ({"average_weights": 1.0}, r"average_weights is a share .* in \[0, 1\); found 1.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)


# ------------------------------------------------------------------------------------------- devices and threads


def test_model_and_batches_are_moved_to_the_device_of_the_training(monkeypatch):
    net, moved = model(), []
    for kind in (torch.nn.Module, Batch):
        plain = kind.to
        patched = lambda self, device, k=kind, p=plain: moved.append((k, device)) or p(self, device)  # noqa: E731
        monkeypatch.setattr(kind, "to", patched)
    fitted(net, epochs=1, batch_size=10, device="cpu", validation=data(4))
    cpu = torch.device("cpu")
    assert moved == [(torch.nn.Module, cpu)] + [(Batch, cpu)] * 5


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_trainings_in_four_threads_equal_those_alone(dropout):
    def one(seed):
        net, _ = fitted(nets[seed], seed=seed, epochs=6, subset=2, validation=data(8))
        return net

    torch.manual_seed(0)
    nets = [model(dropout) for _ in range(8)]
    wanted = [one(seed) for seed in range(4)]
    nets = [model(dropout) for _ in range(8)]
    before = torch.get_rng_state()
    threads = [threading.Thread(target=one, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(wanted, nets[:4], strict=True):
        assert_same(a, b)

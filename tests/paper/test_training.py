"""Data made at every step, and Muon: rows per epoch, seeds, settings of the training, exact resume."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from deepsets import Sets
from deepsets.nn import DeepSet
from deepsets.train import Batch, CheckpointError, TrainingError, checkpoint
from paper.training import MuonAdamW, StepData, supports_bfloat16, train_by_steps

VALUES = torch.arange(8.0)[:, None]


def loss(model, batch):
    return (model(batch.sets) - batch.y).square().sum(), len(batch.y)


def tiny(folder, loss=loss, **other):
    """Two epochs of two steps on four sets of one number: the model, and what `make` was called with."""
    model = DeepSet(nn.Linear(1, 2), nn.Linear(2, 1), pool="sum")
    seen = []

    def make(rows, done):
        seen.append((rows.tolist(), done, float(torch.rand(()))))
        return Batch(Sets(VALUES[rows], torch.arange(len(rows) + 1)), VALUES[rows])

    options = {"epochs": 2, "rate": 1e-2, "pool": 4, "seed": 0, "folder": folder} | other
    train_by_steps(model, loss, make, 8, **options)
    return model, seen


def test_every_row_comes_once_per_epoch_and_make_gets_the_progress(tmp_path):
    _, seen = tiny(tmp_path)
    assert [done for _, done, _ in seen] == [0.125, 0.375, 0.625, 0.875]
    for epoch in (seen[:2], seen[2:]):
        assert sorted(row for rows, _, _ in epoch for row in rows) == list(range(8))


def test_random_numbers_of_a_step_follow_from_seed_and_step(tmp_path):
    _, seen = tiny(tmp_path, seed=3)
    for step, (_, _, drawn) in enumerate(seen):
        assert drawn == float(torch.rand((), generator=torch.Generator().manual_seed(hash((3, step)))))


def test_fewer_rows_than_a_step_takes_are_refused():
    with pytest.raises(ValueError, match="a step takes 16 rows of the data, found 8 in all"):
        StepData(lambda rows, done: Batch(Sets(VALUES, torch.tensor([0, 8]))), 8, epochs=1, pool=16, settings={})


def test_a_loss_that_grows_without_bounds_is_an_error(tmp_path):
    with pytest.raises(TrainingError, match=r"became (inf|nan) in epoch \d+, step \d+.*Try a smaller learning rate"):
        tiny(tmp_path, rate=1e30, epochs=40)


def test_rows_that_do_not_fill_a_step_wait_for_another_epoch(tmp_path):
    _, seen = tiny(tmp_path, pool=3, epochs=30)
    assert [len(rows) for rows, *_ in seen] == [3] * 60
    assert all(len({*a, *b}) == 6 for (a, *_), (b, *_) in zip(seen[::2], seen[1::2], strict=True))
    assert {row for rows, *_ in seen for row in rows} == set(range(8))


def test_matrices_decay_and_biases_do_not(tmp_path):
    def constant(model, batch):
        return sum(p.sum() * 0 for p in model.parameters()), 1

    torch.manual_seed(0)
    plain = DeepSet(nn.Linear(1, 2), nn.Linear(2, 1), pool="sum")
    torch.manual_seed(0)
    model, _ = tiny(tmp_path, constant, weight_decay=0.5, rate=0.1, average=0.0)
    for before, after in zip(plain.parameters(), model.parameters(), strict=True):
        if before.ndim > 1:
            assert bool((after.abs() < before.abs()).all())
        else:
            assert torch.equal(after, before)


def test_gradients_are_clipped_to_a_norm_of_1(tmp_path):
    norms = []

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            grads = [p.grad for group in self.param_groups for p in group["params"]]
            norms.append(float(nn.utils.get_total_norm(grads)))

    tiny(tmp_path, lambda model, batch: (1e4 * loss(model, batch)[0], 1), optimizer=Watched)
    assert norms == pytest.approx([1.0] * 4, abs=1e-4)


def test_another_optimizer_and_no_average_can_be_chosen(tmp_path):
    weights = []
    for name, options in {"a": {"optimizer": torch.optim.Adamax}, "b": {}, "c": {"average": 0.9}}.items():
        torch.manual_seed(0)
        weights.append(tiny(tmp_path / name, **{"average": 0.0, **options})[0].rho.weight)
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, monkeypatch):
    def stopping(model, batch):
        nonlocal left
        left -= 1
        if left < 0:
            raise RuntimeError("power failure")
        return loss(model, batch)

    def seeded_model(folder, loss):
        torch.manual_seed(0)
        return tiny(folder, loss, epochs=4)

    whole, _ = seeded_model(tmp_path / "a", loss)
    left = 5
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="power failure"):
        patch.setattr("deepsets.train.run.Run.is_due", lambda self, seconds: True)
        seeded_model(tmp_path / "b", stopping)
    again, seen = seeded_model(tmp_path / "b", loss)
    assert len(seen) == 3
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    tiny(tmp_path, settings={"points": 100})
    _, seen = tiny(tmp_path, settings={"points": 100})
    assert seen == []  # nothing was left to do
    with pytest.raises(CheckpointError, match=r"epochs 2, here 3; .*points 100, here 50.*Choose another folder"):
        tiny(tmp_path, epochs=3, settings={"points": 50})


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


def steps(model, optimizer, seeds):
    for seed in seeds:
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        (model(x) - x[:, :2].sin()).square().mean().backward()
        optimizer.step()


def test_inner_matrices_move_alike_in_all_directions_and_the_rest_as_with_adamw():
    one, other = network(), network()
    before = [p.detach().clone() for p in one.parameters()]
    steps(one, MuonAdamW([{"params": list(one.parameters())}], 1e-3), [1])
    steps(other, torch.optim.AdamW(other.parameters(), 1e-3, weight_decay=0.0, fused=True), [1])
    moved = torch.linalg.svdvals(one[2].weight.detach() - before[2])
    plain = torch.linalg.svdvals(other[2].weight.detach() - before[2])
    # The gradient has few large directions: Muon makes these about equal, AdamW does not.
    assert moved[0] / moved[3] < 2 < plain[0] / plain[3]
    for name in ("0.weight", "0.bias", "2.bias", "4.weight", "4.bias"):
        assert_close(one.get_parameter(name), other.get_parameter(name), rtol=0, atol=0)


@pytest.mark.parametrize("bfloat16", [False, True])
def test_kernels_move_as_matrices_with_one_row_per_channel(bfloat16):
    if bfloat16 and not supports_bfloat16():
        pytest.skip("this system does not compute in bfloat16")
    kernel = nn.Parameter(torch.zeros(32, 4, 3, 3).to(memory_format=torch.channels_last))
    optimizer = MuonAdamW([{"params": [kernel]}], 1e-2, bfloat16=bfloat16)
    source = torch.Generator().manual_seed(0)
    gradient = torch.randn(32, 36, generator=source) * torch.logspace(0, -2, 36)  # some directions count little
    kernel.grad = gradient.view(32, 4, 3, 3)
    optimizer.step()
    moved = -kernel.detach().flatten(1)
    values = torch.linalg.svdvals(moved) / (0.2 * 1e-2 * 36**0.5)
    assert 0.6 < values.min() and values.max() < 1.3
    u, _, v = torch.linalg.svd(gradient, full_matrices=False)
    assert (moved * (u @ v)).sum() / moved.norm() > 0.97 * 32**0.5  # the cosine


def test_weights_decay_in_the_groups_that_say_so():
    model = network()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.5}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = MuonAdamW(groups, 0.1)
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for p, old in zip(model.parameters(), before, strict=True):
        assert_close(p.detach(), old * 0.95 if p.ndim > 1 else old)


def test_a_saved_state_goes_on_to_the_same_weights(tmp_path):
    whole = network()
    steps(whole, MuonAdamW([{"params": list(whole.parameters())}], 1e-2), range(6))
    stopped = network()
    optimizer = MuonAdamW([{"params": list(stopped.parameters())}], 1e-2)
    steps(stopped, optimizer, range(3))
    tensors, numbers = checkpoint.optimizer_tensors(optimizer)
    checkpoint.save(tmp_path / "c", tensors, {"optimizer": numbers})

    again = MuonAdamW([{"params": list(stopped.parameters())}], 1e-2)
    tensors, facts = checkpoint.load(tmp_path / "c")
    checkpoint.restore_optimizer(again, tensors, facts["optimizer"])
    steps(stopped, again, range(3, 6))
    for a, b in zip(whole.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_processor_without_bfloat16_is_not_made_to_emulate_it(monkeypatch):
    """Emulated products are tens of times slower than those in float32."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    supports_bfloat16.cache_clear()
    try:
        assert not supports_bfloat16()
    finally:
        supports_bfloat16.cache_clear()

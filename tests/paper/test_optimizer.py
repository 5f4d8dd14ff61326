"""Muon and AdamW as one optimizer: which takes what, and exact resume from a saved state."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from deepsets.train import checkpoint
from paper.optimizer import MuonAdamW


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


@pytest.mark.parametrize(("model", "found"), [(nn.Linear(3, 64), "no"), (nn.Linear(64, 64, bias=False), "only")])
def test_a_network_without_both_kinds_is_refused(model, found):
    with pytest.raises(ValueError, match=f"found {found} matrices of 48 x 48 or more"):
        MuonAdamW([{"params": list(model.parameters())}], 1e-3)

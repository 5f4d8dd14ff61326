"""A small problem that the tests of the training loop share."""

from pathlib import Path

import torch
from torch.nn import functional as F

from deepsets import Sets, nn
from deepsets.train import Batch, train


def data(count: int = 40, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    sets = Sets.from_list([torch.randn(1 + b % 7, 3, generator=generator) for b in range(count)])
    return Batch(sets, torch.randn(count, 1, generator=generator))


def model(dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    torch.manual_seed(1)
    return nn.DeepSet(nn.mlp(3, 8, 8, dropout=dropout), nn.mlp(8, 8, 1), pool="mean").to(dtype)


def loss(model, batch):
    return F.mse_loss(model(batch.sets), batch.y, reduction="sum"), len(batch.sets)


def fitted(net: torch.nn.Module | None = None, what: Batch | None = None, **options):
    """A small training: the model and its history."""
    net = model() if net is None else net
    history = train(net, loss, data() if what is None else what, **{"epochs": 2, "batch_size": 10, **options})
    return net, history


def assert_same(a: torch.nn.Module, b: torch.nn.Module) -> None:
    for name, tensor in a.state_dict().items():
        assert torch.equal(tensor, b.state_dict()[name]), name


def names(folder: Path) -> list[str]:
    """Files of a folder, without those that TensorBoard writes where it is installed."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("events.out"))

"""Train on shards under torchrun and write the final weights: run by test_shards.py."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn import functional as F

from deepsets import nn
from deepsets.distributed import Shards
from deepsets.train import train


def trained(
    table: Path, folder: Path | None = None, stop_at: int = -1, batch_members: int = 40, **options
) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    model = nn.DeepSet(nn.mlp(2, 8, 8, dropout=options.pop("dropout", 0.0)), nn.mlp(8, 1), pool="mean")
    steps = 0

    def loss(model, batch):
        nonlocal steps
        steps += 1
        if steps == stop_at:
            raise RuntimeError("power failure")
        return F.mse_loss(model(batch.sets), batch.y, reduction="sum"), len(batch.sets)

    data = Shards(table, by="box", target=["y"], mix=2, batch_members=batch_members)
    train(model, loss, data, checkpoint_dir=folder, learning_rate=0.01, progress=False, **options)
    return model.state_dict()


if __name__ == "__main__":
    found = trained(Path(sys.argv[1]), epochs=1, batch_members=100_000)  # one step: one process would do the same
    if dist.get_rank() == 0:
        save_file(found, Path(sys.argv[2]) / "one.safetensors")
    trained(Path(sys.argv[1]), epochs=2, dropout=0.1)  # as many steps in both, or this would not end
    assert dist.get_world_size() == 2

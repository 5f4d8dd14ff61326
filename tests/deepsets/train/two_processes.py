"""Train under torchrun and write the result of the first process: run by test_process_data_parallel.py."""

import atexit
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn import functional as F

from deepsets import Sets, nn
from deepsets.train import Batch, train


class WithSpare(torch.nn.Module):
    """A model with a parameter that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.DeepSet(nn.mlp(3, 16, 16), nn.mlp(16, 16, 1), pool="mean")
        self.spare = torch.nn.Parameter(torch.ones(4))

    def forward(self, sets: Sets) -> torch.Tensor:
        return self.inner(sets)


def trained(sizes: list[int], dtype: torch.dtype, **options) -> dict[str, torch.Tensor]:
    """The weights after a training, and the gradients of its last step."""
    torch.manual_seed(3)
    sets = Sets.from_list([torch.randn(n, 3, dtype=dtype) for n in sizes])
    data = Batch(sets, torch.randn(len(sizes), 1, dtype=dtype), weight=torch.rand(len(sizes), dtype=dtype))
    model = WithSpare().to(dtype)

    def loss(model, batch):
        errors = F.mse_loss(model(batch.sets), batch.y, reduction="none")[:, 0]
        return (errors * batch.weight).sum(), batch.weight.sum()

    train(model, loss, data, progress=False, learning_rate=0.01, **options)
    gradients = {f"gradient of {k}": p.grad for k, p in model.named_parameters() if p.grad is not None}
    return {**model.state_dict(), **gradients}


CASES = {
    "one step": {"sizes": [1 + b % 9 for b in range(32)], "dtype": torch.float32, "epochs": 1, "batch_size": 32},
    "many steps": {"sizes": [1 + b % 9 for b in range(32)], "dtype": torch.float64, "epochs": 4, "batch_size": 8},
    "sizes that differ by 1000x": {
        "sizes": [4000, 4, 0, 7, 4000, 1, 1, 4, 4, 3],
        "dtype": torch.float64,
        "epochs": 3,
        "batch_size": 3,
    },
    "one set per batch": {"sizes": [5, 3, 1, 2], "dtype": torch.float64, "epochs": 2, "batch_size": 1},
}


def no_thread_is_left() -> None:
    """Fail if threads of the process group live: they would abort the process when the interpreter ends."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").glob("*")]
    left = [name for name in names if "gloo" in name]
    if left:
        os.write(2, f"threads of the group at exit: {left}\n".encode())
        os._exit(3)


if __name__ == "__main__":
    atexit.register(no_thread_is_left)  # runs after what is registered later: the end of the group
    for name, case in CASES.items():
        found = trained(**case)
        if dist.get_rank() == 0:
            save_file(found, Path(sys.argv[1]) / f"{name}.safetensors")
    assert dist.get_world_size() == 2

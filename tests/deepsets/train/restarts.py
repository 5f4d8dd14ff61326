"""Train, kill, resume and compare: run by test_checkpoint.py in a process of its own.

Every run is a fork of one process that has imported torch, so that ten restarts cost one import.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from deepsets import Sets, nn
from deepsets.train import Batch, train
from deepsets.train import checkpoint as _checkpoint
from deepsets.train.run import Run


def data(seed: int, count: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    sets = Sets.from_list([torch.randn(1 + b % 7, 3, generator=generator) for b in range(count)])
    return Batch(sets, torch.randn(count, 1, generator=generator))


def weights_of_a_run(folder: Path | None, variant: str, die_at: int = -1, **options) -> dict[str, torch.Tensor]:
    """Train with dropout; the process kills itself at call `die_at` of the loss."""
    torch.manual_seed(1)
    model = nn.DeepSet(nn.mlp(3, 16, 16, dropout=0.2), nn.mlp(16, 16, 1, dropout=0.2), pool="mean")
    if variant == "early stopping":
        options |= {"schedule": "plateau", "validation": data(2, 16), "patience": 5, "learning_rate": 0.1}
    calls = 0

    def loss(model, batch):
        nonlocal calls
        if model.training:
            calls += 1
            if calls == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if folder is not None:
                time.sleep(0.002)
        return F.mse_loss(model(batch.sets), batch.y, reduction="sum"), len(batch.sets)

    options = {"checkpoint_seconds": 0.005, **options}
    train(model, loss, data(0, 40), epochs=12, batch_size=10, checkpoint_dir=folder, progress=False, **options)
    return model.state_dict()


def forked(work, *args, after=lambda child: None, **kwargs) -> int:
    """Run the work in a child process and return its exit code (0: completed, 1: KeyboardInterrupt, -9: killed)."""
    child = os.fork()
    if child == 0:
        try:
            work(*args, **kwargs)
            os._exit(0)
        except KeyboardInterrupt:
            os._exit(1)
    after(child)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_while_saving(folder: Path, variant: str) -> None:
    plain, count = _checkpoint._link, 0

    def link(*args):
        nonlocal count
        plain(*args)
        count += 1
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)  # written, not yet renamed

    _checkpoint._link = link
    weights_of_a_run(folder, variant)


def killed_after_the_log(folder: Path, variant: str) -> None:
    plain = Run.log

    def log(self, numbers):
        plain(self, numbers)
        os.kill(os.getpid(), signal.SIGKILL)  # the line is written, the checkpoint of this epoch is not

    Run.log = log
    weights_of_a_run(folder, variant)


def ctrl_c(folder: Path, child: int) -> None:
    """Send SIGINT as soon as there is a checkpoint."""
    while not (folder / "checkpoint.safetensors").exists():
        time.sleep(0.001)
    os.kill(child, signal.SIGINT)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def names(folder: Path) -> list[str]:
    """Files of a folder, without those that TensorBoard writes where it is installed."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("events.out"))


def main(folder: Path) -> None:
    found = {}
    chance = random.Random(0)
    for variant in ("dropout", "early stopping"):
        wanted = weights_of_a_run(None, variant)
        here = folder / variant
        deaths = [chance.randint(2, 5) for _ in range(3)]
        endings = [forked(weights_of_a_run, here, variant, die_at=step) for step in deaths]
        endings.append(forked(killed_while_saving, here, variant))
        endings.append(forked(killed_after_the_log, here, variant))
        final = weights_of_a_run(here, variant)
        found[variant] = {
            "endings": endings,
            "identical": same(final, wanted),
            "again": same(weights_of_a_run(here, variant), wanted),
            "files": names(here),
            "epochs": [json.loads(line)["epoch"] for line in (here / "log.jsonl").read_text().splitlines()],
        }
    wanted, here = weights_of_a_run(None, "dropout"), folder / "ctrl-c"
    found["ctrl-c"] = {
        "ending": forked(weights_of_a_run, here, "dropout", after=lambda child: ctrl_c(here, child)),
        "files": names(here),
        "identical": same(weights_of_a_run(here, "dropout"), wanted),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

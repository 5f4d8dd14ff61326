"""How often a training that was killed with SIGKILL at a random step, and resumed, ends with the very same weights.

Every training is a process of its own (dropout on, early stopping on) that writes a checkpoint about every fourth
step. It reports when it reaches the step chosen for it, and is killed by another process up to 10 ms later.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

KILLS = 20
EPOCHS, SETS, BATCH = 8, 400, 16  # 200 steps


def weights(folder: Path | None, say_at: int) -> tuple[str, int]:
    """Trains, from the checkpoint in the folder if there is one: a fingerprint of the final weights, and the steps."""
    from deepsets import Sets, nn
    from deepsets.train import Batch, train

    torch.manual_seed(0)
    rows = [torch.randn(1 + b % 40, 4) for b in range(SETS)]
    data = Batch(Sets.from_list(rows), torch.stack([x.amax() for x in rows])[:, None])
    network = nn.DeepSet(nn.mlp(4, 64, 64, dropout=0.2), nn.mlp(64, 64, 1, dropout=0.2), pool="max")

    steps = 0

    def loss(model: torch.nn.Module, batch: Batch) -> tuple[Tensor, int]:
        nonlocal steps
        steps += model.training
        if model.training and steps == say_at:
            print("here", flush=True)
        return F.mse_loss(model(batch.sets), batch.y, reduction="sum"), len(batch.sets)

    train(
        network,
        loss,
        data.take(torch.arange(50, SETS)),
        validation=data.take(torch.arange(50)),
        patience=3,
        schedule="plateau",
        epochs=EPOCHS,
        batch_size=BATCH,
        checkpoint_dir=folder,
        checkpoint_seconds=0.02,
        progress=False,
    )
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest(), steps


def start(folder: Path, say_at: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.resume", str(folder), str(say_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killed(folder: Path, step: int, seconds: float) -> bool:
    """Starts a training and kills it so long after it came to this step; whether it was still at work."""
    process = start(folder, step)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    process.communicate()
    return process.returncode < 0


def finished(folder: Path) -> tuple[str, int]:
    """The fingerprint of a training that completes, and how many steps this process made."""
    process = start(folder, -1)
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the training ended with code {process.returncode}")
    return out.split()[0], int(out.split()[1])


def run(kills: int = KILLS) -> list[dict[str, object]]:
    chance = random.Random(0)
    identical, hit, chosen, again = 0, 0, [], []
    with tempfile.TemporaryDirectory() as name:
        wanted, steps = finished(Path(name) / "whole")
        for number in range(kills):
            folder = Path(name) / str(number)
            chosen.append(chance.randint(1, steps - 1))
            hit += killed(folder, chosen[-1], chance.uniform(0, 0.01))
            found, more = finished(folder)
            again.append(more)
            identical += found == wanted
            epochs = [json.loads(line)["epoch"] for line in (folder / "log.jsonl").read_text().splitlines()]
            if epochs != list(range(len(epochs))):
                raise RuntimeError(f"the log repeats or misses epochs: {epochs}")
    return [
        {
            "case": f"SIGKILL at a random step of {steps}, then resumed, {kills} trainings",
            "steps": f"{min(chosen)}..{max(chosen)}",
            "steps after the restart": f"{min(again)}..{max(again)}",
            "killed while at work": hit,
            "bit-identical weights": identical,
        }
    ]


if __name__ == "__main__":
    print(*weights(Path(sys.argv[1]), int(sys.argv[2])))

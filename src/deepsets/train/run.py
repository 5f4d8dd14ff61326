"""Where a training stands: all that a checkpoint must hold beside the data."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from . import checkpoint
from .schedule import Rate

History = list[dict[str, float]]
_PLACE = ("epoch", "step", "finished", "best_loss", "bad", "loss_sum", "loss_count")


class TrainingError(RuntimeError):
    """Training cannot go on."""


class Run:
    """Counts steps and epochs, keeps the best weights, writes the log and the checkpoint, takes them up again."""

    def __init__(
        self, model: nn.Module, opt: torch.optim.Optimizer, rate: Rate, folder: Path | None, identity: dict[str, Any]
    ) -> None:
        self.model, self.opt, self.rate, self.folder, self.identity = model, opt, rate, folder, identity
        self.epoch, self.step, self.finished = 0, 0, False
        self.history: History = []
        self.best: dict[str, Tensor] | None = None
        self.best_loss, self.bad = math.inf, 0
        self.loss_sum, self.loss_count, self.seconds = 0.0, 0.0, 0.0
        self._clock = self._saved = time.monotonic()

    @property
    def path(self) -> Path | None:
        """The checkpoint."""
        return None if self.folder is None else self.folder / "checkpoint.safetensors"

    def close_step(self, summed: float, number: float) -> None:
        """One step is done: the sum of its losses, and their number."""
        self.step += 1
        self.loss_sum += summed
        self.loss_count += number

    def close_epoch(self, rate: float, validation: float | None, patience: int | None) -> dict[str, float]:
        """One epoch is done: its numbers. Keeps the best weights, and counts epochs without better ones."""
        now = time.monotonic()
        self.seconds, self._clock = self.seconds + now - self._clock, now
        loss = self.loss_sum / (self.loss_count or 1.0)
        numbers = {"epoch": self.epoch, "loss": loss, "rate": rate, "seconds": round(self.seconds, 3)}
        if validation is not None:
            numbers["validation"] = validation
            if validation < self.best_loss:
                self.best_loss, self.bad = validation, 0
                self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            else:
                self.bad += 1
                self.finished = patience is not None and self.bad >= patience
        self.history.append(numbers)
        self.epoch, self.step, self.loss_sum, self.loss_count = self.epoch + 1, 0, 0.0, 0.0
        return numbers

    def start_log(self) -> None:
        """The log of the epochs that the checkpoint knows: those after it come again."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / ".log.jsonl.tmp"
        temporary.write_text("".join(json.dumps(numbers) + "\n" for numbers in self.history))
        temporary.replace(self.folder / "log.jsonl")

    def log(self, numbers: dict[str, float]) -> None:
        """A line in `log.jsonl`, and in TensorBoard's format where that is installed."""
        if self.folder is None:
            return
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(numbers) + "\n")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        with SummaryWriter(str(self.folder)) as board:
            for name, value in numbers.items():
                board.add_scalar(name, value, int(numbers["epoch"]))

    def is_due(self, seconds: float) -> bool:
        """Whether the last checkpoint is older than this."""
        return self.folder is not None and time.monotonic() - self._saved > seconds

    def save(self) -> None:
        """Writes the checkpoint."""
        if self.path is None:
            return
        moments, numbers = checkpoint.optimizer_tensors(self.opt)
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"optimizer.{k}": v for k, v in moments.items()}
        tensors |= {f"best.{k}": v for k, v in (self.best or {}).items()}
        self._saved = time.monotonic()
        facts = {
            "identity": self.identity,
            "optimizer": numbers,
            "rate": self.rate.state,
            "history": self.history,
            "seconds": self.seconds + self._saved - self._clock,
        } | {name: getattr(self, name) for name in _PLACE}
        checkpoint.save(self.path, tensors, facts)

    def resume(self) -> None:
        """Goes on from the checkpoint, if there is one."""
        if self.path is None or not self.path.exists():
            return
        tensors, facts = checkpoint.load(self.path)
        self._check_identity(facts["identity"], tensors)
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "best": {}}
        for key, tensor in tensors.items():
            room, name = key.split(".", 1)
            parts[room][name] = tensor
        self.model.load_state_dict(parts["model"])
        checkpoint.restore_optimizer(self.opt, parts["optimizer"], facts["optimizer"])
        self.best = parts["best"] or None
        self.rate.state, self.history, self.seconds = facts["rate"], facts["history"], facts["seconds"]
        for name in _PLACE:
            setattr(self, name, facts[name])

    def _check_identity(self, theirs: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """A checkpoint is taken up only by the training that wrote it."""
        other = [f"{k} {theirs.get(k)!r}, here {v!r}" for k, v in self.identity.items() if theirs.get(k) != v]
        found = {k.removeprefix("model."): tuple(t.shape) for k, t in tensors.items() if k.startswith("model.")}
        wanted = {k: tuple(t.shape) for k, t in self.model.state_dict().items()}
        odd = [k for k in [*wanted, *found] if wanted.get(k) != found.get(k)]
        other += [f"weights {k!r} of shape {found.get(k)}, here {wanted.get(k)}" for k in odd[:1]]
        if other:
            raise checkpoint.CheckpointError(
                f"{self.path} belongs to another training: it has {'; '.join(other)}. "
                "Choose another folder, or delete the checkpoint to start anew."
            )

    def fail(self, what: str, value: float) -> NoReturn:
        """The loss, or a gradient, is not a number any more."""
        has = self.path is not None and self.path.exists()
        raise TrainingError(
            f"the {what} became {value} in epoch {self.epoch}, step {self.step}: the weights or inputs have grown out "
            "of range. Try a smaller learning rate, or look at the scale of the features and targets."
            + (f" The last good checkpoint is kept in {self.path}." if has else "")
        )

    def use_best(self) -> None:
        """Puts the weights with the best validation loss into the model, where there was validation."""
        if self.best is not None:
            self.model.load_state_dict(self.best)

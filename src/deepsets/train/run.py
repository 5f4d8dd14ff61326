"""State of a training, everything that a checkpoint holds beside the data, and the schedule of its learning rate."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, nn

from ..files import atomic_path
from . import checkpoint

Schedule = Literal["cosine", "constant", "plateau"]
History = list[dict[str, float]]
_POSITION = ("epoch", "step", "steps", "finished", "best_loss", "bad", "loss_sum", "loss_count")


class Rate:
    """Factor of the learning rate when a share `done` of the training is over.

    All schedules rise linearly during a share `warmup` of the training. Then ``cosine`` falls to 0, ``constant`` stays,
    and ``plateau`` halves whenever the validation loss has not improved for `patience` epochs.

    Examples
    --------
    >>> rate = Rate("cosine", warmup=0.1)
    >>> [round(rate(done), 3) for done in (0.05, 0.1, 0.55, 1)]
    [0.5, 1.0, 0.5, 0.0]
    """

    def __init__(self, kind: Schedule, warmup: float, patience: int = 5) -> None:
        if kind not in ("cosine", "constant", "plateau"):
            raise ValueError(f"unknown schedule {kind!r}; known are cosine, constant, plateau.")
        if not 0 <= warmup < 1:
            raise ValueError(f"warmup is a share of the training, in [0, 1); found {warmup}.")
        self.kind, self.warmup, self.patience = kind, warmup, patience
        self.state: dict[str, float] = {"factor": 1.0, "best": math.inf, "bad": 0}

    def __call__(self, done: float) -> float:
        """Factor between 0 and 1."""
        if done < self.warmup:
            return done / self.warmup
        if self.kind == "cosine":
            return 0.5 * (1 + math.cos(math.pi * (done - self.warmup) / (1 - self.warmup)))
        return self.state["factor"]

    def after_epoch(self, loss: float) -> None:
        """Take note of the validation loss of an epoch (plateau only)."""
        if self.kind != "plateau":
            return
        if loss < self.state["best"]:
            self.state.update(best=loss, bad=0)
            return
        self.state["bad"] += 1
        if self.state["bad"] >= self.patience:
            self.state.update(factor=self.state["factor"] / 2, bad=0)


class TrainingError(RuntimeError):
    """Training cannot continue."""


class Run:
    """Counts steps and epochs, keeps the best and the averaged weights, writes log and checkpoints, and resumes.

    Only a checkpoint of the same `identity`, the JSON-able settings of a training, is resumed.
    """

    def __init__(
        self,
        model: nn.Module,
        opt: torch.optim.Optimizer,
        rate: Rate,
        average: float,
        folder: Path | None,
        identity: dict[str, Any],
    ) -> None:
        self.model, self.opt, self.rate, self.folder, self.identity = model, opt, rate, folder, identity
        self.epoch, self.step, self.steps, self.finished = 0, 0, 0, False
        self.history: History = []
        self.best: dict[str, Tensor] | None = None
        self.average = average
        self.averaged = _copy(model.state_dict()) if average else None
        self.best_loss, self.bad = math.inf, 0
        self.loss_sum, self.loss_count, self.seconds = 0.0, 0.0, 0.0
        self._keep_previous = True
        self._clock = self._saved = time.monotonic()

    def close_step(self, loss_sum: float, loss_count: float) -> None:
        """Count a step, and let the averaged weights follow."""
        if self.averaged is not None:
            # The first steps move far: an average over few steps is kept for a shorter time.
            keep = min(self.average, (1 + self.steps) / (10 + self.steps))
            _follow(self.averaged, self.model.state_dict(), keep)
        self.step, self.steps = self.step + 1, self.steps + 1
        self.loss_sum += loss_sum
        self.loss_count += loss_count

    def close_epoch(self, rate: float, validation: float | None, patience: int | None) -> dict[str, float]:
        """Count an epoch, keep the best weights, and return the numbers of the epoch."""
        now = time.monotonic()
        self.seconds, self._clock = self.seconds + now - self._clock, now
        loss = self.loss_sum / (self.loss_count or 1.0)
        numbers = {"epoch": self.epoch, "loss": loss, "rate": rate, "seconds": round(self.seconds, 3)}
        if validation is not None:
            numbers["validation"] = validation
            if validation < self.best_loss:
                self.best_loss, self.bad = validation, 0
                self.best = _copy(self.model.state_dict() if self.averaged is None else self.averaged)
            else:
                self.bad += 1
                self.finished = patience is not None and self.bad >= patience
        self.history.append(numbers)
        self.epoch, self.step, self.loss_sum, self.loss_count = self.epoch + 1, 0, 0.0, 0.0
        return numbers

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Put the averaged weights, where there are some, into the model during the block."""
        if self.averaged is None:
            yield
            return
        current = _copy(self.model.state_dict())
        self.model.load_state_dict(self.averaged)
        try:
            yield
        finally:
            self.model.load_state_dict(current)

    def use_final_weights(self) -> None:
        """Put the weights of the best validation loss, or else the averaged ones, into the model."""
        final = self.averaged if self.best is None else self.best
        if final is not None:
            self.model.load_state_dict(final)

    def start_log(self) -> None:
        """Write the log of the epochs in the checkpoint; later ones are repeated."""
        if self.folder is not None:
            with atomic_path(self.folder / "log.jsonl") as temporary:
                temporary.write_text("".join(json.dumps(numbers) + "\n" for numbers in self.history))

    def log(self, numbers: dict[str, float]) -> None:
        """Append a line to `log.jsonl`, and to TensorBoard's files where that is installed."""
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
        """Write the checkpoint."""
        if self.folder is None:
            return
        moments, numbers = checkpoint.optimizer_tensors(self.opt)
        groups = {"model": self.model.state_dict(), "optimizer": moments, "best": self.best, "averaged": self.averaged}
        tensors = {f"{group}.{k}": v for group, named in groups.items() for k, v in (named or {}).items()}
        self._saved = time.monotonic()
        facts = {
            "identity": self.identity,
            "optimizer": numbers,
            "rate": self.rate.state,
            "history": self.history,
            "seconds": self.seconds + self._saved - self._clock,
        } | {name: getattr(self, name) for name in _POSITION}
        checkpoint.save(self.folder / checkpoint.NAME, tensors, facts, keep_previous=self._keep_previous)
        self._keep_previous = True

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        content, newest = (None, True) if self.folder is None else checkpoint.load_latest(self.folder)
        if content is None:
            return
        tensors, facts = content
        self._check_identity(facts["identity"], tensors)
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "best": {}, "averaged": {}}
        for key, tensor in tensors.items():
            group, name = key.split(".", 1)
            groups[group][name] = tensor
        self.model.load_state_dict(groups["model"])
        checkpoint.restore_optimizer(self.opt, groups["optimizer"], facts["optimizer"])
        own = self.model.state_dict()
        self.best = {k: t.to(own[k].device) for k, t in groups["best"].items()} or None
        self.averaged = {k: t.to(own[k].device) for k, t in groups["averaged"].items()} or None
        self.rate.state, self.history, self.seconds = facts["rate"], facts["history"], facts["seconds"]
        for name in _POSITION:
            setattr(self, name, facts[name])
        self._keep_previous = newest  # a damaged checkpoint must not take the place of the previous one

    def _check_identity(self, found: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        names = dict.fromkeys([*found, *self.identity])
        here = json.loads(json.dumps(self.identity))  # tuples are lists in the file
        other = [f"{k} {found.get(k)!r}, here {here.get(k)!r}" for k in names if found.get(k) != here.get(k)]
        shapes = {k.removeprefix("model."): tuple(t.shape) for k, t in tensors.items() if k.startswith("model.")}
        wanted = {k: tuple(t.shape) for k, t in self.model.state_dict().items()}
        odd = [k for k in [*wanted, *shapes] if wanted.get(k) != shapes.get(k)]
        other += [f"weights {k!r} of shape {shapes.get(k)}, here {wanted.get(k)}" for k in odd[:1]]
        if other:
            raise checkpoint.CheckpointError(
                f"the checkpoint in {self.folder} belongs to another training: it has {'; '.join(other)}. "
                "Choose another folder, or delete the checkpoint to start again."
            )

    def fail(self, what: str, value: float) -> NoReturn:
        """Stop because the loss or a gradient is not a finite number."""
        has = self.folder is not None and (self.folder / checkpoint.NAME).exists()
        raise TrainingError(
            f"the {what} became {value} in epoch {self.epoch}, step {self.step}: the weights or inputs have grown out "
            "of range. Try a smaller learning rate, or check the scale of the features and targets."
            + (f" The last good checkpoint is kept in {self.folder}." if has else "")
        )


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}


@torch.no_grad()
def _follow(averaged: dict[str, Tensor], state: dict[str, Tensor], keep: float) -> None:
    """Move the average towards the weights, running statistics of batch norms included; counters are copied."""
    floating = [name for name, tensor in state.items() if tensor.is_floating_point()]
    if floating:
        torch._foreach_lerp_([averaged[n] for n in floating], [state[n] for n in floating], 1 - keep)
    for name in state.keys() - set(floating):
        averaged[name].copy_(state[name])

"""Learning-rate schedules, as factors of the rate that the user gave."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["cosine", "constant", "plateau"]


class Rate:
    """Factor of the learning rate when a share `done` of the training is over.

    Parameters
    ----------
    kind : {"cosine", "constant", "plateau"}
        All schedules rise linearly during the warm-up. Then ``cosine`` falls to 0, ``constant`` stays, and
        ``plateau`` halves whenever the validation loss has not improved for `patience` epochs.
    warmup : float
        Share of the training, in [0, 1).
    patience : int, default=5
        See ``plateau``.

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

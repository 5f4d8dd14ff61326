"""What a set estimator predicts: values, classes or labels; their targets, losses and links."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["regression", "classes", "labels"]


class Task(NamedTuple):
    """Targets of the training sets."""

    kind: Kind  # values; one class per set; several labels per set
    y: np.ndarray  # (B, outputs) deviations from the mean, (B,) class numbers, or (B, outputs) 0 and 1
    outputs: int  # targets, classes or labels

    def take(self, rows: np.ndarray) -> Task:
        """Select sets."""
        return self._replace(y=self.y[rows])

    def indicators(self) -> np.ndarray:
        """(B, outputs) as numbers: classes as indicators."""
        return np.eye(self.outputs)[self.y] if self.kind == "classes" else self.y.astype(np.float64)

    def raw_loss(self, raw: np.ndarray, rows: np.ndarray, column: int) -> np.ndarray:
        """Mean loss of raw scores (steps, n, scores), for one target or label `column`; classes take all scores."""
        if self.kind == "regression":
            return np.square(raw[..., 0] - self.y[rows, column]).mean(-1)
        if self.kind == "classes":
            chance = link(raw, "classes")
            found = np.take_along_axis(chance, self.y[rows][None, :, None], axis=-1)[..., 0]
            return -np.log(np.clip(found, 1e-9, 1)).mean(-1)
        sign = 2.0 * self.y[rows, column] - 1
        return np.logaddexp(0, -sign * raw[..., 0]).mean(-1)

    def loss(self, answers: np.ndarray) -> np.ndarray:
        """(B,) loss of answers (B, outputs): squared error, or negative log likelihood."""
        if self.kind == "regression":
            return np.square(answers - self.y).mean(1)
        answers = np.clip(answers, 1e-6, 1 - 1e-6)
        if self.kind == "classes":
            return -np.log(answers[np.arange(len(self.y)), self.y])
        return -np.where(self.y == 1, np.log(answers), np.log1p(-answers)).mean(1)


def link(raw: np.ndarray, kind: Kind) -> np.ndarray:
    """Raw scores to values or probabilities; two classes may have a single score, the log-odds of the second."""
    if kind == "regression":
        return raw
    if kind == "labels":
        return _sigmoid(raw)
    if raw.shape[-1] == 1:
        second = _sigmoid(raw)
        return np.concatenate([1 - second, second], axis=-1)
    shifted = np.exp(raw - raw.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def sharpen(chance: np.ndarray, temperature: float, kind: Kind) -> np.ndarray:
    """Probabilities at another temperature; 1 changes nothing, larger is less confident."""
    if temperature == 1 or kind == "regression":
        return chance
    logs = np.log(np.clip(chance, 1e-9, 1)) / temperature
    if kind == "classes":
        return link(logs, "classes") if chance.shape[-1] > 1 else chance
    return _sigmoid(logs - np.log(np.clip(1 - chance, 1e-9, 1)) / temperature)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))

"""What the two sum-of-digits experiments share: the figure of accuracy against the number of digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..experiment import Measure
from ..record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measures(accuracy: dict[int, float]) -> list[Measure]:
    """One row for each number of digits M."""
    return [Measure(f"M={size}", "accuracy", value) for size, value in accuracy.items()]


def curve(records: Sequence[Record], method: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The numbers of digits M, and over the seeds the mean and the deviation of the accuracy: (K,) each."""
    found: dict[int, list[float]] = {}
    for record in records:
        for part in record.parts.values() if record.method == method else ():
            for row in part["measures"]:
                found.setdefault(int(row["data"].removeprefix("M=")), []).append(row["value"])
    sizes = sorted(found)
    return np.array(sizes), np.array([np.mean(found[m]) for m in sizes]), np.array([np.std(found[m]) for m in sizes])


def figure(records: Sequence[Record], most: int, bounds: Sequence[str] = ()) -> Figure:
    """Accuracy against M up to `most`, a line and a band of one deviation for each method.

    bounds: for these methods, dotted, what the error p of a single digit leaves of M of them, (1 − p)^M; p is the error
        at M = 1.
    """
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6, 4), layout="constrained")
    axes = drawing.subplots()
    for method in dict.fromkeys(record.method for record in records):
        sizes, mean, deviation = curve(records, method)
        shown = (sizes > 1) & (sizes <= most)
        (line,) = axes.plot(sizes[shown], mean[shown], marker="o", markersize=3, label=method)
        low, high = (mean - deviation)[shown], (mean + deviation)[shown]
        axes.fill_between(sizes[shown], low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        if method in bounds and 1 in sizes:
            dense, single = np.arange(1, most + 1), mean[sizes == 1]
            label = f"(1 − p)^M, p = {100 * (1 - single.item()):.2f} %"
            axes.plot(dense, single**dense, ":", color=line.get_color(), label=label)
    axes.set(xlabel="M, digits in a set", ylabel="accuracy (exact sum)", ylim=(-0.03, 1.03))
    axes.axvspan(0, 10, color="0.93", zorder=0)
    axes.text(5, 0.02, "as in\ntraining", ha="center", fontsize=7, color="0.4")
    axes.legend(fontsize=8)
    return drawing

"""Rows of images, the odd one framed, and under each image the probability that it got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = "Ours"


def figure(records: Sequence[Record]) -> Figure:
    """The first sets of the test. A record holds numbers of images, never faces: these are read again."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(9, 3.2), layout="constrained")
    chosen = [record for record in records if record.method == METHOD] or list(records)
    shown = next(iter(chosen[0].parts.values()))["extra"]
    pictures = _pictures(chosen[0].full)
    rows = drawing.subplots(len(shown["images"]), len(shown["images"][0]), squeeze=False)
    for row, (numbers, odd, bars, shared) in enumerate(
        zip(shown["images"], shown["odd"], shown["probability"], shown["shared"], strict=True)
    ):
        for place, (number, share) in enumerate(zip(numbers, bars, strict=True)):
            axes = rows[row, place]
            axes.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(-0.22, 1))
            if pictures is None:
                axes.text(0.5, 0.4, str(number), ha="center", fontsize=6)
            else:
                axes.imshow(pictures[number], extent=(0, 1, 0, 1), cmap="gray_r")
            axes.fill_between([0, share], -0.2, -0.05, color="C3", linewidth=0)
            for side in axes.spines.values():
                side.set(color="C3" if place == odd else "0.8", linewidth=2 if place == odd else 0.5)
        rows[row, -1].text(1.15, 0.4, shared.replace(", ", "\n"), fontsize=6, va="center")
    return drawing


def _pictures(full: bool):  # type: ignore[no-untyped-def]  # (U, H, W[, 3]), or None where the images are not at hand
    from .odd_one_out import images

    try:
        found = images(full, "test").images
    except FileNotFoundError:
        return None
    return (found[:, 0] if found.shape[1] == 1 else found.permute(0, 2, 3, 1)).numpy()

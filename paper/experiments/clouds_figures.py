"""Figures of point clouds: classes, what units of a layer look for, and which points decide (appendix H).

A record holds numbers of clouds and points, never the data, whose licence may forbid it: clouds are read again.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from deepsets.nn import DeepSet, SetSequential, Standardize
from deepsets.sets import Sets

from ..datasets.clouds import Clouds, clouds
from ..runner import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 6


def look(model: DeepSet, data: Clouds, steps: int, points: int) -> dict[str, Any]:
    """What the figures need: clouds that excite units of layers 1 and 2, and the winners in some test clouds."""
    assert isinstance(model.phi, SetSequential)
    found: dict[str, Any] = {"units": {}, "critical": {}}
    for depth in (1, 2):
        best, reached = excite(SetSequential(*model.phi.layers[: depth + 1]), units=16, points=points, steps=steps)
        order = reached.argsort(descending=True)[:SHOWN]
        found["units"][f"layer {depth}"] = [_pack(best[i].numpy()) for i in order]
    first = [int(np.flatnonzero(data.y_test == c)[0]) for c in range(0, len(data.classes), len(data.classes) // SHOWN)]
    for number in first[:SHOWN]:
        found["critical"][str(number)] = winners(model, torch.from_numpy(data.x_test[number]))
    return found


def excite(layers: SetSequential, units: int, points: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Clouds (units, points, 3) that make each of the first units of a stack large, and how large: (units,) means.

    From uniform points, by Adamax as in the paper, in fewer steps. The network standardises its input, so the clouds
    need no bounds.
    """
    source = torch.Generator().manual_seed(0)
    particles = (torch.rand(units * points, 3, generator=source) * 2 - 1).requires_grad_()
    sets = Sets(particles.detach(), torch.arange(units + 1) * points)
    rows, channel = torch.arange(units * points), sets.set_ids
    optimizer = torch.optim.Adamax([particles], lr=0.01, betas=(0.1, 0.9))
    for _ in range(steps):
        optimizer.zero_grad()
        (-layers(sets.with_values(particles)).values[rows, channel].sum()).backward()
        optimizer.step()
    with torch.no_grad():
        standard = Standardize()(sets.with_values(particles)).values.view(units, points, 3)
        reached = layers(sets.with_values(particles)).values[rows, channel].view(units, points).mean(1)
    return standard / standard.abs().amax((1, 2), keepdim=True), reached


@torch.no_grad()
def winners(model: DeepSet, cloud: torch.Tensor) -> list[int]:
    """The points of a cloud, (n, 3), that win the maximum in at least one channel: without the others the answer stays.

    (With equivariant layers inside, up to what the others add to their maxima, and to mean and deviation of the input.)
    """
    model.eval()
    codes = model.phi(Sets(cloud, torch.tensor([0, len(cloud)])))
    return sorted(set(codes.values.argmax(0).tolist()))


def examples(records: Sequence[Record]) -> Figure:
    """Two test clouds of each of some classes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 * SHOWN, 3.4), layout="constrained")
    data = _data(records, figure)
    if data is not None:
        for column, c in enumerate(range(0, len(data.classes), len(data.classes) // SHOWN)[:SHOWN]):
            for row, number in enumerate(np.flatnonzero(data.y_test == c)[:2]):
                axes = figure.add_subplot(2, SHOWN, 1 + column + row * SHOWN, projection="3d")
                _scatter(axes, [(data.x_test[number], "C0")])
                axes.set_title(data.classes[c] if row == 0 else "", fontsize=8)
    return figure


def units(records: Sequence[Record]) -> Figure:
    """A row for each layer, a cloud for each unit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 * SHOWN, 3.4), layout="constrained")
    for row, (layer, found) in enumerate(_extra(records).get("units", {}).items()):
        for column, text in enumerate(found):
            axes = figure.add_subplot(2, SHOWN, 1 + column + row * SHOWN, projection="3d")
            _scatter(axes, [(_unpack(text), "C0")])
            axes.set_title(layer if column == 0 else "", fontsize=8)
    return figure


def critical(records: Sequence[Record]) -> Figure:
    """Some test clouds; the points that win the maximum in red."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 * SHOWN, 1.9), layout="constrained")
    data = _data(records, figure)
    if data is not None:
        for column, (number, points) in enumerate(_extra(records).get("critical", {}).items()):
            axes = figure.add_subplot(1, SHOWN, 1 + column, projection="3d")
            cloud = data.x_test[int(number)]
            _scatter(axes, [(cloud, "0.8"), (cloud[points], "C3")])
            title = f"{data.classes[data.y_test[int(number)]]}\n{len(points)} of {len(cloud)}"
            axes.set_title(title, fontsize=8)
    return figure


def _data(records: Sequence[Record], figure: Figure) -> Clouds | None:
    """The clouds again; where they are not available the figure says so."""
    try:
        return clouds(records[0].full, 1000)
    except FileNotFoundError:
        figure.text(0.5, 0.5, "The clouds are not available: see $DEEPSETS_DATA.", ha="center")
        return None


def _extra(records: Sequence[Record]) -> dict[str, Any]:
    """Of the first part that was looked at."""
    seen = [part["extra"] for record in records for part in record.parts.values() if part["extra"].get("units")]
    return seen[0] if seen else {}


def _scatter(axes: Any, clouds: Iterable[tuple[np.ndarray, str]]) -> None:
    for cloud, colour in clouds:
        axes.scatter(*cloud.T, s=1.2, c=colour, linewidths=0, rasterized=True, depthshade=False)
    axes.set_axis_off()
    axes.set_box_aspect((1, 1, 1), zoom=1.5)
    axes.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.8, 0.8))


def _pack(cloud: np.ndarray) -> str:
    """Coordinates from −1 to 1 as bytes, as text."""
    return b64encode((cloud * 127).round().astype(np.int8).tobytes()).decode()


def _unpack(text: str) -> np.ndarray:
    return np.frombuffer(b64decode(text), np.int8).reshape(-1, 3) / 127

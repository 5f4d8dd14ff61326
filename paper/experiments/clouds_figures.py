"""Figures of point clouds: classes, what units of a layer look for, and which points decide (appendix H).

A record holds numbers of clouds and points, never the data, whose licence may forbid it: clouds are read again.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from deepsets.nn import DeepSet, SetSequential, Standardize
from deepsets.sets import Sets

from ..datasets.clouds import Clouds, clouds, load
from ..experiment import new_figure
from ..runner import Record

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


Panel = tuple[str, list[tuple[np.ndarray, str]]]  # title, and clouds with their colours


def examples(records: Sequence[Record]) -> Any:
    """Draw two test clouds of each of some classes."""
    if (data := _data(records)) is None:
        return _draw([])
    shown = range(0, len(data.classes), len(data.classes) // SHOWN)[:SHOWN]
    rows = zip(*(np.flatnonzero(data.y_test == c)[:2] for c in shown), strict=True)
    return _draw([[(data.classes[data.y_test[i]], [(data.x_test[i], "C0")]) for i in row] for row in rows])


def units(records: Sequence[Record]) -> Any:
    """Draw a row for each layer, a cloud for each unit."""
    found = _extra(records).get("units", {})
    return _draw([[(layer, [(_unpack(text), "C0")]) for text in texts] for layer, texts in found.items()])


def critical(records: Sequence[Record]) -> Any:
    """Draw some test clouds, the points that win the maximum in red."""
    found = _extra(records).get("critical", {})
    if (data := _data(records, 1 + max((max(points) for points in found.values()), default=0))) is None:
        return _draw([])
    row: list[Panel] = []
    for number, points in found.items():
        cloud, name = data.x_test[int(number)], data.classes[data.y_test[int(number)]]
        row.append((f"{name}\n{len(points)} of {len(cloud)}", [(cloud, "0.8"), (cloud[points], "C3")]))
    return _draw([row])


def _draw(rows: Sequence[Sequence[Panel]]) -> Any:
    """Draw rows of clouds; none means that the data is not available."""
    figure = new_figure(1.6 * SHOWN, 0.2 + 1.7 * max(len(rows), 1))
    if not rows:
        figure.text(0.5, 0.5, "The clouds are not available: see $DEEPSETS_DATA.", ha="center")
    for row, panels in enumerate(rows):
        for column, (title, shown) in enumerate(panels):
            axes: Any = figure.add_subplot(len(rows), SHOWN, 1 + column + row * SHOWN, projection="3d")
            for cloud, colour in shown:
                axes.scatter(*cloud.T, s=1.2, c=colour, linewidths=0, rasterized=True, depthshade=False)
            axes.set_title(title, fontsize=8)
            axes.set_axis_off()
            axes.set_box_aspect((1, 1, 1), zoom=1.5)
            axes.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), zlim=(-0.8, 0.8))
    return figure


def _data(records: Sequence[Record], points: int = 0) -> Clouds | None:
    """Return clouds of 1024 points, or of 5000 where more are needed; None where they cannot be read."""
    try:
        return load(points=1024 if points <= 1024 else 5000) if records[0].full else clouds(False, 0)
    except FileNotFoundError:
        return None


def _extra(records: Sequence[Record]) -> dict[str, Any]:
    """Return that of the first part with figures."""
    seen = [part["extra"] for record in records for part in record.parts.values() if part["extra"].get("units")]
    return seen[0] if seen else {}


def _pack(cloud: np.ndarray) -> str:
    """Return coordinates from −1 to 1 as bytes, as text."""
    return b64encode((cloud * 127).round().astype(np.int8).tobytes()).decode()


def _unpack(text: str) -> np.ndarray:
    return np.frombuffer(b64decode(text), np.int8).reshape(-1, 3) / 127

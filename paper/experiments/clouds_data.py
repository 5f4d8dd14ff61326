"""The clouds of points: ModelNet40; or, with no download, samples of eight surfaces, stretched and turned a little."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..datasets import modelnet40
from ..datasets.modelnet40 import Clouds, _unit


def _torus(u: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    turn, ring = 2 * np.pi * u, 2 * np.pi * v
    return [(1 + 0.35 * np.cos(ring)) * np.cos(turn), (1 + 0.35 * np.cos(ring)) * np.sin(turn), 0.35 * np.sin(ring)]


def _cube(u: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    face = (6 * u).astype(int)
    first, second, third = 2 * (6 * u - face) - 1, 2 * v - 1, 2.0 * (face % 2) - 1
    sides = np.stack([np.stack([first, second, third]), np.stack([second, third, first]), [third, first, second]])
    return list(np.take_along_axis(sides, (face // 2)[None, None], 0)[0])


def _round(radius: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], list[np.ndarray]]:
    """A surface around the z-axis, by its radius at each height from −1 to 1."""
    return lambda u, v: [radius(2 * v - 1) * f(2 * np.pi * u) for f in (np.cos, np.sin)] + [2 * v - 1]


# (u, v) in the unit square, (n,) each -> x, y, z
SURFACES: dict[str, Callable[[np.ndarray, np.ndarray], list[np.ndarray]]] = {
    "sphere": _round(lambda z: np.sqrt(1 - z**2)),
    "cylinder": _round(lambda z: 0.6 + 0 * z),
    "cone": _round(lambda z: (1 - z) / 2),
    "hourglass": _round(lambda z: 0.15 + 0.7 * z**2),
    "cube": _cube,
    "torus": _torus,
    "wave": lambda u, v: [2 * u - 1, 2 * v - 1, 0.4 * np.sin(2 * np.pi * u)],
    "helix": lambda u, v: [0.7 * np.cos(12 * v), 0.7 * np.sin(12 * v), 2 * v - 1 + 0.1 * u],
}


def generate(train: int, test: int, points: int, seed: int = 0) -> Clouds:
    """So many clouds of each surface, a little noise on every point.

    >>> clouds = generate(train=3, test=2, points=64)
    >>> clouds.x_train.shape, clouds.y_test.tolist(), clouds.classes[0]
    ((24, 64, 3), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7], 'sphere')
    """
    rng = np.random.default_rng(seed)
    parts = []
    for number in (train, test):
        drawn = [_cloud(surface, points, rng) for surface in SURFACES.values() for _ in range(number)]
        parts += [_unit(np.stack(drawn).astype(np.float32)), np.repeat(np.arange(len(SURFACES)), number)]
    return Clouds(parts[0], parts[1], parts[2], parts[3], list(SURFACES))


def _cloud(
    surface: Callable[[np.ndarray, np.ndarray], list[np.ndarray]], points: int, rng: np.random.Generator
) -> np.ndarray:
    cloud = np.stack(surface(*rng.uniform(size=(2, points))), axis=1) * rng.uniform(0.6, 1.4, size=3)
    cos, sin = np.cos(angle := rng.normal(scale=0.3)), np.sin(angle)
    turn = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
    return cloud @ turn + 0.05 * rng.normal(size=(points, 3))


def clouds(full: bool, points: int) -> Clouds:
    """ModelNet40, with some points to choose from where there are more; or generated surfaces."""
    if not full:
        return generate(train=40, test=25, points=128)
    return modelnet40.load(points=max(points, 1024))

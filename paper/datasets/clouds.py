"""Point clouds: ModelNet40 (Wu et al. 2015), and samples of eight generated surfaces."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import cache_folder, data_folder

SOURCE = "https://modelnet.cs.princeton.edu"
PACKED = "modelnet40_1024pts.npz"
UNPACKED = "modelnet40_5000pts.npz"
MESHES = "ModelNet40"


class Clouds(NamedTuple):
    """Clouds (n, points, 3), centred and in the unit sphere; classes as numbers (n,) and their names."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: list[str]


def load(folder: str | Path | None = None, points: int = 1024, seed: int = 0) -> Clouds:
    """Read the first form found in the folder that has enough points.

    By default in `$DEEPSETS_DATA/modelnet40`, then in `modelnet40` of the user's cache.

    >>> clouds = load(points=1000)  # doctest: +SKIP
    >>> clouds.x_test.shape  # doctest: +SKIP
    (2468, 1000, 3)

    Forms: `modelnet40_1024pts.npz`; `modelnet40_5000pts.npz`, which `unpack_5000.py` beside the data writes;
    meshes `ModelNet40/CLASS/train/*.off` (or `.ply`), points drawn in proportion to area.
    """
    folders = _folders() if folder is None else [Path(folder)]
    if form := _form(folders, points):
        return form[1](form[0], points, seed)
    raise FileNotFoundError(
        f"no clouds of {points} points in {' or '.join(map(str, folders))}: expected {PACKED} (up to 1024 points), "
        f"{UNPACKED} (5000) or the meshes {MESHES}/CLASS/train/*.off of {SOURCE} (any number)."
    )


def has_points(points: int) -> bool:
    """Return whether clouds of so many points can be read."""
    return _form(_folders(), points) is not None


def _folders() -> list[Path]:
    return [folder / "modelnet40" for folder in dict.fromkeys([data_folder(), cache_folder()])]


def _form(folders: Sequence[Path], points: int) -> tuple[Path, Callable[[Path, int, int], Clouds]] | None:
    forms = ((PACKED, 1024, _packed), (UNPACKED, 5000, _packed), (MESHES, float("inf"), _meshes))
    found = ((folder / name, read) for folder in folders for name, most, read in forms if points <= most)
    return next(((path, read) for path, read in found if path.exists()), None)


def _packed(path: Path, points: int, seed: int) -> Clouds:
    with np.load(path) as file:
        x = [_unit(file[f"x_{part}"][:, :points].astype(np.float32)) for part in ("train", "test")]
        y = [file[f"y_{part}"].astype(np.int64) for part in ("train", "test")]
        return Clouds(x[0], y[0], x[1], y[1], [str(name) for name in file["class_names"]])


def _meshes(path: Path, points: int, seed: int) -> Clouds:
    classes = sorted(folder.name for folder in path.iterdir() if folder.is_dir())
    rng = np.random.default_rng(seed)
    parts: list[Any] = []
    for part in ("train", "test"):
        files = [
            (file, label)
            for label, name in enumerate(classes)
            for file in sorted((path / name / part).glob("*"))
            if file.suffix in {".off", ".ply"}
        ]
        if not files:
            raise FileNotFoundError(f"{path} has no .off or .ply file in any CLASS/{part}/.")
        parts.append(_unit(np.stack([sample_mesh(file, points, rng) for file, _ in files])))
        parts.append(np.array([label for _, label in files]))
    return Clouds(parts[0], parts[1], parts[2], parts[3], classes)


def sample_mesh(file: str | Path, points: int, seed: Any = 0) -> np.ndarray:
    """Draw points, (points, 3), from the surface of a mesh, each face in proportion to its area."""
    import trimesh

    try:
        mesh: Any = trimesh.load(file, force="mesh", process=False)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{file} is not a mesh that can be read: {error}.") from None
    if not mesh.area > 0:
        raise ValueError(f"{file} has no surface to draw points from: {len(mesh.faces)} faces of area 0 in all.")
    return np.asarray(trimesh.sample.sample_surface(mesh, points, seed=seed)[0], dtype=np.float32)


def _unit(clouds: np.ndarray) -> np.ndarray:
    """Centre clouds, and scale them so that the farthest point lies on the unit sphere."""
    clouds = clouds - clouds.mean(1, keepdims=True)
    return clouds / np.linalg.norm(clouds, axis=2).max(1)[:, None, None].clip(1e-12)


def _torus(u: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    turn, ring = 2 * np.pi * u, 2 * np.pi * v
    return [(1 + 0.35 * np.cos(ring)) * np.cos(turn), (1 + 0.35 * np.cos(ring)) * np.sin(turn), 0.35 * np.sin(ring)]


def _cube(u: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    face = (6 * u).astype(int)
    first, second, third = 2 * (6 * u - face) - 1, 2 * v - 1, 2.0 * (face % 2) - 1
    sides = np.stack([np.stack([first, second, third]), np.stack([second, third, first]), [third, first, second]])
    return list(np.take_along_axis(sides, (face // 2)[None, None], 0)[0])


def _round(radius: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], list[np.ndarray]]:
    """Return a surface around the z-axis, by its radius at each height from −1 to 1."""
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
    """Generate so many clouds of each surface, with a little noise on every point.

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
    """Return ModelNet40, with 5000 points to draw from where they can be read, else 1024; or generated surfaces."""
    if not full:
        return generate(train=40, test=25, points=128)
    return load(points=5000 if has_points(5000) else max(points, 1024))

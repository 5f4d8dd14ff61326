"""ModelNet40 (Wu et al. 2015): 12,311 shapes of 40 classes as clouds of points; official split 9,843 / 2,468."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .folder import data_folder

SOURCE = "https://modelnet.cs.princeton.edu"
PACKED = "modelnet40_1024pts.npz"
SAMPLED = "modelnet40_ply_hdf5_2048"
MESHES = "ModelNet40"


class Clouds(NamedTuple):
    """Clouds (n, points, 3), centred and in the unit sphere; classes as numbers (n,) and their names."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: list[str]


def load(folder: str | Path | None = None, points: int = 1024, seed: int = 0) -> Clouds:
    """Reads whichever form lies in the folder (default `$DEEPSETS_DATA/modelnet40`) and has enough points.

    >>> clouds = load(points=1000)  # doctest: +SKIP
    >>> clouds.x_test.shape  # doctest: +SKIP
    (2468, 1000, 3)

    Forms: `modelnet40_1024pts.npz`; the published `modelnet40_ply_hdf5_2048/`; meshes `ModelNet40/CLASS/train/*.off`
    (or `.ply`), from which points are drawn in proportion to area.
    """
    folder = data_folder() / "modelnet40" if folder is None else Path(folder)
    for path, most, read in (
        (folder / PACKED, 1024, _packed),
        (folder / SAMPLED, 2048, _hdf5),
        (folder / MESHES, None, _meshes),
    ):
        if path.exists() and (most is None or points <= most):
            return read(path, points, seed)
    raise FileNotFoundError(
        f"{folder} holds no clouds of {points} points: wanted {PACKED} (up to 1024), {SAMPLED}/ (up to 2048) or the "
        f"meshes {MESHES}/CLASS/train/*.off of {SOURCE} (any number)."
    )


def _packed(path: Path, points: int, seed: int) -> Clouds:
    with np.load(path) as file:
        x = [_unit(file[f"x_{part}"][:, :points].astype(np.float32)) for part in ("train", "test")]
        y = [file[f"y_{part}"].astype(np.int64) for part in ("train", "test")]
        return Clouds(x[0], y[0], x[1], y[1], [str(name) for name in file["class_names"]])


def _hdf5(path: Path, points: int, seed: int) -> Clouds:
    import h5py

    parts: list[Any] = []
    for part in ("train", "test"):
        files = [path / Path(line).name for line in (path / f"{part}_files.txt").read_text().split()]
        tables = []
        for name in files:
            with h5py.File(name) as file:
                tables.append((np.asarray(file["data"]), np.asarray(file["label"]).reshape(-1)))
        parts.append(_unit(np.concatenate([x for x, _ in tables])[:, :points].astype(np.float32)))
        parts.append(np.concatenate([y for _, y in tables]).astype(np.int64))
    return Clouds(parts[0], parts[1], parts[2], parts[3], (path / "shape_names.txt").read_text().split())


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
    """(points, 3) drawn from the surface of a mesh, each face in proportion to its area."""
    import trimesh

    try:
        mesh: Any = trimesh.load(file, force="mesh", process=False)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{file} is not a mesh that can be read: {error}.") from None
    if not mesh.area > 0:
        raise ValueError(f"{file} has no surface to draw points from: {len(mesh.faces)} faces of area 0 in all.")
    return np.asarray(trimesh.sample.sample_surface(mesh, points, seed=seed)[0], dtype=np.float32)


def _unit(clouds: np.ndarray) -> np.ndarray:
    """Centred, and scaled so that the farthest point lies on the unit sphere."""
    clouds = clouds - clouds.mean(1, keepdims=True)
    return clouds / np.linalg.norm(clouds, axis=2).max(1)[:, None, None].clip(1e-12)

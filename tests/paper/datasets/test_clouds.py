"""Readers of point clouds, on small files in the published formats."""

import numpy as np
import pytest

from paper.datasets import clouds as modelnet40
from paper.datasets import data_folder


def needs(name):
    there = (data_folder() / name).is_dir()
    return pytest.mark.skipif(not there, reason=f"needs the data set {name} below $DEEPSETS_DATA")


TETRAHEDRON = "4 4 0\n0 0 0\n3 0 0\n0 3 0\n0 0 3\n3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n"


@pytest.fixture
def meshes(tmp_path):
    pytest.importorskip("trimesh")
    for name in ("cone", "bed"):
        for part in ("train", "test"):
            folder = tmp_path / "ModelNet40" / name / part
            folder.mkdir(parents=True)
            (folder / f"{name}_0001.off").write_text(("OFF" if name == "bed" else "OFF\n") + TETRAHEDRON)
    return tmp_path


def test_meshes_become_clouds_in_the_unit_sphere(meshes):
    clouds = modelnet40.load(meshes, points=200)
    assert clouds.classes == ["bed", "cone"] and clouds.y_test.tolist() == [0, 1]
    assert clouds.x_train.shape == (2, 200, 3) and clouds.x_train.dtype == np.float32
    np.testing.assert_allclose(clouds.x_train.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(clouds.x_train, axis=2).max(1), 1, rtol=1e-6)


def test_faces_are_drawn_in_proportion_to_their_area(meshes):
    points = modelnet40.sample_mesh(meshes / "ModelNet40/cone/train/cone_0001.off", 20_000)
    slanted = np.isclose(points.sum(1), 3, atol=1e-4)  # one face of area 7.794 beside three of 4.5
    assert slanted.mean() == pytest.approx(7.794 / (7.794 + 13.5), abs=0.02)


def test_a_mesh_may_be_a_ply_file(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    for part in ("train", "test"):
        folder = tmp_path / "ModelNet40" / "box" / part
        folder.mkdir(parents=True)
        trimesh.creation.box().export(folder / "box_0001.ply")
    points = modelnet40.sample_mesh(tmp_path / "ModelNet40/box/train/box_0001.ply", 500)
    np.testing.assert_allclose(np.abs(points).max(1), 0.5, atol=1e-6)  # on the surface of the unit cube
    assert modelnet40.load(tmp_path, points=50).x_test.shape == (1, 50, 3)


def test_clouds_of_a_size_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no clouds of 5000 points in .*: expected .* or the meshes"):
        modelnet40.load(tmp_path, points=5000)


def test_a_file_that_is_no_mesh_is_named(tmp_path):
    pytest.importorskip("trimesh")
    (tmp_path / "a.off").write_text("OFF\n3 1 0\n0 0 0\n0 0 0\n0 0 0\n3 0 1 2\n")
    with pytest.raises(ValueError, match=r"a\.off has no surface"):
        modelnet40.sample_mesh(tmp_path / "a.off", 10)


@needs("modelnet40")
def test_the_packed_clouds():
    clouds = modelnet40.load(points=64)
    assert clouds.x_train.shape == (9843, 64, 3) and clouds.x_test.shape == (2468, 64, 3)
    assert len(clouds.classes) == 40 and set(clouds.y_test) == set(range(40))


def test_clouds_of_5000_points_are_found_in_the_folder_or_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPSETS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "deepsets" / "modelnet40").mkdir(parents=True)
    assert not modelnet40.has_points(5000)
    arrays = {"x_train": np.random.default_rng(0).random((2, 5000, 3)), "y_train": np.array([0, 1])}
    arrays |= {"x_test": arrays["x_train"], "y_test": arrays["y_train"], "class_names": np.array(["bed", "cone"])}
    np.savez(tmp_path / "deepsets" / "modelnet40" / modelnet40.UNPACKED, **arrays)
    assert modelnet40.has_points(5000) and not modelnet40.has_points(5001)
    assert modelnet40.load(points=3000).x_test.shape == (2, 3000, 3)
    with pytest.raises(FileNotFoundError, match=r"no clouds of 3000 points in .*elsewhere: expected"):
        modelnet40.load(tmp_path / "elsewhere", points=3000)

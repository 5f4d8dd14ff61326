"""Readers of point clouds, galaxies and faces, on small files in the published formats."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from paper.datasets import celeba, data_file, data_folder, modelnet40, redmapper, splus

TETRAHEDRON = "4 4 0\n0 0 0\n3 0 0\n0 3 0\n0 0 3\n3 0 1 2\n3 0 1 3\n3 0 2 3\n3 1 2 3\n"


def needs(name):
    there = (data_folder() / name).is_dir()
    return pytest.mark.skipif(not there, reason=f"needs the data set {name} below $DEEPSETS_DATA")


def test_a_missing_file_says_where_it_was_looked_for_and_where_it_comes_from(monkeypatch, tmp_path):
    monkeypatch.setenv("DEEPSETS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"nice/file\.gz is not there.*from example\.org.*\$DEEPSETS_DATA"):
        data_file("nice", "file.gz", source="example.org")
    monkeypatch.delenv("DEEPSETS_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "deepsets"


# ----------------------------------------------------------------------------------------------------------- clouds


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


def test_the_published_hdf5_files(tmp_path):
    h5py = pytest.importorskip("h5py")
    folder = tmp_path / modelnet40.SAMPLED
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        names = [f"ply_data_{part}{i}.h5" for i in range(2)]
        (folder / f"{part}_files.txt").write_text("".join(f"data/{modelnet40.SAMPLED}/{name}\n" for name in names))
        for i, name in enumerate(names):
            with h5py.File(folder / name, "w") as file:
                file["data"], file["label"] = rng.normal(size=(3, 2048, 3)), np.full((3, 1), i, dtype=np.uint8)
    (folder / "shape_names.txt").write_text("bed\ncone\n")
    clouds = modelnet40.load(tmp_path, points=1500)
    assert clouds.x_test.shape == (6, 1500, 3) and clouds.y_train.tolist() == [0, 0, 0, 1, 1, 1]


def test_clouds_of_a_size_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no clouds of 5000 points: wanted .* or the meshes"):
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


# --------------------------------------------------------------------------------------------------------- galaxies


def redmapper_columns(fits, n, bands):
    """As in the published table of members: no vectors, no red-shift of the cluster."""
    some = {"IMAG": 0.5, "R": 0.4, "P": 0.9} | {f"MODEL_MAGERR_{band}": 0.1 for band in bands}
    some |= {f"MODEL_MAG_{band}": 20.0 - k for k, band in enumerate(bands)}
    return [
        fits.Column("ID", "J", array=np.array([1, 1, 1, 2, 2, 2])[:n]),
        *(fits.Column(name, "E", array=np.full(n, value)) for name, value in some.items()),
        fits.Column("Z_SPEC", "E", array=np.array([0.2, -1, 0.3, -1, -1, 0.4])[:n]),
    ]


def test_the_members_of_redmapper_and_the_clusters_beside(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    path = tmp_path / "redmapper_members.fits"
    fits.BinTableHDU.from_columns(redmapper_columns(fits, 6, "UGRIZ")).writeto(path)
    found = redmapper.load(path)
    assert found.features.shape == (6, 17) and np.isnan(found.z).tolist() == [False, True, False, True, True, False]
    assert found.cluster.tolist() == [1, 1, 1, 2, 2, 2] and (found.features[:, 10:14] == 1).all()
    np.testing.assert_allclose(found.features[:, 14:], [[0.5, 0.4, 0.9]] * 6, rtol=1e-6)
    assert np.isnan(found.catalogue).all()
    clusters = [fits.Column("ID", "J", array=np.array([2, 7])), fits.Column("Z_LAMBDA", "D", array=np.array([0.3, 1]))]
    fits.BinTableHDU.from_columns(clusters).writeto(tmp_path / "redmapper_catalog.fits")
    np.testing.assert_array_equal(redmapper.load(path).catalogue, [np.nan] * 3 + [0.3] * 3)


def test_members_of_redmapper_with_vectors_and_their_own_estimates(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    vectors = [fits.Column(name, "5E", array=np.arange(30).reshape(6, 5)) for name in ("MODEL_MAG", "MODEL_MAGERR")]
    estimate = fits.Column("ZRED", "E", array=np.full(6, 0.5))
    columns = [*redmapper_columns(fits, 6, ""), *vectors, estimate]
    fits.BinTableHDU.from_columns(columns).writeto(tmp_path / "a.fits")
    found = redmapper.load(tmp_path / "a.fits")
    assert (found.features[:, 10:14] == -1).all() and (found.catalogue == 0.5).all()


def test_a_table_without_a_band_is_refused(tmp_path):
    fits = pytest.importorskip("astropy.io.fits")
    fits.BinTableHDU.from_columns(redmapper_columns(fits, 6, "UGRI")).writeto(tmp_path / "less.fits")
    with pytest.raises(ValueError, match=r"less\.fits has no column MODEL_MAG_Z; it has ID, IMAG, MODEL_MAGERR_G"):
        redmapper.load(tmp_path / "less.fits")


def test_generated_clusters_can_be_told_apart_by_their_colours():
    made = redmapper.generate(clusters=300, seed=1)
    sizes = np.bincount(made.cluster.astype(int))
    assert sizes.min() >= 20 and sizes.max() <= 300 and 0.1 < np.isfinite(made.z).mean() < 0.4
    colour = np.array([made.features[made.cluster == c, 11].mean() for c in range(300)])
    red_shift = np.array([made.catalogue[made.cluster == c][0] for c in range(300)])
    assert np.corrcoef(colour, red_shift)[0, 1] > 0.8
    np.testing.assert_array_equal(made.features, redmapper.generate(clusters=300, seed=1).features)


@needs("splus")
def test_galaxies_of_s_plus():
    found, more = splus.load(), splus.load(mates=True)
    assert found.features.shape == (1078, 12) and len(np.unique(found.cluster)) == 101 and np.isfinite(found.z).all()
    scatter = np.mean(np.abs(found.z - found.catalogue) / (1 + found.z))
    assert scatter == pytest.approx(0.0099, abs=2e-4)
    assert set(more.cluster) == set(found.cluster) and np.isfinite(more.z).sum() == 1078 and len(more.z) > 1500


# ------------------------------------------------------------------------------------------------------------ faces

ATTRIBUTES = "3\nBald Smiling\n000001.jpg -1  1\n000002.jpg  1  1\n000003.jpg -1 -1\n"


def jpeg(value):
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.new("RGB", (89, 109), (value, 0, 0)).save(out, "JPEG")
    return out.getvalue()


def test_faces_from_the_published_folder(tmp_path):
    (tmp_path / "img_align_celeba").mkdir()
    for i in (1, 2, 3, 4):
        (tmp_path / "img_align_celeba" / f"00000{i}.jpg").write_bytes(jpeg(60 * i))
    (tmp_path / "list_attr_celeba.txt").write_text(ATTRIBUTES)
    faces = celeba.load(size=16, folder=tmp_path)
    assert faces.images.shape == (3, 3, 16, 16) and faces.names == ["Bald", "Smiling"]
    assert faces.attributes.tolist() == [[False, True], [True, True], [False, False]]
    np.testing.assert_allclose(faces.images[:, 0].mean((1, 2)), [60, 120, 180], atol=3)


def test_faces_from_a_tar(tmp_path):
    with tarfile.open(tmp_path / "faces.tar", "w") as tar:
        for i in (2, 1):
            content = jpeg(100)
            info = tarfile.TarInfo(f"celebA/00000{i}.jpg")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with gzip.open(tmp_path / "list_attr_celeba.txt.gz", "wt") as file:
        file.write(ATTRIBUTES)
    assert celeba.load(size=8, folder=tmp_path).attributes.tolist() == [[False, True], [True, True]]
    assert len(celeba.load(size=8, count=1, folder=tmp_path).images) == 1


def test_faces_without_attributes_and_a_broken_line(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no list_attr_celeba\*\.txt\*: wanted the attributes"):
        celeba.load(folder=tmp_path)
    (tmp_path / "list_attr_celeba.txt").write_text("1\nBald Smiling\n000001.jpg 1\n")
    with pytest.raises(ValueError, match="line 3: 1 attributes, but 2 names"):
        celeba.load(folder=tmp_path)

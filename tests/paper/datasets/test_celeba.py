"""Reader of CelebA, on small files in the published format."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from paper.datasets import celeba

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

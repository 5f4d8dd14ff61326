import gzip

import pytest
import torch
from paper.datasets.digits import mnist, read_idx

from paper.datasets import data_folder

here = pytest.mark.skipif(not (data_folder() / "mnist").exists(), reason="MNIST is not below $DEEPSETS_DATA")


def idx(path, shape, values):
    sizes = b"".join(n.to_bytes(4, "big") for n in shape)
    path.write_bytes(gzip.compress(bytes([0, 0, 8, len(shape)]) + sizes + bytes(values)))
    return path


def test_an_idx_file_is_read_with_its_shape(tmp_path):
    found = read_idx(idx(tmp_path / "a.gz", (2, 3), range(6)))
    assert found.dtype == torch.uint8
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_file_cut_short_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"says it holds \[2, 3\], 6 values, but has 5"):
        read_idx(idx(tmp_path / "a.gz", (2, 3), range(5)))


def test_another_type_of_file_is_refused(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"P5 28 28"))
    with pytest.raises(ValueError, match=r"begins with \[80, 53, 32, 50\], wanted \[0, 0, 8, axes\]"):
        read_idx(path)


def test_images_and_labels_of_different_number_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPSETS_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    idx(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", (2, 1, 1), range(2))
    idx(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz", (3,), range(3))
    with pytest.raises(ValueError, match="2 images but 3 digits"):
        mnist("test")


def test_where_the_files_come_from_is_said_when_they_are_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPSETS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte\.gz from https://ossci"):
        mnist("train")


def test_there_are_two_parts():
    with pytest.raises(ValueError, match="'train' and 'test', found 'validation'"):
        mnist("validation")


@here
def test_the_real_test_part():
    images, digits = mnist("test")
    assert images.shape == (10_000, 28, 28)
    assert digits.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]

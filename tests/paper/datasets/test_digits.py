"""Sets of digits, images of digits and their deformations, and the idx files of MNIST."""

import gzip
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from paper.datasets import data_folder
from paper.datasets.digits import deform, draw, exact_sums, mnist, read_idx, small_images, sums

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


def test_missing_files_are_reported_with_their_source(tmp_path, monkeypatch):
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


@given(st.integers(0, 20), st.integers(0, 6), st.integers(0, 6), st.integers(0, 9))
def test_sums_equal_the_plain_loop(count, least, more, seed):
    digits = torch.arange(10).flip(0)
    sets = draw(torch.zeros(10, 2), count, (least, least + more), torch.Generator().manual_seed(seed))
    slow = [int(digits[sets.element_ids[a:b]].sum()) for a, b in itertools.pairwise(sets.offsets.tolist())]
    assert sums(sets, digits).tolist() == slow
    assert all(least <= size <= least + more for size in sets.sizes.tolist())


def test_the_same_generator_draws_the_same_sets():
    one, two = (draw(torch.arange(10), 50, (1, 10), torch.Generator().manual_seed(3)) for _ in range(2))
    assert one.offsets.equal(two.offsets) and one.element_ids.equal(two.element_ids)


def test_no_deformation_leaves_an_image_as_it_is():
    images = torch.rand(4, 28, 28)
    assert_close(deform(images, 0.0), images, atol=1e-5, rtol=0)


def test_a_deformation_keeps_most_of_the_ink_in_the_middle():
    images = torch.zeros(200, 28, 28)
    images[:, 10:18, 10:18] = 1.0
    moved = deform(images, generator=torch.Generator().manual_seed(0))
    assert moved.shape == images.shape and moved.min() >= 0 and moved.max() <= 1 + 1e-6
    assert (moved - images).abs().amax((1, 2)).min() > 0.1  # none is left alone
    assert 0.8 < moved.sum() / images.sum() < 1.25
    assert moved[:, 7:21, 7:21].sum() / moved.sum() > 0.9


def test_small_images_are_split_without_overlap():
    (train, y), (test, z) = small_images("train"), small_images("test")
    assert len(train) + len(test) == len(y) + len(z) == 1797
    assert train.max() == 255 and set(z.tolist()) == set(range(10))


def test_accuracy_needs_one_answer_per_set():
    with pytest.raises(ValueError, match=r"found shapes \(3, 1\) and \(3,\)"):
        exact_sums(torch.zeros(3, 1), torch.zeros(3))

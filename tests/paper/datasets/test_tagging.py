"""Tagging data sets, read from small files that are made here."""

import gzip
import json

import numpy as np
import pytest

from paper.datasets.captions import read_coco_captions, stemmer, words
from paper.datasets.tagging import (
    PARTS,
    available,
    load_coco,
    load_corel5k,
    load_flickr8k,
    load_lear,
    problem,
    read_matrix,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPSETS_DATA", str(tmp_path))
    return tmp_path


def write_rows(path, matrix, head, value):
    path.write_bytes(b"".join(np.array([len(r)], head).tobytes() + np.array(r, value).tobytes() for r in matrix))


@pytest.mark.parametrize(
    ("ending", "head", "value"),
    [
        ("hvecs", "<u2", "<u2"),
        ("hvec", "<u2", "<u2"),
        ("hvecs32", "<u4", "<u4"),
        ("fvec", "<u4", "<f4"),
        ("dvecs", "<u4", "<f8"),
    ],
)
def test_binary_matrices_come_back(tmp_path, ending, head, value):
    matrix = np.array([[1, 0, 7], [0, 65535, 2]])
    write_rows(tmp_path / f"some.{ending}", matrix, head, value)
    found = read_matrix(tmp_path / f"some.{ending}")
    assert found.dtype == np.dtype(value) and found.tolist() == matrix.tolist()


def test_broken_matrices_are_refused(tmp_path):
    path = tmp_path / "some.hvecs"
    write_rows(path, [[1, 2, 3]], "<u2", "<u2")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"has 7 bytes, not a multiple of the 8 of a row of 3 values"):
        read_matrix(path)
    write_rows(path, [[1, 2, 3], [1, 2], [1, 2, 3, 4]], "<u2", "<u2")
    with pytest.raises(ValueError, match=r"row 1 has width 2, row 0 has 3"):
        read_matrix(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is empty"):
        read_matrix(path)


def write_espgame(folder, names="car sky tree"):
    folder = folder / "espgame"
    folder.mkdir()
    (folder / "espgame_dictionary.txt").write_text("\n".join(names.split()))
    for part, tags in (("train", [[1, 0, 1], [0, 1, 0]]), ("test", [[0, 0, 1], [0, 0, 0]])):
        (folder / f"espgame_{part}_list.txt").write_text("\n".join(f"{part}{i}" for i in range(len(tags))))
        write_rows(folder / f"espgame_{part}_annot.hvecs", tags, "<u2", "<u2")
        write_rows(folder / f"espgame_{part}_Gist.fvec", [[3.0, 4.0]] * len(tags), "<u4", "<f4")


def test_espgame(folder):
    write_espgame(folder)
    data = load_lear("espgame")
    assert data.names == ["car", "sky", "tree"] and data.test.images == ["test0", "test1"]
    assert [row.tolist() for row in data.train.sets] == [[0, 2], [1]]
    assert [row.tolist() for row in data.test.sets] == [[2], []]  # an image without tags is an empty set
    np.testing.assert_allclose(data.test.features, [[0.6, 0.8]] * 2, rtol=1e-6)


def test_tags_and_names_must_match(folder):
    write_espgame(folder, names="car sky")
    with pytest.raises(ValueError, match=r"tags of shape \(2, 3\), but 2 images and 2 names"):
        load_lear("espgame")


def test_corel5k(folder):
    (folder / "corel5k").mkdir()
    arrays = {}
    for part, count in (("train", 3), ("test", 1)):
        arrays |= {f"feat_{part}": np.ones((count, 4), np.float16), f"tags_{part}": np.eye(count, 3, dtype=np.uint8)}
        arrays[f"id_{part}"] = np.array([f"{part}{i}" for i in range(count)])
    np.savez(folder / "corel5k" / "corel5k_efflite0_feats_tags.npz", tag_names=np.array(["a", "b", "c"]), **arrays)
    data = load_corel5k()
    assert data.train.features.dtype == np.float32 and data.validation is None
    assert [row.tolist() for row in data.train.sets] == [[0], [1], [2]]


def test_flickr8k(folder):
    (folder / "flickr8k").mkdir()
    captions = {"a.jpg": "Two dog run .", "b.jpg": "a dog run", "c.jpg": "The dog 3 ball", "d.jpg": "ball run"}
    with gzip.open(folder / "flickr8k" / "Flickr8k.lemma.token.txt.gz", "wt") as file:
        file.writelines(f"{image}#{i}\t{text}\n" for image, text in captions.items() for i in range(2))
    for part, images in (("train", "a b"), ("dev", "c"), ("test", "d")):
        (folder / "flickr8k" / f"Flickr_8k.{part}Images.txt").write_text("".join(f"{i}.jpg\n" for i in images.split()))
    names = np.array(sorted(captions))
    np.savez(folder / "flickr8k" / "flickr8k_efflite0_pca512.npz", names=names, feats=np.eye(4, dtype=np.float16))
    data = load_flickr8k(minimum=2)
    assert data.names == ["dog", "run"]  # the ball is in no training image
    assert [row.tolist() for row in data.train.sets] == [[0, 1], [0, 1]]
    assert data.validation.sets[0].tolist() == [0] and data.test.sets[0].tolist() == [1]
    assert data.test.features.tolist() == [[0, 0, 0, 1]]


def coco_file(path, captions):
    images = [{"id": 10 + i, "file_name": f"{i}.jpg"} for i in range(len(captions))]
    notes = [{"id": i, "image_id": 10 + i, "caption": text} for i, all_ in enumerate(captions) for text in all_]
    path.write_text(json.dumps({"images": images, "annotations": notes}))
    return path


def test_coco_captions_become_tags(folder):
    (folder / "coco").mkdir()
    train = [["Two dogs running.", "A dog can run"], ["A dog and 3 cats", "cat"]]
    coco_file(folder / "coco" / "captions_train2014.json", train)
    coco_file(folder / "coco" / "captions_val2014.json", [["cats, dogs and one zebra"]])
    names = np.array(["0.jpg", "1.jpg"])
    np.savez(folder / "coco" / "features.npz", names=names, feats=np.array([[1, 1], [0, 0]]))
    data = load_coco(minimum=1)
    assert data.names == ["dog", "cat", "run"]
    assert [row.tolist() for row in data.train.sets] == [[0, 2], [0, 1]]
    assert data.test.sets[0].tolist() == [0, 1] and data.test.features.tolist() == [[1, 1]]


def test_other_json_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"images": []}')
    with pytest.raises(ValueError, match="not a COCO caption file: it has no annotations"):
        read_coco_captions(tmp_path / "a.json")
    (tmp_path / "a.json").write_text('{"images": [], "annotations": [{"id": 4, "bbox": []}]}')
    with pytest.raises(ValueError, match="annotation 4 has no caption"):
        read_coco_captions(tmp_path / "a.json")


def test_what_is_not_there_is_named(folder):
    for load in (load_corel5k, load_flickr8k, load_coco, lambda: load_lear("iaprtc12")):
        with pytest.raises(FileNotFoundError, match="DEEPSETS_DATA"):
            load()


def test_words_leave_out_numbers_stop_words_and_signs():
    assert words(["Three men, 4x4 and the 1st well-known t-shirt _"]) == {"men", "well-known", "t-shirt"}


def test_stems_must_be_known():
    lemma = stemmer(["hop bake tidy run bus"])
    assert [
        lemma(w) for w in "hopping baked tidies runs bus singing".split()
    ] == "hop bake tidy run bus singing".split()


def test_an_unknown_part_is_an_error_and_never_generated_data():
    with pytest.raises(ValueError, match=f"unknown part 'esp-game' .*: it has {', '.join(PARTS)}"):
        problem("esp-game")


def test_espgame_and_coco_are_parts_where_their_files_are(folder, monkeypatch):
    assert not available("espgame") and not available("coco-tag")
    write_espgame(folder)
    data = problem("espgame")
    assert available("espgame") and data.tagging and not data.retrieval
    assert data.names == ["car", "sky", "tree"] and [tags.tolist() for tags in data.train] == [[0, 2], [1]]
    (folder / "coco").mkdir()
    for name, texts in (("train", [["a dog"], ["the dog and a cat"]] * 5), ("val", [["cat", "dog"]])):
        coco_file(folder / "coco" / f"captions_{name}2014.json", texts)
    names = np.array([f"{i}.jpg" for i in range(10)])
    np.savez(folder / "coco" / "features.npz", names=names, feats=np.random.default_rng(0).random((10, 4)))
    vectors = (["dog", "the"], np.array([[1.0, 2.0], [3.0, 5.0]], np.float32))
    monkeypatch.setattr("paper.datasets.tagging.load_glove", lambda: vectors)
    found = problem("coco-tag")
    assert available("coco-tag") and found.retrieval and not found.tagging and found.names == ["dog", "cat"]
    assert found.raw_vectors.tolist() == [[1, 2], [0, 0]]


def test_features_are_standardised_by_the_training_images_alone():
    one = problem("generated")
    other = type(one)(one.names, one.train, one.test, one.x_train, 100 * one.x_test + 7)
    np.testing.assert_array_equal(one.z_train, other.z_train)
    mean, deviation = one.x_train.mean(0), one.x_train.std(0)
    np.testing.assert_allclose(one.z_test, (one.x_test - mean) / (deviation + 1e-3), rtol=1e-5, atol=1e-6)

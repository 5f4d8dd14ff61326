"""Image tagging: Corel5K, ESPgame, IAPRTC-12.5, COCO-Tag, Flickr8k-Tag, and a generated problem (section 4.2.2)."""

import gzip
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import data_file, data_folder
from .captions import read_coco_captions, stemmer, vocabulary, words
from .words import load_glove

COREL = "features and keywords of Corel5K in one npz: feat_*, tags_*, id_* for train and test, and tag_names"
LEAR = "https://lear.inrialpes.fr/people/guillaumin/data.php"
COCO = "https://cocodataset.org (annotations_trainval2014.zip)"
FLICKR = "Hodosh, Young and Hockenmaier 2013 (Flickr8k text)"
FEATURES = "a network's features of the images, in an npz: names (n,), feats (n, d)"


class Tagged(NamedTuple):
    """One part (train, test …) of a tagging data set: image names, the tag ids of each image, features (n, d)."""

    images: list[str]
    sets: list[np.ndarray]
    features: np.ndarray


class TagData(NamedTuple):
    """A tagging data set: its parts, and the names of its tags."""

    train: Tagged
    validation: Tagged | None
    test: Tagged
    names: list[str]


def load_corel5k() -> TagData:
    """Load the usual split of Corel5K, 4,500 and 499 images of 260 tags; features (n, 1280) of EfficientNet-Lite0."""
    with np.load(data_file("corel5k", "corel5k_efflite0_feats_tags.npz", COREL)) as data:
        parts = [
            Tagged(data[f"id_{p}"].tolist(), _ids(data[f"tags_{p}"]), data[f"feat_{p}"].astype(np.float32))
            for p in ("train", "test")
        ]
        return TagData(parts[0], None, parts[1], data["tag_names"].tolist())


# Each row of a file begins with its width. By extension: the type of the width, the type of the values.
_TYPES = {"hvec": ("<u2", "<u2"), "hvec32": ("<u4", "<u4"), "fvec": ("<u4", "<f4"), "dvec": ("<u4", "<f8")}


def read_matrix(path: Path) -> np.ndarray:
    """Read a matrix (n, d) from `.hvec(s)` (uint16), `.hvec(s)32`, `.fvec(s)` (float32) or `.dvec(s)` (float64).

    Files hold rows, each a width followed by that many values, little-endian; the width is uint16 in `.hvecs`,
    otherwise uint32.
    """
    head, value = _TYPES[path.suffix[1:].replace("vecs", "vec")]
    content = path.read_bytes()
    if len(content) < np.dtype(head).itemsize:
        raise ValueError(f"{path} is empty: expected rows that begin with their width.")
    width = int(np.frombuffer(content, head, 1)[0])
    row = np.dtype([("width", head), ("values", value, (width,))])
    if len(content) % row.itemsize:
        raise ValueError(
            f"{path} has {len(content)} bytes, not a multiple of the {row.itemsize} of a row of {width} values: "
            "is the file truncated?"
        )
    rows = np.frombuffer(content, row)
    if other := np.flatnonzero(rows["width"] != width).tolist():
        raise ValueError(f"{path}: row {other[0]} has width {rows['width'][other[0]]}, row 0 has {width}.")
    return rows["values"].copy()


def load_lear(name: str) -> TagData:
    """Load "espgame" or "iaprtc12" as Guillaumin et al. (2009) distribute them.

    Files: NAME_dictionary.txt, and for both parts NAME_PART_list.txt, NAME_PART_annot.hvecs and NAME_PART_Gist.fvec;
    features are divided by their mean length in training.
    """
    names = data_file(name, f"{name}_dictionary.txt", LEAR).read_text().split()
    parts: list[Tagged] = []
    length = 0.0
    for part in ("train", "test"):
        tags = read_matrix(data_file(name, f"{name}_{part}_annot.hvecs", LEAR))
        images = data_file(name, f"{name}_{part}_list.txt", LEAR).read_text().split()
        if tags.shape != (len(images), len(names)):
            raise ValueError(
                f"{name} {part}: tags of shape {tags.shape}, but {len(images)} images and {len(names)} names."
            )
        features = read_matrix(data_file(name, f"{name}_{part}_Gist.fvec", LEAR)).astype(np.float32)
        length = length or float(np.linalg.norm(features, axis=1).mean()) or 1.0
        parts.append(Tagged(images, _ids(tags), features / length))
    return TagData(parts[0], None, parts[1], names)


def _ids(tags: np.ndarray) -> list[np.ndarray]:
    """(n, t) of 0 and 1 -> the tag ids of each image."""
    return [np.flatnonzero(row) for row in tags]


def load_coco(minimum: int = 5) -> TagData:
    """Load COCO-Tag from captions_{train,val}2014.json, and features.npz with names (n,) and feats (n, d).

    The paper corrects spelling and lemmatises with tools of its time; here an inflected form becomes its stem where
    the training captions have the stem, and words of fewer than `minimum` training images are left out.
    """
    captions = [read_coco_captions(data_file("coco", f"captions_{part}2014.json", COCO)) for part in ("train", "val")]
    lemma = stemmer(caption for image in captions[0].values() for caption in image)
    train, test, names = _caption_tags(captions, "coco", "features.npz", minimum, lemma)
    return TagData(train, None, test, names)


def load_flickr8k(minimum: int = 2) -> TagData:
    """Load Flickr8k-Tag: 6,000 / 1,000 / 1,000 images; tags are lemmas of at least `minimum` training images."""
    captions = defaultdict(list)
    with gzip.open(data_file("flickr8k", "Flickr8k.lemma.token.txt.gz", FLICKR), "rt", encoding="utf-8") as lines:
        for line in lines:
            image, _, caption = line.partition("\t")
            captions[image.partition("#")[0]].append(caption)
    lists = [data_file("flickr8k", f"Flickr_8k.{part}Images.txt", FLICKR) for part in ("train", "dev", "test")]
    parts = [{image: captions[image] for image in path.read_text().split()} for path in lists]
    return TagData(*_caption_tags(parts, "flickr8k", "flickr8k_efflite0_pca512.npz", minimum, str))


def _caption_tags(
    parts: list[dict[str, list[str]]], folder: str, file: str, minimum: int, lemma: Callable[[str], str]
) -> Iterator[Any]:
    """Yield each part as tagged images, from the captions of its images; then the names of the tags."""
    with np.load(data_file(folder, file, FEATURES)) as data:
        features = dict(zip(data["names"].tolist(), data["feats"].astype(np.float32), strict=True))
    found = [[words(captions, lemma) for captions in part.values()] for part in parts]
    names = vocabulary(found[0], minimum)
    place = {name: i for i, name in enumerate(names)}
    for part, images in zip(parts, found, strict=True):
        sets = [np.array(sorted(place[word] for word in image if word in place), dtype=np.int64) for image in images]
        yield Tagged(list(part), sets, np.stack([features[image] for image in part]))
    yield names


@dataclass
class Problem:
    """Tagged images, ready for the methods.

    `train`, `test`: the tag ids of each image. `x_*`: features; `z_*`: the same, standardised by the training images
    for a network. `asked`, `wanted`: for retrieval, some tags of each test image and the remaining ones. `vectors`:
    word vectors of the tags, (tags, d), of mean 0 and deviation 1; 0 for a tag without one. `raw_vectors`: unscaled.
    """

    names: list[str]
    train: list[np.ndarray]
    test: list[np.ndarray]
    x_train: np.ndarray
    x_test: np.ndarray
    vectors: np.ndarray | None = None
    raw_vectors: np.ndarray | None = None
    retrieval: bool = False
    tagging: bool = False
    per_feature: bool = True

    def __post_init__(self) -> None:
        mean, deviation = self.x_train.mean(0), self.x_train.std(0)
        scale = deviation + 1e-3 if self.per_feature else np.float32(self.x_train.std())
        self.z_train, self.z_test = (((x - mean) / scale).astype(np.float32) for x in (self.x_train, self.x_test))
        rng = np.random.default_rng(0)
        mixed = [rng.permutation(tags) for tags in self.test]
        self.asked = [tags[: min(5, len(tags) // 2)] for tags in mixed]
        self.wanted = [tags[min(5, len(tags) // 2) :] for tags in mixed]

    def matrix(self, sets: list[np.ndarray]) -> np.ndarray:
        """Return sets of tag ids as (n, tags) of 0 and 1."""
        out = np.zeros((len(sets), len(self.names)), np.uint8)
        for row, tags in zip(out, sets, strict=True):
            row[tags] = 1
        return out


FILES = {"espgame": "espgame_dictionary.txt", "iaprtc12": "iaprtc12_dictionary.txt"}
FILES |= {"coco-tag": "captions_train2014.json"}  # parts that run only where these files are
PARTS = ("corel5k", "flickr8k", *FILES, "generated")


def available(part: str) -> bool:
    """Return whether the files of an optional part (see `FILES`) exist below the data folder."""
    return (data_folder() / part.removesuffix("-tag") / FILES[part]).exists()


def problem(part: str) -> Problem:
    """Load the problem of a part of the experiment, one of `PARTS`."""
    if part == "generated":
        return generated()
    if part in ("corel5k", "espgame", "iaprtc12"):
        return Problem(*_arrays(load_corel5k() if part == "corel5k" else load_lear(part)), tagging=True)
    if part not in PARTS:
        raise ValueError(f"unknown part {part!r} of the tagging experiment: it has {', '.join(PARTS)}.")
    data = load_coco() if part == "coco-tag" else load_flickr8k()
    vectors, raw = _word_vectors(data.names)
    # The features of Flickr8k are principal components: their sizes say what matters.
    return Problem(*_arrays(data), vectors, raw, retrieval=True, per_feature=part == "coco-tag")


def generated(images: int = 400, tags: int = 30, seed: int = 0) -> Problem:
    """Generate images of one or two of six scenes; a scene has its tags and its direction in feature space."""
    rng = np.random.default_rng(seed)
    scenes, likely = rng.normal(size=(6, 16)), rng.dirichlet(np.full(tags, 0.2), size=6)
    sets, features = [], []
    for _ in range(images):
        mixture = rng.multinomial(2, np.full(6, 1 / 6)) / 2
        chance = 0.99 * mixture @ likely + 0.01 / tags
        sets.append(np.sort(rng.choice(tags, size=rng.integers(2, 7), replace=False, p=chance)))
        features.append(mixture @ scenes + 0.3 * rng.normal(size=16))
    x = np.array(features, dtype=np.float32)
    cut = images * 3 // 4
    names = [f"tag {i}" for i in range(tags)]
    vectors = (likely / likely.sum(0)).T.astype(np.float32)
    return Problem(names, sets[:cut], sets[cut:], x[:cut], x[cut:], vectors, vectors, retrieval=True, tagging=True)


def _arrays(data: TagData) -> tuple[list[str], list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    return data.names, data.train.sets, data.test.sets, data.train.features, data.test.features


def _word_vectors(names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return (tags, 100) GloVe vectors of mean 0 and deviation 1, and unscaled; 0 for a tag without one."""
    known, matrix = load_glove()
    place = {word: i for i, word in enumerate(known)}
    rows = np.array([place.get(name, -1) for name in names])
    scaled = (matrix - matrix.mean(0)) / matrix.std()
    found = (np.where(rows[:, None] >= 0, form[rows], 0).astype(np.float32) for form in (scaled, matrix))
    return next(found), next(found)

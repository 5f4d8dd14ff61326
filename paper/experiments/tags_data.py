"""The tagging problems: Corel5K, Flickr8k-Tag, and one that is generated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..datasets import corel5k, flickr8k, glove


@dataclass
class Problem:
    """Tagged images. `train`, `test`: the sets, arrays of ids. x_*: features; z_*: the same, scaled for a network.

    `asked`, `wanted`: for retrieval, some tags of each test image and the others.
    """

    names: list[str]
    train: list[np.ndarray]
    test: list[np.ndarray]
    x_train: np.ndarray
    x_test: np.ndarray
    vectors: np.ndarray | None = None
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
        """(n, tags) of 0 and 1."""
        out = np.zeros((len(sets), len(self.names)), np.uint8)
        for row, tags in zip(out, sets, strict=True):
            row[tags] = 1
        return out


def problem(part: str) -> Problem:
    """The problem of a part of the experiment."""
    if part == "corel5k":
        corel = corel5k.load()
        return Problem(*_parts(corel), tagging=True)
    if part == "flickr8k":
        flickr = flickr8k.load()
        # These features are principal components: their sizes say what matters.
        return Problem(*_parts(flickr), vectors=_word_vectors(flickr.names), retrieval=True, per_feature=False)
    return generated()


def generated(images: int = 400, tags: int = 30, seed: int = 0) -> Problem:
    """Images of one or two of six scenes; a scene has its tags and its direction in feature space."""
    rng = np.random.default_rng(seed)
    scenes, likely = rng.normal(size=(6, 16)), rng.dirichlet(np.full(tags, 0.2), size=6)
    sets, features = [], []
    for _ in range(images):
        mixture = rng.multinomial(2, np.full(6, 1 / 6)) / 2
        sets.append(
            np.sort(rng.choice(tags, size=rng.integers(2, 7), replace=False, p=0.99 * mixture @ likely + 0.01 / tags))
        )
        features.append(mixture @ scenes + 0.3 * rng.normal(size=16))
    x = np.array(features, dtype=np.float32)
    cut = images * 3 // 4
    names = [f"tag {i}" for i in range(tags)]
    vectors = (likely / likely.sum(0)).T.astype(np.float32)
    return Problem(names, sets[:cut], sets[cut:], x[:cut], x[cut:], vectors, retrieval=True, tagging=True)


def _parts(data: flickr8k.TagData) -> tuple[list[str], list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    assert data.train.features is not None and data.test.features is not None
    return data.names, data.train.materialize(), data.test.materialize(), data.train.features, data.test.features


def _word_vectors(names: list[str]) -> np.ndarray:
    """(tags, 100) GloVe vectors of mean 0 and deviation 1; 0 for a tag without one."""
    known, matrix = glove.load()
    place = {word: i for i, word in enumerate(known)}
    rows = np.array([place.get(name, -1) for name in names])
    matrix = (matrix - matrix.mean(0)) / matrix.std()
    return np.where(rows[:, None] >= 0, matrix[rows], 0).astype(np.float32)

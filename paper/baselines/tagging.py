"""Baselines of image tagging, each with `fit(features, tags)` and `scores(features)`, and their metrics."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from scipy import linalg
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.preprocessing import StandardScaler


class TagScores(NamedTuple):
    """Means over tags; `n_plus` is the number of tags found at least once where they belong."""

    precision: float
    recall: float
    f1: float
    n_plus: int


def tag_scores(scores: np.ndarray, tags: np.ndarray, per_image: int = 5) -> TagScores:
    """Score the `per_image` best tags of every image: precision and recall per tag, averaged over tags.

    >>> tags = np.array([[1, 1, 0], [1, 0, 0]])
    >>> tag_scores(np.array([[0.9, 0.8, 0.1], [0.2, 0.3, 0.1]]), tags, per_image=1)
    TagScores(precision=0.5, recall=0.25, f1=0.333..., n_plus=1)

    scores (n, t), tags (n, t) of 0 and 1. Tags that no image has do not count; a tag that is never given to an image
    has precision 0. F1 is that of the two means, as in the literature on these data.
    """
    scores, truth = np.asarray(scores), np.asarray(tags) > 0
    if scores.shape != truth.shape or scores.ndim != 2:
        raise ValueError(f"scores and tags must both be (images, tags); found {scores.shape} and {truth.shape}.")
    if not 1 <= per_image <= scores.shape[1]:
        raise ValueError(f"per_image must be between 1 and the {scores.shape[1]} tags, found {per_image}.")
    given = np.zeros_like(truth)
    np.put_along_axis(given, top_tags(scores, per_image), True, axis=1)
    used = truth.any(0)
    right = (given & truth).sum(0)[used]
    precision = float((right / np.maximum(given.sum(0)[used], 1)).mean())
    recall = float((right / truth.sum(0)[used]).mean())
    f1 = 2 * precision * recall / max(precision + recall, 1e-12)
    return TagScores(precision, recall, f1, int((right > 0).sum()))


def top_tags(scores: np.ndarray, per_image: int = 5) -> np.ndarray:
    """Return the ids of the best tags, best first, (n, per_image); of equal scores the lower id first.

    >>> top_tags(np.array([[0.1, 0.7, 0.7]]), 2)
    array([[1, 2]])
    """
    return np.argsort(-np.asarray(scores), axis=1, kind="stable")[:, :per_image]


class Tagger(Protocol):
    """What every tagger does: features (n, d) and tags (n, t) of 0 and 1 in, scores (n, t) out."""

    def fit(self, features: np.ndarray, tags: np.ndarray) -> Any:
        """Learn from tagged images; return itself."""

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return how well every tag fits every image."""


T = TypeVar("T", bound=Tagger)


def choose(candidates: Sequence[T], features: np.ndarray, tags: np.ndarray, *, per_image: int = 5, seed: int = 0) -> T:
    """Return the candidate with the best F1 on images held out, averaged over three folds, fitted on all images.

    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(60, 4)); tags = (features[:, :3] > 0).astype(int)
    >>> choose([LeastSquares(1e9), LeastSquares(0.01)], features, tags, per_image=2).penalty
    0.01
    """
    fold = np.random.default_rng(seed).permutation(len(features)) % 3
    found = np.zeros(len(candidates))
    for held in range(3):
        rest = fold != held
        for number, tagger in enumerate(candidates):
            scores = tagger.fit(features[rest], tags[rest]).scores(features[~rest])
            found[number] += tag_scores(scores, tags[~rest], per_image).f1
    best: T = candidates[int(found.argmax())]
    best.fit(features, tags)
    return best


class LeastSquares:
    r"""Linear scores  $s = x W$  with  $\min_W \frac1n \|Y - X W\|^2 + λ\|W\|^2$,  x in units of its deviation.

    >>> features, tags = np.array([[0.0], [1], [2], [3]]), np.array([[0, 1], [0, 1], [1, 0], [1, 0]])
    >>> LeastSquares(penalty=1e-6).fit(features, tags).scores(np.array([[3.0]])).round(3)
    array([[ 0.6, -0.6]])

    There is no constant: a score says how far a tag is more likely than usual, so that frequent tags do not come first
    everywhere. With `balance` it is divided by this power of the tag's deviation, which brings rare tags forward.
    """

    def __init__(self, penalty: float = 0.1, balance: float = 0.0) -> None:
        self.penalty, self.balance = penalty, balance

    def fit(self, features: np.ndarray, tags: np.ndarray) -> Self:
        """Learn from tagged images."""
        self.scaling = StandardScaler().fit(features.astype(float))
        x = self.scaling.transform(features.astype(float))
        square = x.T @ x / len(x) + self.penalty * np.eye(x.shape[1])
        self.weights = linalg.solve(square, x.T @ tags / len(x), assume_a="pos")
        deviations = tags.std(0)
        self.weights /= np.where(deviations > 0, deviations, 1.0) ** self.balance
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return how well every tag fits, (n, t)."""
        return self.scaling.transform(features.astype(float)) @ self.weights


class JEC:
    """The nearest training image gives its tags, most frequent first; the next `neighbours` fill up.

    >>> features, tags = np.array([[0.0], [1], [5]]), np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> JEC(neighbours=2).fit(features, tags).scores(np.array([[0.2]])).argsort()[0, ::-1].tolist()
    [0, 1, 2]

    The distance is L1 on one kind of features, so the equal weights that several kinds would get do not matter. After
    the tags of the nearest image come those of the others, by (number of neighbours that have the tag) x (how often it
    stands beside the tags of the nearest image in the training data).
    """

    def __init__(self, neighbours: int = 5) -> None:
        self.neighbours = neighbours

    def fit(self, features: np.ndarray, tags: np.ndarray) -> Self:
        """Learn from tagged images."""
        self.features, self.tags = features.astype(float), tags.astype(float)
        self.beside = self.tags.T @ self.tags  # (t, t): how many images have both
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return scores whose order is that of transfer: 1 to 2 for tags of the nearest image, else below 1."""
        distance = cdist(features.astype(float), self.features, "cityblock")
        near = np.argsort(distance, axis=1, kind="stable")[:, : self.neighbours]
        first = self.tags[near[:, 0]]
        others = self.tags[near[:, 1:]].sum(1) * (first @ self.beside)
        frequency = np.diag(self.beside)
        return np.where(first > 0, 1 + frequency / (frequency.max() + 1), others / (others.max(1, keepdims=True) + 1))


class MBRM:
    r"""Each training image J is a model of tags and of features:  $p(w|x) ∝ \sum_J p(w|J)\, N(x; x_J, βI)$.

    >>> features, tags = np.array([[0.0], [1.0]]), np.array([[1, 0], [0, 1]])
    >>> MBRM(width=0.1, smoothing=100.0).fit(features, tags).scores(np.array([[0.1]])).round(2)
    array([[0.99, 0.01]])

    A tag is a Bernoulli variable, smoothed by its share N_w / N of all images:
    $p(w|J) = (μ [w ∈ J] + N_w) / (μ + N)$ with μ = `smoothing`. `width` is β in units of the mean squared distance of
    two images: in a thousand dimensions the posterior over J is otherwise a single image.
    """

    def __init__(self, width: float = 0.02, smoothing: float = 1000.0) -> None:
        self.width, self.smoothing = width, smoothing

    def fit(self, features: np.ndarray, tags: np.ndarray) -> Self:
        """Learn from tagged images."""
        self.features, count = features.astype(float), len(features)
        self.tags = (self.smoothing * tags + tags.sum(0)) / (self.smoothing + count)
        self.scale = self.width * max(2 * float(self.features.var(0).sum()), 1e-12)  # E|a − b|² = 2 var
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """p(tag | features), (n, t)."""
        log_density = -cdist(features.astype(float), self.features, "sqeuclidean") / self.scale
        return np.exp(log_density - logsumexp(log_density, axis=1, keepdims=True)) @ self.tags


class FastTag:
    r"""Completes the tags of an image (yB) and predicts the completed tags from its features (xW), in closed form:

    $$\min_{B, W} \tfrac1n \sum_i \|y_i B − x_i W\|^2 + λ\|W\|^2 + γ\, \tfrac1n \sum_i E\|y_i − ỹ_i B\|^2$$

    where ỹ has lost each tag with probability `corruption`; the expectation over all losses is exact:
    $E[ỹ^⊤ỹ] = (1−p)^2 S + p(1−p)\,\mathrm{diag}(S)$ and $E[ỹ^⊤y] = (1−p) S$ with $S = Y^⊤Y/n$.

    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(50, 3)); tags = (features @ rng.normal(size=(3, 4)) > 0).astype(float)
    >>> FastTag().fit(features, tags).scores(features).shape
    (50, 4)

    Features are taken in units of their deviation, without a constant. B and W are solved for in turn, from B that
    best undoes the losses.
    """

    def __init__(self, corruption: float = 0.3, agreement: float = 1.0, penalty: float = 0.1, steps: int = 10) -> None:
        self.corruption, self.agreement, self.penalty, self.steps = corruption, agreement, penalty, steps

    def fit(self, features: np.ndarray, tags: np.ndarray) -> Self:
        """Learn from tagged images."""
        self.scaling = StandardScaler().fit(features.astype(float))
        count, x, y = len(features), self.scaling.transform(features.astype(float)), tags.astype(float)
        together, keep = y.T @ y / count, 1 - self.corruption
        lost = keep**2 * together + keep * self.corruption * np.diag(np.diag(together))  # E ỹᵀỹ
        cross, ridge = keep * together, 1e-9 * np.eye(len(lost))  # E ỹᵀy
        met = x.T @ y / count
        from_tags = linalg.solve(x.T @ x / count + self.penalty * np.eye(x.shape[1]), met, assume_a="pos")  # W = this B
        seen = met.T @ from_tags  # what yᵀ(xW)/n is before B
        left = linalg.cho_factor(self.agreement * lost + together + ridge)
        self.completion = linalg.solve(lost + ridge, cross, assume_a="pos")
        for _ in range(self.steps):
            self.completion = linalg.cho_solve(left, self.agreement * cross + seen @ self.completion)
        self.weights = from_tags @ self.completion
        return self

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return how well every tag fits, (n, t)."""
        return self.scaling.transform(features.astype(float)) @ self.weights

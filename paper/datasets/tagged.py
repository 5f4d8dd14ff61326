"""Images with tags: what every tagging data set yields."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array


class Tagged(NamedTuple):
    """One part (train, test …) of a tagging data set; tags are columns, called `names` in the data set.

    images: (n,) how the images are called. tags: (n, t) of 0 and 1. features: (n, d) float32, or None.
    """

    images: list[str]
    tags: csr_array
    features: np.ndarray | None = None

    def materialize(self) -> list[np.ndarray]:
        """The numbers of the tags of each image: its set."""
        return [np.sort(row) for row in np.split(self.tags.indices.astype(np.int64), self.tags.indptr[1:-1])]


class TagData(NamedTuple):
    """A tagging data set: its parts, and the names of its tags."""

    train: Tagged
    validation: Tagged | None
    test: Tagged
    names: list[str]

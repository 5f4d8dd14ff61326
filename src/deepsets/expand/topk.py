"""The best of many scores, exactly."""

from __future__ import annotations

import numpy as np


def top(scores: np.ndarray, k: int, left: np.ndarray) -> np.ndarray:
    """Places of the k largest scores among those that are left, largest first, ties in order of place.

    >>> top(np.array([1.0, 3.0, 2.0, 3.0, 2.0]), 3, np.array([True, True, True, True, True])).tolist()
    [1, 3, 2]
    """
    places = np.flatnonzero(left)
    found = scores[places]
    if k < len(found):
        least = np.partition(found, len(found) - k)[len(found) - k]
        above = np.flatnonzero(found > least)
        ties = np.flatnonzero(found == least)[: k - len(above)]
        chosen = np.concatenate([above, ties])
        places, found = places[chosen], found[chosen]
        order = np.lexsort((places, -found))
    else:
        order = np.argsort(-found, kind="stable")
    return places[order]

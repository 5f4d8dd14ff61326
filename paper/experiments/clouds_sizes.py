"""How many points of a cloud a step of the training sees: few at first, which saves most of the time."""

from __future__ import annotations

import torch


def subset(done: float, most: int) -> int:
    """How many points a cloud has in training: few at first, more until 95 %, then all; at least 100.

    >>> [subset(done, 1000) for done in (0.1, 0.7, 0.97)], subset(0.1, 100)
    ([125, 250, 1000], 100)
    """
    return min(most, max(100, most // 8 if done < 0.6 else most // 4 if done < 0.95 else most))


def whole(done: float, most: int) -> int:
    """All of them, always."""
    return most


def nearly_whole(done: float, most: int) -> int:
    """For graphs, whose neighbours in a thinned cloud are other ones: a quarter of the points until 80 %, then all.

    >>> nearly_whole(0.5, 1000), nearly_whole(0.9, 1000)
    (250, 1000)
    """
    return most // 4 if done < 0.8 else most


def any_size(done: float, most: int) -> int:
    """For a network that is asked about clouds of any size: 100 points or more, by chance, the largest ones late.

    >>> all(100 <= any_size(done, 1000) <= top for done, top in ((0.1, 166), (0.7, 400), (0.95, 1000)))
    True
    """
    top = most // 6 if done < 0.6 else most * 2 // 5 if done < 0.9 else most
    return min(most, round(100 * (max(top, 100) / 100) ** float(torch.rand(()))))

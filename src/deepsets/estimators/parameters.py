"""Documentation of parameters that several estimators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=type)

_COMMON = """
    learning_rate, weight_decay : float
        Of AdamW with warm-up and cosine decay.
    warm_start : bool, default=False
        `fit` continues from the weights of the networks.
    columns : list of str, optional
        For tables: the feature columns (default: all others).
    checkpoint_dir : str, optional
        Folder for checkpoints and the log of the networks; an interrupted fit resumes there.
    device : str, default="auto"
        Device of the training of the networks; "auto" takes a GPU if there is one.
    on_epoch : callable, optional
        Called after each epoch of the networks with a dict of its numbers.
    random_state : int, RandomState or None
    verbose : bool, default=False
        Show a progress bar.
"""

SET_PARAMETERS = """
    Parameters
    ----------
    model : {"auto", "deep", "boosting", "forest", "kernel", "linear"}, default="auto"
        "auto" fits a regularised linear model, a kernel machine (few sets), a forest and gradient boosting on pooled
        summaries (count, mean, deviation, extremes, shares of categories, bags of tokens) and deep networks, and
        blends them by out-of-fold predictions; a head that does not help is dropped. The other names fit one head.
    width, depth, dropout : int, int, float, optional
        Size of the deep networks; by default chosen from the data.
    n_estimators : int, optional
        Folds, and deep networks, each trained without one fold; by default 8 (up to 120 sets), 5, 3 or 1.
    epochs, batch_size : int, optional
        Passes over the sets and sets per step for the deep networks; by default chosen from the data.
    early_stopping : bool, optional
        Stop when the loss of held-out folds has not improved for `patience` epochs, and keep the best weights. By
        default from 400 sets on, unless `epochs` is given.
    patience : int, optional
        By default a fifth of the epochs, at least 3.
    pool : str or list of str, optional
        Poolings of the deep networks, default ``["max", "mean", "min", "std"]``; attention is "gated" or "seeds"; see
        `deepsets.nn.pooling`.
    subset : int, optional
        Train the deep networks on random subsets of at most so many members, for huge sets.
    by : str or list of str, optional
        For tables: the column that identifies the set. Several columns, outer first, describe sets of sets, pooled
        level by level.
    n_jobs : int, optional
        Threads: with two, the heads on summaries of large data are fitted beside the networks. Default: as torch.
""" + _COMMON.strip("\n")

CLASS_WEIGHT = """
    class_weight : "balanced" or dict, optional
        Weights of the classes; "balanced" weighs all classes alike, however rare they are."""

MEMBER_PARAMETERS = """
    Parameters
    ----------
    width, depth, dropout : int, int, float
        Size and dropout of the networks.
    n_estimators : int, default=4
        Networks with different initialisations, whose answers are averaged.
    noise : float
        Deviation of the noise on the features in training, in units of their deviation.
    keep : float
        In training, random parts of the sets are used, of at least this share of the members.
    epochs : int, optional
        Passes over the sets; by default as many as make about 400 steps, at least 30.
    batch_size : int
        Sets per step.
    early_stopping : bool, default=False
        Hold out `validation_fraction` of the sets, keep the best weights, stop after `patience` epochs without a
        better one.
    validation_fraction : float
    patience : int
    by : str, optional
        For tables: the column that identifies the set.
""" + _COMMON.strip("\n")


def documented(parameters: str) -> Callable[[T], T]:
    """Insert the text of shared parameters into the docstring of a class, in place of ``{parameters}``."""

    def insert(cls: T) -> T:
        cls.__doc__ = (cls.__doc__ or "").replace("    {parameters}", parameters.strip("\n"))
        return cls

    return insert

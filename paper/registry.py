"""Which experiments there are."""

from __future__ import annotations

from importlib import import_module

from .experiment import Experiment

NAMES = ("popstats", "digits-text", "digits-image", "clouds", "redshift", "odd-one-out", "concepts", "tags")


def experiment(name: str) -> Experiment:
    """The experiment of that name; its module is imported only now.

    >>> experiment("digits")
    Traceback (most recent call last):
    ValueError: there is no experiment 'digits': the paper has popstats, digits-text, ...
    """
    if name not in NAMES:
        raise ValueError(f"there is no experiment {name!r}: the paper has {', '.join(NAMES)}.")
    found = import_module(f".experiments.{name.replace('-', '_')}", __package__).EXPERIMENT
    assert isinstance(found, Experiment)
    return found

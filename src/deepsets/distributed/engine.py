"""Engines: where the work is done."""

from __future__ import annotations

from typing import Any, NamedTuple

ENGINES = ("local", "ray", "spark")


class Engine(NamedTuple):
    """Where the work is done.

    Parameters
    ----------
    name : {"local", "ray", "spark"}, default="local"
        Processes of this machine, a Ray cluster, or a Spark cluster.
    workers : int, optional
        Number of processes or cores; by default one per core.
    address : str, optional
        A running Ray cluster (``auto``, ``ray://host:10001``) or a Spark master (``spark://host:7077``, ``yarn``);
        by default one is started on this machine for the run.

    Examples
    --------
    >>> Engine("ray", workers=8, address="auto").name
    'ray'
    """

    name: str = "local"
    workers: int | None = None
    address: str | None = None


def open_engine(engine: str | Engine) -> Any:
    """Return what runs jobs: an object with `run(job)` and `collect(input)`.

    Parameters
    ----------
    engine : str or Engine
        Name or description of an engine.
    """
    name, workers, address = engine if isinstance(engine, Engine) else Engine(engine)
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}: use one of {', '.join(ENGINES)}.")
    if workers is not None and workers < 1:
        raise ValueError(f"at least one worker is needed, found {workers}.")
    if name == "local":
        if address is not None:
            raise ValueError("an address is for the engines ray and spark; the engine local runs on this machine.")
        from .local import Local

        return Local(workers)
    if name == "ray":
        from .ray import Ray

        return Ray(workers, address)
    from .spark import Spark

    return Spark(workers, address)

"""A small table, and one model of each task, for the tests of the commands."""

from pathlib import Path

import pytest

from .commands import fit, frame


@pytest.fixture(scope="session")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "table.parquet"
    frame().to_parquet(path)
    return path


@pytest.fixture(scope="session")
def models(table) -> Path:
    """One model of each kind."""
    for target in ("top", "tall", "sum", "sign"):
        fit(table, target, table.parent / target)
    fit(table, "odd", table.parent / "odd", "--task", "odd-one-out")
    fit(table, "top", table.parent / "z", "--z-columns", "k")
    fit(table, "size", table.parent / "word", features="word")
    fit(table, "tall", table.parent / "mixed", "--z-columns", "k", features="a,flag,word,day")
    return table.parent

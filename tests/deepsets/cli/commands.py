"""Commands run in this process, and the table they are run on."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from deepsets.cli import app

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

SIZES = np.random.default_rng(0).integers(1, 8, size=24)
MEMBER_TARGETS = ("sum", "sign", "odd")


def frame() -> "pd.DataFrame":
    box = np.repeat([f"s{i}" for i in range(len(SIZES))], SIZES)
    rng = np.random.default_rng(1)
    out = pd.DataFrame({"box": box, "a": rng.normal(size=len(box)), "b": rng.normal(size=len(box))})
    out["k"] = np.repeat(rng.normal(size=len(SIZES)), SIZES)
    out["top"] = out.groupby("box")["a"].transform("max")
    out["tall"] = (out["top"] > 1).astype(int)
    out["size"] = np.repeat(np.where(SIZES > 4, "large", "small"), SIZES)
    out["sum"] = out["a"] + out["b"]
    out["sign"] = np.where(out["sum"] > 0, "plus", "minus")
    out["odd"] = out.groupby("box").cumcount() == 0
    out["word"] = [f"w{i % 4}" for i in range(len(box))]
    out["flag"] = rng.random(len(box)) > 0.5
    out["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, len(box)), "D")
    return out


def run(*args: object, code: int = 0) -> str:
    """Standard output of a command; for a failure what it says on standard error."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def fit(table: Path, target: str, model: Path, *more: object, features: str | None = "a,b", code: int = 0) -> str:
    """A quick fit: one epoch for members, a linear model for sets."""
    quick: list[object] = ["--epochs", 1, "--width", 8] if target in MEMBER_TARGETS else ["--model", "linear"]
    quick = ["--epochs", 1] if "odd-one-out" in more else quick
    quick = [] if "--model" in more else quick
    chosen = ["--features", features] if features else []
    return run("fit", table, "--by", "box", "--target", target, *chosen, *quick, "-o", model, *more, code=code)

"""Writes what a benchmark found to results/NAME.json: numbers, data, seeds, versions, seconds."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"


def data_folder() -> Path:
    """$DEEPSETS_DATA, or a clear word that it is missing."""
    folder = os.environ.get("DEEPSETS_DATA")
    if not folder or not Path(folder).is_dir():
        raise SystemExit(f"this benchmark needs data: set DEEPSETS_DATA to its folder (found {folder!r}).")
    return Path(folder)


def write(name: str, rows: list[dict[str, Any]], **facts: Any) -> None:
    """Atomically, so that a result is whole or not there."""
    versions = {package: version(package) for package in ("deepsets", "torch", "numpy", "scikit-learn")}
    about = {"date": datetime.now(UTC).date().isoformat(), "python": platform.python_version(), "versions": versions}
    RESULTS.mkdir(exist_ok=True)
    temporary = RESULTS / f".{name}.tmp"
    temporary.write_text(json.dumps({**about, **facts, "rows": rows}, indent=1) + "\n")
    temporary.replace(RESULTS / f"{name}.json")

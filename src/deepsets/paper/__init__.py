"""Every experiment of the paper with its baselines: run, kept as JSON, and reported beside the published numbers.

>>> from deepsets import paper
>>> paper.run("digits-text", "results")  # doctest: +SKIP
>>> paper.report("results")  # doctest: +SKIP
"""

from ._experiment import Experiment, Measure, Outcome, Trial
from ._record import Record, records
from ._registry import NAMES, experiment
from ._report import report
from ._rows import Row, rows
from ._run import run

__all__ = [
    "NAMES", "Experiment", "Measure", "Outcome", "Record", "Row", "Trial",
    "experiment", "records", "report", "rows", "run",
]  # fmt: skip

"""Every experiment of the paper with its baselines: run, kept as JSON, and reported beside the published numbers.

>>> import paper
>>> paper.run("digits-text", "results")  # doctest: +SKIP
>>> paper.report("results")  # doctest: +SKIP
"""

from .experiment import Experiment, Measure, Outcome, Trial
from .record import Record, records
from .registry import NAMES, experiment
from .report.report import report
from .report.rows import Row, rows
from .run import run

__all__ = [
    "NAMES", "Experiment", "Measure", "Outcome", "Record", "Row", "Trial",
    "experiment", "records", "report", "rows", "run",
]  # fmt: skip

"""Every experiment of the Deep Sets paper with its baselines, reported beside the published numbers.

>>> import paper
>>> paper.run("digits-text", "results")  # doctest: +SKIP
>>> paper.write_report("results")  # doctest: +SKIP
"""

from .experiment import NAMES, Experiment, Measure, Outcome, Trial, add_method, get_experiment, load_methods
from .models import load_model
from .report import Row, rows, write_report
from .runner import Record, records, run

__all__ = [
    "NAMES", "Experiment", "Measure", "Outcome", "Record", "Row", "Trial",
    "add_method", "get_experiment", "load_methods", "load_model", "records", "rows", "run", "write_report",
]  # fmt: skip

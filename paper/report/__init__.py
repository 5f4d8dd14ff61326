"""The report: rows, tables, scoreboard, `RESULTS.md` and one HTML page, from the records of the runs alone."""

from .document import write_report
from .tables import Row, rows

__all__ = ["Row", "rows", "write_report"]

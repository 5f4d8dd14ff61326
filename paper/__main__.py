"""Run the experiments of the Deep Sets paper: ``python -m paper list | run NAME | report``."""

from .command import app

app(prog_name="python -m paper")

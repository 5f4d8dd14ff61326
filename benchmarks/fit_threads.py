"""Seconds of a default fit with one thread and with two, on an idle machine and beside two busy processes."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from .clock import LOADS, machine
from .results import write
from .tables import TASKS, fit_ours, split

NAMES = ("flights rain", "many sets", "recipes", "imbalance", "shapes")


def run() -> list[dict[str, Any]]:
    torch.set_num_threads(2)
    rows: list[dict[str, Any]] = []
    names = os.environ["TASKS"].split(",") if "TASKS" in os.environ else NAMES
    for name in names:
        task = TASKS[name]()
        seen, held = split(name, task)[0]
        fit_ours(task, seen[:200], held[:20])  # compiles the kernels
        for load in LOADS:
            seconds: dict[int, list[float]] = {1: [], 2: []}
            with machine(load):
                for threads in (1, 2, 2, 1):
                    start = time.perf_counter()
                    fit_ours(task, seen, held, n_jobs=threads)
                    seconds[threads].append(time.perf_counter() - start)
            row: dict[str, Any] = {"task": name, "load": load, "one thread": min(seconds[1])}
            row |= {"two threads": min(seconds[2]), "faster by": min(seconds[1]) / min(seconds[2])}
            rows.append(row)
            print(row, flush=True)
    write("fit-threads", rows, protocol="default fit and a prediction, seconds by the clock, the faster of two runs")
    return rows

"""Muon and AdamW against AdamW alone: the published network for clouds, on training clouds that are held out.

The test clouds are not touched. Both get the same steps; Muon's take a little longer, so the seconds stand beside.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from paper import Trial
from paper.datasets import clouds
from paper.experiments.clouds_networks import published
from paper.experiments.clouds_training import Recipe, accuracy, train
from paper.training import MuonAdamW

from .results import data_folder

HELD_OUT, EPOCHS, POINTS = 1000, 6, 125


def run() -> list[dict[str, object]]:
    data_folder()
    data = clouds.load(points=1024)
    order = np.random.default_rng(5).permutation(len(data.x_train))
    held, kept = order[:HELD_OUT], order[HELD_OUT:]
    split = {"x_train": data.x_train[kept], "y_train": data.y_train[kept]}
    split |= {"x_test": data.x_train[held], "y_test": data.y_train[held]}
    rows: list[dict[str, object]] = []
    for name, optimizer in (("AdamW", None), ("Muon and AdamW", MuonAdamW)):
        torch.manual_seed(0)
        model, start = published(len(data.classes)), time.process_time()
        recipe = Recipe(published, EPOCHS, rate=3e-3, optimizer=optimizer)
        with tempfile.TemporaryDirectory() as folder:
            train(model, recipe, data._replace(**split), POINTS, Trial(True, 0, Path(folder)))
        seconds = time.process_time() - start
        found = accuracy(model, recipe, data._replace(**split), POINTS, seed=0)
        rows.append({"optimizer": name, "epochs": EPOCHS, "held-out accuracy": found, "core seconds": seconds})
    return rows

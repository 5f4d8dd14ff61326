"""The deep head: networks trained side by side, each without one fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..sets import Sets
from ..train import Batch, seeded, train
from .blend import Folds
from .network import DEFAULT_POOL, SetNetworks
from .summaries import Summaries
from .task import Task

_FLOPS = 3e10  # multiplications and additions per second of one core, measured on small matrices
_STEP = 0.0015  # seconds per step beside them


class Plan(NamedTuple):
    """Size of the networks and of their training, chosen from the data."""

    width: int
    depth: int
    dropout: float
    deep_rho: bool
    networks: int
    batch_size: int = 1
    epochs: int = 1


def plan(
    task: Task, members: int, features: int, tokens: int, *, folds: int, seconds: float = 6.0, **chosen: Any
) -> Plan:
    """Choose what the user has not chosen, for `folds` networks on so many members, numbers and category columns.

    `seconds` is the time for the training on one core, by a count of operations: a clock would give other numbers on a
    busy day.
    """
    sets = len(task.y)
    smooth = task.kind == "regression"
    wide = features > 60 and sets < 1000
    depth = chosen.get("depth") or (3 if smooth else 2)
    dropout = chosen.get("dropout")
    if dropout is None and smooth:
        dropout = 0.0
    elif dropout is None:  # few features do not overfit: dropout only hid what they say
        dropout = 0.5 if wide else 0.1 if features > 30 else 0.0 if features else 0.2
    batch_size = chosen.get("batch_size") or int(np.clip(2 ** np.round(np.log2(max(1, sets / 50))), 16, 256))
    steps = -(-sets // batch_size)
    wanted = 1500 if smooth else 800
    best: tuple[int, int] | None = None
    for width in [chosen["width"]] if chosen.get("width") else [128, 64, 32]:
        inputs = features + 32 * tokens
        flops = 6.0 * folds * members * (inputs * width + (depth - 1) * width * width)
        epoch = flops / _FLOPS + steps * _STEP * (1 + 0.2 * folds)
        affordable = int(seconds / epoch)
        best = (width, affordable)
        if affordable * steps >= min(wanted, 30 * steps):
            break
    assert best is not None
    epochs = chosen.get("epochs") or int(np.clip(min(best[1], -(-wanted // steps)), 3, 200))
    return Plan(best[0], depth, dropout, smooth or not wide, folds, batch_size, epochs)


def build(plan: Plan, summaries: Summaries, outputs: int, pool: Any, seed: int) -> SetNetworks:
    """Networks with their initial weights; the global generator is left as it was."""
    encoder = summaries.encoder
    with seeded(seed):
        return SetNetworks(
            encoder.view_width,
            [len(v) for v in encoder.vocabularies],
            summaries.context_width,
            outputs,
            networks=plan.networks,
            width=plan.width,
            depth=plan.depth,
            dropout=float(plan.dropout),
            deep_rho=bool(plan.deep_rho),
            pool=DEFAULT_POOL if pool is None else pool,
        )


def fit_deep(
    networks: SetNetworks,
    sets: Sets,
    context: Tensor | None,
    task: Task,
    weight: np.ndarray | None,
    folds: Folds,
    *,
    patience: int | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train the networks, network k on the rows that fold k has seen; a network without a fold sees all rows.

    The rows a network may see enter the loss as weights beside the targets, so all networks share one batch.
    """
    seen = np.ones((len(sets), networks.networks), dtype=np.float32)
    for k, (_, held) in enumerate(folds[: networks.networks]):
        seen[held, k] = 0
    unseen = torch.from_numpy((seen == 0).astype(np.float32))
    if weight is not None:
        seen *= weight[:, None]
    y = torch.from_numpy(task.indicators() if task.kind != "classes" else task.y[:, None].astype(np.float64)).float()
    data = Batch(sets, torch.cat([y, torch.from_numpy(seen)], dim=1), context)
    validation = None
    if patience is not None and folds:
        held_out = Batch(sets, torch.cat([y, unseen], dim=1), context)
        validation = held_out.take(unseen.any(1).nonzero().squeeze(1))
    clip = networks.networks**0.5
    with one_thread():
        history = train(networks, loss_of(task), data, clip=clip, validation=validation, patience=patience, **options)
    networks.cpu().eval()
    return history


def loss_of(task: Task) -> Callable[[Any, Batch], tuple[Tensor, Tensor | float]]:
    """Loss of all networks: sum over the rows each of them may see, and the number of such pairs."""
    width = 1 if task.kind == "classes" else task.outputs

    def loss(model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        assert isinstance(batch.y, Tensor)
        y, seen = batch.y[:, :width], batch.y[:, width:].T  # seen: (K, B)
        answers = model(batch.sets, batch.z)  # (K, B, outputs)
        if task.kind == "classes":
            many = y[:, 0].long().expand(len(answers), -1)
            errors = F.cross_entropy(answers.flatten(0, 1), many.flatten(), reduction="none").view_as(seen)
        elif task.kind == "labels":
            errors = F.binary_cross_entropy_with_logits(answers, y.expand_as(answers), reduction="none").mean(2)
        else:
            errors = (answers - y).square().mean(2)
        return (errors * seen).sum(), seen.sum()

    return loss


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread: small networks only wait for each other; the user's setting is put back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""The training loop for sets in files; it reads like `deepsets.train.train`, whose parts it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..train import Batch, History, evaluate
from ..train.batches import fingerprint, pieces
from ..train.loop import Loss, _seed, _stop_after_step, take_step
from ..train.process_group import share_start, workers
from ..train.run import Run
from ..train.schedule import Rate, Schedule
from .shards import Shards


def train(
    model: nn.Module,
    loss: Loss,
    data: Shards,
    *,
    epochs: int = 10,
    batch_members: int = 16_000,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.01,
    schedule: Schedule = "cosine",
    warmup: float = 0.05,
    clip: float | None = 1.0,
    validation: Batch | None = None,
    patience: int | None = None,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    micro_elements: int | None = 32_000,
) -> History:
    """Trains a model on sets in Parquet files, in place, and returns a dict of numbers for every epoch.

    loss(model, batch): the *sum* of the losses and their number. batch_members: members in a batch, over all processes.
    For the rest see `deepsets.train.train`. Under torchrun every process calls this with the same arguments and reads
    its own row groups; all make the same number of steps, some of them with empty hands. A run that is taken up from a
    checkpoint reads its epoch again up to the step where it stood, without computing, and ends with the weights of one
    that was never interrupted.
    """
    me = workers()
    parameters = [p for p in model.parameters() if p.requires_grad]
    make = optimizer or (lambda ps: torch.optim.AdamW(ps, learning_rate, weight_decay=weight_decay, fused=True))
    opt = make(parameters)
    full_rates = [group["lr"] for group in opt.param_groups]
    rate = Rate(schedule, warmup)
    steps = max(1, round(data.members / batch_members))
    identity: dict[str, Any] = {"steps": steps, "seed": seed, "epochs": epochs, "schedule": schedule, "warmup": warmup}
    identity |= {"clip": clip, "patience": patience, "rates": full_rates, "weight_decay": weight_decay}
    identity |= {"micro_elements": micro_elements, "processes": me.world, **data.identity}
    if checkpoint_dir is not None:
        identity |= {"validation": validation and fingerprint(validation)}
    run = Run(model, opt, rate, Path(checkpoint_dir) if checkpoint_dir is not None else None, identity)
    with torch.random.fork_rng(devices=[]), _stop_after_step() as stop:
        run.resume()
        share_start(model, me.world)
        if me.rank == 0:
            run.start_log()
        while run.epoch < epochs and not run.finished:
            model.train()
            for number, batch in enumerate(data.batches(steps, seed, run.epoch, *me)):
                if number < run.step:  # done before the interruption
                    continue
                _seed(hash((seed, run.epoch, run.step, me.rank)))
                done = (run.epoch + (run.step + 0.5) / steps) / epochs
                for group, full in zip(opt.param_groups, full_rates, strict=True):
                    group["lr"] = full * rate(done)
                take_step(run, model, loss, _pieces(batch, micro_elements), opt, parameters, clip, me.world)
                if me.rank == 0 and (stop.is_set() or run.is_due(checkpoint_seconds)):
                    run.save()
                if stop.is_set():
                    raise KeyboardInterrupt
            score = None if validation is None else evaluate(model, loss, validation)
            if score is not None:
                rate.after_epoch(score)
            numbers = run.close_epoch(opt.param_groups[0]["lr"], score, patience)
            if me.rank == 0:
                run.log(numbers)
        if me.rank == 0:
            run.save()
        run.use_best()
    return run.history


def _pieces(batch: Batch | None, micro_elements: int | None) -> Iterator[Batch]:
    """None where the hands are empty."""
    if batch is not None:
        sizes = batch.sets.sizes.numpy()
        yield from (batch.take(piece) for piece in pieces(np.arange(len(sizes)), sizes, micro_elements))

"""The training loop, from top to bottom."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from .batches import Batch, balanced, fingerprint, part_of, pieces
from .memory import keep_memory
from .process_group import share_start, sum_gradients, workers
from .run import History, Run
from .schedule import Rate, Schedule

Loss = Callable[[nn.Module, Batch], tuple[Tensor, Tensor | float]]


def train(
    model: nn.Module,
    loss: Loss,
    data: Batch,
    *,
    epochs: int = 50,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.01,
    schedule: Schedule = "cosine",
    warmup: float = 0.05,
    clip: float | None = 1.0,
    validation: Batch | None = None,
    patience: int | None = None,
    subset: int | None = None,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    seed: int = 0,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
    reuse_memory: bool = True,
    micro_elements: int | None = 32_000,
) -> History:
    """Trains a model on sets, in place, and returns a dict of numbers for every epoch.

    >>> from deepsets import Sets, nn
    >>> sets = Sets.from_list([torch.randn(n, 2) for n in range(1, 33)])
    >>> data = Batch(sets, y=nn.pooling("sum")(sets))
    >>> def loss(model, batch):
    ...     errors = (model(batch.sets) - batch.y).square().mean(1)
    ...     return errors.sum(), len(errors)
    >>> history = train(nn.DeepSet(nn.mlp(2, 8, 8), nn.mlp(8, 2)), loss, data, epochs=2, batch_size=8)
    >>> sorted(history[0])
    ['epoch', 'loss', 'rate', 'seconds']

    loss(model, batch): the *sum* of the losses and their number; the loop divides, over micro-batches and processes.
    batch_size: sets in a batch on average; batches are balanced by elements.
    validation: its mean loss is taken after every epoch, the best weights are kept, and `patience` epochs without a
        better one end the training.
    subset: train on random subsets of so many elements of each set, new at every step (for targets of sets only).
    checkpoint_dir: where `checkpoint.safetensors` and `log.jsonl` go. A checkpoint that is there is taken up again, and the
        final weights are those of a run that was never interrupted, bit for bit (same machine, as many threads).
    progress: a bar on the terminal (default: where there is one).
    reuse_memory: tells the C library to keep freed memory (see `keep_memory`), for the rest of the process.
    micro_elements: batches with more elements are done in pieces, whose gradients add up to the same.

    Under torchrun every process calls this with the same data; each works on its part of every batch.
    The global random generators are left as they were.
    """
    me = workers()
    if reuse_memory:
        keep_memory()
    sizes = data.sets.sizes.cpu().numpy()
    if len(sizes) == 0:
        raise ValueError("there are no sets to train on.")
    parameters = [p for p in model.parameters() if p.requires_grad]
    make = optimizer or (lambda ps: torch.optim.AdamW(ps, learning_rate, weight_decay=weight_decay, fused=True))
    opt = make(parameters)
    full_rates = [group["lr"] for group in opt.param_groups]
    rate = Rate(schedule, warmup)
    identity: dict[str, Any] = {"sets": len(sizes), "seed": seed, "epochs": epochs, "batch_size": batch_size}
    identity |= {"schedule": schedule, "warmup": warmup, "clip": clip, "patience": patience, "subset": subset}
    identity |= {"rates": full_rates, "weight_decay": weight_decay, "micro_elements": micro_elements}
    identity |= {"processes": me.world}
    if checkpoint_dir is not None:
        identity |= {"data": fingerprint(data), "validation": validation and fingerprint(validation)}
    run = Run(model, opt, rate, Path(checkpoint_dir) if checkpoint_dir is not None else None, identity)
    with torch.random.fork_rng(devices=[]), _stop_after_step() as stop:
        run.resume()
        share_start(model, me.world)
        if me.rank == 0:
            run.start_log()
        bar = _bar(progress, epochs, run.epoch, me.rank)
        while run.epoch < epochs and not run.finished:
            batches = balanced(sizes, batch_size, seed=seed, epoch=run.epoch)
            model.train()
            while run.step < len(batches):
                # What is random in a step follows from its number, so a resumed step is the step it would have been.
                _seed(hash((seed, run.epoch, run.step, me.rank)))
                done = (run.epoch + (run.step + 0.5) / len(batches)) / epochs
                for group, full in zip(opt.param_groups, full_rates, strict=True):
                    group["lr"] = full * rate(done)
                mine = pieces(part_of(batches[run.step], sizes, *me), sizes, micro_elements)
                taken = (_some(data.take(piece), subset) for piece in mine)
                take_step(run, model, loss, taken, opt, parameters, clip, me.world)
                if me.rank == 0 and (stop.is_set() or run.is_due(checkpoint_seconds)):
                    run.save()
                if stop.is_set():
                    raise KeyboardInterrupt
            score = None if validation is None else evaluate(model, loss, validation, batch_size=batch_size)
            if score is not None:
                rate.after_epoch(score)
            numbers = run.close_epoch(opt.param_groups[0]["lr"], score, patience)
            if me.rank == 0:
                run.log(numbers)
            bar.set_postfix({k: f"{v:.4g}" for k, v in numbers.items() if k in ("loss", "validation")}, refresh=False)
            bar.update()
        bar.close()
        if me.rank == 0:
            run.save()
        run.use_best()
        if stop.is_set():  # asked for in the last validation
            raise KeyboardInterrupt
    return run.history


@torch.no_grad()
def evaluate(model: nn.Module, loss: Loss, data: Batch, *, batch_size: int = 64) -> float:
    """The mean loss over data, in eval mode, in batches of neighbours; the mode is put back afterwards."""
    was = model.training
    model.eval()
    total, number = 0.0, 0.0
    for rows in torch.arange(len(data.sets)).split(batch_size):
        summed, count = loss(model, data.take(rows))
        total, number = total + float(summed), number + float(count)
    model.train(was)
    if number == 0:
        raise ValueError(f"none of the {len(data.sets)} sets to be evaluated has a label: there is no loss to take.")
    return total / number


def split_rows(count: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of sets for training and for validation: whole sets, never parts of one."""
    order = np.random.default_rng([seed, 1]).permutation(count)
    held = round(count * share)
    return np.sort(order[held:]), np.sort(order[:held])


def _seed(number: int) -> None:
    # torch.manual_seed would also note a stack trace for a GPU that may never be used: 1 ms, and kept for ever.
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


def take_step(
    run: Run,
    model: nn.Module,
    loss: Loss,
    batches: Iterable[Batch],
    opt: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    clip: float | None,
    world: int,
) -> None:
    """One step of the optimizer on the mean loss over all pieces of a batch, in all processes."""
    opt.zero_grad()
    summed, number = 0.0, 0.0  # the sum of the losses, and their number
    for batch in batches:
        total, count = loss(model, batch)
        total.backward()
        summed, number = summed + float(total.detach()), number + float(count)
    summed, number = sum_gradients(parameters, summed, number, world)
    if not math.isfinite(summed):
        run.fail("loss", summed)
    if number > 0:  # a batch without any label teaches nothing
        norm = _mean_gradients(parameters, number, clip)
        if not math.isfinite(norm):  # seen before it reaches the weights, and the checkpoint
            run.fail("length of the gradient", norm)
        opt.step()
    run.close_step(summed, number)


def _some(batch: Batch, subset: int | None) -> Batch:
    return batch if subset is None else batch._replace(sets=batch.sets.sample(subset))


def _mean_gradients(parameters: list[nn.Parameter], count: float, clip: float | None) -> float:
    """From the gradient of a sum to that of the mean, made no longer than `clip`. Gives the length it had."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = float(nn.utils.get_total_norm(grads)) / count
    shorter = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
    torch._foreach_mul_(grads, shorter / count)
    return norm


@contextmanager
def _stop_after_step() -> Iterator[threading.Event]:
    """Ctrl-C waits for the end of the step, so that the checkpoint it leaves is whole."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _bar(progress: bool | None, epochs: int, start: int, rank: int) -> Any:
    hidden = True if rank != 0 else None if progress is None else not progress  # None: hidden unless on a terminal
    return tqdm(total=epochs, initial=start, unit="epoch", disable=hidden)

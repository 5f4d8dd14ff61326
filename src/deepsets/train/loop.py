"""The training loop, from top to bottom."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..files import locked
from .batches import Batch, BatchSource, as_source, fingerprint, micro_batches
from .checkpoint import checkpoint_seed
from .process import (
    StepThreads,
    Workers,
    join_workers,
    keep_memory,
    seeded,
    share_number,
    share_weights,
    stop_after_step,
    sum_gradients,
    training_device,
)
from .run import History, Rate, Run, Schedule

Loss = Callable[[nn.Module, Batch], tuple[Tensor, Tensor | float]]


def train(
    model: nn.Module,
    loss: Loss,
    data: Batch | BatchSource | Iterable[Batch],
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
    average_weights: float = 0.0,
    autocast: torch.dtype | None = None,
    device: str | torch.device | None = None,
    seed: int | None = 0,
    checkpoint_dir: str | Path | None = None,
    checkpoint_seconds: float = 30.0,
    on_epoch: Callable[[dict[str, float]], object] | None = None,
    progress: bool | None = None,
    reuse_memory: bool = True,
    micro_elements: int | None = 32_000,
) -> History:
    """Train a model on sets, in place.

    Under torchrun every process calls this with the same arguments; each works on its part of every batch. The
    global random generators are left as they were, and so is the number of threads of torch; steps with little work
    use only one of them.

    Parameters
    ----------
    model : nn.Module
        The model.
    loss : callable
        ``loss(model, batch)`` returns the *sum* of the losses and their number; the loop divides, over micro-batches
        and processes.
    data : Batch, BatchSource or collection of Batch
        Sets in memory, which are shuffled into batches of about equal numbers of elements; or a source of batches
        such as `deepsets.distributed.Shards`; or anything with a length that yields the batches of an epoch.
    epochs : int, default=50
        Passes over the data.
    batch_size : int, default=64
        Sets per batch on average, for sets in memory.
    learning_rate, weight_decay : float
        Of AdamW, unless there is an `optimizer`.
    schedule : {"cosine", "constant", "plateau"}, default="cosine"
        How the learning rate changes; see :class:`Rate`.
    warmup : float, default=0.05
        Share of the training in which the learning rate rises.
    clip : float or None, default=1.0
        Maximum norm of the gradient.
    validation : Batch, optional
        Its mean loss is computed after every epoch, and the weights with the lowest one are kept.
    patience : int, optional
        Stop after so many epochs without a lower validation loss.
    subset : int, optional
        Train on random subsets of so many elements of each set, drawn at every step (for targets per set).
    optimizer : callable, optional
        ``optimizer(parameters)`` returns a torch optimizer.
    average_weights : float, default=0
        Keep an exponential moving average of the weights, of which this share is kept at each step (such as 0.998);
        the model ends with the average. 0: no average.
    autocast : torch.dtype, optional
        Such as ``torch.bfloat16``: compute the training loss in mixed precision. Weights stay as they are. Processors
        without bfloat16 (`torch.cpu.get_capabilities`) emulate it, tens of times slower than float32.
    device : str or torch.device, optional
        Where to train: model and batches are moved there. "auto": CUDA if there is one, else the CPU. By default
        where the weights are.
    seed : int or None, default=0
        Seed of the order of batches and of all random numbers of the steps. None: a random seed, which is stored
        with the checkpoint.
    checkpoint_dir : str or Path, optional
        Folder for checkpoints and `log.jsonl`. A checkpoint in it is resumed, and the final weights are those of a
        run that was never interrupted, bit for bit (same machine, as many threads).
    checkpoint_seconds : float, default=30
        Time between checkpoints.
    on_epoch : callable, optional
        Called after every epoch with its numbers (in the first process); if it returns True, training stops.
    progress : bool, optional
        Whether to show a progress bar; by default only on a terminal.
    reuse_memory : bool, default=True
        Let the C library keep freed memory for the rest of the process; see :func:`keep_memory`.
    micro_elements : int or None, default=32_000
        Larger batches are computed in pieces of about so many elements, whose gradients add up to the same.

    Returns
    -------
    list of dict
        Numbers of every epoch: epoch, loss, rate, seconds, and validation where there is one.

    Raises
    ------
    TrainingError
        If the loss or the gradient is not finite.
    CheckpointError
        If the checkpoint is damaged, or belongs to another training.
    FileInUseError
        If another training writes to `checkpoint_dir`.

    Examples
    --------
    >>> from deepsets import Sets, nn
    >>> sets = Sets.from_list([torch.randn(n, 2) for n in range(1, 33)])
    >>> data = Batch(sets, y=nn.pooling("sum")(sets))
    >>> def loss(model, batch):
    ...     errors = (model(batch.sets) - batch.y).square().mean(1)
    ...     return errors.sum(), len(errors)
    >>> history = train(nn.DeepSet(nn.mlp(2, 8, 8), nn.mlp(8, 2)), loss, data, epochs=2, batch_size=8)
    >>> sorted(history[0])
    ['epoch', 'loss', 'rate', 'seconds']
    """
    _check(epochs, batch_size, average_weights)
    if reuse_memory:
        keep_memory()
    where = training_device(device, model)
    model.to(where)
    me = join_workers(where)
    source = as_source(data, batch_size)
    parameters = [p for p in model.parameters() if p.requires_grad]
    make = optimizer or (lambda ps: torch.optim.AdamW(ps, learning_rate, weight_decay=weight_decay, fused=True))
    opt = make(parameters)
    full_rates = [group["lr"] for group in opt.param_groups]
    rate = Rate(schedule, warmup)
    mixed_precision = partial(torch.autocast, where.type, autocast) if autocast else contextlib.nullcontext
    folder = None if checkpoint_dir is None else Path(checkpoint_dir)
    with _only_user(folder, me.rank), stop_after_step() as stop, StepThreads(model) as threads:
        seed = _seed(seed, folder, me, where)
        identity: dict[str, Any] = {}
        if folder is not None:
            identity = {"seed": seed, "epochs": epochs, "schedule": schedule, "warmup": warmup, "clip": clip}
            identity |= {"patience": patience, "subset": subset, "rates": full_rates, "weight_decay": weight_decay}
            identity |= {"average_weights": average_weights, "autocast": autocast and str(autocast)}
            identity |= {"micro_elements": micro_elements, "processes": me.world, **source.settings}
            identity |= {"validation": validation and fingerprint(validation)}
        run = Run(model, opt, rate, average_weights, folder, identity)
        run.resume()
        share_weights(model, me)
        if me.rank == 0:
            run.start_log()
        bar = _bar(progress, epochs, run.epoch, me.rank)
        while run.epoch < epochs and not run.finished:
            steps, batches = source.epoch(run.epoch, seed=seed, start=run.step, rank=me.rank, world=me.world)
            model.train()
            while run.step < steps:
                done = (run.epoch + (run.step + 0.5) / steps) / epochs
                for group, full in zip(opt.param_groups, full_rates, strict=True):
                    group["lr"] = full * rate(done)
                # What is random in a step follows from its number, so a resumed step is the same step.
                with seeded(hash((seed, run.epoch, run.step, me.rank)), where), threads.of_step() as use_threads:
                    opt.zero_grad()
                    loss_sum, loss_count = 0.0, 0.0
                    batch = next(batches)
                    if batch is not None:
                        use_threads(min(batch.sets.total, micro_elements or math.inf))
                    for piece in [] if batch is None else micro_batches(batch, micro_elements):
                        seen = piece if subset is None else piece._replace(sets=piece.sets.sample(subset))
                        with mixed_precision():
                            total, count = loss(model, seen.to(where))
                        total.backward()
                        loss_sum, loss_count = loss_sum + float(total.detach()), loss_count + float(count)
                    totals = (loss_sum, loss_count, float(stop.is_set()))
                    loss_sum, loss_count, stops = sum_gradients(parameters, totals, me)
                    if not math.isfinite(loss_sum):
                        run.fail("loss", loss_sum)
                    if loss_count > 0:  # a batch without any label changes nothing
                        norm = _mean_gradients(parameters, loss_count, clip)
                        if not math.isfinite(norm):  # before it reaches the weights and the checkpoint
                            run.fail("norm of the gradient", norm)
                        opt.step()
                run.close_step(loss_sum, loss_count)
                stopping = stops > 0 or (me.world == 1 and stop.is_set())
                if me.rank == 0 and (stopping or run.is_due(checkpoint_seconds)):
                    run.save()
                if stopping:
                    raise KeyboardInterrupt
            score = None
            if validation is not None:
                with run.averaged_weights(), seeded(hash((seed, run.epoch)), where), threads.of_step() as use_threads:
                    use_threads(validation.sets.total / max(1.0, len(validation.sets) / batch_size))
                    score = evaluate(model, loss, validation, batch_size=batch_size)
                rate.after_epoch(score)
            numbers = run.close_epoch(opt.param_groups[0]["lr"], score, patience)
            if me.rank == 0:
                run.log(numbers)
            if on_epoch is not None:
                asked = on_epoch(dict(numbers)) is True if me.rank == 0 else False
                run.finished |= bool(share_number(int(asked), me, where))
            bar.set_postfix({k: f"{v:.4g}" for k, v in numbers.items() if k in ("loss", "validation")}, refresh=False)
            bar.update()
        bar.close()
        if me.rank == 0:
            run.save()
        run.use_final_weights()
        if stop.is_set():  # during the last validation
            raise KeyboardInterrupt
    return run.history


@torch.no_grad()
def evaluate(model: nn.Module, loss: Loss, data: Batch, *, batch_size: int = 64) -> float:
    """Mean loss over data, in eval mode; the mode of the model is restored afterwards.

    Parameters
    ----------
    model : nn.Module
        The model.
    loss : callable
        See :func:`train`.
    data : Batch
        Sets with labels. They are moved to the device of the weights.
    batch_size : int, default=64
        Sets per batch.
    """
    was, where = model.training, training_device(None, model)
    model.eval()
    total, number = 0.0, 0.0
    for rows in torch.arange(len(data.sets)).split(batch_size):
        loss_sum, count = loss(model, data.take(rows).to(where))
        total, number = total + float(loss_sum), number + float(count)
    model.train(was)
    if number == 0:
        raise ValueError(f"none of the {len(data.sets)} sets to be evaluated has a label: there is no loss to compute.")
    return total / number


def _check(epochs: int, batch_size: int, average_weights: float) -> None:
    for name, value, least in (("epochs", epochs, 0), ("batch_size", batch_size, 1)):
        if value < least:
            raise ValueError(f"{name} must be {least} or more; found {value}.")
    if not 0 <= average_weights < 1:
        raise ValueError(f"average_weights is a share that is kept at each step, in [0, 1); found {average_weights}.")


def _only_user(folder: Path | None, rank: int) -> contextlib.AbstractContextManager[None]:
    """Lock the folder of checkpoints against a second training."""
    if folder is None or rank != 0:
        return contextlib.nullcontext()
    folder.mkdir(parents=True, exist_ok=True)
    return locked(folder)


def _seed(seed: int | None, folder: Path | None, me: Workers, device: torch.device) -> int:
    """The seed; without one that of the checkpoint, or a random one, the same in all processes."""
    if seed is not None:
        return seed
    stored = None if folder is None or me.rank != 0 else checkpoint_seed(folder)
    drawn = int(np.random.SeedSequence().generate_state(1)[0]) if stored is None else stored
    return share_number(drawn, me, device)


def _mean_gradients(parameters: list[nn.Parameter], count: float, clip: float | None) -> float:
    """Turn gradients of a sum into those of the mean, with a norm of at most `clip`; return the norm before."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = float(nn.utils.get_total_norm(grads)) / count
    shorter = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
    torch._foreach_mul_(grads, shorter / count)
    return norm


def _bar(progress: bool | None, epochs: int, start: int, rank: int) -> Any:
    hidden = True if rank != 0 else None if progress is None else not progress  # None: hidden unless on a terminal
    return tqdm(total=epochs, initial=start, unit="epoch", disable=hidden)

"""Training on data made at every step, and Muon: what the experiments on images and point clouds share."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deepsets.train import Batch, Loss, train

Make = Callable[[Tensor, float], Batch]


class StepData:
    """Batches made from the next rows of the data at every step: a source for `deepsets.train.train`.

    Parameters
    ----------
    make : callable
        ``make(rows, done)`` returns a batch made from `rows`; `done`, from 0 to 1, is the share of the training that
        is over. Random numbers that it and the model take from torch follow from seed and step.
    count : int
        Rows of the data.
    epochs, pool : int
        Epochs of the training, and rows per step. Every epoch has its own order; the last ``count % pool`` rows of it
        are left out.
    settings : mapping
        What a resumed training must have in common with its checkpoint.
    """

    def __init__(self, make: Make, count: int, *, epochs: int, pool: int, settings: Mapping[str, Any]) -> None:
        if count < pool:
            raise ValueError(f"a step takes {pool} rows of the data, found {count} in all.")
        self.make, self.count, self.epochs, self.pool = make, count, epochs, pool
        self.settings = {"count": count, "pool": pool, **settings}

    def epoch(self, epoch: int, *, seed: int, start: int, rank: int, world: int) -> tuple[int, Iterator[Batch]]:
        """Number of steps of an epoch, and its batches from step `start` on."""
        steps = self.count // self.pool
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(hash((seed, epoch))))

        def batches() -> Iterator[Batch]:
            for step in range(start, steps):
                number = epoch * steps + step
                # The stored results follow from this seed. The loop restores the generator after the step.
                torch.default_generator.manual_seed(hash((seed, number)))
                rows = order[step * self.pool : (step + 1) * self.pool]
                yield self.make(rows, (number + 0.5) / (self.epochs * steps))

        return steps, batches()


def train_by_steps(
    model: nn.Module,
    loss: Loss,
    make: Make,
    count: int,
    *,
    epochs: int,
    rate: float,
    weight_decay: float = 0.0,
    pool: int = 128,
    average: float = 0.998,
    bfloat16: bool = False,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    seed: int,
    folder: Path,
    progress: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Train a model in place on what `make` makes of the next `pool` of `count` rows at every step.

    The rate rises over a tenth of the training and falls as a cosine to 0. Gradients are clipped to a norm of 1.

    Parameters
    ----------
    model, loss, make, count, epochs, pool, settings, seed, folder, progress
        See `StepData` and `deepsets.train.train`.
    rate, weight_decay : float
        Learning rate and weight decay: matrices and kernels decay, biases and scales do not.
    optimizer : callable, optional
        ``optimizer(groups, rate)`` returns a torch optimizer; AdamW by default. `MuonAdamW` computes its steps in
        bfloat16, where the processor has it.
    average : float
        Share of the moving average of the weights that is kept at each step; 0 keeps the last weights.
    bfloat16 : bool
        Compute matrix products and convolutions in bfloat16, where the processor has it; elsewhere in float32.
    """
    low = bfloat16 and supports_bfloat16()

    def clip(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)

    def make_optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        options = {"bfloat16": supports_bfloat16()} if optimizer is MuonAdamW else {}
        made = (optimizer or partial(torch.optim.AdamW, fused=True))(groups, rate, **options)
        # Clipped in the precision of the weights, unlike in the loop: the stored results were computed so.
        made.register_step_pre_hook(clip)
        return made

    chosen = {"rate": rate, "weight_decay": weight_decay, **(settings or {})}
    data = StepData(make, count, epochs=epochs, pool=pool, settings=chosen)
    train(
        model, loss, data,
        epochs=epochs, warmup=0.1, clip=None, micro_elements=None, optimizer=make_optimizer, average_weights=average,
        autocast=torch.bfloat16 if low else None,
        seed=seed, checkpoint_dir=folder, progress=progress,
    )  # fmt: skip


@cache
def supports_bfloat16() -> bool:
    """Return whether the processor multiplies in bfloat16, and torch can make it do so.

    Other processors emulate it, 30 to 80 times slower than float32 (AVX2). Whether torch can is tried in a process of
    its own: on some virtual machines whose processor has AMX, it fails with "could not create a primitive", or the
    process ends with an illegal instruction.
    """
    if not torch.cpu._is_avx512_bf16_supported():
        return False
    code = "import torch; a = torch.ones(64, 64).bfloat16(); a @ a; torch.conv2d(a[None, None], a[None, None, :3, :3])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


class MuonAdamW(torch.optim.AdamW):
    """Muon (Jordan 2024) for kernels and for matrices whose sides are both 48 or more, AdamW for other parameters.

    >>> layers = [torch.nn.Linear(3, 256), torch.nn.Linear(256, 256)]
    >>> optimizer = MuonAdamW([{"params": [p for layer in layers for p in layer.parameters()]}], 1e-3)
    >>> [[tuple(p.shape) for p in group["params"]] for group in optimizer.param_groups]
    [[(256, 256)], [(256, 3), (256,), (256,)]]

    Muon takes steps of equal length in all directions of a matrix, here as long as those of AdamW at this rate; a
    kernel is a matrix with one row per channel that it makes.

    Parameters
    ----------
    groups : iterable of dict
        Groups of parameters, with a "weight_decay" or without.
    rate : float
        Learning rate.
    bfloat16 : bool
        Whether to compute the steps of Muon in bfloat16, as `torch.optim.Muon` always does; some processors crash.
    """

    SIDE = 48  # with less, a side is coordinates or classes (3, 27, 40), whose directions differ in worth

    def __init__(self, groups: Iterable[dict[str, Any]], rate: float, *, bfloat16: bool = False) -> None:
        groups, self.bfloat16 = list(groups), bfloat16
        split = [
            group | {"params": chosen, "muon": muon}
            for muon in (True, False)
            for group in groups
            if (chosen := [p for p in group["params"] if self._is_muon(p) == muon])
        ]
        super().__init__(split, lr=rate, weight_decay=0.0, fused=True)

    def _is_muon(self, p: Tensor) -> bool:
        return p.ndim > 2 or (p.ndim == 2 and min(p.shape) >= self.SIDE)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move kernels and large matrices by their orthogonalised momentum, all other parameters by AdamW."""
        for group in self.param_groups:
            for p in group["params"] if group["muon"] else ():
                if p.grad is not None:
                    if not (state := self.state[p]):
                        state |= {"step": torch.zeros(()), "buffer": torch.zeros_like(p)}  # AdamW asks for a step
                    state["buffer"].lerp_(p.grad, 1 - 0.95)
                    matrix = p.grad.lerp(state["buffer"], 0.95).flatten(1)
                    update = orthogonalise(matrix.bfloat16() if self.bfloat16 else matrix)
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update.view_as(p), alpha=-0.2 * group["lr"] * max(update.shape) ** 0.5)
                    p.grad = None  # AdamW leaves it alone
        super().step()


def orthogonalise(matrix: Tensor) -> Tensor:
    """Bring all singular values of a matrix to about 1, by five steps of a Newton-Schulz iteration.

    >>> values = torch.linalg.svdvals(orthogonalise(torch.diag(torch.tensor([9.0, 1.0, 0.3]))))
    >>> bool((values > 0.6).all() and (values < 1.3).all())
    True
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x

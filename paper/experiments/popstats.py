"""Entropy and mutual information of Gaussians, learned from samples (section 4.1.1, figure 2)."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch import nn as tnn

from deepsets.estimators import SupportDistributionMachine
from deepsets.sets import Sets
from deepsets.train import Batch, train

from ..baselines.renyi import renyi_regression
from ..datasets.popstats import TASKS, Task, plug_in, population, posterior_mean
from ..experiment import Experiment, Measure, Outcome, Trial, new_figure
from ..report.scoreboard import NOT_TESTED, Claim, Headline, Scores, Verdict, beats
from ..runner import Record
from .popstats_methods import Network, learn_from_moments, whitening

LEARNED = {
    "SDM": "tab:orange",
    "SDM, Rényi": "tab:red",
    "Deep Sets": "tab:blue",
    "Deep Sets, sum": "tab:cyan",
    "Ours": "tab:purple",
}
YARDSTICKS = {"Gaussian plug-in": "tab:green", "Bayes": "0.4"}
COLOURS = LEARNED | YARDSTICKS


def found_against_true(records: Sequence[Record]) -> Any:
    """Draw one panel per task: answers of the first seed for 200 test sets, at N = 1024 (quick form: the largest N)."""

    def draw(panel: Any, parts: list[tuple[Record, int, dict[str, Any]]]) -> None:
        for record, _, part in parts:
            if record.method in LEARNED and record.seed == records[0].seed and "y" in part["extra"]:
                y, found = part["extra"]["y"], part["extra"]["found"]
                panel.plot(y, found, ".", ms=3, alpha=0.6, color=COLOURS[record.method], label=record.method)
        if panel.lines:
            panel.axline((y[0], y[0]), slope=1, color="0.5", lw=0.8)
        panel.set(xlabel="true", ylabel="found")

    return _figure(records, draw)


def error_against_sets(records: Sequence[Record]) -> Any:
    """Draw one panel per task, both axes logarithmic: the mean over seeds for every N."""

    def draw(panel: Any, parts: list[tuple[Record, int, dict[str, Any]]]) -> None:
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for record, n, part in parts:
            found[record.method][n] += [measure["value"] for measure in part["measures"]]
        for method, errors in found.items():
            points = sorted((n, np.mean(values)) for n, values in errors.items() if values)
            style = "--" if method in YARDSTICKS else "o-"
            panel.plot(*zip(*points, strict=True), style, ms=3.5, color=COLOURS.get(method), label=method)
        panel.set(xlabel="sets N", ylabel="mean squared error", yscale="log")
        panel.set_xscale("log", base=2)

    return _figure(records, draw)


def _figure(records: Sequence[Record], draw: Callable[[Any, list[tuple[Record, int, dict[str, Any]]]], None]) -> Any:
    """Draw one panel per task from the records, numbers of sets N and parts of that task."""
    tasks: dict[str, list[tuple[Record, int, dict[str, Any]]]] = defaultdict(list)
    for record in records:
        for name, part in record.parts.items():
            task, n = name.split(" N=")
            tasks[task].append((record, int(n), part))
    figure = new_figure(2.6 * len(tasks), 3)
    for panel, (task, parts) in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks.items(), strict=True):
        draw(panel, parts)
        panel.set_title(task)
    found = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found, loc="outside lower center", ncols=9, fontsize="x-small")
    return figure


STEPS = {2**10: 2500, 2**12: 3500, 2**7: 800, 2**8: 1000, 2**9: 1500, 2**11: 3000, 2**13: 5000, 2**14: 6000}  # N: steps
SHOWN = 2**10  # the paper's scatter plots
QUICK, QUICK_STEPS = (2**7, 2**9), 400
TEST_SETS = {True: 500, False: 200}  # full, quick

Answer = Callable[[Trial, Task, int, Sets], tuple[Tensor, dict[str, Any]] | None]


def method(answer: Answer) -> Callable[[Trial, str], Outcome]:
    """Return a method that answers for the test sets, the same for every N, and is scored by squared error."""

    def run(trial: Trial, part: str) -> Outcome:
        name, n = part.split(" N=")
        task, count = cast(Task, name), int(n)
        task_seed = int(trial.given.get("task_seed", 1))
        sets, y = population(task, TEST_SETS[trial.full], 2000 + trial.seed, task_seed=task_seed)
        found = answer(trial, task, count, sets)
        if found is None:
            return Outcome([])
        values, extra = found
        if count == (SHOWN if trial.full else QUICK[-1]):
            extra |= {"y": y[:200].tolist(), "found": values[:200].tolist()}
        return Outcome([Measure(part, "mse", float((values - y).square().mean()))], extra)

    return run


def examples(trial: Trial, task: Task, count: int) -> tuple[Sets, Tensor]:
    """Return the sets to learn from, the same for every method; `--set task_seed=2` draws another Σ or v."""
    return population(task, count, 1000 + trial.seed, task_seed=trial.settings["task_seed"])


def loss(model: tnn.Module, batch: Batch) -> tuple[Tensor, int]:
    """Squared error."""
    error = model(batch.sets) - batch.y
    return error.square().sum(), len(error)


def deep_sets(trial: Trial, task: Task, count: int, asked: Sets, pool: str = "mean") -> tuple[Tensor, dict[str, Any]]:
    """Train on random subsets of 64 at a constant rate; in the last fifth on 256, while the rate falls to 0.

    With sum pooling on all members: sums of subsets are not those of whole sets.
    """
    chosen = trial.choose(steps=STEPS[count] if trial.full else QUICK_STEPS, rate=2e-3, pool=pool, task_seed=1)
    sets, y = examples(trial, task, count)
    whiten, mean, deviation = whitening(sets), y.mean(), y.std()
    data, white = Batch(whiten(sets), (y - mean) / deviation), whiten(asked)
    model = trial.build(lambda: Network(data.sets, pool=chosen.pool))
    batches = -(-count // 32)
    early, late = -(-chosen.steps * 4 // 5 // batches), -(-chosen.steps // 5 // batches)
    fit = partial(
        train, model, loss, data, batch_size=32, learning_rate=chosen.rate, weight_decay=0.05, seed=trial.seed
    )
    few, more = (None, None) if chosen.pool == "sum" else (64, 256)
    fit(epochs=early, subset=few, schedule="constant", checkpoint_dir=trial.folder / "64", progress=trial.progress)
    fit(epochs=late, subset=more, warmup=0.0, checkpoint_dir=trial.folder / "256", progress=trial.progress)
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(white[rows]) for rows in torch.arange(len(asked)).split(64)])
    return found * deviation + mean, {"steps": (early + late) * batches}


def sdm(trial: Trial, task: Task, count: int, asked: Sets) -> tuple[Tensor, dict[str, Any]]:
    """Fit the machine with its whole grid, on members standardised or whitened, as cross-validation prefers."""
    search = trial.choose(search=1024 if trial.full else 128, task_seed=1).search
    sets, y = examples(trial, task, count)
    views: dict[str, Callable[[Sets], Sets]] = {"standard": lambda given: given, "white": whitening(sets)}
    make = partial(SupportDistributionMachine, search=search, random_state=trial.seed)
    few = {name: make().fit(view(sets[:search]), y[:search]) for name, view in views.items()}
    name = min(few, key=lambda n: few[n].cv_error_)
    model = few[name] if count <= search else make().fit(views[name](sets), y)
    found = torch.from_numpy(model.predict(views[name](asked))).float()
    return found, {"view": name, "choice": list(model.choice_), "cv": model.cv_error_}


def renyi(trial: Trial, task: Task, count: int, asked: Sets) -> tuple[Tensor, dict[str, Any]] | None:
    """Fit kernel regression on divergences, to at most 256 sets: distances of all members are many."""
    members = trial.choose(members=100 if trial.full else 50, task_seed=1).members
    return None if count > 256 else renyi_regression(*examples(trial, task, count), asked, members)


def ours(trial: Trial, task: Task, count: int, asked: Sets) -> tuple[Tensor, dict[str, Any]]:
    """Regress on the logarithm of the covariance, from second moments."""
    trial.choose(task_seed=1)
    found, kernel = learn_from_moments(*examples(trial, task, count), asked)
    return found, {"kernel": kernel}


def gaussian(trial: Trial, task: Task, count: int, asked: Sets) -> tuple[Tensor, dict[str, Any]]:
    """Put the sample covariance into the formula: learns nothing, knows that the samples are Gaussian."""
    trial.choose(task_seed=1)
    return plug_in(task, asked), {}


def bayes(trial: Trial, task: Task, count: int, asked: Sets) -> tuple[Tensor, dict[str, Any]] | None:
    """Return the posterior mean: learns nothing, knows the task."""
    task_seed = trial.choose(task_seed=1).task_seed
    return None if task == "random-d32" else (posterior_mean(task, asked, task_seed=task_seed), {})


def parts(full: bool) -> list[str]:
    """Return tasks and numbers of sets, those of the scatter plots first."""
    if not full:
        return [f"{task} N={n}" for task in ("rotation", "correlation-d16") for n in QUICK]
    return [f"{task} N={n}" for n in STEPS for task in TASKS]


SMALL = [(f"{task} N=128", "mse") for task in TASKS]


def _high_dimension(scores: Scores) -> Verdict:
    """Compare the errors at the largest N of each task in high dimension, on the data of the same seeds."""
    found = []
    for task in TASKS[1:]:
        for n in sorted(STEPS, reverse=True):
            pair = scores.paired("Deep Sets", "SDM", f"{task} N={n}", "mse")
            if all(map(math.isfinite, pair)):
                found.append((pair[0] / pair[1], f"{task} N={n}: {pair[0] / pair[1]:.2f} times the error of SDM"))
                break
    if not found:
        return NOT_TESTED
    return Verdict(all(ratio < 1 for ratio, _ in found), "; ".join(text for _, text in found))


EXPERIMENT = Experiment(
    name="popstats",
    title="Entropy and mutual information of Gaussians",
    section="4.1.1",
    methods={
        "SDM": method(sdm),
        "SDM, Rényi": method(renyi),
        "Deep Sets": method(deep_sets),
        "Deep Sets, sum": method(partial(deep_sets, pool="sum")),
        "Ours": method(ours),
        "Gaussian plug-in": method(gaussian),
        "Bayes": method(bayes),
    },
    parts=parts,
    figures={
        "Found against true, N = 1024": found_against_true,
        "Squared error against the number of sets": error_against_sets,
    },
    headlines=[
        Headline(f"{task}, N = {n}, squared error", f"{task} N={n}", "mse") for task in TASKS for n in (1024, 8192)
    ],
    claims=[
        Claim("SDM has lower error than Deep Sets for small N", beats("SDM", ["Deep Sets"], SMALL)),
        Claim("in high dimension Deep Sets has much lower error than SDM at large N", _high_dimension),
    ],
)

"""Heads of a set estimator: linear model, forest and boosting on summaries, and deep networks; their blend."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..nn import DeepSet, Pooling, leave_one_out
from ..nn.pooling import Parts
from ..sets import Sets
from ..train.checkpoint import load_weights
from .blend import Folds, blend_weights, fit_temperature
from .deep import Plan, build
from .encoder import ColumnEncoder
from .layout import Members
from .linear import (
    MOST_KERNEL_NUMBERS,
    MOST_KERNEL_SETS,
    KernelHead,
    LinearHead,
    bag_matrix,
    choose_blocks,
    fit_kernel,
    fit_linear,
)
from .network import SetNetworks
from .state import as_tensors, bounded, under
from .summaries import Summaries, SummaryPooling
from .task import Kind, Task, link, sharpen
from .trees import MOST_BOOSTED, TreeEnsemble, fit_boosting, fit_forest

HEADS = ("linear", "kernel", "forest", "boosting", "deep")

# Sets of tokens from large vocabularies: networks were far behind the linear model on TREC (held-out log loss .92
# against .53) and took most of the time.
MOST_DEEP_TOKENS = 300


class Encoded(NamedTuple):
    """Members as the heads see them: codes of categories, encoded set-level values, and the input of the networks."""

    members: Members
    codes: np.ndarray
    context: np.ndarray | None
    sets: Sets

    def network_context(self) -> Tensor | None:
        """(B, Z) float32, without gaps."""
        return None if self.context is None else network_context(self.context)


def network_context(z: np.ndarray) -> Tensor:
    """Set-level values for networks: a missing value is 0, the mean; clipped at ±3 deviations."""
    return torch.from_numpy(np.clip(np.nan_to_num(z, nan=0.0, neginf=0.0), -3, 3)).float()


class BlendPooling(Pooling):
    """Pooling of summaries and of the networks' members; parts are named ``summary.…`` and ``deep.…``."""

    def __init__(self, networks: SetNetworks | None) -> None:
        super().__init__()
        self.summary = SummaryPooling()
        self.networks = networks

    def merge(self, a: Parts, b: Parts) -> Parts:
        """State of the union, set by set."""
        return self._both("merge", a, b)

    def remove(self, a: Parts, b: Parts) -> Parts:
        """Refused where minima or maxima are part of the state."""
        return self._both("remove", a, b)

    def _both(self, method: str, a: Parts, b: Parts) -> Parts:
        found = getattr(self.summary, method)(under(a, "summary"), under(b, "summary"))
        out = {f"summary.{name}": part for name, part in found.items()}
        if self.networks is not None:
            deep = self.networks.pool_apply(method, under(a, "deep"), under(b, "deep"))
            out |= {f"deep.{name}": part for name, part in deep.items()}
        return out

    def finish(self, parts: Parts) -> Tensor:
        """Pooled vectors."""
        pooled = [self.summary.finish(under(parts, "summary"))]
        if self.networks is not None:
            pooled.append(self.networks.pool_apply("finish", under(parts, "deep")))
        return torch.cat(pooled, dim=1)


class Heads:
    """Fitted heads and the weights of their blend."""

    def __init__(self, kind: Kind, outputs: int, summaries: Summaries) -> None:
        self.kind, self.outputs, self.summaries = kind, outputs, summaries
        self.linear: LinearHead | None = None
        self.kernel: KernelHead | None = None
        self.forest: TreeEnsemble | None = None
        self.boosting: TreeEnsemble | None = None
        self.deep: SetNetworks | None = None
        self.weights: dict[str, float] = {}  # share of each head in the blend
        self.temperatures: dict[str, float] = {}  # of each head before, and of the "blend" after blending
        self.linear_tables: dict[int, Tensor] = {}

    # ------------------------------------------------------------------------------------------ states, answers

    @torch.no_grad()
    def state(self, encoded: Encoded, *, mergeable: bool = True) -> Parts:
        """State of each set, float64."""
        summary = self.summaries.state(encoded.members, encoded.codes, encoded.context)
        parts = {f"summary.{name}": part for name, part in summary.items()}
        if self.deep is not None:
            members = self.deep.members(encoded.sets, encoded.network_context())
            members = members.with_values(members.values.double())
            deep = self.deep.double_pooling()
            found = deep.pool_state(members) if mergeable else {"pooled": deep.pool_members(members)}
            parts |= {f"deep.{name}": part for name, part in found.items()}
        return parts

    @torch.no_grad()
    def answer(self, parts: Parts) -> np.ndarray:
        """(B, outputs): probabilities, or values in units of the target's deviation."""
        return self.blend(self.raw_answers(parts))

    def blend(self, answers: dict[str, np.ndarray]) -> np.ndarray:
        """Weighted mean of the calibrated answers of the heads, calibrated again."""
        calibrated = (w * self._calibrated(answers[name], name) for name, w in self.weights.items())
        return self._calibrated(sum(calibrated), "blend")  # type: ignore[arg-type]

    def _calibrated(self, answers: np.ndarray, name: str) -> np.ndarray:
        return sharpen(answers, self.temperatures.get(name, 1.0), self.kind)

    @torch.no_grad()
    def raw_answers(self, parts: Parts) -> dict[str, np.ndarray]:
        """Answers of each head."""
        summary, out = under(parts, "summary"), {}
        if any(head is not None for head in (self.linear, self.kernel, self.forest, self.boosting)):
            features = self.summaries.features(summary)
            if self.linear is not None:
                out["linear"] = link(self.linear(features, self.summaries.bags(summary)), self.kind)
            if self.kernel is not None:
                out["kernel"] = link(self.kernel(features), self.kind)
            rounded = features.astype(np.float32).astype(np.float64)
            if self.forest is not None:
                out["forest"] = self.forest(rounded)
            if self.boosting is not None:
                out["boosting"] = link(self.boosting(rounded), self.kind)
        if self.deep is not None:
            deep = under(parts, "deep")
            pooled = deep["pooled"] if "pooled" in deep else self.deep.double_pooling().pool_apply("finish", deep)
            z = network_context(summary["z"].numpy()) if summary["z"].shape[1] else None
            each = self.deep.answer(pooled.float(), summary["count"], z).double().numpy()
            out["deep"] = link(each, self.kind).mean(0)
        return out

    @torch.no_grad()
    def embed(self, encoded: Encoded) -> np.ndarray:
        """(B, embedding): summaries, and the pooled vector of the first deep network where there is one."""
        state = self.state(encoded, mergeable=False)
        pieces = [np.nan_to_num(self.summaries.features(under(state, "summary")))]
        if self.deep is not None:
            pooled, deep = state["deep.pooled"], self.deep
            first = (
                pooled.view(len(pooled), -1, deep.networks, deep.width)[:, :, 0]
                if deep.channelwise
                else pooled[:, : deep.pooled]
            )
            pieces.append(first.reshape(len(pooled), -1).numpy())
        return np.concatenate(pieces, axis=1)

    def embedding_names(self) -> list[str]:
        """Names of the columns of `embed`."""
        return self.summaries.names() + [f"deep{i}" for i in range(0 if self.deep is None else self.deep.pooled)]

    @torch.no_grad()
    def without_each(self, encoded: Encoded, parts: Parts) -> np.ndarray:
        """(N, outputs) the answer for every set without each of its members."""
        summary = self.summaries.without_each(under(parts, "summary"), encoded.members, encoded.codes, encoded.context)
        rest = {f"summary.{name}": part for name, part in summary.items()}
        if self.deep is not None:
            members = self.deep.members(encoded.sets, encoded.network_context())
            members = members.with_values(members.values.double())
            same, pairs = torch.nn.Identity(), zip(self.deep.pool, self.deep.pooled_sets(members), strict=True)
            pooled = [leave_one_out(DeepSet(same, same, pool=pool), each) for pool, each in pairs]  # type: ignore[arg-type]
            rest["deep.pooled"] = torch.cat(pooled, dim=1)
        return self.answer(rest)

    # ------------------------------------------------------------------------------------------------- fitting

    def fit_summaries(
        self, names: list[str], encoded: Encoded, task: Task, weight: np.ndarray | None, folds: Folds, seed: int
    ) -> dict[str, np.ndarray]:
        """Fit the heads on summaries; their held-out answers, NaN where a row was not held out."""
        summaries, members = self.summaries, encoded.members
        summaries.blocks = summaries.possible_blocks()
        parts = summaries.state(members, encoded.codes, encoded.context)
        usual, blocks = summaries.usual_features(parts), summaries.block_features(parts)
        summaries.blocks = choose_blocks(usual, blocks, task, weight, folds)
        features = np.concatenate([usual, *(blocks[name] for name in summaries.blocks)], axis=1)
        held: dict[str, np.ndarray] = {}
        if "linear" in names:
            columns, words = summaries.bag_columns(), summaries.encoder.vocabularies
            bags = [
                bag_matrix(encoded.codes[:, j], members.set_ids, len(members), len(words[j]), members.weights)
                for j in columns
            ]
            self.linear, tables, raw = fit_linear(features, bags, task, weight, folds)
            held["linear"] = link(raw, self.kind)
            self.linear_tables = dict(zip(columns, map(torch.from_numpy, tables), strict=True))
        if "kernel" in names and (features.size <= MOST_KERNEL_NUMBERS or len(names) == 1):
            self.kernel, raw = fit_kernel(features, task, weight, folds)
            held["kernel"] = link(raw, self.kind)
        rounded = features.astype(np.float32).astype(np.float64)
        if "forest" in names:
            self.forest, held["forest"] = fit_forest(rounded, task, weight, seed)
        if "boosting" in names:
            iterations = boosting_iterations(len(rounded), rounded.shape[1], self.outputs, task.kind, len(folds))
            if iterations or len(names) == 1:
                with threadpool_limits(1, "openmp"):
                    self.boosting, raw = fit_boosting(rounded, task, weight, folds, seed, max(iterations, 40))
                held["boosting"] = link(raw, self.kind)
        return held

    @torch.no_grad()
    def deep_held_out(self, encoded: Encoded, folds: Folds) -> np.ndarray:
        """Answers of each network for the rows it was not trained on; NaN for rows of no fold."""
        assert self.deep is not None
        out = np.full((len(encoded.members), self.outputs), np.nan)
        z = encoded.network_context()
        for k, (_, held) in enumerate(folds[: self.deep.networks]):
            for rows in np.array_split(held, max(1, int(encoded.members.sizes[held].sum()) // 100_000)):
                some = torch.from_numpy(rows)
                answers = self.deep(encoded.sets[some], None if z is None else z[some])[k]
                out[rows] = link(answers.double().numpy(), self.kind)
        return out

    def choose(self, held: dict[str, np.ndarray], task: Task, weight: np.ndarray | None) -> np.ndarray | None:
        """Weigh the heads, drop those without weight, and calibrate; gives the blended held-out answers."""
        rows = np.all([np.isfinite(answers).all(1) for answers in held.values()], axis=0)
        if not rows.any():
            self.weights = dict.fromkeys(held, 1 / len(held))
            return None
        known, weight = task.take(np.flatnonzero(rows)), None if weight is None else weight[rows]
        found = {name: answers[rows] for name, answers in held.items()}
        self.temperatures = {name: fit_temperature(each, known) for name, each in found.items()}
        each = [self._calibrated(answers, name) for name, answers in found.items()]
        chosen = zip(held, blend_weights(each, known, weight), strict=True)
        self.weights = {name: float(w) for name, w in chosen if w > 0}
        for name in set(HEADS) - set(self.weights):
            setattr(self, name, None)
        several = len(self.weights) > 1
        self.temperatures = {name: self.temperatures[name] for name in self.weights if several}
        self.summaries.tables = {} if self.linear is None else self.linear_tables
        self.temperatures["blend"] = fit_temperature(self.blend(found), known)
        answers = np.full((len(rows), self.outputs), np.nan)
        answers[rows] = self.blend(found)
        return answers

    # --------------------------------------------------------------------------------------------- model files

    def get_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON-able facts that rebuild the heads."""
        about = {"weights": self.weights, "temperatures": self.temperatures, "blocks": self.summaries.blocks}
        facts: dict[str, Any] = {"heads": about}
        tensors = {f"table.{j}": table for j, table in self.summaries.tables.items()}
        for name in HEADS[:-1]:
            head = getattr(self, name)
            tensors |= {} if head is None else {f"{name}.{n}": t for n, t in as_tensors(head).items()}
        if self.deep is not None:
            facts["network"] = self.deep.facts
            tensors |= {f"deep.{n}": t.clone() for n, t in self.deep.double_pooling().state_dict().items()}
        return tensors, facts

    def set_state(self, tensors: dict[str, Tensor], facts: dict[str, Any], pool: Any) -> None:
        """Restore what `get_state` gave; nothing larger than the tensors is built."""
        about, outputs, summaries = facts["heads"], self.outputs, self.summaries
        most = sum(t.numel() for t in tensors.values()) + 64
        bounded(outputs, "n_outputs_", most)
        blocks, weights, temperatures = about["blocks"], about["weights"], about["temperatures"]
        if not isinstance(blocks, list) or [b for b in summaries.possible_blocks() if b in blocks] != blocks:
            raise ValueError(f"the blocks of summaries do not fit the columns: {blocks!r}.")
        summaries.blocks = blocks
        if not isinstance(weights, dict) or not set(weights) <= set(HEADS) or not weights:
            raise ValueError(f"the weights of the heads are not valid: {weights!r}.")
        if not all(isinstance(w, float) and 0 <= w <= 1 for w in weights.values()):
            raise ValueError(f"the weights of the heads are not shares: {weights!r}.")
        if not all(isinstance(t, float) and 0.01 < t < 100 for t in temperatures.values()):
            raise ValueError(f"a temperature is out of range: {temperatures!r}.")
        self.weights, self.temperatures = dict(weights), dict(temperatures)
        count, scores = len(summaries.names()), 1 if self.kind == "classes" and outputs == 2 else outputs
        kinds: dict[str, Any] = {"linear": LinearHead, "kernel": KernelHead}
        for name in set(weights) - {"deep"}:
            width = outputs if name == "forest" else scores
            setattr(self, name, kinds.get(name, TreeEnsemble).from_tensors(under(tensors, name), count, width))
        for j in summaries.bag_columns() if "linear" in weights else []:
            table = summaries.tables[j] = tensors[f"table.{j}"]
            if table.dtype != torch.float64 or table.shape != (len(summaries.encoder.vocabularies[j]) + 1, scores + 1):
                raise ValueError("a table of token weights does not fit the vocabulary.")
        if "deep" in weights:
            parts, network = under(tensors, "deep"), facts["network"]
            made = Plan(
                width=bounded(network["width"], "width", most),
                depth=bounded(network["depth"], "depth", len(parts)),
                dropout=float(network["dropout"]),
                deep_rho=bool(network["deep_rho"]),
                networks=bounded(network["networks"], "networks", most),
            )
            if not 0 <= made.dropout <= 1:
                raise ValueError(f"dropout must be between 0 and 1, found {made.dropout}.")
            with torch.device("meta"):
                self.deep = build(made, summaries, outputs, pool, 0)
            if any(name.startswith("pool.") for name in parts):
                self.deep.double_pooling()
            load_weights(self.deep, parts)


def head_names(model: str, encoder: ColumnEncoder, sets: int) -> list[str]:
    """Heads to fit for `model` and data of this kind and size."""
    if model != "auto":
        return [model]
    tokens_only = encoder.numbers == 0 and sum(map(len, encoder.vocabularies)) > MOST_DEEP_TOKENS
    use = {
        "linear": True,
        "kernel": sets <= MOST_KERNEL_SETS and encoder.numbers > 0,
        "forest": sets <= 6000,
        "boosting": sets >= 50,
        "deep": not tokens_only,
    }
    return [name for name in HEADS if use[name]]


def fold_count(sets: int) -> int:
    """Folds for so many sets; 1 means that a fifth is held out once."""
    return 8 if sets <= 120 else 5 if sets <= 3000 else 3 if sets <= 12_000 else 1


def boosting_iterations(rows: int, features: int, outputs: int, kind: Kind, folds: int, seconds: float = 4.0) -> int:
    """Iterations of boosting that fit into the time, by a count of operations; 0 for fewer than 40."""
    scores = outputs if kind != "classes" or outputs > 2 else 1
    share = min(features, MOST_BOOSTED) * (1.0 if features < 30 else 0.3)
    leaves = 31 if rows > 1000 else 15
    one = scores * folds * (0.001 + share * (4e-9 * rows * 6 + leaves * 1.5e-6))
    affordable = int(seconds / one)
    return 0 if affordable < 40 else min(200, affordable)


def run_together(first: Any, second: Any, together: bool) -> tuple[Any, Any]:
    """Results of two functions; `together`: the first in a thread of its own, beside the second."""
    if not together:
        return first(), second()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first)
        done = second()
        return waiting.result(), done


def threads(n_jobs: int | None) -> int:
    """Threads that fit may use: `n_jobs`, or those that torch would."""
    if n_jobs is not None:
        return (os.cpu_count() or 1) if n_jobs < 0 else n_jobs
    return torch.get_num_threads()

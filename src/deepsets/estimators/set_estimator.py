"""Common base of `SetClassifier` and `SetRegressor`: one answer per set."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import torch

from ..nn import State
from .base import TableEstimator
from .blend import calibration_error, make_folds, residual_quantiles
from .columns import Columns
from .deep_training import DeepTraining
from .heads import HEADS, BlendPooling, Encoded, Heads, fold_count, run_together
from .interpretation import Interpretation
from .layout import Members
from .network import is_mergeable
from .stored_heads import StoredHeads
from .summaries import Summaries
from .targets import one_per_set, set_weights, target_column
from .task import Task

# Sets of tokens from large vocabularies: networks were far behind the linear model on TREC (held-out log loss .92
# against .53) and took most of the time.
MOST_DEEP_TOKENS = 300

ModelName = Literal["auto", "deep", "boosting", "forest", "linear"]


@dataclass(kw_only=True, eq=False, repr=False)
class SetEstimator(DeepTraining, Interpretation, StoredHeads, TableEstimator):
    """Fit heads on sets, blend them, and predict through pooled states; see `SetClassifier` and `SetRegressor`."""

    model: ModelName = "auto"
    width: int | None = None
    depth: int | None = None
    dropout: float | None = None
    n_estimators: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    early_stopping: bool | None = None
    patience: int | None = None
    pool: str | list[str] | None = None
    subset: int | None = None
    warm_start: bool = False
    by: str | list[str] | None = None
    columns: list[str] | None = None
    checkpoint_dir: str | None = None
    device: str = "auto"
    n_jobs: int | None = None
    on_epoch: Callable[[dict[str, Any]], None] | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False

    # ------------------------------------------------------------------------------------------ for subclasses

    def _task(self, y: Any, members: Members, *, first: bool) -> Task:
        raise NotImplementedError

    def _final(self, answers: np.ndarray) -> np.ndarray:
        """Answers of the heads in the user's units."""
        raise NotImplementedError

    def _task_weights(self, task: Task) -> np.ndarray | None:
        """Weights of sets that follow from their targets."""
        return None

    # ------------------------------------------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, *, z: Any = None, sample_weight: Any = None) -> Self:
        """Fit to sets X and targets y.

        Parameters
        ----------
        X : list of arrays, array, Sets, Arrow list column, table, AnnData or lists of tokens
            A list holds one array (members, features) per set; an array has the shape (sets, members, features); a
            table has one row per member and needs `by`.
        y : array of shape (sets,) or (sets, targets), or str
            Targets; for a table also the name of a column, or a list of names.
        z : array of shape (sets, k), table, or list of str, optional
            Set-level values; for a table X also names of columns that are constant within each set.
        sample_weight : array of shape (sets,), optional
            Weight of each set; 0 is the same as leaving the set out.

        Returns
        -------
        self

        """
        self._check_parameters()
        if self.warm_start and hasattr(self, "heads_") and self.heads_.deep is not None:
            return self._continue(X, y, z, sample_weight)
        seed = self._fit_seed(self.checkpoint_dir)
        members, set_level = self._read_first(X, y, z)
        wanted, weight = target_column(X, y), set_weights(sample_weight, len(members))
        if weight is not None and not (weight > 0).all():  # a weight of 0 is absence, in what is learned of y too
            rows = np.flatnonzero(weight > 0)
            wanted, weight = one_per_set(wanted, members, "target")[rows], weight[rows]
            members, set_level = members.take(rows), None if set_level is None else set_level.take(rows)
        task = self._task(wanted, members, first=True)
        self._learn_columns(members, set_level)
        self.n_outputs_ = task.outputs
        extra = self._task_weights(task)
        weight = extra if weight is None else weight if extra is None else weight * extra
        heads = self.heads_ = Heads(task.kind, task.outputs, Summaries(self.encoder_, self.context_))
        encoded = self._encode_members(members, set_level)
        names = self._head_names(len(members))
        folds = make_folds(task, self.n_estimators or fold_count(len(members)), seed)

        def shallow() -> dict[str, np.ndarray]:
            return heads.fit_summaries([n for n in names if n != "deep"], encoded, task, weight, folds, seed)

        def deep() -> np.ndarray | None:
            return self._fit_deep(encoded, task, weight, folds, seed) if "deep" in names else None

        together = "deep" in names and len(names) > 1 and _threads(self.n_jobs) > 1
        held, deep_held = run_together(shallow, deep, together)
        if deep_held is not None:
            held["deep"] = deep_held
        self._finish_fit(held, task, weight)
        return self

    def _head_names(self, sets: int) -> list[str]:
        if self.model not in ("auto", *HEADS):
            raise ValueError(f"model must be 'auto', 'deep', 'boosting', 'forest' or 'linear', found {self.model!r}.")
        if self.model != "auto":
            return [self.model]
        tokens_only = self.encoder_.numbers == 0 and sum(map(len, self.encoder_.vocabularies)) > MOST_DEEP_TOKENS
        use = {"linear": True, "forest": sets <= 6000, "boosting": sets >= 50, "deep": not tokens_only}
        return [name for name in HEADS if use[name]]

    def _finish_fit(self, held: dict[str, np.ndarray], task: Task, weight: np.ndarray | None) -> None:
        heads = self.heads_
        answers = heads.choose(held, task, weight)
        if heads.deep is not None:
            heads.deep.double_pooling()
        self.mergeable_ = self._is_mergeable()
        self.head_weights_ = dict(heads.weights)
        self.head_losses_ = {}
        self.calibration_error_, self.residuals_ = None, np.zeros((0, task.outputs))
        if answers is None:
            return
        rows = np.flatnonzero(np.isfinite(answers).all(1))
        known = task.take(rows)
        for name, found in held.items():
            good = np.isfinite(found).all(1)
            self.head_losses_[name] = float(task.take(np.flatnonzero(good)).loss(found[good]).mean())
        self.head_losses_["blend"] = float(known.loss(answers[rows]).mean())
        if task.kind == "classes":
            self.calibration_error_ = calibration_error(answers[rows], known.y)
        if task.kind == "regression":
            self.residuals_ = residual_quantiles(answers[rows] - known.y)

    def _is_mergeable(self) -> bool:
        nested = not isinstance(self.by, str | type(None)) and len(self.by) > 1
        return not nested and (self.heads_.deep is None or is_mergeable(self.heads_.deep))

    # ------------------------------------------------------------------------------------------ states, answers

    def encode(self, X: Any, *, z: Any = None) -> State:
        """Encode sets as pooled states, which can be stored, merged with ``+`` and decoded.

        Parameters
        ----------
        X, z
            As in `fit`.

        Returns
        -------
        State
            Float64 parts, one row per set.

        """
        members, set_level = self._read(X, z)
        if not self.mergeable_:
            raise ValueError(
                f"this {type(self).__name__} looks at whole sets (pool={self.pool!r}, by={self.by!r}): "
                "its sets have no state that could be merged. Predict whole sets instead."
            )
        found = [self.heads_.state(part) for part in self._parts(members, set_level)]
        return self.state({name: torch.cat([part[name] for part in found]) for name in found[0]})

    def state(self, parts: dict[str, torch.Tensor]) -> State:
        """Rebuild a state from its parts, as `State.parts` gave them."""
        self._check_fitted()
        return State(BlendPooling(self.heads_.deep), parts)

    def decode(self, state: State, *, z: Any = None) -> np.ndarray:
        """Predict from states: class probabilities (B, classes), or values (B,) or (B, targets).

        Parameters
        ----------
        state : State
            From `encode`; the set-level values are part of it.
        z : ignored
            Accepted for symmetry with `encode`.

        """
        self._check_fitted()
        return self._final(self.heads_.answer(state.parts))

    def _answers(self, members: Members, set_level: Columns | None) -> np.ndarray:
        found = [
            self.heads_.answer(self.heads_.state(part, mergeable=self.mergeable_))
            for part in self._parts(members, set_level)
        ]
        return np.concatenate(found)

    def _encode_members(self, members: Members, set_level: Columns | None) -> Encoded:
        codes = self.encoder_.codes(members.columns)
        context = self.heads_.summaries.encode_context(set_level)
        return self._prepared(members, codes, context)

    def _prepared(self, members: Members, codes: np.ndarray, context: np.ndarray | None) -> Encoded:
        views = self.encoder_.views(members.columns)
        values = torch.cat([views, torch.from_numpy(codes).float()], dim=1) if codes.shape[1] else views
        return Encoded(members, codes, context, members.layout(values))

    def _parts(self, members: Members, set_level: Columns | None) -> Any:
        """Encoded members in pieces of whole sets with about 200,000 numbers per network input."""
        codes = self.encoder_.codes(members.columns)
        context = self.heads_.summaries.encode_context(set_level)
        for rows in cuts(members.sizes, max(1000, 20_000_000 // max(50, self.encoder_.view_width))):
            first, last = int(members.offsets[rows.start]), int(members.offsets[rows.stop])
            piece = (
                members.take(np.arange(rows.start, rows.stop))
                if (rows.start, rows.stop) != (0, len(members))
                else members
            )
            yield self._prepared(piece, codes[first:last], None if context is None else context[rows])

    def _score(self, answers: np.ndarray, y: Any, members: Members, weight: Any) -> float:
        raise NotImplementedError

    def _score_sets(self, X: Any, y: Any, sample_weight: Any, z: Any) -> float:
        members, set_level = self._read(X, z, y)
        return self._score(self._answers(members, set_level), target_column(X, y), members, sample_weight)


def cuts(sizes: np.ndarray, most: int) -> list[slice]:
    """Neighbouring sets with about `most` members together."""
    share = np.maximum(np.cumsum(sizes) - 1, 0) // most
    starts = [0, *(np.flatnonzero(np.diff(share) > 0) + 1).tolist(), len(sizes)]
    return [slice(a, b) for a, b in pairwise(starts) if b > a]


def _threads(n_jobs: int | None) -> int:
    """Threads that fit may use: `n_jobs`, or those that torch would."""
    if n_jobs is not None:
        return (os.cpu_count() or 1) if n_jobs < 0 else n_jobs
    return torch.get_num_threads()

"""Common base of `SetClassifier` and `SetRegressor`: one answer per set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.utils import Bunch
from sklearn.utils._set_output import _get_output_config

from ..nn import State
from .base import TableEstimator
from .blend import calibration_error, make_folds, residual_quantiles
from .columns import Columns
from .deep import Plan, build, fit_deep, plan
from .heads import BlendPooling, Encoded, Heads, fold_count, head_names, run_together, threads
from .layout import Members, cuts
from .summaries import Summaries
from .targets import per_member, present
from .task import Task

ModelName = Literal["auto", "deep", "boosting", "forest", "kernel", "linear"]

# Members from which heads on summaries are fitted in a thread beside the networks: smaller arrays spend their time in
# Python, and two threads that wait for each other were 8 % slower than one.
LEAST_TOGETHER = 50_000


@dataclass(kw_only=True, eq=False, repr=False)
class SetEstimator(TransformerMixin, TableEstimator):
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

    def _kind(self) -> Any:
        raise NotImplementedError

    def _final(self, answers: np.ndarray) -> np.ndarray:
        """Answers of the heads in the user's units."""
        raise NotImplementedError

    def _score(self, answers: np.ndarray, y: Any, members: Members, weight: Any) -> float:
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
        encoded, task, weight = self._start(X, y, z, sample_weight)
        extra = self._task_weights(task)
        weight = extra if weight is None else weight if extra is None else weight * extra
        heads, sets = self.heads_, len(encoded.members)
        names = head_names(self.model, self.encoder_, sets)
        folds = make_folds(task, self.n_estimators or fold_count(sets), seed)

        def shallow() -> dict[str, np.ndarray]:
            return heads.fit_summaries([n for n in names if n != "deep"], encoded, task, weight, folds, seed)

        def deep() -> dict[str, np.ndarray]:
            if "deep" not in names:
                return {}
            made = self._plan(encoded, task, len(folds))
            heads.deep = build(made, heads.summaries, task.outputs, self.pool, seed)
            stop = sets >= 400 and self.epochs is None if self.early_stopping is None else self.early_stopping
            patience = (self.patience or max(3, made.epochs // 5)) if stop else None
            options = {"seed": seed, "warmup": 0.3, "checkpoint_dir": self.checkpoint_dir, "patience": patience}
            self._train(encoded, task, weight, folds, made, **options)
            return {"deep": heads.deep_held_out(encoded, folds)}

        together = len(names) > 1 and threads(self.n_jobs) > 1 and encoded.members.total >= LEAST_TOGETHER
        held, deep_held = run_together(shallow, deep, together)
        self._finish(held | deep_held, task, weight)
        return self

    def partial_fit(self, X: Any, y: Any, *, z: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """One pass of the deep networks over these sets; the first call starts networks, without other heads.

        Parameters are those of `fit`; classifiers take all `classes` that will ever occur, in the first call.
        """
        self._check_parameters()
        if hasattr(self, "heads_"):
            return self._continue(X, y, z, sample_weight, epochs=1)
        encoded, task, weight = self._start(X, y, z, sample_weight, classes)
        made = self._plan(encoded, task, self.n_estimators or 1)._replace(epochs=1)
        self.heads_.deep = build(made, self.heads_.summaries, task.outputs, self.pool, self._seed())
        self._finish({"deep": np.full((len(encoded.members), task.outputs), np.nan)}, task, None)
        self._train(encoded, task, weight, [], made, seed=self._seed(), schedule="constant", warmup=0.0)
        return self

    def _start(
        self, X: Any, y: Any, z: Any, sample_weight: Any, classes: Any = None
    ) -> tuple[Encoded, Task, np.ndarray | None]:
        """Read training data, and learn all that comes before the heads."""
        members, set_level, y = self._read_first(X, y, z)
        if classes is not None:
            self.classes_ = np.unique(np.asarray(classes))
        members, set_level, y, weight = present(members, set_level, y, sample_weight)
        task = self._task(y, members, first=classes is None)
        self._learn_columns(members, set_level)
        self.n_outputs_ = task.outputs
        self.heads_ = Heads(task.kind, task.outputs, Summaries(self.encoder_, self.context_))
        return next(self._parts(members, set_level, whole=True)), task, weight

    def _continue(self, X: Any, y: Any, z: Any, sample_weight: Any, epochs: int | None = None) -> Self:
        """Train the networks further, from the weights they have."""
        members, set_level, y = self._read(X, z, y)
        members, set_level, y, weight = present(members, set_level, y, sample_weight)
        task = self._task(y, members, first=False)
        if self.heads_.deep is None:
            raise ValueError("the fitted blend has no deep networks to train further: use model='deep'.")
        encoded = next(self._parts(members, set_level, whole=True))
        made = self._plan(encoded, task, self.heads_.deep.networks)
        made, schedule = made._replace(epochs=epochs or made.epochs), "constant" if epochs else "cosine"
        self._train(encoded, task, weight, [], made, seed=self._seed(), schedule=schedule, warmup=0.0)
        return self

    def _plan(self, encoded: Encoded, task: Task, folds: int) -> Plan:
        chosen = {n: getattr(self, n) for n in ("width", "depth", "dropout", "batch_size", "epochs")}
        tokens = encoded.codes.shape[1]
        features = encoded.sets.values.shape[1] - tokens
        return plan(task, encoded.members.total, features, tokens, folds=folds, **chosen)

    def _train(self, encoded: Encoded, task: Task, weight: Any, folds: Any, made: Plan, **options: Any) -> None:
        assert self.heads_.deep is not None
        self.history_ = fit_deep(
            self.heads_.deep.float(),
            encoded.sets,
            encoded.network_context(),
            task,
            weight,
            folds,
            epochs=made.epochs,
            batch_size=made.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            subset=self.subset,
            device=self.device,
            on_epoch=self.on_epoch,
            progress=self.verbose,
            **options,
        )

    def _finish(self, held: dict[str, np.ndarray], task: Task, weight: np.ndarray | None) -> None:
        """Weigh the heads by their held-out answers, and keep what these say about the blend."""
        answers = self.heads_.choose(held, task, weight)
        self.head_weights_, self.head_losses_ = dict(self.heads_.weights), {}
        self.calibration_error_, self.residuals_ = None, np.zeros((0, task.outputs))
        if answers is None:
            return
        for name, found in (held | {"blend": answers}).items():
            rows = np.flatnonzero(np.isfinite(found).all(1))
            self.head_losses_[name] = float(task.take(rows).loss(found[rows]).mean())
        known = task.take(rows)
        if task.kind == "classes":
            self.calibration_error_ = calibration_error(answers[rows], known.y)
        if task.kind == "regression":
            self.residuals_ = residual_quantiles(answers[rows] - known.y)

    @property
    def mergeable_(self) -> bool:
        """Whether states of parts of a set merge to the state of the whole."""
        self._check_fitted()
        return not self._nested() and (self.heads_.deep is None or self.heads_.deep.mergeable)

    def _nested(self) -> bool:
        return isinstance(self.by, list | tuple) and len(self.by) > 1

    # ------------------------------------------------------------------------------------------ states, answers

    def encode(self, X: Any, *, z: Any = None) -> State:
        """Encode sets as pooled states, one row per set, which can be stored, merged with ``+`` and decoded."""
        members, set_level, _ = self._read(X, z)
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

        Set-level values are part of a state; `z` is accepted for symmetry with `encode`, and ignored.
        """
        self._check_fitted()
        return self._final(self.heads_.answer(state.parts))

    def _answers(self, members: Members, set_level: Columns | None) -> np.ndarray:
        heads = self.heads_
        parts = self._parts(members, set_level)
        return np.concatenate([heads.answer(heads.state(part, mergeable=self.mergeable_)) for part in parts])

    def _parts(self, members: Members, set_level: Columns | None, *, whole: bool = False) -> Iterator[Encoded]:
        """Encoded members, in pieces of whole sets with a bounded input of the networks, or all at once."""
        codes = self.encoder_.codes(members.columns)
        context = self.heads_.summaries.encode_context(set_level)
        most = max(1000, 20_000_000 // max(50, self.encoder_.view_width))
        pieces = [slice(0, len(members))] if whole else cuts(members.sizes + 100, most)  # a pooled state is large
        for rows in pieces:
            piece = members if len(pieces) == 1 else members.take(np.arange(rows.start, rows.stop))
            own = codes[int(members.offsets[rows.start]) : int(members.offsets[rows.stop])]
            views = self.encoder_.views(piece.columns)
            values = torch.cat([views, torch.from_numpy(own).float()], dim=1) if own.shape[1] else views
            yield Encoded(piece, own, None if context is None else context[rows], piece.layout(values))

    def _score_sets(self, X: Any, y: Any, sample_weight: Any, z: Any) -> float:
        members, set_level, y = self._read(X, z, y)
        return self._score(self._answers(members, set_level), y, members, sample_weight)

    # ------------------------------------------------------------------------------------------- interpretation

    def explain(self, X: Any, *, z: Any = None) -> Any:
        """Contribution of each member: the answer for its set minus the answer without it.

        Returns
        -------
        list of arrays of shape (members, outputs)
            One array per set; for a table one array in the order of its rows. Positive: the member pushes the value,
            or the probability of the class, up. Members are left out in the pooled state, which costs about as much
            as a prediction.

        """
        members, set_level, _ = self._read(X, z)
        if self._nested():
            raise ValueError(
                "explain needs sets of members; this estimator was fitted to sets of sets (by with several columns)."
            )
        found = []
        for part in self._parts(members, set_level):
            state = self.heads_.state(part, mergeable=self.mergeable_)
            whole = self._final(self.heads_.answer(state))
            without = self._final(self.heads_.without_each(part, state))
            whole, without = (a.reshape(len(a), -1) for a in (whole, without))
            found.append(np.repeat(whole, part.members.sizes, axis=0) - without)
        return per_member(np.concatenate(found), members)

    def transform(self, X: Any, *, z: Any = None) -> Any:
        """Embed sets, (sets, embedding): their summaries, and the pooled vector of the first deep network.

        A pandas table made from a table (see `set_output`) has the names of the sets as its index.
        """
        members, set_level, _ = self._read(X, z)
        found = np.concatenate([self.heads_.embed(part) for part in self._parts(members, set_level)])
        if _get_output_config("transform", self)["dense"] != "pandas" or members.names is None:
            return found
        import pandas as pd

        return pd.DataFrame(found, index=pd.Index(members.names, name=self.by), columns=self.get_feature_names_out())

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`."""
        self._check_fitted()
        return np.array(self.heads_.embedding_names(), dtype=object)

    def feature_importance(self, X: Any, y: Any, *, z: Any = None, n_repeats: int = 5) -> Bunch:
        """Loss of score when a column is permuted over all members.

        Parameters
        ----------
        X, y, z
            Sets with known targets, as in `fit`; better not the training sets.
        n_repeats : int
            Permutations of each column.

        Returns
        -------
        Bunch
            ``importances_mean`` and ``importances_std`` (columns,), ``importances`` (columns, repeats),
            ``feature_names``.

        """
        members, set_level, y = self._read(X, z, y)
        rng = np.random.default_rng(0 if self.random_state is None else self._seed())
        base = self._score(self._answers(members, set_level), y, members, None)
        names = members.columns.given_names()
        found = np.zeros((len(names), n_repeats))
        for i, name in enumerate(names):
            for r in range(n_repeats):
                mixed = replace(members, columns=members.columns.permuted(name, rng.permutation(members.total)))
                found[i, r] = base - self._score(self._answers(mixed, set_level), y, members, None)
        about = {"importances_mean": found.mean(1), "importances_std": found.std(1), "importances": found}
        return Bunch(**about, feature_names=np.array(names, dtype=object))

    # --------------------------------------------------------------------------------------------------- state

    def _add_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        found, about = self.heads_.get_state()
        tensors |= found | {"residuals": torch.from_numpy(self.residuals_)}
        facts |= about | {"calibration_error": self.calibration_error_}
        facts["heads"]["losses"] = self.head_losses_

    def _restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        self.heads_ = Heads(self._kind(), self.n_outputs_, Summaries(self.encoder_, self.context_))
        self.heads_.set_state(tensors, facts, self.pool)
        self.head_weights_, self.head_losses_ = dict(self.heads_.weights), facts["heads"].get("losses", {})
        self.calibration_error_, self.residuals_ = facts.get("calibration_error"), tensors["residuals"].numpy()
        if self.residuals_.ndim != 2 or self.residuals_.shape[1] != self.n_outputs_:
            raise ValueError("the residuals do not fit the outputs.")

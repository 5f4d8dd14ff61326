"""Training of the deep networks of set estimators, at once or set by set."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch

from ..train import Batch, train
from .columns import Columns
from .deep import Plan, build, fit_deep, loss_of, one_thread, plan
from .heads import Encoded, Heads
from .layout import Members
from .network import DEFAULT_POOL, SetNetworks
from .summaries import Summaries
from .targets import set_weights, target_column
from .task import Task


class DeepTraining:
    """Methods of set estimators that build and train the deep head."""

    batch_size: Any
    checkpoint_dir: Any
    depth: Any
    device: Any
    dropout: Any
    early_stopping: Any
    context_: Any
    encoder_: Any
    epochs: Any
    learning_rate: Any
    n_estimators: Any
    n_outputs_: Any
    on_epoch: Any
    patience: Any
    pool: Any
    random_state: Any
    subset: Any
    verbose: Any
    weight_decay: Any
    width: Any
    _check_parameters: Any
    _encode_members: Any
    _finish_fit: Any
    _learn_columns: Any
    _read: Any
    _read_first: Any
    _seed: Any
    _task: Any
    heads_: Heads

    def _fit_deep(self, encoded: Encoded, task: Task, weight: np.ndarray | None, folds: Any, seed: int) -> np.ndarray:
        made = self._plan(encoded, task, len(folds))
        self.heads_.deep = self._build(made, seed)
        with one_thread():
            self.history_ = fit_deep(
                self.heads_.deep,
                encoded.sets,
                encoded.network_context(),
                task,
                weight,
                folds,
                made,
                seed=seed,
                patience=self._patience(len(encoded.members), made.epochs),
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                warmup=0.3,
                subset=self.subset,
                checkpoint_dir=self.checkpoint_dir,
                device=self.device,
                on_epoch=self.on_epoch,
                progress=self.verbose,
            )
            return self.heads_.deep_held_out(encoded, folds)

    def _patience(self, sets: int, epochs: int) -> int | None:
        """Epochs without improvement before the training stops; few sets do not say when to stop."""
        wanted = sets >= 400 and self.epochs is None if self.early_stopping is None else self.early_stopping
        return (self.patience or max(3, epochs // 5)) if wanted else None

    def _plan(self, encoded: Encoded, task: Task, folds: int) -> Plan:
        chosen = {n: getattr(self, n) for n in ("width", "depth", "dropout", "batch_size", "epochs")}
        features = encoded.sets.values.shape[1] - encoded.codes.shape[1]
        return plan(task, encoded.members.total, features, encoded.codes.shape[1], folds=folds, **chosen)

    def _build(self, made: Plan, seed: int) -> SetNetworks:
        self.network_facts_ = {
            "width": made.width,
            "depth": made.depth,
            "dropout": float(made.dropout),
            "deep_rho": bool(made.deep_rho),
            "networks": made.networks,
        }
        words = [len(v) for v in self.encoder_.vocabularies]
        return build(made, self.encoder_.view_width, words, self._context_width(), self.n_outputs_, self._pool(), seed)

    def _pool(self) -> Any:
        return DEFAULT_POOL if self.pool is None else self.pool

    def _context_width(self) -> int:
        s = self.heads_.summaries
        return 0 if s.context is None else s.context.numbers + sum(len(k) + 1 for k in s.kept_z)

    def partial_fit(self, X: Any, y: Any, *, z: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """One pass of the deep networks over these sets; the first call starts networks, without other heads.

        Parameters
        ----------
        X, y, z, sample_weight
            As in `fit`.
        classes : array, optional
            For classifiers: all classes that will ever occur (first call only).

        """
        self._check_parameters()
        if hasattr(self, "heads_"):
            return self._continue(X, y, z, sample_weight, epochs=1)
        if classes is not None:
            self.classes_ = np.unique(np.asarray(classes))
        members, set_level = self._read_first(X, y, z)
        task = self._task(target_column(X, y), members, first=classes is None)
        self._learn_columns(members, set_level)
        self.n_outputs_ = task.outputs
        self.heads_ = Heads(task.kind, task.outputs, Summaries(self.encoder_, self.context_))
        encoded = self._encode_members(members, set_level)
        made = self._plan(encoded, task, self.n_estimators or 1)
        self.heads_.deep = self._build(made, self._seed())
        self._finish_fit({"deep": np.full((len(members), task.outputs), np.nan)}, task, None)
        return self._train_on(encoded, task, set_weights(sample_weight, len(members)), 1)

    def _continue(self, X: Any, y: Any, z: Any, sample_weight: Any, epochs: int | None = None) -> Self:
        """Train the networks further, from the weights they have."""
        members, set_level = self._read(X, z, y)
        task = self._task(target_column(X, y), members, first=False)
        weight = set_weights(sample_weight, len(members))
        members, set_level, task, weight = _present(members, set_level, task, weight)
        if self.heads_.deep is None:
            raise ValueError("the fitted blend has no deep networks to train further: use model='deep'.")
        return self._train_on(self._encode_members(members, set_level), task, weight, epochs)

    def _train_on(self, encoded: Encoded, task: Task, weight: np.ndarray | None, epochs: int | None) -> Self:
        networks = self.heads_.deep
        assert networks is not None
        networks.float()
        made = self._plan(encoded, task, networks.networks)
        once = np.ones(len(encoded.members)) if weight is None else weight
        y = task.indicators() if task.kind != "classes" else task.y[:, None]
        seen = np.repeat(once[:, None], networks.networks, axis=1)
        batch = Batch(
            encoded.sets, torch.from_numpy(np.concatenate([y, seen], axis=1)).float(), encoded.network_context()
        )
        with one_thread():
            self.history_ = train(
                networks,
                loss_of(task),
                batch,
                epochs=epochs or made.epochs,
                batch_size=made.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                schedule="constant" if epochs else "cosine",
                warmup=0.0,
                clip=networks.networks**0.5,
                subset=self.subset,
                seed=self._seed(),
                device=self.device,
                on_epoch=self.on_epoch,
                progress=self.verbose,
            )
        networks.cpu().eval().double_pooling()
        return self


def _present(
    members: Members, set_level: Columns | None, task: Task, weight: np.ndarray | None
) -> tuple[Members, Columns | None, Task, np.ndarray | None]:
    """Without the sets of weight 0."""
    if weight is None or (weight > 0).all():
        return members, set_level, task, weight
    rows = np.flatnonzero(weight > 0)
    return members.take(rows), None if set_level is None else set_level.take(rows), task.take(rows), weight[rows]

"""What all estimators share: reading X, building the network, training it, asking it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from ..sets import Sets, check_finite
from ..train import Batch, split_rows, train
from .input import Read, read
from .network import Network


class SetEstimator(BaseEstimator):
    """Parameters and manners of all estimators; subclasses know their targets, loss and network.

    Parameters (all estimators)
    ---------------------------
    width, depth, dropout: of the network. n_estimators: how many are trained, from other starts, and averaged.
    epochs: passes over the sets; by default as many as give about `_STEPS` steps, at least `_EPOCHS`.
    batch_size, learning_rate, weight_decay: of AdamW with warm-up and cosine.
    early_stopping: hold out `validation_fraction` of the sets, keep the best weights, stop after `patience` epochs.
    impute: replace missing features (NaN) by the training mean; otherwise they are an error.
    warm_start: `fit` goes on from the weights that are there.
    by: the column that names the set, when X is a table. columns: its features (default: all others).
    checkpoint_dir: where checkpoints and the log go; an interrupted fit with the same data and settings is taken up there
        (a fresh fit; partial_fit and warm starts keep none).
    random_state: the seed. verbose: a progress bar.
    """

    _STEPS = 500
    _EPOCHS = 30
    _WARMUP = 0.3

    # ----------------------------------------------------------------------------------------- for subclasses

    def _make(self, inputs: int, z: int, outputs: int) -> nn.Module:
        """One network."""
        raise NotImplementedError

    def _targets(self, y: Any, given: Read, *, first: bool) -> Tensor | Sets:
        """Y as the loss wants it. `first`: learn classes and the like."""
        raise NotImplementedError

    def _outputs(self, y: Tensor | Sets) -> int:
        """How many numbers the network gives."""
        raise NotImplementedError

    def _loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | float]:
        raise NotImplementedError

    def _learn_targets(self, y: Tensor | Sets) -> None:
        """Scaling of the targets, for regression."""

    # -------------------------------------------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None) -> Self:
        """Learns from sets X and targets y.

        X: a list of arrays (members, features), an array (sets, members, features), `Sets`, an Arrow list column, a
        pandas or polars table with a row for each member (with `by=`), or a list of lists of tokens or ids.
        y: see the class. For a table it may be the name of a column. z: (sets, k) what is known of each set.
        sample_weight: (sets,) how much each set counts.
        """
        fresh = not (self.warm_start and hasattr(self, "network_"))
        batch = self._batch(X, y, z, sample_weight, first=fresh)
        if fresh:
            self._build(batch)
        self._train(
            batch,
            epochs=self._epochs(len(batch.sets)),
            schedule="cosine",
            folder=self.checkpoint_dir if fresh else None,
        )
        return self

    def partial_fit(self, X: Any, y: Any, z: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """One pass over these sets, from the weights that are there; the first call starts a new network.

        classes: for classifiers, all classes that will ever come (first call only).
        """
        first = not hasattr(self, "network_")
        if first and classes is not None:
            self.classes_ = np.unique(np.asarray(classes))
        batch = self._batch(X, y, z, sample_weight, first=first)
        if first:
            self._build(batch)
        self._train(batch, epochs=1, schedule="constant", folder=None)
        return self

    def _epochs(self, sets: int) -> int:
        if self.epochs is not None:
            return int(self.epochs)
        steps = -(-sets // self.batch_size)
        return max(self._EPOCHS, -(-self._STEPS // steps))

    def _build(self, batch: Batch) -> None:
        self.n_sets_, self.n_members_ = len(batch.sets), batch.sets.total
        self.n_features_in_ = batch.sets.width
        self.n_context_ = 0 if batch.z is None else batch.z.shape[1]
        self.n_outputs_ = self._outputs(batch.y)  # type: ignore[arg-type]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed())
            self.network_ = self._new_network()
        if self.network_.scale is not None:
            self.network_.scale.learn(batch.sets.materialize().values)
        if self.network_.scale_z is not None:
            self.network_.scale_z.learn(batch.z)  # type: ignore[arg-type]
        self._learn_targets(batch.y)  # type: ignore[arg-type]

    def _new_network(self) -> Network:
        vocabulary = getattr(self, "vocabulary_", None)
        return Network(
            self._make,
            features=self.n_features_in_,
            vocabulary=len(vocabulary) if vocabulary else 0,
            z=self.n_context_,
            outputs=self.n_outputs_,
            networks=self.n_estimators,
            embedding=self.width,
            missing=bool(self.impute),
        )

    def _train(self, batch: Batch, *, epochs: int, schedule: Any, folder: str | None) -> None:
        with torch.no_grad():
            members, context = self.network_.prepare(batch.sets, batch.z)
        batch = batch._replace(sets=members, z=context)
        validation = None
        if self.early_stopping:
            rows, held = split_rows(len(batch.sets), self.validation_fraction, self._seed())
            if len(held) == 0 or len(rows) == 0:
                raise ValueError(
                    f"early stopping holds out {self.validation_fraction:.0%} of the sets, "
                    f"but {len(batch.sets)} sets are too few to be split."
                )
            batch, validation = batch.take(rows), batch.take(held)
        self.history_ = train(
            self.network_,
            self._loss,
            batch,
            epochs=epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule=schedule,
            warmup=self._WARMUP if schedule == "cosine" else 0.0,
            clip=self.n_estimators**0.5,
            validation=validation,
            patience=self.patience if validation is not None else None,
            seed=self._seed(),
            checkpoint_dir=None if folder is None else Path(folder),
            progress=self.verbose,
        )
        self.network_.eval()

    def _seed(self) -> int:
        state = self.random_state
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31))
        return int(np.random.SeedSequence().generate_state(1)[0]) if state is None else int(state)

    # --------------------------------------------------------------------------------------------------- asking

    def _batch(self, X: Any, y: Any, z: Any, weight: Any, *, first: bool) -> Batch:
        wanted = target_column(X, y)
        given = read(X, self.by, self._columns(first), y if isinstance(y, str) else None)
        sets = self._sets(given, first=first)
        targets = self._targets(wanted, given._replace(sets=sets), first=first)
        batch = Batch(sets, targets, self._context(z, len(sets), first=first), _per_set(weight, len(sets)))
        if batch.weight is None or bool((batch.weight > 0).all()):
            return batch
        return batch.take((batch.weight > 0).nonzero().squeeze(1))  # a weight of 0 is absence

    def _ask(self, X: Any, z: Any) -> tuple[Read, Sets, Tensor | None]:
        if not hasattr(self, "network_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first.")
        given = read(X, self.by, self._columns(False))
        sets = self._sets(given, first=False)
        return given, sets, self._context(z, len(sets), first=False)

    @torch.no_grad()
    def _answers(self, sets: Sets, z: Tensor | None) -> Tensor:
        """(networks, B or N, out), in batches of bounded size."""
        per_member = self._PER_MEMBER
        cuts = _cuts(sets.sizes)
        parts = []
        for rows in cuts:
            part = self.network_(sets[rows], None if z is None else z[rows])
            parts.append(part)
        if parts:
            return torch.cat(parts, dim=1)
        return torch.zeros(self.n_estimators, sets.total if per_member else 0, self.n_outputs_)

    _PER_MEMBER = False

    def _columns(self, first: bool) -> list[str] | None:
        if first:
            return None if self.columns is None else list(self.columns)
        return list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None

    def _sets(self, given: Read, *, first: bool) -> Sets:
        if first:
            for name in ("vocabulary_", "feature_names_in_"):
                if hasattr(self, name):
                    delattr(self, name)
            if given.names is not None:
                self.feature_names_in_ = np.array(given.names, dtype=object)
        if given.tokens is not None:
            if first:
                self.vocabulary_ = list(dict.fromkeys(token for tokens in given.tokens for token in tokens))
            elif not hasattr(self, "vocabulary_"):
                raise ValueError(f"X holds tokens, but the estimator was fitted with {self.n_features_in_} features.")
            return Sets.from_ids(given.tokens, self.vocabulary_)
        sets = given.sets
        assert sets is not None
        if hasattr(self, "vocabulary_") and not first:
            raise ValueError("X holds numbers, but the estimator was fitted with tokens.")
        if sets.values.ndim != 2:
            sets = sets.with_values(sets.values.reshape(len(sets.values), -1))
        sets = sets.to(dtype=torch.float32)
        if not first and sets.width != self.n_features_in_:
            raise ValueError(
                f"X has members with {sets.width} features, but {type(self).__name__} was fitted with "
                f"{self.n_features_in_}."
            )
        if not self.impute:
            self._check_missing(sets, given.names)
        if sets.values.isinf().any():
            check_finite(sets.values.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf), sets.offsets, "features")
        return sets

    def _check_missing(self, sets: Sets, names: list[str] | None) -> None:
        sets = sets.materialize()
        missing = sets.values.isnan()
        if not missing.any():
            return
        row, column = missing.nonzero()[0].tolist()
        b = int(torch.searchsorted(sets.offsets, row, right=True)) - 1
        feature = f"{names[column]!r}" if names else str(column)
        raise ValueError(
            f"{int(missing.sum())} features are missing (NaN), the first in set {b}, member "
            f"{row - int(sets.offsets[b])}, feature {feature}: fill them in, or impute=True takes the training mean."
        )

    def _context(self, z: Any, count: int, *, first: bool) -> Tensor | None:
        expected = None if first else self.n_context_
        if z is None:
            if expected:
                raise ValueError(f"the estimator was fitted with z of {expected} columns: z is needed here too.")
            return None
        out = torch.tensor(np.asarray(z, dtype=np.float32))
        out = out[:, None] if out.ndim == 1 else out
        if out.ndim != 2 or len(out) != count:
            raise ValueError(f"z must have one row for each of the {count} sets, found shape {tuple(out.shape)}.")
        if expected is not None and out.shape[1] != expected:
            raise ValueError(f"z has {out.shape[1]} columns, but the estimator was fitted with {expected}.")
        check_finite(out, None, "z")
        return out


def target_column(X: Any, y: Any) -> Any:
    """Where y is a name, that column of the table X; otherwise y."""
    if not isinstance(y, str):
        return y
    if not hasattr(X, "columns"):
        raise ValueError(f"y is the name {y!r}, but X is no table with columns: give the targets themselves.")
    if y not in list(X.columns):
        raise ValueError(f"the table has no target column {y!r}; it has: {', '.join(map(str, X.columns))}.")
    return X[y].to_numpy()


def _per_set(weight: Any, count: int) -> Tensor | None:
    if weight is None:
        return None
    out = torch.tensor(np.asarray(weight, dtype=np.float32))
    if out.shape != (count,) or not bool((out >= 0).all()):
        raise ValueError(
            f"sample_weight must be {count} numbers not below 0, one a set; found shape {tuple(out.shape)}."
        )
    if not bool((out > 0).any()):
        raise ValueError("all sample weights are 0: there is nothing to learn from.")
    return out


def _cuts(sizes: Tensor, most: int = 200_000) -> list[slice]:
    """Neighbouring sets with about `most` elements together."""
    share = (sizes.cumsum(0) - 1).clamp(min=0) // most
    starts = [0, *((share.diff() > 0).nonzero().squeeze(1) + 1).tolist(), len(sizes)]
    return [slice(a, b) for a, b in pairwise(starts) if b > a]

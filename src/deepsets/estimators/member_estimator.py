"""Common base of the estimators that answer for each member."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..sets import Sets
from ..train import Batch, seeded, split_rows, train
from ..train.checkpoint import load_weights
from .base import TableEstimator
from .columns import Columns
from .deep import one_thread
from .layout import Members, cuts
from .network import MemberNetworks
from .state import bounded, under
from .targets import set_weights


@dataclass(kw_only=True, eq=False, repr=False)
class MemberEstimator(TableEstimator):
    """Networks that see each member together with the other members of its set."""

    width: int = 64
    depth: int = 2
    dropout: float = 0.3
    n_estimators: int = 4
    noise: float = 0.1
    keep: float = 0.3
    epochs: int | None = None
    batch_size: int = 24
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    early_stopping: bool = False
    validation_fraction: float = 0.15
    patience: int = 20
    warm_start: bool = False
    by: str | None = None
    columns: list[str] | None = None
    checkpoint_dir: str | None = None
    device: str = "auto"
    on_epoch: Callable[[dict[str, Any]], None] | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False

    # ------------------------------------------------------------------------------------------ for subclasses

    def _targets(self, y: Any, members: Members, *, first: bool) -> Sets:
        """Targets of members, as the loss wants them; `first`: learn classes and the like."""
        raise NotImplementedError

    def _loss(self, model: Any, batch: Batch) -> tuple[Tensor, Tensor | float]:
        raise NotImplementedError

    def _learn_targets(self, y: Sets) -> None:
        """Learn the scale of the targets."""

    # ------------------------------------------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any, *, z: Any = None, sample_weight: Any = None) -> Self:
        """Fit to sets X and targets y.

        Parameters
        ----------
        X : list of arrays, array, Sets, Arrow list column, table, AnnData or lists of tokens
            As for `SetClassifier.fit`.
        y : see the class
        z : array of shape (sets, k), table, or list of str, optional
            Set-level values; for a table X also names of columns.
        sample_weight : array of shape (sets,), optional
            Weight of each set; 0 is the same as leaving the set out.

        """
        self._check_parameters()
        fresh = not (self.warm_start and hasattr(self, "network_"))
        seed = self._fit_seed(self.checkpoint_dir if fresh else None)
        batch = self._batch(X, y, z, sample_weight, first=fresh, seed=seed)
        steps = -(-len(batch.sets) // self.batch_size)
        epochs = self.epochs or max(30, -(-400 // steps))
        return self._train(batch, epochs, "cosine", seed, self.checkpoint_dir if fresh else None)

    def partial_fit(self, X: Any, y: Any, *, z: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """One pass over these sets from the weights of the last call; the first call starts new networks.

        Parameters are those of `fit`; classifiers take all `classes` that will ever occur, in the first call.
        """
        self._check_parameters()
        first, seed = not hasattr(self, "network_"), self._seed()
        if first and classes is not None:
            self.classes_ = np.unique(np.asarray(classes))
        batch = self._batch(X, y, z, sample_weight, first=first, seed=seed, known_classes=classes is not None)
        return self._train(batch, 1, "constant", seed, None)

    def _batch(
        self, X: Any, y: Any, z: Any, weight: Any, *, first: bool, seed: int = 0, known_classes: bool = False
    ) -> Batch:
        members, set_level, y = self._read_first(X, y, z) if first else self._read(X, z, y)
        if first and not known_classes:
            self.__dict__.pop("classes_", None)
        targets = self._targets(y, members, first=first)
        known = set_weights(weight, len(members))
        if known is not None and not (known > 0).all():  # a weight of 0 is absence
            rows = np.flatnonzero(known > 0)
            members, known, targets = members.take(rows), known[rows], targets[torch.from_numpy(rows)]
            set_level = None if set_level is None else set_level.take(rows)
        if first:
            self._learn_columns(members, set_level)
            self.n_outputs_ = self._outputs()
            with seeded(seed):
                self.network_ = self._new_network()
            self._learn_targets(targets)
        sets, context = self._prepare(members, set_level)
        return Batch(sets, targets, context, None if known is None else torch.from_numpy(known).float())

    def _outputs(self) -> int:
        return 1

    def _new_network(self) -> MemberNetworks:
        return MemberNetworks(
            self.encoder_.view_width,
            [len(v) for v in self.encoder_.vocabularies],
            self._context_width(),
            self.n_outputs_,
            networks=self.n_estimators,
            width=self.width,
            depth=self.depth,
            dropout=self.dropout,
            noise=self.noise,
        )

    def _context_width(self) -> int:
        if self.context_ is None:
            return 0
        return self.context_.view_width + sum(len(v) + 1 for v in self.context_.vocabularies)

    def _train(self, batch: Batch, epochs: int, schedule: Any, seed: int, folder: str | None) -> Self:
        validation = None
        if self.early_stopping:
            rows, held = split_rows(len(batch.sets), self.validation_fraction, seed)
            if not len(rows) or not len(held):
                raise ValueError(
                    f"early stopping holds out {self.validation_fraction:.0%} of the sets, "
                    f"but {len(batch.sets)} sets are too few to be split."
                )
            batch, validation = batch.take(rows), batch.take(held)
        with one_thread():
            self.history_ = train(
                self.network_,
                self._loss,
                batch,
                epochs=epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                schedule=schedule,
                warmup=0.1 if schedule == "cosine" else 0.0,
                clip=self.n_estimators**0.5,
                validation=validation,
                patience=self.patience if validation is not None else None,
                seed=seed,
                checkpoint_dir=folder,
                device=self.device,
                on_epoch=self.on_epoch,
                progress=self.verbose,
            )
        self.network_.cpu().eval()
        return self

    # -------------------------------------------------------------------------------------------------- answers

    def _prepare(self, members: Members, set_level: Columns | None) -> tuple[Sets, Tensor | None]:
        """What the networks see of members and set-level values."""
        views, codes = self.encoder_.views(members.columns), self.encoder_.codes(members.columns)
        sets = members.layout(torch.cat([views, torch.from_numpy(codes).float()], dim=1))
        if self.context_ is None or set_level is None:
            return sets, None
        found = self.context_.codes(set_level, "z")
        eyes = [torch.eye(len(v) + 1)[found[:, j]] for j, v in enumerate(self.context_.vocabularies)]
        return sets, torch.cat([self.context_.views(set_level), *eyes], dim=1)

    @torch.no_grad()
    def _answers(self, members: Members, set_level: Columns | None) -> Tensor:
        """(networks, N, outputs), in pieces of bounded size."""
        sets, context = self._prepare(members, set_level)
        pieces = [
            self.network_(sets[rows], None if context is None else context[rows])
            for rows in cuts(members.sizes, 200_000)
        ]
        return torch.cat(pieces, dim=1) if pieces else torch.zeros(self.n_estimators, 0, self.n_outputs_)

    # --------------------------------------------------------------------------------------------------- state

    def _add_state(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        tensors.update({f"network.{n}": t.clone() for n, t in self.network_.state_dict().items()})

    def _restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        most = sum(t.numel() for t in tensors.values()) + 64
        bounded(self.width, "width", most)
        bounded(self.depth, "depth", len(tensors) + 1, 0)
        bounded(self.n_estimators, "n_estimators", len(tensors))
        bounded(self.n_outputs_, "n_outputs_", most)
        with torch.device("meta"):
            network = self._new_network()
        load_weights(network, under(tensors, "network"))
        self.network_ = network
        if hasattr(self, "classes_") and len(self.classes_) != self.n_outputs_:
            raise ValueError(f"there are {len(self.classes_)} classes for {self.n_outputs_} outputs.")

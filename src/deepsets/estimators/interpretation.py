"""Interpretation of set estimators: contributions of members, importance of columns, embeddings of sets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from .columns import Columns
from .state import under
from .targets import per_member, target_column


class Interpretation:
    """Methods of `SetClassifier` and `SetRegressor` that look into a fitted model."""

    by: Any
    heads_: Any
    mergeable_: bool
    random_state: Any
    _answers: Any
    _check_fitted: Any
    _final: Any
    _parts: Any
    _read: Any
    _score: Any
    _seed: Any

    def explain(self, X: Any, *, z: Any = None) -> Any:
        """Contribution of each member: the answer for its set minus the answer without it.

        Parameters
        ----------
        X, z
            As in `fit`.

        Returns
        -------
        list of arrays of shape (members, outputs)
            One array per set; for a table one array in the order of its rows. Positive: the member pushes the value,
            or the probability of the class, up. Members are left out in the pooled state, which costs about as much
            as a prediction.

        """
        members, set_level = self._read(X, z)
        if members.total and isinstance(self.by, list | tuple) and len(self.by) > 1:
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

    def transform(self, X: Any, *, z: Any = None) -> np.ndarray:
        """Embed sets: their summaries, and the pooled vector of the first deep network where there is one.

        Returns
        -------
        ndarray of shape (sets, embedding)

        """
        members, set_level = self._read(X, z)
        found = []
        for part in self._parts(members, set_level):
            state = self.heads_.state(part, mergeable=False)
            features = np.nan_to_num(self.heads_.summaries.features(under(state, "summary")))
            pieces = [features]
            if self.heads_.deep is not None:
                deep, pooled = self.heads_.deep, state["deep.pooled"]
                own = (
                    pooled.view(len(pooled), -1, deep.networks, deep.width)[:, :, 0]
                    if deep.channelwise
                    else pooled[:, : deep.pooled]
                )
                pieces.append(own.reshape(len(pooled), -1).numpy())
            found.append(np.concatenate(pieces, axis=1))
        return np.concatenate(found)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`."""
        self._check_fitted()
        deep = self.heads_.deep
        names = self.heads_.summaries.names() + [f"deep{i}" for i in range(deep.pooled if deep is not None else 0)]
        return np.array(names, dtype=object)

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
        members, set_level = self._read(X, z, y)
        wanted = target_column(X, y)
        rng = np.random.default_rng(0 if self.random_state is None else self._seed())
        base = self._score(self._answers(members, set_level), wanted, members, None)
        groups = _column_groups(members.columns)
        found = np.zeros((len(groups), n_repeats))
        for i, (_, places, category) in enumerate(groups):
            for r in range(n_repeats):
                order = rng.permutation(members.total)
                numbers = members.columns.numbers.copy()
                numbers[:, places] = numbers[order][:, places]
                categories = list(members.columns.categories)
                if category is not None:
                    categories[category] = categories[category].take(order)
                mixed = replace(members, columns=replace(members.columns, numbers=numbers, categories=categories))
                found[i, r] = base - self._score(self._answers(mixed, set_level), wanted, members, None)
        names = np.array([name for name, _, _ in groups], dtype=object)
        return Bunch(
            importances_mean=found.mean(1), importances_std=found.std(1), importances=found, feature_names=names
        )


def _column_groups(columns: Columns) -> list[tuple[str, list[int], int | None]]:
    """Name, number columns and category column of each column that the user gave."""
    if columns.schema is None:
        return [(f"x{j}", [j], None) for j in range(columns.numbers.shape[1])]
    out: list[tuple[str, list[int], int | None]] = []
    number = category = 0
    for name, kind in columns.schema:
        if kind == "category":
            out.append((name, [], category))
            category += 1
        else:
            width = 1 if kind == "number" else 3
            out.append((name, list(range(number, number + width)), None))
            number += width
    return out

"""Pooled summaries of sets: count, mean, deviation, extremes, shares of categories; all of them merge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..nn import Pooling
from ..nn.kernels import segment_max, segment_sum
from ..nn.state import Parts
from ..sets import Sets
from .columns import Category, Columns
from .encoder import ColumnEncoder
from .layout import Members

MOST_CATEGORIES = 64  # of a column among others; a column alone (tokens) may have four times as many
MOST_SUMS = 64  # columns up to which the sum stands beside the mean


class SummaryPooling(Pooling):
    """Sums, minima and maxima of each set, as a pooling with a state: ``count``, ``sum``, ``min``, ``max``, ``z``."""

    def merge(self, a: Parts, b: Parts) -> Parts:
        """State of the union, set by set."""
        return {
            "count": a["count"] + b["count"],
            "sum": a["sum"] + b["sum"],
            "min": torch.minimum(a["min"], b["min"]),
            "max": torch.maximum(a["max"], b["max"]),
            "z": torch.maximum(a["z"], b["z"]),
        }

    def finish(self, parts: Parts) -> Tensor:
        """Parts side by side."""
        return torch.cat([parts["count"][:, None], parts["sum"], parts["min"], parts["max"], parts["z"]], dim=1)


class Summaries:
    """Summaries of sets as features for linear models and trees.

    Parameters
    ----------
    encoder : ColumnEncoder
        Encoding of the columns of members.
    context : ColumnEncoder or None
        Encoding of the set-level columns.

    Attributes
    ----------
    kept : list of ndarray
        Codes of the frequent categories of each column, whose shares are features.
    tables : list of Tensor or None
        For each category column, one vector per code, summed over the members: the linear head's weights of
        categories and tokens. None where there is none.

    """

    def __init__(self, encoder: ColumnEncoder, context: ColumnEncoder | None) -> None:
        self.encoder, self.context = encoder, context
        most = MOST_CATEGORIES * (4 if len(encoder.vocabularies) == 1 and encoder.numbers == 0 else 1)
        self.kept = [_most_frequent(f, most) for f in encoder.frequencies]
        self.kept_z = [] if context is None else [_most_frequent(f, MOST_CATEGORIES) for f in context.frequencies]
        self.tables: list[Tensor] | None = None
        self.sums = encoder.numbers <= MOST_SUMS

    # -------------------------------------------------------------------------------------------------- states

    def state(self, members: Members, codes: np.ndarray, context: np.ndarray | None) -> Parts:
        """State of each set: float64 tensors.

        Parameters
        ----------
        members : Members
        codes : ndarray of shape (N, C)
        context : ndarray of shape (B, Z) or None
            Encoded set-level values, from `encode_context`.

        """
        x = torch.from_numpy(self.encoder.deviations(members.columns))
        weights = None if members.weights is None else torch.from_numpy(members.weights)
        layout = _layout(members, weights)
        missing = x.isnan()
        there = torch.where(missing, 0, x)
        count = layout.counts.double() if weights is not None else layout.sizes.double()
        sums = [
            _sum(there, layout),
            _sum(there.square(), layout),
            _sum(missing[:, self.encoder.gaps].double(), layout),
        ]
        sums += [self._category_counts(codes[:, j], j, members) for j in range(codes.shape[1])]
        if self.tables is not None:
            for j, table in enumerate(self.tables):
                if table.shape[1]:
                    sums.append(_sum(table[codes[:, j]], layout))
        empty = torch.from_numpy(members.sizes == 0)[:, None]
        low = -_highest(torch.where(missing, -torch.inf, -x), layout)
        high = _highest(torch.where(missing, -torch.inf, x), layout)
        z = torch.zeros(len(members), 0, dtype=torch.float64) if context is None else torch.from_numpy(context)
        return {
            "count": count,
            "sum": torch.cat(sums, dim=1),
            "min": torch.where(empty, torch.inf, low),
            "max": torch.where(empty, -torch.inf, high),
            "z": torch.where(z.isnan(), -torch.inf, z),
        }

    def without_each(self, parts: Parts, members: Members, codes: np.ndarray, context: np.ndarray | None) -> Parts:
        """State of each set without each of its members, N rows."""
        ids = torch.from_numpy(members.set_ids)
        alone = replace(members, offsets=np.arange(members.total + 1), context=None)
        own = self.state(alone, codes, None)
        x = torch.from_numpy(self.encoder.deviations(members.columns))
        layout = _layout(members, None)
        rest = {name: parts[name][ids] - own[name] for name in ("count", "sum")}
        for name, sign in (("min", -1), ("max", 1)):
            values = torch.where(x.isnan(), -torch.inf, sign * x)
            best = sign * parts[name][ids]
            wins = values == best
            only = wins & (layout.broadcast(_sum(wins.double(), layout)) == 1)
            second = layout.broadcast(_highest(values.masked_fill(only, -torch.inf), layout))
            left = torch.where(only, second, best)
            rest[name] = sign * torch.where(
                torch.from_numpy(np.repeat(members.sizes, members.sizes))[:, None] > 1, left, -torch.inf
            )
        return rest | {"z": parts["z"][ids]}

    def _category_counts(self, codes: np.ndarray, j: int, members: Members) -> Tensor:
        """(B, K + 1) how often each kept category occurs, and all others together."""
        slots = _slots(self.kept[j], len(self.encoder.vocabularies[j]))[codes]
        width = len(self.kept[j]) + 1
        flat = np.bincount(members.set_ids * width + slots, members.weights, minlength=len(members) * width)
        return torch.from_numpy(flat.reshape(len(members), width).astype(np.float64))

    def encode_context(self, columns: Columns | None) -> np.ndarray | None:
        """(B, Z) float64: deviations of numbers (NaN where missing) and indicators of categories."""
        if self.context is None or columns is None:
            return None
        parts = [self.context.deviations(columns)]
        codes = self.context.codes(columns, "z")
        for j, kept in enumerate(self.kept_z):
            slots = _slots(kept, len(self.context.vocabularies[j]))[codes[:, j]]
            parts.append(np.eye(len(kept) + 1)[slots])
        return np.concatenate(parts, axis=1)

    # ------------------------------------------------------------------------------------------------ features

    def _widths(self) -> list[int]:
        D, G = self.encoder.numbers, len(self.encoder.gaps)
        tables = [] if self.tables is None else [t.shape[1] for t in self.tables if t.shape[1]]
        return [D, D, G, *(len(k) + 1 for k in self.kept), *tables]

    def features(self, parts: Parts) -> np.ndarray:
        """(B, S) summaries of states; NaN where a set has no value."""
        D, C = self.encoder.numbers, len(self.kept)
        count = parts["count"].numpy()[:, None]
        total, squares, missing, *rest = np.split(parts["sum"].numpy(), np.cumsum(self._widths())[:-1], axis=1)
        there = np.repeat(count, D, axis=1)
        there[:, self.encoder.gaps] -= missing
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(there > 0, total / there, np.nan)
            deviation = np.sqrt(np.maximum(np.where(there > 0, squares / there, np.nan) - mean**2, 0))
            gone = missing / count
            shares = [np.where(count > 0, rest[j] / count, np.nan) for j in range(C)]
        low, high = parts["min"].numpy(), parts["max"].numpy()
        low, high = np.where(np.isinf(low), np.nan, low), np.where(np.isinf(high), np.nan, high)
        z = parts["z"].numpy()
        blocks = [np.log1p(count), count, mean, deviation, low, high, gone, *shares]
        if self.sums:
            blocks += [total, *(rest[j] for j in range(C) if len(self.kept[j]) < MOST_CATEGORIES)]
        return np.concatenate([*blocks, np.where(np.isinf(z), np.nan, z)], axis=1)

    def bags(self, parts: Parts) -> list[np.ndarray]:
        """Sums of the vectors of `tables`, one array (B, P) per column that has some."""
        pieces = np.split(parts["sum"].numpy(), np.cumsum(self._widths())[:-1], axis=1)
        return pieces[3 + len(self.kept) :]

    def names(self) -> list[str]:
        """Names of the features."""
        encoder, D = self.encoder, self.encoder.numbers
        numbers = encoder.number_names or [f"x{j}" for j in range(D)]
        out = ["log_count", "count"]
        out += [f"{n}:{what}" for what in ("mean", "std", "min", "max") for n in numbers]
        out += [f"{numbers[j]}:missing" for j in encoder.gaps]
        kinds = [
            [f"{name}={encoder.vocabularies[j][c - 1]}" for c in self.kept[j]] + [f"{name}=other"]
            for j, name in enumerate(encoder.category_names or [])
        ]
        out += [f"{label}:share" for labels in kinds for label in labels]
        if self.sums:
            out += [f"{n}:sum" for n in numbers]
            out += [
                f"{label}:count"
                for j, labels in enumerate(kinds)
                if len(self.kept[j]) < MOST_CATEGORIES
                for label in labels
            ]
        if self.context is not None:
            out += self.context.number_names or [f"z{j}" for j in range(self.context.numbers)]
            for j, name in enumerate(self.context.category_names or []):
                out += [f"{name}={self.context.vocabularies[j][c - 1]}" for c in self.kept_z[j]] + [f"{name}=other"]
        return out


def describe(groups: Members) -> Columns:
    """Inner sets as members: count, mean, deviation and extremes of numbers, the most frequent category."""
    encoder = ColumnEncoder().learn(replace(groups.columns, categories=[], category_names=[]))
    encoder.scale.mean.zero_()
    encoder.scale.inverse.fill_(1)
    plain = Summaries(encoder, None)
    plain.sums = False
    no_codes = np.zeros((groups.total, 0), dtype=np.int64)
    numbers = plain.features(plain.state(groups, no_codes, None))
    D = encoder.numbers
    names = [n for n in plain.names() if not n.endswith(":missing")]
    categories = []
    for column in groups.columns.categories:
        width = len(column.values) + 1
        pairs, counts = np.unique(groups.set_ids * width + column.codes + 1, return_counts=True)
        best = np.full(len(groups), -1)
        for place in np.argsort(counts, kind="stable"):
            best[pairs[place] // width] = pairs[place] % width - 1
        categories.append(Category(best, column.values))
    return Columns(
        numbers[:, : 2 + 4 * D], categories, names[: 2 + 4 * D], groups.columns.category_names, groups.columns.schema
    )


def _layout(members: Members, weights: Tensor | None) -> Sets:
    return Sets(torch.zeros(members.total, 1, dtype=torch.float64), torch.from_numpy(members.offsets), weights=weights)


def _sum(values: Tensor, layout: Sets) -> Tensor:
    """(N, D) to (B, D); D may be 0."""
    if values.shape[1] == 0:
        return values.new_zeros(len(layout), 0)
    return segment_sum(values.contiguous(), layout, layout.weights)


def _highest(values: Tensor, layout: Sets) -> Tensor:
    return values.new_zeros(len(layout), 0) if values.shape[1] == 0 else segment_max(values.contiguous(), layout)


def _most_frequent(frequency: np.ndarray, most: int) -> np.ndarray:
    """Codes of the most frequent categories, in order of their codes."""
    return np.sort(np.argsort(-frequency, kind="stable")[:most]) + 1


def _slots(kept: np.ndarray, vocabulary: int) -> np.ndarray:
    """For each code its place among the kept categories; all others share the last place."""
    slots = np.full(vocabulary + 1, len(kept))
    slots[kept] = np.arange(len(kept))
    return slots

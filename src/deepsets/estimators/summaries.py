"""Pooled summaries of sets: count, mean, deviation, extremes, shares of categories; all of them merge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..nn import Pooling
from ..nn.kernels import segment_max, segment_sum
from ..nn.pooling import Parts
from ..sets import Sets
from .columns import Category, Columns
from .encoder import ColumnEncoder
from .layout import Members

MOST_CATEGORIES = 64  # of a column among others; a column alone (tokens) may have four times as many
MOST_SUMS = 64  # columns up to which the sum stands beside the mean
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the training members
MOST_SPLIT = 12  # categories of a column within which numbers are summarised


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
    """Summaries of sets as features for linear models and trees; all come from sums and extremes, so they merge.

    `encoder` and `context` encode the columns of members and the set-level columns.
    """

    def __init__(self, encoder: ColumnEncoder, context: ColumnEncoder | None) -> None:
        self.encoder, self.context = encoder, context
        most = MOST_CATEGORIES * (4 if len(encoder.vocabularies) == 1 and encoder.numbers == 0 else 1)
        self.kept = [_most_frequent(f, most) for f in encoder.frequencies]  # categories whose shares are features
        self.kept_z = [] if context is None else [_most_frequent(f, MOST_CATEGORIES) for f in context.frequencies]
        self.split = [_most_frequent(f, MOST_SPLIT) for f in encoder.frequencies]
        # One vector per code of a category column, summed over the members: the linear head's weights of tokens.
        self.tables: dict[int, Tensor] = {}
        # Features beside the usual ones: "quantiles" (shares of members above quantiles of all members), "products"
        # (covariances of numbers), "categories" (sum and mean of numbers within each frequent category).
        self.blocks: list[str] = []
        self.sums = encoder.numbers <= MOST_SUMS

    def possible_blocks(self) -> list[str]:
        """Blocks of a size that these columns can afford."""
        D, split = self.encoder.numbers, sum(map(len, self.split))
        fits = {"quantiles": 0 < D <= 40, "products": 2 <= D <= 12, "categories": 0 < D * split <= 150}
        return [name for name, good in fits.items() if good]

    @property
    def context_width(self) -> int:
        """Columns of `encode_context`."""
        return 0 if self.context is None else self.context.numbers + sum(len(k) + 1 for k in self.kept_z)

    def bag_columns(self) -> list[int]:
        """Category columns with too many values for shares: the linear head takes all of them, as a bag."""
        return [j for j, words in enumerate(self.encoder.vocabularies) if len(words) > MOST_CATEGORIES]

    # -------------------------------------------------------------------------------------------------- states

    def state(self, members: Members, codes: np.ndarray, context: np.ndarray | None) -> Parts:
        """State of each set, float64; `codes` (N, C) of the categories, `context` (B, Z) from `encode_context`."""
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
        sums += [_category_sums(codes[:, j], kept, members) for j, kept in enumerate(self.kept)]
        if "quantiles" in self.blocks:
            sums += [_sum((x > knot).double(), layout) for knot in self._knots()]
        if "products" in self.blocks:
            sums += [_sum(there[:, i : i + 1] * there[:, i + 1 :], layout) for i in range(there.shape[1] - 1)]
        if "categories" in self.blocks:
            for j, split in enumerate(self.split):
                sums.append(_category_sums(codes[:, j], split, members))
                sums += [_category_sums(codes[:, j], split, members, column.numpy()) for column in there.T]
        sums += [_sum(table[codes[:, j]], layout) for j, table in self.tables.items()]
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

    def _knots(self) -> Tensor:
        """(quantiles, D) quantiles of the training members, as deviations."""
        scale = self.encoder.scale
        return scale.deviations(scale.knots.T[[round(q * (scale.KNOTS - 1)) for q in QUANTILES]])

    def encode_context(self, columns: Columns | None) -> np.ndarray | None:
        """(B, Z) float64: deviations of numbers (NaN where missing) and indicators of categories."""
        if self.context is None or columns is None:
            return None
        parts = [self.context.deviations(columns)]
        codes = self.context.codes(columns, "z")
        for j, kept in enumerate(self.kept_z):
            parts.append(np.eye(len(kept) + 1)[_slots(codes[:, j], kept)])
        return np.concatenate(parts, axis=1)

    # ------------------------------------------------------------------------------------------------ features

    def _pieces(self, parts: Parts) -> dict[str, list[np.ndarray]]:
        """The sums of a state by what they are sums of."""
        D, C = self.encoder.numbers, len(self.kept)
        widths = {
            "x": [D],
            "squares": [D],
            "missing": [len(self.encoder.gaps)],
            "shares": [len(k) + 1 for k in self.kept],
        }
        if "quantiles" in self.blocks:
            widths["quantiles"] = [D * len(QUANTILES)]
        if "products" in self.blocks:
            widths["products"] = [D * (D - 1) // 2]
        if "categories" in self.blocks:
            widths["categories"] = [len(self.split[j]) + 1 for j in range(C) for _ in range(D + 1)]
        widths["tables"] = [table.shape[1] for table in self.tables.values()]
        ends = np.cumsum([0, *(w for group in widths.values() for w in group)])
        cut = iter(np.split(parts["sum"].numpy(), ends[1:-1], axis=1))
        return {name: [next(cut) for _ in group] for name, group in widths.items()}

    def features(self, parts: Parts) -> np.ndarray:
        """(B, S) summaries of states; NaN where a set has no value."""
        return np.concatenate([self.usual_features(parts), *self.block_features(parts).values()], axis=1)

    def usual_features(self, parts: Parts) -> np.ndarray:
        """Count, mean, deviation, extremes, shares of gaps and categories, sums, set-level values."""
        pieces = self._pieces(parts)
        (total,), (squares,), (missing,), counts = (pieces[k] for k in ("x", "squares", "missing", "shares"))
        count = parts["count"].numpy()[:, None]
        there = np.repeat(count, self.encoder.numbers, axis=1)
        there[:, self.encoder.gaps] -= missing
        mean = _ratio(total, there)
        deviation = np.sqrt(np.maximum(_ratio(squares, there) - mean**2, 0))
        low, high = parts["min"].numpy(), parts["max"].numpy()
        low, high = np.where(np.isinf(low), np.nan, low), np.where(np.isinf(high), np.nan, high)
        z = parts["z"].numpy()
        blocks = [np.log1p(count), count, mean, deviation, low, high]
        blocks += [_ratio(each, count) for each in (missing, *counts)]
        if self.sums:
            blocks += [total, *(c for c, kept in zip(counts, self.kept, strict=True) if len(kept) < MOST_CATEGORIES)]
        return np.concatenate([*blocks, np.where(np.isinf(z), np.nan, z)], axis=1)

    def block_features(self, parts: Parts) -> dict[str, np.ndarray]:
        """Features of each of `blocks`."""
        pieces, count = self._pieces(parts), parts["count"].numpy()[:, None]
        D, out = self.encoder.numbers, {}
        if "quantiles" in self.blocks:
            out["quantiles"] = _ratio(pieces["quantiles"][0], count)
        if "products" in self.blocks:
            first, second = np.triu_indices(D, 1)
            mean = _ratio(pieces["x"][0], count)
            out["products"] = _ratio(pieces["products"][0], count) - mean[:, first] * mean[:, second]
        if "categories" in self.blocks:
            found = []
            for j in range(0, len(pieces["categories"]), D + 1):
                members, *sums = (piece[:, :-1] for piece in pieces["categories"][j : j + D + 1])
                for total in sums:
                    found += [total, _ratio(total, count), _ratio(total, members)]
            out["categories"] = np.concatenate(found, axis=1)
        return out

    def bags(self, parts: Parts) -> list[np.ndarray]:
        """Sums of the vectors of `tables`, one array (B, P) per column that has some."""
        return self._pieces(parts)["tables"]

    def names(self) -> list[str]:
        """Names of the features."""
        encoder, D = self.encoder, self.encoder.numbers
        numbers = encoder.number_names or [f"x{j}" for j in range(D)]
        out = ["log_count", "count"]
        out += [f"{n}:{what}" for what in ("mean", "std", "min", "max") for n in numbers]
        out += [f"{numbers[j]}:missing" for j in encoder.gaps]
        labels = [_labels(encoder, j, kept) for j, kept in enumerate(self.kept)]
        out += [f"{label}:share" for column in labels for label in column]
        if self.sums:
            out += [f"{n}:sum" for n in numbers]
            out += [f"{label}:count" for column in labels if len(column) <= MOST_CATEGORIES for label in column]
        if self.context is not None:
            out += self.context.number_names or [f"z{j}" for j in range(self.context.numbers)]
            out += [label for j, kept in enumerate(self.kept_z) for label in _labels(self.context, j, kept)]
        if "quantiles" in self.blocks:
            out += [f"{n}:above_{q:.0%}" for q in QUANTILES for n in numbers]
        if "products" in self.blocks:
            out += [f"{numbers[i]}*{numbers[j]}:cov" for i, j in zip(*np.triu_indices(D, 1), strict=True)]
        if "categories" in self.blocks:
            for j, split in enumerate(self.split):
                ways, each = ("sum", "sum/count", "mean"), _labels(encoder, j, split)[:-1]
                out += [f"{n}[{label}]:{way}" for n in numbers for way in ways for label in each]
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


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Mean; NaN where there is nothing."""
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _most_frequent(frequency: np.ndarray, most: int) -> np.ndarray:
    """Codes of the most frequent categories, in order of their codes."""
    return np.sort(np.argsort(-frequency, kind="stable")[:most]) + 1


def _slots(codes: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """For each code its place among the kept ones; all others share the last place."""
    place = np.minimum(np.searchsorted(kept, codes), max(len(kept) - 1, 0))
    return np.where(kept[place] == codes, place, len(kept)) if len(kept) else np.zeros_like(codes)


def _category_sums(codes: np.ndarray, kept: np.ndarray, members: Members, values: np.ndarray | None = None) -> Tensor:
    """(B, K + 1) sums of values (default: counts) of the members of each kept category, and of all others."""
    width = len(kept) + 1
    each = members.weights if values is None else values if members.weights is None else values * members.weights
    flat = np.bincount(members.set_ids * width + _slots(codes, kept), each, minlength=len(members) * width)
    return torch.from_numpy(flat.reshape(len(members), width).astype(np.float64))


def _labels(encoder: ColumnEncoder, j: int, kept: np.ndarray) -> list[str]:
    name = (encoder.category_names or [])[j]
    return [*(f"{name}={encoder.vocabularies[j][c - 1]}" for c in kept), f"{name}=other"]

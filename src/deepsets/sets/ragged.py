"""`Sets`: a batch of sets of any size, stored flat (the layout of Arrow's ListArray)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .validation import check_parts


class Sets:
    """A batch of B sets with N elements in all, without padding.

    >>> sets = Sets.from_list([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]])
    >>> sets
    Sets(2 sets, 3 elements of 2 features, sizes 1..2, float32)
    >>> sets.values.shape, sets.offsets.tolist()
    (torch.Size([3, 2]), [0, 2, 3])
    >>> sets[0]
    tensor([[1., 2.],
            [3., 4.]])
    >>> sets[[1, 0]].sizes.tolist()
    [1, 2]

    values:  (N, ...) the elements, one set after another; with `element_ids`: (U, ...) the distinct elements.
    offsets: (B + 1,) set b holds the elements offsets[b] to offsets[b + 1].
    element_ids:   (N,) optional. Element n is `values[element_ids[n]]`: an element that stands in many sets is stored, and
             sent through phi, once.
    weights: (N,) optional. The multiplicity (or importance) of each element; poolings that can, use it.

    A batch is never changed in place: every method gives a new one that shares what it can.
    """

    values: Tensor
    offsets: Tensor
    element_ids: Tensor | None
    weights: Tensor | None

    def __init__(
        self, values: Tensor, offsets: Tensor, element_ids: Tensor | None = None, weights: Tensor | None = None
    ) -> None:
        check_parts(values, offsets, element_ids, weights)
        self.values, self.offsets, self.element_ids, self.weights = values, offsets.long(), element_ids, weights
        if element_ids is not None:
            self.element_ids = element_ids.long()
        self._set_ids: Tensor | None = None

    @classmethod
    def _trusted(
        cls, values: Tensor, offsets: Tensor, element_ids: Tensor | None = None, weights: Tensor | None = None
    ) -> Sets:
        """The parts as they are: for code whose parts come from a batch that was checked before."""
        new = object.__new__(cls)
        new.values, new.offsets, new.element_ids, new.weights, new._set_ids = (
            values,
            offsets,
            element_ids,
            weights,
            None,
        )
        return new

    # ---------------------------------------------------------------------------------------------- ways in

    @classmethod
    def from_list(cls, arrays: Iterable[Any], *, weights: Iterable[Any] | None = None) -> Sets:
        """One array (or tensor, or nested list) a set, (n_b, ...) each; `weights`: one (n_b,) array a set."""
        from .convert import from_list

        return from_list(arrays, weights)

    @classmethod
    def from_padded(cls, padded: Any, mask: Any) -> Sets:
        """From (B, M, ...) and a mask (B, M) that is True where there is an element."""
        from .convert import from_padded

        return from_padded(padded, mask)

    @classmethod
    def from_ids(cls, lists: Iterable[Iterable[Any]], vocabulary: Sequence[Any] | dict[Any, int]) -> Sets:
        """Sets of tokens: the values are the tokens' ids in the vocabulary, (N,) integers."""
        from .convert import from_ids

        return from_ids(lists, vocabulary)

    @classmethod
    def from_arrow(cls, column: Any) -> Sets:
        """From an Arrow list column; the elements are numbers or fixed-size lists of numbers. No copy."""
        from .arrow import from_arrow

        return from_arrow(column)

    @classmethod
    def from_frame(
        cls, frame: Any, *, by: str | Sequence[str], columns: Sequence[str] | None = None, weights: str | None = None
    ) -> Sets:
        """From a pandas or polars frame with a row for each member; rows of a set need not be neighbours.

        Sets come in the order in which their `by` value first appears. `columns`: the features (default: all
        others); `weights`: a column of multiplicities.
        """
        from .frame import from_frame

        return from_frame(frame, by, columns, weights)

    # --------------------------------------------------------------------------------------------- ways out

    def to_list(self) -> list[Tensor]:
        """One tensor a set, (n_b, ...): views, not copies (unless `element_ids` is used)."""
        return list(self.materialize().values.split(self.sizes.tolist()))

    def to_padded(self, fill: float = 0) -> tuple[Tensor, Tensor]:
        """(B, M, ...) filled up with `fill`, and the mask (B, M) that is True where there is an element."""
        from .convert import to_padded

        return to_padded(self, fill)

    def to_arrow(self) -> Any:
        """An Arrow list array. No copy where the values lie in CPU memory."""
        from .arrow import to_arrow

        return to_arrow(self)

    # ----------------------------------------------------------------------------------------------- counts

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def sizes(self) -> Tensor:
        """(B,) how many elements each set has."""
        return self.offsets.diff()

    @property
    def total(self) -> int:
        """N: how many elements all sets have together."""
        return self.values.shape[0] if self.element_ids is None else self.element_ids.shape[0]

    @property
    def counts(self) -> Tensor:
        """(B,) the sum of the weights of each set; without weights, the sizes. In the dtype of the values."""
        if self.weights is None:
            return self.sizes.to(self.values.dtype if self.values.is_floating_point() else torch.get_default_dtype())
        # Added in float32 at least: a sum of ones in bfloat16 stops at 256.
        weights = self.weights.to(torch.promote_types(self.weights.dtype, torch.float32))
        counts = weights.new_zeros(self.shape[0]).index_add(0, self.set_ids, weights)
        return counts.to(self.values.dtype if self.values.is_floating_point() else self.weights.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, ...): sets, then the shape of an element. Lets scikit-learn's splitters index without a copy to list.

        In an exported program `shape[0]` stays open, while `len` is the number of the example: layers use this one.
        """
        return (self.offsets.shape[0] - 1, *self.values.shape[1:])

    @property
    def width(self) -> int:
        """How many features an element has (the last axis; 1 for plain numbers or ids)."""
        return self.values.shape[-1] if self.values.ndim > 1 else 1

    @property
    def set_ids(self) -> Tensor:
        """(N,) for each element the number of its set. Computed once."""
        if torch.compiler.is_dynamo_compiling():  # what a batch keeps would become an output of the compiled graph
            return self._count_set_ids()
        if self._set_ids is None:
            self._set_ids = self._count_set_ids()
        return self._set_ids

    def _count_set_ids(self) -> Tensor:
        if torch.compiler.is_exporting():  # repeat_interleave has no ONNX form; a running count of set ends has
            ends = self.offsets[1:]
            marks = torch.zeros(self.total + 1, dtype=torch.long, device=self.device)
            return marks.index_add(0, ends, torch.ones_like(ends)).cumsum(0)[: self.total]
        return torch.repeat_interleave(self.sizes, output_size=self.total)

    # -------------------------------------------------------------------------------------- per set, per member

    def broadcast(self, per_set: Tensor) -> Tensor:
        """(B, ...) -> (N, ...): what belongs to a set, given to each of its members."""
        return per_set.index_select(0, self.set_ids)

    def materialize(self) -> Sets:
        """The same batch with every member stored where it stands, without `element_ids`."""
        if self.element_ids is None:
            return self
        new = Sets._trusted(self.values.index_select(0, self.element_ids), self.offsets, None, self.weights)
        new._set_ids = self._set_ids
        return new

    def with_values(self, values: Tensor) -> Sets:
        """The same sets with other values in the same places: what a layer gives back."""
        new = Sets._trusted(values, self.offsets, self.element_ids, self.weights)
        new._set_ids = self._set_ids
        return new

    def layout(self) -> Sets:
        """The same sets without their values and weights: what a kernel keeps for its backward pass.

        A backward pass that kept the values would keep them from being freed, or even keep itself alive.
        """
        new = Sets._trusted(self.set_ids, self.offsets, self.element_ids)
        new._set_ids = self._set_ids
        return new

    def map(self, function: Callable[[Tensor], Tensor]) -> Sets:
        """Applies a function of rows, (N, ...) -> (N, ...), to all elements at once; with `element_ids`: once an element."""
        if self.element_ids is not None and not torch.compiler.is_compiling() and self.values.shape[0] > self.total:
            # A few sets of a batch with a large store of elements: what none of them holds is left out.
            used, element_ids = self.element_ids.unique(return_inverse=True)
            new = Sets._trusted(function(self.values.index_select(0, used)), self.offsets, element_ids, self.weights)
            new._set_ids = self._set_ids
            return new
        return self.with_values(function(self.values))

    # --------------------------------------------------------------------------------------------- selection

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.to_list())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):  # scikit-learn asks for X[rows, ...]
            if len(key) != 2 or key[1] is not Ellipsis:
                raise ValueError(f"a batch of sets takes one index, or `[rows, ...]`; found {len(key)}: {key!r}.")
            key = key[0]
        if isinstance(key, int | np.integer) or (isinstance(key, Tensor) and key.ndim == 0 and key.dtype != torch.bool):
            from .select import one

            return one(self, int(key))
        from .select import rows, take

        return take(self, rows(self, key))

    @staticmethod
    def concat(batches: Sequence[Sets]) -> Sets:
        """One batch of all the sets of several batches, in their order."""
        from .select import concat

        return concat(batches)

    def sample(self, k: int, *, generator: torch.Generator | None = None) -> Sets:
        """A random subset of k elements of every set (all elements, where a set has no more than k)."""
        from .select import sample

        return sample(self, k, generator)

    # ------------------------------------------------------------------------------------------------- moves

    @property
    def device(self) -> torch.device:
        """Where the values lie."""
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self.values.dtype

    def _each(self, function: Callable[[Tensor], Tensor]) -> Sets:
        """Applies a move to all parts."""
        element_ids, weights = self.element_ids, self.weights
        return Sets._trusted(
            function(self.values),
            function(self.offsets),
            None if element_ids is None else function(element_ids),
            None if weights is None else function(weights),
        )

    def to(
        self,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        non_blocking: bool = False,
    ) -> Sets:
        """Moves all parts to a device; changes the dtype of values and weights, never of offsets or element_ids."""

        def move(part: Tensor) -> Tensor:
            floating = part.is_floating_point() or part is self.values
            return part.to(device=device, dtype=dtype if floating else None, non_blocking=non_blocking)

        return self._each(move)

    def pin_memory(self) -> Sets:
        """Copies all parts to pinned memory, for moves to a GPU that do not wait."""
        return self._each(Tensor.pin_memory)

    # ------------------------------------------------------------------------------------------------ printing

    def __repr__(self) -> str:
        shape = self.values.shape[1:]
        what = {0: "of one value", 1: f"of {shape[0] if shape else 0} features"}.get(
            len(shape), f"of shape {tuple(shape)}"
        )
        sizes = f"sizes {int(self.sizes.min())}..{int(self.sizes.max())}" if len(self) else "empty"
        parts = [f"{len(self)} sets", f"{self.total} elements {what}", sizes]
        if self.element_ids is not None:
            parts.append(f"{self.values.shape[0]} distinct")
        if self.weights is not None:
            parts.append("weighted")
        parts.append(str(self.dtype).removeprefix("torch."))
        if self.device.type != "cpu":
            parts.append(str(self.device))
        return f"Sets({', '.join(parts)})"


def _flatten(sets: Sets) -> tuple[list[Any], Any]:
    return [sets.values, sets.offsets, sets.element_ids, sets.weights], None


def _flatten_with_keys(sets: Sets) -> tuple[list[Any], Any]:
    names = ("values", "offsets", "element_ids", "weights")
    return [(torch.utils._pytree.GetAttrKey(n), getattr(sets, n)) for n in names], None


def _unflatten(parts: Iterable[Any], _: Any) -> Sets:
    return Sets._trusted(*parts)


# torch.export, ONNX and vmap see the four parts of a batch as inputs of their own.
torch.utils._pytree.register_pytree_node(
    Sets,
    _flatten,
    _unflatten,
    serialized_type_name="deepsets.Sets",
    flatten_with_keys_fn=_flatten_with_keys,
)
# Four tensors and no code: saved batches, and programs that hold one as their example, load with weights_only=True.
torch.serialization.add_safe_globals([Sets])

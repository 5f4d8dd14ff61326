"""The ragged layout: flat values and offsets, as in Arrow's ListArray and torch's jagged tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .validation import check_parts

PARTS = ("values", "offsets", "element_ids", "weights")


class Ragged:
    """Flat values and offsets, with what needs no conversion; the public class is :class:`deepsets.Sets`."""

    values: Tensor
    offsets: Tensor
    element_ids: Tensor | None
    weights: Tensor | None
    _set_ids: Tensor | None

    def __init__(
        self,
        values: Tensor,
        offsets: Tensor,
        element_ids: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        ensure_finite: bool = True,
    ) -> None:
        check_parts(values, offsets, element_ids, weights, ensure_finite=ensure_finite)
        self.values, self.offsets, self.weights, self._set_ids = values, offsets.long(), weights, None
        self.element_ids = None if element_ids is None else element_ids.long()

    @classmethod
    def unchecked(
        cls,
        values: Tensor,
        offsets: Tensor,
        element_ids: Tensor | None = None,
        weights: Tensor | None = None,
        set_ids: Tensor | None = None,
    ) -> Self:
        """Build a batch without validating it, for parts computed from a batch that was validated.

        Wrong offsets or element ids make compiled kernels read outside of the values. Never use this for data from
        a file, a network or a user; the constructor checks those, with `ensure_finite=False` where NaN is allowed.

        Parameters
        ----------
        values, offsets, element_ids, weights : Tensor
            As in :class:`Sets`; offsets and element_ids are int64.
        set_ids : Tensor, optional
            (N,) number of the set of each element, where it is known.
        """
        new = object.__new__(cls)
        new.values, new.offsets, new.element_ids, new.weights = values, offsets, element_ids, weights
        new._set_ids = set_ids
        return new

    # Pickled and torch.save'd batches may have been changed: their structure is checked again. NaN stays legal, since
    # estimators send batches with missing values to worker processes.
    def __getstate__(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in PARTS}

    def __setstate__(self, state: dict[str, Tensor | None]) -> None:
        if not isinstance(state, dict) or not set(PARTS) <= state.keys():
            raise ValueError(f"a stored batch of sets has the parts {', '.join(PARTS)}; this one has others.")
        Ragged.__init__(self, *(state[name] for name in PARTS), ensure_finite=False)  # type: ignore[arg-type]

    def __copy__(self) -> Self:
        return self._with(self.values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._each(torch.clone)

    # ---------------------------------------------------------------------------------------------- sizes, shapes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Column of objects (B, 1), one array per set, for tools that want an array: scikit-learn's bagging."""
        if self.weights is not None:
            raise ValueError("an array of sets has no place for their weights: leave them out, or keep the batch.")
        out = np.empty((len(self), 1), dtype=object)
        for i, elements in enumerate(self):
            out[i, 0] = elements.detach().cpu().numpy()
        return out

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def sizes(self) -> Tensor:
        """Number of elements of each set, (B,)."""
        return self.offsets.diff()

    @property
    def total(self) -> int:
        """Number of elements of all sets together, N."""
        return self.values.shape[0] if self.element_ids is None else self.element_ids.shape[0]

    @property
    def counts(self) -> Tensor:
        """Sum of the weights of each set, (B,), in the dtype of the values; without weights, the sizes."""
        if self.weights is None:
            return self.sizes.to(self.dtype if self.values.is_floating_point() else torch.get_default_dtype())
        # Added in float32 at least: a sum of ones in bfloat16 stops at 256.
        weights = self.weights.to(torch.promote_types(self.weights.dtype, torch.float32))
        counts = weights.new_zeros(self.shape[0]).index_add(0, self.set_ids, weights)
        return counts.to(self.dtype if self.values.is_floating_point() else self.weights.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of sets, then the shape of an element: (B, ...).

        In an exported program `shape[0]` stays symbolic, while `len` is the number of the example: layers use `shape`.
        """
        return (self.offsets.shape[0] - 1, *self.values.shape[1:])

    @property
    def width(self) -> int:
        """Number of features of an element (the last axis; 1 for plain numbers or ids)."""
        return self.values.shape[-1] if self.values.ndim > 1 else 1

    @property
    def set_ids(self) -> Tensor:
        """Number of the set of each element, (N,): PyG's `batch`. Computed once."""
        if torch.compiler.is_dynamo_compiling():  # a cached tensor would become an output of the compiled graph
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

    # -------------------------------------------------------------------------------------- per set, per element

    def _with(self, values: Tensor) -> Self:
        return self.unchecked(values, self.offsets, self.element_ids, self.weights, self._set_ids)

    def with_values(self, values: Tensor) -> Self:
        """Return the same sets with other values in the same places, as a layer does.

        Parameters
        ----------
        values : Tensor
            One row for each row of the present values.
        """
        if values.shape[:1] != self.values.shape[:1] and not torch.compiler.is_compiling():
            raise ValueError(
                f"found {values.shape[0] if values.ndim else 'no'} rows for a batch with {self.values.shape[0]}: new "
                "values need one row for each row of the old ones."
            )
        return self._with(values)

    def broadcast(self, per_set: Tensor) -> Tensor:
        """Repeat one row per set for each element of the set.

        Parameters
        ----------
        per_set : Tensor
            (B, ...)

        Returns
        -------
        Tensor
            (N, ...)
        """
        return per_set.index_select(0, self.set_ids)

    def materialize(self) -> Self:
        """Return the same batch with every element stored in its place, without `element_ids`."""
        if self.element_ids is None:
            return self
        values = self.values.index_select(0, self.element_ids)
        return self.unchecked(values, self.offsets, None, self.weights, self._set_ids)

    def layout(self) -> Self:
        """Return the same sets without their values and weights, for a kernel to keep until its backward pass.

        A backward pass that kept the values would keep them from being freed, or even keep itself alive.
        """
        return self.unchecked(self.set_ids, self.offsets, self.element_ids, None, self._set_ids)

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to the rows of all elements at once.

        Parameters
        ----------
        function : callable
            Maps rows (N, ...) to rows (N, ...), each on its own. With `element_ids` it sees each distinct element once.
        """
        if self.element_ids is not None and not torch.compiler.is_compiling() and self.values.shape[0] > self.total:
            # A few sets of a batch with many stored elements: those that none of them holds are left out.
            used, element_ids = self.element_ids.unique(return_inverse=True)
            values = function(self.values.index_select(0, used))
            return self.unchecked(values, self.offsets, element_ids, self.weights, self._set_ids)
        return self.with_values(function(self.values))

    # ------------------------------------------------------------------------------- selecting, joining, sampling

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.materialize().values.split(self.sizes.tolist()))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):  # scikit-learn indexes X[rows, ...]
            if len(key) != 2 or key[1] is not Ellipsis:
                raise ValueError(f"a batch of sets takes one index, or `[rows, ...]`; found {len(key)}: {key!r}.")
            key = key[0]
        if isinstance(key, int | np.integer) or (isinstance(key, Tensor) and key.ndim == 0 and key.dtype != torch.bool):
            if not -len(self) <= int(key) < len(self):
                raise IndexError(f"set {int(key)} was asked for, but the batch has {len(self)} sets.")
            b = int(key) % len(self)
            start, stop = self.offsets[b : b + 2].tolist()
            return self.values[start:stop] if self.element_ids is None else self.values[self.element_ids[start:stop]]
        which = self._rows(key)
        sizes = self.sizes[which]
        offsets = to_offsets(sizes)
        # Element n of the result is stored at: the start of its set in this batch + its place within the set.
        shift = self.offsets[which] - offsets[:-1]
        total = int(offsets[-1])
        places = torch.arange(total, device=self.device) + torch.repeat_interleave(shift, sizes, output_size=total)
        return self.take_elements(places, offsets)

    def _rows(self, key: Any) -> Tensor:
        """Numbers of the sets that a slice, mask or list of integers selects."""
        count = len(self)
        if isinstance(key, slice):
            return torch.arange(*key.indices(count), device=self.device)
        if not isinstance(key, Tensor):
            key = torch.from_numpy(np.array(key))  # a copy: torch takes neither reversed nor read-only arrays
        key = key.to(self.device)
        if key.dtype == torch.bool:
            if key.shape != (count,):
                raise IndexError(f"the mask has shape {tuple(key.shape)}, but the batch has {count} sets.")
            return key.nonzero().squeeze(1)
        if key.numel() == 0:
            return torch.zeros(0, dtype=torch.long, device=self.device)
        if key.ndim != 1 or key.is_floating_point():
            raise IndexError(f"sets are chosen by a vector of integers, found shape {tuple(key.shape)} of {key.dtype}.")
        bad = ((key < -count) | (key >= count)).nonzero()
        if len(bad):
            raise IndexError(f"set {int(key[bad[0]])} was asked for, but the batch has {count} sets.")
        return key.long() % count

    def take_elements(self, places: Tensor, offsets: Tensor) -> Self:
        """Regroup elements of this batch into new sets, with their weights.

        Parameters
        ----------
        places : Tensor
            Numbers of elements of this batch, 0 to N - 1, set after set of the result.
        offsets : Tensor
            Offsets of the new sets, from 0 to ``len(places)``. Neither is checked.
        """
        weights = None if self.weights is None else self.weights[places]
        if self.element_ids is not None:
            return self.unchecked(self.values, offsets, self.element_ids[places], weights)
        return self.unchecked(self.values.index_select(0, places), offsets, None, weights)

    @classmethod
    def concat(cls, batches: Sequence[Self]) -> Self:
        """Join the sets of several batches into one batch, in their order.

        Parameters
        ----------
        batches : sequence of Sets
            With elements of one shape, dtype and device; all of them with weights, or none.
        """
        if not batches:
            raise ValueError("found no batches to join.")
        first = batches[0]
        for i, batch in enumerate(batches):
            if batch.shape[1:] != first.shape[1:] or batch.dtype != first.dtype or batch.device != first.device:
                raise ValueError(
                    f"batch {i} has elements of shape {batch.shape[1:]}, {batch.dtype} on {batch.device}, but batch 0 "
                    f"of shape {first.shape[1:]}, {first.dtype} on {first.device}: they cannot be joined."
                )
            if (batch.weights is None) != (first.weights is None):
                raise ValueError(f"of the batches 0 and {i} only one has weights: give all of them weights, or none.")
        starts = np.cumsum([0, *(b.total for b in batches)]).tolist()
        offsets = torch.cat([first.offsets[:1], *(b.offsets[1:] + s for b, s in zip(batches, starts, strict=False))])
        weights = None if first.weights is None else torch.cat([b.weights for b in batches])  # type: ignore[misc]
        ids = [b.element_ids for b in batches if b.element_ids is not None and b.values is first.values]
        if len(ids) == len(batches):  # all of them share their stored elements
            return cls.unchecked(first.values, offsets, torch.cat(ids), weights)
        return cls.unchecked(torch.cat([b.materialize().values for b in batches]), offsets, None, weights)

    def sample(self, k: int, *, generator: torch.Generator | None = None) -> Self:
        """Draw a random subset of every set, without replacement.

        Parameters
        ----------
        k : int
            Elements to keep of each set; sets with at most k elements stay as they are.
        generator : torch.Generator, optional
            Source of random numbers.
        """
        if k < 1:
            raise ValueError(f"a sample needs k >= 1 elements of each set, found k={k}.")
        if not bool((self.sizes > k).any()):
            return self
        # Random keys, sorted within each set (set number + a key below 1, in double): the k smallest are the sample.
        keys = torch.rand(self.total, generator=generator, dtype=torch.float64, device=self.device)
        order = (self.set_ids + keys).argsort()
        rank = torch.arange(self.total, device=self.device) - self.broadcast(self.offsets[:-1])
        return self.take_elements(order[rank < k], to_offsets(self.sizes.clamp(max=k)))

    # ------------------------------------------------------------------------------------------- device and dtype

    @property
    def device(self) -> torch.device:
        """Device of all parts."""
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.values.dtype

    def _each(self, function: Callable[[Tensor], Tensor]) -> Self:
        parts = (getattr(self, name) for name in PARTS)
        return self.unchecked(*(None if part is None else function(part) for part in parts))  # type: ignore[arg-type]

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move all parts to a device, or change the dtype of values and weights (never of offsets or element ids).

        Parameters
        ----------
        *args, **kwargs
            As for :meth:`torch.Tensor.to`: ``to("cuda")``, ``to(torch.float64)``, ``to(device, dtype)``,
            ``to(other_tensor)``, ``non_blocking=True``.
        """
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)

        def move(part: Tensor) -> Tensor:
            cast = part is self.values or (part is self.weights and dtype is not None and dtype.is_floating_point)
            return part.to(device=device, dtype=dtype if cast else None, non_blocking=non_blocking)

        return self._each(move)

    def cuda(self, device: int | str | torch.device | None = None) -> Self:
        """Move all parts to a CUDA device (default: the current one)."""
        return self._each(lambda part: part.cuda(device))

    def cpu(self) -> Self:
        """Move all parts to CPU memory."""
        return self.to("cpu")

    def double(self) -> Self:
        """Convert values and weights to float64."""
        return self.to(torch.float64)

    def float(self) -> Self:
        """Convert values and weights to float32."""
        return self.to(torch.float32)

    def pin_memory(self) -> Self:
        """Copy all parts to pinned memory, for asynchronous transfers to a GPU."""
        return self._each(Tensor.pin_memory)


def to_offsets(sizes: Tensor) -> Tensor:
    """Convert the sizes of sets to their offsets.

    Parameters
    ----------
    sizes : Tensor of shape (B,)
        Number of members of each set.

    Returns
    -------
    Tensor of shape (B + 1,)
        Where each set begins, and where the last one ends.

    Examples
    --------
    >>> to_offsets(torch.tensor([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])

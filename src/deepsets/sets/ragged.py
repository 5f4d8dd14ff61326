"""The ragged layout: flat values and offsets, as in Arrow's ListArray and torch's jagged tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from .validation import check_parts


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
        self._set(values, offsets.long(), None if element_ids is None else element_ids.long(), weights)

    def _set(self, values: Tensor, offsets: Tensor, element_ids: Tensor | None, weights: Tensor | None) -> None:
        self.values, self.offsets, self.element_ids, self.weights = values, offsets, element_ids, weights
        self._set_ids = None

    @classmethod
    def unchecked(
        cls, values: Tensor, offsets: Tensor, element_ids: Tensor | None = None, weights: Tensor | None = None
    ) -> Self:
        """Build a batch without validating it, for parts computed from a batch that was validated.

        Wrong offsets or element ids make compiled kernels read outside of the values. Never use this for data from
        a file, a network or a user; the constructor checks those, with `ensure_finite=False` where NaN is allowed.

        Parameters
        ----------
        values, offsets, element_ids, weights : Tensor
            As in :class:`Sets`; offsets and element_ids are int64.

        Returns
        -------
        Sets
        """
        new = object.__new__(cls)
        new._set(values, offsets, element_ids, weights)
        return new

    # Pickled and torch.save'd batches may have been changed: their structure is checked again. NaN stays legal, since
    # estimators send batches with missing values to worker processes.
    def __getstate__(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in ("values", "offsets", "element_ids", "weights")}

    def __setstate__(self, state: dict[str, Tensor | None]) -> None:
        names = ("values", "offsets", "element_ids", "weights")
        if not isinstance(state, dict) or not set(names) <= state.keys():
            raise ValueError(f"a stored batch of sets has the parts {', '.join(names)}; this one has others.")
        Ragged.__init__(self, *(state[name] for name in names), ensure_finite=False)  # type: ignore[arg-type]

    def __copy__(self) -> Self:
        return self._with(self.values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._each(torch.clone)

    # ---------------------------------------------------------------------------------------------- sizes, shapes

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
            return self.sizes.to(self.values.dtype if self.values.is_floating_point() else torch.get_default_dtype())
        # Added in float32 at least: a sum of ones in bfloat16 stops at 256.
        weights = self.weights.to(torch.promote_types(self.weights.dtype, torch.float32))
        counts = weights.new_zeros(self.shape[0]).index_add(0, self.set_ids, weights)
        return counts.to(self.values.dtype if self.values.is_floating_point() else self.weights.dtype)

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
        new = self.unchecked(values, self.offsets, self.element_ids, self.weights)
        new._set_ids = self._set_ids
        return new

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
        new = self.unchecked(self.values.index_select(0, self.element_ids), self.offsets, None, self.weights)
        new._set_ids = self._set_ids
        return new

    def layout(self) -> Self:
        """Return the same sets without their values and weights, for a kernel to keep until its backward pass.

        A backward pass that kept the values would keep them from being freed, or even keep itself alive.
        """
        new = self.unchecked(self.set_ids, self.offsets, self.element_ids)
        new._set_ids = self._set_ids
        return new

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
            new = self.unchecked(function(self.values.index_select(0, used)), self.offsets, element_ids, self.weights)
            new._set_ids = self._set_ids
            return new
        return self.with_values(function(self.values))

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
        element_ids, weights = self.element_ids, self.weights
        return self.unchecked(
            function(self.values),
            function(self.offsets),
            None if element_ids is None else function(element_ids),
            None if weights is None else function(weights),
        )

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

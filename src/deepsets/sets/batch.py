"""`Sets`: the ragged batch that everything else takes and returns."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import torch

from .arrays import ArrayConversions
from .ragged import PARTS
from .tables import TableConversions


class Sets(ArrayConversions, TableConversions):
    """Ragged batch of B sets with N elements in all, without padding.

    A batch is never changed in place: every method returns a new one that shares what it can.

    Parameters
    ----------
    values : Tensor
        (N, ...) the elements, one set after another; with `element_ids`: (U, ...) the distinct elements.
    offsets : Tensor
        (B + 1,) integers: set b holds the elements ``offsets[b]`` to ``offsets[b + 1]`` (`ptr` in PyG, `cu_seqlens` in
        attention kernels).
    element_ids : Tensor, optional
        (N,) integers: element n is ``values[element_ids[n]]``. An element that is in many sets is stored, and sent
        through phi, once.
    weights : Tensor, optional
        (N,) multiplicity (or importance) of each element, not negative; used by the poolings that support it.
    ensure_finite : bool, default=True
        Whether NaN and infinity are errors.

    Attributes
    ----------
    sizes : Tensor
        (B,) number of elements of each set.
    total : int
        N.
    set_ids : Tensor
        (N,) number of the set of each element (`batch` in PyG).
    counts : Tensor
        (B,) sum of the weights of each set; without weights, the sizes.
    shape, width, device, dtype
        Of the batch, and of its values.

    Examples
    --------
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
    """

    def __repr__(self) -> str:
        shape = tuple(self.values.shape[1:])
        what = {0: "of one value", 1: f"of {self.width} features"}.get(len(shape), f"of shape {shape}")
        sizes = "empty" if not len(self) else "sizes unknown"
        if self.device.type != "meta" and len(self):
            sizes = f"sizes {int(self.sizes.min())}..{int(self.sizes.max())}"
        parts = [f"{len(self)} sets", f"{self.total} elements {what}", sizes]
        parts += [] if self.element_ids is None else [f"{self.values.shape[0]} distinct"]
        parts += [] if self.weights is None else ["weighted"]
        parts += [str(self.dtype).removeprefix("torch.")]
        parts += [] if self.device.type == "cpu" else [str(self.device)]
        return f"Sets({', '.join(parts)})"

    def _repr_html_(self, rows: int = 5) -> str:
        """Return a small table for notebooks: the first sets, their sizes and first elements."""
        caption = html.escape(repr(self))
        if self.device.type == "meta":
            return f"<p>{caption}</p>"
        lines = []
        for b in range(min(rows, len(self))):
            first = self[b][:1].flatten()
            numbers = ", ".join(f"{x:.4g}" for x in first[:6].tolist()) + (", …" if len(first) > 6 else "")
            lines.append(f"<tr><td>{b}</td><td>{len(self[b])}</td><td>{numbers}</td></tr>")
        if len(self) > rows:
            lines.append(f"<tr><td>…</td><td></td><td>{len(self) - rows} more sets</td></tr>")
        head = "<tr><th>set</th><th>size</th><th>first element</th></tr>"
        return f"<table><caption>{caption}</caption><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"


def collate(samples: Sequence[Any]) -> Any:
    """Join samples to a batch: the `collate_fn` of a `torch.utils.data.DataLoader` over sets.

    Parameters
    ----------
    samples : sequence
        Arrays (n, ...), one per set; or tuples of such an array and anything that torch's default collation joins,
        for example a target, or a target and a vector z per set.

    Returns
    -------
    Sets or tuple
        The sets; or a tuple of the sets and what was joined of the other entries.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> data = [(torch.randn(n, 3), float(n)) for n in (5, 2, 4)]
    >>> sets, target = next(iter(DataLoader(data, batch_size=2, collate_fn=collate)))
    >>> sets.sizes.tolist(), target.tolist()
    ([5, 2], [5.0, 2.0])
    """
    if not isinstance(samples[0], tuple):
        return Sets.from_list(samples)
    if len({len(sample) for sample in samples}) != 1:
        raise ValueError("samples must have the same number of entries: a set, or a set with a target, or with more.")
    sets, *others = zip(*samples, strict=True)
    return (Sets.from_list(sets), *(torch.utils.data.default_collate(list(other)) for other in others))


def _flatten_with_keys(sets: Sets) -> tuple[list[Any], Any]:
    return [(torch.utils._pytree.GetAttrKey(name), getattr(sets, name)) for name in PARTS], None


# torch.export, ONNX and vmap see the four parts of a batch as inputs of their own.
torch.utils._pytree.register_pytree_node(
    Sets,
    lambda sets: ([getattr(sets, name) for name in PARTS], None),
    lambda parts, _: Sets.unchecked(*parts),
    serialized_type_name="deepsets.Sets",
    flatten_with_keys_fn=_flatten_with_keys,
)
# Four tensors and no code: saved batches, and programs that hold one as their example, load with weights_only=True.
torch.serialization.add_safe_globals([Sets])

"""Ragged batches that make the corners: empty sets, single members, heavy tails, repeated elements, both dtypes."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from deepsets import Sets

DTYPES = (torch.float32, torch.float64)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # relative to the largest expected number


def assert_near(found: Tensor, expected: Tensor, factor: float = 1.0) -> None:
    """Equal up to rounding: the tolerance of the dtype found, relative to the largest number expected, or to 1."""
    found, expected = found.detach(), expected.detach()
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    atol = factor * TOLERANCE[found.dtype] * scale
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=0, atol=atol)


# Half of the sets hold up to two members; a few hold forty.
sizes = st.one_of(st.integers(0, 2), st.sampled_from([0, 1, 1, 2, 3, 4, 5, 7, 11, 20, 40]))


@st.composite
def ragged_batches(draw, width=3, dtypes=DTYPES, index=None, weights=None, min_sets=1):
    """A batch of sets. `index`, `weights`: True, False, or None for either."""
    counts = torch.tensor(draw(st.lists(sizes, min_size=min_sets, max_size=7)), dtype=torch.long)
    dtype = draw(st.sampled_from(dtypes))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31 - 1)))
    indexed = draw(st.booleans()) if index is None else index
    weighted = draw(st.booleans()) if weights is None else weights
    total = int(counts.sum())
    stored = draw(st.integers(1, 2 * total + 1)) if indexed else total
    values = 2 * torch.randn(stored, width, generator=generator, dtype=dtype)
    if draw(st.booleans()):  # a coarse grid: members repeat and tie
        values = values.round()
    multiplicities = None
    if weighted:
        multiplicities = torch.randint(0, 4, (total,), generator=generator).to(dtype)
        if draw(st.booleans()):
            multiplicities = multiplicities * torch.rand(total, generator=generator, dtype=dtype)
    return Sets(
        values,
        torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        torch.randint(0, stored, (total,), generator=generator) if indexed else None,
        multiplicities,
    )


def pairs(sets: Sets):
    """(elements, weights) of every set, one set after another: what the slow loops read."""
    weights = torch.ones(sets.total, dtype=sets.dtype) if sets.weights is None else sets.weights
    for b in range(len(sets)):
        yield sets[b], weights[int(sets.offsets[b]) : int(sets.offsets[b + 1])]


def keep(sets: Sets, mask: Tensor) -> Sets:
    """The same sets with only the members where the mask is True."""
    sets = sets.materialize()
    counts = torch.zeros(len(sets), dtype=torch.long).index_add(
        0, sets.set_ids[mask], torch.ones_like(sets.set_ids[mask])
    )
    weights = None if sets.weights is None else sets.weights[mask]
    return Sets(sets.values[mask], torch.cat([counts.new_zeros(1), counts.cumsum(0)]), None, weights)


def assert_same(a: Sets, b: Sets) -> None:
    """Check that two batches hold the same elements in the same places, however they are stored."""
    assert torch.equal(a.offsets, b.offsets)
    assert a.dtype == b.dtype
    assert torch.equal(a.materialize().values, b.materialize().values)
    assert (a.weights is None) == (b.weights is None)
    assert a.weights is None or torch.equal(a.weights, b.weights)

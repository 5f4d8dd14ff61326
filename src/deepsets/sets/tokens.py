"""Sets of tokens: lists of names, and rows of sparse matrices."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch

from .ragged import Ragged
from .selection import to_offsets


class TokenConversions(Ragged):
    """Conversions from discrete elements; the values are integer ids (N,), to be embedded."""

    @classmethod
    def from_ids(cls, lists: Iterable[Iterable[Any]], vocabulary: Sequence[Any] | dict[Any, int]) -> Self:
        """Build a batch from one list of tokens per set.

        Parameters
        ----------
        lists : iterable of iterables
            The tokens of each set.
        vocabulary : sequence or dict
            All tokens in the order of their ids, or a mapping from token to id.

        Examples
        --------
        >>> from deepsets import Sets
        >>> Sets.from_ids([["milk", "egg"], ["egg"]], vocabulary=["egg", "milk"])[0]
        tensor([1, 0])
        """
        ids = vocabulary if isinstance(vocabulary, dict) else {token: i for i, token in enumerate(vocabulary)}
        if len(ids) != len(vocabulary):
            seen: set[Any] = set()
            twice = next(t for t in vocabulary if t in seen or seen.add(t))  # type: ignore[func-returns-value]
            raise ValueError(f"the vocabulary has {len(vocabulary)} entries, but {twice!r} occurs twice.")
        flat: list[int] = []
        sizes: list[int] = []
        for b, tokens in enumerate(lists):
            if isinstance(tokens, str):
                raise ValueError(f"set {b} is the string {tokens!r}; expected a list of tokens.")
            before = len(flat)
            for token in tokens:
                try:
                    flat.append(ids[token])
                except KeyError:
                    raise ValueError(
                        f"set {b} holds {token!r}, which is not in the vocabulary{_similar(token, ids)}"
                    ) from None
            sizes.append(len(flat) - before)
        return cls(torch.tensor(flat, dtype=torch.long), to_offsets(torch.tensor(sizes, dtype=torch.long)))

    @classmethod
    def from_csr(cls, matrix: Any) -> Self:
        """Build a batch from the rows of a sparse matrix, for example of a bag of words.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array
            (B, vocabulary). The columns of the nonzero entries of row b are the elements of set b, the entries their
            weights, which must not be negative.

        Returns
        -------
        Sets
            Values (N,) int64 and weights (N,).

        Examples
        --------
        >>> from deepsets import Sets
        >>> from scipy.sparse import csr_array
        >>> bags = Sets.from_csr(csr_array([[0, 2, 1], [0, 0, 0]]))
        >>> bags[0], bags.weights, bags.sizes
        (tensor([1, 2]), tensor([2., 1.]), tensor([2, 0]))
        """
        if not hasattr(matrix, "tocsr"):
            raise ValueError(f"from_csr takes a scipy sparse matrix, found {type(matrix).__name__}.")
        rows = matrix.tocsr(copy=True)
        rows.eliminate_zeros()
        entries = torch.from_numpy(np.asarray(rows.data))
        if entries.is_complex():
            raise ValueError("the entries of the matrix are weights and must be real, found complex numbers.")
        weights = entries if entries.is_floating_point() else entries.to(torch.get_default_dtype())
        columns, offsets = (torch.from_numpy(part.astype(np.int64)) for part in (rows.indices, rows.indptr))
        if len(columns) and (int(columns.min()) < 0 or int(columns.max()) >= matrix.shape[1]):
            raise ValueError(f"the matrix is damaged: a column number is outside of 0..{matrix.shape[1] - 1}.")
        return cls(columns, offsets, weights=weights)


def _similar(token: Any, ids: dict[Any, int]) -> str:
    known = [t for t in ids if isinstance(t, str)]
    near = difflib.get_close_matches(token, known, 3) if isinstance(token, str) else []
    return f" of {len(ids)} tokens. Similar tokens: {', '.join(near)}." if near else f" of {len(ids)} tokens."

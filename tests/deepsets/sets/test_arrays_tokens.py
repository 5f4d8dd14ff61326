"""Lists of tokens and rows of sparse matrices to sets."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepsets import Sets


@pytest.mark.parametrize("vocabulary", [["ant", "bee", "cat"], {"ant": 0, "bee": 1, "cat": 2}])
def test_tokens_become_their_ids_in_the_vocabulary(vocabulary):
    sets = Sets.from_ids([["cat", "ant"], [], ("bee",)], vocabulary)
    assert [x.tolist() for x in sets] == [[2, 0], [], [1]]
    assert sets.dtype == torch.int64


@pytest.mark.parametrize(
    ("lists", "vocabulary", "message"),
    [
        (
            [["cat"], ["ant", "cats"]],
            ["ant", "cat"],
            r"set 1 holds 'cats', which is not in the vocabulary of 2 tokens. Similar tokens: cat",
        ),
        ([[17]], [1, 2, 3], r"set 0 holds 17, which is not in the vocabulary of 3 tokens\."),
        ([["ant"]], ["ant", "bee", "ant"], r"the vocabulary has 3 entries, but 'ant' occurs twice"),
        (["ant"], ["ant"], r"set 0 is the string 'ant'; expected a list of tokens"),
    ],
)
def test_unknown_tokens_are_refused(lists, vocabulary, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_ids(lists, vocabulary)


@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 2**31 - 1))
def test_rows_of_a_sparse_matrix_become_weighted_token_sets(rows, columns, seed):
    dense = np.random.default_rng(seed).integers(0, 3, (rows, columns))
    for matrix in (scipy.sparse.csr_array(dense), scipy.sparse.coo_matrix(dense), scipy.sparse.csc_array(dense)):
        sets = Sets.from_csr(matrix)
        assert len(sets) == rows
        for b in range(rows):
            start, stop = sets.offsets[b : b + 2].tolist()
            found = dict(zip(sets[b].tolist(), sets.weights[start:stop].tolist(), strict=True))
            assert found == {c: float(dense[b, c]) for c in range(columns) if dense[b, c]}


def test_floating_entries_keep_their_precision_and_stored_zeros_are_dropped():
    matrix = scipy.sparse.csr_array((np.array([0.5, 0.0]), np.array([1, 2]), np.array([0, 2])), shape=(1, 3))
    sets = Sets.from_csr(matrix)
    assert (sets[0].tolist(), sets.weights.tolist(), sets.weights.dtype) == ([1], [0.5], torch.float64)
    assert matrix.nnz == 2  # the caller's matrix is not changed


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(2), r"from_csr takes a scipy sparse matrix, found ndarray"),
        (scipy.sparse.csr_array([[1.0, -1.0]]), r"weights must not be negative: set 0, element 1 has weight -1.0"),
        (scipy.sparse.csr_array([[1.0, 1j]]), r"must be real, found complex numbers"),
    ],
)
def test_matrices_that_are_not_bags_are_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_csr(matrix)

"""Ranks against a plain sort; recall, reciprocal rank and median by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsets.expand.metrics import mean_reciprocal_rank, median_rank, ranks, recall_at


@given(st.lists(st.integers(0, 5), min_size=6, max_size=30), st.integers(0, 10_000))
def test_a_rank_is_the_mean_of_the_places_of_its_tie(scores, seed):
    order = np.random.default_rng(seed).permutation(len(scores)).tolist()
    query, truths = order[:2], order[2:5]
    left = sorted((s for i, s in enumerate(scores) if i not in query), reverse=True)
    slow = [np.mean([p for p, s in enumerate(left, 1) if s == scores[t]]) for t in truths]
    found = ranks(np.array([scores]), [truths], [query])
    np.testing.assert_allclose(found[0], slow)


def test_without_ties_a_rank_is_a_place():
    scores = np.array([[0.4, 0.9, -np.inf, 0.1], [1, 2, 3, 4]])
    found = ranks(scores, truths=[[1, 2, 3], [0]])
    assert [r.tolist() for r in found] == [[1, 4, 3], [4]]


def test_the_order_of_the_vocabulary_neither_helps_nor_hurts():
    found = ranks(np.zeros((1, 9)), [range(9)])[0]
    assert (found == 5).all()


def test_recall_is_a_mean_over_queries_and_the_others_over_all_truths():
    found = [np.array([1.0, 2, 4, 100]), np.array([10.0])]
    assert recall_at(found, 10) == pytest.approx((3 / 4 + 1) / 2)
    assert mean_reciprocal_rank(found) == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 100 + 1 / 10) / 5)
    assert median_rank(found) == 4


def test_what_cannot_be_ranked_is_named():
    with pytest.raises(ValueError, match=r"found scores of shape \(2, 3\), 1 lists of truths"):
        ranks(np.zeros((2, 3)), [[0]])
    with pytest.raises(ValueError, match="query 0: 2 is a truth and excluded"):
        ranks(np.zeros((1, 3)), [[2]], [[1, 2]])
    with pytest.raises(ValueError, match="query 1: the score of candidate 2 is NaN"):
        ranks(np.array([[0, 0, 0], [0, 0, np.nan]]), [[0], [0]])
    with pytest.raises(ValueError, match="query 1 has no truths"):
        recall_at([np.array([1.0]), np.array([])], 10)
    with pytest.raises(ValueError, match="there are no queries"):
        median_rank([])

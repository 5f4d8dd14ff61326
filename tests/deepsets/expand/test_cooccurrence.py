"""Expanders that count, against plain loops and textbook matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsets.expand import EASE, ItemItem, Popularity, odd_member


def some_sets(seed, count, elements):
    rng = np.random.default_rng(seed)
    return [np.flatnonzero(rng.random(elements) < 0.4).tolist() or [0] for _ in range(count)]


def dense(sets, elements):
    table = np.zeros((len(sets), elements))
    for row, members in zip(table, sets, strict=True):
        row[members] = 1
    return table


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30))
def test_item_item_is_a_sum_of_cosines(seed, count):
    sets = some_sets(seed, count, 9)
    both = dense(sets, 9).T @ dense(sets, 9)
    n = np.maximum(np.diag(both), 1)
    query = [1, 4, 7]
    slow = [sum(both[x, m] / np.sqrt(n[x] * n[m]) for m in query) for x in range(9)]
    expander = ItemItem().fit(sets, vocabulary=range(9))
    np.testing.assert_allclose(expander.score(query), slow, rtol=1e-4, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([4, 40]), st.sampled_from([1.0, 30.0]))
def test_ease_is_its_formula_with_more_or_fewer_sets_than_elements(seed, count, ridge):
    sets = some_sets(seed, count, 9)
    inverse = np.linalg.inv(dense(sets, 9).T @ dense(sets, 9) + ridge * np.eye(9))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    found = EASE(ridge).fit(sets, vocabulary=range(9)).scores([[1, 4, 7], [0]])
    np.testing.assert_allclose(found, [weights[[1, 4, 7]].sum(0), weights[0]], rtol=1e-3, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([4, 40]), st.sampled_from([1.0, 30.0]))
def test_the_intercept_of_ease_is_an_element_of_every_set_with_ridge_one(seed, count, ridge):
    sets = some_sets(seed, count, 9)
    table = np.column_stack([dense(sets, 9), np.ones(count)])
    inverse = np.linalg.inv(table.T @ table + np.diag([ridge] * 9 + [1.0]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    found = EASE(ridge, intercept=True).fit(sets, vocabulary=range(9)).scores([[1, 4, 7], [0]])
    wanted = [weights[[1, 4, 7, 9]].sum(0)[:9], weights[[0, 9]].sum(0)[:9]]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("copies", [1, 20])  # fewer sets than elements, and more
@pytest.mark.parametrize(("ridge", "intercept"), [(1.0, False), (1.0, True), (30.0, True)])
def test_ease_finds_the_odd_member_whatever_its_frequency(copies, ridge, intercept):
    food, tools = ["milk", "bread", "butter", "jam"], ["hammer", "nails", "saw", "drill"]
    sets = [food[:3], food[1:], *[tools[:3], tools[1:]] * 2] * copies  # tools are more frequent
    expander = EASE(ridge, intercept=intercept).fit(sets)
    assert odd_member(expander, ["bread", "nails", "butter"]) == 1
    assert odd_member(expander, ["nails", "saw", "bread"]) == 2
    assert expander.fits(["bread", "nails", "butter"]).argmin() == 1


def test_of_two_members_that_fit_equally_little_none_is_odd():
    sets = [["milk", "bread", "butter"], ["bread", "butter", "jam"], ["hammer", "nails", "saw"], ["saw", "nails"]] * 15
    expander = EASE(3.0).fit(sets)
    np.testing.assert_allclose(*expander.fits(["milk", "jam", "bread"])[:2])  # each speaks against the other
    assert odd_member(expander, ["milk", "jam", "bread"]) is None


def test_ease_of_many_elements_keeps_the_frequent_ones(monkeypatch):
    from deepsets.expand import cooccurrence

    monkeypatch.setattr(cooccurrence, "_LARGEST", 3)
    expander = EASE(1.0).fit([["a", "b", "c"], ["a", "b"], ["a", "c"], ["b", "d"]])
    assert expander.score(["a"], ["d"])[0] == 0
    assert expander.score(["a"], ["b"])[0] != 0


def test_popularity_counts_sets_whatever_the_query():
    expander = Popularity().fit([["a", "b"], ["b", "c", "b"], ["b"]])
    np.testing.assert_array_equal(expander.score(["c"]), [1, 3, 1])


def test_a_ridge_must_be_positive():
    with pytest.raises(ValueError, match="ridge must be positive, found 0"):
        EASE(0).fit([["a", "b"]])

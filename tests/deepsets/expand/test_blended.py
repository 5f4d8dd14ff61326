"""BlendedExpander: its evidence against plain loops, what it leaves out, what it learns."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from deepsets.expand import BlendedExpander
from deepsets.expand.blended import Evidence, whiten

WORDS = [f"w{i}" for i in range(40)]


def some_members(rng, sets=6, elements=12):
    return sp.csr_array((rng.random((sets, elements)) < 0.4).astype(np.float32))


def some_evidence(rng, members):
    count = members.shape[1]
    vectors = rng.normal(size=(count, 5)).astype(np.float32)
    return Evidence(members, rng.normal(size=(count, 2)), whiten(vectors, rng.random(count) < 0.8))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_the_evidence_knows_nothing_of_the_set_left_out(seed, n):
    rng = np.random.default_rng(seed)
    members = some_members(rng)
    evidence = some_evidence(rng, members)
    query, t = rng.choice(12, n, replace=False), int(rng.integers(6))
    found = evidence(evidence.encode(query, t))
    dense = members.toarray()
    dense[t] = 0  # the set is there, but empty: the counts of sets and of elements a set stay as they were
    other = Evidence(sp.csr_array(dense), evidence.traits, evidence.table)
    other.size = evidence.size
    encoded = other.encode(query, t)
    np.testing.assert_allclose(found, other(encoded), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        evidence.quick_scores(evidence.encode(query, t)), other.quick_scores(encoded), rtol=1e-5, atol=1e-5
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_common_sets_are_counted_as_a_loop_counts_them(seed):
    rng = np.random.default_rng(seed)
    members = some_members(rng)
    evidence = some_evidence(rng, members)
    query = rng.choice(12, 3, replace=False)
    dense = members.toarray()
    slow = [sum(dense[t, q] for t in range(6) for q in query if dense[t, c]) for c in range(12)]
    found = evidence(evidence.encode(query))
    np.testing.assert_allclose(np.expm1(found[:, 0]), slow, atol=1e-4)
    some = np.array([7, 2])
    np.testing.assert_allclose(evidence(evidence.encode(query), some), found[some], rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    vectors = np.concatenate([np.eye(4)[i // 10][None] * 2 + rng.normal(size=(1, 4)) * 0.5 for i in range(40)])
    sets = [[WORDS[i] for i in rng.choice(10, 6, replace=False) + 10 * (t % 4)] for t in range(24)]
    pair = WORDS[:36], vectors[:36].astype(np.float32)
    expander = BlendedExpander(vectors=pair, epochs=12, random_state=3)
    return expander.fit(sets, vocabulary=WORDS, validation=sets[:2])


def test_the_rest_of_a_concept_goes_before_negatives(fitted):
    for start in (0, 10, 20):
        found = fitted.expand([f"w{start}", f"w{start + 3}"], k=5)
        assert all(start <= int(candidate.element[1:]) < start + 10 for candidate in found)
    assert fitted.fits(["w0", "w1", "w25", "w4"]).argmin() == 2
    assert fitted.history_[-1]["loss"] < 0.5 * fitted.history_[0]["loss"]


def test_the_order_of_the_query_changes_nothing(fitted):
    there, back = fitted.score(["w1", "w5", "w37"]), fitted.score(["w37", "w5", "w1"])
    np.testing.assert_array_equal(there, back)
    np.testing.assert_allclose(
        fitted.score(["w1", "w5"], ["w7", "w30"]), fitted.score(["w1", "w5"])[[7, 30]], atol=1e-5
    )
    assert fitted.scores([["w1"], ["w2", "w3"]]).shape == (2, 40)


def test_the_same_seed_gives_the_same_expander_and_leaves_the_global_state_alone(fitted):
    import torch

    sets = [["a", "b", "c"], ["b", "c", "d"], ["e", "f", "g"]]
    before = torch.random.get_rng_state()
    one, two = (BlendedExpander(epochs=2, random_state=1).fit(sets).score(["a", "b"]) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())


def test_it_is_saved_and_loaded(fitted, tmp_path):
    from deepsets.io import load, save

    save(fitted, tmp_path / "model")
    np.testing.assert_allclose(load(tmp_path / "model").score(["w1", "w5"]), fitted.score(["w1", "w5"]), rtol=1e-4)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"query must be the smallest and the largest size of a query, found \(3, 2\)"):
        BlendedExpander(query=(3, 2)).fit([["a", "b"], ["b", "c"]])
    with pytest.raises(ValueError, match="wanted at least two sets of two members"):
        BlendedExpander().fit([["a", "b"], ["c"]])

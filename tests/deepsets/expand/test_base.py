"""What all expanders promise: sets in, the best elements out, bad input refused in words."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import deepsets
from deepsets import Sets
from deepsets.expand import (
    BaseExpander,
    BayesianSets,
    NearestVectors,
    RandomExpander,
    SetExpander,
    UnknownElementWarning,
    odd_member,
    top_k,
)
from deepsets.io import ModelFolderError

TREES, CATS, COLOURS = ["oak", "elm", "fir", "ash", "yew"], ["lion", "puma", "lynx", "tiger"], ["red", "blue", "green"]
WORDS = TREES + CATS + COLOURS
SETS = [group[:i] + group[i + 1 :] for group in (TREES, CATS, COLOURS) for i in range(len(group))]
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), 6)) * 0.3
for _group, _axis in ((TREES, 0), (CATS, 1), (COLOURS, 2)):
    VECTORS[[WORDS.index(w) for w in _group], _axis] += 2
ITEMS = (WORDS, VECTORS)
QUICK = {"epochs": 40, "batch_size": 4, "negatives": 16, "learning_rate": 0.01, "query": (1, 4), "phi": (32, 32)}
QUICK |= {"rho": (32, 16), "embedding": 16}

MAKE = {
    "bayes, sets": lambda: BayesianSets().fit(SETS, vocabulary=WORDS),
    "bayes, beta": lambda: BayesianSets("beta").fit(items=(WORDS, (VECTORS > 1).astype(int))),
    "bayes, gauss": lambda: BayesianSets("gauss", strength=10).fit(items=ITEMS),
    "nearest": lambda: NearestVectors(ITEMS, components=0).fit(SETS, vocabulary=WORDS),
    "nearest, items": lambda: NearestVectors(components=0).fit(items=ITEMS),
    "random": lambda: RandomExpander().fit(SETS, vocabulary=WORDS),
    "sum": lambda: SetExpander(**QUICK).fit(SETS, vocabulary=WORDS),
    "max": lambda: SetExpander("max", **QUICK).fit(SETS, vocabulary=WORDS),
    "sum, concat": lambda: SetExpander(concat=True, loss="softmax", **QUICK).fit(SETS, vocabulary=WORDS),
    "max, concat": lambda: SetExpander("max", concat=True, **QUICK).fit(SETS, vocabulary=WORDS),
    "features": lambda: SetExpander(**QUICK | {"embedding": 0}).fit(SETS, items=ITEMS),
    "both": lambda: SetExpander(embedding_dropout=0.2, dropout=0.1, **QUICK).fit(SETS, items=ITEMS),
    "vectors": lambda: SetExpander(vectors=(WORDS[1:], VECTORS[1:]), **QUICK).fit(SETS, vocabulary=WORDS),
}
_MADE: dict[str, BaseExpander] = {}


@pytest.fixture(params=list(MAKE))
def expander(request):
    if request.param not in _MADE:
        _MADE[request.param] = MAKE[request.param]()
    return _MADE[request.param]


def bayes() -> BayesianSets:
    return BayesianSets().fit(SETS, vocabulary=WORDS)


# --------------------------------------------------------------------------------------------------- what it is for


def test_it_finds_the_others_and_the_odd_member(expander):
    if isinstance(expander, RandomExpander):
        assert len({c.element for c in expander.expand(["oak", "elm", "fir"], k=9)}) == 9
        return
    assert {c.element for c in expander.expand(["oak", "elm", "fir"], k=2)} == {"ash", "yew"}
    if getattr(expander, "kind_", None) != "gauss":  # twelve words are too few to know six variances by
        assert expander.fits(["oak", "elm", "lion", "fir", "ash"]).argmin() == 2


@given(st.permutations(["oak", "elm", "fir"]), st.sampled_from(CATS + COLOURS), st.integers(0, 3), st.booleans())
def test_the_odd_member_is_named_wherever_it_stands_and_only_where_it_is_clear(trees, other, place, twice):
    query = [*trees[:place], other, *trees[place:]]
    assert odd_member(bayes(), query + [other] * twice) == place
    assert odd_member(bayes(), query, fits=bayes().fits(query)) == place
    assert odd_member(bayes(), trees) is None  # nobody is odd
    assert odd_member(bayes(), [trees[0], other, other]) is None  # of two, which?


def test_where_nothing_goes_together_nobody_is_odd():
    groups = [[f"{name}{i}" for i in range(6)] for name in "abc"]
    expander = BayesianSets().fit([group[:i] + group[i + 1 :] for group in groups for i in range(6)])
    assert odd_member(expander, ["a0", "b0", "c0"]) is None
    assert odd_member(expander, ["a0", "b0", "a1"]) == 1


def test_an_unknown_member_is_named_when_the_odd_one_is_asked_for():
    with pytest.raises(ValueError, match=r"the query: not in the vocabulary of 12: 'oack'"):
        odd_member(bayes(), ["oack", "elm", "lion"])
    with pytest.raises(ValueError, match="'oack'"):
        odd_member(bayes(), ["oack", "elm"])
    assert odd_member(bayes(), np.array(["oak", "lion", "elm"])) == 1


def test_order_and_repetition_in_a_query_change_nothing(expander):
    once = expander.score(["oak", "lion", "elm", "red"])
    np.testing.assert_array_equal(expander.score(["red", "elm", "oak", "lion"]), once)
    np.testing.assert_array_equal(expander.score(["oak", "lion", "oak", "elm", "red", "red"]), once)


def test_many_queries_score_as_one_by_one(expander):
    queries = [["oak"], ["lion", "puma", "red"], ["red", "blue"]]
    together = expander.scores(queries)
    assert together.shape == (3, len(WORDS))
    np.testing.assert_allclose(together, [expander.score(q) for q in queries], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(expander.scores(Sets.from_ids(queries, WORDS)), together)


def test_some_candidates_score_as_among_all(expander):
    wanted = ["yew", "red", "yew"]
    every = expander.score(["oak", "elm"])
    places = [WORDS.index(w) for w in wanted]
    np.testing.assert_allclose(expander.score(["oak", "elm"], wanted), every[places], rtol=1e-5, atol=1e-5)


def test_expand_is_the_sorted_list_without_query_and_excluded(expander):
    scores = expander.score(["oak", "elm"])
    order = [i for i in np.argsort(-scores, kind="stable") if WORDS[i] not in ("oak", "elm", "yew")]
    found = expander.expand(["oak", "elm"], k=4, exclude=["yew"])
    assert [(c.element, c.score) for c in found] == [(WORDS[i], pytest.approx(scores[i])) for i in order[:4]]


def test_fits_leaves_each_member_out(expander):
    query = ["oak", "red", "elm"]
    slow = [expander.score([o for o in query if o != m], [m])[0] for m in query]
    if isinstance(expander, SetExpander):
        slow = [
            s - np.logaddexp.reduce(expander.score([o for o in query if o != m]))
            for s, m in zip(slow, query, strict=True)
        ]
    np.testing.assert_allclose(expander.fits(query), slow, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(expander.fits([*query, "red"]), [*slow, slow[1]], rtol=1e-5, atol=1e-5)


def test_a_saved_expander_answers_the_same(expander, tmp_path):
    loaded = deepsets.load(deepsets.save(expander, tmp_path / "model"))
    assert type(loaded) is type(expander)
    assert loaded.vocabulary_ == expander.vocabulary_
    queries = [["oak", "elm"], ["red"]]
    np.testing.assert_array_equal(loaded.scores(queries), expander.scores(queries))
    if expander.n_features_in_:
        rows = np.ones((2, expander.n_features_in_), dtype=np.float32)
        np.testing.assert_array_equal(loaded.score(["oak"], rows), expander.score(["oak"], rows))
    assert "model.expand(['oak', 'elm'], k=10)" in (tmp_path / "model" / "README.md").read_text()


# -------------------------------------------------------------------------------------------------------- features

FEATURED = ["bayes, beta", "bayes, gauss", "nearest, items", "features"]


@pytest.mark.parametrize("name", FEATURED)
def test_rows_score_as_the_elements_they_describe(name):
    expander = _MADE.get(name) or MAKE[name]()
    table = (VECTORS > 1).astype(int) if name == "bayes, beta" else VECTORS
    tokens, rows = ["oak", "elm", "lion"], table[[WORDS.index(w) for w in ("oak", "elm", "lion")]]
    every = expander.score(tokens)
    for query in (tokens, rows, sp.csr_array(rows)):
        np.testing.assert_allclose(expander.score(query, table), every, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(expander.score(query), every, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(expander.fits(rows), expander.fits(tokens), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(expander.score(rows, ["yew", "red"]), every[[4, 9]], rtol=1e-4, atol=1e-4)
    assert len(expander.expand(rows, k=100)) == len(WORDS)  # rows are nobody of the vocabulary


def test_items_may_be_a_dict_or_a_matrix_alone():
    pair = NearestVectors(components=0).fit(items=ITEMS)
    as_dict = NearestVectors(components=0).fit(items=dict(zip(WORDS, VECTORS, strict=True)))
    matrix = NearestVectors(components=0).fit(items=VECTORS)
    np.testing.assert_array_equal(pair.score(["oak"]), as_dict.score(["oak"]))
    np.testing.assert_array_equal(pair.score(["oak"]), matrix.score([0]))
    assert matrix.vocabulary_ == list(range(len(WORDS)))


def test_the_vocabulary_is_items_first_then_what_the_sets_add():
    expander = BayesianSets().fit([["b", "c"], ["a", "c"]], items=["x", "a"])
    assert expander.vocabulary_ == ["x", "a", "b", "c"]


def test_sets_of_ids():
    ids = Sets.from_ids(SETS, WORDS)
    np.testing.assert_array_equal(BayesianSets().fit(ids, vocabulary=WORDS).score(["oak"]), bayes().score(["oak"]))
    assert BayesianSets().fit(ids).expand([0], k=1)[0].element in range(1, 5)


def test_words_without_a_vector_come_last_in_their_order():
    expander = NearestVectors((WORDS, VECTORS)).fit([["oak", "nowhere"], ["red", "neither"]], items=WORDS)
    assert [c.element for c in expander.expand(["oak"], k=99)][-2:] == ["nowhere", "neither"]
    assert np.isneginf(expander.score(["oak"], ["neither", "nowhere"])).all()
    np.testing.assert_array_equal(expander.score(["oak", "nowhere"]), expander.score(["oak"]))
    assert (expander.score(["nowhere"], WORDS) == 0).all()


# ------------------------------------------------------------------------------------------------------- best of all


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 45), st.integers(0, 99))
def test_top_is_a_stable_sort(scores, k, seed):
    left = np.random.default_rng(seed).random(len(scores)) < 0.8
    slow = [i for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)) if left[i]][:k]
    assert top_k(np.array(scores, dtype=float), k, left).tolist() == slow


@settings(max_examples=20)
@given(st.permutations(WORDS), st.integers(1, 5))
def test_any_order_of_the_training_sets_gives_the_same_scores(order, size):
    shuffled = [sorted(s, key=order.index) for s in SETS]
    a, b = bayes(), BayesianSets().fit(shuffled, vocabulary=WORDS)
    np.testing.assert_array_equal(a.score(order[:size]), b.score(order[:size][::-1]))


# --------------------------------------------------------------------------------------------------------- bad input


def test_nothing_is_asked_before_fit(tmp_path):
    for kind in (BayesianSets, NearestVectors, RandomExpander, SetExpander):
        for ask in ("expand", "score", "fits", "scores"):
            with pytest.raises(NotFittedError, match=f"this {kind.__name__} is not fitted yet"):
                getattr(kind(), ask)(["oak"])
        with pytest.raises(NotFittedError, match="nothing to save"):
            deepsets.save(kind(), tmp_path / "none")
        clone(kind())


def test_unknown_members_are_skipped_and_named():
    wanted = bayes().expand(["oak", "elm"])
    with pytest.warns(
        UnknownElementWarning, match=r"the query: skipped .* of 12: 'tigre' \(did you mean tiger\?\); 'qqq'\."
    ):
        assert bayes().expand(["oak", "tigre", "elm", "qqq"]) == wanted
    with pytest.warns(UnknownElementWarning, match="query 1: skipped what is not in the vocabulary of 12: 'elk'"):
        np.testing.assert_array_equal(bayes().scores([["oak"], ["elk", "elm"]]), bayes().scores([["oak"], ["elm"]]))
    with pytest.warns(UnknownElementWarning, match="`exclude`: skipped what is not in the vocabulary of 12: 'elk'"):
        assert bayes().expand(["oak", "elm"], exclude=["elk"]) == wanted
    with pytest.warns(UnknownElementWarning, match="`not_like`: skipped what is not in the vocabulary of 12: 'elk'"):
        assert bayes().expand(["oak", "elm"], not_like=["elk"]) == wanted


def test_unknown_members_are_an_error_where_none_is_known_or_all_are_needed():
    with pytest.raises(ValueError, match=r"the query: none of its members is in the vocabulary of 12: 'tigre' \(did"):
        bayes().expand(["tigre", "qqq"])
    with pytest.raises(ValueError, match=r"'w0'; .* and 2 more\."):
        bayes().score([f"w{i}" for i in range(7)])
    with pytest.raises(ValueError, match=r"the candidates: not in the vocabulary of 12: 'elk'"):
        bayes().score(["oak"], ["elk"])
    with pytest.raises(ValueError, match=r"the query: not in the vocabulary of 12: 'elk'"):
        bayes().fits(["oak", "elk", "elm"])


def test_text_capitals_commas_and_quotes_are_read_alike(expander):
    wanted = expander.expand(["oak", "elm", "fir"], k=5)
    for query in (
        "oak, elm, fir",
        "OAK Elm fir",
        '"oak" "elm" fir',
        ["Oak,", "elm,", "FIR"],
        ["oak, elm", "fir"],
        ("oak", "elm", "fir"),
    ):
        assert expander.expand(query, k=5) == wanted


def test_negative_examples_move_what_is_like_them_down():
    near = NearestVectors(ITEMS, components=0).fit(SETS, vocabulary=WORDS)
    plain = near.score(["oak", "lion"])
    found = near.expand(["oak", "lion"], k=10, not_like=["tiger"])
    names = [c.element for c in found]
    assert "tiger" not in names
    assert max(names.index(t) for t in ("elm", "fir", "ash", "yew")) < min(names.index(c) for c in ("puma", "lynx"))
    against = near.score(["tiger"])
    slow = (plain - plain.mean()) / plain.std() - np.maximum((against - against.mean()) / against.std(), 0)
    np.testing.assert_allclose([c.score for c in found], [slow[WORDS.index(w)] for w in names], rtol=1e-5)
    rows = near.expand(["oak", "lion"], k=11, not_like=VECTORS[[WORDS.index("tiger")]])
    assert "tiger" in [c.element for c in rows]  # rows of features are no elements


def test_an_explanation_names_the_members_an_element_goes_with():
    found = bayes().explain(["lion", "oak", "puma"], "lynx")
    assert found.element == "lynx"
    assert [m.element for m in found.members][-1] == "oak"
    assert found.members[0].score > 0.5 > found.members[-1].score >= 0
    assert found.sets == []
    with pytest.raises(ValueError, match="the element: not in the vocabulary of 12: 'elk'"):
        bayes().explain(["lion"], "elk")


def test_as_many_candidates_as_elements_are_scored_in_their_own_order():
    for name in ("nearest", "nearest, items", "bayes, sets"):
        expander = _MADE.get(name) or MAKE[name]()
        every = expander.score(["oak", "elm"])
        back = expander.score(["oak", "elm"], WORDS[::-1])
        np.testing.assert_allclose(back, every[::-1], rtol=1e-5, atol=1e-6)
        same = expander.score(["oak", "elm"], ["lion"] * len(WORDS))
        np.testing.assert_allclose(same, every[WORDS.index("lion")], rtol=1e-5, atol=1e-6)


def test_queries_that_ask_nothing():
    with pytest.raises(ValueError, match="the query is empty: wanted at least one member"):
        bayes().expand([])
    with pytest.raises(ValueError, match="query 1 is empty"):
        bayes().scores([["oak"], []])
    with pytest.raises(ValueError, match="query 0 is empty"):
        bayes().scores(Sets(torch.tensor([], dtype=torch.long), torch.tensor([0, 0])))
    with pytest.raises(ValueError, match="the query is 'oak'; wanted a list of elements"):
        bayes().fits("oak")
    with pytest.raises(ValueError, match="a query is a list of elements, found 7"):
        bayes().expand(7)
    with pytest.raises(ValueError, match="at least 2 different members"):
        bayes().fits(["oak", "oak"])
    with pytest.raises(ValueError, match=r"the query holds \[1\.0, 2\.0\], which is not hashable"):
        bayes().score([[1.0, 2.0]])


def test_k_and_what_is_left():
    assert len(bayes().expand(["oak"], k=1000)) == 11
    with pytest.raises(ValueError, match="k must be at least 1, found 0"):
        bayes().expand(["oak"], k=0)
    with pytest.raises(ValueError, match=r"no candidate is left: .* all 12 elements"):
        bayes().expand(WORDS[:4], exclude=WORDS[4:])


def test_features_of_another_width():
    expander = NearestVectors(components=0).fit(items=ITEMS)
    with pytest.raises(ValueError, match="the query: rows of 5 features were given, but the items have 6"):
        expander.score(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="the candidates: rows of 7 features were given, but the items have 6"):
        expander.score(["oak"], np.zeros((2, 7)))
    with pytest.raises(ValueError, match="the candidates: features must be finite, found NaN or inf in row 1"):
        expander.score(["oak"], np.array([[0.0] * 6, [np.nan] * 6]))
    with pytest.raises(ValueError, match="fitted on tokens without features"):
        bayes().score(["oak"], np.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"'b' has features of shape \(1,\), but 'a' of shape \(2,\)"):
        BayesianSets().fit(items={"a": [1, 0], "b": [1]})
    with pytest.raises(ValueError, match="found 2 names for a matrix of 12 rows"):
        BayesianSets().fit(items=(["a", "b"], VECTORS))


def test_what_cannot_be_learnt_from():
    with pytest.raises(ValueError, match="no set and no item holds an element"):
        BayesianSets().fit([])
    with pytest.raises(ValueError, match="a SetExpander learns from sets: found none"):
        SetExpander().fit([[], []], items=WORDS)
    with pytest.raises(ValueError, match="no set has two members"):
        SetExpander().fit([["oak"], ["elm"]])
    with pytest.raises(ValueError, match="set 1 is 'oak'; wanted a list"):
        BayesianSets().fit([["oak"], "oak"])
    with pytest.raises(ValueError, match="set 0 holds a list, which is not hashable"):
        BayesianSets().fit([[[1.0, 2.0]]])
    with pytest.raises(ValueError, match=r"set 0 holds an element that is not among the 2 items: 'elk'"):
        BayesianSets().fit([["elk"]], vocabulary=["oak", "elm"])
    with pytest.raises(ValueError, match="the vocabulary holds 'oak' twice"):
        BayesianSets().fit([["oak"]], vocabulary=["oak", "elm", "oak"])
    with pytest.raises(ValueError, match="set 0 holds the id 7; wanted 0 to 1"):
        BayesianSets().fit(Sets(torch.tensor([0, 7]), torch.tensor([0, 2])), vocabulary=["oak", "elm"])
    with pytest.raises(ValueError, match="NearestVectors needs vectors"):
        NearestVectors().fit(SETS)
    with pytest.raises(ValueError, match=r"vectors are a dict .* found list"):
        NearestVectors([1, 2]).fit(SETS)
    with pytest.raises(ValueError, match="as `vocabulary` or as `items`, not both"):
        BayesianSets().fit(SETS, items=WORDS, vocabulary=WORDS)
    with pytest.raises(ValueError, match="pool must be one of sum, max; found 'mean'"):
        SetExpander("mean").fit(SETS)
    with pytest.raises(ValueError, match="with embedding=0 elements need features"):
        SetExpander(embedding=0).fit(SETS)


def test_z_is_wanted_where_it_was_given_and_only_there():
    with pytest.raises(ValueError, match="a BayesianSets is not conditioned on z"):
        BayesianSets().fit(SETS, z=np.zeros((len(SETS), 2)))
    with pytest.raises(ValueError, match="was fitted with no z; z was given"):
        bayes().expand(["oak"], z=[1.0])
    with pytest.raises(ValueError, match=r"z must have a row for each set, shape \(12, Z\); found \(3, 2\)"):
        SetExpander(epochs=1).fit(SETS, z=np.zeros((3, 2)))


def test_tokens_that_no_folder_keeps(tmp_path):
    expander = BayesianSets().fit([[("a", 1), ("b", 2)], [("a", 1), ("c", 3)]])
    assert expander.expand([("a", 1)], k=1)[0].element == ("b", 2)
    with pytest.raises(ModelFolderError, match=r"the vocabulary holds \('a', 1\), a tuple"):
        deepsets.save(expander, tmp_path / "model")

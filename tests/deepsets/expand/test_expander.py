"""The default expander: its blend, its parts, new items, its state."""

import numpy as np
import pytest

import deepsets
from deepsets.expand import Expander, Popularity, evaluate, odd_member
from deepsets.expand.expander import METHODS
from deepsets.expand.metrics import ranks, recall_at

QUICK = ("popularity", "item-item", "ease", "ease-intercept", "bayesian-sets", "latent-vectors")


def baskets(seed, count=240, groups=6, each=8):
    """Baskets of one group of items each, with some items that everybody buys."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        group = int(rng.integers(groups))
        own = [f"g{group}i{i}" for i in rng.choice(each, 4, replace=False)]
        out.append(own + [f"p{i}" for i in range(3) if rng.random() < 0.4])
    return out


@pytest.fixture(scope="module")
def fitted():
    return Expander(QUICK).fit(baskets(0))


def recall(expander, sets, k=5):
    words = {w: i for i, w in enumerate(expander.vocabulary_)}
    scores = expander.scores([members[1:] for members in sets])
    ids = [[words[w] for w in members] for members in sets]
    return recall_at(ranks(scores, [i[:1] for i in ids], [i[1:] for i in ids]), k)


def test_the_blend_is_above_popularity_and_not_below_its_parts(fitted):
    test = baskets(1, 100)
    blend = recall(fitted, test)
    assert blend > recall(Popularity().fit(baskets(0)), test) + 0.2
    assert blend >= max(recall(part, test) for part in fitted.parts_.values()) - 0.1
    assert len(fitted.recall_) == 1 + len(QUICK)


def test_selection_adds_parts_that_know_something_else_and_leaves_out_noise():
    from deepsets.expand.expander import _gains, _select

    rng = np.random.default_rng(0)
    truths = rng.integers(50, size=600)
    signal = np.eye(50, dtype=np.float32)[truths] * 2
    first, second, noise = (a * signal + rng.normal(size=signal.shape).astype(np.float32) for a in (1, 0.9, 0))
    weights, blend = _select([first, second, noise], truths)
    assert weights[0] == 1
    assert weights[1] >= 0.4
    assert weights[2] == 0
    assert _gains(blend, truths).mean() > _gains(first, truths).mean() + 0.05


FOOD_AND_TOOLS = [["milk", "bread", "butter"], ["bread", "butter", "jam"], ["hammer", "nails", "saw"], ["saw", "nails"]]


@pytest.mark.parametrize("parts", [None, *((name,) for name in QUICK[1:5]), ("popularity", "ease-intercept")])
def test_the_odd_member_is_found_by_the_blend_and_by_each_part(parts):
    expander = Expander(parts).fit(FOOD_AND_TOOLS * 15)
    assert odd_member(expander, ["milk", "bread", "saw"]) == 2
    assert odd_member(expander, ["nails", "bread", "saw"]) == 1
    assert odd_member(expander, ["milk", "bread", "jam"]) is None


def test_where_nothing_goes_together_popularity_is_reached():
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, 31)
    draw = lambda n: [[f"w{i}" for i in rng.choice(30, 4, replace=False, p=weights / weights.sum())] for _ in range(n)]  # noqa: E731
    train, test = draw(300), draw(300)
    assert recall(Expander(QUICK).fit(train), test) >= recall(Popularity().fit(train), test) - 0.03


def test_parts_answer_by_themselves(fitted):
    assert list(fitted.parts_) == list(QUICK)
    assert {c.element[:2] for c in fitted.parts_["ease"].expand(["g1i0", "g1i3"], k=2)} == {"g1"}
    alone = Expander(("ease",)).fit(baskets(0))
    assert [c.element for c in alone.expand(["g1i0"], k=3)] == [
        c.element for c in alone.parts_["ease"].expand(["g1i0"], k=3)
    ]


def test_it_is_saved_and_loaded_with_its_parts(fitted, tmp_path):
    loaded = deepsets.load(deepsets.save(fitted, tmp_path / "model"))
    np.testing.assert_allclose(loaded.scores([["g1i0", "p0"]]), fitted.scores([["g1i0", "p0"]]), rtol=1e-4, atol=1e-5)
    assert list(loaded.parts_) == list(QUICK)
    assert loaded.parts_["ease"].expand(["g1i0"], k=3) == fitted.parts_["ease"].expand(["g1i0"], k=3)


@pytest.mark.slow
def test_all_methods_are_blended_saved_and_score_new_items_by_features(tmp_path):
    words = sorted({w for members in baskets(0) for w in members})
    rng = np.random.default_rng(0)
    groups = sorted({w[:2] for w in words})
    features = np.array([np.eye(len(groups))[groups.index(w[:2])] for w in words]) + 0.1 * rng.normal(
        size=(len(words), len(groups))
    )
    expander = Expander(METHODS, epochs=2).fit(baskets(0), items=(words, features))
    assert list(expander.parts_) == list(METHODS)
    default = Expander().fit(baskets(0, 30), items=(words, features))
    assert [name for name in METHODS if name not in default.parts_] == ["deep-sets"]
    new = np.eye(len(groups))[:6]  # a new item of each group
    assert groups[int(expander.score(["g2i0", "g2i5"], new).argmax())] == "g2"
    assert groups[int(expander.score(new[[3]], new).argmax())] == groups[3]
    loaded = deepsets.load(deepsets.save(expander, tmp_path / "model"))
    np.testing.assert_allclose(loaded.score(["g2i0"], new), expander.score(["g2i0"], new), rtol=1e-3, atol=1e-4)


def test_evaluation_shows_popularity_and_item_item_beside_it(fitted):
    rows = evaluate(fitted, [*baskets(2, 50), ["unknown", "p0"]], k=5)
    assert [row["method"] for row in rows] == ["Expander", "popularity", "item-item"]
    assert {row["queries"] for row in rows} == {50}
    assert rows[0]["recall@5"] > rows[1]["recall@5"]
    assert rows[1]["coverage"] < rows[0]["coverage"] <= 1
    assert rows == evaluate(fitted, [*baskets(2, 50), ["unknown", "p0"]], k=5)
    with pytest.raises(ValueError, match="no set has two members of the vocabulary"):
        evaluate(fitted, [["p0"], ["unknown", "other"]])


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"parts must be of popularity, .*; found 'magic'"):
        Expander(("magic",)).fit(baskets(0, 10))
    with pytest.raises(ValueError, match='the part "features" needs items with features'):
        Expander(("features",)).fit(baskets(0, 10))

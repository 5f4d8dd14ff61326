"""Heads and their blend: trees as arrays, linear models, weights, calibration, intervals, state."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from deepsets.estimators import MemberRegressor, OddOneOut, SetClassifier, SetRegressor, SupportDistributionMachine
from deepsets.estimators.blend import (
    blend_weights,
    calibration_error,
    conformal_radius,
    fit_temperature,
    make_folds,
    residual_quantiles,
)
from deepsets.estimators.encoder import ColumnEncoder
from deepsets.estimators.heads import Heads
from deepsets.estimators.linear import KernelHead, bag_matrix, fit_kernel, fit_linear
from deepsets.estimators.state import as_tensors
from deepsets.estimators.summaries import Summaries
from deepsets.estimators.task import Task, link, sharpen
from deepsets.estimators.trees import TreeEnsemble, _Boosted, _gather, fit_boosting, fit_forest


def clouds(count: int = 40, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(rng.integers(2, 8), 3)) for _ in range(count)]


# ---------------------------------------------------------------------------------------------------------- trees


@pytest.mark.parametrize("kind", [HistGradientBoostingClassifier, HistGradientBoostingRegressor])
def test_boosted_trees_as_arrays_give_scikit_learns_predictions(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    x[rng.random(x.shape) < 0.1] = np.nan
    y = (np.nan_to_num(x[:, 0]) > 0).astype(int) + (np.nan_to_num(x[:, 1]) > 1)
    outputs = 3 if kind is HistGradientBoostingClassifier else 1
    boosted = _Boosted(x, y, None, Task("classes" if outputs == 3 else "regression", y, outputs), 12, 0)
    model = boosted.model
    assert isinstance(model, kind)
    trees = _gather(*boosted.trees(12, outputs, slice(0, outputs), 1.0))
    if outputs == 3:
        np.testing.assert_allclose(link(trees(x), "classes"), model.predict_proba(x), atol=1e-12)
    else:
        np.testing.assert_allclose(trees(x)[:, 0], model.predict(x), atol=1e-12)


@pytest.mark.parametrize("kind", ["regression", "classes", "labels"])
def test_forest_and_boosting_predict_held_out_rows_and_survive_their_tensors(kind):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 3))
    signal = x[:, 0] + 0.1 * rng.normal(size=150)
    y = {
        "regression": np.stack([signal, -signal], axis=1),
        "classes": (signal > -0.5).astype(int) + (signal > 0.5),
        "labels": np.stack([signal > 0, x[:, 1] > 0], axis=1).astype(float),
    }[kind]
    task = Task(kind, y, 3 if kind == "classes" else 2)
    folds = make_folds(task, 3, 0)
    forest, held = fit_forest(x, task, None, 0, trees=50)
    assert task.loss(held).mean() < task.loss(np.tile(task.indicators().mean(0), (150, 1))).mean() * 0.6
    boosting, raw = fit_boosting(x, task, None, folds, 0, 40)
    assert task.loss(link(raw, kind)).mean() < task.loss(np.tile(task.indicators().mean(0), (150, 1))).mean() * 0.6
    for trees in (forest, boosting):
        again = TreeEnsemble.from_tensors(as_tensors(trees), 3, trees.value.shape[1])
        np.testing.assert_array_equal(again(x), trees(x))


def test_boosting_of_very_many_columns_looks_at_those_that_matter():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2000))
    y = (x[:, 1234] + x[:, 77] > 0).astype(int)
    task = Task("classes", y, 2)
    trees, raw = fit_boosting(x, task, None, make_folds(task, 3, 0), 0, 40)
    assert ((raw[:, 0] > 0) == y).mean() > 0.8
    assert {77, 1234} <= set(trees.feature.tolist())


def test_damaged_tree_arrays_are_refused():
    x = np.random.default_rng(0).normal(size=(40, 2))
    trees, _ = fit_forest(x, Task("regression", x[:, :1], 1), None, 0, trees=3)
    good = as_tensors(trees)
    for name, value, message in (
        ("left", good["left"] + 10_000, "points outside"),
        ("feature", good["feature"] + 2, "points outside"),
        ("left", torch.zeros_like(good["left"]), "not in order"),
        ("value", good["value"] * torch.inf, "not finite"),
        ("threshold", good["threshold"][:-1], "wrong type or length"),
    ):
        with pytest.raises(ValueError, match=message):
            TreeEnsemble.from_tensors(good | {name: value}, 2, 1)


# --------------------------------------------------------------------------------------------------------- linear


def test_the_linear_head_equals_its_parts_written_out():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 5))
    codes, ids = rng.integers(1, 80, size=400), np.sort(rng.integers(0, 60, size=400))
    bag = bag_matrix(codes, ids, 60, 79, None)
    y = (features[:, 0] > 0).astype(int)
    task = Task("classes", y, 2)
    head, tables, held = fit_linear(features, [bag], task, None, make_folds(task, 3, 0))
    sums = np.zeros((60, 2))
    np.add.at(sums, ids, tables[0][codes])
    standard = np.clip((features - features.mean(0)) / features.std(0), -4, 4)
    wanted = standard @ head.weight + head.bias + sums[:, :1] / np.sqrt(sums[:, 1:])
    np.testing.assert_allclose(head(features, [sums]), wanted)
    assert ((wanted[:, 0] > 0) == y).mean() > 0.9
    assert np.isfinite(held).all()


@pytest.mark.parametrize("power", [0, 1, 2])
def test_bags_are_sums_or_means_as_the_target_asks(power):
    rng = np.random.default_rng(0)
    worth, sizes = rng.normal(size=101), rng.integers(1, 30, 300)
    ids = np.repeat(np.arange(300), sizes)
    codes = rng.integers(1, 101, len(ids))
    y = (np.bincount(ids, worth[codes]) / sizes ** (power / 2))[:, None]
    task = Task("regression", y / y.std(), 1)
    head, _, held = fit_linear(
        np.ones((300, 1)), [bag_matrix(codes, ids, 300, 100, None)], task, None, make_folds(task, 3, 0)
    )
    assert head.power.tolist() == [power]
    assert np.square(held - task.y).mean() < 0.1


def test_the_kernel_head_equals_its_parts_written_out_and_separates_a_ring_from_its_centre():
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(0, 2 * np.pi, 120), np.where(np.arange(120) % 2, 1.0, 3.0)
    features = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1) + 0.1 * rng.normal(size=(120, 2))
    task = Task("classes", np.arange(120) % 2, 2)
    head, held = fit_kernel(features, task, None, make_folds(task, 3, 0))
    assert ((held[:, 0] > 0) == task.y).all()
    new = rng.normal(size=(7, 2))
    scaled = [(x - features.mean(0)) / features.std(0) for x in (new, features)]
    kernel = np.exp(-head.width * np.square(scaled[0][:, None] - scaled[1]).sum(2))
    np.testing.assert_allclose(head(new), kernel @ head.dual + head.bias)
    again = KernelHead.from_tensors(as_tensors(head), 2, 1)
    np.testing.assert_array_equal(again(new), head(new))


# ------------------------------------------------------------------------------------------------------- summaries


def spending(count: int = 120, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """What was spent on the web: a sum of numbers within a category."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"set": 1000 * seed + np.sort(rng.integers(count, size=8 * count))})
    frame["amount"], frame["age"] = rng.gamma(2, 1, len(frame)), rng.normal(size=len(frame))
    frame["channel"] = rng.choice(["web", "shop", "phone"], len(frame))
    return frame, frame.amount.where(frame.channel == "web", 0).groupby(frame["set"]).sum().to_numpy()


def test_blocks_of_summaries_are_those_of_a_plain_groupby():
    frame, y = spending()
    model = SetRegressor(model="linear", by="set", random_state=0).fit(frame, y)
    summaries = model.heads_.summaries
    summaries.blocks = summaries.possible_blocks()
    assert summaries.blocks == ["quantiles", "products", "categories"]
    found = pd.DataFrame(model.transform(frame), columns=model.get_feature_names_out())
    values = frame.assign(amount=(frame.amount - frame.amount.mean()) / frame.amount.std(ddof=0))
    values["age"] = (values.age - values.age.mean()) / values.age.std(ddof=0)
    groups, web = values.groupby("set"), values[values.channel == "web"].groupby("set")
    every = groups.size().index
    for name, wanted in (
        ("amount:above_90%", groups.amount.apply(lambda c: (c > np.quantile(values.amount, 89 / 99)).mean())),
        ("amount*age:cov", groups[["amount", "age"]].apply(lambda g: np.cov(g.amount, g.age, ddof=0)[0, 1])),
        ("amount[channel=web]:sum", web.amount.sum().reindex(every)),
        ("age[channel=web]:mean", web.age.mean().reindex(every)),
        ("amount[channel=web]:sum/count", web.amount.sum().reindex(every) / groups.size()),
    ):
        np.testing.assert_allclose(found[name], wanted.fillna(0), atol=1e-9, err_msg=name)


def test_blocks_that_help_are_found_and_merge():
    frame, y = spending()
    model = SetRegressor(model="linear", by="set", random_state=0).fit(frame, y)
    assert "categories" in model.heads_.summaries.blocks
    assert model.score(*spending(seed=1)) > 0.98
    even = np.arange(len(frame)) % 2 == 0
    both = frame.groupby("set").transform("size") > 1
    sets = frame[both].groupby("set").filter(lambda g: even[g.index].any() and not even[g.index].all())
    state = model.encode(sets[even[sets.index]]) + model.encode(sets[~even[sets.index]])
    np.testing.assert_allclose(model.decode(state), model.predict(sets))
    tensors, facts = model.get_state()
    facts["heads"]["blocks"] = ["categories", "quantiles"]
    with pytest.raises(ValueError, match="blocks of summaries do not fit"):
        SetRegressor(model="linear", by="set").set_state(tensors, facts)


def test_no_block_is_added_to_noise():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(10, 3)) for _ in range(200)]
    model = SetRegressor(model="linear", random_state=0).fit(X, [x[:, 0].mean() for x in X])
    assert model.heads_.summaries.blocks == []


# ---------------------------------------------------------------------------------------------------------- blend


def test_the_blend_prefers_the_better_head_and_drops_noise():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(400, 1))
    good, noise = y + 0.1 * rng.normal(size=y.shape), rng.normal(size=y.shape) * 5
    weights = blend_weights([good, noise], Task("regression", y, 1), None)
    assert weights[0] > 0.95
    assert weights[1] == 0
    two = blend_weights([y + rng.normal(size=y.shape), y + rng.normal(size=y.shape)], Task("regression", y, 1), None)
    np.testing.assert_allclose(two, [0.5, 0.5], atol=0.1)  # independent errors of one size: the mean


def test_the_temperature_undoes_overconfidence():
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.05, 0.95, 3000)
    y = (rng.random(3000) < chance).astype(int)
    both = np.stack([1 - chance, chance], axis=1)
    sharp = sharpen(both, 0.5, "classes")
    task = Task("classes", y, 2)
    temperature = fit_temperature(sharp, task)
    assert temperature == pytest.approx(2, rel=0.15)
    assert calibration_error(sharpen(sharp, temperature, "classes"), y) < calibration_error(sharp, y) / 2
    np.testing.assert_allclose(sharpen(sharp, 2.0, "classes"), both, atol=1e-9)


def test_an_overconfident_head_is_calibrated_before_it_is_weighed():
    rng = np.random.default_rng(0)
    chance = rng.uniform(0.05, 0.95, 2000)
    y = (rng.random(2000) < chance).astype(int)
    good = sharpen(np.stack([1 - chance, chance], axis=1), 0.33, "classes")
    poor = np.stack([1 - 0.5 * chance, 0.5 * chance], axis=1)
    task = Task("classes", y, 2)
    heads = Heads("classes", 2, Summaries(ColumnEncoder(), None))
    blend = heads.choose({"linear": poor, "deep": good}, task, None)
    assert heads.weights["deep"] > 0.9
    assert task.loss(blend).mean() < task.loss(np.stack([1 - chance, chance], axis=1)).mean() * 1.01


@pytest.mark.parametrize("kind", [SetClassifier, SetRegressor])
def test_two_threads_give_the_answers_of_one(kind, monkeypatch):
    monkeypatch.setattr("deepsets.estimators.set_estimator.LEAST_TOGETHER", 0)
    X, before = clouds(60), torch.get_num_threads()
    y = np.array([x.max() for x in X])
    y = y > np.median(y) if kind is SetClassifier else y
    one, two = (kind(epochs=3, n_jobs=n, random_state=0).fit(X, y) for n in (1, 2))
    assert torch.get_num_threads() == before
    assert one.head_weights_ == two.head_weights_
    for part in ("encode", "transform"):
        a, b = (getattr(model, part)(X) for model in (one, two))
        pairs = zip(a.parts.values(), b.parts.values(), strict=True) if part == "encode" else [(a, b)]
        assert all(np.array_equal(p, q) for p, q in pairs)


def test_folds_hold_out_every_set_once_and_spread_rare_classes():
    y = np.array([0] * 17 + [1] * 3)
    folds = make_folds(Task("classes", y, 2), 5, 0)
    held = np.concatenate([rows for _, rows in folds])
    assert sorted(held) == list(range(20))
    assert all(set(y[seen]) == {0, 1} for seen, _ in folds)
    once = make_folds(Task("classes", y, 2), 1, 0)
    assert len(once) == 1


def test_conformal_intervals_cover_as_promised():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 2)) for _ in range(400)]
    y = np.array([x[:, 0].mean() for x in X]) + rng.normal(size=400)
    model = SetRegressor(model="linear", random_state=0).fit(X[:200], y[:200])
    ends = model.predict_interval(X[200:], coverage=0.8)
    assert np.mean((ends[:, 0] <= y[200:]) & (y[200:] <= ends[:, 1])) == pytest.approx(0.8, abs=0.08)
    errors = np.arange(1.0, 10)[:, None]
    assert conformal_radius(residual_quantiles(errors), 0.5) == 5  # the 5th of 9: ceil(10 * 0.5)
    assert conformal_radius(residual_quantiles(errors), 0.95) == np.inf


def test_a_constant_label_and_interval_coverage_out_of_range_are_refused():
    X = clouds(12)
    with pytest.raises(ValueError, match="the label 0 is the same in all sets"):
        SetClassifier(model="linear").fit(X, np.c_[np.ones(12), np.arange(12) % 2].astype(int))
    with pytest.raises(ValueError, match="coverage must be between 0 and 1"):
        SetRegressor(model="linear").fit(X, np.arange(12.0)).predict_interval(X, coverage=90)


def test_balanced_classes_raise_the_recall_of_the_rare_class():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 2)) for _ in range(300)]
    y = np.array([x[:, 0].mean() + 0.5 * rng.normal() > 0.7 for x in X])
    plain, balanced = (
        SetClassifier(model="linear", class_weight=w, random_state=0).fit(X, y).predict(X) for w in (None, "balanced")
    )
    assert balanced[y].mean() > plain[y].mean() + 0.1


# --------------------------------------------------------------------------------------------------- state, merging


def fitted(kind: type, **options):
    X = clouds()
    y = {
        SetRegressor: [x.max() for x in X],
        SetClassifier: ["wide" if np.ptp(x) > 3 else "narrow" for x in X],
        MemberRegressor: [x[:, 0] for x in X],
        OddOneOut: [0] * len(X),
        SupportDistributionMachine: [x.max() for x in X],
    }[kind]
    return kind(random_state=0, **options).fit(X, y), X


MODELS = [
    (SetRegressor, {"epochs": 2}),
    (SetClassifier, {"model": "deep", "epochs": 2}),
    (SetClassifier, {"model": "deep", "epochs": 2, "pool": "gated"}),
    (SetClassifier, {"model": "boosting"}),
    (SetClassifier, {"model": "kernel"}),
    (MemberRegressor, {"epochs": 2}),
    (OddOneOut, {"epochs": 2}),
    (SupportDistributionMachine, {}),
    (SupportDistributionMachine, {"features": 50, "octaves": (0, 0), "widths": (1.0,)}),
]


@pytest.mark.parametrize(("kind", "options"), MODELS)
def test_a_state_restores_the_predictions_bit_for_bit(kind, options):
    model, X = fitted(kind, **options)
    tensors, facts = model.get_state()
    again = kind(random_state=0, **options).set_state(tensors, json.loads(json.dumps(facts)))
    ask = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    for a, b in zip(getattr(model, ask)(X), getattr(again, ask)(X), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize(("kind", "options"), MODELS)
def test_a_damaged_state_is_a_value_error(kind, options):
    model, _ = fitted(kind, **options)
    tensors, facts = model.get_state()
    fresh = lambda: kind(random_state=0, **options)  # noqa: E731
    for name in tensors:
        with pytest.raises(ValueError, match=r"."):
            fresh().set_state({n: t for n, t in tensors.items() if n != name}, facts)
        if tensors[name].is_floating_point() and tensors[name].numel():
            with pytest.raises(ValueError, match="holds NaN"):
                fresh().set_state(tensors | {name: torch.full_like(tensors[name], torch.nan)}, facts)
    for name in ("n_features_in_", "encoder", "n_outputs_"):
        for wrong in (None, 10**9, "x", []):
            with pytest.raises(ValueError, match=r"."):
                fresh().set_state(tensors, facts | {name: wrong})


@pytest.mark.parametrize("pool", [None, "gated", ["mean", "logsumexp"]])
def test_states_of_parts_merge_to_the_prediction_of_the_whole(pool):
    X = clouds()
    y = [x.max() for x in X]
    model = SetRegressor(epochs=3, pool=pool, random_state=0, model="deep").fit(X, y)
    model.heads_.weights = {"deep": 1.0}
    state = model.encode([x[:1] for x in X]) + model.encode([x[1:] for x in X])
    assert all(part.dtype in (torch.float64, torch.int64) for part in state.parts.values())
    np.testing.assert_allclose(model.decode(state), model.predict(X), rtol=1e-5)
    assert np.array_equal(model.decode(model.state(model.encode(X).parts)), model.predict(X))


@pytest.mark.slow
def test_many_small_sets_are_predicted_in_pieces(monkeypatch):
    """The pooled state of a set takes far more memory than one member: 40,000 sets of one took 5 GB at once."""
    model, _ = fitted(SetRegressor)
    state, counts = model.heads_.state, []

    def counted(part, **options):
        counts.append(len(part.members))
        return state(part, **options)

    X = np.linspace(0, 1, 9000 * model.n_features_in_).reshape(9000, 1, -1)
    monkeypatch.setattr(model.heads_, "state", counted)
    whole = model.predict(X)
    assert sum(counts) == 9000 and max(counts) <= 4000
    np.testing.assert_allclose(whole[[0, 8999]], model.predict(X[[0, 8999]]), rtol=1e-6)


@pytest.mark.slow
def test_the_default_blend_is_close_to_its_best_head_and_names_what_it_kept():
    model, X = fitted(SetRegressor)
    losses = dict(model.head_losses_)
    blend = losses.pop("blend")
    assert blend <= min(losses.values()) * 1.1
    assert sum(model.head_weights_.values()) == pytest.approx(1)
    for name in ("linear", "kernel", "forest", "boosting", "deep"):
        assert (getattr(model.heads_, name) is not None) == (name in model.head_weights_)
    assert model.transform(X).shape == (40, len(model.get_feature_names_out()))


def test_importance_finds_the_column_that_matters():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 3)) for _ in range(120)]
    y = np.array([x[:, 1].mean() for x in X])
    found = SetRegressor(model="linear", random_state=0).fit(X, y).feature_importance(X, y, n_repeats=2)
    assert int(found.importances_mean.argmax()) == 1
    assert found.feature_names.tolist() == ["x0", "x1", "x2"]

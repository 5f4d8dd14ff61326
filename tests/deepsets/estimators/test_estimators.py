"""All estimators: forms of X, scikit-learn conventions, learning, and messages for bad input."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from deepsets import Sets
from deepsets.estimators import MemberClassifier, MemberRegressor, OddOneOut, SetClassifier, SetRegressor

SMALL = {"width": 8, "n_estimators": 2, "epochs": 2, "random_state": 0}
DEEP = {**SMALL, "model": "deep"}
ALL = (SetRegressor, SetClassifier, MemberRegressor, MemberClassifier, OddOneOut)
PER_MEMBER = (MemberRegressor, MemberClassifier)


def clouds(count: int = 24, seed: int = 0, features: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(rng.integers(2, 8), features)) for _ in range(count)]


def targets(kind: type, X: list[np.ndarray]):
    """A target of the right form for each estimator."""
    return {
        SetRegressor: np.array([x.max() for x in X]),
        SetClassifier: np.array(["wide" if np.ptp(x) > 3 else "narrow" for x in X]),
        MemberRegressor: [x[:, 0] - x[:, 0].mean() for x in X],
        MemberClassifier: [np.where(x[:, 0] > x[:, 0].mean(), "high", "low") for x in X],
        OddOneOut: np.array([int(np.abs(x).sum(1).argmax()) for x in X]),
    }[kind]


PER_SET = (SetRegressor, SetClassifier)


def make(kind: type, **options):
    """An estimator that is quick to fit; those of sets with the deep head only."""
    return kind(**{**(DEEP if kind in PER_SET else SMALL), **options})


def small(kind: type, **options):
    """The same, fitted."""
    X = clouds()
    return make(kind, **options).fit(X, targets(kind, X))


def answers(estimator, X, **options) -> np.ndarray:
    """Numbers to compare: probabilities where there are some, flat."""
    ask = getattr(estimator, "predict_proba", estimator.predict)
    found = ask(X, **options)
    return np.concatenate([np.asarray(part).ravel() for part in found]) if isinstance(found, list) else found


def table(X: list[np.ndarray], shuffled: bool = True) -> pd.DataFrame:
    """One row per member; rows of a set scattered, the sets' first rows in order."""
    frame = pd.DataFrame(np.concatenate(X), columns=["a", "b", "c"][: X[0].shape[1]])
    frame["cluster"] = [f"c{b}" for b, x in enumerate(X) for _ in x]
    if not shuffled:
        return frame
    first = ~frame["cluster"].duplicated()
    return pd.concat([frame[first], frame[~first].sample(frac=1, random_state=0)], ignore_index=True)


# -------------------------------------------------------------------------------------------------- conventions


@pytest.mark.parametrize("kind", ALL)
def test_parameters_are_read_set_and_cloned(kind):
    estimator = kind(width=8, random_state=3)
    assert estimator.get_params()["width"] == 8
    assert estimator.set_params(width=16) is estimator
    copy = clone(small(kind, width=8))
    assert copy.get_params()["width"] == 8
    assert not hasattr(copy, "network_")


def test_scikit_learn_knows_what_they_are():
    assert is_classifier(SetClassifier())
    assert is_classifier(MemberClassifier())
    assert is_regressor(SetRegressor())
    assert is_regressor(MemberRegressor())


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("form", [list, Sets.from_list], ids=["list", "Sets"])
def test_cross_validation_grid_search_pipeline_and_splits_take_sets(kind, form):
    X, estimator = clouds(), make(kind)
    y, X = targets(kind, X), form(X)
    cv = KFold(2)  # the members' labels are ragged, so no stratified folds
    found = cross_val_score(estimator, X, y, cv=cv)
    rows = [np.arange(12, 24), np.arange(12)]  # KFold(2) trains on the second half first
    part = (lambda r: [y[i] for i in r]) if isinstance(y, list) else (lambda r: y[r])
    take = (lambda r: [X[i] for i in r]) if form is list else (lambda r: X[r])
    wanted = [clone(estimator).fit(take(a), part(a)).score(take(b), part(b)) for a, b in (rows, rows[::-1])]
    np.testing.assert_allclose(found, wanted)
    search = GridSearchCV(estimator, {"width": [4, 8]}, cv=cv).fit(X, y)
    assert search.best_params_["width"] in (4, 8)
    assert len(search.predict(X)) == len(y)
    pipeline = Pipeline([("same", FunctionTransformer(lambda sets: sets)), ("net", estimator)]).fit(X, y)
    assert pipeline.score(X, y) == clone(estimator).fit(X, y).score(X, y)
    left, right, y_left, y_right = train_test_split(X, y, test_size=0.25, random_state=0)
    assert (len(left), len(right), len(y_left), len(y_right)) == (18, 6, 18, 6)


def test_classifiers_are_stratified_by_default():
    X = clouds(30)
    y = np.array([0] * 24 + [1] * 6)
    seen = []

    class Recorder(SetClassifier):
        def fit(self, X, y, **options):
            seen.append(np.bincount(y).tolist())
            return super().fit(X, y, **options)

    cross_val_score(Recorder(**DEEP), X, y, cv=3)
    assert seen == [[16, 4]] * 3


def test_probabilities_can_be_calibrated_by_scikit_learn():
    X = clouds()
    calibrated = CalibratedClassifierCV(make(SetClassifier), cv=2).fit(Sets.from_list(X), targets(SetClassifier, X))
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(1), 1)


def test_tables_are_cross_validated_by_group():
    X = clouds()
    frame = table(X)
    y = frame["a"] - frame.groupby("cluster")["a"].transform("mean")
    found = cross_val_score(make(MemberRegressor, by="cluster"), frame, y, cv=GroupKFold(3), groups=frame["cluster"])
    per_set = frame.groupby("cluster")["a"].transform("max")
    also = cross_val_score(make(SetRegressor, by="cluster"), frame, per_set, cv=GroupKFold(3), groups=frame["cluster"])
    folds = list(GroupKFold(3).split(frame, groups=frame["cluster"]))
    for kind, y_rows, scores in ((MemberRegressor, y, found), (SetRegressor, per_set, also)):
        for (seen, held), score in zip(folds, scores, strict=True):
            fitted = make(kind, by="cluster").fit(frame.iloc[seen], y_rows.iloc[seen])
            assert fitted.score(frame.iloc[held], y_rows.iloc[held]) == pytest.approx(score)


@pytest.mark.parametrize("kind", ALL)
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(kind):
    X = clouds(6, seed=1)
    one, two, other = (answers(small(kind, random_state=seed), X) for seed in (0, 0, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("kind", ALL)
def test_fitting_and_asking_leave_the_global_generators_alone(kind):
    torch.manual_seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    small(kind).predict(clouds(3))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002


def test_what_was_learned_is_written_where_scikit_learn_writes_it():
    X = clouds()
    assert small(SetRegressor).n_features_in_ == 3
    assert small(SetClassifier).classes_.tolist() == ["narrow", "wide"]
    frame = table(X)
    fitted = make(SetRegressor, by="cluster").fit(frame, targets(SetRegressor, X))
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    assert fitted.n_features_in_ == 3
    assert not hasattr(fitted.fit(X, targets(SetRegressor, X)), "feature_names_in_")


@pytest.mark.parametrize("kind", ALL)
def test_without_a_fit_there_is_no_answer(kind):
    with pytest.raises(NotFittedError, match=rf"this {kind.__name__} is not fitted yet: call fit first"):
        kind().predict(clouds(2))


# ----------------------------------------------------------------------------------------------- the forms of X


@pytest.mark.parametrize("kind", ALL)
def test_all_forms_of_the_same_sets_give_the_same_answers(kind):
    rng = np.random.default_rng(0)
    array = rng.normal(size=(20, 4, 3)).astype(np.float32)
    X = list(array)
    y = targets(kind, X)
    wanted = answers(make(kind).fit(X, y), X)
    objects = np.empty(20, dtype=object)
    objects[:] = X
    arrow = Sets.from_list(X).to_arrow()
    forms = [
        array,
        objects,
        torch.from_numpy(array),
        Sets.from_list(X),
        arrow,
        pa.chunked_array([arrow]),
        array.tolist(),
    ]
    for form in forms:
        assert np.array_equal(answers(make(kind).fit(form, y), form), wanted), type(form)
    neighbours = table(X, shuffled=False)
    for frame in (neighbours, pl.from_pandas(neighbours)):
        flat = np.concatenate(y) if kind in PER_MEMBER else y
        found = answers(make(kind, by="cluster").fit(frame, flat), frame)
        assert np.array_equal(np.ravel(found), np.ravel(wanted)), type(frame)


@pytest.mark.parametrize("kind", PER_MEMBER)
def test_targets_of_members_come_as_lists_arrays_or_sets(kind):
    X = list(np.random.default_rng(0).normal(size=(20, 4, 3)))
    y = targets(kind, X)
    wanted = answers(make(kind).fit(X, y), X)
    forms = [np.stack(y), np.concatenate(y), [part.tolist() for part in y]]
    if kind is MemberRegressor:
        forms.append(Sets.from_list([part[:, None] for part in y]))
    for form in forms:
        assert np.array_equal(answers(make(kind).fit(X, form), X).ravel(), wanted), type(form)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kind", ALL)
def test_the_target_may_be_the_name_of_a_column(kind, library):
    X = clouds()
    frame = table(X)
    groups = frame.groupby("cluster", sort=False)["a"]
    if kind in PER_MEMBER:
        values = frame["a"] - groups.transform("mean")
        frame["z"] = np.where(values > 0, "high", "low") if kind is MemberClassifier else values
    else:
        values = groups.transform("max")
        frame["z"] = {SetRegressor: values, SetClassifier: values > 1, OddOneOut: (values > 1) * 1}[kind]
    given_frame = frame if library == "pandas" else pl.from_pandas(frame)
    estimator = make(kind, by="cluster").fit(given_frame, "z")
    assert estimator.feature_names_in_.tolist() == ["a", "b", "c"]
    assert estimator.target_names_ == ["z"]
    assert estimator.score(given_frame, "z") == estimator.score(given_frame, given_frame["z"].to_numpy())
    features = given_frame[["a", "b", "c", "cluster"]]
    assert np.array_equal(answers(estimator, features), answers(estimator, given_frame))


def test_answers_for_a_table_come_in_the_order_of_its_rows():
    X = clouds()
    frame = table(X)
    estimator = make(MemberRegressor, by="cluster").fit(frame, frame["a"].to_numpy())
    found = estimator.predict(frame)
    by_set = frame.groupby("cluster", sort=False).indices
    for name, rows in by_set.items():
        alone = estimator.predict(frame[frame["cluster"] == name])
        np.testing.assert_allclose(found[rows], alone, atol=1e-5)
    shuffled = frame.sample(frac=1, random_state=3)
    np.testing.assert_allclose(estimator.predict(shuffled), found[shuffled.index], atol=1e-5)


def test_columns_in_another_order_and_columns_never_seen_change_nothing():
    X = clouds()
    frame = table(X)
    estimator = make(SetRegressor, by="cluster").fit(frame, targets(SetRegressor, X))
    other = frame[["c", "cluster", "a", "b"]].assign(comment="new")
    assert np.array_equal(estimator.predict(other), estimator.predict(frame))


def test_the_features_of_a_table_can_be_chosen():
    X = clouds()
    frame = table(X).assign(name="text")
    estimator = make(SetRegressor, by="cluster", columns=["b", "a"]).fit(frame, targets(SetRegressor, X))
    assert estimator.feature_names_in_.tolist() == ["b", "a"]


def test_tables_with_numbered_columns_are_read():
    X = clouds()
    frame = table(X).rename(columns={"a": 0, "b": 1, "c": 2})
    estimator = make(SetRegressor, by="cluster").fit(frame, targets(SetRegressor, X))
    assert estimator.n_features_in_ == 3


@pytest.mark.parametrize("kind", ALL)
def test_tokens_are_embedded_whatever_they_are(kind):
    rng = np.random.default_rng(0)
    ids = [rng.choice(9, size=n, replace=False) for n in rng.integers(2, 6, size=24)]
    X = [[f"word{i}" for i in part] for part in ids]
    y = targets(kind, [part[:, None].astype(float) for part in ids])
    estimator = make(kind).fit(X, y)
    assert len(estimator.vocabulary_) == 9
    column = pa.array(X)
    assert np.array_equal(answers(estimator, column), answers(estimator, X))
    numbered = make(kind).fit(ids, y)
    assert numbered.vocabulary_ == list(dict.fromkeys(np.concatenate(ids).tolist()))
    assert np.array_equal(answers(numbered, ids), answers(estimator, X))
    for form in (Sets.from_ids([part.tolist() for part in ids], list(range(9))), pa.array([p.tolist() for p in ids])):
        assert np.array_equal(answers(numbered, form), answers(estimator, X))


@pytest.mark.parametrize("kind", [SetRegressor, MemberRegressor])
def test_several_targets_are_learned_at_once(kind):
    X = clouds()
    y = [np.stack([x[:, 0], 100 + 50 * x[:, 1]], 1) for x in X]
    y = np.stack([part.mean(0) for part in y]) if kind is SetRegressor else y
    estimator = make(kind, **{"width": 32, "epochs": 60, "dropout": 0.0, "learning_rate": 0.01}).fit(X, y)
    found = estimator.predict(X)
    assert np.shape(found[0])[-1] == 2
    assert estimator.score(X, y) > 0.5
    with pytest.raises(ValueError, match="y has 1 columns, but the estimator was fitted with 2"):
        estimator.partial_fit(X, targets(kind, X))


# ------------------------------------------------------------------------------------------- weights, z, going on


@pytest.mark.parametrize("kind", ALL)
def test_a_weight_of_zero_is_absence(kind):
    X = clouds()
    y = targets(kind, X)
    weight = np.ones(24)
    weight[16:] = 0
    weighed = make(kind).fit(X, y, sample_weight=weight)
    without = make(kind).fit(X[:16], y[:16])
    assert np.array_equal(answers(weighed, X), answers(without, X))


@pytest.mark.parametrize("kind", [MemberRegressor, MemberClassifier, OddOneOut])
def test_a_weight_of_two_is_the_set_twice(kind):
    X = clouds(8)
    y = targets(kind, X)
    estimator = make(kind).fit(X, y)
    once = estimator._batch(X, y, None, [2, 1, 1, 1, 1, 1, 1, 1], first=False)
    double = estimator._batch([X[0], *X], [y[0], *y], None, None, first=False)
    found, wanted = (estimator._loss(estimator.network_, batch) for batch in (once, double))
    torch.testing.assert_close(found[0], wanted[0])
    assert float(found[1]) == float(wanted[1])


@pytest.mark.parametrize("kind", ALL)
def test_what_is_known_of_a_set_reaches_the_answer(kind):
    X = clouds()
    y, z = targets(kind, X), np.random.default_rng(1).normal(size=(24, 2))
    estimator = make(kind).fit(X, y, z=z)
    assert not np.array_equal(answers(estimator, X, z=z), answers(estimator, X, z=-z))
    assert estimator.score(X, y, z=z) <= 1
    with pytest.raises(ValueError, match=r"was fitted with z of 2 columns: z is needed here too"):
        estimator.predict(X)
    with pytest.raises(ValueError, match=r"z has 1 columns, but the estimator was fitted with 2"):
        estimator.predict(X, z=z[:, 0])
    with pytest.raises(ValueError, match=r"z must have one row for each of the 24 sets, found 3 rows"):
        estimator.predict(X, z=z[:3])


def test_partial_fit_learns_batch_after_batch_with_classes_named_first():
    X = clouds(40)
    y = targets(SetClassifier, X)
    one = y == "wide"
    estimator = make(SetClassifier).partial_fit([X[i] for i in np.flatnonzero(one)], y[one], classes=["wide", "narrow"])
    before = answers(estimator, X)
    assert estimator.classes_.tolist() == ["narrow", "wide"]
    estimator.partial_fit(X, y)
    assert not np.array_equal(answers(estimator, X), before)
    with pytest.raises(ValueError, match=r"the class 'huge' is new; known are 'narrow', 'wide'"):
        estimator.partial_fit(X[:1], ["huge"])


@pytest.mark.parametrize("kind", ALL)
def test_a_warm_start_goes_on_and_a_cold_one_starts_again(kind):
    X = clouds()
    y = targets(kind, X)
    cold, warm = make(kind).fit(X, y), make(kind, warm_start=True).fit(X, y)
    first = answers(warm, X)
    assert np.array_equal(first, answers(cold, X))
    assert np.array_equal(answers(cold.fit(X, y), X), first)
    assert not np.array_equal(answers(warm.fit(X, y), X), first)


def test_a_folder_is_taken_up_by_the_same_fit_and_refused_to_another(tmp_path):
    X = clouds()
    y = targets(SetRegressor, X)
    estimator = make(SetRegressor, checkpoint_dir=str(tmp_path / "run"))
    first = estimator.fit(X, y).predict(X)
    assert np.array_equal(clone(estimator).fit(X, y).predict(X), first)
    assert (tmp_path / "run" / "log.jsonl").read_text().count("\n") == 2
    with pytest.raises(ValueError, match="belongs to another training: it has data"):
        clone(estimator).fit(X, y[::-1])
    moved = estimator.partial_fit(X, y).predict(X)
    assert not np.array_equal(moved, first)


@pytest.mark.parametrize("kind", [SetRegressor, MemberRegressor])
def test_early_stopping_keeps_the_best_weights(kind):
    X = clouds(40)
    estimator = make(kind, epochs=60, early_stopping=True, patience=2, learning_rate=0.05)
    history = estimator.fit(X, targets(kind, X)).history_
    assert len(history) < 60
    assert all("validation" in row for row in history)
    if kind is MemberRegressor:
        with pytest.raises(ValueError, match=r"early stopping holds out 15% of the sets, but 2 sets are too few"):
            clone(estimator).fit(X[:2], targets(kind, X[:2]))


# ---------------------------------------------------------------------------------------------- symmetry, explain


@pytest.fixture(scope="module")
def fitted():
    """One of each, fitted once."""
    return {kind: small(kind) for kind in ALL}


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("kind", ALL)
def test_the_order_of_members_and_sets_does_not_matter(fitted, kind, seed):
    rng = np.random.default_rng(seed)
    X = clouds(5, seed)
    sets, members = rng.permutation(5), [rng.permutation(len(x)) for x in X]
    mixed = [X[b][members[b]] for b in sets]
    ask = fitted[kind].predict if kind in (SetRegressor, MemberRegressor) else fitted[kind].predict_proba
    plain, found = ask(X), ask(mixed)
    for i, b in enumerate(sets):
        per_member = kind in (*PER_MEMBER, OddOneOut)
        np.testing.assert_allclose(found[i], plain[b][members[b]] if per_member else plain[b], atol=1e-5)


@pytest.mark.parametrize("with_z", [False, True])
@pytest.mark.parametrize("kind", [SetRegressor, SetClassifier])
def test_an_explanation_is_the_answer_minus_the_answer_without_the_member(kind, with_z):
    X = clouds()
    X[1] = X[1][:1]
    z = np.random.default_rng(1).normal(size=(24, 2)) if with_z else None
    estimator = make(kind).fit(X, targets(kind, X), z=z)
    ask = estimator.predict if kind is SetRegressor else estimator.predict_proba
    found = estimator.explain(X, z=z)
    assert [part.shape for part in found] == [(len(x), 1 if kind is SetRegressor else 2) for x in X]
    for b in range(3):
        known = None if z is None else z[[b]]
        for i in range(len(X[b])):
            without = ask([np.delete(X[b], i, axis=0).reshape(-1, 3)], z=known)
            np.testing.assert_allclose(found[b][i], (ask([X[b]], z=known) - without).ravel(), atol=1e-4)


def test_explanations_of_a_table_come_in_the_order_of_its_rows_and_tokens_have_some_too():
    X = clouds()
    frame = table(X)
    estimator = make(SetRegressor, by="cluster").fit(frame, targets(SetRegressor, X))
    found = estimator.explain(frame)
    rows = np.flatnonzero(frame["cluster"] == "c3")
    np.testing.assert_allclose(found[rows], estimator.explain(frame.iloc[rows]), atol=1e-5)
    words = make(SetClassifier).fit([["a", "b"], ["b", "c"], ["c"], ["a"]] * 2, [0, 1, 1, 0] * 2)
    assert [part.shape for part in words.explain([["a", "b"], ["c"]])] == [(2, 2), (1, 2)]


# ------------------------------------------------------------------------------------------------- semi-supervised


@pytest.mark.parametrize(("kind", "unknown"), [(MemberRegressor, np.nan), (MemberClassifier, None)])
def test_members_without_a_label_are_are_context_but_add_no_loss(kind, unknown):
    X = clouds()
    y = [part.astype(object) for part in targets(kind, X)]
    for part in y:
        part[0] = unknown
    estimator = make(kind).fit(X, y)
    other = [x.copy() for x in X]
    for x in other:
        x[0] += 2
    moved = [a[1:] - b[1:] for a, b in zip(_flat(estimator, X), _flat(estimator, other), strict=True)]
    assert np.abs(np.concatenate(moved)).max() > 1e-4
    batch = estimator._batch(X, y, None, None, first=False)
    _, count = estimator._loss(estimator.network_, batch)
    assert float(count) == sum(len(x) - 1 for x in X)
    known = [np.asarray(part[1:].tolist()) for part in y]
    flat = np.concatenate([np.asarray(part)[1:] for part in estimator.predict(X)])
    if kind is MemberClassifier:
        assert estimator.score(X, y) == pytest.approx(np.mean(flat == np.concatenate(known)))
    else:
        wanted = np.concatenate(known)
        r2 = 1 - np.square(flat - wanted).sum() / np.square(wanted - wanted.mean()).sum()
        assert estimator.score(X, y) == pytest.approx(r2)


def _flat(estimator, X):
    return estimator.predict(X) if isinstance(estimator, MemberRegressor) else estimator.predict_proba(X)


def test_missing_labels_of_every_library_are_understood():
    X = clouds()
    frame = table(X)
    high = (frame["a"] > 0).astype("Int64")
    high[::3] = pd.NA
    for given_frame in (frame.assign(z=high), pl.from_pandas(frame.assign(z=high))):
        for kind in PER_MEMBER:
            estimator = make(kind, by="cluster").fit(given_frame, "z")
            assert estimator.score(given_frame, "z") <= 1
            assert getattr(estimator, "classes_", np.array([0, 1])).tolist() == [0, 1]


# ----------------------------------------------------------------------------------------------- what is learned


def summary(X) -> np.ndarray:
    return np.stack([np.concatenate([x.mean(0), x.std(0), x.min(0), x.max(0)]) for x in X])


def correlated(count: int, seed: int):
    """Two features that go together or against each other: no summary of single features tells which."""
    rng = np.random.default_rng(seed)
    X, y = [], rng.choice([-1.0, 1.0], size=count)
    for sign in y:
        first = rng.normal(size=rng.integers(8, 16))
        X.append(np.stack([first, sign * first + 0.3 * rng.normal(size=len(first))], 1))
    return X, y


@pytest.mark.slow
def test_a_default_classifier_is_ahead_of_a_linear_model_on_summaries():
    (X, y), (held, wanted) = correlated(120, 0), correlated(200, 1)
    linear = Pipeline([("scale", StandardScaler()), ("line", LogisticRegression())]).fit(summary(X), y)
    ours = SetClassifier(random_state=0).fit(X, y).score(held, wanted)
    assert ours > 0.9
    assert ours > linear.score(summary(held), wanted) + 0.2


@pytest.mark.slow
def test_a_default_regressor_is_ahead_of_a_linear_model_on_summaries():
    (X, _), (held, _) = correlated(150, 0), correlated(200, 1)
    y, wanted = ([float((x[:, 0] * x[:, 1]).mean()) for x in sets] for sets in (X, held))
    linear = Pipeline([("scale", StandardScaler()), ("line", Ridge())]).fit(summary(X), y)
    ours = SetRegressor(random_state=0).fit(X, y).score(held, wanted)
    assert ours > 0.7
    assert ours > linear.score(summary(held), wanted) + 0.2


@pytest.mark.slow
def test_a_default_member_regressor_is_ahead_of_a_linear_model_on_member_and_summary():
    def task(count, seed):
        X = clouds(count, seed, features=2)
        return X, [x[:, 0] * np.sign(x[:, 1].mean()) for x in X]

    def rows(X):
        return np.concatenate([np.hstack([x, np.repeat(summary([x]), len(x), 0)]) for x in X])

    (X, y), (held, wanted) = task(120, 0), task(150, 1)
    linear = Ridge().fit(rows(X), np.concatenate(y))
    ours = MemberRegressor(random_state=0).fit(X, y).score(held, wanted)
    assert ours > linear.score(rows(held), np.concatenate(wanted)) + 0.2


def test_the_odd_one_is_found_well_above_chance():
    def task(count, seed):
        rng = np.random.default_rng(seed)
        X = [rng.normal(size=(6, 2)) * 0.3 + 3 * rng.normal(size=2) for _ in range(count)]
        places = rng.integers(6, size=count)
        for x, place in zip(X, places, strict=True):
            x[place] += 1.5 * np.array([1, -1])
        return X, places

    estimator = OddOneOut(random_state=0, n_estimators=1, epochs=40).fit(*task(100, 0))
    assert estimator.score(*task(200, 1)) > 0.6  # chance: 1/6
    held, _ = task(5, 2)
    assert all(part.sum() == pytest.approx(1) for part in estimator.predict_proba(held))


# --------------------------------------------------------------------------------------------------- bad input


def refused(kind, X, y, message: str, **options) -> None:
    with pytest.raises(ValueError, match=message):
        make(kind, **options).fit(X, y)


def test_targets_that_cannot_be_learned_from_are_refused():
    X = clouds(4)
    frame = table(X)
    refused(SetRegressor, X, None, "y is needed: one target for each set")
    refused(MemberRegressor, X, None, "y is needed: one target for each member")
    refused(SetRegressor, frame, "redshift", "no target column 'redshift'; it has: a, b, c, cluster", by="cluster")
    refused(SetRegressor, X, "redshift", "y is the name 'redshift', but X is not a table")
    refused(SetRegressor, X, [3.0] * 4, r"the target is constant \(3.0 in all 4 sets\)")
    refused(MemberRegressor, X, [np.ones(len(x)) for x in X], r"the target is constant \(\[1.0\] in all \d+ labelled")
    refused(SetRegressor, X, [1.0, np.nan, 2, 3], "the target of set 1 is not a finite number: nan")
    refused(SetRegressor, X, [1.0, "high", 2, 3], "must be a number, but that of set 1 is 'high'.*use a classifier")
    refused(MemberRegressor, X, [np.full(len(x), np.inf) for x in X], "the target of member 0 is infinite")
    refused(SetRegressor, X, [1.0, 2.0, 3.0], "there are 4 sets, but y has 3 entries")
    refused(MemberRegressor, X, np.ones(3), r"there are \d+ members, but y has 3 targets")
    refused(MemberRegressor, X, [np.ones(len(x) + 1) for x in X], r"set 0 has \d members, but y has \d targets for it")
    refused(SetRegressor, frame, "a", "it changes within set 0 of the table.*MemberRegressor", by="cluster")
    refused(SetRegressor, frame.assign(z=np.nan), "z", "the target of set 0 is not a finite number", by="cluster")


def test_labels_that_cannot_be_learned_from_are_refused():
    X = clouds(4)
    refused(SetClassifier, X, ["a"] * 4, "needs at least two classes, found one class: 'a'")
    refused(SetClassifier, X, ["a", None, "b", "b"], "set 1 has no class")
    refused(SetClassifier, X, np.full((4, 2), 7), r"indicator matrix of 0 and 1; found shape \(4, 2\)")
    refused(MemberClassifier, X, [["a"] * len(x) for x in X], "needs at least two classes, found one class: 'a'")
    refused(MemberClassifier, X, [[None] * len(x) for x in X], r"none of the \d+ members has a label")
    refused(MemberRegressor, X, [[np.nan] * len(x) for x in X], r"none of the \d+ members has a target")
    refused(OddOneOut, X, [0, 1, 9, 0], r"set 2 has \d members, but its odd one would be at position 9")
    refused(OddOneOut, X, [0.5, 1, 0, 0], "integers; found float64")


@pytest.mark.parametrize("kind", [SetClassifier, MemberClassifier])
def test_a_class_seen_once_is_worth_a_warning(kind):
    X = clouds(4)
    y = ["a", "a", "a", "rare"] if kind is SetClassifier else [["a"] * len(x) for x in X]
    if kind is MemberClassifier:
        y[0][0] = "rare"
    with pytest.warns(UserWarning, match="the class 'rare' is seen once: a single example teaches little"):
        make(kind).fit(X, y)


def test_sample_weights_are_checked():
    X = clouds(4)
    y = targets(SetRegressor, X)
    with pytest.raises(ValueError, match=r"4 numbers not below 0, one per set; found shape \(3,\)"):
        make(SetRegressor).fit(X, y, sample_weight=[1, 1, 1])
    with pytest.raises(ValueError, match="numbers not below 0"):
        make(SetRegressor).fit(X, y, sample_weight=[1, 1, -1, 1])
    with pytest.raises(ValueError, match="sample_weight is zero for all sets"):
        make(SetRegressor).fit(X, y, sample_weight=np.zeros(4))


def test_members_that_cannot_be_read_are_refused():
    X = clouds(4)
    y = targets(SetRegressor, X)
    refused(SetRegressor, [[["red", 1.0]]] * 4, y, "set 0 cannot be read as an array of numbers")
    refused(SetRegressor, ["red", "blue"], [1.0, 2.0], "set 0 is the string 'red'; wanted a list of tokens")
    refused(SetRegressor, [1.0, 2.0], [1.0, 2.0], r"X is a list of single values \(1.0, …\)")


def test_shapes_that_are_no_sets_are_refused():
    X = clouds(4)
    y = targets(SetRegressor, X)
    refused(SetRegressor, np.ones((4, 3)), y, r"shape \(sets, members, features\), found \(4, 3\)")
    refused(SetRegressor, [], [], "X holds no sets")
    refused(
        SetRegressor, [np.ones((2, 3)), np.ones((2, 4))], [1, 2], "set 1 has elements with 4 features, but set 0 has 3"
    )
    refused(SetRegressor, table(X), y, r"name the column that identifies the set.*Columns: a, b, c, cluster")
    refused(SetRegressor, table(X)[:0], [], "the table has no rows, so there are no sets", by="cluster")
    refused(
        SetRegressor, pa.table({"members": [[1.0]]}), y, r"X is a table with one row per member: .*Columns: members"
    )


def test_one_set_is_too_few_for_sets_and_enough_for_members():
    X = clouds(1)
    refused(SetRegressor, X, [1.0], r"the target is constant \(1.0 in all 1 sets\)")
    refused(SetClassifier, X, ["a"], "at least two classes")
    assert len(make(MemberRegressor).fit(X, targets(MemberRegressor, X)).predict(X)) == 1


@pytest.mark.parametrize("kind", ALL)
def test_other_features_than_those_of_the_fit_are_refused(fitted, kind):
    with pytest.raises(ValueError, match=rf"X has members with 2 features, but {kind.__name__} was fitted with 3"):
        fitted[kind].predict(clouds(2, features=2))
    with pytest.raises(ValueError, match=r"X holds tokens, but .* was fitted with 3 features"):
        fitted[kind].predict([["a"]])


def test_a_missing_column_and_an_unknown_token_are_named():
    X = clouds()
    frame = table(X)
    estimator = make(SetRegressor, by="cluster").fit(frame, targets(SetRegressor, X))
    with pytest.raises(ValueError, match="the table has no column 'b'; it has: a, c, cluster"):
        estimator.predict(frame[["a", "c", "cluster"]])
    words = make(SetRegressor).fit([["apple", "pear"], ["plum"], ["pear"]], [1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="1 of 2 values in 'token', for example 'aple'"):
        words.predict([["pear"], ["aple"]])
    with pytest.raises(ValueError, match=r"X holds numbers, but .* was fitted with tokens"):
        words.predict(X)


@pytest.mark.parametrize("kind", ALL)
def test_missing_features_are_read_as_gaps(kind):
    X = clouds()
    y = targets(kind, X)
    X[3] = X[3].copy()
    X[3][1, 2] = np.nan
    estimator = make(kind).fit(X, y)
    assert np.isfinite(answers(estimator, X)).all()
    assert estimator.encoder_.gaps.tolist() == [2]
    complete = small(kind)  # where fit saw no gap, a gap changes the answer of its own set only
    found, wanted = (getattr(complete, "predict_proba", complete.predict)(given) for given in (X, clouds()))
    for b, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert np.isfinite(one).all()
        if b != 3:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_infinite_features_are_refused():
    X = clouds(4)
    y = targets(SetRegressor, X)
    X[2][0, 1] = np.inf
    refused(SetRegressor, X, y, r"features must be finite or missing \(NaN\): set 2, member 0, feature 1 is inf")


def test_empty_sets_have_answers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (SetRegressor, SetClassifier):
            found = small(kind).predict([np.zeros((0, 3)), np.zeros((2, 3))])
            assert len(found) == 2
        assert small(MemberRegressor).predict([np.zeros((0, 3)), np.zeros((2, 3))])[0].shape == (0,)

"""Tables as they are: kinds of columns, gaps, unseen categories, set-level columns, sets of sets, precision."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from deepsets.estimators import MemberClassifier, MemberRegressor, SetClassifier, SetRegressor

QUICK = {"model": "linear", "random_state": 0}


def orders(sets: int = 60, seed: int = 0) -> pd.DataFrame:
    """Numbers, booleans, strings, categories and dates, with gaps in all of them; `age` is constant per set."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(sets), rng.integers(2, 9, sets))
    n = len(ids)
    frame = pd.DataFrame(
        {
            "customer": [f"c{i}" for i in ids],
            "amount": rng.normal(size=n),
            "refund": pd.array(rng.random(n) < 0.3, dtype="boolean"),
            "channel": rng.choice(["web", "shop", "phone"], n).astype(object),
            "size": pd.Categorical(rng.choice(["S", "M", "L"], n)),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
            "age": rng.integers(20, 80, sets)[ids],
        }
    )
    for name in ("amount", "refund", "channel", "size", "day"):
        frame.loc[rng.random(n) < 0.1, name] = None
    return frame


def per_set(frame: pd.DataFrame, column: str = "amount") -> np.ndarray:
    return frame.groupby("customer", sort=False)[column].mean().fillna(0).to_numpy()


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_mixed_columns_with_gaps_are_read_alike_by_all_libraries(library):
    frame = orders()
    y = per_set(frame)
    wanted = SetRegressor(**QUICK, by="customer").fit(frame, y, z=["age"])
    given = {"pandas": lambda f: f, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}[library](frame)
    found = SetRegressor(**QUICK, by="customer").fit(given, y, z=["age"])
    np.testing.assert_allclose(found.predict(given), wanted.predict(frame), atol=1e-9)
    kinds = ["number", "number", "category", "category", "datetime"]
    assert [kind for _, kind in found.encoder_.schema] == kinds
    assert found.context_names_in_ == ["age"]


def test_summaries_are_those_of_a_plain_groupby():
    frame = orders()
    model = SetRegressor(**QUICK, by="customer", columns=["amount", "channel"]).fit(frame, per_set(frame))
    found = pd.DataFrame(model.transform(frame), columns=model.get_feature_names_out())
    groups = frame.groupby("customer", sort=False)
    mean, deviation = frame["amount"].mean(), frame["amount"].std(ddof=0)
    for what, values in (
        ("amount:mean", (groups["amount"].mean() - mean) / deviation),
        ("amount:max", (groups["amount"].max() - mean) / deviation),
        ("amount:std", groups["amount"].std(ddof=0) / deviation),
        ("amount:missing", groups["amount"].apply(lambda c: c.isna().mean())),
        ("channel=web:share", groups["channel"].apply(lambda c: (c == "web").mean())),
        ("channel=web:count", groups["channel"].apply(lambda c: (c == "web").sum())),
        ("count", groups.size()),
    ):
        np.testing.assert_allclose(found[what], values.fillna(0), atol=1e-9, err_msg=what)


def test_unseen_categories_are_counted_once_and_never_stop_a_prediction():
    frame = orders()
    model = SetRegressor(**QUICK, by="customer").fit(frame, per_set(frame))
    new = orders(seed=1)
    new.loc[new.index[:3], "channel"] = "carrier pigeon"
    with pytest.warns(UserWarning, match=r"3 of \d+ values in 'channel', for example 'carrier pigeon'.*unknown"):
        found = model.predict(new)
    assert np.isfinite(found).all()
    known = ~new.groupby("customer", sort=False)["channel"].agg(lambda c: "carrier pigeon" in set(c)).to_numpy()
    np.testing.assert_allclose(found[known], model.predict(orders(seed=1))[known], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["linear", "deep", "forest"])
def test_unseen_tokens_give_a_prediction_by_every_head(model):
    X = [["a", "b"], ["b", "c"], ["c"], ["a"]] * 6
    fitted = SetClassifier(model=model, epochs=3, random_state=0).fit(X, [0, 1, 1, 0] * 6)
    with pytest.warns(UserWarning, match="1 of 1 values in 'token', for example 'new'"):
        assert fitted.predict_proba([["new"]]).sum() == pytest.approx(1)


def test_test_rows_cannot_change_what_was_learned_from_the_training_rows():
    frame = orders()
    model = SetRegressor(by="customer", model="linear", random_state=0).fit(frame, per_set(frame))
    mean, words = model.encoder_.scale.mean.clone(), [list(v) for v in model.encoder_.vocabularies]
    half = frame[frame["customer"].isin(frame["customer"].unique()[:30])]
    alone = model.predict(half)
    far = orders(seed=2).assign(amount=1e6, customer=lambda f: "far" + f["customer"])
    together = model.predict(pd.concat([half, far], ignore_index=True))
    np.testing.assert_allclose(together[:30], alone)
    assert (model.encoder_.scale.mean == mean).all()
    assert model.encoder_.vocabularies == words


@pytest.mark.parametrize("shift", ["feature", "target"])
def test_an_offset_like_a_unix_time_loses_no_precision(shift):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(3, 9), 2)) for _ in range(80)]
    y = np.array([x[:, 0].mean() for x in X])
    moved = [x + 1.7e9 for x in X] if shift == "feature" else X
    target = y + 1.7e9 if shift == "target" else y
    model = SetRegressor(model="linear", random_state=0).fit(moved, target)
    assert model.score(moved, target) > 0.99
    member = MemberRegressor(epochs=30, random_state=0).fit(
        moved, [x[:, 0] + (1.7e9 if shift == "target" else 0) for x in X]
    )
    assert member.score(moved, [x[:, 0] + (1.7e9 if shift == "target" else 0) for x in X]) > 0.5


def test_set_level_columns_reach_the_answer_and_must_be_constant():
    frame = orders()
    y = frame.groupby("customer", sort=False)["age"].first().to_numpy(float)
    model = SetRegressor(**QUICK, by="customer", columns=["amount"]).fit(frame, y, z=["age"])
    assert model.score(frame, y) > 0.99
    ages = frame.groupby("customer", sort=False)["age"].first().to_numpy()[:, None]
    np.testing.assert_allclose(model.predict(frame.drop(columns="age"), z=ages), model.predict(frame))
    with pytest.raises(ValueError, match="set-level columns age are needed"):
        model.predict(frame.drop(columns="age"))
    with pytest.raises(ValueError, match="set-level column 'amount' must have one value per set, but it changes"):
        SetRegressor(**QUICK, by="customer").fit(frame, y, z=["amount"])


def test_set_level_strings_are_categories():
    frame = orders()
    sex = np.where(np.arange(60) % 2, "f", "m")
    frame["sex"] = frame["customer"].str[1:].astype(int).map(lambda i: sex[i])
    model = SetClassifier(**QUICK, by="customer").fit(frame.drop(columns="age"), sex, z=["sex"])
    assert model.score(frame, sex) == 1


def test_sets_of_sets_are_pooled_level_by_level():
    rng = np.random.default_rng(0)
    rows = [
        (p, s, level + rng.normal(), "x")
        for p in range(60)
        for level in [rng.normal(size=3).cumsum()[-1]]
        for s in range(3)
        for _ in range(rng.integers(1, 5))
    ]
    frame = pd.DataFrame(rows, columns=["patient", "slide", "value", "stain"])
    slides = frame.groupby(["patient", "slide"], sort=False)["value"].max()
    y = slides.groupby("patient").mean().to_numpy()
    model = SetRegressor(**QUICK, by=["patient", "slide"]).fit(frame, y)
    assert model.score(frame, y) > 0.99  # the mean over slides of the largest value of a slide
    assert not model.mergeable_
    with pytest.raises(ValueError, match="no state that could be merged"):
        model.encode(frame)


def test_members_of_tables_take_mixed_columns_too():
    frame = orders()
    y = (frame["channel"] == "web").to_numpy()
    model = MemberClassifier(by="customer", epochs=40, random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.95


def test_lists_of_dicts_and_arrow_structs_are_tables():
    frame = orders().drop(columns=["day", "age", "size"])
    y = per_set(frame)
    wanted = SetRegressor(**QUICK, by="customer").fit(frame, y).predict(frame)
    names = ["amount", "refund", "channel"]
    records = [
        [
            {n: None if pd.isna(v) else v for n, v in zip(names, row, strict=True)}
            for row in part[names].itertuples(index=False)
        ]
        for _, part in frame.groupby("customer", sort=False)
    ]
    for given in (records, pa.array(records)):
        np.testing.assert_allclose(SetRegressor(**QUICK).fit(given, y).predict(given), wanted, atol=1e-9)


def test_annotated_data_is_read_by_its_obs_column():
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    donor = np.repeat([f"d{i}" for i in range(30)], 5)
    adata = anndata.AnnData(
        rng.normal(size=(150, 3)).astype(np.float32),
        obs=pd.DataFrame({"donor": donor}, index=[str(i) for i in range(150)]),
    )
    y = adata.X.reshape(30, 5, 3).mean((1, 2))
    model = SetRegressor(**QUICK, by="donor").fit(adata, y)
    np.testing.assert_allclose(
        model.predict(adata),
        SetRegressor(**QUICK).fit(adata.X.reshape(30, 5, 3), y).predict(adata.X.reshape(30, 5, 3)),
        atol=1e-9,
    )


def test_identifiers_are_reported():
    frame = orders().assign(order_id=lambda f: np.arange(len(f)))
    with pytest.warns(UserWarning, match="'order_id' looks like an identifier"):
        SetRegressor(**QUICK, by="customer").fit(frame, per_set(frame))


def test_a_target_among_the_features_is_reported():
    frame = orders().assign(total=lambda f: f.groupby("customer")["amount"].transform("count"))
    target = frame.groupby("customer", sort=False)["total"].first()
    message = "y is the column 'total' of X, which is a feature too.*Give y='total'"
    with pytest.warns(UserWarning, match=message):
        SetRegressor(**QUICK, by="customer").fit(frame, target)
    with pytest.warns(UserWarning, match=message):
        MemberRegressor(epochs=1, by="customer").fit(frame, frame["total"])
    SetRegressor(**QUICK, by="customer").fit(frame.drop(columns="total"), target)  # no warning: warnings are errors
    mean = frame.groupby("customer", sort=False)["amount"].mean()
    SetRegressor(**QUICK, by="customer").fit(frame, mean)  # a statistic of a feature is a target like any other


def test_split_sets_are_reported_where_they_are_scored():
    frame = orders()
    y = frame.groupby("customer")["amount"].transform("mean").fillna(0)
    model = SetRegressor(**QUICK, by="customer").fit(frame[::2], y[::2])
    with pytest.warns(UserWarning, match=r"the rows of a set were split.*GroupKFold\(\), groups=table\['customer'\]"):
        model.score(frame[1::2], y[1::2])


def test_dates_become_seconds_hours_and_weekdays():
    days = [[{"t": datetime.datetime(2024, 1, 1, 6)}], [{"t": datetime.datetime(2024, 1, 7, 18)}]] * 5  # Monday, Sunday
    model = SetRegressor(**QUICK).fit(days, [0.0, 1.0] * 5)
    assert model.encoder_.number_names == ["t", "t:hour", "t:weekday"]
    np.testing.assert_allclose(model.encoder_.scale.mean[1:], [12, 3])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (None, "X is None: give a list of sets"),
        (sp.csr_matrix(np.eye(3)), "X is a sparse matrix of shape"),
        (np.ones((3, 2, 2), dtype=complex), "Complex data not supported: X holds complex numbers"),
        ([np.ones((2, 2), dtype=complex)] * 3, "Complex data not supported: set 0"),
        (np.ones((3, 2)), r"shape \(sets, members, features\), found \(3, 2\)"),
        (7, "X is 7; wanted a list of sets"),
    ],
)
def test_input_that_is_no_list_of_sets_is_named(X, message):
    with pytest.raises(ValueError, match=message):
        SetRegressor(**QUICK).fit(X, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (3.0, r"y is a single value \(3.0\)"),
        (np.array([1.0, 2.0, 3.0]) + 1j, "y holds complex numbers"),
        (np.ma.masked_greater([1.0, 2.0, 3.0], 2), "y is masked at 1 places"),
    ],
)
@pytest.mark.parametrize("kind", [SetRegressor, SetClassifier])
def test_targets_that_cannot_be_learned_are_named(kind, y, message):
    with pytest.raises(ValueError, match=message):
        kind(**QUICK).fit([np.eye(2)] * 3, y)


def test_a_list_of_numbers_is_no_target_of_a_regression():
    with pytest.raises(ValueError, match=r"the target must be a number, but that of set 0 is \[1, 2\]"):
        SetRegressor(**QUICK).fit([np.eye(2)] * 2, [[1, 2], [3]])


def test_a_list_of_sparse_matrices_is_a_list_of_sets():
    X = [np.eye(2) * n for n in range(1, 5)]
    y = [1.0, 2, 3, 5]
    sparse = [sp.csr_array(x) for x in X]
    np.testing.assert_array_equal(
        SetRegressor(**QUICK).fit(sparse, y).predict(sparse), SetRegressor(**QUICK).fit(X, y).predict(X)
    )


def test_masked_targets_of_members_are_unknown():
    X = [np.arange(6.0).reshape(3, 2) + n for n in range(6)]
    y = [np.ma.masked_greater(x[:, 0], 6) for x in X]
    known = [np.where(np.ma.getmaskarray(part), np.nan, part.data) for part in y]
    options = {"epochs": 1, "width": 4, "random_state": 0}
    for masked, plain in ((y, known), (np.ma.concatenate(y), np.concatenate(known))):
        found, wanted = (MemberRegressor(**options).fit(X, each).predict(X) for each in (masked, plain))
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(wanted))


def test_masked_arrays_are_gaps():
    values = np.ma.masked_greater(np.arange(24.0).reshape(4, 3, 2), 20)
    plain = np.where(values.mask, np.nan, values.data)
    y = [1.0, 2, 3, 5]
    np.testing.assert_allclose(
        SetRegressor(**QUICK).fit(values, y).predict(values), SetRegressor(**QUICK).fit(plain, y).predict(plain)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": -1}, "batch_size must be an integer of at least 1, found -1"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, found 0"),
        ({"epochs": -1}, "epochs must be an integer of at least 1, found -1"),
        ({"device": "zzz"}, "device must be .* found 'zzz'"),
        ({"columns": 3}, "columns must be a list of columns, found 3"),
        ({"n_jobs": 0}, "n_jobs must be a number of threads, or -1 for all, found 0"),
        ({"width": 0}, "width must be an integer of at least 1, found 0"),
        ({"dropout": 2.0}, "dropout must be a number between 0 and 1, found 2.0"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"model": "magic"}, "model must be 'auto', 'deep', 'boosting', 'forest', 'kernel' or 'linear'"),
    ],
)
def test_parameters_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SetRegressor(**options).fit([np.ones((2, 2)), np.zeros((2, 2))], [1.0, 2.0])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (5, r"y is a single value \(5\); wanted one target for each of the 3 sets"),
        (["a", 1, "b"], "y mixes labels of different types"),
        ([0.5, 1.5, 0.5], "y holds fractions such as 0.5"),
    ],
)
def test_labels_of_the_wrong_kind_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        SetClassifier(**QUICK).fit([np.ones((2, 2))] * 3, y)


@pytest.mark.parametrize("library", ["duckdb", "datasets", "polars"])
def test_tables_of_other_libraries_are_read_with_their_targets(library):
    module = pytest.importorskip(library)
    frame = pd.DataFrame({"set": np.arange(120) // 4, "x": np.arange(120) % 7 / 7})
    frame["y"] = frame.groupby("set")["x"].transform("mean")
    table = {
        "duckdb": lambda: module.from_df(frame),
        "datasets": lambda: module.Dataset.from_pandas(frame),
        "polars": lambda: module.from_pandas(frame).lazy(),
    }[library]()
    model = SetRegressor(by="set", **QUICK).fit(table, "y")
    wanted = SetRegressor(by="set", **QUICK).fit(frame, "y")
    np.testing.assert_allclose(model.predict(table), wanted.predict(frame), atol=1e-9)
    assert model.score(table, "y") > 0.9


def test_awkward_records_are_members_with_named_columns():
    ak = pytest.importorskip("awkward")
    X = ak.Array([[{"pt": float(i + j), "kind": "ab"[j % 2]} for j in range(i % 3)] for i in range(30)])
    model = SetRegressor(**QUICK).fit(X, np.arange(30.0))
    assert model.feature_names_in_.tolist() == ["pt", "kind"]
    assert model.predict(X).shape == (30,)


def test_records_are_predicted_with_the_columns_of_fit():
    X = [[{"pt": float(i + j), "kind": "ab"[j % 2]} for j in range(1 + i % 3)] for i in range(30)]
    model = SetRegressor(**QUICK).fit(X, np.arange(30.0))
    wanted = model.predict([[{"pt": 1.0, "kind": "a"}]])
    assert model.predict([[{"kind": "a", "more": 3, "pt": 1.0}]]) == wanted
    assert np.isfinite(model.predict([[{"kind": "a"}], []])).all()  # a missing value; an empty set


def test_targets_of_sets_of_sets_are_columns_of_the_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"patient": rng.integers(30, size=300), "slide": rng.integers(3, size=300)})
    table["size"], table["sick"] = rng.normal(size=300) + table["patient"] % 2, table["patient"] % 2
    model = SetClassifier(by=["patient", "slide"], **QUICK).fit(table, "sick")
    y = table.groupby("patient", sort=False)["sick"].first().to_numpy()
    assert model.score(table, "sick") == (model.predict(table) == y).mean() > 0.7
    found = model.feature_importance(table, "sick", n_repeats=1)
    assert found.feature_names.tolist() == ["size"]
    assert found.importances_mean[0] > 0.1


def test_a_summary_without_values_in_a_fold_does_not_stop_boosting():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4, 2)) for _ in range(60)]
    for x in X[1:]:
        x[:, 1] = np.nan
    y = [x[:, 0].mean() for x in X]
    model = SetRegressor(model="boosting", random_state=0).fit(X, y)
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.8


def test_anndata_is_predicted_with_the_variables_of_fit():
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(0)
    obs = pd.DataFrame({"donor": [f"d{i // 5}" for i in range(200)]}, index=[f"cell{i}" for i in range(200)])
    obs["age"] = np.arange(200) // 5
    cells = anndata.AnnData(
        rng.normal(size=(200, 3)) + obs[["age"]].to_numpy(), obs, pd.DataFrame(index=["a", "b", "c"])
    )
    model = SetRegressor(by="donor", **QUICK).fit(cells, "age")
    np.testing.assert_allclose(model.predict(cells[:, ["c", "a", "b"]]), model.predict(cells))
    with pytest.raises(ValueError, match="AnnData without the variable 'c'"):
        model.predict(cells[:, ["a", "b"]])


@pytest.mark.parametrize("table", [False, True])
def test_embeddings_come_in_the_container_that_was_asked_for(table):
    frame = orders()
    X = frame if table else [np.ones((i % 3 + 1, 2)) * i for i in range(40)]
    y = per_set(frame) if table else np.arange(40.0)
    model = SetRegressor(by="customer" if table else None, **QUICK).set_output(transform="pandas").fit(X, y)
    found = model.transform(X)
    assert isinstance(found, pd.DataFrame)
    assert found.columns.tolist() == model.get_feature_names_out().tolist()
    assert found.index.tolist() == (frame["customer"].drop_duplicates().tolist() if table else list(range(40)))


def test_weights_of_unknown_classes_are_refused():
    X = [np.ones((2, 2)) * i for i in range(20)]
    with pytest.raises(ValueError, match="class_weight names 'sik', which is not a class; classes are 'ill', 'well'"):
        SetClassifier(class_weight={"sik": 3}, **QUICK).fit(X, ["ill", "well"] * 10)


@pytest.mark.parametrize("library", ["pandas", "arrow", "records"])
def test_a_column_without_values_in_fit_never_stops_a_prediction(library):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"set": np.repeat(np.arange(20), 3), "a": rng.normal(size=60), "note": [None] * 60})
    y = table.groupby("set").a.mean().to_numpy()

    def given(frame):
        if library == "records":
            return [group.drop(columns="set").to_dict("records") for _, group in frame.groupby("set")]
        return frame if library == "pandas" else pa.table(frame)

    by = None if library == "records" else "set"
    model = SetRegressor(model="linear", by=by, random_state=0).fit(given(table), y)
    plain = model.predict(given(table))
    for values in (["late"] * 60, list(range(60))):
        with pytest.warns(UserWarning, match=r"not seen in fit: 60 of 60 values in 'note', for example ('late'|0)"):
            found = model.predict(given(table.assign(note=values)))
        np.testing.assert_array_equal(found, plain)

"""Sets scattered over partitions: the answers do not know how; states are kept, merged and taken from."""

import json
import multiprocessing
import sys
import threading
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import deepsets
from deepsets import distributed, nn
from deepsets.distributed import functions, local, workers
from deepsets.estimators import MemberRegressor, SetClassifier, SetRegressor
from deepsets.io import row_groups
from tests.deepsets.cli.commands import run

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")

ALONE = distributed.Engine(workers=1)
NAMES = ["x0", "x1", "x2"]
torch.manual_seed(0)
POOLINGS = [
    "sum",
    "mean",
    "sqrt",
    "std",
    "max",
    "min",
    "logsumexp",
    nn.GatedAttentionPooling(6),
    nn.SeedAttentionPooling(6, 2, 3),
]


def model(pool, *, size=False, **more) -> nn.DeepSet:
    torch.manual_seed(0)
    pooled = nn.pooling(pool).out_features(6) + size + (2 if more.get("condition") in ("rho", "both") else 0)
    inner = 3 + (2 if more.get("condition") in ("phi", "both") else 0)
    return nn.DeepSet(nn.mlp(inner, 8, 6), nn.mlp(pooled, 8, 2), pool=pool, append_size=size, **more).eval()


def rows(n: int, sets: int, seed: int = 0) -> "pd.DataFrame":
    rng = np.random.default_rng(seed)
    out = pd.DataFrame(rng.normal(size=(n, 3)).astype(np.float32), columns=NAMES)
    out.insert(0, "box", [f"b{i}" for i in rng.integers(0, sets, n)])
    return out


def shards(frame, folder, cuts=(), group=50):
    folder.mkdir()
    edges = [0, *sorted(cuts), len(frame)]
    for number, (a, b) in enumerate(pairwise(edges)):
        pq.write_table(pa.Table.from_pandas(frame[a:b], preserve_index=False), folder / f"{number}.parquet", group)
    return folder


def in_memory(net, frame) -> "pd.DataFrame":
    """All rows at once, in float64: the oracle."""
    each = {name: torch.tensor(part[NAMES].to_numpy()) for name, part in frame.groupby("box")}
    with torch.no_grad():
        found = net.double()(deepsets.Sets.from_list([x.double() for x in each.values()])).numpy()
    net.float()
    return pd.DataFrame({"box": list(each), "prediction_0": found[:, 0], "prediction_1": found[:, 1]})


def close(found, wanted) -> None:
    assert found["box"].tolist() == wanted["box"].tolist()
    for name in found.columns.drop("box"):
        scaled = np.abs(wanted[name]).max()
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, atol=1e-6 * scaled)


@pytest.mark.parametrize("pool", POOLINGS, ids=str)
def test_every_pooling_that_merges_answers_as_in_memory(pool, tmp_path):
    net, frame = model(pool), rows(400, 7)
    folder = shards(frame, tmp_path / "rows", [90, 200], group=30)
    facts = distributed.predict(net, folder, tmp_path / "out.parquet", by="box", engine=ALONE, part_size=60)
    close(pd.read_parquet(tmp_path / "out.parquet"), in_memory(net, frame))
    assert (facts["sets"], facts["members"]) == (7, 400) and facts["parts"] > 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.parquet", "rows"]


def test_threads_give_the_same_states_as_one_worker(tmp_path, monkeypatch):
    frame = rows(2000, 50)
    table = shards(frame, tmp_path / "t", [700])
    fitted = SetRegressor(by="box", epochs=1, n_estimators=2, random_state=0)
    fitted.fit(frame, frame["box"].str[1:].astype(int))
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: range(4), raising=False)
    here = set()
    for number, net in enumerate((model(["max", "std"], size=True), fitted)):
        for name, engine in (("threads", "local"), ("alone", ALONE)):
            seen = lambda *_: here.update(t.name for t in threading.enumerate())  # noqa: E731
            out = tmp_path / f"{name}-{number}.parquet"
            distributed.pool(net, table, out, by="box", part_size=100, engine=engine, progress=seen)
        assert (tmp_path / f"threads-{number}.parquet").read_bytes() == out.read_bytes()
    assert len({name for name in here if name.startswith("ThreadPoolExecutor")}) >= 4
    assert not multiprocessing.active_children()


@settings(max_examples=12)
@given(st.data())
def test_the_answer_knows_neither_order_nor_partitions(tmp_path_factory, data):
    net = model(["max", "mean", "std"], size=True)
    n = data.draw(st.integers(1, 60), "rows")
    frame = rows(n, data.draw(st.integers(1, 30), "sets"), seed=n)
    other = frame.iloc[data.draw(st.permutations(range(n)), "order")]
    if data.draw(st.booleans(), "sorted"):
        other = other.sort_values("box")
    cuts = data.draw(st.lists(st.integers(0, n), max_size=4), "cuts")
    here = tmp_path_factory.mktemp("any")
    group, part = data.draw(st.integers(1, 20), "row group"), data.draw(st.integers(1, 60), "part")
    distributed.predict(
        net, shards(other, here / "rows", cuts, group), here / "o.parquet", by="box", engine=ALONE, part_size=part
    )
    close(pd.read_parquet(here / "o.parquet"), in_memory(net, frame))


def test_states_beyond_the_limit_of_memory_are_spilled_and_merged_by_hash(tmp_path, monkeypatch):
    net, frame = model("std"), rows(3000, 400)
    monkeypatch.setattr(local, "STATES", 20_000)
    monkeypatch.setattr(row_groups, "TABLE", 3000)
    monkeypatch.setattr(row_groups, "READ", 100)
    seen = []

    def look(*_):
        seen.append(len(list((tmp_path / "out.parts").glob("map-*.arrow"))))

    distributed.predict(net, shards(frame, tmp_path / "rows"), tmp_path / "out", by="box", engine=ALONE, progress=look)
    assert seen[0] > 5  # several spilled files of one part
    files = sorted(tmp_path.glob("out/*.parquet"))
    assert len(files) > 3
    found = pd.concat([pd.read_parquet(file) for file in files]).sort_values("box", ignore_index=True)
    close(found, in_memory(net, frame))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SetRegressor, SetClassifier])
def test_estimators_with_z_and_missing_values(kind, tmp_path):
    frame = rows(300, 40)
    frame["known"] = frame["box"].str[1:].astype(float)
    y = (frame["known"] % 2).astype(int)
    fitted = kind(by="box", epochs=1, n_estimators=2, random_state=0)
    frame.loc[5, "x1"] = np.nan
    first = frame.groupby("box", sort=False)
    fitted.fit(frame.drop(columns="known"), y, z=first["known"].first().to_numpy()[:, None])
    fitted.context_names_in_, fitted.target_names_ = ["known"], ["y"]
    deepsets.save(fitted, tmp_path / "model")
    mixed = frame.sample(frac=1, random_state=1)
    distributed.predict(tmp_path / "model", shards(mixed, tmp_path / "t", [100]), tmp_path / "o.csv", engine=ALONE)
    found = pd.read_csv(tmp_path / "o.csv").set_index("box")
    ask = fitted.predict_proba if kind is SetClassifier else fitted.predict
    wanted = ask(frame.drop(columns="known"), z=first["known"].first().to_numpy()[:, None])
    column = "probability_1" if kind is SetClassifier else "prediction"
    names = frame["box"].unique()
    wanted = wanted[:, 1] if kind is SetClassifier else wanted
    np.testing.assert_allclose(found.loc[names, column], wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("condition", ["phi", "rho", "both"])
def test_what_is_known_of_a_set_goes_with_its_state(condition, tmp_path):
    net, frame = model("mean", condition=condition), rows(80, 5)
    frame["u"], frame["v"] = frame["box"].str[1:].astype(float), 1.0
    options = {"by": "box", "z": ["u", "v"], "features": NAMES, "engine": ALONE}
    distributed.pool(net, shards(frame, tmp_path / "a"), tmp_path / "s.parquet", **options)
    distributed.predict(net, tmp_path / "s.parquet", tmp_path / "o.parquet", engine=ALONE)
    found = pd.read_parquet(tmp_path / "o.parquet")
    each = dict(iter(frame.groupby("box")))
    sets = deepsets.Sets.from_list([torch.tensor(part[NAMES].to_numpy()) for part in each.values()])
    z = torch.tensor(np.stack([part[["u", "v"]].to_numpy()[0] for part in each.values()])).float()
    np.testing.assert_allclose(found["prediction_1"], net(sets, z)[:, 1].detach(), rtol=1e-5, atol=1e-6)
    frame.loc[0, "u"] = 77.0
    with pytest.raises(ValueError, match=r"set 'b\d' has u = .* in one row and|must have one value"):
        distributed.pool(net, shards(frame, tmp_path / "b", range(1, 80)), tmp_path / "t.parquet", **options)


def test_new_rows_are_added_to_old_states_and_taken_away_again(tmp_path):
    net, frame = model(["sum", "std"], size=True), rows(200, 9)
    old, new = (shards(part, tmp_path / name) for part, name in ((frame[:120], "old"), (frame[120:], "new")))
    options = {"by": "box", "engine": ALONE}
    distributed.pool(net, old, tmp_path / "old.parquet", **options)
    both = distributed.pool(net, new, tmp_path / "both.parquet", merge=tmp_path / "old.parquet", **options)
    assert both["members"] == 200
    distributed.predict(net, tmp_path / "both.parquet", tmp_path / "answers.parquet", engine=ALONE)
    close(pd.read_parquet(tmp_path / "answers.parquet"), in_memory(net, frame))
    distributed.pool(net, new, tmp_path / "back.parquet", merge=tmp_path / "both.parquet", remove=True, **options)
    distributed.predict(net, tmp_path / "back.parquet", tmp_path / "again.parquet", engine=ALONE)
    close(pd.read_parquet(tmp_path / "again.parquet"), in_memory(net, frame[:120]))
    nothing = distributed.pool(
        net, old, tmp_path / "none.parquet", merge=tmp_path / "back.parquet", remove=True, **options
    )
    assert (nothing["sets"], nothing["members"]) == (9, 0)
    distributed.predict(net, tmp_path / "none.parquet", tmp_path / "empty.parquet", engine=ALONE)
    empty = net(deepsets.Sets.from_list([torch.zeros(0, 3)]))[0, 0].item()
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "empty.parquet")["prediction_0"], empty, rtol=1e-6)


def test_members_that_cannot_be_removed_give_an_error_message(tmp_path):
    frame, options = rows(40, 4), {"by": "box", "engine": ALONE}
    table, few = shards(frame, tmp_path / "t"), shards(frame[:4], tmp_path / "few")
    net = model("mean")
    distributed.pool(net, few, tmp_path / "s.parquet", **options)
    taken = {"merge": tmp_path / "s.parquet", "remove": True, **options}
    with pytest.raises(ValueError, match=r"set 'b\d' (has no state|has \d members, of which \d+ cannot be taken away)"):
        distributed.pool(net, table, tmp_path / "o.parquet", **taken)
    with pytest.raises(ValueError, match="was pooled with another model"):
        distributed.pool(model("max"), table, tmp_path / "p.parquet", **taken)
    distributed.pool(model("max"), few, tmp_path / "m.parquet", **options)
    with pytest.raises(ValueError, match=r"MaxPooling cannot"):
        distributed.pool(model("max"), few, tmp_path / "p.parquet", **taken | {"merge": tmp_path / "m.parquet"})
    with pytest.raises(ValueError, match="does not hold states: wanted an output of pool"):
        distributed.pool(net, few, tmp_path / "p.parquet", merge=table / "0.parquet", **options)
    with pytest.raises(ValueError, match="remove=True needs merge"):
        distributed.pool(net, few, tmp_path / "p.parquet", remove=True, **options)


def test_models_that_need_whole_sets(tmp_path):
    frame, options = rows(60, 3), {"by": "box", "engine": ALONE}
    mixed = shards(frame, tmp_path / "mixed")
    together = shards(frame.sort_values("box", kind="stable"), tmp_path / "together")
    quantile = nn.DeepSet(nn.mlp(3, 6), nn.mlp(18, 2), nn.QuantilePooling()).eval()
    layer = nn.DeepSet(nn.SetSequential(nn.Equivariant(3, 6)), nn.mlp(6, 2)).eval()
    for net, message in ((quantile, "Quantile.* needs all members of a set at once"), (layer, "states need a phi")):
        distributed.predict(net, together, tmp_path / "o.parquet", overwrite=True, **options)
        found = pd.read_parquet(tmp_path / "o.parquet")
        close(found, in_memory(net, frame.sort_values("box", kind="stable")))
        with pytest.raises(
            ValueError, match=r"rows of set 'b\d' are not neighbours in one file.*Sort the table by 'box'"
        ):
            distributed.predict(net, mixed, tmp_path / "p.parquet", **options)
        with pytest.raises(ValueError, match=message):
            distributed.pool(net, together, tmp_path / "p.parquet", **options)
    members = MemberRegressor(by="box", epochs=1, random_state=0).fit(rows(30, 3), np.arange(30.0))
    with pytest.raises(ValueError, match=r"MemberRegressor"):
        distributed.pool(members, together, tmp_path / "p.parquet", engine=ALONE)
    assert not list(tmp_path.glob("p.parquet*"))


def test_models_of_members_take_files_of_whole_sets(tmp_path):
    frame = rows(90, 6).sort_values("box", kind="stable", ignore_index=True)
    fitted = MemberRegressor(by="box", epochs=1, random_state=0).fit(frame, np.arange(90.0))
    edge = int((frame["box"] == "b0").sum())
    facts = distributed.predict(fitted, shards(frame, tmp_path / "t", [edge]), tmp_path / "o.parquet", engine=ALONE)
    assert (facts["sets"], facts["members"], facts["parts"]) == (6, 90, 2)
    found = pd.read_parquet(tmp_path / "o.parquet")
    np.testing.assert_allclose(found["prediction"], fitted.predict(frame), rtol=1e-5)
    with pytest.raises(ValueError, match=r"rows of set 'b0' are not neighbours in one file"):
        distributed.predict(fitted, shards(frame, tmp_path / "u", [edge - 1]), tmp_path / "p.parquet", engine=ALONE)


def test_nested_tables_and_sets_without_names(tmp_path):
    net = model("mean")
    sizes = np.random.default_rng(0).integers(0, 6, 30)
    values = np.random.default_rng(1).normal(size=(sizes.sum(), 3)).astype(np.float32)
    offsets = np.concatenate([[0], sizes.cumsum()])
    lists = pa.ListArray.from_arrays(offsets.astype(np.int32), pa.FixedSizeListArray.from_arrays(values.ravel(), 3))
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"x": lists[:17]}), folder / "0.parquet", 4)
    pq.write_table(pa.table({"x": lists[17:]}), folder / "1.parquet", 4)
    distributed.predict(net, folder, tmp_path / "o.parquet", engine=ALONE, part_size=10)
    found = pd.read_parquet(tmp_path / "o.parquet")
    wanted = net(deepsets.Sets(torch.from_numpy(values), torch.from_numpy(offsets))).detach().numpy()
    assert found["set"].tolist() == list(range(30))
    np.testing.assert_allclose(found[["prediction_0", "prediction_1"]], wanted, rtol=1e-5, atol=1e-6)


def test_members_of_sets_without_names_are_answered_by_row(tmp_path):
    sizes = np.arange(1, 9)
    values = np.random.default_rng(1).normal(size=(sizes.sum(), 3)).astype(np.float32)
    offsets = np.concatenate([[0], sizes.cumsum()])
    lists = pa.ListArray.from_arrays(offsets.astype(np.int32), pa.FixedSizeListArray.from_arrays(values.ravel(), 3))
    sets = [values[a:b] for a, b in pairwise(offsets)]
    fitted = MemberRegressor(epochs=1, random_state=0).fit(sets, [x[:, 0] for x in sets])
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"x": lists[:5]}), tmp_path / "t" / "0.parquet")
    pq.write_table(pa.table({"x": lists[5:]}), tmp_path / "t" / "1.parquet")
    distributed.predict(fitted, tmp_path / "t", tmp_path / "o.parquet", engine=ALONE)
    found = pd.read_parquet(tmp_path / "o.parquet")
    assert found["set"].tolist() == np.repeat(np.arange(8), sizes).tolist()
    np.testing.assert_allclose(found["prediction"], np.concatenate(fitted.predict(sets)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("named", ["b{:03d}".format, int])
def test_sorted_sets_are_answered_at_once_and_others_by_their_states(named, tmp_path, monkeypatch):
    net = model(["max", "mean", "std"], size=True)
    frame = rows(600, 90).assign(box=lambda f: [named(int(b[1:])) for b in f["box"]])
    frame = frame.sort_values("box", kind="stable", ignore_index=True)
    monkeypatch.setattr(row_groups, "TABLE", 1200)
    monkeypatch.setattr(row_groups, "READ", 60)
    answered = []
    whole = functions._predict

    def spy(*args):
        found = whole(*args)
        answered.append(found["box"].unique())
        return found

    monkeypatch.setattr(functions, "_predict", spy)
    swapped = frame.take([*range(300), *range(599, 299, -1)])
    mixed = frame.sample(frac=1, random_state=0)
    for table, least, most in ((frame, 50, 85), (swapped, 0, 60), (mixed, 0, 0)):
        folder = shards(table, tmp_path / f"t{most}", [200, 400])
        facts = distributed.predict(net, folder, tmp_path / f"{most}.parquet", by="box", engine=ALONE, part_size=100)
        assert (facts["sets"], facts["members"]) == (frame["box"].nunique(), 600)
        close(pd.read_parquet(tmp_path / f"{most}.parquet"), in_memory(net, frame))
        assert least <= sum(map(len, answered)) <= most
        answered.clear()


def test_bad_tables_and_engines_are_named(tmp_path):
    net, frame = model("mean"), rows(20, 3)
    table = shards(frame, tmp_path / "t", [10])
    pq.write_table(pa.table({"box": ["a"], "x0": [1.0], "x1": [1.0]}), table / "2.parquet")
    with pytest.raises(ValueError, match=r"2.parquet has no column 'x2', which .*0.parquet has"):
        distributed.pool(net, table, tmp_path / "o.parquet", by="box", engine=ALONE)
    pq.write_table(pa.table({"box": [1], "x0": [1.0], "x1": [1.0], "x2": [1.0]}), table / "2.parquet")
    with pytest.raises(ValueError, match=r"'box' holds int64 in .*2.parquet and .*string in"):
        distributed.pool(net, table, tmp_path / "o.parquet", by="box", engine=ALONE)
    frame.loc[3, "x1"] = np.inf
    bad = shards(frame, tmp_path / "bad")
    with pytest.raises(ValueError, match=r"the first is 'x1' of set 'b\d', member \d, infinite"):
        distributed.pool(net, bad, tmp_path / "o.parquet", by="box", engine=ALONE)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="holds no Parquet files"):
        distributed.pool(net, tmp_path / "none", tmp_path / "o.parquet", by="box", engine=ALONE)
    for engine, output in (
        ("dask", "unknown engine 'dask': use one of local, ray, spark"),
        (distributed.Engine(workers=0), "at least one worker"),
        (distributed.Engine(address="auto"), "an address is for the engines ray and spark"),
        (distributed.Engine("ray", address="127.0.0.1:9"), r"no cluster answers at 127.0.0.1:9 \(Connection refused\)"),
        (distributed.Engine("spark", address="spark://127.0.0.1:9"), r"no cluster answers at spark://127.0.0.1:9 "),
    ):
        with pytest.raises(ValueError, match=output):
            distributed.pool(net, bad, tmp_path / "p.parquet", by="box", engine=engine)
    with pytest.raises(ValueError, match=r"states are written as Parquet"):
        distributed.pool(net, bad, tmp_path / "p.csv", by="box", engine=ALONE)


@pytest.mark.parametrize(
    ("engine", "module", "java", "message"),
    [
        ("ray", None, None, r"needs Ray: pip install 'deepsets\[ray\]'"),
        ("spark", None, None, r"needs PySpark: pip install 'deepsets\[spark\]'"),
        ("spark", "3.5.1", None, "needs PySpark 4 or later, found 3.5.1"),
        ("spark", "4.0.0", "", "needs Java, and found none: install it, or set JAVA_HOME"),
        ("spark", "4.0.0", "/nowhere", "needs Java, and found none in JAVA_HOME=/nowhere: install it"),
    ],
)
def test_what_an_engine_misses_is_named(engine, module, java, message, tmp_path, monkeypatch):
    found = None if module is None else SimpleNamespace(__version__=module)
    monkeypatch.setitem(sys.modules, {"ray": "ray", "spark": "pyspark"}[engine], found)
    if java is not None:
        monkeypatch.setenv("JAVA_HOME", java)
        monkeypatch.setenv("PATH", "")
    with pytest.raises(ImportError, match=message):
        distributed.pool(model("sum"), tmp_path / "t", tmp_path / "s.parquet", by="box", engine=engine)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, 9))
def test_states_merged_in_any_grouping_are_the_plain_sum(ids, seed):
    net = model("sum")
    values = np.random.default_rng(seed).normal(size=(len(ids), 6))
    kind = pa.list_(pa.field("element", pa.float64(), nullable=False), 6)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=kind)
    ones = np.ones(len(ids))
    states = pa.table({"box": ids, "members": ones.astype(int), "state.sum": vectors, "state.count": ones})
    merge = distributed.merge(net)
    cut = seed % len(ids)
    for found in (merge(states), merge(pa.concat_tables([merge(states[:cut]), merge(states[cut:])]))):
        assert found["box"].to_pylist() == sorted(set(ids))
        for i, name in enumerate(found["box"].to_pylist()):
            own = [n for n, other in enumerate(ids) if other == name]
            np.testing.assert_allclose(found["state.sum"][i].as_py(), values[own].sum(0), rtol=1e-12, atol=1e-12)
            assert found["members"][i].as_py() == len(own) == found["state.count"][i].as_py()


def test_the_commands(tmp_path):
    frame = rows(200, 20)
    frame["y"] = frame["box"].str[1:].astype(int) % 3
    frame.sort_values("box").to_parquet(tmp_path / "t.parquet", index=False)
    run("fit", tmp_path / "t.parquet", "--by", "box", "--target", "y", "--epochs", 1, "-o", tmp_path / "m", "--json")
    run("predict", tmp_path / "m", tmp_path / "t.parquet", "-o", tmp_path / "whole.parquet")
    mixed = frame.sample(frac=1, random_state=0)
    shards(mixed[:120], tmp_path / "old", [50])
    mixed[120:].to_parquet(tmp_path / "new.parquet", index=False)
    run("pool", tmp_path / "m", tmp_path / "old", "-o", tmp_path / "old.parquet", "--workers", 1)
    more = ["--merge", tmp_path / "old.parquet", "-o", tmp_path / "both.parquet", "--json"]
    assert json.loads(run("pool", tmp_path / "m", tmp_path / "new.parquet", *more))["members"] == 200
    run("predict", tmp_path / "m", tmp_path / "both.parquet", "-o", tmp_path / "states-answers.parquet")
    mixed.to_parquet(tmp_path / "mixed.parquet", index=False)
    run("predict", tmp_path / "m", tmp_path / "mixed.parquet", "--scattered", "-o", tmp_path / "scattered.parquet")
    wanted = pd.read_parquet(tmp_path / "whole.parquet").sort_values("box", ignore_index=True)
    for name in ("states-answers", "scattered"):
        found = pd.read_parquet(tmp_path / f"{name}.parquet")
        assert found["box"].tolist() == wanted["box"].tolist() and found.columns.tolist() == wanted.columns.tolist()
        numbers = found.select_dtypes("number").columns
        np.testing.assert_allclose(found[numbers], wanted[numbers], rtol=1e-5, atol=1e-6)
    more = ["--merge", tmp_path / "both.parquet", "-o", tmp_path / "x.parquet", "--remove"]
    assert "cannot remove elements: its state is not invertible" in run(
        "pool", tmp_path / "m", tmp_path / "new.parquet", *more, code=1
    )
    assert "exists" in run("pool", tmp_path / "m", tmp_path / "old", "-o", tmp_path / "old.parquet", code=1)
    for wrong in (["--remove"], ["--engine", "dask"], ["--address", "auto"]):
        run("pool", tmp_path / "m", tmp_path / "old", "-o", tmp_path / "x.parquet", *wrong, code=2)


def test_an_expander_does_not_answer_for_sets(tmp_path):
    from deepsets.expand import BayesianSets, SetExpander

    pq.write_table(pa.table({"set": [1, 1, 2], "x": [0.1, 0.2, 0.3]}), tmp_path / "rows.parquet")
    baskets = [["milk", "bread"], ["bread", "butter", "milk"]]
    for model in (BayesianSets().fit(baskets), SetExpander(epochs=1).fit(baskets)):
        with pytest.raises(ValueError, match="does not predict for sets: wanted an estimator or a DeepSet"):
            distributed.predict(model, tmp_path / "rows.parquet", tmp_path / "out.parquet", by="set")


def test_a_folder_of_answers_is_read_like_any_other(tmp_path):
    import polars as pl

    model = nn.DeepSet(nn.mlp(1, 4), nn.mlp(4, 1), pool="sum")
    pq.write_table(pa.table({"set": [1, 1, 2], "x": [0.1, 0.2, 0.3]}), tmp_path / "rows.parquet")
    distributed.predict(model, tmp_path / "rows.parquet", tmp_path / "answers", by="set")
    assert pq.read_table(tmp_path / "answers")["set"].to_pylist() == [1, 2]
    assert pl.read_parquet(tmp_path / "answers" / "*.parquet")["set"].to_list() == [1, 2]


@pytest.mark.parametrize("shuffled", [False, True])
def test_large_sets_of_one_row_group_are_pooled_in_float64(tmp_path, shuffled):
    rng = np.random.default_rng(0)
    sizes = np.array([3, 5_000, 7, 20_000, 1, 2, 30_000, 4])
    ids = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.uniform(0.5, 1.5, len(ids)).astype(np.float32)
    wanted = np.bincount(ids, x.astype(np.float64))
    order = rng.permutation(len(ids)) if shuffled else np.arange(len(ids))
    pq.write_table(pa.table({"set": ids[order], "x": x[order]}), tmp_path / "rows.parquet")
    net = nn.DeepSet(torch.nn.Identity(), torch.nn.Identity(), pool="sum")
    distributed.predict(net, tmp_path / "rows.parquet", tmp_path / "out.parquet", by="set")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found["set"].to_pylist() == list(range(len(sizes)))
    np.testing.assert_allclose(found["prediction"].to_numpy(), wanted, rtol=6e-8 * 2)

"""Expansion over candidates in files: the same as with all of them at once."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepsets
from deepsets import distributed
from deepsets.expand import BayesianSets, NearestVectors, SetExpander

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.deepsets.distributed.test_distributed import ALONE, rows, run, shards  # noqa: E402  # needs pyarrow


def items(n: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    return [f"c{i}" for i in range(n)], rng.normal(size=(n, 4)).astype(np.float32)


def files(names, matrix, folder, cuts=(), group=7, vectors=False, name="name"):
    folder.mkdir()
    columns = {f"f{i}": matrix[:, i] for i in range(4)}
    if vectors:
        columns = {"v": pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), 4)}
    table = pa.table({name: names, **columns})
    edges = [0, *sorted(cuts), len(names)]
    for number, start in enumerate(edges[:-1]):
        pq.write_table(table.slice(start, edges[number + 1] - start), folder / f"{number}.parquet", group)
    return folder


KNOWN = items(30, seed=9)


def expanders():
    sets = [KNOWN[0][i : i + 6] for i in range(0, 30, 3)]
    learned = SetExpander(embedding=0, epochs=1, phi=(8, 8), rho=(8, 4), random_state=0)
    return [
        learned.fit(sets, items=KNOWN),
        NearestVectors(components=0).fit(items=KNOWN),
        BayesianSets("gauss").fit(items=KNOWN),
    ]


@pytest.mark.parametrize("expander", expanders(), ids=lambda e: type(e).__name__)
@settings(max_examples=6)
@given(data=st.data())
def test_the_best_of_all_parts_are_the_best_of_all(expander, data, tmp_path_factory):
    n, k = data.draw(st.integers(4, 60), "candidates"), data.draw(st.integers(1, 12), "k")
    names, matrix = items(n)
    matrix[n // 2 :] = matrix[: n - n // 2]  # ties
    folder = tmp_path_factory.mktemp("candidates")
    cuts = data.draw(st.lists(st.integers(0, n), max_size=3), "cuts")
    table = files(names, matrix, folder / "t", cuts, vectors=data.draw(st.booleans(), "one column of vectors"))
    found = distributed.expand(
        expander, KNOWN[0][:3], table, k, element="name", part_size=10, engine=ALONE, exclude=["c99"]
    )
    whole = expander.score(KNOWN[0][:3], matrix)
    allowed = [i for i in range(n) if names[i] not in KNOWN[0][:3]]
    wanted = sorted(allowed, key=lambda i: (-whole[i], i))[:k]
    np.testing.assert_allclose([c.score for c in found], whole[wanted], rtol=1e-5, atol=1e-6)
    assert len({c.element for c in found}) == len(found) == min(k, len(allowed))
    place = {name: i for i, name in enumerate(names)}
    np.testing.assert_allclose([whole[place[c.element]] for c in found], whole[wanted], rtol=1e-5, atol=1e-6)


def test_a_query_of_new_names_is_looked_up_in_the_files(tmp_path):
    expander = NearestVectors(components=0).fit(items=KNOWN)
    names, matrix = [f"new{i}" for i in range(50)], items(50)[1]
    table = files(names, matrix, tmp_path / "t", [20])
    found = distributed.expand(expander, ["new3", "new30"], table, 4, element="name", engine=ALONE, part_size=10)
    wanted = expander.score(matrix[[3, 30]], matrix)
    wanted[[3, 30]] = -np.inf
    assert [c.element for c in found] == [names[i] for i in np.argsort(-wanted, kind="stable")[:4]]
    with pytest.raises(ValueError, match=r"'puma', which is neither in the vocabulary of 30 nor among the candidates"):
        distributed.expand(expander, ["puma"], table, 4, element="name", engine=ALONE)
    with pytest.raises(ValueError, match=r"the candidates have 3 features \(f0, f1, f2, …\), but .* fitted with 4"):
        distributed.expand(expander, ["c0"], table, 4, element="name", features=["f0", "f1", "f2"], engine=ALONE)
    with pytest.raises(ValueError, match="no column 'nom'"):
        distributed.expand(expander, ["c0"], table, 4, element="nom", engine=ALONE)
    with pytest.raises(ValueError, match="no candidate is left"):
        distributed.expand(expander, ["c0"], table, 4, element="name", exclude=names, engine=ALONE)


def test_the_command(tmp_path):
    expander = NearestVectors(components=0).fit(items=KNOWN)
    deepsets.save(expander, tmp_path / "m")
    table = files([f"new{i}" for i in range(50)], items(50)[1], tmp_path / "t", [20])
    common = ["expand", "--model", tmp_path / "m", "c1", "c2", "-k", 3]
    found = json.loads(run(*common, "--candidates", table, "--element", "name", "--json"))["answers"]
    wanted = distributed.expand(expander, ["c1", "c2"], table, 3, element="name", engine=ALONE)
    assert [a["element"] for a in found] == [c.element for c in wanted]
    assert wanted[0].element in run(*common, "--candidates", table, "--element", "name")
    run(*common, "--candidates", table, code=2)
    run(*common, "--element", "name", code=2)


def test_the_commands_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = rows(200, 20)
    frame["y"] = frame["box"].str[1:].astype(int) % 3
    frame[:90].to_parquet("monday.parquet", index=False)
    frame[90:].to_parquet("tuesday.parquet", index=False)
    shards(frame, tmp_path / "shards", [50])
    run("fit", "monday.parquet", "--by", "box", "--target", "y", "--epochs", 1, "-o", "model", "--json")
    songs = [f"s{i}" for i in range(30)], KNOWN[1]
    deepsets.save(NearestVectors(components=0).fit(items=songs), "songs")
    page = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text()
    commands = re.findall(r"^\$ deepsets (.+)$", page, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["predict", "predict", "pool", "pool", "predict", "expand"]
    for line in commands:
        if line.startswith("expand"):
            shutil.rmtree("shards")
            files(*songs, tmp_path / "shards", [20], name="song")
        command = line.replace("--engine ray --address auto", "")  # the engine is tested in test_ray.py
        run(*shlex.split(command), *(["--overwrite"] if command.endswith("predictions.parquet") else []))

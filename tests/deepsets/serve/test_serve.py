"""The HTTP API: answers of all routes, refused requests, models and their cards."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import deepsets.serve
from deepsets import save
from deepsets.estimators import MemberClassifier, OddOneOut, SetClassifier, SetRegressor, SupportDistributionMachine
from deepsets.expand import BayesianSets, NearestVectors, SetExpander
from deepsets.expand.scorer import Scorer, has_bfloat16
from deepsets.serve import Limits, create_app, load, served
from deepsets.serve.expanders import ExpansionQuery as Query
from deepsets.serve.server import check_address
from tests.deepsets.serve.serving import running

BEASTS = ["lion", "tiger", "puma", "leopard", "lynx"]
TREES = ["oak", "elm", "fir", "birch", "ash"]
SETS = [BEASTS[:3], BEASTS[1:4], BEASTS[2:], BEASTS[::2], TREES[:3], TREES[1:4], TREES[2:], TREES[::2]]
RNG = np.random.default_rng(0)
X = [RNG.normal(size=(n, 2)) for n in (3, 4, 5, 6, 2, 3, 4, 5)]


def estimators():
    shared = {"epochs": 1, "random_state": 0}
    yield "size", SetRegressor(**shared).fit(X, [float(len(x)) for x in X])
    yield "wide", SetClassifier(**shared).fit(X, ["wide" if np.ptp(x) > 2.5 else "narrow" for x in X])
    yield "signs", MemberClassifier(**shared).fit(X, [x[:, 0] > 0 for x in X])
    yield "odd", OddOneOut(**shared).fit(X, [0] * len(X))
    yield "words", SetRegressor(**shared).fit([BEASTS, TREES, BEASTS[:2]], [5.0, 5.0, 2.0])
    yield "kernel", SupportDistributionMachine().fit(X, [float(len(x)) for x in X])
    yield "context", SetRegressor(**shared).fit(X, [float(len(x)) for x in X], z=RNG.normal(size=(8, 3)))


@pytest.fixture(scope="module")
def models():
    vectors = {word: RNG.normal(size=4).tolist() for word in [*BEASTS, *TREES]}
    expanders = [
        served("beasts", BayesianSets().fit(SETS)),
        served("vectors", NearestVectors({**vectors, "Löwe\n": [1.0, 2.0, 3.0, 4.0]}).fit()),
        served("numbers", BayesianSets().fit([[1, 2, 3], [2, 3, 4], [10, 20]])),
    ]
    return [*expanders, *(served(name, model) for name, model in estimators())]


@pytest.fixture(scope="module")
def api(models):
    with running(models) as client:
        yield client


def test_models_are_described(api):
    status, _, found = api.get("/v1/models")
    assert status == 200 and found["default"] == "beasts"
    cards = {card["name"]: card for card in found["models"]}
    assert cards["beasts"]["class"] == "BayesianSets" and cards["beasts"]["elements"] == 10
    assert cards["beasts"]["abilities"] == ["expand", "score", "fits"] and cards["beasts"]["features"] is None
    assert cards["wide"]["classes"] == ["narrow", "wide"] and cards["wide"]["task"] == "set-classification"
    assert cards["wide"]["features"] == 2 and cards["context"]["context"] == 3
    assert cards["signs"]["abilities"] == ["predict"] and cards["size"]["abilities"] == ["predict", "explain"]
    for card in found["models"]:  # an example is a question that has an answer
        path, key = ("expand", "query") if card["kind"] == "expander" else ("predict", "sets")
        for members in card["examples"]:
            question = {"model": card["name"], key: members if path == "expand" else [members]}
            assert api.post(f"/v1/{path}", question)[0] == 200


def test_expand_answers_as_in_process(api, models):
    for model in models[:2]:
        for query, k, exclude in ((["lion"], 3, []), (["oak", "lion", "oak"], 4, ["elm"]), (BEASTS, 99, [])):
            status, _, found = api.post("/v1/expand", {"model": model.name, "query": query, "k": k, "exclude": exclude})
            wanted = model.model.expand(query, k, exclude=exclude)
            assert status == 200 and found["model"] == model.name
            assert [c["element"] for c in found["candidates"]] == [c.element for c in wanted]
            assert [c["score"] for c in found["candidates"]] == pytest.approx([c.score for c in wanted], abs=1e-6)
    assert api.post("/v1/expand", {"model": "numbers", "query": [1, 2], "k": 1})[2]["candidates"][0]["element"] == 3


def test_unknown_elements_are_skipped_and_named_with_suggestions(api):
    wanted = api.post("/v1/expand", {"query": ["lion", "tiger"]})[2]["candidates"]
    found = api.post("/v1/expand", {"query": ["Lion", "tigr", "TIGER"], "exclude": ["pumma"]})[2]
    assert found["candidates"] == wanted
    assert found["unknown"] == [
        {"element": "tigr", "suggestions": ["tiger"]},
        {"element": "pumma", "suggestions": ["puma"]},
    ]
    assert api.post("/v1/expand", {"query": 'LION, "tiger"'})[2]["candidates"] == wanted  # text as people type it
    assert api.post("/v1/score", {"query": "lion xyz"})[2]["unknown"] == [{"element": "xyz", "suggestions": []}]
    status, _, found = api.post("/v1/expand", {"query": ["tigr"]})
    assert status == 422 and "'tigr' (did you mean tiger?)" in found["error"]


def test_score_and_fits_answer_as_in_process(api, models):
    model = models[0].model
    assert api.post("/v1/score", {"query": ["lion"]})[2]["scores"] == pytest.approx(model.score(["lion"]).tolist())
    some = api.post("/v1/score", {"query": ["lion"], "candidates": ["oak", "puma"]})[2]["scores"]
    assert some == pytest.approx(model.score(["lion"], ["oak", "puma"]).tolist())
    found = api.post("/v1/fits", {"query": ["lion", "oak", "tiger"]})[2]
    assert found["odd"] == 1 and found["fits"] == pytest.approx(model.fits(["lion", "oak", "tiger"]).tolist())
    assert api.post("/v1/fits", {"query": ["lion", "tiger", "puma"]})[2]["odd"] is None  # nobody stands out
    assert api.post("/v1/fits", {"query": ["lion", "oak"]})[2]["odd"] is None  # of two, which?


def test_predict_answers_as_in_process(api, models):
    sets = [x.tolist() for x in X[:3]]
    by_name = {model.name: model.model for model in models}

    def ask(name, path="predict", **more):
        status, _, found = api.post(f"/v1/{path}", {"model": name, "sets": sets, **more})
        assert status == 200, found
        return found

    assert ask("size")["predictions"] == pytest.approx(by_name["size"].predict(X[:3]).tolist(), rel=1e-5)
    gaps = api.post("/v1/predict", {"model": "size", "sets": [[], [[1.0, None]]]})[2]["predictions"]
    assert gaps == pytest.approx(by_name["size"].predict([np.zeros((0, 2)), np.array([[1.0, np.nan]])]), rel=1e-5)
    found = ask("wide")
    assert found["predictions"] == by_name["wide"].predict(X[:3]).tolist()
    np.testing.assert_allclose(found["probabilities"], by_name["wide"].predict_proba(X[:3]), atol=1e-6)
    found = ask("signs")
    assert found["predictions"] == [part.tolist() for part in by_name["signs"].predict(X[:3])]
    assert [len(part) for part in found["probabilities"]] == [3, 4, 5]
    found = ask("odd")
    assert found["predictions"] == by_name["odd"].predict(X[:3]).tolist()
    assert sum(found["probabilities"][0]) == pytest.approx(1)
    z = RNG.normal(size=(3, 3))
    assert ask("context", z=z.tolist())["predictions"] == pytest.approx(
        by_name["context"].predict(X[:3], z=z), rel=1e-4
    )
    words = api.post("/v1/predict", {"model": "words", "sets": [["lion", "oak"]]})[2]["predictions"]
    assert words == pytest.approx(by_name["words"].predict([["lion", "oak"]]).tolist(), rel=1e-5)
    found = ask("size", "explain")
    assert found["contributions"][1] == pytest.approx(by_name["size"].explain(X[:3])[1][:, 0].tolist(), abs=1e-5)
    assert np.shape(ask("wide", "explain")["contributions"][0]) == (3, 2)


def test_completion(api):
    assert api.get("/v1/complete?prefix=L&model=beasts")[2]["elements"] == ["lion", "leopard", "lynx", "elm"]
    assert api.get("/v1/complete?prefix=l&limit=2")[2]["elements"] == ["lion", "leopard"]
    assert api.get("/v1/complete?prefix=xyz")[2]["elements"] == []
    assert api.get("/v1/complete?model=numbers&prefix=1")[2]["elements"] == [1, 10]
    assert api.get("/v1/complete?model=vectors&prefix=l%C3%B6")[2]["elements"] == ["Löwe\n"]


WRONG = [
    (
        "expand",
        {"query": ["lyon"]},
        422,
        r"the query holds elements that are not in the vocabulary of 10: 'lyon'",
    ),
    ("expand", {"query": []}, 422, "query: list should have at least 1 item"),
    ("expand", {"query": ["lion"], "k": 0}, 422, "k: input should be greater than or equal to 1"),
    ("expand", {"query": ["lion"], "k": 1001}, 422, "k must be at most 1000 here, found 1001"),
    ("expand", {"query": ["lion"], "kk": 3}, 422, "kk: extra inputs are not permitted"),
    ("expand", {"query": ["lion"], "z": [1.0]}, 422, "beasts needs z of 0 numbers for each set; 1 numbers were given"),
    ("expand", {"query": [*BEASTS, *TREES]}, 422, "no candidate is left"),
    ("expand", {"query": ["\ud800"], "model": "beasts"}, 422, "not valid JSON"),
    ("expand", {"query": ["lion"], "\ud800": 1}, 422, "not valid JSON"),
    ("expand", {"query": [None]}, 422, "query.0"),
    ("expand", {"query": ["lion"], "model": "../etc"}, 404, r"there is no model '../etc'; there are: beasts, vectors"),
    ("expand", {"query": ["lion"], "model": "size"}, 422, "size cannot expand; it can: predict, explain"),
    ("expand", {"query": ["lion"] * 10_001}, 413, "the query holds 10001 elements; at most 10000 are accepted"),
    ("expand", b"{", 422, "the body is not valid JSON: EOF while parsing"),
    ("expand", b"[" * 100_000, 422, "not valid JSON"),
    ("expand", b"\xff\xfe", 422, "the body is not valid JSON"),
    ("score", {"query": ["lion"], "candidates": ["oax"]}, 422, r"`candidates` holds elements that are not .*'oax'"),
    ("fits", {"query": ["lion"]}, 422, "query: list should have at least 2 items"),
    ("fits", {"query": ["lion", "lion"]}, 422, "at least 2 different members"),
    ("fits", {"query": ["lion"] * 257}, 413, "holds 257 elements; at most 256"),
    ("predict", {"model": "size", "sets": [[[1.0]]]}, 422, "member 0 of set 0 is 1 numbers; size takes 2 features"),
    ("predict", {"model": "size", "sets": [["lion"]]}, 422, "member 0 of set 0 is 'lion'; size takes 2 features"),
    (
        "predict",
        {"model": "size", "sets": [[[1.0, 1e300]]]},
        422,
        r"sets.0.0.1: input should be less than or equal to 1000",
    ),
    ("predict", {"model": "size", "sets": [[[1.0, 2.0]]], "z": [[1.0]]}, 422, "one row of 0 numbers"),
    (
        "predict",
        {"model": "context", "sets": [[[1.0, 2.0]]]},
        422,
        "context needs z of 3 numbers .* none was given",
    ),
    (
        "predict",
        {"model": "context", "sets": [[[1.0, 2.0]]], "z": [[1.0], [1.0, 2.0]]},
        422,
        "found 2 rows of 1, 2",
    ),
    ("predict", {"model": "odd", "sets": [[]]}, 422, "an empty set has no odd member"),
    ("predict", {"sets": [[[1.0, 2.0]]]}, 422, "beasts cannot predict; it can: expand, score, fits"),
    ("explain", {"model": "signs", "sets": [[[1.0, 2.0]]]}, 422, "signs cannot explain; it can: predict"),
    ("predict", {"model": "size", "sets": [[]] * 10_001}, 413, "`sets` holds 10001 elements"),
]


@pytest.mark.parametrize(("path", "body", "status", "sentence"), WRONG)
def test_bad_requests_get_an_error_message(api, path, body, status, sentence):
    found, _, answer = api.post(f"/v1/{path}", body)
    assert found == status, answer
    assert list(answer) == ["error"] and answer["error"].endswith(".")
    with pytest.raises(ValueError, match=sentence):
        raise ValueError(answer["error"])


def test_unknown_paths_and_methods(api):
    assert api.get("/v1/nothing")[0] == 404
    assert api.get("/page/../_app.py")[0] == 404
    assert api.get("/page/%2e%2e/_app.py")[0] == 404
    status, headers, answer = api.get("/v1/expand")
    assert status == 405 and headers["allow"] == "POST" and answer["error"]


def test_a_body_with_many_errors_is_refused_quickly(api):
    for body in (b'{"query":[' + b"null," * 200_000 + b"1]}", b'{"sets":[[' + b"[null,true]," * 80_000 + b"1]]}"):
        status, _, answer = api.post("/v1/" + ("expand" if b"query" in body else "predict"), body)
        assert status == 422 and len(answer["error"]) < 200
    status, _, answer = api.post("/v1/expand", {"query": ["x" * 100_000]})
    assert status == 422 and len(answer["error"]) < 300


def test_the_page_is_served_and_nothing_else(api):
    folder = Path(deepsets.serve.__file__).parent / "page"
    kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    files = {f"/page/{path.name}": path for path in folder.iterdir()} | {"/": folder / "index.html"}
    for path, file in files.items():
        status, headers, found = api.get(path)
        assert (status, found) == (200, file.read_text())
        assert headers.get_content_type() == kinds[file.suffix] and headers["cache-control"] == "no-cache"
        if path != "/":
            assert api.get(path, {"if-none-match": headers["etag"]})[0] == 304
    assert api.get("/page/nothing.js")[0] == 404 and api.get("/page/")[0] == 404
    assert api.get("/page/%2e%2e/app.py")[0] == 404 and api.get("/page/..%2fapp.py")[0] == 404


def test_health_metrics_and_headers(api):
    api.post("/v1/expand", {"query": ["lion"]})
    assert api.get("/healthz")[2] == {"status": "ok"} == api.get("/readyz")[2]
    status, headers, text = api.get("/metrics")
    assert status == 200 and 'deepsets_requests_total{route="/v1/expand",status="200"}' in text
    assert "deepsets_batch_size_count" in text and "deepsets_queue 0.0" in text
    for path in ("/healthz", "/v1/nothing", "/"):
        headers = api.get(path)[1]
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer" and headers["server"] in (None, "uvicorn")
    assert "access-control-allow-origin" not in api.get("/healthz", {"origin": "https://else.where"})[1]


def test_without_a_token_only_loopback_names_are_answered(api):
    assert api.get("/healthz", {"host": "localhost:80"})[0] == 200
    assert api.get("/healthz", {"host": "evil.example"})[0] == 421
    assert api.get("/healthz", {"host": "[::1]:8000"})[0] == 200


def test_token_and_cors(models):
    with running(models[:1], token="0123456789abcdef", cors=["https://shop.example"]) as api:
        for given in (None, "Bearer wrong", "0123456789abcdef", "Bearer 0123456789abcdeF", "Bearer é"):
            status, headers, answer = api.get("/v1/models", {"authorization": given.encode()} if given else {})
            assert status == 401 and headers["www-authenticate"] == "Bearer" and "token" in answer["error"]
        assert api.get("/metrics")[0] == 401 and api.get("/openapi.json")[0] == 401
        assert api.get("/healthz", {"host": "models.example"})[0] == 200
        right = {"authorization": "Bearer 0123456789abcdef", "origin": "https://shop.example"}
        status, headers, _ = api.post("/v1/expand", {"query": ["lion"]}, right)
        assert status == 200 and headers["access-control-allow-origin"] == "https://shop.example"
        wanted = {"origin": "https://shop.example", "access-control-request-method": "POST"}
        assert api("OPTIONS", "/v1/expand", None, wanted)[0] == 200
        assert api("OPTIONS", "/v1/expand", None, wanted | {"origin": "https://else.where"})[0] == 400


def test_addresses_beyond_this_machine_need_a_token():
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        check_address(host, None)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(ValueError, match=rf"{host} can be reached from other machines: give a token"):
            check_address(host, None)
        check_address(host, "0123456789abcdef")
    with pytest.raises(ValueError, match="at least 16 printable ASCII characters; found 5"):
        check_address("127.0.0.1", "short")


def test_limits_and_models_are_checked():
    with pytest.raises(ValueError, match="the limit queue must be a finite number of at least 1, found 0"):
        Limits(queue=0)
    with pytest.raises(ValueError, match="there is no model to serve"):
        create_app([])


def test_folders_are_served_under_their_names(tmp_path):
    model = next(model for name, model in estimators() if name == "size")
    save(model, tmp_path / "size")
    (tmp_path / "size" / "examples.json").write_text("[[[1, 2]]]")
    (found,) = load([tmp_path / "size"])
    assert found.name == "size" and found.examples() == [[[1, 2]]] and found.task == "set-regression"
    save(BayesianSets().fit(SETS), tmp_path / "beasts")
    (beasts,) = load([tmp_path / "beasts"])
    assert beasts.scores([Query(["lion"], 1)])[0][0]["element"] in BEASTS
    save(model, tmp_path / "other" / "size")
    with pytest.raises(ValueError, match="two model folders are called 'size'"):
        load([tmp_path / "size", tmp_path / "other" / "size"])
    (tmp_path / "size" / "examples.json").write_text("{")
    with pytest.raises(ValueError, match=r"examples\.json is not valid JSON"):
        load([tmp_path / "size"])


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_the_quick_choice_of_the_best_equals_that_of_the_expander(k, excluded, seed, ties):
    rng = np.random.default_rng(seed)
    vectors = rng.integers(0, 2, size=(2000, 3)) if ties else rng.normal(size=(2000, 3))
    model = NearestVectors(([str(i) for i in range(2000)], vectors.astype(np.float32) + 0.01), components=0).fit()
    words = [str(i) for i in rng.choice(2000, 3 + excluded, replace=False)]
    found = served("v", model).scores([Query(words[:3], k, tuple(words[3:]))])[0]
    wanted = model.expand(words[:3], k, exclude=words[3:])
    assert [c["element"] for c in found] == [c.element for c in wanted]


@pytest.mark.parametrize("close", [False, True])
def test_the_service_ranks_candidates_of_the_learned_expander_as_float32_does(monkeypatch, close):
    """In one batch, by the pass in bfloat16 where the processor has it, whatever the queries exclude."""
    words = [f"w{i}" for i in range(3000)]
    model = SetExpander(epochs=1).fit([words[i : i + 5] for i in range(0, 3000, 5)])
    if close:
        with torch.no_grad():
            weight = model.network_.embedding.weight
            weight[:] = weight[:1] + 1e-3 * (weight - weight[:1])
    asked = [Query(words[5 * q : 5 * q + 2 + q], 7, tuple(words[100 : 100 + 10 * q])) for q in range(4)]
    exact = model.scores([query.members for query in asked])
    passes, run = [], Scorer._pass
    monkeypatch.setattr(Scorer, "_pass", lambda self, *given: (passes.append(given[1].dtype), run(self, *given))[1])
    found = served("learned", model).scores(asked)
    assert passes[0] == (torch.bfloat16 if has_bfloat16() else torch.float32)
    for query, row, candidates in zip(asked, exact, found, strict=True):
        row[model.ids([*query.members, *query.exclude])] = -np.inf
        assert [c["element"] for c in candidates] == [words[i] for i in np.argsort(-row, kind="stable")[:7]]

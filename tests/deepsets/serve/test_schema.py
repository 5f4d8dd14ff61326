"""Schemathesis asks what the API's own OpenAPI allows and forbids: no 5xx, and no answer that is not documented."""

import json

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from deepsets.estimators import SetClassifier
from deepsets.expand import BayesianSets
from deepsets.serve import create_app, served
from tests.deepsets.serve.serving import running

SETS = [["lion", "tiger", "puma"], ["tiger", "puma", "lynx"], ["oak", "elm", "fir"]]
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
]


def models():
    X = [[[float(i), 1.0]] * (1 + i % 3) for i in range(6)]
    wide = SetClassifier(epochs=1, random_state=0).fit(X, ["a", "b"] * 3)
    return [served("beasts", BayesianSets().fit(SETS)), served("wide", wide)]


@pytest.fixture(scope="module")
def api():
    with running(models()) as client:
        yield client


schema = schemathesis.openapi.from_dict(
    json.loads(json.dumps(create_app([served("beasts", BayesianSets().fit(SETS))]).openapi()))
)


@schema.parametrize()
@settings(max_examples=20)
def test_every_answer_is_documented(api, case):
    if isinstance(case.body, dict) and case.operation.path in ("/v1/predict", "/v1/explain"):
        case.body["model"] = "wide"
    case.call_and_validate(base_url=api.url, checks=CHECKS)


def test_every_route_is_in_the_schema(api):
    paths = api.get("/openapi.json")[2]["paths"]
    asked = {"models", "complete", "expand", "score", "fits", "predict", "explain"}
    assert {f"/v1/{name}" for name in asked} | {"/healthz", "/readyz", "/metrics"} == set(paths)

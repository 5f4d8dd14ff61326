"""The routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from . import schema
from .batching import Batching
from .estimators import ServedEstimator
from .expanders import Query as Asked
from .expanders import ServedExpander
from .guard import Guard
from .limits import Limits, Refused
from .metrics import Metrics
from .models import Served
from .static import page_files

_EACH = {400: "broken", 401: "no token", 421: "a foreign host name", 422: "a wrong question"}
_ASKED = _EACH | {404: "no such model", 408: "a slow body", 413: "too large", 429: "the queue is full", 504: "too slow"}


def create_app(
    models: Sequence[Served], limits: Limits | None = None, *, token: str | None = None, cors: Sequence[str] = ()
) -> FastAPI:
    """The API over some models, as an ASGI app; the first is the default.

    >>> from deepsets.expand import BayesianSets
    >>> from deepsets.serve import served
    >>> app = create_app([served("trees", BayesianSets().fit([["oak", "elm"], ["fir", "oak"]]))])
    >>> "/v1/expand" in app.openapi()["paths"]
    True

    token: wanted as `Authorization: Bearer TOKEN`. cors: origins of other sites whose pages may ask.
    """
    if not models:
        raise ValueError("there is no model to serve.")
    limits, named, files = limits or Limits(), {model.name: model for model in models}, page_files()
    cards = {"models": [model.card() for model in models], "default": models[0].name}
    metrics = Metrics()
    batching = Batching(limits, metrics.call)
    metrics.watch(batching)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(batching.work())
        yield
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker

    app = FastAPI(
        title="deepsets",
        version=version("deepsets"),
        description="Models of sets: more like these, how well each member belongs, predictions and their reasons.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        dependencies=[Depends(HTTPBearer(auto_error=False))] if token else [],
    )

    def model_for(name: str | None, ability: str, kind: type[Any]) -> Any:
        model = named.get(models[0].name if name is None else name)
        if model is None:
            raise Refused(404, f"there is no model {str(name)[:60]!r}; there are: {', '.join(named)}.")
        if ability not in model.abilities or not isinstance(model, kind):
            raise ValueError(f"{model.name} cannot {ability}; it can: {', '.join(model.abilities)}.")
        return model

    def few(count: int, what: str, most: int = limits.elements) -> None:
        if count > most:
            raise Refused(413, f"{what} holds {count} elements; at most {most} are taken.")

    def post(path: str, answer: Any) -> Any:
        return app.post(path, response_model=answer, responses=_documented(_ASKED))

    def get(path: str, answer: Any, also: dict[int, str] | None = None) -> Any:
        return app.get(path, response_model=answer, responses=_documented(_EACH | (also or {})))

    @get("/v1/models", schema.ModelList)
    async def list_models() -> Response:
        """What is served."""
        return _json(cards)

    @get("/v1/complete", schema.Completions, {404: "no such model"})
    async def complete(
        prefix: Annotated[str, Query(max_length=200)] = "",
        model: Annotated[str | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 8,
    ) -> Response:
        """Elements that begin with what was typed, then those that hold it."""
        return _json({"elements": model_for(model, "expand", ServedExpander).complete(prefix, limit)})

    @post("/v1/expand", schema.ExpandAnswer)
    async def expand(asked: schema.ExpandQuestion) -> Response:
        """The k elements that go best with the query, best first."""
        model = model_for(asked.model, "expand", ServedExpander)
        few(len(asked.query), "the query")
        few(len(asked.exclude), "`exclude`")
        if asked.k > limits.k:
            raise ValueError(f"k must be at most {limits.k} here, found {asked.k}.")
        query = Asked(asked.query, asked.k, tuple(asked.exclude), asked.z)
        model.check(asked.query, asked.z)
        model.check_left(query)
        found = await batching.ask((model.name, "scores"), model.most(limits), model.scores, query)
        return _json({"model": model.name, "candidates": found})

    @post("/v1/score", schema.ScoreAnswer)
    async def score(asked: schema.ScoreQuestion) -> Response:
        """How well each candidate goes with the query."""
        model = model_for(asked.model, "score", ServedExpander)
        few(len(asked.query), "the query")
        model.check(asked.query, asked.z)
        if asked.candidates is None:
            query = Asked(asked.query, z=asked.z)
            found = await batching.ask((model.name, "scores"), model.most(limits), model.scores, query)
        else:
            few(len(asked.candidates), "`candidates`")
            model.check(asked.candidates, asked.z, "`candidates`")
            found = await alone(model.score, asked.query, asked.candidates, asked.z)
        return _json({"model": model.name, "scores": found})

    @post("/v1/fits", schema.FitsAnswer)
    async def fits(asked: schema.FitsQuestion) -> Response:
        """How well each member goes with the others, and the odd one, if one stands out."""
        model = model_for(asked.model, "fits", ServedExpander)
        few(len(asked.query), "the query", min(limits.fits, limits.elements))
        model.check(asked.query, asked.z)
        return _json({"model": model.name, **await alone(model.fits, asked.query, asked.z)})

    @post("/v1/predict", schema.PredictAnswer)
    async def predict(asked: schema.SetsQuestion) -> Response:
        """The answer for each set, or for each member of it."""
        model, sets = sets_for(asked, "predict")
        found = await batching.ask((model.name, "predict"), model.most(limits), model.predict, sets)
        return _json({"model": model.name, **found})

    @post("/v1/explain", schema.ExplainAnswer)
    async def explain(asked: schema.SetsQuestion) -> Response:
        """What each member contributes: the answer for its set minus the answer without it."""
        model, sets = sets_for(asked, "explain")
        return _json({"model": model.name, **await alone(model.explain, sets)})

    def sets_for(asked: schema.SetsQuestion, ability: str) -> tuple[ServedEstimator, Any]:
        model = model_for(asked.model, ability, ServedEstimator)
        few(max(sum(map(len, asked.sets)), len(asked.sets)), "`sets`")
        return model, model.read(asked.sets, asked.z)

    async def alone(function: Any, *question: Any) -> Any:
        return await batching.ask(object(), 1, lambda questions: [function(*q) for q in questions], question)

    @app.get("/healthz", response_model=schema.Health, responses=_documented({421: _EACH[421]}))
    @app.get("/readyz", response_model=schema.Health, responses=_documented({421: _EACH[421]}))
    async def health() -> Response:
        """The server lives, and its models are loaded: it listens only then."""
        return _json({"status": "ok"})

    @app.get("/metrics", response_class=Response, responses=_documented({c: _EACH[c] for c in (401, 421)}))
    async def show_metrics() -> Response:
        """For Prometheus."""
        return Response(metrics.text(), media_type=metrics.kind)

    async def show_file(request: Request) -> Response:
        file = files[request.scope["path"]]
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.kind, headers=headers)

    for path in files:
        app.add_route(path, show_file, methods=["GET"], include_in_schema=False)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return _json({"error": error.sentence}, error.status, error.headers)

    @app.exception_handler(ValueError)
    async def wrong(request: Request, error: ValueError) -> Response:
        return _json({"error": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _json({"error": _sentence(error.errors()[0])}, 422)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return _json({"error": f"{error.detail}."}, error.status_code, dict(error.headers or {}))

    routes = frozenset(str(getattr(route, "path", "")) for route in app.routes)
    app.add_middleware(Guard, limits, token, frozenset(files), routes, metrics.request)
    if cors:
        headers = ["authorization", "content-type"]
        app.add_middleware(
            CORSMiddleware, allow_origins=list(cors), allow_methods=["GET", "POST"], allow_headers=headers
        )
    return app


def _documented(statuses: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": schema.Problem, "description": what} for status, what in statuses.items()}


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    content = text.encode("utf-8", "backslashreplace")  # half a surrogate pair, which UTF-8 has no form for
    return Response(content, status, {"cache-control": "no-store", **(headers or {})}, "application/json")


def _sentence(error: dict[str, Any]) -> str:
    """Where a question differs from what is wanted, and how."""
    if error["type"] == "json_invalid":
        return f"the body is not valid JSON: {error['ctx']['error']} (at {error['loc'][-1]})."
    if error["type"] == "model_attributes_type" and len(error["loc"]) == 1:
        return "the body is not an object of JSON; it needs the header content-type: application/json."
    # Where one of several types is wanted, pydantic names the type it tried.
    parts = [str(p) for p in error["loc"][1:] if not str(p).startswith(("list[", "str", "int", "nullable"))]
    return f"{'.'.join(parts) or error['loc'][0]}: {error['msg'][0].lower()}{error['msg'][1:]}."

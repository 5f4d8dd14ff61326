"""The HTTP API as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.middleware.cors import CORSMiddleware

from . import schema
from .estimators import ServedEstimator
from .expanders import ExpansionQuery, ServedExpander
from .limits import Limits, RequestError
from .metrics import Metrics
from .middleware import Middleware
from .models import Served
from .page_files import page_files
from .responses import add_error_handlers, documented, json_response, validation_message
from .scheduler import Scheduler

_ERRORS = {400: "malformed request", 401: "missing token", 421: "host name not served", 422: "invalid question"}
_POST_ERRORS = _ERRORS | {
    404: "unknown model",
    408: "body too slow",
    413: "too large",
    429: "queue full",
    504: "no answer in time",
}
_PARSE_IN_THREAD = 4096  # bytes; a larger body would hold up the event loop
Body = TypeVar("Body", bound=BaseModel)


def create_app(
    models: Sequence[Served], limits: Limits | None = None, *, token: str | None = None, cors: Sequence[str] = ()
) -> FastAPI:
    """Create the ASGI application for some models.

    Parameters
    ----------
    models : sequence of Served
        The models; the first is the default. See `served` and `load`.
    limits : Limits, optional
        Size and time limits.
    token : str, optional
        Required as ``Authorization: Bearer TOKEN``.
    cors : sequence of str, optional
        Origins of other sites whose pages may send requests.

    Returns
    -------
    FastAPI
        The application.

    Examples
    --------
    >>> from deepsets.expand import BayesianSets
    >>> from deepsets.serve import served
    >>> app = create_app([served("trees", BayesianSets().fit([["oak", "elm"], ["fir", "oak"]]))])
    >>> "/v1/expand" in app.openapi()["paths"]
    True
    """
    if not models:
        raise ValueError("there is no model to serve: give at least one.")
    limits, named, files = limits or Limits(), {model.name: model for model in models}, page_files()
    metrics = Metrics()
    scheduler = Scheduler(limits, metrics.call)
    metrics.watch(scheduler)
    parsers = ThreadPoolExecutor(1, thread_name_prefix="deepsets-parse")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(scheduler.run())
        yield
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker

    app = FastAPI(
        title="deepsets",
        version=version("deepsets"),
        description="Models of sets: more like these, how well each member belongs, predictions and explanations.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        dependencies=[Depends(HTTPBearer(auto_error=False))] if token else [],
    )

    def model_for(name: str | None, ability: str, kind: type[Any]) -> Any:
        model = named.get(models[0].name if name is None else name)
        if model is None:
            raise RequestError(404, f"there is no model {str(name)[:60]!r}; there are: {', '.join(named)}.")
        if ability not in model.abilities or not isinstance(model, kind):
            raise ValueError(f"{model.name} cannot {ability}; it can: {', '.join(model.abilities)}.")
        return model

    def check_count(count: int, what: str, most: int = limits.elements) -> None:
        if count > most:
            raise RequestError(413, f"{what} holds {count} elements; at most {most} are accepted.")

    def post(path: str, question: type[Body], answer: Any) -> Callable[..., Any]:
        """Register a route whose body is parsed and checked outside the event loop when it is large."""
        content = {"application/json": {"schema": question.model_json_schema()}}

        def register(handle: Callable[[Body, str], Awaitable[Response]]) -> None:
            async def route(request: Request) -> Response:
                body = await request.body()
                kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind != "application/json":
                    raise ValueError(
                        "the body must be a JSON object with the header content-type: application/json; "
                        f"found {kind!r}."
                    )
                loop = asyncio.get_running_loop()
                try:
                    if len(body) > _PARSE_IN_THREAD:
                        asked = await loop.run_in_executor(parsers, question.model_validate_json, body)
                    else:
                        asked = question.model_validate_json(body)
                except ValidationError as error:
                    first = error.errors(include_url=False, include_input=False)[0]
                    raise ValueError(validation_message(first)) from None
                client = request.client
                return await handle(asked, "-" if client is None else f"{client.host}:{client.port}")

            route.__name__, route.__doc__ = handle.__name__, handle.__doc__
            app.post(
                path,
                response_model=answer,
                responses=documented(_POST_ERRORS),
                openapi_extra={"requestBody": {"content": content, "required": True}},
            )(route)

        return register

    async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(parsers, function, *arguments)

    async def alone(kind: Any, units: float, client: str, function: Callable[..., Any], *question: Any) -> Any:
        """One call of a model for one question."""
        return await scheduler.submit(
            kind, lambda questions: [function(*q) for q in questions], question, units=units, client=client
        )

    @app.get("/v1/models", response_model=schema.ModelList, responses=documented(_ERRORS))
    async def list_models() -> Response:
        """List the models."""
        return json_response({"models": [model.card() for model in models], "default": models[0].name})

    @app.get("/v1/complete", response_model=schema.Completions, responses=documented(_ERRORS | {404: "unknown model"}))
    async def complete(
        prefix: Annotated[str, Query(max_length=200)] = "",
        model: Annotated[str | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 8,
    ) -> Response:
        """Complete a prefix: elements that begin with it, then those that contain it."""
        return json_response({"elements": model_for(model, "expand", ServedExpander).complete(prefix, limit)})

    @post("/v1/expand", schema.ExpandQuestion, schema.ExpandAnswer)
    async def expand(asked: schema.ExpandQuestion, client: str) -> Response:
        """Find the k elements that go best with the query, best first."""
        model = model_for(asked.model, "expand", ServedExpander)
        check_count(len(asked.query), "the query")
        check_count(len(asked.exclude), "`exclude`")
        if asked.k > limits.k:
            raise ValueError(f"k must be at most {limits.k} here, found {asked.k}.")
        members, unknown = model.resolve(asked.query, asked.z)
        exclude, unknown_exclude = model.known(asked.exclude)
        query = ExpansionQuery(members, asked.k, tuple(exclude), asked.z)
        model.check_candidates_left(query)
        found = await scheduler.submit(
            (model.name, "scores"), model.scores, query, client=client, max_batch=model.max_batch(limits)
        )
        return json_response({"model": model.name, "candidates": found, "unknown": unknown + unknown_exclude})

    @post("/v1/score", schema.ScoreQuestion, schema.ScoreAnswer)
    async def score(asked: schema.ScoreQuestion, client: str) -> Response:
        """Score candidates: how well each goes with the query."""
        model = model_for(asked.model, "score", ServedExpander)
        check_count(len(asked.query), "the query")
        members, unknown = model.resolve(asked.query, asked.z)
        if asked.candidates is None:
            query = ExpansionQuery(members, z=asked.z)
            found = await scheduler.submit(
                (model.name, "scores"), model.scores, query, client=client, max_batch=model.max_batch(limits)
            )
        else:
            check_count(len(asked.candidates), "`candidates`")
            candidates = model.resolve_each(asked.candidates, "`candidates`")
            found = await alone((model.name, "score"), 1, client, model.score, members, candidates, asked.z)
        return json_response({"model": model.name, "scores": found, "unknown": unknown})

    @post("/v1/fits", schema.FitsQuestion, schema.FitsAnswer)
    async def fits(asked: schema.FitsQuestion, client: str) -> Response:
        """Tell how well each member goes with the others, and which one is odd, if any."""
        model = model_for(asked.model, "fits", ServedExpander)
        check_count(len(asked.query), "the query", min(limits.fits, limits.elements))
        model.check_context(asked.z)
        members = model.resolve_each(asked.query, "the query")
        found = await alone((model.name, "fits"), len(members), client, model.fits, members, asked.z)
        return json_response({"model": model.name, **found})

    @post("/v1/predict", schema.SetsQuestion, schema.PredictAnswer)
    async def predict(asked: schema.SetsQuestion, client: str) -> Response:
        """Predict for each set, or for each of its members."""
        model, sets, units = await sets_for(asked, "predict")
        found = await scheduler.submit(
            (model.name, "predict"),
            model.predict,
            sets,
            units=units,
            client=client,
            max_batch=model.max_batch(limits),
        )
        return json_response({"model": model.name, **found})

    @post("/v1/explain", schema.SetsQuestion, schema.ExplainAnswer)
    async def explain(asked: schema.SetsQuestion, client: str) -> Response:
        """Explain predictions: for each member the prediction for its set minus the prediction without it."""
        model, sets, units = await sets_for(asked, "explain")
        return json_response(
            {"model": model.name, **await alone((model.name, "explain"), units, client, model.explain, sets)}
        )

    async def sets_for(asked: schema.SetsQuestion, ability: str) -> tuple[ServedEstimator, Any, float]:
        model = model_for(asked.model, ability, ServedEstimator)
        members = max(sum(map(len, asked.sets)), len(asked.sets))
        check_count(members, "`sets`")
        return model, await in_thread(model.read, asked.sets, asked.z), max(1.0, members / 64)

    @app.get("/healthz", response_model=schema.Health, responses=documented({421: _ERRORS[421]}))
    @app.get("/readyz", response_model=schema.Health, responses=documented({421: _ERRORS[421]}))
    async def health() -> Response:
        """Report that the server is up; it listens once its models are loaded."""
        return json_response({"status": "ok"})

    @app.get("/metrics", response_class=Response, responses=documented({c: _ERRORS[c] for c in (401, 421)}))
    async def show_metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.text(), media_type=metrics.content_type)

    async def show_file(request: Request) -> Response:
        file = files[request.scope["path"]]
        headers = {"etag": file.etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    for path in files:
        app.add_route(path, show_file, methods=["GET"], include_in_schema=False)
    add_error_handlers(app)
    routes = frozenset(str(getattr(route, "path", "")) for route in app.routes)
    app.add_middleware(Middleware, limits, token, frozenset(files), routes, metrics.request)
    if cors:
        headers = ["authorization", "content-type"]
        app.add_middleware(
            CORSMiddleware, allow_origins=list(cors), allow_methods=["GET", "POST"], allow_headers=headers
        )
    return app

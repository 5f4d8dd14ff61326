"""The HTTP API as an ASGI application."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from . import schema
from .expanders import ExpansionQuery, ServedExpander
from .middleware import PAGE, Metrics, Middleware, error_response, json_response
from .models import Served, ServedEstimator
from .scheduler import Scheduler
from .schema import Limits, RequestError

_ERRORS = {400: "malformed request", 401: "missing token", 421: "host name not served", 422: "invalid question"}
_POST_ERRORS = {
    404: "unknown model",
    408: "body too slow",
    413: "too large",
    429: "queue full",
    504: "no answer in time",
}
_PARSE_IN_THREAD = 4096  # bytes; a larger body would hold up the event loop
_PAGE_FILES = Path(__file__).parent / "page"


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
    limits, metrics = limits or Limits(), Metrics()
    scheduler = Scheduler(limits, metrics.call)
    metrics.watch(scheduler)
    service = _Service(models, limits, scheduler)
    cards = {"models": [model.card() for model in models], "default": models[0].name}

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

    @app.get("/v1/models", response_model=schema.ModelList, responses=_documented(400, 401, 421, 422))
    async def list_models() -> Response:
        """List the models."""
        return json_response(cards)

    @app.get("/v1/complete", response_model=schema.Completions, responses=_documented(400, 401, 404, 421, 422))
    async def complete(
        prefix: Annotated[str, Query(max_length=200)] = "",
        model: Annotated[str | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 8,
    ) -> Response:
        """Complete a prefix: elements that begin with it, then those that contain it."""
        return json_response({"elements": service.model(model, "expand", ServedExpander).complete(prefix, limit)})

    for name, question, answer in (
        ("expand", schema.ExpandQuestion, schema.ExpandAnswer),
        ("score", schema.ScoreQuestion, schema.ScoreAnswer),
        ("fits", schema.FitsQuestion, schema.FitsAnswer),
        ("predict", schema.SetsQuestion, schema.PredictAnswer),
        ("explain", schema.SetsQuestion, schema.ExplainAnswer),
    ):
        content = {"application/json": {"schema": question.model_json_schema()}}
        app.post(
            f"/v1/{name}",
            response_model=answer,
            responses=_documented(*_ERRORS, *_POST_ERRORS),
            openapi_extra={"requestBody": {"content": content, "required": True}},
        )(_route(getattr(service, name), question, limits, service.in_thread))

    @app.get("/healthz", response_model=schema.Health, responses=_documented(421))
    @app.get("/readyz", response_model=schema.Health, responses=_documented(421))
    async def health() -> Response:
        """Report that the server is up; it listens once its models are loaded."""
        return json_response({"status": "ok"})

    @app.get("/metrics", response_class=Response, responses=_documented(401, 421))
    async def show_metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/", include_in_schema=False)
    async def show_page() -> Response:
        return FileResponse(_PAGE_FILES / "index.html")

    mimetypes.add_type("text/javascript", ".js")  # Windows may know another type
    app.mount(PAGE, StaticFiles(directory=_PAGE_FILES))
    _add_error_handlers(app)
    routes = frozenset(str(getattr(route, "path", "")) for route in app.routes)
    app.add_middleware(Middleware, token, routes, metrics)
    if cors:
        headers = ["authorization", "content-type"]
        app.add_middleware(
            CORSMiddleware, allow_origins=list(cors), allow_methods=["GET", "POST"], allow_headers=headers
        )
    return app


class _Service:
    """What the routes do, once a question is parsed."""

    def __init__(self, models: Sequence[Served], limits: Limits, scheduler: Scheduler) -> None:
        self._models, self._limits, self._scheduler = {model.name: model for model in models}, limits, scheduler
        self._default = models[0].name
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deepsets-parse")

    def model(self, name: str | None, ability: str, kind: type[Any]) -> Any:
        model = self._models.get(self._default if name is None else name)
        if model is None:
            raise RequestError(404, f"there is no model {str(name)[:60]!r}; there are: {', '.join(self._models)}.")
        if ability not in model.abilities or not isinstance(model, kind):
            raise ValueError(f"{model.name} cannot {ability}; it can: {', '.join(model.abilities)}.")
        return model

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def _ask(self, method: Callable[..., Any], question: Any, client: str, units: float, batch: int) -> Any:
        """Answer of a method of a model that takes a list of questions."""
        model: Served = method.__self__  # type: ignore[attr-defined]
        kind = (model.name, method.__name__)
        return await self._scheduler.submit(kind, method, question, units=units, client=client, max_batch=batch)

    async def expand(self, asked: schema.ExpandQuestion, client: str) -> dict[str, Any]:
        """Find the k elements that go best with the query, best first."""
        model = self.model(asked.model, "expand", ServedExpander)
        self._check(len(asked.query), "the query")
        self._check(len(asked.exclude), "`exclude`")
        if asked.k > self._limits.k:
            raise ValueError(f"k must be at most {self._limits.k} here, found {asked.k}.")
        members, unknown = model.resolve(asked.query, asked.z)
        exclude, unknown_exclude = model.known(asked.exclude)
        query = ExpansionQuery(members, asked.k, tuple(exclude), asked.z)
        model.check_candidates_left(query)
        found = await self._ask(model.scores, query, client, 1, model.max_batch(self._limits))
        answer = {"model": model.name, "candidates": found, "unknown": unknown + unknown_exclude}
        if asked.why:
            question = (members, [candidate["element"] for candidate in found], asked.z)
            answer["reasons"] = await self._ask(model.reasons, question, client, len(members), 1)
        return answer

    async def score(self, asked: schema.ScoreQuestion, client: str) -> dict[str, Any]:
        """Score candidates: how well each goes with the query."""
        model = self.model(asked.model, "score", ServedExpander)
        self._check(len(asked.query), "the query")
        members, unknown = model.resolve(asked.query, asked.z)
        if asked.candidates is None:
            query = ExpansionQuery(members, z=asked.z)
            found = await self._ask(model.scores, query, client, 1, model.max_batch(self._limits))
        else:
            self._check(len(asked.candidates), "`candidates`")
            candidates = model.resolve_each(asked.candidates, "`candidates`")
            found = await self._ask(model.score, (members, candidates, asked.z), client, 1, 1)
        return {"model": model.name, "scores": found, "unknown": unknown}

    async def fits(self, asked: schema.FitsQuestion, client: str) -> dict[str, Any]:
        """Tell how well each member goes with the others, and which one is odd, if any."""
        model = self.model(asked.model, "fits", ServedExpander)
        self._check(len(asked.query), "the query", min(self._limits.fits, self._limits.elements))
        model.check_context(asked.z)
        members = model.resolve_each(asked.query, "the query")
        return {"model": model.name} | await self._ask(model.fits, (members, asked.z), client, len(members), 1)

    async def predict(self, asked: schema.SetsQuestion, client: str) -> dict[str, Any]:
        """Predict for each set, or for each of its members."""
        model, sets, units = await self._sets(asked, "predict")
        return {"model": model.name} | await self._ask(model.predict, sets, client, units, self._limits.batch)

    async def explain(self, asked: schema.SetsQuestion, client: str) -> dict[str, Any]:
        """Explain predictions: for each member the prediction for its set minus the prediction without it."""
        model, sets, units = await self._sets(asked, "explain")
        return {"model": model.name} | await self._ask(model.explain, sets, client, units, 1)

    async def _sets(self, asked: schema.SetsQuestion, ability: str) -> tuple[ServedEstimator, Any, float]:
        model = self.model(asked.model, ability, ServedEstimator)
        members = max(sum(map(len, asked.sets)), len(asked.sets))
        self._check(members, "`sets`")
        return model, await self.in_thread(model.read, asked.sets, asked.z), max(1.0, members / 64)

    def _check(self, count: int, what: str, most: int | None = None) -> None:
        most = most or self._limits.elements
        if count > most:
            raise RequestError(413, f"{what} holds {count} elements; at most {most} are accepted.")


def _route(
    handle: Callable[..., Awaitable[Any]],
    question: type[BaseModel],
    limits: Limits,
    in_thread: Callable[..., Awaitable[Any]],
) -> Callable[[Request], Awaitable[Response]]:
    """A route that reads and checks the body, large ones outside of the event loop, within the time limit."""

    async def answer(body: bytes, request: Request) -> Any:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ValueError(
                f"the body must be a JSON object with the header content-type: application/json; found {kind!r}."
            )
        try:
            if len(body) > _PARSE_IN_THREAD:
                asked = await in_thread(question.model_validate_json, body)
            else:
                asked = question.model_validate_json(body)
        except ValidationError as error:
            raise ValueError(_sentence(error.errors(include_url=False, include_input=False)[0])) from None
        return await handle(asked, request.client.host if request.client else "-")

    async def route(request: Request) -> Response:
        end = asyncio.get_running_loop().time() + limits.timeout
        try:
            async with asyncio.timeout_at(end):
                body = await _body(request, limits.body)
        except TimeoutError:
            message = f"the body did not arrive within {limits.timeout:g} seconds."
            raise RequestError(408, message, {"connection": "close"}) from None
        try:
            async with asyncio.timeout_at(end):
                return json_response(await _unless_left(request, answer(body, request)))
        except TimeoutError:
            raise RequestError(504, f"no answer within {limits.timeout:g} seconds.") from None

    route.__name__, route.__doc__ = handle.__name__, handle.__doc__
    return route


async def _body(request: Request, most: int) -> bytes:
    """The body. Of one that is too large some more is read, so that a client still sending sees the response."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size <= most:
                parts.append(part)
            if size > 8 * most:
                break
    except ClientDisconnect:
        raise RequestError(499, "the client left.") from None
    if size > most:
        raise RequestError(413, f"the body is larger than {most} bytes.", {"connection": "close"})
    return b"".join(parts)


async def _unless_left(request: Request, work: Any) -> Any:
    """The result of some work, which is cancelled when the client disconnects."""
    task, left = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise RequestError(499, "the client left.")
    finally:
        left.cancel()
        task.cancel()


def _add_error_handlers(app: FastAPI) -> None:
    """Answer every exception with ``{"error": sentence}``."""

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> Response:
        return error_response(error)

    @app.exception_handler(ValueError)
    async def wrong(request: Request, error: ValueError) -> Response:
        return json_response({"error": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return json_response({"error": _sentence({**first, "loc": first["loc"][1:]})}, 422)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return json_response({"error": f"{error.detail}."}, error.status_code, dict(error.headers or {}))


def _documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Error responses of a route, for OpenAPI."""
    texts = _ERRORS | _POST_ERRORS
    return {status: {"model": schema.Problem, "description": texts[status]} for status in statuses}


def _sentence(error: Any) -> str:
    """Where a question differs from what is expected, and how."""
    if error["type"] == "json_invalid":
        return f"the body is not valid JSON: {error['ctx']['error']}."
    if error["type"] == "model_type" and not error["loc"]:
        return "the body must be a JSON object."
    # For a union, pydantic adds the name of the type it tried to the location.
    parts = [str(p) for p in error["loc"] if not str(p).startswith(("list[", "str", "int", "nullable"))]
    return f"{'.'.join(parts) or 'the body'}: {error['msg'][0].lower()}{error['msg'][1:]}."

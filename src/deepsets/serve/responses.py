"""Responses of the HTTP API: JSON, and errors as sentences."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from . import schema
from .limits import RequestError


def add_error_handlers(app: FastAPI) -> None:
    """Answer every exception with ``{"error": sentence}``."""

    @app.exception_handler(RequestError)
    async def refused(request: Request, error: RequestError) -> Response:
        return json_response({"error": error.message}, error.status, error.headers)

    @app.exception_handler(ValueError)
    async def wrong(request: Request, error: ValueError) -> Response:
        return json_response({"error": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return json_response({"error": validation_message({**first, "loc": first["loc"][1:]})}, 422)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return json_response({"error": f"{error.detail}."}, error.status_code, dict(error.headers or {}))


def documented(statuses: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, for OpenAPI."""
    return {status: {"model": schema.Problem, "description": what} for status, what in statuses.items()}


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response that is not cached."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    encoded = text.encode("utf-8", "backslashreplace")  # a lone surrogate has no UTF-8 form
    return Response(encoded, status, {"cache-control": "no-store", **(headers or {})}, "application/json")


def validation_message(error: Any) -> str:
    """A sentence that says where a question differs from what is expected, and how."""
    if error["type"] == "json_invalid":
        return f"the body is not valid JSON: {error['ctx']['error']}."
    if error["type"] == "model_type" and not error["loc"]:
        return "the body must be a JSON object."
    # For a union, pydantic adds the name of the type it tried to the location.
    parts = [str(p) for p in error["loc"] if not str(p).startswith(("list[", "str", "int", "nullable"))]
    return f"{'.'.join(parts) or 'the body'}: {error['msg'][0].lower()}{error['msg'][1:]}."

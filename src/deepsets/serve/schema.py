"""Questions and answers of the API as OpenAPI shows them, its limits, and the error of a request beyond them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

Element = StrictStr | StrictInt
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e38, le=1e38)]
Numbers = Annotated[list[Number], Field(fail_fast=True)]  # report the first error only
Elements = Annotated[list[Element], Field(fail_fast=True)]
# Members, or text as people type it: "lion, tiger".
Query = Annotated[list[Element], Field(fail_fast=True, min_length=1)] | Annotated[StrictStr, Field(min_length=1)]
# Features, null where one is missing; or a token.
Member = Annotated[list[Number | None], Field(fail_fast=True)] | Element
Rows = Annotated[list[Numbers], Field(fail_fast=True)]
Members = Annotated[list[Member], Field(fail_fast=True)]
Name = Annotated[str | None, Field(description="A model of /v1/models; by default the first.")]
Context = Annotated[Numbers | None, Field(description="Context of the set, for models that need it.")]


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())
    model: Name = None


class ExpandQuestion(_Question):
    """Body of ``/v1/expand``."""

    query: Query = Field(examples=[["lion", "tiger"]])
    k: StrictInt = Field(10, ge=1)
    exclude: Elements = []
    z: Context = None
    why: StrictBool = Field(False, description="tell which members each candidate goes with")


class ScoreQuestion(_Question):
    """Body of ``/v1/score``."""

    query: Query
    candidates: Elements | None = Field(None, description="By default the vocabulary, in its order.")
    z: Context = None


class FitsQuestion(_Question):
    """Body of ``/v1/fits``."""

    query: Elements = Field(min_length=2)
    z: Context = None


class SetsQuestion(_Question):
    """Body of ``/v1/predict`` and ``/v1/explain``."""

    sets: Annotated[list[Members], Field(fail_fast=True)] = Field(min_length=1, examples=[[[[0.1, 0.2], [0.3, 0.4]]]])
    z: Rows | None = Field(None, description="One row per set, for models that need it.")


class _Answer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())
    model: str


class Found(BaseModel):
    """A candidate."""

    element: Element
    score: float | None = Field(description="null for an element that cannot be scored")


class Unknown(BaseModel):
    """An element that the model does not know, and elements that may have been meant."""

    element: Element
    suggestions: list[Element]


class Reason(BaseModel):
    """Why a candidate is suggested."""

    element: Element
    members: list[Found] = Field(description="from 0, like any other element, to 1, like the best for this member")
    sets: list[str] = Field(description="names of known sets that hold the candidate and members of the query")


class ExpandAnswer(_Answer):
    """Answer of ``/v1/expand``."""

    candidates: list[Found]
    reasons: list[Reason] = Field([], description="one per candidate, if `why` was asked for")
    unknown: list[Unknown] = Field(description="elements of the question that the model does not know")


class ScoreAnswer(_Answer):
    """Answer of ``/v1/score``."""

    scores: list[float | None]
    unknown: list[Unknown] = Field(description="elements of the query that the model does not know")


class FitsAnswer(_Answer):
    """Answer of ``/v1/fits``."""

    fits: list[float | None] = Field(description="how well each member goes with the others")
    odd: int | None = Field(description="position of the member that does not belong, if one stands out")


class PredictAnswer(_Answer):
    """Answer of ``/v1/predict``."""

    predictions: list[Any] = Field(description="one per set; for member models a list per set")
    probabilities: list[Any] | None = Field(None, description="in the order of the model's classes")


class ExplainAnswer(_Answer):
    """Answer of ``/v1/explain``."""

    contributions: list[list[float | list[float]]] = Field(description="for each member one number, or one per class")
    predictions: list[Any]


class ModelCard(BaseModel):
    """What a model is and can do."""

    model_config = ConfigDict(populate_by_name=True)
    name: str
    kind: str = Field(description="expander or estimator")
    kind_class: str = Field(alias="class")
    task: str
    about: str
    part_of: str | None = Field(description="the model that blends this one with others")
    abilities: list[str]
    elements: int | None = Field(description="size of the vocabulary")
    classes: list[Any] | None
    features: list[str] | int | None = Field(description="names, or number")
    context: int = Field(description="number of columns of z")
    examples: list[list[Member]]


class ModelList(BaseModel):
    """Answer of ``/v1/models``."""

    models: list[ModelCard]
    default: str


class Completions(BaseModel):
    """Answer of ``/v1/complete``."""

    elements: list[Element]


class Health(BaseModel):
    """Answer of the health checks."""

    status: str


class Problem(BaseModel):
    """An error."""

    error: str = Field(description="what is wrong, as a sentence")


@dataclass(frozen=True)
class Limits:
    """Limits of the service.

    Parameters
    ----------
    body, elements, k : int, default=1048576, 10000, 1000
        Bytes in the body of a request, members of all its sets together, and candidates in an answer.
    fits : int, default=256
        Members of a set whose members are left out one after another (``/v1/fits``).
    queue, connections : int, default=256, 512
        Requests that wait for a model, and open connections. When there are more connections, the one that has been
        idle longest is closed.
    timeout, headers : float, default=10.0
        Seconds for a request, including its body, and for its headers to arrive.
    batch, gather : int, float, default=64, 0.002
        Questions in one call of a model, and seconds to wait for more when the previous ones came together.
    """

    body: int = 1 << 20
    elements: int = 10_000
    k: int = 1000
    timeout: float = 10.0
    headers: float = 10.0
    fits: int = 256
    queue: int = 256
    connections: int = 512
    gather: float = 0.002
    batch: int = 64

    def __post_init__(self) -> None:
        for each in fields(self):
            least = 0 if each.name == "gather" else 0.01 if each.name in ("timeout", "headers") else 1
            value = getattr(self, each.name)
            if not (value >= least and math.isfinite(value)):
                raise ValueError(f"the limit {each.name} must be a finite number of at least {least}, found {value}.")


class RequestError(Exception):
    """A request that is refused: HTTP status, the reason as a sentence, and further headers of the response."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}

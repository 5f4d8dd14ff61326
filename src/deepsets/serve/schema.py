"""What is asked and what is answered, as OpenAPI shows it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

Element = StrictStr | StrictInt
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e38, le=1e38)]
Numbers = Annotated[list[Number], Field(fail_fast=True)]  # the first fault is enough: a long list may hold very many
Elements = Annotated[list[Element], Field(fail_fast=True)]
# Features, null where one is missing; or a token.
Member = Annotated[list[Number | None], Field(fail_fast=True)] | Element
Rows = Annotated[list[Numbers], Field(fail_fast=True)]
Members = Annotated[list[Member], Field(fail_fast=True)]
Name = Annotated[str | None, Field(description="A model of /v1/models; by default its `default`.")]
Context = Annotated[Numbers | None, Field(description="What is known of the set, for models that want it.")]


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())
    model: Name = None


class ExpandQuestion(_Question):
    query: Elements = Field(min_length=1, examples=[["lion", "tiger"]])
    k: StrictInt = Field(10, ge=1)
    exclude: Elements = []
    z: Context = None


class ScoreQuestion(_Question):
    query: Elements = Field(min_length=1)
    candidates: Elements | None = Field(None, description="By default the vocabulary, in its order.")
    z: Context = None


class FitsQuestion(_Question):
    query: Elements = Field(min_length=2)
    z: Context = None


class SetsQuestion(_Question):
    sets: Annotated[list[Members], Field(fail_fast=True)] = Field(min_length=1, examples=[[[[0.1, 0.2], [0.3, 0.4]]]])
    z: Rows | None = Field(None, description="A row for each set, for models that want it.")


class _Answer(BaseModel):
    model_config = ConfigDict(protected_namespaces=())
    model: str


class Found(BaseModel):
    element: Element
    score: float | None = Field(description="null for an element that cannot be scored")


class ExpandAnswer(_Answer):
    candidates: list[Found]


class ScoreAnswer(_Answer):
    scores: list[float | None]


class FitsAnswer(_Answer):
    fits: list[float | None] = Field(description="how well each member goes with the others")
    odd: int | None = Field(description="the place of the member that does not belong, if one stands out")


class PredictAnswer(_Answer):
    predictions: list[Any] = Field(description="one for each set; of members a list for each set")
    probabilities: list[Any] | None = Field(None, description="in the order of the model's classes")


class ExplainAnswer(_Answer):
    contributions: list[list[float | list[float]]] = Field(description="a number, or one for each class, a member")
    predictions: list[Any]


class ModelCard(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    name: str
    kind: str = Field(description="expander or estimator")
    kind_class: str = Field(alias="class")
    task: str
    about: str
    abilities: list[str]
    elements: int | None = Field(description="how many the vocabulary holds")
    classes: list[Any] | None
    features: list[str] | int | None = Field(description="their names, or how many")
    context: int = Field(description="how many numbers z has")
    examples: list[list[Member]]


class ModelList(BaseModel):
    models: list[ModelCard]
    default: str


class Completions(BaseModel):
    elements: list[Element]


class Health(BaseModel):
    status: str


class Problem(BaseModel):
    error: str = Field(description="a sentence")

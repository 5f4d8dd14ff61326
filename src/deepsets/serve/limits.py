"""Limits of the service, and the error that a request beyond them gets."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Limits of the service.

    Parameters
    ----------
    body : int, default=1048576
        Bytes in the body of a request.
    elements : int, default=10000
        Members of all sets of a request together.
    fits : int, default=256
        Members of a set whose members are left out one after another (``/v1/fits``).
    k : int, default=1000
        Candidates in an answer.
    queue : int, default=256
        Requests that wait for a model.
    connections : int, default=512
        Open connections. When there are more, the one that has been idle longest is closed.
    timeout : float, default=10.0
        Seconds for a request, including its body.
    headers : float, default=10.0
        Seconds for the headers of a request to arrive.
    batch : int, default=64
        Questions in one call of a model.
    gather : float, default=0.002
        Seconds to wait for more questions when the previous ones came together.
    """

    body: int = 1 << 20
    elements: int = 10_000
    fits: int = 256
    k: int = 1000
    queue: int = 256
    connections: int = 512
    timeout: float = 10.0
    headers: float = 10.0
    batch: int = 64
    gather: float = 0.002

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

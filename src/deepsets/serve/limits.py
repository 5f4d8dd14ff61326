"""What a request may cost, and how one that asks for more is refused."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """What a request may cost.

    >>> Limits(queue=10).queue
    10

    body: bytes of a request. elements: members of all its sets together. fits: members of a set that is asked for its
    odd one, each of which is left out in turn. k: candidates of an answer. queue: requests that wait for a model.
    timeout: seconds for a request, its body included. headers: seconds for the head of a request to arrive.
    batch: queries in one call of a model. gather: seconds to wait for more of them, where the last ones came together.
    """

    body: int = 1 << 20
    elements: int = 10_000
    fits: int = 256
    k: int = 1000
    queue: int = 256
    timeout: float = 10.0
    headers: float = 10.0
    batch: int = 64
    gather: float = 0.002

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name == "gather" else 0.01 if field.name in ("timeout", "headers") else 1
            value = getattr(self, field.name)
            if not value >= least:
                raise ValueError(f"the limit {field.name} must be at least {least}, found {value}.")


class Refused(Exception):
    """A request that gets no answer: the status, a sentence that says why, and headers."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}

"""`deepsets expand`: from a few words to more like them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .engine import Address, EngineName, Workers, engine_of
from .output import sentences, show_json


@sentences
def expand(
    words: Annotated[list[str] | None, typer.Argument(help="Members of a set; commas are fine.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many to find.")] = 10,
    model: Annotated[Path | None, typer.Option(help="A folder of `fit --task expansion` (default: words).")] = None,
    method: Annotated[
        str | None, typer.Option(help="blend, bayesian-sets, nearest-vectors or deep-sets, where no model is given.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Not to be found; may be given several times.")] = None,
    not_like: Annotated[list[str] | None, typer.Option(help="A negative example; may be given several times.")] = None,
    fits: Annotated[bool, typer.Option("--fits", help="Show how well each of the words goes with the others.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Show which words each answer goes with.")] = False,
    file: Annotated[Path | None, typer.Option("--from", help="A text file with more words, one per line.")] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="A table of candidates, or a folder of Parquet files, to search instead.")
    ] = None,
    element: Annotated[str | None, typer.Option(help="The column with the names of the candidates.")] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find more members of the set that a few words are from.

    Without a model the words are English words and phrases, which come with the library. Capitals do not matter; words
    that are not known are skipped and named. With --candidates, names and features of candidates are read from files,
    which may be larger than memory; the model must be one that scores features.

    \b
    Examples:
      deepsets expand lion tiger leopard
      deepsets expand violin, cello, grand piano -k 5 --exclude guitar
      deepsets expand --model baskets/ milk bread
      deepsets expand lion tiger hammer --fits
      deepsets expand --model songs/ s17 s23 --candidates shards/ --element song
    """
    if model is not None and method is not None:
        raise typer.BadParameter("a model has its method already.", param_hint="--method")
    asked = [*(words or []), *(_lines(file) if file else [])]
    if not asked or not all(word.strip() for word in asked):
        raise typer.BadParameter(
            "give at least one word, and none that is empty, or a file of words by --from.", param_hint="WORDS"
        )
    where = engine_of(engine, workers, address, candidates)
    if candidates is not None:
        if model is None or element is None or fits:
            raise typer.BadParameter(
                "candidates in files need --model and --element, and have no --fits.", param_hint="--candidates"
            )
        _from_files(model, asked, candidates, k, element, exclude or [], where, as_json)
        return
    if engine != "local" or element is not None:
        raise typer.BadParameter("it goes with --candidates.", param_hint="--element" if element else "--engine")
    from ..expand import odd_member

    expander = _expander(model, method)
    found = expander.expand(asked, k, exclude=exclude or [], not_like=not_like or [])
    query, unknown = expander.parse(asked)
    members = expander.relative_fits(query) if fits and len(query) > 1 else []
    place = odd_member(expander, query)
    odd = None if place is None else query[place]
    reasons = {c.element: expander.explain(query, c.element) for c in found} if why else {}
    if as_json:
        answers: list[dict[str, Any]] = [candidate._asdict() for candidate in found]
        for answer in answers if why else []:
            reason = reasons[answer["element"]]
            answer["members"], answer["sets"] = [m._asdict() for m in reason.members], reason.sets
        skipped = [{"element": u.element, "suggestions": u.suggestions} for u in unknown]
        result: dict[str, Any] = {"query": query, "unknown": skipped, "answers": answers, "odd": odd}
        show_json(result | ({"fits": [{"element": m.element, "fit": m.score} for m in members]} if fits else {}))
        return
    scores = expander.score(query)
    least = min(float(np.median(scores[np.isfinite(scores)])), *(c.score for c in found))  # unrelated elements
    _table([(c.element, c.score, _reason(reasons.get(c.element))) for c in found], least)
    if members:
        typer.echo("\nHow well each goes with the others, from 0 (unrelated) to 1 (as well as the best):")
        _table([(m.element, m.score, "") for m in members], 0.0, 1.0)
    if odd is not None:
        typer.echo(f"\n{odd} does not seem to belong to the others.")


def _reason(reason: Any) -> str:
    if reason is None:
        return ""
    return ", ".join(str(m.element) for m in reason.members[:3]) + (f" ({reason.sets[0]})" if reason.sets else "")


def _from_files(
    model: Path,
    query: list[str],
    candidates: Path,
    k: int,
    element: str,
    exclude: list[str],
    engine: Any,
    as_json: bool,
) -> None:
    from .. import distributed

    found = distributed.expand(model, query, candidates, k, element=element, exclude=exclude, engine=engine)
    if as_json:
        show_json({"query": query, "answers": [candidate._asdict() for candidate in found]})
    else:
        _table([(c.element, c.score, "") for c in found], min(c.score for c in found))


def _expander(model: Path | None, method: str | None) -> Any:
    from ..expand import BaseExpander
    from ..expand.words import WORD_METHODS, word_expander

    if model is None:
        if method is not None and method not in WORD_METHODS:
            raise typer.BadParameter(f"{method!r} is none of {', '.join(WORD_METHODS)}.", param_hint="--method")
        return word_expander(method or WORD_METHODS[0])
    from ..io import load

    expander = load(model)
    if not isinstance(expander, BaseExpander):
        raise ValueError(f"{model} holds a {type(expander).__name__}: wanted a model of `fit --task expansion`.")
    if expander.n_context_:
        raise ValueError(
            f"{model} needs a vector z of {expander.n_context_} numbers with each query: use it from Python."
        )
    return expander


def _lines(file: Path) -> list[str]:
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line]


def _table(rows: list[tuple[Any, float, str]], least: float, most: float = -np.inf) -> None:
    """Element, bar and score; the bar is empty at `least`, and full at `most` or, where that is more, at the best."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    span = max(most, least, *(score for _, score, _ in rows)) - least
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for element, score, reason in rows:
        length = 20 * (score - least) / span if span > 0 and np.isfinite(score) else 0.0
        bar = "█" * int(max(length, 0)) + ("▌" if max(length, 0) % 1 >= 0.5 else "")
        table.add_row(Text(str(element), style="bold"), Text(bar, style="cyan"), f"{score:.3g}", Text(reason))
    Console().print(table)

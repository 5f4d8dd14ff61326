"""`deepsets expand`: from a few elements of a set to more of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..io import load
from .console import Address, AsJson, EngineName, Workers, check_address, progress, show_json, show_table


def expand(
    words: Annotated[list[str] | None, typer.Argument(help='Members of a set; "grand piano" or grand_piano.')] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many to find.")] = 10,
    model: Annotated[
        str | None, typer.Option(help="A folder of `fit --task expansion` (default: English words).")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="blend, bayesian-sets, nearest-vectors or deep-sets, without --model.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Never returned; may be given several times.")] = None,
    not_like: Annotated[list[str] | None, typer.Option(help="A negative example; may be given several times.")] = None,
    why: Annotated[bool, typer.Option("--why", help="Show which words each answer goes with.")] = False,
    fits: Annotated[bool, typer.Option("--fits", help="Show how well each word fits the others.")] = False,
    file: Annotated[Path | None, typer.Option("--from", help="A text file with more words, one per line.")] = None,
    candidates: Annotated[
        str | None, typer.Option(help="A table or folder of Parquet files with candidates to search; path or URI.")
    ] = None,
    element: Annotated[str | None, typer.Option(help="The column with the names of the candidates.")] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Find more elements of the set that a few words belong to.

    Without a model the words are English words and phrases that come with the library. Case does not matter; words that
    are not known are skipped and named. With --candidates, names and features of candidates are read from files, which
    may be larger than memory; the model must be one that scores features.

    \b
    Examples:
      deepsets expand lion tiger leopard
      deepsets expand violin, cello, grand piano -k 5 --exclude guitar
      deepsets expand --model baskets/ milk bread
      deepsets expand lion tiger hammer --fits
      deepsets expand --model songs/ s17 s23 --candidates shards/ --element song
    """
    if model is not None and method is not None:
        raise typer.BadParameter("a model folder has its own method.", param_hint="--method")
    query = [*(words or []), *(_lines(file) if file else [])]
    if not query or not all(word.strip() for word in query):
        raise typer.BadParameter(
            "give at least one word, and no empty one, or a file of words with --from.", param_hint="WORDS"
        )
    check_address(engine, address)
    if candidates is not None:
        if model is None or element is None or fits:
            raise typer.BadParameter(
                "candidates in files need --model and --element, and cannot be used with --fits.",
                param_hint="--candidates",
            )
        run = (engine, workers, address)
        _from_files(model, query, candidates, k, element, exclude or [], run, as_json)
        return
    if engine != "local" or element is not None:
        raise typer.BadParameter("it needs --candidates.", param_hint="--element" if element else "--engine")
    from ..expand import odd_member

    expander = _expander(model, method)
    known, unknown = expander.parse(query)
    lists = {"exclude": expander.parse(exclude or []), "not-like": expander.parse(not_like or [])}
    skipped = [*unknown, *(one for parsed in lists.values() for one in parsed.unknown)]
    if skipped and known:
        typer.echo(f"Note: skipped unknown words: {'; '.join(map(str, skipped))}", err=True)
    found = expander.expand(known or query, k, exclude=lists["exclude"].members, not_like=lists["not-like"].members)
    members = expander.relative_fits(known) if fits and len(known) > 1 else []
    place = odd_member(expander, known)
    odd = None if place is None else known[place]
    reasons = {r.element: r for r in expander.explain_each(known, [c.element for c in found])} if why else {}
    if as_json:
        answers: list[dict[str, Any]] = [candidate._asdict() for candidate in found]
        for answer in answers if why else []:
            reason = reasons[answer["element"]]
            answer["members"], answer["sets"] = [m._asdict() for m in reason.members], reason.sets
        named = [{"element": u.element, "suggestions": u.suggestions} for u in skipped]
        result: dict[str, Any] = {"query": known, "unknown": named, "answers": answers, "odd": odd}
        show_json(result | ({"fits": [{"element": m.element, "fit": m.score} for m in members]} if fits else {}))
        return
    scores = expander.score(known)
    least = min(float(np.median(scores[np.isfinite(scores)])), *(c.score for c in found))  # an unrelated element
    _table([(c.element, c.score, _reason(reasons.get(c.element))) for c in found], least)
    if members:
        typer.echo("\nHow well each fits the others, from 0 (unrelated) to 1 (best):")
        _table([(m.element, m.score, "") for m in members], 0.0, 1.0)
    if odd is not None:
        typer.echo(f"\n{odd} does not seem to belong to the others.")


def _from_files(
    model: str, query: list[str], candidates: str, k: int, element: str, exclude: list[str], run: Any, as_json: bool
) -> None:
    from .. import distributed
    from ..train.process import keep_memory

    keep_memory()  # this process does nothing else
    with progress("candidates", None, as_json or run[0] != "local") as advance:
        engine = distributed.Engine(*run)
        found = distributed.expand(
            model, query, candidates, k, element=element, exclude=exclude, engine=engine, progress=advance
        )
    if as_json:
        show_json({"query": query, "answers": [candidate._asdict() for candidate in found]})
    else:
        _table([(c.element, c.score, "") for c in found], min(c.score for c in found))


def _reason(reason: Any) -> str:
    if reason is None:
        return ""
    return ", ".join(str(m.element) for m in reason.members[:3]) + (f" ({reason.sets[0]})" if reason.sets else "")


def _expander(model: str | None, method: str | None) -> Any:
    from ..expand import BaseExpander
    from ..expand.words import WORD_METHODS, word_expander

    if model is None:
        if method is not None and method not in WORD_METHODS:
            raise typer.BadParameter(f"{method!r} is none of {', '.join(WORD_METHODS)}.", param_hint="--method")
        return word_expander(method or WORD_METHODS[0])
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
    from rich.text import Text

    span = max(most, least, *(score for _, score, _ in rows)) - least
    out = []
    for element, score, reason in rows:
        length = max(20 * (score - least) / span, 0.0) if span > 0 and np.isfinite(score) else 0.0
        bar = Text("█" * int(length) + ("▌" if length % 1 >= 0.5 else ""), style="cyan")
        out.append({"": Text(str(element), style="bold"), "bar": bar, "score": f"{score:.3g}", "why": reason})
    show_table(out, header=False)

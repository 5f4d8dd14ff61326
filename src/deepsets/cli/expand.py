"""`deepsets expand`: from a few elements of a set to more of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .engine import Address, EngineName, Workers, check_engine, make_engine
from .errors import user_errors
from .output import progress, show_json


@user_errors
def expand(
    words: Annotated[list[str] | None, typer.Argument(help='Members of a set; "grand piano" or grand_piano.')] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many to find.")] = 10,
    model: Annotated[str | None, typer.Option(help="A folder of `fit --task expansion` (default: WordNet).")] = None,
    method: Annotated[
        str | None, typer.Option(help="bayesian-sets, deep-sets or nearest-vectors, without --model.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Never returned; may be given several times.")] = None,
    fits: Annotated[bool, typer.Option("--fits", help="Show how well each word fits the others.")] = False,
    file: Annotated[Path | None, typer.Option("--from", help="A text file with more words, one per line.")] = None,
    candidates: Annotated[
        str | None, typer.Option(help="A table or folder of Parquet files with candidates to search; path or URI.")
    ] = None,
    element: Annotated[str | None, typer.Option(help="The column with the names of the candidates.")] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find more elements of the set that a few words belong to.

    Without a model the words are English nouns of concepts that come with the library. Case does not matter. With
    --candidates, names and features of candidates are read from files, which may be larger than memory; the model must
    be one that scores features.

    \b
    Examples:
      deepsets expand lion tiger leopard
      deepsets expand violin cello "grand piano" -k 5 --exclude guitar
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
    check_engine(engine, address)
    if candidates is not None:
        if model is None or element is None or fits:
            raise typer.BadParameter(
                "candidates in files need --model and --element, and cannot be used with --fits.",
                param_hint="--candidates",
            )
        run = make_engine(engine, workers, address)
        _from_files(model, query, candidates, k, element, exclude or [], run, as_json)
        return
    if engine != "local" or element is not None:
        raise typer.BadParameter("it needs --candidates.", param_hint="--element" if element else "--engine")
    from ..expand import odd_member

    expander = _expander(model, method, quiet=as_json)
    query = _spelled(expander, query)
    found = expander.expand(query, k, exclude=_spelled(expander, exclude or []))
    query = [element for element in query if expander.find(element) is not None]  # unknown ones are noted
    members = _members(expander, query) if fits and len(query) > 1 else []
    place = odd_member(expander, query)
    odd = None if place is None else query[place]
    if as_json:
        answer: dict[str, Any] = {"query": query, "answers": [candidate._asdict() for candidate in found], "odd": odd}
        show_json(answer | ({"fits": members} if fits else {}))
        return
    scores = expander.score(query)
    least = float(np.median(scores[np.isfinite(scores)]))  # the score of an unrelated element
    _table([(c.element, c.score) for c in found], least)
    if members:
        typer.echo("\nHow well each fits the others, from 0 (unrelated) to 1 (best):")
        _table([(m["element"], m["fit"]) for m in members], 0.0, 1.0)
    if odd is not None:
        typer.echo(f"\n{odd} does not seem to belong to the others.")


def _from_files(
    model: str,
    query: list[str],
    candidates: str,
    k: int,
    element: str,
    exclude: list[str],
    engine: Any,
    as_json: bool,
) -> None:
    from .. import distributed

    with progress("candidates", None, as_json) as advance:
        options: dict[str, Any] = {"element": element, "exclude": exclude, "engine": engine, "progress": advance}
        found = distributed.expand(model, query, candidates, k, **options)
    if as_json:
        show_json({"query": query, "answers": [candidate._asdict() for candidate in found]})
    else:
        _table([(c.element, c.score) for c in found], min(c.score for c in found))


def _expander(model: str | None, method: str | None, quiet: bool) -> Any:
    from ..expand import BaseExpander
    from ..expand.concepts import METHODS, concept_expander

    if model is None:
        if method is not None and method not in METHODS:
            raise typer.BadParameter(f"{method!r} is none of {', '.join(METHODS)}.", param_hint="--method")
        return concept_expander(method or METHODS[0], verbose=sys.stderr.isatty() and not quiet)
    from ..io import load

    expander = load(model)
    if not isinstance(expander, BaseExpander):
        raise ValueError(f"{model} holds a {type(expander).__name__}: wanted a model of `fit --task expansion`.")
    if expander.n_context_:
        raise ValueError(
            f"{model} needs a vector z of {expander.n_context_} numbers with each query: use it from Python."
        )
    return expander


def _spelled(expander: Any, words: list[str]) -> list[Any]:
    """Words as typed to elements of the vocabulary; words that are not known stay as they are."""
    places = [(word, expander.find(word)) for word in words]
    return list(dict.fromkeys(word if i is None else expander.vocabulary_[i] for word, i in places))


def _lines(file: Path) -> list[str]:
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line]


def _members(expander: Any, query: list[Any]) -> list[dict[str, Any]]:
    """The score of each member given the others, and its share between an unrelated element (0) and the best (1)."""
    place = {element: i for i, element in enumerate(expander.vocabulary_)}
    ids = [place[element] for element in query]
    scores = expander.scores([[other for other in query if other != element] for element in query])
    own = scores[range(len(ids)), ids]
    out = []
    for row, score, fits, element in zip(np.delete(scores, ids, axis=1), own, expander.fits(query), query, strict=True):
        others = row[np.isfinite(row)]
        usual, best = (np.median(others), max(others.max(), score)) if len(others) else (score, score)
        share = (score - usual) / (best - usual) if np.isfinite(score) and best > usual else 0.0
        out.append({"element": element, "score": float(fits), "fit": float(max(share, 0.0))})
    return out


def _table(rows: list[tuple[Any, float]], least: float, most: float = -np.inf) -> None:
    """Print element, bar and score; the bar is empty at `least`, and full at `most` or at the best score if higher."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    span = max(most, least, *(score for _, score in rows)) - least
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for element, score in rows:
        length = 20 * (score - least) / span if span > 0 and np.isfinite(score) else 0.0
        bar = "█" * int(max(length, 0)) + ("▌" if max(length, 0) % 1 >= 0.5 else "")
        table.add_row(Text(str(element), style="bold"), Text(bar, style="cyan"), f"{score:.3g}")
    Console().print(table)

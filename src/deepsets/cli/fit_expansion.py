"""`deepsets fit --task expansion`: sets of elements, from a table or from lines of text, to an expander."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import typer

from .output import show, show_result


def fit_expansion(
    table: Path,
    output: Path,
    by: str | None,
    element: str | None,
    method: str | None,
    epochs: int | None,
    seed: int,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Read the sets, show what they are, fit and save; parameters as on the command line."""
    from .. import io
    from ..expand import Expander
    from ..expand.expander import METHODS
    from .schema import overview

    methods = ("blend", *METHODS[:-1])  # the last one is for items with features
    method = method or methods[0]
    if method not in methods:
        raise typer.BadParameter(f"{method!r} is none of {', '.join(methods)}.", param_hint="--method")
    column, sets = read_elements(table, by, element)
    schema = overview(table, np.array([len(members) for members in sets]), "expansion")
    schema |= {"element": column, "elements": len({member for members in sets for member in members}), "method": method}
    if not as_json:
        show(schema, "Schema")
    start = time.perf_counter()
    expander = Expander(None if method == "blend" else (method,), epochs=epochs, random_state=seed).fit(sets)
    expander.columns_ = [by, element]
    io.save(expander, output, overwrite)
    result = {"model": str(output), "seconds": round(time.perf_counter() - start, 3)}
    show_result((schema if as_json else {}) | result, "\nFitted", as_json)


def read_elements(path: Path, by: str | None, element: str | None) -> tuple[str, list[list[str]]]:
    """Return the column of the elements, and the sets as lists of text.

    A text file, or a CSV file without --by and --element, has one set per line and no header.
    """
    if path.suffix.lower() == ".txt" or (path.suffix.lower() == ".csv" and by is None and element is None):
        return "one set per line", _lines(path)
    from ..io import TableError
    from ..io.files import File
    from ..io.reader import Source
    from ..io.table_sets import to_sets

    source = Source(None, [path], by, features=[element] if element else None)
    shape, columns = source.shape, source.columns
    if len(columns.features) > 1:
        raise TableError(f"name the column of the elements with --element: {', '.join(columns.features)}.")
    name = columns.features[0]
    if shape.places[name][1] is not None:
        raise TableError(
            f"column {shape.places[name][0]!r} holds vectors: the elements of a set must be single values."
        )
    table = File(path, identifiers=[*([columns.by] if columns.by else []), name]).read(shape.inside(columns.all))
    if table.num_rows == 0:
        raise TableError(f"{path} has no rows, so there are no sets.")
    place = table.column_names.index(name)
    sets = to_sets(table.set_column(place, name, _text(table[name])), shape, columns).X
    if not isinstance(sets, list):
        raise TableError(f"column {name!r} has missing elements: drop these rows first.")
    return name, sets


def _text(column: Any) -> Any:
    """A column of single values, or of lists of them, as text."""
    from ..io.storage import arrow

    pa = arrow()
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column.cast(pa.large_list(pa.string()))
    return column.cast(pa.string())


def _lines(path: Path) -> list[list[str]]:
    """One set per line: separated by tabs where there are any, else by commas, else by blanks; quotes as in CSV."""
    if not path.is_file():
        raise ValueError(f"{path} {'is not a file' if path.exists() else 'does not exist'}.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}.") from None
    mark = next((mark for mark in "\t," if mark in text), " ")
    rows = csv.reader(text.splitlines(), delimiter=mark, skipinitialspace=True)
    sets = [[part.strip() for part in row if part.strip()] for row in rows]
    sets = [members for members in sets if members]
    if not sets:
        raise ValueError(f"{path} has no line with an element, so there are no sets.")
    first, *rest = sets
    table = path.suffix.lower() == ".csv" and len(rest) > 1 and {len(row) for row in sets} == {len(first)} != {1}
    if table and not set(first) & {member for row in rest for member in row}:
        raise ValueError(
            f"{path} looks like a table with the columns {', '.join(first)}, not like one set per line: name the "
            "column of the set with --by and that of its elements with --element, or give a .txt file of sets."
        )
    return sets

"""`deepsets fit --task expansion`: sets of elements, from a table or from lines of text, to an expander."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import typer

from .output import show, show_json


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
    """Reads the sets, says what they are, fits and saves."""
    from .. import io
    from ..expand import METHODS, Expander

    methods = ("blend", *METHODS[:-1])  # the last one is for items with features
    if method is not None and method not in methods:
        raise typer.BadParameter(f"{method!r} is none of {', '.join(methods)}.", param_hint="--method")
    method = method or methods[0]
    column, sets = read_elements(table, by, element)
    sizes = np.array([len(members) for members in sets])
    schema = {
        "table": str(table),
        "sets": len(sets),
        "members": int(sizes.sum()),
        "sizes": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
        "element": column,
        "elements": len({member for members in sets for member in members}),
        "task": "expansion",
        "method": method,
    }
    if not as_json:
        show(schema, "What is in the table")
    start = time.perf_counter()
    expander = Expander(None if method == "blend" else (method,), epochs=epochs, random_state=seed).fit(sets)
    io.save(expander, output, overwrite)
    result = {"model": str(output), "seconds": round(time.perf_counter() - start, 3)}
    if as_json:
        show_json(schema | result)
    else:
        show(result, "\nWhat was learnt")


def read_elements(path: Path, by: str | None, element: str | None) -> tuple[str, list[list[str]]]:
    """The column of the elements and the sets, as strings.

    A text file, or a CSV file without --by and --element, has one set a line and no header.
    """
    if path.suffix.lower() == ".txt" or (path.suffix.lower() == ".csv" and by is None and element is None):
        return "one set a line", _baskets(path)
    from ..io import File, shape_of, to_sets

    file = File(path)
    shape = shape_of(file)
    columns = shape.choose(by, [element] if element else None, [], [])
    if len(columns.features) > 1:
        raise ValueError(f"say with --element which column holds the elements: {', '.join(columns.features)}.")
    name = columns.features[0]
    if shape.places[name][1] is not None:
        raise ValueError(
            f"the column {shape.places[name][0]!r} holds vectors: the elements of a set are single values."
        )
    arrow = file.read(shape.inside(columns.all))
    if arrow.num_rows == 0:
        raise ValueError(f"{path} has no rows, so there are no sets.")
    place = arrow.column_names.index(name)
    sets = to_sets(arrow.set_column(place, name, _strings(arrow[name])), shape, columns)
    assert isinstance(sets.X, list)
    return name, sets.X


def _strings(column: Any) -> Any:
    """A column of any single values, or of lists of them, as strings."""
    from ..io.files import arrow

    pa = arrow()
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column.cast(pa.large_list(pa.string()))
    return column.cast(pa.string())


def _baskets(path: Path) -> list[list[str]]:
    """One set a line: separated by tabs where there are any, else by commas, else by blanks; quotes as in CSV."""
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
    return sets

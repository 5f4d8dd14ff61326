"""Columns of a table of sets: which there are, and the role of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from .files import File, is_list, is_number, is_single
from .storage import TableError, arrow

_WIDEST = 1_000_000  # numbers of a vector; each is seen as a column
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # row labels that pandas writes to Parquet beside the columns


class Columns(NamedTuple):
    """Roles of the columns of a table.

    Attributes
    ----------
    by : str or None
        Column that names the set of each row.
    features : list of str
        Features of the members.
    z : list of str
        Columns known of the set as a whole.
    target : list of str
        Columns to learn or to compare with.
    """

    by: str | None
    features: list[str]
    z: list[str]
    target: list[str]

    @property
    def all(self) -> list[str]:
        """Every column that is needed, once."""
        return list(dict.fromkeys([*([self.by] if self.by else []), *self.features, *self.z, *self.target]))


class Shape(NamedTuple):
    """Layout of a table.

    Attributes
    ----------
    nested : bool
        Whether a row is a set, with its members in list columns; otherwise a row is a member.
    places : dict of str to (str, int or None)
        For each column its place in the file: the column there, and the entry if that column holds vectors
        (fixed-size lists, or lists of lists). Vectors ``x`` of 3 numbers are seen as the columns x_0, x_1 and x_2.
    lists : frozenset of str
        Columns that hold a list per set.
    unsupported : dict of str to str
        Columns of types that sets cannot hold, with the type.
    """

    nested: bool
    places: dict[str, tuple[str, int | None]]
    lists: frozenset[str]
    unsupported: dict[str, str]

    def inside(self, columns: Iterable[str]) -> list[str]:
        """Return the columns of the file that hold these columns."""
        return list(dict.fromkeys(self.places[name][0] for name in columns))

    def check(self, columns: Iterable[str]) -> None:
        """Raise a TableError for a column that is not there or of an unsupported type."""
        for name in columns:
            if name in self.unsupported:
                raise TableError(
                    f"column {name!r} holds {self.unsupported[name]}, which is not supported: wanted numbers, text, "
                    "dates, or lists of these. Leave it out with --features, or convert it."
                )
            if name not in self.places:
                raise TableError(f"the table has no column {name!r}; it has: {self._names()}.")

    def choose(self, by: str | None, features: list[str] | None, z: list[str], target: list[str]) -> Columns:
        """Assign a role to each column; without `features`, all columns without another role are features."""
        self.check([*([by] if by else []), *(features or []), *z, *target])
        if by is None and not self.nested:
            raise TableError(
                f"the table has one row per member: --by must say which column names the set. Columns: {self._names()}."
            )
        given = {by, *z, *target}
        if features is None:
            self.check(self.unsupported)
        rest = [n for n in self.places if n not in given and (n in self.lists) == self.nested]
        rest = [n for n in rest if not _PANDAS_INDEX.fullmatch(n)]
        chosen = rest if features is None else list(dict.fromkeys(features))
        if not chosen:
            raise TableError(f"no feature columns are left; the table has: {self._names()}.")
        twice = [name for name in chosen if name in given]
        if twice:
            raise TableError(f"column {twice[0]!r} cannot be a feature and the set, z or target at the same time.")
        if self.nested:
            self._check_lists(chosen, [*([by] if by else []), *z])
        return Columns(by, chosen, z, target)

    def _names(self) -> str:
        names = [*self.places, *self.unsupported]
        return ", ".join(names[:50]) + (f" and {len(names) - 50} more" if len(names) > 50 else "")

    def _check_lists(self, features: list[str], plain: list[str]) -> None:
        for name in features:
            if name not in self.lists:
                raise TableError(
                    f"the feature {name!r} is not a list: in a table with one row per set, the features of the "
                    f"members are list columns, here {', '.join(sorted(self.lists)[:50])}. Columns known of the set "
                    "itself are given by --z-columns."
                )
        for name in plain:
            if name in self.lists:
                raise TableError(f"column {name!r} holds lists: one value per set is wanted.")


def shape_of(table: Any) -> Shape:
    """Return the layout of a table.

    Only the schema is read, and the first rows where the width of lists of lists is not in the schema.
    """
    types = arrow().types
    places: dict[str, tuple[str, int | None]] = {}
    lists: set[str] = set()
    unsupported: dict[str, str] = {}
    for field in table.schema:
        inner = field.type.value_type if is_list(field.type) else field.type
        width = None
        if types.is_fixed_size_list(inner) or is_list(inner):
            if not is_number(inner.value_type):
                unsupported[field.name] = str(field.type)
                continue
            width = _width(table, field.name) if is_list(inner) else inner.list_size
            if width > _WIDEST:
                unsupported[field.name] = f"vectors of {width:,} numbers"
                continue
        elif not is_single(inner):
            unsupported[field.name] = str(field.type)
            continue
        seen = [field.name] if width is None else [f"{field.name}_{i}" for i in range(width)]
        for i, column in enumerate(seen):
            if column in places:
                raise TableError(f"the table has two columns {column!r}, one of them an entry of {field.name!r}.")
            places[column] = (field.name, None if width is None else i)
        lists |= set(seen) if is_list(field.type) else set()
    return Shape(bool(lists), places, frozenset(lists), unsupported)


def _width(table: Any, name: str) -> int:
    """The length of the first members of a column of lists of lists."""
    head = table.head([name]) if isinstance(table, File) else table.select([name]).slice(0, 100)
    widths = {len(member) for members in head[name].to_pylist() for member in members or [] if member is not None}
    if len(widths) > 1:
        raise TableError(
            f"the members in column {name!r} have {min(widths)} and {max(widths)} numbers: all need the same."
        )
    return widths.pop() if widths else 0

"""Which columns a table has, and which of them is what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .files import File, arrow


class Columns(NamedTuple):
    """The parts that columns play. by: names the set. features: of members. z, target: as for `fit`."""

    by: str | None
    features: list[str]
    z: list[str]
    target: list[str]

    @property
    def all(self) -> list[str]:
        """Every column that is needed, once."""
        return list(dict.fromkeys([*([self.by] if self.by else []), *self.features, *self.z, *self.target]))


class Shape(NamedTuple):
    """The columns of a table as they are seen here. nested: a row is a set, and members stand in list columns.

    places: for each column its place in the file: the column there, and for a column of vectors (fixed-size lists,
    or lists of lists) the entry; vectors `x` of 3 numbers are seen as the columns x_0, x_1 and x_2.
    """

    nested: bool
    places: dict[str, tuple[str, int | None]]
    lists: frozenset[str]

    def inside(self, columns: Iterable[str]) -> list[str]:
        """The columns of the file that hold these."""
        return list(dict.fromkeys(self.places[name][0] for name in columns))

    def check(self, columns: Iterable[str]) -> None:
        """A column that is not there is an error that lists those that are."""
        for name in columns:
            if name not in self.places:
                raise ValueError(f"the table has no column {name!r}; it has: {', '.join(self.places)}.")

    def choose(self, by: str | None, features: list[str] | None, z: list[str], target: list[str]) -> Columns:
        """The parts of all columns; the features are, where not told, all that play no other part."""
        self.check([*([by] if by else []), *(features or []), *z, *target])
        if by is None and not self.nested:
            raise ValueError(
                f"the table has a row for each member: say with --by which column names the set. "
                f"Its columns are: {', '.join(self.places)}."
            )
        given = {by, *z, *target}
        rest = [n for n in self.places if n not in given and (n in self.lists) == self.nested]
        chosen = rest if features is None else list(dict.fromkeys(features))
        if not chosen:
            raise ValueError(f"no feature columns are left; the table has: {', '.join(self.places)}.")
        twice = [name for name in chosen if name in given]
        if twice:
            raise ValueError(f"the column {twice[0]!r} cannot be a feature and the set, z or target at the same time.")
        if self.nested:
            self._check_lists(chosen, [*([by] if by else []), *z])
        return Columns(by, chosen, z, target)

    def _check_lists(self, features: list[str], plain: list[str]) -> None:
        for name in features:
            if name not in self.lists:
                raise ValueError(
                    f"the feature {name!r} is not a list: in a table with a row for each set, the features of the "
                    f"members stand in list columns, here {', '.join(sorted(self.lists))}. What is known of the set "
                    "itself goes to --z-columns."
                )
        for name in plain:
            if name in self.lists:
                raise ValueError(f"the column {name!r} is a list: one value for each set is wanted.")


def shape_of(file: File) -> Shape:
    """What columns a file has. Looks at the first rows only where the width of lists of lists is not in the schema."""
    pa = arrow()
    kinds = {field.name: field.type for field in file.schema}
    deep = [name for name, kind in kinds.items() if is_list(kind) and is_list(kind.value_type)]
    widths = {name: _width(file.head([name]), name) for name in deep}
    places: dict[str, tuple[str, int | None]] = {}
    lists: set[str] = set()
    for name, kind in kinds.items():
        inner = kind.value_type if is_list(kind) else kind
        width = inner.list_size if pa.types.is_fixed_size_list(inner) else widths.get(name)
        seen = [name] if width is None else [f"{name}_{i}" for i in range(width)]
        for i, column in enumerate(seen):
            places[column] = (name, None if width is None else i)
        lists |= set(seen) if is_list(kind) else set()
    return Shape(bool(lists), places, frozenset(lists))


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list of any length."""
    types = arrow().types
    return types.is_list(kind) or types.is_large_list(kind)


def _width(head: Any, name: str) -> int:
    widths = {len(member) for members in head[name].to_pylist() for member in members or [] if member is not None}
    if len(widths) > 1:
        raise ValueError(
            f"the members in column {name!r} have {min(widths)} and {max(widths)} numbers: all need the same."
        )
    return widths.pop() if widths else 0

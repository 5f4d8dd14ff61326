"""Elements of a vocabulary: what users type for them, and sets, items and features as ids and matrices."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from ..sets import Sets

_QUOTES = "\"'`“”‘’«»"
_MOST_WORDS = 3  # of a phrase that is found in running text
_MOST_SUGGESTED = 20  # unknown elements that get suggestions: each takes a search of the vocabulary


class UnknownElementWarning(UserWarning):
    """Elements of a query are not in the vocabulary and were skipped."""


class UnknownElement(NamedTuple):
    """An element that is not in the vocabulary, and elements that may have been meant.

    Attributes
    ----------
    element : object
        What was given.
    suggestions : list
        Elements of the vocabulary that contain it or are spelled like it.
    """

    element: Any
    suggestions: list[Any]

    def __str__(self) -> str:
        hint = f" (did you mean {', '.join(map(str, self.suggestions))}?)" if self.suggestions else ""
        return repr(self.element)[:60] + hint


class ParsedQuery(NamedTuple):
    """A query as elements of the vocabulary.

    Attributes
    ----------
    members : list
        Elements of the vocabulary, each once, in the order in which they were given.
    unknown : list of UnknownElement
        What is not in the vocabulary, with suggestions.

    """

    members: list[Any]
    unknown: list[UnknownElement]


def listed(unknown: list[UnknownElement], most: int = 5) -> str:
    """Unknown elements as part of a sentence."""
    more = f" and {len(unknown) - most} more" if len(unknown) > most else ""
    return "; ".join(map(str, unknown[:most])) + more


def plain_element(element: Any) -> Any:
    """Return NumPy and torch scalars as Python values, all others as they are."""
    return element.item() if hasattr(element, "item") and getattr(element, "ndim", 0) == 0 else element


def fold(word: str) -> str:
    """Spelling without capitals, accents, underscores, hyphens and repeated blanks.

    >>> fold("Crème_brûlée"), fold("hip-hop"), fold(" New  York ")
    ('creme brulee', 'hip hop', 'new york')
    """
    if word.isascii() and word.isalpha():  # most words: a fifth of the time
        return word.lower()
    word = word.casefold().replace("_", " ").replace("-", " ").replace("’", "'")
    if not word.isascii():
        word = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    return " ".join(word.split())


class Vocabulary:
    """Look-up of elements as they are typed.

    An element is found by itself; otherwise by its spelling without regard to capitals, accents, underscores and
    hyphens.

    Parameters
    ----------
    elements : list
        All elements; the order decides between spellings that differ in capitals only.

    Examples
    --------
    >>> words = Vocabulary(["lion", "grand piano", "Paris", "whole milk"])
    >>> words.parse(["Lion,", "grand_piano", "paris"]).members
    ['lion', 'grand piano', 'Paris']
    >>> words.parse('paris, "grand piano", milk')
    ParsedQuery(members=['Paris', 'grand piano'], unknown=[UnknownElement(element='milk', suggestions=['whole milk'])])

    """

    def __init__(self, elements: list[Any]) -> None:
        self.elements = elements
        self.ids = {element: i for i, element in enumerate(elements)}
        self._folded: dict[str, int] | None = None

    def __contains__(self, element: Any) -> bool:
        return isinstance(element, Hashable) and element in self.ids

    def find(self, element: Any) -> int | None:
        """Return the id of an element, or None if it is not known in any spelling."""
        if element in self:
            return self.ids[element]
        if not isinstance(element, str):
            return None
        typed = element.strip().strip(",;").strip().strip(_QUOTES).strip()
        return self.ids.get(typed, self._spellings().get(fold(typed)))

    def parse(self, query: Any) -> ParsedQuery:
        """Read a query as people write it.

        Parameters
        ----------
        query : list or str
            Elements; or text: elements separated by commas, semicolons or line breaks, otherwise words separated by
            blanks, where quotes and known phrases hold words together. Commas within the strings of a list separate
            elements too, so that words of a command line may be given with commas.

        Returns
        -------
        ParsedQuery
            Known elements and unknown ones.

        """
        if isinstance(query, str):
            found = self._read_text(query)
        elif isinstance(query, Iterable):
            found = self._read_list([plain_element(e) for e in query])
        else:
            raise ValueError(f"a query is a list of elements, found {query!r}.")
        members: dict[int, None] = {}
        unknown: dict[Any, None] = {}
        for element in found:
            i = self.find(element)
            if i is None:
                unknown[element] = None
            else:
                members[i] = None
        named = [self.unknown(e) if n < _MOST_SUGGESTED else UnknownElement(e, []) for n, e in enumerate(unknown)]
        return ParsedQuery([self.elements[i] for i in members], named)

    def unknown(self, element: Any) -> UnknownElement:
        """Return an element that is not known with suggestions."""
        return UnknownElement(element, self.suggest(element))

    def suggest(self, element: Any, count: int = 3) -> list[Any]:
        """Return elements that may have been meant: those that contain the word, then those spelled like it."""
        if not isinstance(element, str) or not fold(element):
            return []
        word, spellings = fold(element), self._spellings()
        found = [i for spelling, i in spellings.items() if word in spelling and f" {word} " in f" {spelling} "][:count]
        if len(found) < count:
            parts = [spellings[part] for part in word.split() if len(part) > 2 and part in spellings]
            like = [s for s in spellings if abs(len(s) - len(word)) <= 2 and (s[0] == word[0] or s[-2:] == word[-2:])]
            near = [spellings[s] for s in difflib.get_close_matches(word, like, count, 0.7)]
            found += [i for i in (*parts, *near) if i not in found]
        return [self.elements[i] for i in found[:count]]

    def _spellings(self) -> dict[str, int]:
        if self._folded is None:
            self._folded = {}
            for element, i in self.ids.items():
                self._folded.setdefault(fold(str(element)), i)
            self._folded.pop("", None)
        return self._folded

    def _read_list(self, elements: list[Any]) -> list[Any]:
        for element in elements:
            if not isinstance(element, Hashable):
                raise ValueError(
                    f"the query holds {element!r:.60}, which is not hashable: give members with features as a matrix."
                )
        if any(isinstance(e, str) and "," in e.strip(", ") and self.find(e) is None for e in elements) or any(
            isinstance(e, str) and e.rstrip().endswith(",") and e not in self.ids for e in elements
        ):
            return self._read_text(" ".join(map(str, elements)))
        out: list[Any] = []
        for element in elements:  # "los" "angeles": words that are known together only
            joined = f"{out[-1]} {element}" if out and isinstance(out[-1], str) and isinstance(element, str) else None
            alone = self.find(element) is not None and (not out or self.find(out[-1]) is not None)
            if joined is not None and not alone and self.find(joined) is not None:
                out[-1] = joined
            else:
                out.append(element)
        return out

    def _read_text(self, text: str) -> list[str]:
        mark = next((mark for mark in ("\n\r,", ";", ",") if set(mark[:2]) & set(text.strip())), r"\s")
        found = re.findall(rf'\s*"([^"]*)"\s*(?=[{mark}]|$)|([^{mark}]+)', text)
        pieces = [piece for quoted, plain in found if (piece := (quoted or plain).strip())]
        if mark == r"\s":
            return self._phrases(pieces)
        out: list[str] = []
        for piece in pieces:
            words = self._phrases(piece.split())
            apart = self.find(piece) is None and len(words) > 1 and all(self.find(word) is not None for word in words)
            out += words if apart else [piece]
        return out

    def _phrases(self, words: list[str]) -> list[str]:
        """Join neighbouring words that are an element together."""
        out: list[str] = []
        while words:
            sizes = range(min(_MOST_WORDS, len(words)), 1, -1)
            size = next((n for n in sizes if self.find(" ".join(words[:n])) is not None), 1)
            out.append(" ".join(words[:size]))
            words = words[size:]
        return out


def is_rows(value: Any) -> bool:
    """Tell a matrix of features from a list of elements."""
    return getattr(value, "ndim", 0) == 2


def as_rows(value: Any, where: str) -> np.ndarray | sp.csr_array:
    """Check features: a matrix of finite numbers, dense or CSR."""
    if sp.issparse(value):
        rows, numbers = sp.csr_array(value), value.data
    else:
        rows = numbers = np.asarray(value)
        if rows.dtype.kind not in "biuf":
            raise ValueError(f"{where}: features must be numbers, found {rows.dtype}.")
        if rows.dtype.kind != "f":
            rows = numbers = rows.astype(np.float32)
    if rows.ndim != 2:
        raise ValueError(f"{where}: features must have the shape (elements, features), found {rows.shape}.")
    if not np.isfinite(numbers).all():
        row = "" if sp.issparse(value) else f" in row {int(np.argwhere(~np.isfinite(numbers))[0][0])}"
        raise ValueError(f"{where}: features must be finite, found NaN or inf{row}.")
    return rows


def as_dense(rows: Any) -> np.ndarray:
    """Return features as a dense matrix of float32, or of float64 if they are."""
    dense = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
    return dense.astype(np.float64 if dense.dtype == np.float64 else np.float32, copy=False)


def read_items(items: Any) -> tuple[list[Any] | None, np.ndarray | sp.csr_array | None]:
    """Split items into names and features, each None if not given."""
    if items is None:
        return None, None
    if is_rows(items):
        return list(range(items.shape[0])), as_rows(items, "items")
    if isinstance(items, Mapping):
        if not items:
            raise ValueError("items is an empty dict.")
        widths = {name: np.shape(row) for name, row in items.items()}
        first = next(iter(widths))
        for name, shape in widths.items():
            if shape != widths[first] or len(shape) != 1:
                raise ValueError(
                    f"items: {name!r} has features of shape {shape}, but {first!r} of shape {widths[first]}: "
                    "wanted one row of the same width for each."
                )
        return list(items), as_rows(np.stack([np.asarray(row) for row in items.values()]), "items")
    if isinstance(items, tuple) and len(items) == 2 and is_rows(items[1]):
        names, matrix = list(items[0]), as_rows(items[1], "items")
        if len(names) != matrix.shape[0]:
            raise ValueError(f"items: found {len(names)} names for a matrix of {matrix.shape[0]} rows.")
        return names, matrix
    return list(items), None


def read_sets(sets: Iterable[Iterable[Any]] | Sets, known: list[Any], fixed: bool) -> tuple[Sets, list[Any]]:
    """Read sets as ids, each element once per set, and the vocabulary: `known` and, unless `fixed`, new elements."""
    if isinstance(sets, Sets):
        return _id_sets(sets, known)
    ids: dict[Any, int] = {name: i for i, name in enumerate(known)}
    if len(ids) < len(known):
        seen: set[Any] = set()
        twice = next(name for name in known if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the vocabulary holds {twice!r} twice.")
    flat: list[int] = []
    offsets = [0]
    for b, members in enumerate(sets):
        if isinstance(members, str) or not isinstance(members, Iterable):
            raise ValueError(f"set {b} is {members!r}; wanted a list of elements.")
        plain = [plain_element(m) for m in members]
        for m in plain:
            if not isinstance(m, Hashable):
                raise ValueError(
                    f"set {b} holds a {type(m).__name__}, which is not hashable. For elements with features give "
                    "`items` with the features, and sets of their names."
                )
            if m not in ids:
                if fixed:
                    hint = Vocabulary(known).unknown(m)
                    raise ValueError(f"set {b} holds an element that is not among the {len(ids)} items: {hint}.")
                ids[m] = len(ids)
        flat += dict.fromkeys(ids[m] for m in plain)
        offsets.append(len(flat))
    return Sets(torch.tensor(flat, dtype=torch.long), torch.tensor(offsets)), list(ids)


def _id_sets(sets: Sets, known: list[Any]) -> tuple[Sets, list[Any]]:
    sets = sets.materialize()
    values = sets.values
    if values.ndim != 1 or values.is_floating_point():
        raise ValueError(
            f"sets of ids hold one integer per element, found {sets!r}. For elements with features give `items` with "
            "the features, and sets of their ids."
        )
    names = known or list(range(int(values.max()) + 1 if len(values) else 0))
    wrong = torch.nonzero((values < 0) | (values >= len(names))).flatten()
    if len(wrong):
        b = int(sets.set_ids[wrong[0]])
        raise ValueError(f"set {b} holds the id {int(values[wrong[0]])}; wanted 0 to {len(names) - 1}.")
    code = (sets.set_ids * max(len(names), 1) + values).numpy()
    first = np.sort(np.unique(code, return_index=True)[1])
    sizes = np.bincount(sets.set_ids.numpy()[first], minlength=len(sets))
    return Sets(values[first].long(), torch.from_numpy(np.concatenate([[0], sizes.cumsum()]))), names


def read_z(z: Any, count: int, where: str, width: int | None = None) -> np.ndarray:
    """Check z: (count, Z) finite float32; a single vector is the row of a single set."""
    rows = np.asarray(z, dtype=np.float32)
    rows = rows[None] if rows.ndim == 1 and count == 1 else rows
    if rows.ndim != 2 or len(rows) != count or (width is not None and rows.shape[1] != width):
        wanted = f"({count}, {'Z' if width is None else width})"
        raise ValueError(f"{where}: z must have a row for each set, shape {wanted}; found {np.shape(z)}.")
    if not np.isfinite(rows).all():
        raise ValueError(f"{where}: z must be finite, found NaN or inf.")
    return rows

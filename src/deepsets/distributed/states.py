"""States of named sets as a table: sorted, united, taken from, written and read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..io.files import arrow
from .state_codec import Coder, Parts

_KEY = b"deepsets.states"
_PREFIX = "state."
GROUP = 4096  # states in a row group: what is read where one of them is wanted
MEMBERS = "members"  # the column with the number of rows that went into a state


class Heading(NamedTuple):
    """What a table of states must agree on to be merged: the columns of the rows, and the model."""

    by: str
    features: list[str]
    z: list[str]
    model: str

    def check(self, other: Heading, path: Path) -> None:
        """States of another model, or of other columns, are refused."""
        for what, here, there in zip(self._fields, self, other, strict=True):
            if here != there:
                if what == "model":
                    raise ValueError(f"{path} was pooled with another model: its states mean something else here.")
                raise ValueError(f"{path} was pooled with {what} {there!r}, here {here!r}: the states do not fit.")


class States:
    """The states of B sets. ids: Arrow array (B,). members: (B,) rows so far. z: (B, k) or None. parts: (B, ...)."""

    def __init__(self, ids: Any, members: np.ndarray, z: np.ndarray | None, parts: Parts) -> None:
        self.ids, self.members, self.z, self.parts = ids, members, z, parts

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> int:
        """Bytes of the parts."""
        return sum(part.numel() * part.element_size() for part in self.parts.values())

    def take(self, rows: np.ndarray) -> States:
        """Some of the sets, in this order."""
        at = torch.from_numpy(rows)
        return States(
            self.ids.take(arrow().array(rows)),
            self.members[rows],
            None if self.z is None else self.z[rows],
            {name: part.index_select(0, at) for name, part in self.parts.items()},
        )

    def slice(self, start: int, stop: int) -> States:
        """Some that are neighbours, without copying."""
        z = None if self.z is None else self.z[start:stop]
        parts = {name: part[start:stop] for name, part in self.parts.items()}
        return States(self.ids[start:stop], self.members[start:stop], z, parts)

    @staticmethod
    def concat(each: Sequence[States]) -> States:
        """One after another; a set may then stand there several times."""
        return States(
            arrow().concat_arrays([states.ids for states in each]),
            np.concatenate([states.members for states in each]),
            None if each[0].z is None else np.concatenate([states.z for states in each]),
            {name: torch.cat([states.parts[name] for states in each]) for name in each[0].parts},
        )

    def united(self, coder: Coder) -> States:
        """One state for each set, sorted by name. States of one set are merged in pairs, in the order they came."""
        import pyarrow.compute as pc

        states = self.take(pc.sort_indices(self.ids).to_numpy().astype(np.int64))
        while len(states) > 1:
            same = pc.equal(states.ids[1:], states.ids[:-1]).to_numpy(zero_copy_only=False)
            if not same.any():
                break
            begins = np.concatenate([[True], ~same])
            numbers = np.arange(len(states))
            place = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
            left = np.flatnonzero((place[:-1] % 2 == 0) & same)
            _same_context(states, left)
            a, b = states.take(left), states.take(left + 1)
            at = torch.from_numpy(left)
            for name, part in coder.merge(a.parts, b.parts).items():
                states.parts[name].index_copy_(0, at, part)
            states.members[left] += b.members
            states = states.take(np.flatnonzero(place % 2 == 0))
        return states

    def without(self, gone: States, coder: Coder) -> States:
        """These sets, each once and sorted, with the members of `gone` taken away; a set may become empty."""
        import pyarrow.compute as pc

        found = pc.index_in(gone.ids, value_set=self.ids)
        if found.null_count:
            name = gone.ids[found.is_null().index(True).as_py()].as_py()
            raise ValueError(f"set {name!r} has no state to take members from.")
        rows = found.to_numpy().astype(np.int64)
        few = np.flatnonzero(self.members[rows] < gone.members)
        if len(few):
            i = int(few[0])
            raise ValueError(
                f"set {gone.ids[i].as_py()!r} has {self.members[rows[i]]} members, of which {gone.members[i]} cannot "
                "be taken away."
            )
        at = torch.from_numpy(rows)
        left = coder.remove(self.take(rows).parts, gone.parts)
        members = self.members.copy()
        members[rows] -= gone.members
        none = torch.from_numpy(members[rows] == 0)
        parts = {}
        for name, part in self.parts.items():
            nothing = none.reshape(-1, *[1] * (part.ndim - 1))
            parts[name] = part.index_copy(0, at, torch.where(nothing, coder.empty[name], left[name]))
        return States(self.ids, members, self.z, parts)

    # ------------------------------------------------------------------------------------------------ as a table

    def to_table(self, heading: Heading) -> Any:
        """An Arrow table: the name, the number of members, z, and a column of vectors for each part."""
        pa = arrow()
        out: dict[str, Any] = {heading.by: self.ids, MEMBERS: self.members}
        if self.z is not None:
            out |= {name: self.z[:, i] for i, name in enumerate(heading.z)}
        for name, part in self.parts.items():
            flat = pa.array(part.reshape(-1).numpy())
            # Numbers that cannot be missing are read four times as fast from Parquet.
            kind = pa.list_(pa.field("element", pa.float64(), nullable=False), int(np.prod(part.shape[1:])))
            out[_PREFIX + name] = flat if part.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, type=kind)
        table = pa.table(out)
        fields = [field.with_nullable(not field.name.startswith(_PREFIX)) for field in table.schema]
        return table.cast(pa.schema(fields, {_KEY: json.dumps(heading._asdict())}))

    @staticmethod
    def from_table(table: Any, heading: Heading, coder: Coder) -> States:
        """The reverse."""
        pa = arrow()

        def whole(name: str, shape: tuple[int, ...] = ()) -> np.ndarray:
            chunks = [chunk.flatten() if shape else chunk for chunk in table[name].chunks]
            return np.concatenate([np.zeros(0), *(chunk.to_numpy() for chunk in chunks)]).reshape(-1, *shape)

        parts = {n: torch.from_numpy(whole(_PREFIX + n, tuple(part.shape[1:]))) for n, part in coder.empty.items()}
        z = np.stack([whole(name) for name in heading.z], axis=1) if heading.z else None
        ids = pa.concat_arrays(table[heading.by].chunks) if table.num_rows else pa.array([], table[heading.by].type)
        return States(ids, whole(MEMBERS).astype(np.int64), z, parts)


def heading_of(path: Path) -> Heading | None:
    """The heading of a table of states; None for any other file."""
    if not path.is_file() or path.suffix not in (".parquet", ".pq"):
        return None
    pa = arrow()
    try:
        found = (pa.parquet.read_schema(path).metadata or {}).get(_KEY)
    except (pa.ArrowException, OSError):
        return None
    return None if found is None else Heading(**json.loads(found))


def is_states(path: Path) -> bool:
    """Whether a file is a table of states, as `pool` writes them."""
    return heading_of(path) is not None


def _same_context(states: States, left: np.ndarray) -> None:
    if states.z is None:
        return
    differ = np.flatnonzero((states.z[left] != states.z[left + 1]).any(1))
    if len(differ):
        i = int(left[differ[0]])
        raise ValueError(
            f"set {states.ids[i].as_py()!r} has z {states.z[i].tolist()} in one place and {states.z[i + 1].tolist()} "
            "in another: it must be one for each set."
        )

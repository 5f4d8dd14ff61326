"""Tables in parts of row groups."""

import numpy as np
import pytest

from deepsets.io import row_groups
from deepsets.io.files import File

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [(30, [30]), (1000, [1000]), (1400, [1400]), (1500, [1000, 500]), (2000, [1000, 1000]), (2400, [1000, 1400])],
)
@pytest.mark.parametrize("groups", [False, True])
def test_a_short_rest_belongs_to_the_table_before_it(rows, wanted, groups, tmp_path, monkeypatch):
    monkeypatch.setattr(row_groups, "READ", 20)
    pq.write_table(pa.table({"box": np.arange(rows), "x": np.arange(rows) / 2}), tmp_path / "t.parquet", 20)
    (part,) = row_groups.cut([str(tmp_path / "t.parquet")], 10_000)
    options = {"nested": False, "by": "box", "whole": False, "groups": groups, "size": 16_000}  # bytes of 1000 rows
    found = list(row_groups.tables(File(tmp_path / "t.parquet"), part, ["box", "x"], **options))
    assert [len(table) for table in found] == wanted
    assert pa.concat_tables(found)["box"].to_pylist() == list(range(rows))

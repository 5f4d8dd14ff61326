"""NumPy archives as tables."""

import numpy as np
import pytest

from deepsets.io import TableError
from deepsets.io.files import File

from .tables import IDS, SIZES, A, B, same, whole


def test_an_archive_of_arrays_may_have_offsets_and_vectors(tmp_path):
    x, y = np.stack([A, B], axis=1), np.arange(8)
    np.savez(tmp_path / "flat.npz", x=x, offsets=[0, *np.cumsum(SIZES)], y=y)
    sets = whole(tmp_path / "flat.npz", by=None, target=["y"])
    same(sets)
    assert sets.per_set
    assert sets.targets[0].to_pylist() == list(range(8))
    np.savez(tmp_path / "long.npz", x=x, box=IDS)
    same(whole(tmp_path / "long.npz"))


def test_an_archive_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "t.npz", box=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="is not an NPZ archive of plain arrays"):
        File(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(ValueError, match=r"need one length, found a 3, b 4"):
        File(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("offsets", "match"),
    [
        ([0, 5, 300, 20], "must not fall: set 2 would begin at 300 and end at 20"),
        ([0, 10**9, 5, 20], "must not fall"),
        ([5, 10, 15, 20], "must begin with 0, found 5"),
        ([0, 5, 10, 25], "the arrays have 20 entries"),
        ([0.0, 20.0], "must be B \\+ 1 integers, found float64"),
        ([[0, 20]], "must be B \\+ 1 integers"),
        ([], "must be B \\+ 1 integers"),
    ],
)
def test_offsets_are_checked_before_anybody_uses_them(offsets, match, tmp_path):
    np.savez(tmp_path / "t.npz", x=np.zeros((20, 3)), offsets=np.array(offsets))
    with pytest.raises(TableError, match=match):
        File(tmp_path / "t.npz")


def test_an_array_that_claims_more_than_the_archive_holds_is_an_error(tmp_path):
    import io
    import zipfile

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(80))
    with pytest.raises(TableError, match=r"x\.npy claims 8,000,000,000,000 bytes, but the archive holds"):
        File(tmp_path / "t.npz")


def test_an_array_named_as_an_archive_is_an_error(tmp_path):
    np.save(tmp_path / "t.npy", np.zeros(3))
    (tmp_path / "t.npy").rename(tmp_path / "t.npz")
    with pytest.raises(TableError, match="is not an NPZ archive of plain arrays"):
        File(tmp_path / "t.npz")


@pytest.mark.parametrize("array", [np.zeros(3, complex), np.zeros(3, "V8"), np.zeros((3, 0))])
def test_arrays_that_are_no_columns_are_errors(array, tmp_path):
    np.savez(tmp_path / "t.npz", x=array)
    with pytest.raises(TableError, match=r"x\.npy holds|at least one number"):
        File(tmp_path / "t.npz")


def test_bytes_and_other_byte_orders_are_read(tmp_path):
    np.savez(tmp_path / "t.npz", box=np.array([b"u", b"v"]), a=np.array([1.0, 2.0], ">f4"))
    sets = whole(tmp_path / "t.npz")
    assert sets.ids.to_pylist() == ["u", "v"]
    assert sets.X.values.tolist() == [[1.0], [2.0]]

"""Tables written piece by piece."""

import pytest

from deepsets.io.files import File
from deepsets.io.table_writer import writer

from .tables import LONG, SUFFIXES


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_in_pieces_is_read_as_one_table(suffix, tmp_path):
    path = tmp_path / f"out{suffix}"
    with writer(path) as put:
        put(LONG.slice(0, 5))
        put(LONG.slice(5))
        assert not path.exists()
    assert File(path).read(["box", "a"]).to_pydict() == LONG.select(["box", "a"]).to_pydict()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_leaves_the_old_output(suffix, tmp_path):
    path = tmp_path / f"out{suffix}"
    path.write_text("old")
    with pytest.raises(RuntimeError), writer(path) as put:
        put(LONG)
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]

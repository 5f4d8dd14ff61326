"""Where data sets are looked for."""

import pytest

from paper.datasets import data_file, data_folder


def test_a_missing_file_says_where_it_was_looked_for_and_where_it_comes_from(monkeypatch, tmp_path):
    monkeypatch.setenv("DEEPSETS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"nice/file\.gz does not exist.*from example\.org.*\$DEEPSETS_DATA"):
        data_file("nice", "file.gz", source="example.org")
    monkeypatch.delenv("DEEPSETS_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "deepsets"

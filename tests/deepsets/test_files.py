"""Atomic writes and locks: the old file or the new one, never a part; one writer at a time."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deepsets.files import FileInUseError, atomic_folder, atomic_path, locked


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "new" / "numbers.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("1")
        assert not path.exists()
    assert path.read_text() == "1"
    assert names(path.parent) == ["numbers.txt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="disk"), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("disk")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["numbers.txt"]


def test_what_a_killed_writer_left_is_overwritten(tmp_path):
    (tmp_path / ".numbers.txt.tmp").write_text("half of an older file, longer than the new one")
    with atomic_path(tmp_path / "numbers.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "numbers.txt").read_text() == "new"
    assert names(tmp_path) == ["numbers.txt"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_as_a_whole(tmp_path, monkeypatch, exchange):
    if not exchange:  # systems that cannot exchange two names
        monkeypatch.setattr("deepsets.files._exchange", lambda a, b: False)
    for content in ("old", "new"):
        with atomic_folder(tmp_path / "model") as temporary:
            (temporary / content).write_text(content)
            (temporary / "deep").mkdir()
            (temporary / "deep" / "file").write_text(content)
    assert names(tmp_path / "model") == ["deep", "new"]
    assert (tmp_path / "model" / "deep" / "file").read_text() == "new"
    assert names(tmp_path) == ["model"]


def test_a_failed_folder_leaves_the_old_one(tmp_path):
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "old").write_text("")
    with pytest.raises(RuntimeError, match="disk"), atomic_folder(tmp_path / "model") as temporary:
        raise RuntimeError("disk")
    assert names(tmp_path / "model") == ["old"]
    assert names(tmp_path) == ["model"]


KILLED = """
import os, signal, sys
from deepsets.files import atomic_folder
with atomic_folder(sys.argv[1]) as temporary:
    (temporary / "half").write_text("")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "model")], check=False, timeout=240)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2  # the temporary folder and its lock
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "new").write_text("")
    assert names(tmp_path) == ["model"]


def test_the_folder_of_another_writer_at_work_is_left_alone(tmp_path):
    with atomic_folder(tmp_path / "model") as first:
        (first / "first").write_text("")
        with atomic_folder(tmp_path / "model") as second:
            (second / "second").write_text("")
        assert names(tmp_path / "model") == ["second"]
    assert names(tmp_path / "model") == ["first"]
    assert names(tmp_path) == ["model"]


def test_the_second_user_of_a_lock_gets_a_sentence(tmp_path):
    with locked(tmp_path / "run"):
        with pytest.raises(FileInUseError, match="run is being written by another process: wait for it, or choose"):
            with locked(tmp_path / "run"):
                pass
        with locked(tmp_path / "other"):
            pass
    with locked(tmp_path / "run"):
        pass
    assert names(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork")
def test_a_lock_ends_with_its_process(tmp_path):
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(tmp_path / "run"):
            os.write(told, b"1")
            signal.pause()
    os.read(ready, 1)
    with pytest.raises(FileInUseError), locked(tmp_path / "run"):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with locked(tmp_path / "run"):
        pass
    assert names(tmp_path) == []


def test_of_many_threads_only_one_holds_the_lock_at_a_time(tmp_path):
    holders, most, taken = 0, 0, 0

    def work():
        nonlocal holders, most, taken
        mine = 0
        while mine < 50:  # everybody gets it in the end
            try:
                with locked(tmp_path / "run"):
                    holders, taken, mine = holders + 1, taken + 1, mine + 1
                    most = max(most, holders)
                    holders -= 1
            except FileInUseError:
                time.sleep(0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and taken == 200
    assert names(tmp_path) == []

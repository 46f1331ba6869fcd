"""What a killed process leaves in a folder is swept, what somebody holds is not; a name is held by one at a time."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from qbench.storage import Cache, work_folder, write_bytes
from qbench.storage.holding import alone, made_aside, sweep

KILLED = """
import os, signal, sys
from pathlib import Path
from qbench.storage import Cache

def make(path):
    path.mkdir()
    (path / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)

with Cache(Path(sys.argv[1])).alone("kind", "key"):
    Cache(Path(sys.argv[1])).entry("kind", "key", make)
"""


def test_what_a_killed_process_left_is_swept_by_the_next_that_makes_something(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = sorted(path.name[:8] for path in (tmp_path / "kind").iterdir())
    assert left == [".making-", ".making-", "key.lock"]
    Cache(tmp_path).entry("kind", "other", lambda path: path.touch())
    assert sorted(os.listdir(tmp_path / "kind")) == ["other", "other.sha256"]


def test_what_somebody_holds_is_not_swept(tmp_path):
    with made_aside(tmp_path) as work, alone(tmp_path, "name"):
        (work / "half").write_text("half")
        sweep(tmp_path)
        assert (work / "half").read_text() == "half"
        assert sorted(os.listdir(tmp_path)) == sorted([work.name, f"{work.name}.lock", "name.lock"])
    assert os.listdir(tmp_path) == []


def test_entries_are_not_swept_whatever_they_are_called(tmp_path):
    for name in ("key", ".hidden", "making-x", "lock"):
        (tmp_path / name).mkdir()
    (tmp_path / ".making-old").mkdir()
    (tmp_path / "old.lock").touch()
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "key", "lock", "making-x"]


def test_a_name_is_held_by_one_at_a_time_while_others_sweep(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        for _ in range(30):
            sweep(tmp_path)
            with alone(tmp_path, "name"):
                counter.write_text(str(int(counter.read_text()) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "120"
    assert os.listdir(tmp_path) == ["counter"]


def test_a_work_folder_is_held_by_one_at_a_time_and_goes_with_the_last(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        for _ in range(15):
            with work_folder(tmp_path) as work:
                (work / "half").write_text("half")
                counter.write_text(str(int(counter.read_text()) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "60"
    assert os.listdir(tmp_path) == ["counter"]


def test_writers_of_files_sweep_what_killed_ones_left_and_wait_for_nobody(tmp_path):
    (tmp_path / ".qbench").mkdir()
    (tmp_path / ".qbench" / ".page.html.x1").write_text("half")
    with work_folder(tmp_path):
        write_bytes(tmp_path / "page.html", b"whole")
    assert os.listdir(tmp_path) == ["page.html"]
    (tmp_path / ".qbench").mkdir()
    (tmp_path / ".qbench" / ".page.html.x1").write_text("half")
    write_bytes(tmp_path / "page.html", b"whole")
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("disk", ["without locks", "with locks"])
def test_a_disk_without_locks_is_worked_on_and_never_swept(tmp_path, monkeypatch, disk):
    def unable(*_: object) -> None:
        raise OSError(37, "No locks available")

    (tmp_path / ".making-old").mkdir()
    with contextlib.ExitStack() as stack:
        if disk == "without locks":
            stack.enter_context(monkeypatch.context()).setattr("fcntl.flock", unable)
        sweep(tmp_path)
        assert (tmp_path / ".making-old").exists() == (disk == "without locks")
        with made_aside(tmp_path) as work:
            assert work.is_dir()
        assert not work.exists()
        assert set(os.listdir(tmp_path)) <= {".making-old", ".making-old.lock"}

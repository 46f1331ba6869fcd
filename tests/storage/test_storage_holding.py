"""What a killed process leaves in a folder is swept, what a process holds or others made is
not; one holds a name.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

import filelock
import pytest

from qbench.errors import StoreError
from qbench.storage import Cache, require_writable, staged_files, work_folder, write_bytes
from qbench.storage.cache import alone, made_aside, spare_folder, sweep

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
    for name in ("key", ".hidden", "making-x", "lock", ".making-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "other.lock").write_text("content of another program")
    (tmp_path / ".making-0123456789abcdef").mkdir()
    (tmp_path / "old.lock").touch()
    sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [
        ".hidden",
        ".making-mine",
        "key",
        "lock",
        "making-x",
        "other.lock",
    ]


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


@pytest.mark.skipif(
    not hasattr(filelock._unix, "lock_fd_nonblocking"),
    reason="this filelock locks in another function, and the race is made inside of it",
)
def test_a_lock_in_a_folder_that_was_taken_away_meanwhile_counts_for_nothing(tmp_path, monkeypatch):
    taken = []

    def acquired(lock, *arguments, **options):
        if not taken:  # a new folder appears between opening the file of the lock and locking it
            monkeypatch.setattr("filelock._unix.lock_fd_nonblocking", lock_after_another_process)
        return acquire(lock, *arguments, **options)

    def lock_after_another_process(handle):
        if not taken:
            taken.append((tmp_path / ".qbench").rename(tmp_path / "away"))
            shutil.copytree(tmp_path / "away", tmp_path / ".qbench")
        return flock(handle)

    flock, acquire = filelock._unix.lock_fd_nonblocking, filelock.FileLock.acquire
    monkeypatch.setattr("filelock.FileLock.acquire", acquired)
    with work_folder(tmp_path), spare_folder(tmp_path) as other:
        assert other == tmp_path  # the other one finds it held
    assert os.listdir(tmp_path) == ["away"]


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from qbench.storage import work_folder

with work_folder(Path(sys.argv[1])) as work:
    (work / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def left(tmp_path):
    """``.qbench`` as a killed process left it."""
    done = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (part,) = (tmp_path / ".qbench").glob("part-*")
    assert os.listdir(part) == ["half"]
    return tmp_path / ".qbench"


def write_waiting(folder):
    with work_folder(folder) as work:
        write_bytes(folder / "page.html", b"whole", aside=work)


def write_now(folder):
    write_bytes(folder / "page.html", b"whole")


def write_several(folder):
    with staged_files(folder / "page.html") as staged:
        (staged / "page.html").write_bytes(b"whole")


WRITERS = (write_waiting, write_now, write_several)


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("write", WRITERS)
def test_writers_of_files_sweep_what_killed_ones_left(tmp_path, left, write):
    marked, unmarked, empty = (tmp_path / f".qbench-{digit * 16}" for digit in "abc")
    shutil.copytree(left, marked)  # killed while it took the folder away, or made one
    unmarked.mkdir()
    (unmarked / ".gitignore").touch()
    empty.mkdir()
    write(tmp_path)
    assert tree(tmp_path) == ["page.html"]


@pytest.mark.parametrize("write", WRITERS)
def test_writers_remove_nothing_foreign_from_a_marked_folder(tmp_path, left, write):
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    part = next(left.glob("part-*"))
    (part / "link").symlink_to(outside)
    (left / "part-0123456789abcdef").symlink_to(outside)
    (left / "notes.toml").write_text("mine")
    aside = tmp_path / ".qbench-0123456789abcdef"
    shutil.copytree(left, aside, symlinks=True)
    write(tmp_path)
    kept = {".gitignore", "notes.toml", "part-0123456789abcdef"}
    assert set(os.listdir(left)) == {*kept, "lock"}
    assert set(os.listdir(aside)) == kept
    assert os.listdir(outside) == ["deep"]


@pytest.mark.parametrize("write", WRITERS)
def test_writers_leave_folders_that_only_look_like_theirs(tmp_path, left, write):
    marker = (left / ".gitignore").read_bytes()
    for name in (
        ".qbench-mine",
        ".qbench-0123456789abcde",
        ".qbench-0123456789abcdef0",
        ".qbench-0123456789abcdef",
    ):
        (tmp_path / name / "part-0123456789abcdef").mkdir(parents=True)
        (tmp_path / name / ".gitignore").write_bytes(b"*\n" if name.endswith("def") else marker)
    (tmp_path / "elsewhere" / "part-0123456789abcdef").mkdir(parents=True)
    (tmp_path / "elsewhere" / ".gitignore").write_bytes(marker)
    (tmp_path / ".qbench-fedcba9876543210").symlink_to("elsewhere")
    shutil.rmtree(left)
    before = tree(tmp_path)
    write(tmp_path)
    assert tree(tmp_path) == sorted([*before, "page.html"])


def foreign_folder(place):
    place.mkdir()
    (place / "notes.toml").write_text("mine")


def foreign_ignored_folder(place):
    foreign_folder(place)
    (place / ".gitignore").write_text("*\n")


def foreign_file(place):
    place.write_text("mine")


def link_to_a_foreign_folder(place):
    foreign_folder(place.parent / "elsewhere")
    place.symlink_to("elsewhere")


def link_to_a_marked_folder(place):
    with work_folder(place.parent / "elsewhere") as work:
        shutil.copytree(work.parent, place.parent / "marked")
    (place.parent / "elsewhere").rmdir()
    place.symlink_to("marked")


def endless_ignore_file(place):
    foreign_folder(place)
    (place / ".gitignore").symlink_to("/dev/zero")


FOREIGN = (
    foreign_folder,
    foreign_ignored_folder,
    foreign_file,
    link_to_a_foreign_folder,
    link_to_a_marked_folder,
    endless_ignore_file,
)


@pytest.mark.parametrize("make", FOREIGN)
def test_a_foreign_work_folder_is_refused_where_it_must_be_locked_and_passed_over_elsewhere(
    tmp_path, make
):
    make(tmp_path / ".qbench")
    before = tree(tmp_path)
    with pytest.raises(StoreError) as refused, work_folder(tmp_path):
        pass
    assert str(tmp_path / ".qbench") in refused.value.found
    write_now(tmp_path)
    write_several(tmp_path)
    assert tree(tmp_path) == sorted([*before, "page.html"])


def test_a_work_folder_of_another_user_is_refused_and_stays(tmp_path, left, monkeypatch):
    marked = tmp_path / ".qbench-0123456789abcdef"
    shutil.copytree(left, marked)
    before = tree(tmp_path)
    other = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: other)
    with pytest.raises(StoreError, match="another user"), work_folder(tmp_path):
        pass
    write_now(tmp_path)
    assert tree(tmp_path) == sorted([*before, "page.html"])


def test_a_check_of_an_output_changes_nothing(tmp_path, left):
    shutil.copytree(left, tmp_path / ".qbench-0123456789abcdef")
    before, changed = tree(tmp_path), [path.stat().st_mtime_ns for path in (tmp_path, left)]
    require_writable(tmp_path / "new" / "sub" / "out.onnx")
    require_writable(tmp_path / "out.onnx")
    assert tree(tmp_path) == before
    assert [path.stat().st_mtime_ns for path in (tmp_path, left)] == changed


@pytest.mark.parametrize("disk", ["without locks", "with locks"])
def test_a_disk_without_locks_is_worked_on_and_never_swept(tmp_path, monkeypatch, disk):
    def unable(*_: object) -> None:
        raise OSError(37, "No locks available")

    (tmp_path / ".making-0123456789abcdef").mkdir()
    with contextlib.ExitStack() as stack:
        if disk == "without locks":
            stack.enter_context(monkeypatch.context()).setattr("fcntl.flock", unable)
        sweep(tmp_path)
        assert (tmp_path / ".making-0123456789abcdef").exists() == (disk == "without locks")
        with made_aside(tmp_path) as work:
            assert work.is_dir()
        assert not work.exists()
        assert set(os.listdir(tmp_path)) <= {
            ".making-0123456789abcdef",
            ".making-0123456789abcdef.lock",
        }

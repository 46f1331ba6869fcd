"""Digests, atomic writes and the cache: the same content has one name,
and no half file is ever seen.
"""

import errno
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import qbench.storage.cache
from qbench.errors import StoreError
from qbench.storage import (
    Cache,
    changing_file,
    digest_arrays,
    digest_bytes,
    digest_file,
    digest_plain,
    json_line,
    json_text,
    plain,
    staged_files,
    sweep_work_folder,
    work_folder,
    write_bytes,
    write_text,
)


def test_array_digest_is_of_values_not_of_layout() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert digest_arrays({"a": a}) == digest_arrays({"a": np.asfortranarray(a)})
    assert digest_arrays({"a": a}) == digest_arrays({"a": a.astype(">f4")})
    others = [{"b": a}, {"a": a.reshape(3, 2)}, {"a": a.astype(np.float64)}, {"a": a + 1}]
    assert len({digest_arrays(o) for o in others} | {digest_arrays({"a": a})}) == 5


def test_plain_digest_is_blind_to_key_order() -> None:
    assert digest_plain({"a": 1, "b": (2, 3)}) == digest_plain({"b": [2, 3], "a": np.int64(1)})
    assert digest_plain({"a": 1}) != digest_plain({"a": 2})


def test_file_digest(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 1_000_000)
    assert digest_file(path) == digest_bytes(path.read_bytes())


def test_plain_refuses_what_json_cannot_hold() -> None:
    assert plain({"x": np.float32(0.5), "y": (np.bool_(True),)}) == {"x": 0.5, "y": [True]}
    with pytest.raises(ValueError, match="not finite"):
        plain([float("nan")])
    with pytest.raises(TypeError, match="ndarray"):
        plain(np.zeros(2))


def test_two_spellings() -> None:
    value = {"b": [1, 2], "a": "é"}
    assert json_text(value) == '{\n "a": "é",\n "b": [\n  1,\n  2\n ]\n}\n'
    assert json_line(value) == '{"b":[1,2],"a":"é"}\n'
    assert json.loads(json_text(value)) == value


def test_atomic_write_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    write_text(path, "one")
    write_bytes(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"Writing '.*file/x'.*expected a writable folder"):
        write_text(tmp_path / "file" / "x", "")


def test_cache_makes_once(tmp_path: Path) -> None:
    made = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("content")

    cache = Cache(tmp_path)
    first = cache.entry("kind", "key", make)
    assert cache.entry("kind", "key", make) == first
    assert first.read_text() == "content"
    assert len(made) == 1


def test_cache_keeps_nothing_of_a_failed_make(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.mkdir()
        (path / "half").write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        Cache(tmp_path).entry("kind", "key", fail)
    assert os.listdir(tmp_path / "kind") == []


def test_a_race_ends_with_the_first_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def slow(path: Path) -> None:
        cache.entry("kind", "key", lambda p: (p.mkdir(), (p / "who").write_text("fast"))[0])
        path.mkdir()
        (path / "who").write_text("slow")

    entry = cache.entry("kind", "key", slow)
    assert (entry / "who").read_text() == "fast"
    assert sorted(os.listdir(tmp_path / "kind")) == ["key", "key.sha256"]


def write_entry(path: Path) -> None:
    path.mkdir()
    (path / "0.raw").write_bytes(bytes(range(256)))
    (path / "layout.json").write_text("{}")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["key/0.raw", "key/layout.json", "key.sha256"])
@pytest.mark.parametrize(
    "how",
    [
        flip,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff\n"),
        lambda path: path.write_bytes(path.read_bytes() + b"from 5\n"),
    ],
)
def test_a_damaged_entry_is_made_anew_with_one_notice(
    tmp_path: Path, name: str, how: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    cache = Cache(tmp_path)
    entry = cache.entry("kind", "key", write_entry)
    how(tmp_path / "kind" / name)
    for _ in range(2):
        assert cache.entry("kind", "key", write_entry) == entry
        assert (entry / "0.raw").read_bytes() == bytes(range(256))
        assert (entry / "layout.json").read_text() == "{}"
    (notice,) = cache.take_notices()
    assert "'kind/key'" in notice
    assert cache.take_notices() == ()
    assert capsys.readouterr().err == f"qbench: {notice}\n"
    assert sorted(os.listdir(tmp_path / "kind")) == ["key", "key.sha256"]


@pytest.mark.parametrize("name", ["0.raw", "more"])
def test_an_entry_with_another_set_of_files_is_made_anew(tmp_path: Path, name: str) -> None:
    cache = Cache(tmp_path)
    file = cache.entry("kind", "key", write_entry) / name
    file.unlink() if file.exists() else file.touch()
    cache.entry("kind", "key", write_entry)
    assert file.exists() == (name != "more")
    assert name in cache.take_notices()[0]


def test_an_entry_of_an_older_version_is_made_anew_without_a_word(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    write_entry((tmp_path / "kind").mkdir() or tmp_path / "kind" / "key")
    flip(tmp_path / "kind" / "key" / "0.raw")
    entry = cache.entry("kind", "key", write_entry)
    assert (entry / "0.raw").read_bytes() == bytes(range(256))
    assert cache.take_notices() == ()


def test_an_entry_is_read_once_unless_its_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, read = Cache(tmp_path), []
    cache.entry("kind", "key", write_entry)
    digests = qbench.storage.cache._digests
    monkeypatch.setattr(
        qbench.storage.cache, "_digests", lambda path: read.append(path) or digests(path)
    )
    for _ in range(3):
        cache.entry("kind", "key", write_entry)
    assert len(read) == 1
    os.utime(tmp_path / "kind" / "key" / "0.raw", ns=(1, 1))
    cache.entry("kind", "key", write_entry)
    assert len(read) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_of_the_cache_is_one_sentence(tmp_path: Path, number: int) -> None:
    def fail(path: Path) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StoreError, match=r"Writing 'kind/key' into the cache: .*QBENCH_CACHE"):
        Cache(tmp_path).entry("kind", "key", fail)
    assert os.listdir(tmp_path / "kind") == []


def test_no_home_folder_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("QBENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(StoreError, match=r"without a home folder.*Set QBENCH_CACHE"):
        Cache.default()


def test_files_that_belong_together_appear_together(tmp_path):
    path = tmp_path / "deep" / "net.onnx"
    with staged_files(path) as folder:
        (folder / "net.onnx.data").write_bytes(b"data")
        (folder / "net.onnx").write_bytes(b"model")
        assert not path.exists()
    assert sorted(p.name for p in path.parent.iterdir()) == ["net.onnx", "net.onnx.data"]
    assert path.read_bytes() == b"model"
    assert path.stat().st_mode & 0o777 == 0o644


def test_nothing_is_left_of_files_that_were_not_finished(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"old")

    def write_half():
        with staged_files(path) as folder:
            (folder / "net.onnx.data").write_bytes(b"new data")
            raise KeyError("half")

    with pytest.raises(KeyError):
        write_half()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("net.onnx", b"old")]
    with pytest.raises(StoreError, match="Writing"), staged_files(path / "beneath_a_file" / "x"):
        pass


# What a killed process left in a folder.


def _left(folder):
    """The work folder of a process that is gone, with a temporary file in it,
    and one that it was taking away.
    """
    for name in (".qbench", ".qbench-0123456789abcdef"):
        (folder / name / "part-0123456789abcdef").mkdir(parents=True)
        (folder / name / ".gitignore").write_bytes(qbench.storage.cache._MARKER)
        (folder / name / "lock").touch()
        (folder / name / "part-0123456789abcdef" / "half").write_text("half")


def test_what_a_killed_process_left_is_removed_without_anything_to_write(tmp_path):
    _left(tmp_path)
    sweep_work_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    sweep_work_folder(tmp_path)
    sweep_work_folder(tmp_path / "nothing there")
    assert list(tmp_path.iterdir()) == []


def test_what_a_process_holds_or_another_made_is_left_alone(tmp_path):
    with work_folder(tmp_path) as part:
        (part / "mine").write_text("x")
        sweep_work_folder(tmp_path)
        assert (part / "mine").is_file()
    (tmp_path / ".qbench").mkdir()
    (tmp_path / ".qbench" / "of somebody").touch()
    sweep_work_folder(tmp_path)
    assert (tmp_path / ".qbench" / "of somebody").is_file()


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system has no files without a name")
def test_the_ignoring_file_appears_with_its_content(tmp_path, monkeypatch):
    """Where a process is killed before it is written, there is none:
    git would show an empty one.
    """
    seen = []
    link = os.link

    def linked(source, path, **how):
        seen.append(path.exists())
        link(source, path, **how)
        seen.append(path.read_bytes())

    monkeypatch.setattr(os, "link", linked)
    with work_folder(tmp_path):
        assert (tmp_path / ".qbench" / ".gitignore").read_bytes() == qbench.storage.cache._MARKER
    assert seen == [False, qbench.storage.cache._MARKER]


@pytest.mark.parametrize("fault", ["no such flag", "no /proc"])
def test_without_files_without_a_name_it_is_written_as_others(tmp_path, monkeypatch, fault):
    if fault == "no such flag":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    else:
        monkeypatch.setattr(
            os, "link", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError(2, "no"))
        )
    with work_folder(tmp_path):
        assert (tmp_path / ".qbench" / ".gitignore").read_bytes() == qbench.storage.cache._MARKER
    assert list(tmp_path.iterdir()) == []


def _count(path, times):
    for _ in range(times):
        with changing_file(path) as change:
            change.write(str(int(change.read() or 0) + 1))


@pytest.mark.slow
def test_changes_of_one_file_by_processes_at_once_are_all_kept(tmp_path):
    """Each reads what the one before it wrote; through a link, too, which stays one."""
    real = tmp_path / "elsewhere" / "number"
    real.parent.mkdir()
    link = tmp_path / "number"
    link.symlink_to(real)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_count, args=(path, 20)) for path in (real, link) * 4]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert real.read_text() == "160"
    assert link.is_symlink()
    assert [path.name for path in real.parent.iterdir()] == ["number"]


def test_a_file_that_cannot_be_read_is_not_replaced(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xff\xfe")
    with changing_file(path) as change, pytest.raises(StoreError):
        change.read()
    assert path.read_bytes() == b"\xff\xfe"

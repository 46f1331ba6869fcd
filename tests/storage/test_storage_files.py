"""Digests, atomic writes and the cache: the same content has one name, and no half file is ever seen."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from qbench.errors import StoreError
from qbench.storage import (
    Cache,
    digest_arrays,
    digest_bytes,
    digest_file,
    digest_plain,
    json_line,
    json_text,
    plain,
    staged_files,
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
    assert os.listdir(tmp_path / "kind") == ["key"]


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

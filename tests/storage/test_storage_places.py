"""A place is a path or a URL: which URLs are taken, and that no message repeats a secret."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbench.errors import InputError, UnavailableError
from qbench.storage import ObjectFolder, OtherContentError, PlaceError, is_url, place_of
from qbench.storage.places import _file_system, _words


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket/nights", "s3://bucket/nights"),
        ("S3://bucket//nights/", "s3://bucket/nights"),
        ("gs://bucket", "gs://bucket"),
        ("file:///srv/nights/", "file:///srv/nights"),
    ],
)
def test_a_url_is_read(text, url):
    assert is_url(text)
    assert str(place_of(text)) == url


def test_all_else_is_a_path(tmp_path):
    assert place_of("reports/history", tmp_path) == tmp_path / "reports/history"
    assert place_of(tmp_path / "x", Path("/elsewhere")) == tmp_path / "x"
    assert not is_url("C:\\nights")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ftp://host/nights", "scheme 'ftp'"),
        ("memory://nights", "scheme 'memory'"),
        ("s3:/bucket/nights", "one slash"),
        ("s3://", "no bucket"),
        ("file://nights", "no absolute path"),
        ("file:///", "no absolute path"),
        ("s3://bucket/../other", "'..'"),
        ("s3://AKIAKEY:SeCrEt@bucket/nights", "a key"),
        ("s3://bucket/nights?X-Amz-Signature=SeCrEt", "a query"),
        ("s3://bucket/nights#SeCrEt", "a query"),
    ],
)
def test_another_url_is_one_sentence_without_a_secret(text, found):
    with pytest.raises(InputError) as caught:
        place_of(text)
    assert found in caught.value.found
    assert "SeCrEt" not in str(caught.value)
    assert "AKIAKEY" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "package"), [("s3", "s3fs"), ("gs", "gcsfs"), ("file", "fsspec")]
)
def test_a_missing_package_names_the_extra(monkeypatch, scheme, package):
    _file_system.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    fsspec_registry = pytest.importorskip("fsspec.registry")
    monkeypatch.delitem(fsspec_registry._registry, scheme, raising=False)
    folder = ObjectFolder(scheme, "bucket")
    for ask in (folder.require_client, folder.listing, lambda: folder.read("a")):
        with pytest.raises(UnavailableError) as caught:
            ask()
        assert package in caught.value.found
        assert "'remote'" in caught.value.remedy
    _file_system.cache_clear()


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("fsspec")
    return place_of(f"file://{tmp_path}/objects")


def test_an_object_is_made_once(folder, tmp_path):
    folder.create("a/x", b"one")
    with pytest.raises(FileExistsError):
        folder.create("a/x", b"two")
    assert folder.read("a/x") == b"one"
    assert folder.keep("a/x", b"one") is False
    with pytest.raises(OtherContentError, match="never written over"):
        folder.keep("a/x", b"two")
    assert folder.read("a/x") == b"one"
    assert (folder.read("none"), folder.has("none"), folder.has("a/x")) == (None, False, True)
    # nothing but the object: no temporary file is left
    assert [path.name for path in (tmp_path / "objects").rglob("*") if path.is_file()] == ["x"]


def test_a_client_is_no_older_than_what_the_environment_says(folder):
    """fsspec returned the first client of the process, also for another address."""
    first = _file_system("file", 0)
    _file_system.cache_clear()
    assert _file_system("file", 0) is not first


KILLED = """
import os, sys
from qbench.storage import place_of
real = os.fsync
os.fsync = lambda handle: os._exit(9)  # written, and not yet under its name
place_of(sys.argv[1]).create("x", b"one")
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files without a name are Linux's")
def test_a_process_that_is_killed_leaves_nothing(folder, tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    assert done.returncode == 9
    assert list((tmp_path / "objects").iterdir()) == []


def test_a_disk_without_unnamed_files_has_whole_objects_too(folder, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    folder.create("x", b"one")
    with pytest.raises(FileExistsError):
        folder.create("x", b"two")
    assert [path.read_bytes() for path in (tmp_path / "objects").iterdir()] == [b"one"]


def test_a_listing_has_another_state_for_another_content(folder, tmp_path):
    folder.create("a.jsonl", b"one")
    folder.create("b.txt", b"one")
    first = folder.listing(".jsonl")
    assert [(name, facts.size) for name, facts in first.items()] == [("a.jsonl", 3)]
    (tmp_path / "objects/a.jsonl").unlink()
    folder.create("c", b"")  # so that the number of the file is not used again
    folder.create("a.jsonl", b"two")
    assert folder.listing(".jsonl") != first


def test_a_store_that_refuses_is_one_sentence(folder, tmp_path):
    (tmp_path / "objects").write_text("a file where the folder should be")
    with pytest.raises(PlaceError) as caught:
        folder.create("x", b"one")
    assert caught.value.__cause__ is None
    assert str(folder) in str(caught.value)


class _ClientError(Exception):
    def __init__(self, code):
        super().__init__(f"({code}) https://bucket/x?X-Amz-Signature=SeCrEt")
        self.response = {"Error": {"Code": code, "Message": "SeCrEt"}}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (_ClientError("ExpiredToken"), "expired credentials (ExpiredToken)"),
        (_ClientError("Odd code SeCrEt"), "an error of the client (_ClientError)"),
        (PermissionError("AKIA SeCrEt"), "no permission (PermissionError)"),
        (RuntimeError("SeCrEt"), "an error of the client (RuntimeError)"),
        (OSError(28, "SeCrEt"), "No space left on device"),
    ],
)
def test_errors_of_a_client_are_words_of_ours(error, words):
    assert _words(error) == words

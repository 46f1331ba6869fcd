"""Entries of a cache behind a URL: made once for all computers, verified after each download."""

import hashlib

import pytest

from qbench.errors import StoreError
from qbench.storage import Cache, PlaceError, place_of

pytest.importorskip("fsspec")


class Computer:
    """A computer with a cache of its own, which shares its entries in the folder ``objects``."""

    def __init__(self, root, name):
        self.cache = Cache(root / name, place_of(f"file://{root}/objects"))
        self.made = 0

    def file(self, content=b"answers"):
        def make(path):
            self.made += 1
            path.write_bytes(content)

        return self.cache.entry("fp32", "key.npz", make).read_bytes()

    def folder(self):
        def make(path):
            self.made += 1
            (path / "inner").mkdir(parents=True)
            (path / "a.json").write_text("a")
            (path / "inner" / "b c.json").write_text("b")

        path = self.cache.entry("profiles", "key", make)
        return {
            str(file.relative_to(path)): file.read_text()
            for file in sorted(path.rglob("*"))
            if file.is_file()
        }


@pytest.fixture
def computers(tmp_path):
    return Computer(tmp_path, "one"), Computer(tmp_path, "two")


def test_an_entry_is_made_once(computers, tmp_path):
    one, two = computers
    assert one.file() == two.file() == b"answers"
    assert one.folder() == two.folder() == {"a.json": "a", "inner/b c.json": "b"}
    assert (one.made, two.made) == (2, 0)
    names = sorted(path.name for path in (tmp_path / "objects" / "objects").iterdir())
    assert names == sorted(hashlib.sha256(one).hexdigest() for one in (b"answers", b"a", b"b"))
    assert two.file() == b"answers"  # from its own folder


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda _: b"",
        lambda content: content + b"\n",
        lambda _: None,
    ],
)
@pytest.mark.parametrize("which", ["objects", "fp32"])
def test_what_is_damaged_is_refused_and_made_here(computers, tmp_path, which, damage):
    one, two = computers
    one.file()
    (path,) = (tmp_path / "objects" / which).iterdir()
    healthy = path.read_bytes()
    content = damage(healthy)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert two.file() == b"answers"
    assert two.made == 1
    notices = two.cache.take_notices()
    is_unknown = which == "fp32" and content is None  # no list: no such entry
    assert len(notices) == (not is_unknown)
    assert all(one.startswith(f"Reading '{which}/") for one in notices)
    # a damaged object stays, and what is removed is stored again
    assert path.read_bytes() == (healthy if content is None else content)


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside", "c:\\outside"])
def test_a_list_cannot_name_files_outside(computers, tmp_path, name):
    one, two = computers
    one.file()
    digest = hashlib.sha256(b"answers").hexdigest()
    line = f"{digest}  {name}\n"
    (path,) = (tmp_path / "objects" / "fp32").iterdir()
    path.write_text(f"{line}{hashlib.sha256(line.encode()).hexdigest()}  /list\n")
    assert two.file() == b"answers"
    assert two.made == 1
    assert not [*tmp_path.rglob("*outside*")]


def test_an_outage_is_said_once_and_entries_are_made_here(computers, monkeypatch, capsys):
    one, _ = computers
    calls = []

    def fail(self, *_):
        calls.append(self)
        raise PlaceError("Reading", found="no answer", expected="one", remedy="Wait.")

    for name in ("read", "create"):
        monkeypatch.setattr(f"qbench.storage.ObjectFolder.{name}", fail)
    assert (one.file(), len(one.folder())) == (b"answers", 2)
    assert len(calls) == 1
    assert len(one.cache.take_notices()) == 1
    assert capsys.readouterr().err.count("no answer") == 1


def test_what_was_made_from_files_of_this_computer_is_not_shared(tmp_path, monkeypatch):
    one = Computer(tmp_path, "one")
    monkeypatch.setattr("qbench.storage.cache._digests", lambda _: {"": "0" * 64})
    monkeypatch.setattr(
        "qbench.storage.cache.files_watched",
        lambda _: __import__("contextlib").nullcontext({"f": ""}),
    )
    one.file()
    assert not [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]


def test_the_variable_may_be_a_url(tmp_path, monkeypatch):
    monkeypatch.setenv("QBENCH_CACHE", f"file://{tmp_path}/objects")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    cache = Cache.default()
    assert (cache.folder, str(cache.shared)) == (
        tmp_path / "home" / "qbench",
        f"file://{tmp_path}/objects",
    )
    assert Cache.at(tmp_path) == Cache(tmp_path)


def test_a_disk_without_room_is_one_sentence(computers, monkeypatch):
    one, two = computers
    one.file()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(StoreError, match="No space left"):
        two.file()

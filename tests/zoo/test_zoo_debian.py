"""Fetching from Debian: without rights, with lists of its own where there are none, and judged
by the files inside.
"""

import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from qbench.errors import InputError, NotFetchedError, UnavailableError
from qbench.storage import Cache
from qbench.subjects import DebianPackage, fetch_package, list_members, open_member

FILES = {
    "usr/share/qbfake/b.bin": b"\x00\x01data",
    "usr/share/qbfake/deep/a.bin": b"more",
    "usr/share/doc/x": b"doc",
}
WANTED = sorted(name for name in FILES if "qbfake" in name)

pytestmark = pytest.mark.skipif(
    shutil.which("dpkg-deb") is None, reason="no dpkg-deb, so no Debian packages"
)


def built(folder: Path, version: str, files: dict[str, bytes], compressor: str = "xz") -> Path:
    tree = folder / f"tree-{version}"
    for name, data in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    (tree / "usr/share/qbfake/link.bin").symlink_to("b.bin")
    (tree / "DEBIAN").mkdir()
    control = (
        f"Package: qbfake\nVersion: {version}\nArchitecture: all\nMaintainer: n <n@n.invalid>\n"
        "Description: x\n"
    )
    (tree / "DEBIAN" / "control").write_text(control)
    path = folder / f"qbfake_{version}_all.deb"
    subprocess.run(
        ["dpkg-deb", f"-Z{compressor}", "-b", tree, path], check=True, capture_output=True
    )
    return path


def listed_digest(files: dict[str, bytes]) -> str:
    """The digest as coreutils make it: sha256sum of sha256sum's output."""
    lines = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in WANTED)
    return hashlib.sha256(lines.encode()).hexdigest()


class FakeApt:
    """An apt-get on the path: writes what it was asked,
    and behaves as the shell lines of a test say.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def behave(self, code: str) -> None:
        script = self.folder / "apt-get"
        script.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/calls\n{code}\n')
        script.chmod(0o755)

    def calls(self) -> list[list[str]]:
        """The words of each call that are neither options nor their values."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [[w for w in line.split() if not w.startswith(("-", "Dir::"))] for line in lines]


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApt:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FakeApt(folder)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def pinned(sha256: str = listed_digest(FILES), version: str = "1.0-1") -> DebianPackage:
    return DebianPackage(
        name="qbfake", version=version, sha256=sha256, size=1000, wanted=("usr/share/qbfake/*",)
    )


def kept(cache: Cache) -> list[str]:
    return sorted(p.name for p in (cache.folder / "packages").glob("*") if p.suffix != ".lock")


def test_the_wanted_files_are_kept_and_read(tmp_path: Path, cache: Cache, apt: FakeApt) -> None:
    package = built(tmp_path, "1.0-1", FILES)
    apt.behave(f"cp {package} .")
    seen: list[int] = []
    fetch_package(pinned(), cache, progress=lambda _, done: seen.append(done))
    fetch_package(pinned(), cache)
    assert apt.calls() == [["download", "qbfake=1.0-1"]]
    assert kept(cache) == [f"{listed_digest(FILES)}.zip"]
    assert list_members(pinned(), cache) == tuple(WANTED)  # no documentation, no link
    assert open_member(pinned(), "usr/share/qbfake/b.bin", cache) == b"\x00\x01data"
    assert seen[-1] == 1000
    assert not list(tmp_path.glob("*.deb.*"))


def test_another_revision_or_compressor_with_the_same_files_will_do(
    tmp_path: Path, cache: Cache, apt: FakeApt
) -> None:
    package = built(
        tmp_path, "1.0-2", {**FILES, "usr/share/doc/x": b"other papers"}, compressor="gzip"
    )
    apt.behave(
        'for last; do true; done\n[ "$last" = update ] && exit 0\n'
        f'[ "$last" = qbfake ] && cp {package} . && exit 0\n'
        'echo "E: Version not found" >&2; exit 100'
    )
    assert open_member(pinned(), "usr/share/qbfake/deep/a.bin", cache) == b"more"
    assert apt.calls() == [
        ["download", "qbfake=1.0-1"],
        ["update"],
        ["download", "qbfake=1.0-1"],
        ["download", "qbfake"],
    ]


def test_lists_of_its_own_are_made_where_the_computer_has_none(
    tmp_path: Path, cache: Cache, apt: FakeApt
) -> None:
    package = built(tmp_path, "1.0-1", FILES)
    apt.behave(
        'case "$*" in *Dir::State::Lists=*update) ;; *Dir::State::Lists=*download*) cp '
        f'{package} . ;; *) echo "E: Unable to locate package qbfake" >&2; exit 100 ;; esac'
    )
    fetch_package(pinned(), cache)
    assert apt.calls() == [["download", "qbfake=1.0-1"], ["update"], ["download", "qbfake=1.0-1"]]
    assert kept(cache) == [
        f"{listed_digest(FILES)}.zip"
    ]  # the lists went with the download's folder


def test_other_files_are_refused_and_nothing_is_kept(
    tmp_path: Path, cache: Cache, apt: FakeApt
) -> None:
    apt.behave(f"cp {built(tmp_path, '1.0-1', {**FILES, 'usr/share/qbfake/b.bin': b'changed'})} .")
    with pytest.raises(UnavailableError) as caught:
        fetch_package(pinned(), cache)
    assert caught.value.expected == listed_digest(FILES)
    assert "index" not in caught.value.remedy  # Debian has none
    assert kept(cache) == []


def test_a_package_without_the_wanted_files_says_so(
    tmp_path: Path, cache: Cache, apt: FakeApt
) -> None:
    apt.behave(
        "cp "
        f"{built(tmp_path, '1.0-1', {'usr/share/doc/x': b'doc', 'usr/share/qbfake/z/.keep': b''})} "
        "."
    )
    package = replace(pinned(), wanted=("usr/share/elsewhere/*",))
    with pytest.raises(UnavailableError, match=r"'qbfake=1\.0-1'") as caught:
        fetch_package(package, cache)
    assert not isinstance(caught.value, NotFetchedError)
    assert caught.value.found == "2 files, none of them wanted"
    assert "usr/share/elsewhere/*" in caught.value.expected
    assert kept(cache) == []


def test_a_damaged_archive_in_the_cache_is_fetched_again(
    tmp_path: Path, cache: Cache, apt: FakeApt
) -> None:
    apt.behave(f"cp {built(tmp_path, '1.0-1', FILES)} .")
    path = fetch_package(pinned(), cache)
    for damage in (b"", path.read_bytes()[:40], path.read_bytes().replace(b"more", b"less")):
        path.write_bytes(damage)
        assert open_member(pinned(), "usr/share/qbfake/deep/a.bin", cache) == b"more"
    assert len(apt.calls()) == 4


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "echo 'W: x' >&2; echo 'E: Unable to locate package qbfake' >&2; exit 100",
            "Unable to locate package qbfake",
        ),
        ("echo 'E: Failed to fetch it  404' >&2; echo 'W: y' >&2; exit 100", "404"),
        ("exit 0", "nothing"),
    ],
)
def test_a_failing_client_is_quoted(cache: Cache, apt: FakeApt, code: str, words: str) -> None:
    apt.behave(code)
    with pytest.raises(UnavailableError) as caught:
        fetch_package(pinned(), cache)
    assert words in caught.value.found
    assert "\n" not in str(caught.value)
    assert kept(cache) == []


def test_a_file_that_is_no_package_is_a_sentence(cache: Cache, apt: FakeApt) -> None:
    apt.behave("echo nonsense > qbfake_1.0-1_all.deb")
    with pytest.raises(
        UnavailableError, match=r"Unpacking the Debian package 'qbfake_1.0-1_all\.deb'"
    ):
        fetch_package(pinned(), cache)
    assert kept(cache) == []


def test_a_computer_without_apt_says_so(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="no apt-get"):
        fetch_package(pinned(), cache)


def test_a_pin_that_pins_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="'qbfake': found 'latest' for a SHA-256"):
        pinned(sha256="latest")
    with pytest.raises(InputError, match="wanted"):
        DebianPackage(name="a", version="1", sha256="0" * 64, size=1, wanted=())

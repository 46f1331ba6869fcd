"""What comes from outside is pinned: known by the digest of what it holds, and got by a package client.

    pin.download(folder, progress)  →  a zip archive, unverified;    pin.digest_of(archive) = pin.sha256  →  kept

Where packages come from is the user's configuration of the clients alone.
"""

import contextlib
import os
import subprocess
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from qbench.errors import InputError, UnavailableError
from qbench.storage import digest_bytes

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

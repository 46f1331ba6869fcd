"""One download by apt-get, which installs nothing and needs no rights, and the files we want out of it.

A Debian package is packed anew for every distribution, with other compressors; its files are what stays. They are
kept as a zip archive, and the pin is the digest of their list, which anybody can make with Debian's own tools:

    sha256 = SHA-256 of the lines "<SHA-256 of a file>  <its path>", sorted by path
           = find usr/share/… -type f | LC_ALL=C sort | xargs sha256sum | sha256sum        (in the unpacked package)

apt-get looks at the lists that the computer has; where it has none, or old ones, it is given lists of its own beside
the download. The version is tried first that the pin names, then whichever there is: the pinned files decide.
"""

import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from qbench.errors import InputError, NotFetchedError, UnavailableError
from qbench.zoo.pinned import Progress, check_digest, digest_of_members, last_error, pack_members, run_client


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

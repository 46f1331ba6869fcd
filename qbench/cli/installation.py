"""What a job of continuous integration installs: the qbench of this computer, written for
another one.

pip keeps where a distribution came from in ``direct_url.json`` (PEP 610). A version of the package
index, an address and a commit of a repository mean the same everywhere. A wheel is copied into the
repository of the user. A folder means nothing elsewhere, unless it is inside that repository, or a
checkout whose commit a remote repository has.
"""

import json
import re
import shlex
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from qbench.errors import InputError
from qbench.host import published_commit

DISTRIBUTION = "pytest-qbench"
WHEELS = "wheels"
"""The folder next to the suites that keeps a copied wheel."""
_VERSION = re.compile(r"(==|>=|~=)?\s*\d[\w.!+]*")
_SECURE_SHELL = re.compile(r"(?P<login>[\w.-]+@[\w.-]+):(?P<path>(?!/).+)")
FORMS = (
    "a version, a wheel, a folder of this repository, or the address of a repository "
    "(git+https://…)"
)


@dataclass(frozen=True, slots=True)
class Package:
    """What ``pip install`` is given in a job, as one word of a shell; ``wheel`` is the file to
    copy into the bench.
    """

    words: str
    wheel: Path | None = None

    @property
    def files(self) -> dict[Path, bytes]:
        """The copied wheel, path below the bench → content; empty for every other form."""
        if self.wheel is None:
            return {}
        return {Path(WHEELS) / self.wheel.name: self.wheel.read_bytes()}


def package_of_this_computer(bench: Path) -> Package | None:
    """The installed qbench as a job can install it; None where only the user knows.

    ``bench`` is the folder that a job checks out and works in.
    """
    try:
        installed = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if not origin:
        return Package(f"{DISTRIBUTION}=={installed.version}")
    address = str(origin["url"])
    if "vcs_info" in origin:
        version_control = origin["vcs_info"]
        return Package(
            shlex.quote(
                f"{version_control['vcs']}+{_without_login(address)}@{version_control['commit_id']}"
            )
        )
    if not address.startswith("file:"):
        return Package(shlex.quote(_without_login(address)))
    return _of_path(Path(unquote(urlsplit(address).path)), bench)


def package_of_text(text: str, bench: Path, doing: str) -> Package:
    """``text`` of the user (``--package``) as a job can install it.

    Raises:
        InputError: ``text`` is none of the forms, or a path that a job does not have.
    """
    if _VERSION.fullmatch(text.strip()):
        operator = "" if text.strip()[0] in "=>~" else "=="
        return Package(shlex.quote(f"{DISTRIBUTION}{operator}{text.strip()}"))
    if re.match(rf"{DISTRIBUTION}\b(?!/)", text):
        return Package(shlex.quote(text))
    if "://" in text:
        return Package(shlex.quote(_installable(text)))
    path = Path(text).expanduser()
    if not path.exists():
        raise InputError(
            doing,
            found=f"--package '{text}'",
            expected=FORMS,
            remedy="Correct it; a path must exist.",
        )
    package = _of_path(path.resolve(), bench)
    if package is None:
        raise InputError(
            doing,
            found=(
                f"the folder '{text}' outside of '{bench.resolve()}', and no published commit in it"
            ),
            expected=FORMS,
            remedy=(
                "Push its commit, copy it into this repository, or build a wheel: pip wheel "
                "--no-deps FOLDER."
            ),
        )
    return package


def _of_path(path: Path, bench: Path) -> Package | None:
    """A wheel, an archive or a folder on this computer; None where a job cannot have it."""
    if path.is_relative_to(bench.resolve()):
        return Package(shlex.quote(f"./{path.relative_to(bench.resolve()).as_posix()}"))
    if path.is_file():
        return Package(shlex.quote(f"./{WHEELS}/{path.name}"), path)
    published = published_commit(path)
    if published is None:
        return None
    part = f"#subdirectory={quote(published.folder)}" if published.folder else ""
    return Package(shlex.quote(f"git+{_as_url(published.address)}@{published.sha}{part}"))


def _as_url(remote: str) -> str:
    """``git@host:owner/name``, as git writes it, as a URL, which pip wants."""
    short = _SECURE_SHELL.fullmatch(remote)
    if short:
        return f"ssh://{short['login']}/{short['path']}"
    return _without_login(remote)


def _without_login(address: str) -> str:
    """``address`` without a user's name and token, which must not enter a file that is
    committed.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https"):
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _installable(address: str) -> str:
    """``address`` as pip takes it: a repository by its version control, a file as it is."""
    scheme, _, rest = address.partition("://")
    is_file = urlsplit(address).path.endswith((".whl", ".zip", ".tar.gz"))
    if scheme in ("http", "https", "ssh") and not is_file:
        return f"git+{scheme}://{rest}"
    return address

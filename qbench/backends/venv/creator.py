"""Virtual environments with given packages, kept in the cache."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qbench.errors import InputError, NotFetchedError, UnavailableError
from qbench.storage import Cache, digest_plain

_KIND = "pythons"
_RECIPE = 1
"""Part of the key: another way of making environments makes others."""
_OLD_NUMPY = "numpy<2"
_ARCHIVES = (".zip", ".whl", ".tar", ".tgz", ".tbz", ".txz", ".tlz", ".gz", ".bz2", ".xz", ".lz", ".lzma")
_CHECK = "import importlib.util as u; u.find_spec('onnxruntime') and __import__('onnxruntime')"
_PIP = ("--no-input", "--disable-pip-version-check", "--quiet", "--no-color", "--progress-bar=off")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentMaker:
    """Makes environments of the Python ``base``, of this process if nothing is said, and keeps them in ``cache``."""

    cache: Cache = field(default_factory=Cache.default)
    base: Path = field(default_factory=lambda: Path(sys.executable))

    def make(self, requirements: Sequence[str]) -> Path:
        """The Python of an environment with ``requirements``, such as ``onnxruntime==1.17.3``; made if there is none.

        Raises:
            NotFetchedError: pip cannot get one of them for this Python; its last error is quoted.
            UnavailableError: onnxruntime is among them and cannot be imported, nor with an older numpy.
            InputError: ``base`` is not a Python, or a requirement is more than a name with versions.
            StoreError: the cache cannot be written.
        """
        asked = tuple(plain_requirement(one, "Making an environment") for one in requirements)
        key = digest_plain([_RECIPE, str(self.base), _version(self.base), sorted(asked)])[:32]
        program = self.cache.folder / _KIND / key / "bin" / "python"
        if program.exists():
            return program
        with self.cache.alone(_KIND, key):  # two workers make an environment once
            if not program.exists():
                shutil.rmtree(program.parent.parent, ignore_errors=True)  # its base Python is gone: a link to nothing
                self.cache.entry(_KIND, key, lambda folder: self._install(folder, asked), sealed=False)
        return program

    def _install(self, folder: Path, requirements: tuple[str, ...]) -> None:
        doing = f"Making an environment with {', '.join(requirements)}"
        # Without a pip of its own: ours installs into it, and it is 20 MB smaller.
        made = _run(str(self.base), "-I", "-m", "venv", "--without-pip", str(folder))
        if made.returncode:
            raise UnavailableError(
                doing,
                found=f"that '{self.base}' makes none: {_last(made)}",
                expected="a Python with its module venv",
                remedy="Install it (Debian and Ubuntu: python3-venv), or name another Python.",
            )
        python = folder / "bin" / "python"
        _fetch(doing, python, requirements)
        if not (broken := _broken(python)):
            return
        _fetch(doing, python, (*requirements, _OLD_NUMPY))
        if _broken(python):
            raise UnavailableError(
                doing,
                found=f"an onnxruntime that cannot be imported ({broken})",
                expected="one that goes with the numpy beside it",
                remedy="Pin what it needs as a further requirement.",
            )


def plain_requirement(text: str, doing: str) -> str:
    """``text``, a name with versions, as pip is to get it: it cannot be an option, an address or a file.

    Raises:
        InputError: it is anything else; ``doing`` says where.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(text)
    except InvalidRequirement:
        found = None
    # pip takes a text that ends like an archive for a file of the working folder, whatever comes before the end
    if found is None or found.url or found.marker or str(found).lower().endswith(_ARCHIVES):
        raise InputError(
            doing,
            found=f"the requirement '{text}'",
            expected="the name of a package and its versions: no option, address, path, archive or condition",
            remedy="Write it as 'onnxruntime==1.17.3'.",
        )
    return str(found)


def _fetch(doing: str, python: Path, requirements: Sequence[str]) -> None:
    done = _run(
        *(sys.executable, "-P", "-m", "pip", "--python", str(python), "install"),
        *(*_PIP, "--no-compile", "--prefer-binary", "--", *requirements),
    )
    if done.returncode:
        raise NotFetchedError(
            doing,
            found=f"pip said “{_last(done)}”",
            expected=f"packages for Python {_version(python)} on this machine",
            remedy="Check the versions, the network and pip's configuration, then run the same command again.",
        )


def _broken(python: Path) -> str:
    """Why onnxruntime cannot be imported there; empty where it can, or is not installed."""
    done = _run(str(python), "-I", "-c", _CHECK)
    return _last(done) if done.returncode else ""


def _version(python: Path) -> str:
    done = _run(str(python), "-I", "-c", "import platform; print(platform.python_version())")
    if done.returncode:
        raise InputError(
            f"Asking the Python '{python}' for its version",
            found=_last(done),
            expected="a Python",
            remedy="Check the path.",
        )
    return done.stdout.strip()


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise InputError(
            f"Running '{command[0]}'",
            found=error.strerror or str(error),
            expected="the program of a Python",
            remedy="Check the path.",
        ) from error


def _last(done: "subprocess.CompletedProcess[str]") -> str:
    """The last line with an error of what was printed, or the last line."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [f"nothing, and ended with {done.returncode}"])[-1].removeprefix("ERROR:").strip()[:300]

"""Virtual environments with given packages, in the cache."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qbench.errors import InputError, NotFetchedError, UnavailableError
from qbench.storage import Cache, digest_plain

_KIND = "pythons"
_RECIPE = 2
"""The version of the way in which environments are created; part of the cache key."""
_OLD_NUMPY = "numpy<2"
_ARCHIVES = (
    ".zip",
    ".whl",
    ".tar",
    ".tgz",
    ".tbz",
    ".txz",
    ".tlz",
    ".gz",
    ".bz2",
    ".xz",
    ".lz",
    ".lzma",
)
_CHECK = "import importlib.util as u; u.find_spec('onnxruntime') and __import__('onnxruntime')"
_HASH = re.compile(r"hash=sha256:[0-9a-f]{64}")
_PIP = ("--no-input", "--disable-pip-version-check", "--quiet", "--no-color", "--progress-bar=off")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentMaker:
    """Creates environments of the Python ``base``, by default that of this process, in
    ``cache``.
    """

    cache: Cache = field(default_factory=Cache.default)
    base: Path = field(default_factory=lambda: Path(sys.executable))

    def make(self, requirements: Sequence[str]) -> Path:
        """The Python of an environment with ``requirements``, such as ``onnxruntime==1.17.3``;
        created if needed.

        Raises:
            NotFetchedError: pip cannot install one of them for this Python; its last error is
                quoted.
            UnavailableError: onnxruntime is among them and cannot be imported, not even with an
                older numpy.
            InputError: ``base`` is not a Python, or a requirement is more than a name with
                versions.
            StoreError: the cache cannot be written.
        """
        packages = tuple(plain_requirement(one, "Making an environment") for one in requirements)
        key = digest_plain([_RECIPE, str(self.base), _version(self.base), sorted(packages)])[:32]
        return self._made(key, lambda folder: self._install(folder, packages))

    def make_locked(self, lines: Sequence[str], doing: str) -> Path:
        """The Python of an environment with exactly the requirements ``lines`` of a lock; created
        if needed.

        Where one of them has a hash all must have, and nothing else is installed: such a lock is
        complete. Without hashes pip adds what they need.

        Args:
            lines: names with versions, and ``--hash=sha256:…`` behind them.
            doing: for errors.

        Raises:
            NotFetchedError: pip cannot install them for this Python; its last error is quoted.
            InputError, StoreError, UnavailableError: as ``make``.
        """
        for line in lines:
            requirement, *options = line.split(" --")
            plain_requirement(requirement.partition(";")[0].strip(), doing)
            if any(not _HASH.fullmatch(one.strip()) for one in options):
                raise InputError(
                    doing,
                    found=f"the line '{line[:80]}' in its lock",
                    expected="a name with a version, and --hash=sha256:… behind it",
                    remedy="Remove other options from the lock.",
                )
        key = digest_plain([_RECIPE, "lock", str(self.base), _version(self.base), sorted(lines)])
        return self._made(key[:32], lambda folder: self._install_lock(folder, lines, doing))

    def _made(self, key: str, make: Callable[[Path], None]) -> Path:
        program = self.cache.folder / _KIND / key / "bin" / "python"
        if program.exists():
            return program
        with self.cache.alone(_KIND, key):  # two workers create an environment once
            if not program.exists():
                # a link to a base Python that was removed
                shutil.rmtree(program.parent.parent, ignore_errors=True)

                def make_settled(folder: Path) -> None:
                    make(folder)
                    _settle(folder, program.parent.parent)

                self.cache.entry(_KIND, key, make_settled, sealed=False)
        return program

    def _install_lock(self, folder: Path, lines: Sequence[str], doing: str) -> None:
        python = self._new(folder, doing)
        lock = folder / "lock.txt"
        lock.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        is_complete = any("--hash=" in line for line in lines)
        whole = ("--require-hashes", "--no-deps") if is_complete else ()
        _fetch(doing, python, (*whole, "-r", str(lock)), compiles=True)

    def _new(self, folder: Path, doing: str) -> Path:
        """The Python of a new environment in ``folder``, which has no packages."""
        # Without its own pip, which takes 20 MB: the pip of this process installs into it.
        made = _run(str(self.base), "-I", "-m", "venv", "--without-pip", str(folder))
        if made.returncode:
            raise UnavailableError(
                doing,
                found=f"that '{self.base}' cannot create one: {_last(made)}",
                expected="a Python with its module venv",
                remedy="Install it (Debian and Ubuntu: python3-venv), or name another Python.",
            )
        return folder / "bin" / "python"

    def _install(self, folder: Path, requirements: tuple[str, ...]) -> None:
        doing = f"Making an environment with {', '.join(requirements)}"
        python = self._new(folder, doing)
        _fetch(doing, python, ("--", *requirements))
        if not (broken := _broken(python)):
            return
        _fetch(doing, python, ("--", *requirements, _OLD_NUMPY))
        if _broken(python):
            raise UnavailableError(
                doing,
                found=f"an onnxruntime that cannot be imported ({broken})",
                expected="an onnxruntime that works with the installed numpy",
                remedy="Pin a compatible numpy as a further requirement.",
            )


def _settle(folder: Path, final: Path) -> None:
    """Let the scripts of the environment in ``folder`` name ``final``, where it is moved to: they
    begin with the path of their Python.
    """
    made_in, moved_to = (os.fsencode(path) for path in (folder, final))
    for script in (folder / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        text = script.read_bytes()
        if made_in in text:
            script.write_bytes(text.replace(made_in, moved_to))


def plain_requirement(text: str, doing: str) -> str:
    """``text``, a name with versions, as an argument for pip: not an option, an address or a file.

    Raises:
        InputError: it is anything else; ``doing`` says where.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(text)
    except InvalidRequirement:
        found = None
    # pip treats every text that ends like an archive as a file in the working folder
    if found is None or found.url or found.marker or str(found).lower().endswith(_ARCHIVES):
        raise InputError(
            doing,
            found=f"the requirement '{text}'",
            expected="the name of a package and its versions: no option, "
            "address, path, archive or condition",
            remedy="Write it as 'onnxruntime==1.17.3'.",
        )
    return str(found)


def _fetch(doing: str, python: Path, words: Sequence[str], *, compiles: bool = False) -> None:
    """Install what ``words`` say into the environment of ``python``; ``compiles`` what is
    imported often, in processes that may write nothing there.
    """
    done = _run(
        *(sys.executable, "-P", "-m", "pip", "--python", str(python), "install"),
        *(*_PIP, "--compile" if compiles else "--no-compile", "--prefer-binary", *words),
    )
    if done.returncode:
        raise NotFetchedError(
            doing,
            found=f"pip said “{_last(done)}”",
            expected=f"packages for Python {_version(python)} on this computer",
            remedy="Check the versions, the network and pip's configuration, then run "
            "the same command again.",
        )


def _broken(python: Path) -> str:
    """Why onnxruntime cannot be imported there; empty where it can, or is not installed."""
    done = _run(str(python), "-I", "-c", _CHECK)
    return _last(done) if done.returncode else ""


def _version(python: Path) -> str:
    done = _run(str(python), "-I", "-c", "import platform; print(platform.python_version())")
    if done.returncode:
        raise InputError(
            f"Reading the version of the Python '{python}'",
            found=_last(done),
            expected="a Python",
            remedy="Check the path.",
        )
    return done.stdout.strip()


def _run(*command: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise InputError(
            f"Running '{command[0]}'",
            found=error.strerror or str(error),
            expected="the program of a Python",
            remedy="Check the path.",
        ) from error


def _last(done: "subprocess.CompletedProcess[str]") -> str:
    """The last line of the output that is an error, or the last line."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (
        (errors or lines or [f"nothing, and ended with {done.returncode}"])[-1]
        .removeprefix("ERROR:")
        .strip()[:300]
    )

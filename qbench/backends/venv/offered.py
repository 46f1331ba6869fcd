"""Which versions of a package there are for a Python: what ``pip index versions`` lists, and the one that is installed."""

import re
import subprocess
import sys
from pathlib import Path

from qbench.backends.venv.another_python import program_in
from qbench.errors import InputError, NotFetchedError

_LISTED = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


def offered_versions(package: str, base: Path | None = None) -> tuple[str, ...]:
    """The releases of ``package`` that can be installed for the Python ``base``; None: for this one.

    Pre-releases are not among them.

    Raises:
        NotFetchedError: pip knows none, or cannot be asked.
    """
    command = [sys.executable, "-P", "-m", "pip", "--python", str(base or sys.executable)]
    command += ["index", "versions", "--disable-pip-version-check", "--no-input", "--no-color", "--", package]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    listed = _LISTED.search(done.stdout)
    if done.returncode or listed is None:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or ["ERROR: no list"]
        raise NotFetchedError(
            f"Asking pip for the versions of '{package}'",
            found=lines[-1].removeprefix("ERROR:").strip(),
            expected="a list",
            remedy="Check the name, the network and pip's configuration, or give the versions with --versions.",
        )
    return tuple(one.strip() for one in listed[1].split(",") if one.strip())


def installed_version(path: Path, package: str) -> str:
    """The version of ``package`` under the Python, or in the environment, at ``path``.

    Raises:
        InputError: there is no Python, or no such package.
    """
    program = program_in(path)
    told = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    try:
        done = subprocess.run(
            [str(program), "-I", "-c", told, package],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        problem = (done.stderr.strip().splitlines() or ["nothing"])[-1] if done.returncode else ""
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise InputError(
            f"Looking for '{package}' in '{path}'", found=problem, expected="it installed there", remedy="Install it."
        )
    return done.stdout.strip()

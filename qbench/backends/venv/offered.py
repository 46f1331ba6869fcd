"""Which versions of a package pip offers for a Python: what ``pip index versions`` prints, as a list."""

import re
import subprocess
import sys
from pathlib import Path

from qbench.errors import NotFetchedError

_LISTED = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


def offered_versions(package: str, base: Path | None = None) -> tuple[str, ...]:
    """The releases of ``package`` that can be installed for the Python ``base``; None: for this one.

    Pre-releases are not among them.

    Raises:
        NotFetchedError: pip knows none, or cannot be asked.
    """
    command = [sys.executable, "-P", "-m", "pip", "--python", str(base or sys.executable)]
    command += ["index", "versions", "--disable-pip-version-check", "--no-input", "--no-color", package]
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

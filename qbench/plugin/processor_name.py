"""The class of processor of this computer, as sessions of pytest here name it.

A plugin or a conftest may name it instead of the probe (``pytest_qbench_processor``), and the jobs
of a plan compare with that name. A child process asks, so that no conftest is loaded here.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from qbench.errors import InputError

_PROGRAM = "import sys; from qbench.plugin.processor_name import tell; sys.exit(tell(sys.argv[1:]))"
_LONGEST_S = 300
"""Seconds that loading the plugins and conftest files may take."""


def session_processor(suites: Sequence[Path]) -> str:
    """The class of this computer in a session of pytest on ``suites``.

    Raises:
        InputError: pytest does not start with these suites.
    """
    with tempfile.TemporaryDirectory() as folder:
        # a file: plugins and conftest files may print, and leave a line open
        answer = Path(folder, "class")
        command = [sys.executable, "-c", _PROGRAM, str(answer), *map(str, suites)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _refusal(f"nothing from pytest after {_LONGEST_S} s") from None
        if answer.exists():
            return answer.read_text(encoding="utf-8")
    # the code says nothing: a session that is ended here was interrupted
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    raise _refusal(f"pytest ended with {done.returncode} ({''.join(lines[-1:]).strip():.200})")


def _refusal(found: str) -> InputError:
    return InputError(
        "Asking pytest for the class of this computer",
        found=found,
        expected="a session that starts, with the plugins and conftest files of the suites",
        remedy="Correct them, or name the class instead of 'here'.",
    )


def tell(arguments: Sequence[str]) -> int:
    """Write the class, as the child, to the file that ``arguments`` (file, suites) name; the exit
    code.
    """
    answer, *suites = arguments
    return int(pytest.main(suites, plugins=[_Asker(Path(answer))]))


class _Asker:
    """Ends pytest when its plugins and conftest files are loaded."""

    def __init__(self, answer: Path) -> None:
        self._answer = answer

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> pytest.ExitCode:
        """Write what they name, or the probe."""
        from qbench.host import processor_class

        # where the user's pytest loads no plugin, no hook can name it
        ask = getattr(config.hook, "pytest_qbench_processor", None)
        named = None if ask is None else ask(config=config)
        self._answer.write_text(named or processor_class(), encoding="utf-8")
        return pytest.ExitCode.OK

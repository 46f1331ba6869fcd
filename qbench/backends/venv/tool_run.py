"""One run of a tool of other people, contained: how it is started, and how it ended."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.backends.venv.client import Child, ChildError, EngineError, own_environment, own_python
from qbench.errors import UnavailableError
from qbench.storage import without_secrets

# What is contained: the time, the memory and the files below its folder; all processes that it
# starts; the network, where the kernel lets a process leave it; the variables of its environment.
# What is not: it runs as the user who runs qbench, and can read and write what that user can.

_GUARD = "qbench.backends.venv.tool_guard"
_PASSED = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
)
"""The variables that a tool receives from those of this process; no other one, as it may be a
secret.
"""
_SET = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "OLIVE_DISABLE_TELEMETRY": "1",
    "NNCF_CI": "1",
    "PIP_NO_INDEX": "1",
}
"""No telemetry, and no download by the usual libraries where the network stays open."""
_LAST_WORDS_S = 60.0
"""Seconds that killing everything may take after the limit."""
_LONGEST = 300
"""Characters of a line that are quoted."""

LIMITS = {
    "time": "no end after {timeout_s:g} s",
    "memory": "more than {memory_mb:g} MB of memory in use",
    "disk": "more than {disk_mb:g} MB of files in its folder",
}
"""What ended a tool → in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """Seconds, and megabytes of memory and of files, beyond which a tool is killed."""

    timeout_s: float
    memory_mb: float
    disk_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd:
    """How a tool ended.

    Args:
        code: its exit code; None: it was killed.
        stopped: the limit that ended it, a key of ``LIMITS``; empty: it ended by itself.
        seconds: wall clock.
        peak_mb: the most memory of it and the processes that it started, megabytes.
        left: how many processes it left behind, which were killed.
        offline: whether it ran without a network.
        watched: whether its processes were watched: this system lists them.
        said: the last lines that it printed, without secrets.
    """

    code: int | None
    stopped: str
    seconds: float
    peak_mb: float
    left: int
    offline: bool
    watched: bool
    said: tuple[str, ...]

    @property
    def last_words(self) -> str:
        """Its last lines in one: ``…; its last words: ValueError: no Conv``."""
        lines = [line for line in self.said if line.strip()]
        return f"; its last words: {' / '.join(lines[-3:])}" if lines else ""


def run_tool(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], limits: ToolLimits
) -> ToolEnd:
    """Run ``command`` in ``folder`` until it ends, or a limit is reached; then no process of it
    is left.

    Args:
        folder: its working folder, its home and the place of its temporary files.
        environment: variables beyond those that every tool has.

    Raises:
        UnavailableError: it does not start, or what guards it was killed.
    """
    doing = f"Running '{Path(command[0]).name}' for a quantizer"
    question = {
        "command": list(command),
        "folder": os.fspath(folder),
        "environment": tool_environment(folder, environment),
        "timeout_s": limits.timeout_s,
        "memory_mb": limits.memory_mb,
        "disk_mb": limits.disk_mb,
    }
    try:
        with Child(own_python(_GUARD), _guard_environment()) as guard:
            answer, _ = guard.ask(question, {}, seconds=limits.timeout_s + _LAST_WORDS_S)
    except (OSError, EngineError, ChildError) as error:
        raise UnavailableError(
            doing,
            found=f"that it does not start or cannot be watched ({error})",
            expected="a program that runs",
            remedy="Check the command of the quantizer's TOML file.",
        ) from error
    said = tuple(_shown(line) for line in answer.pop("said"))
    return ToolEnd(said=said, **answer)


def tool_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a tool that runs in ``folder``: a list of allowed ones, and those of
    ``environment``.
    """
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    own = {"HOME": os.fspath(folder), "TMPDIR": os.fspath(folder)}
    return {"LANG": "C.UTF-8", **passed, **_SET, **own, **environment}


def _guard_environment() -> dict[str, str]:
    """Only what the guard needs: its variables can be read by the tool."""
    known = own_environment()
    return {name: known[name] for name in (*_PASSED, "PYTHONPATH") if name in known}


def _shown(line: str) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in line)
    return without_secrets(text)[:_LONGEST]

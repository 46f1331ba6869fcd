"""One job of a plan on a worker: the function that an executor calls, and the process that it
waits for.

    order   a table of plain values: the plan, the number of the job, the command, and what the
            worker must have
    result  a table of plain values: how the process ended, and which run files it left

The numbers are in the store. A result only says where to look, so that one that is lost, comes
twice or is another job's costs nothing.
"""

import contextlib
import functools
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qbench.extension import ENTRY_POINT_GROUP
from qbench.storage import neutral_line, without_secrets

MEASURED, REFUSED, DIED = "measured", "refused", "died"
"""How a process ended: with all of its cells judged, red ones too; without measuring, for a reason
that it names; or before its work did.
"""
LAST_OUTPUT = "QBENCH_LAST_OUTPUT"
"""The variable with the last lines of the process that tried the same job before and died."""
_LINES = 12
_CHARACTERS = 2000
"""Of the last output of a process that died, at most."""
_TAIL = 64 * 1024
PLAN_FILE = "qbench-plan-{short}.json"
_LAUNCH = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Lets Linux send SIGTERM to the process when the thread that started it ends (PR_SET_PDEATHSIG,
prctl(2)), as with a worker that is killed, then becomes the command.
"""


def run_job(order: Mapping[str, Any]) -> dict[str, Any]:
    """Run the job that ``order`` describes; plain values about it, of some kilobytes at most.

    Args:
        order: ``plan`` (the text of its file), ``short`` (of its digest), ``of`` (what it is a job
            of, in words), ``job``, ``token`` (of this order alone), ``folder`` (working folder),
            ``words`` (of the command, after ``python``), ``options`` (the last words, in which
            ``{plan}`` and ``{job}`` stand for the file and the number), ``codes`` (exit code of the
            command → how it ended), ``version`` and ``source`` (of qbench).
    """
    facts = {"short": order["short"], "job": order["job"], "token": order["token"]}
    facts["worker"] = _worker_name()
    if reason := _other_code(order) or _no_folder(order):
        return {**facts, "state": REFUSED, "code": None, "output": [], "reason": reason}
    with tempfile.TemporaryDirectory(prefix="qbench-job-") as scratch:
        code, output = _ended_process(order, Path(scratch))
    state = order["codes"].get(str(code), DIED)
    reason = output[-1] if state == REFUSED and output else ""
    return {
        **facts,
        "state": state,
        "code": code,
        "output": [] if state == MEASURED else output,
        "reason": reason,
    }


def how_ended(code: int | None) -> str:
    """``with code 3`` or ``by signal SIGKILL``."""
    if code is None:
        return "without a process"
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def own_version() -> str:
    """The version of qbench here; empty where it is not installed as a distribution."""
    try:
        return version("pytest-qbench")
    except PackageNotFoundError:
        return ""


@functools.cache
def own_source() -> str:
    """The digest of all code of qbench and of the installed extensions here, by file.

    A version alone would not do: an editable installation keeps its version while its files change.
    """
    state = hashlib.sha256()
    modules = {"qbench", *(one.module for one in entry_points(group=ENTRY_POINT_GROUP))}
    for name in sorted({module.partition(".")[0] for module in modules}):
        for path, shown in _code_files(name):
            state.update(f"{shown}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return state.hexdigest()


def _code_files(name: str) -> Iterator[tuple[Path, str]]:
    """The files of code and tables of the top-level module ``name``, and what they are called
    there.
    """
    spec = find_spec(name)
    if spec is None:
        return
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if not folders and spec.origin:
        yield Path(spec.origin), name
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".toml"):
                yield path, f"{name}/{path.relative_to(folder).as_posix()}"


def _other_code(order: Mapping[str, Any]) -> str:
    """A sentence where the code of this worker is not that of the order; else empty."""
    doing = f"Running job {order['job']} of {order['of']} on {_worker_name()}"
    if own_version() != order["version"]:
        return (
            f"{doing}: found qbench {own_version() or 'of no version'}; expected "
            f"{order['version'] or 'none'}, as where the run was started. Install the same version "
            "on every worker."
        )
    if own_source() != order["source"]:
        return (
            f"{doing}: found other source code of qbench or of an installed extension under the "
            "same version; expected that of where the run was started. Install the same commit on "
            "every worker."
        )
    return ""


def _no_folder(order: Mapping[str, Any]) -> str:
    if Path(order["folder"]).is_dir():
        return ""
    return (
        f"Running job {order['job']} of {order['of']} on {_worker_name()}: found no "
        f"folder '{order['folder']}'; expected the checkout with the suite there. Mount it at the "
        "same path on every worker, or name the path there with --worker-folder."
    )


def _worker_name() -> str:
    """This computer and process; of a worker of Dask its address, by which it can be avoided."""
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        with contextlib.suppress(Exception):  # not in a task of Dask: whatever it raises says so
            return str(distributed.get_worker().address)
    return f"{os.uname().nodename}/{os.getpid()}"


def _ended_process(order: Mapping[str, Any], scratch: Path) -> tuple[int, list[str]]:
    """The exit code of the command of ``order``, and its last lines."""
    plan = scratch / PLAN_FILE.format(short=order["short"])
    plan.write_text(order["plan"], encoding="utf-8")
    last = (one.replace("{plan}", str(plan)) for one in order["options"])
    words = [*order["words"], *(one.replace("{job}", str(order["job"])) for one in last)]
    log = scratch / "output"
    with log.open("wb") as target:
        child = subprocess.Popen(
            # a group of its own: Ctrl-C of a terminal reaches the process that started the run,
            # which ends this one by one signal
            [sys.executable, "-c", _LAUNCH, str(os.getpid()), *words],
            cwd=order["folder"],
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            env={**os.environ, **order["variables"]},
            process_group=0,
        )
        try:
            code = child.wait()
        except BaseException:
            child.terminate()
            raise
    return code, last_lines(log)


def last_lines(log: Path) -> list[str]:
    """The last lines of the file at ``log`` that say something, without secrets."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _TAIL, 0))
        text = file.read().decode(errors="replace")
    lines = [without_secrets(line.rstrip()) for line in text.splitlines() if line.strip()]
    kept: list[str] = []
    for line in reversed(lines[-_LINES:]):
        if sum(map(len, kept)) + len(line) > _CHARACTERS:
            break
        kept.insert(0, neutral_line(line))
    return kept or [neutral_line(line)[-_CHARACTERS:] for line in lines[-1:]]


# After Ctrl-C: the processes of a night that descend from this one.


def end_jobs(mark: str) -> int:
    """Send SIGTERM to every process with ``mark`` in its command line that was started below this
    process on this computer; how many there were. Where the system has no ``/proc``: none.

    They keep what they have measured.
    """
    children = _children()
    waiting, ended = [os.getpid()], 0
    while waiting:
        for process in children.get(waiting.pop(), []):
            if mark not in _command_line(process):
                waiting.append(process)
                continue
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGTERM)  # which passes it on to its own children
                ended += 1
    return ended


def _children() -> dict[int, list[int]]:
    """Process → those that it started, from ``/proc/*/stat`` (proc(5): the fourth field)."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            # the name of the program may hold blanks and brackets
            after_name = (folder / "stat").read_text(errors="replace").rpartition(")")[2]
            children.setdefault(int(after_name.split()[1]), []).append(int(folder.name))
    return children


def _command_line(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:
        return ""

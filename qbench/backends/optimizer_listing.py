"""The optimizers that ONNX Runtime really has, and which of them found something to rewrite in a model."""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from qbench.backends.ort import OrtBackend
from qbench.errors import InputError, QbenchError
from qbench.graph import save_model
from qbench.storage import current_factor

_LEVEL = re.compile(r"Applying \d+ graph transformer\(s\) for level (\d+)")
_LEVEL_ENDS = re.compile(r"Stopping graph transformer iteration")
_APPLIED = re.compile(r"GraphTransformer (\S+) modified: ([01]) with status")
_LONGEST = 600
"""Seconds; a session that takes longer to make is stuck."""


@dataclass(frozen=True, slots=True)
class SessionOptimizer:
    """One optimizer of a session: its name, the level (1, 2, …) at which it ran, whether it ``modified`` the graph."""

    name: str
    level: int
    modified: bool


def session_optimizers(model: ir.Model, backend: OrtBackend) -> tuple[SessionOptimizer, ...]:
    """Every optimizer that a session of ``backend`` over ``model`` asks, in order, once a level.

    Rewrites that run at every level and cannot be left out (casts, copies between devices) are not among them. The
    rules inside ``Level1_RuleBasedTransformer`` and ``Level2_RuleBasedTransformer`` have no line of their own.

    Raises:
        InputError: no session can be made of it.
    """
    with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
        path = Path(folder) / "model.onnx"
        save_model(model, path)
        optimization = backend.optimization
        command = [sys.executable, "-m", "qbench.backends.session_log", str(path), optimization.level.value]
        command += [str(backend.precise), str(current_factor()), *sorted(optimization.without)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_LONGEST, check=False)
    if done.returncode:
        raise _failed(model, done.stderr)
    return _read(done.stderr)


def _read(log: str) -> tuple[SessionOptimizer, ...]:
    found: dict[tuple[str, int], bool] = {}
    level = None
    for line in log.splitlines():
        if begun := _LEVEL.search(line):
            level = int(begun[1])
        elif _LEVEL_ENDS.search(line):
            level = None
        elif (applied := _APPLIED.search(line)) and level is not None:
            key = applied[1], level
            found[key] = found.get(key, False) or applied[2] == "1"
    return tuple(SessionOptimizer(name, level, modified) for (name, level), modified in found.items())


def _failed(model: ir.Model, log: str) -> QbenchError:
    lines = log.strip().splitlines() or ["nothing"]
    return InputError(
        f"Asking ONNX Runtime what it rewrites of '{model.graph.name}'",
        found=lines[-1][:300],
        expected="a session",
        remedy="Run it on the backend ort-cpu first.",
    )

"""ONNX Runtime of another Python: a backend like one of ours, whose sessions live in a process of that installation.

Graphs are prepared here, as for our own engine, and run there. An engine that is older than the graph's opset or IR
version gets a copy that is stamped older, where that loses nothing.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from qbench.backends.closing import Closing
from qbench.backends.feeds import FeedCheck
from qbench.backends.lowered import LoweredOrtBackend
from qbench.backends.ort import OrtBackend
from qbench.backends.protocol import Array, Executor, Feeds
from qbench.backends.refusal import batch_refusal, refusal
from qbench.backends.tapping import loaded
from qbench.backends.venv.client import EngineError, Worker
from qbench.backends.venv.older_engine import Limits, stamped_older
from qbench.errors import InputError, UnavailableError
from qbench.graph import MESSAGE_LIMIT, Capabilities, constant_bytes, model_bytes, save_model


@dataclass(frozen=True, slots=True, kw_only=True)
class AnotherPython:
    """``like``, run by the onnxruntime of ``python``.

    Args:
        name: how results call it.
        python: the program.
        like: which of our backends it mirrors, with all options of a session.
        versions: (package, version) of what counts over there: numpy, onnxruntime, python.
    """

    name: str
    python: Path
    like: OrtBackend | LoweredOrtBackend
    versions: tuple[tuple[str, str], ...]

    @property
    def capabilities(self) -> Capabilities:
        """Those of the backend it mirrors: so both get the same quantized model."""
        return self.like.capabilities

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of the backend it mirrors."""
        return self.like.packages

    @property
    def has_started(self) -> bool:
        """True: its versions were asked for before it was made."""
        return True

    def package_versions(self) -> Mapping[str, str]:
        """Package → its version over there."""
        known = dict(self.versions)
        return {name: known[name] for name in self.packages if name in known}

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """A session over ``model`` in a process of its own; ``taps`` become graph outputs before it is made.

        Raises:
            InputError: no ONNX model, an invalid graph, a tap that names no value of it, or no such Python.
            UnsupportedError: the engine over there has no kernel, opset or IR version for it.
            UnavailableError: the other Python lacks onnxruntime, or its worker died.
        """
        graph = loaded(model)
        engine = self.like if isinstance(self.like, OrtBackend) else self.like.engine
        if isinstance(self.like, LoweredOrtBackend):
            graph = self.like.lowered(graph, taps)
            taps = ()
        worker = Worker(self.python)
        try:
            settings = {
                "do": "prepare",
                "level": engine.level_name,
                "threads": threads,
                "without": sorted(engine.optimization.without),
                "entries": dict(engine.session_entries),
            }
            fitted = engine.fitted(graph, taps)
            self._prepared(worker, fitted, settings)
        except BaseException:
            worker.close()
            raise
        outputs = frozenset(value.name or "" for value in fitted.graph.outputs)
        return _FarExecutor(worker, FeedCheck.of(graph, self.name), outputs)

    def _prepared(self, worker: Worker, model: ir.Model, settings: Mapping[str, object]) -> None:
        """Have ``worker`` load ``model``, stamped older as long as it asks for that."""
        while True:
            try:
                _send(worker, model, settings, f"Preparing '{model.graph.name}' on '{self.name}'")
            except EngineError as error:
                older = stamped_older(model, Limits.told_by(str(error)))
                if older is None:
                    graph, version = model.graph.name or "model", worker.versions["onnxruntime"]
                    raise refusal(error.kind, str(error), graph=graph, backend=self.name, version=version) from error
                model = older
            else:
                return


def python_backend(path: Path | str, like: str = "ort-cpu", *, name: str = "") -> AnotherPython:
    """The backend ``like`` under the Python at ``path``, which is asked for its versions.

    Args:
        path: a Python, or the folder of a virtual environment.
        like: a backend of ours that runs ONNX Runtime.
        name: of the new one; empty: that of ``like`` and the version, ``ort-cpu-1.17.3``.

    Raises:
        InputError: there is no such Python, or ``like`` is no backend of ONNX Runtime.
        UnavailableError: numpy or onnxruntime is missing there.
    """
    mirrored = mirrored_backend(like, f"Running '{like}' under the Python '{path}'")
    python = program_in(Path(path))
    with Worker(python) as worker:
        versions = tuple(sorted(worker.versions.items()))
    known = name or f"{like}-{dict(versions)['onnxruntime']}"
    return AnotherPython(name=known, python=python, like=mirrored, versions=versions)


def mirrored_backend(like: str, doing: str) -> OrtBackend | LoweredOrtBackend:
    """Our backend ``like``, which another Python can run; ``doing`` is for the error.

    Raises:
        InputError: it does not exist, or is not a backend of ONNX Runtime.
    """
    from qbench.backends.named import get_backend

    mirrored = get_backend(like)
    if isinstance(mirrored, OrtBackend | LoweredOrtBackend):
        return mirrored
    raise InputError(
        doing,
        found="a backend that counts here, with no package of that Python",
        expected="one that runs ONNX Runtime: ort-cpu, ort-cpu-noopt, ort-cpu-precise or ort-cpu-qoperator",
        remedy="Name one of them, or leave the other Python out.",
    )


def program_in(path: Path) -> Path:
    """The Python at ``path``, or that of the virtual environment in the folder ``path``.

    Raises:
        InputError: there is none in the folder.
    """
    if not path.is_dir():
        return path.absolute()  # a link is not followed: it is how an environment is known
    program = path.absolute() / "bin" / "python"
    if not program.exists():
        raise InputError(
            f"Looking for a Python in '{path}'",
            found="a folder without bin/python",
            expected="the folder of a virtual environment, or the program of a Python",
            remedy="Check the path; 'python -m venv FOLDER' makes one.",
        )
    return program


class _FarExecutor(Closing):
    """One session in a worker; closing ends that process."""

    def __init__(self, worker: Worker, check: FeedCheck, outputs: frozenset[str]) -> None:
        self._worker: Worker | None = worker
        self._check = check
        self._outputs = outputs

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input does not fit the graph, or the batch as a whole does not.
            UnavailableError: the worker died.
        """
        if self._worker is None:
            raise RuntimeError(f"this executor of '{self._check.backend}' was closed")
        arrays = self._check.checked(feeds)
        doing = f"Running '{self._check.graph}' on '{self._check.backend}'"
        try:
            results = self._worker.ask({"do": "run"}, arrays, doing=doing)[1]
        except EngineError as error:
            raise batch_refusal(str(error), graph=self._check.graph, backend=self._check.backend) from error
        if results.keys() != self._outputs:
            self.close()
            raise UnavailableError(
                doing,
                found=f"{len(results)} arrays of other names than its {len(self._outputs)} outputs",
                expected="one array per output",
                remedy="Check what program that Python is.",
            )
        return results

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None


def _send(worker: Worker, model: ir.Model, settings: Mapping[str, object], doing: str) -> None:
    """Send ``model`` as bytes, or beyond 2 GB as a file that is removed once it is read."""
    if constant_bytes(model) < MESSAGE_LIMIT:
        data = np.frombuffer(model_bytes(model), np.uint8)
        worker.ask({**settings, "path": None}, {"model": data}, doing=doing)
        return
    with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
        path = Path(folder) / "model.onnx"
        save_model(model, path)
        worker.ask({**settings, "path": os.fspath(path)}, {}, doing=doing)

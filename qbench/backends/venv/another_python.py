"""ONNX Runtime of another Python: a backend whose sessions run in a process of that installation."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
import onnx_ir as ir

from qbench.backends.ort import LoweredOrtBackend, OrtBackend
from qbench.backends.protocol import (
    Array,
    Closing,
    Executed,
    Executor,
    FeedCheck,
    Feeds,
    batch_refusal,
    loaded,
    refusal,
)
from qbench.backends.venv.client import EngineError, Worker
from qbench.backends.venv.creator import EnvironmentMaker, plain_requirement
from qbench.errors import InputError, NotFetchedError, UnavailableError
from qbench.graph import Capabilities, own_copy
from qbench.storage import read_toml, value_from_table

# A graph for an engine that is older than the file: it is declared with an older opset or IR version where the meaning is
# the same.
#
# An operator means the same under two opsets if ONNX has one definition for both, or if the newer definition only adds
# types and attributes that the node does not use. IR versions only added types and annotations, so a graph without those
# types means the same under an older one.

_IR_LIMIT = re.compile(r"Unsupported model IR version: \d+, max supported IR version: (\d+)")
_OPSET_LIMIT = re.compile(r"Current official support for domain ai\.onnx is till opset (\d+)")
_OWN_DOMAINS = ("", "ai.onnx")
_WIDENED = frozenset(
    "Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If IsInf IsNaN Loop Pad QLinearMatMul "
    "QuantizeLinear ReduceMax ReduceMin Reshape Scan Shape Size Squeeze Transpose Unsqueeze".split()
)
"""Operators to which opsets 20 and 21 only added types or attributes (ONNX's changelog of operators)."""
_WIDENED_SINCE, _WIDENED_UNTIL = 19, 21
_TYPES_SINCE_IR = {
    9: {"FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"},
    10: {"INT4", "UINT4"},
    11: {"FLOAT4E2M1"},
    12: {"FLOAT8E8M0"},
    13: {"INT2", "UINT2"},
}
"""IR version → the types that it added."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The newest IR version and opset that an engine accepts; None: its message does not name it."""

    ir: int | None = None
    opset: int | None = None

    @classmethod
    def named_by(cls, message: str) -> "Limits":
        """The limits in the error ``message`` of an engine."""
        ir_limit, opset = _IR_LIMIT.search(message), _OPSET_LIMIT.search(message)
        return cls(int(ir_limit[1]) if ir_limit else None, int(opset[1]) if opset else None)


def stamped_older(model: ir.Model, limits: Limits) -> ir.Model | None:
    """A copy of ``model`` within ``limits`` that means the same; None: it is within them, or has no such copy."""
    opset = model.graph.opset_imports.get("", 0)
    older_ir = limits.ir is not None and model.ir_version > limits.ir
    older_opset = limits.opset is not None and opset > limits.opset
    if not older_ir and not older_opset:
        return None
    if older_ir and not _fits_ir(model, limits.ir or 0):
        return None
    if older_opset and not _fits_opset(model, opset, limits.opset or 0):
        return None
    copy = own_copy(model)
    if older_ir:
        copy.ir_version = limits.ir or copy.ir_version
    if older_opset:
        copy.graph.opset_imports[""] = limits.opset or opset
    return copy


def _fits_ir(model: ir.Model, version: int) -> bool:
    newer = {name for since, names in _TYPES_SINCE_IR.items() if since > version for name in names}
    return all(value.dtype is None or value.dtype.name not in newer for value in _values(model))


def _fits_opset(model: ir.Model, now: int, then: int) -> bool:
    return not model.functions and all(
        _means_the_same(node, now, then) for node in model.graph.all_nodes() if node.domain in _OWN_DOMAINS
    )


def _means_the_same(node: ir.Node, now: int, then: int) -> bool:
    try:
        new, old = (onnx.defs.get_schema(node.op_type, version, "") for version in (now, then))
    except onnx.defs.SchemaError:
        return False
    if new.since_version == old.since_version:
        return True
    known = node.op_type in _WIDENED and new.since_version <= _WIDENED_UNTIL and then >= _WIDENED_SINCE
    return known and set(node.attributes) <= set(old.attributes) and _types_fit(node, old)


def _types_fit(node: ir.Node, schema: "onnx.defs.OpSchema") -> bool:
    """Whether ``schema`` allows the types of all values of ``node``; its last parameter may be repeated."""
    for values, formals in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        if len(values) > len(formals) and not formals:
            return False
        for place, value in enumerate(values):
            formal = formals[min(place, len(formals) - 1)]
            if value is not None and value.dtype is not None and _written(value.dtype) not in formal.types:
                return False
    return True


def _written(dtype: ir.DataType) -> str:
    """The type as schemas write it, such as ``tensor(float)``."""
    name = onnx.TensorProto.DataType.Name(int(dtype)).lower()
    return f"tensor({name})"


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


# Graphs are prepared in this process, as for the installed engine, and run in the other one. An engine that is older than
# the graph's opset or IR version gets a copy with an older declaration, if that means the same.


@dataclass(frozen=True, slots=True, kw_only=True)
class AnotherPython:
    """The backend ``like``, run by the onnxruntime of ``python``.

    Args:
        name: its name in results.
        python: the program.
        like: the mirrored backend, with all options of a session.
        versions: (package, version) there: numpy, onnxruntime, python.
    """

    name: str
    python: Path
    like: OrtBackend | LoweredOrtBackend
    versions: tuple[tuple[str, str], ...]

    @property
    def capabilities(self) -> Capabilities:
        """Those of ``like``, so both get the same quantized model."""
        return self.like.capabilities

    @property
    def arithmetic(self) -> str | None:
        """That of the backend it mirrors: the same kernels on the same processor."""
        return self.like.arithmetic

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of the backend it mirrors."""
        return self.like.packages

    @property
    def has_started(self) -> bool:
        """True: its versions were read before it was constructed."""
        return True

    def package_versions(self) -> Mapping[str, str]:
        """Package → its version there."""
        known = dict(self.versions)
        return {name: known[name] for name in self.packages if name in known}

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """A session over ``model`` in a process of its own; ``taps`` become graph outputs before it is made.

        Raises:
            InputError: not an ONNX model, an invalid graph, a tap that names no value of it, or no such Python.
            UnsupportedError: the engine there has no kernel, opset or IR version for it.
            UnavailableError: the other Python lacks onnxruntime, or its worker died.
        """
        graph = loaded(model)
        engine = self.like if isinstance(self.like, OrtBackend) else self.like.engine
        if isinstance(self.like, LoweredOrtBackend):
            graph = self.like.lowered(graph, taps)
            taps = ()
        worker = Worker(self.python)
        try:
            fitted = engine.fitted(graph, taps)
            self._prepared(worker, fitted, engine.session_settings(threads))
        except BaseException:
            worker.close()
            raise
        outputs = frozenset(value.name or "" for value in fitted.graph.outputs)
        return _FarExecutor(worker, FeedCheck.of(graph, self.name), outputs)

    def _prepared(self, worker: Worker, model: ir.Model, settings: Mapping[str, object]) -> None:
        """Load ``model`` in ``worker``, with older declarations if the engine refuses newer ones."""
        while True:
            try:
                worker.load(model, settings, doing=f"Preparing '{model.graph.name}' on '{self.name}'")
            except EngineError as error:
                older = stamped_older(model, Limits.named_by(str(error)))
                if older is None:
                    graph, version = model.graph.name or "model", worker.versions["onnxruntime"]
                    raise refusal(error.kind, str(error), graph=graph, backend=self.name, version=version) from error
                model = older
            else:
                return


def python_backend(path: Path | str, like: str = "ort-cpu", *, name: str = "") -> AnotherPython:
    """The backend ``like`` under the Python at ``path``, which is started to read its versions.

    Args:
        path: a Python, or the folder of a virtual environment.
        like: a built-in backend of ONNX Runtime.
        name: of the new backend; empty: the name of ``like`` and the version, such as ``ort-cpu-1.17.3``.

    Raises:
        InputError: the Python does not exist, or ``like`` is not a backend of ONNX Runtime.
        UnavailableError: numpy or onnxruntime is missing there.
    """
    mirrored = mirrored_backend(like, f"Running '{like}' under the Python '{path}'")
    python = program_in(Path(path))
    with Worker(python) as worker:
        versions = tuple(sorted(worker.versions.items()))
    known = name or f"{like}-{dict(versions)['onnxruntime']}"
    return AnotherPython(name=known, python=python, like=mirrored, versions=versions)


def mirrored_backend(like: str, doing: str) -> OrtBackend | LoweredOrtBackend:
    """The built-in backend ``like``, which another Python can run; ``doing`` is for the error.

    Raises:
        InputError: it does not exist, or is not a backend of ONNX Runtime.
    """
    from qbench.backends.registry import get_backend

    mirrored = get_backend(like)
    if isinstance(mirrored, OrtBackend | LoweredOrtBackend):
        return mirrored
    raise InputError(
        doing,
        found="a backend that does not run ONNX Runtime",
        expected="one that does: ort-cpu, ort-cpu-noopt, ort-cpu-precise or ort-cpu-qoperator",
        remedy="Name one of them, or leave the other Python out.",
    )


def program_in(path: Path) -> Path:
    """The Python at ``path``, or that of the virtual environment in the folder ``path``.

    Raises:
        InputError: the folder holds no Python.
    """
    if not path.is_dir():
        return path.absolute()  # a link is not followed: its path identifies the environment
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
    """The executor of one session in a worker; closing it ends that process."""

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
                found=f"{len(results)} arrays with other names than its {len(self._outputs)} outputs",
                expected="one array per output",
                remedy="Check which program that Python is.",
            )
        return results

    def executed(self) -> Mapping[str, Executed]:
        """Nothing: the worker does not report it."""
        return {}

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None


_LISTED = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


def offered_versions(package: str, base: Path | None = None) -> tuple[str, ...]:
    """The releases of ``package`` without pre-releases that pip can install for the Python ``base``; None: for this one.

    Raises:
        NotFetchedError: pip finds none, or fails.
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
            f"Listing the versions of '{package}' with pip",
            found=lines[-1].removeprefix("ERROR:").strip(),
            expected="a list of versions",
            remedy="Check the name, the network and pip's configuration, or give the versions with --versions.",
        )
    return tuple(one.strip() for one in listed[1].split(",") if one.strip())


def installed_version(path: Path, package: str) -> str:
    """The version of ``package`` under the Python, or in the environment, at ``path``.

    Raises:
        InputError: there is no Python, or no such package.
    """
    program = program_in(path)
    program_text = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    try:
        done = subprocess.run(
            [str(program), "-I", "-c", program_text, package],
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
            f"Looking for '{package}' in '{path}'",
            found=problem,
            expected="the package to be installed there",
            remedy="Install it.",
        )
    return done.stdout.strip()


# The TOML file of such a backend, next to the suites that name it:
#
#     like = "ort-cpu"
#     requirements = ["onnxruntime==1.17.3"]        # an environment that is created and cached
#     python = "…/venv"                             # or an existing one; relative to the file
#
# The file has the name of its backend. Reading it starts no program and installs nothing. That happens when the versions
# are first read or a graph is prepared, which is in a run of a suite that names the backend.


@dataclass(frozen=True, slots=True, kw_only=True)
class _PythonText:
    """The keys of the file."""

    like: str = "ort-cpu"
    python: str = ""
    requirements: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WrittenPython:
    """The backend ``like`` under a Python that is started on first use.

    Args:
        name: its name in results. like: the mirrored backend.
        python: the program, or the folder of an environment; None: one with ``requirements`` is created and cached.
    """

    name: str
    like: OrtBackend | LoweredOrtBackend
    python: Path | None = None
    requirements: tuple[str, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        """Those of the backend it mirrors."""
        return self.like.capabilities

    @property
    def arithmetic(self) -> str | None:
        """That of the backend it mirrors: the same kernels on the same processor."""
        return self.like.arithmetic

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of the backend it mirrors."""
        return self.like.packages

    @property
    def has_started(self) -> bool:
        """Whether that Python was started."""
        return "_started" in self.__dict__

    def package_versions(self) -> Mapping[str, str]:
        """Package → its version there; this starts that Python.

        Raises:
            InputError: no such Python. UnavailableError: numpy or onnxruntime is missing there.
        """
        return self._started.package_versions()

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """A session over ``model`` in a process of that Python, as of ``AnotherPython``.

        Raises:
            QbenchError: what ``AnotherPython`` raises.
        """
        return self._started.prepare(model, taps=taps, threads=threads)

    @cached_property
    def _started(self) -> AnotherPython:
        where = EnvironmentMaker().make(self.requirements) if self.python is None else self.python
        return python_backend(where, self.like.name, name=self.name)


def load_python(path: Path) -> WrittenPython:
    """The backend that the TOML file at ``path`` describes; no program is started.

    Raises:
        InputError: a wrong key, both of ``python`` and ``requirements`` or neither, a requirement that is more than a
            name with versions, or no such backend.
    """
    text = value_from_table(_PythonText, read_toml(path), f"'{path}'")
    if bool(text.python) == bool(text.requirements):
        raise InputError(
            f"Reading '{path}'",
            found="both of 'python' and 'requirements'" if text.python else "neither 'python' nor 'requirements'",
            expected="one of them: an existing environment, or the packages of a new one",
            remedy='Write requirements = ["onnxruntime==…"], or python = "…".',
        )
    return WrittenPython(
        name=path.stem,
        like=mirrored_backend(text.like, f"Reading '{path}', its like = '{text.like}'"),
        python=path.parent / text.python if text.python else None,
        requirements=tuple(plain_requirement(one, f"Reading '{path}'") for one in text.requirements),
    )

"""ONNX Runtime in a process of its own: under another Python, or with an execution provider
that a library adds.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import onnx
import onnx_ir as ir

from qbench.backends.execution import EngineExecutor
from qbench.backends.feeds import FeedCheck, loaded
from qbench.backends.ort import ORT_BACKENDS, LoweredOrtBackend, OrtBackend
from qbench.backends.protocol import CPU, Array, Backend, Executed, Executor
from qbench.backends.refusals import engine_sentence, refusal
from qbench.backends.slicing import in_slices
from qbench.backends.venv.client import EngineError, Worker
from qbench.backends.venv.creator import EnvironmentMaker, plain_requirement
from qbench.errors import (
    InputError,
    NotFetchedError,
    QbenchError,
    UnavailableError,
    UnsupportedError,
    nearest,
    require_count,
)
from qbench.graph import Capabilities, declared_dims, own_copy
from qbench.host import package_versions
from qbench.storage import read_toml, value_from_table

# A graph for an engine that is older than the file: it is declared with an older opset or IR
# version where the meaning is the same.
#
# An operator means the same under two opsets if ONNX has one definition for both, or if the newer
# definition only adds types and attributes that the node does not use. IR versions only added types
# and annotations, so a graph without those types means the same under an older one.

_IR_LIMIT = re.compile(r"Unsupported model IR version: \d+, max supported IR version: (\d+)")
_OPSET_LIMIT = re.compile(r"Current official support for domain ai\.onnx is till opset (\d+)")
_OWN_DOMAINS = ("", "ai.onnx")
_WIDENED = frozenset(
    [
        "Cast",
        "CastLike",
        "Constant",
        "ConstantOfShape",
        "DequantizeLinear",
        "Flatten",
        "Identity",
        "If",
        "IsInf",
        "IsNaN",
        "Loop",
        "Pad",
        "QLinearMatMul",
        "QuantizeLinear",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Scan",
        "Shape",
        "Size",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ]
)
"""Operators to which opsets 20 and 21 only added types or attributes (ONNX's changelog of
operators).
"""
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
    """The newest IR version and opset that an engine accepts; None: its message does not name
    it.
    """

    ir: int | None = None
    opset: int | None = None

    @classmethod
    def named_by(cls, message: str) -> "Limits":
        """The limits in the error ``message`` of an engine."""
        ir_limit, opset = _IR_LIMIT.search(message), _OPSET_LIMIT.search(message)
        return cls(int(ir_limit[1]) if ir_limit else None, int(opset[1]) if opset else None)


def stamped_older(model: ir.Model, limits: Limits) -> ir.Model | None:
    """A copy of ``model`` within ``limits`` that means the same; None: it is within them, or
    has no such copy.
    """
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
        _means_the_same(node, now, then)
        for node in model.graph.all_nodes()
        if node.domain in _OWN_DOMAINS
    )


def _means_the_same(node: ir.Node, now: int, then: int) -> bool:
    try:
        new, old = (onnx.defs.get_schema(node.op_type, version, "") for version in (now, then))
    except onnx.defs.SchemaError:
        return False
    if new.since_version == old.since_version:
        return True
    known = (
        node.op_type in _WIDENED and new.since_version <= _WIDENED_UNTIL and then >= _WIDENED_SINCE
    )
    return known and set(node.attributes) <= set(old.attributes) and _types_fit(node, old)


def _types_fit(node: ir.Node, schema: "onnx.defs.OpSchema") -> bool:
    """Whether ``schema`` allows the types of all values of ``node``; its last parameter may be
    repeated.
    """
    for values, formals in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        if len(values) > len(formals) and not formals:
            return False
        for place, value in enumerate(values):
            formal = formals[min(place, len(formals) - 1)]
            if (
                value is not None
                and value.dtype is not None
                and _written(value.dtype) not in formal.types
            ):
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


# Graphs are prepared in this process, as for the installed engine, and run in the other one. An
# engine that is older than the graph's opset or IR version gets a copy with an older declaration,
# if that means the same.


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

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """A session over ``model`` in a process of its own; ``taps`` become graph outputs
        before it is made.

        Raises:
            InputError: not an ONNX model, an invalid graph, a tap that names no value of it, or no
                such Python.
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
            _load(worker, fitted, engine.session_settings(threads), self.name)
        except BaseException:
            worker.close()
            raise
        outputs = frozenset(value.name or "" for value in fitted.graph.outputs)
        return _FarExecutor(worker, FeedCheck.of(graph, self.name), outputs)


def _load(worker: Worker, model: ir.Model, settings: Mapping[str, object], backend: str) -> None:
    """Load ``model`` in ``worker``, with older declarations if the engine refuses newer ones.

    Raises:
        QbenchError: the engine refuses the model, or the worker died. EngineError: an error of a
            plugin provider.
    """
    while True:
        try:
            worker.load(model, settings, doing=f"Preparing '{model.graph.name}' on '{backend}'")
        except EngineError as error:
            older = stamped_older(model, Limits.named_by(str(error)))
            if older is None:
                if error.kind in _OF_PROVIDERS or _DECLINED in str(error):
                    raise
                graph, version = model.graph.name or "model", worker.versions["onnxruntime"]
                raise refusal(
                    error.kind, str(error), graph=graph, backend=backend, version=version
                ) from error
            model = older
        else:
            return


def python_backend(path: Path | str, like: str = "ort-cpu", *, name: str = "") -> AnotherPython:
    """The backend ``like`` under the Python at ``path``, which is started to read its versions.

    Args:
        path: a Python, or the folder of a virtual environment.
        like: a built-in backend of ONNX Runtime.
        name: of the new backend; empty: the name of ``like`` and the version, such as
            ``ort-cpu-1.17.3``.

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
    if like in ORT_BACKENDS:
        return ORT_BACKENDS[like]
    close = nearest(like, ORT_BACKENDS, cutoff=0.7)
    raise InputError(
        doing,
        found=f"'{like}', a backend that does not run ONNX Runtime",
        expected=f"one that does: {', '.join(ORT_BACKENDS)}",
        remedy=f"Did you mean '{close}'?"
        if close
        else "Name one of them, or leave the other Python out.",
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


class _FarExecutor(EngineExecutor[Worker]):
    """The executor of one session in a worker; closing it ends that process."""

    def __init__(
        self,
        worker: Worker,
        check: FeedCheck,
        outputs: frozenset[str],
        assigned: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(worker, check)
        self._assigned = assigned or {}
        self._outputs = outputs

    def _answer(self, held: Worker, arrays: dict[str, Array]) -> dict[str, Array]:
        doing = f"Running '{self._check.graph}' on '{self._check.backend}'"
        try:
            results = held.ask({"do": "run"}, arrays, doing=doing)[1]
        except EngineError as error:
            raise self._refusal(str(error)) from error
        if results.keys() != self._outputs:
            self.close()
            raise UnavailableError(
                doing,
                found=f"{len(results)} arrays with other names than its "
                f"{len(self._outputs)} outputs",
                expected="one array per output",
                remedy="Check which program that Python is.",
            )
        return results

    def executed(self) -> Mapping[str, Executed]:
        """Node → the provider that runs it, where that is recorded; in which precision, a
        provider does not report.
        """
        return {node: Executed("", provider) for node, provider in self._assigned.items()}

    def close(self) -> None:
        """End the process."""
        if self._held is not None:
            self._held.close()
        super().close()


_LISTED = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


def offered_versions(package: str, base: Path | None = None) -> tuple[str, ...]:
    """The releases of ``package`` without pre-releases that pip can install for the Python
    ``base``; None: for this one.

    Raises:
        NotFetchedError: pip finds none, or fails.
    """
    command = [sys.executable, "-P", "-m", "pip", "--python", str(base or sys.executable)]
    command += [
        "index",
        "versions",
        "--disable-pip-version-check",
        "--no-input",
        "--no-color",
        "--",
        package,
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    listed = _LISTED.search(done.stdout)
    if done.returncode or listed is None:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or [
            "ERROR: no list"
        ]
        raise NotFetchedError(
            f"Listing the versions of '{package}' with pip",
            found=lines[-1].removeprefix("ERROR:").strip(),
            expected="a list of versions",
            remedy="Check the name, the network and pip's configuration, or give the versions "
            "with --versions.",
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
# The file has the name of its backend. Reading it starts no program and installs nothing. That
# happens when the versions are first read or a graph is prepared, which is in a run of a suite that
# names the backend.


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
        name: its name in results.
        like: the mirrored backend.
        python: the program, or the folder of an environment; None: one with ``requirements`` is
            created and cached.
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

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """A session over ``model`` in a process of that Python, as of ``AnotherPython``.

        Raises:
            QbenchError: what ``AnotherPython`` raises.
        """
        return self._started.prepare(model, taps=taps, threads=threads)

    @cached_property
    def _started(self) -> AnotherPython:
        where = EnvironmentMaker().make(self.requirements) if self.python is None else self.python
        return python_backend(where, self.like.name, name=self.name)


def under_python(backend: Backend, python: Path) -> Backend:
    """``backend`` of ONNX Runtime under ``python`` (as of ``WrittenPython``), with its own
    name; any other as it is.
    """
    if not isinstance(backend, OrtBackend | LoweredOrtBackend):
        return backend
    return WrittenPython(name=backend.name, like=backend, python=python)


def load_python(path: Path) -> WrittenPython:
    """The backend that the TOML file at ``path`` describes; no program is started.

    Raises:
        InputError: a wrong key, both of ``python`` and ``requirements`` or neither, a requirement
            that is more than a name with versions, or no such backend.
    """
    text = value_from_table(_PythonText, read_toml(path), f"'{path}'")
    if bool(text.python) == bool(text.requirements):
        raise InputError(
            f"Reading '{path}'",
            found="both of 'python' and 'requirements'"
            if text.python
            else "neither 'python' nor 'requirements'",
            expected="one of them: an existing environment, or the packages of a new one",
            remedy='Write requirements = ["onnxruntime==…"], or python = "…".',
        )
    return WrittenPython(
        name=path.stem,
        like=mirrored_backend(text.like, f"Reading '{path}', its like = '{text.like}'"),
        python=path.parent / text.python if text.python else None,
        requirements=tuple(
            plain_requirement(one, f"Reading '{path}'") for one in text.requirements
        ),
    )


# An execution provider that a library adds to ONNX Runtime, declared by a file next to the suites.
#
# The library is third-party native code: it is loaded, and its sessions run, in a process of their
# own.

_CPU = "CPUExecutionProvider"
_OF_PROVIDERS = frozenset({"NoDeviceError", "NoLibraryError"})
_DECLINED = "fallback to CPU EP has been explicitly disabled"
"""Part of the message for a graph that a provider does not run as a whole."""
_MODULE_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_KINDS = ("", "cpu", "gpu", "npu")
_FEW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderBackend:
    """ONNX Runtime with the execution provider ``provider`` of a library.

    Args:
        name: its name in results.
        provider: the name that its devices bear.
        library: its file, or ``module:attribute``, a path or a function that gives one; empty: it
            is built in.
        options: of the provider.
        kind: of device: ``cpu``, ``gpu`` or ``npu``; empty: the first that it offers.
        fallback: whether the CPU provider runs the nodes that it declines.
        batch: the batch size of its graphs, for a provider that needs fixed shapes; None: as the
            graph declares it. Other free sizes that the model declares (``declare_dims``) are fixed
            with it.
        packages: the distributions whose versions may change its numbers.
    """

    name: str
    provider: str
    library: str = ""
    options: tuple[tuple[str, str], ...] = ()
    kind: str = ""
    fallback: bool = False
    batch: int | None = None
    packages: tuple[str, ...] = ("onnxruntime",)
    capabilities: Capabilities = field(
        default_factory=lambda: replace(OrtBackend(name=_CPU).capabilities, taps=False)
    )

    @property
    def arithmetic(self) -> str | None:
        """Not known."""
        return None

    @property
    def device(self) -> str:
        """``gpu`` or ``npu`` where the file names that kind; else ``cpu``."""
        return self.kind or CPU

    @property
    def has_started(self) -> bool:
        """True: its versions are those of packages of this Python."""
        return True

    def package_versions(self) -> Mapping[str, str]:
        """The versions of those ``packages`` that are installed."""
        return package_versions(self.packages)

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """A session over ``model`` in a process of its own.

        Raises:
            InputError: not an ONNX model, or an invalid graph.
            UnsupportedError: no device is offered here, the provider declines nodes and may not
                leave them to the CPU, or taps are requested: further outputs change what a provider
                fuses.
            NotFetchedError: the library is not there or does not load.
            UnavailableError: the process died.
        """
        require_count(f"Preparing a model on '{self.name}'", "threads", threads)
        graph = loaded(model)
        doing = f"Preparing '{graph.graph.name or 'model'}' on '{self.name}'"
        if further := [
            name for name in taps if name not in {value.name for value in graph.graph.outputs}
        ]:
            raise UnsupportedError(
                doing,
                found=f"a tap on '{further[0]}'",
                expected="no taps: a provider fuses other operators when a value between "
                "them is an output",
                remedy="Watch an integer interpreter or another backend.",
            )
        if self.batch is not None:
            graph = with_batch(graph, self.batch)
        engine = OrtBackend(name=self.name)
        fitted = engine.fitted(graph)
        settings = self._settings(engine, threads, fallback=self.fallback)
        worker = Worker()
        try:
            _load(worker, fitted, settings, self.name)
            assigned = worker.ask({"do": "assigned"}, {}, doing=doing)[0]["assigned"]
        except EngineError as error:
            worker.close()
            raise self._refusal(error, doing, lambda: self._declined(engine, fitted)) from error
        except BaseException:
            worker.close()
            raise
        outputs = frozenset(value.name or "" for value in fitted.graph.outputs)
        executor = _FarExecutor(worker, FeedCheck.of(graph, self.name), outputs, assigned)
        return executor if self.batch is None else in_slices(executor, graph)

    def _settings(self, engine: OrtBackend, threads: int, *, fallback: bool) -> dict[str, object]:
        settings = engine.session_settings(threads)
        entries = {**engine.session_entries, "session.record_ep_graph_assignment_info": "1"}
        if not fallback and self.provider != _CPU:  # which ONNX Runtime refuses as contradictory
            entries["session.disable_cpu_ep_fallback"] = "1"
        provider = {"name": self.provider, "library": self.library, "device": self.kind}
        return {
            **settings,
            "entries": entries,
            "provider": {**provider, "options": dict(self.options)},
        }

    def _declined(self, engine: OrtBackend, model: ir.Model) -> str:
        """The nodes that the provider leaves to the CPU, from a second session that allows it."""
        try:
            with Worker() as worker:
                _load(worker, model, self._settings(engine, 1, fallback=True), self.name)
                assigned = worker.ask({"do": "assigned"}, {}, doing="")[0]["assigned"]
        except (EngineError, QbenchError):
            return "some of its nodes"
        kinds = {node.name: node.op_type for node in model.graph}
        left = [name for name, provider in assigned.items() if provider != self.provider]
        shown = ", ".join(f"{kinds.get(name, 'node')} '{name}'" for name in left[:_FEW])
        return f"{len(left)} of {len(assigned)} nodes: {shown}{', …' if len(left) > _FEW else ''}"

    def _refusal(self, error: EngineError, doing: str, declined: Callable[[], str]) -> QbenchError:
        if error.kind == "NoDeviceError":
            return UnsupportedError(
                doing,
                found=str(error),
                expected=f"a device of {self.provider}"
                + (f" of the kind '{self.kind}'" if self.kind else ""),
                remedy="Run it on a computer with such a device.",
            )
        if error.kind == "NoLibraryError":
            return NotFetchedError(
                doing,
                found=engine_sentence(str(error)),
                expected=f"the library of {self.provider}",
                remedy=f"Install what '{self.library}' names.",
            )
        return UnsupportedError(
            doing,
            found=f"that {self.provider} declines {declined()}",
            expected="a graph that it runs as a whole",
            remedy="Write fallback = true to let the CPU run the others, "
            "or choose another backend.",
        )


def with_batch(model: ir.Model, size: int) -> ir.Model:
    """``model`` itself, or a copy in which the free batch size is ``size``, and declared free
    sizes are the usual ones.
    """
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    shape = inputs[0].shape if inputs else None
    if shape is None or not len(shape) or isinstance(shape[0], int):
        return model
    copy, sizes = own_copy(model), dict(declared_dims(model))
    if shape[0].value is not None:
        sizes[shape[0].value] = size
    for value in _values(copy):
        if value.shape is not None and not value.is_initializer():
            value.shape = ir.Shape(
                [
                    dim if isinstance(dim, int) else sizes.get(dim.value or "", dim)
                    for dim in value.shape
                ]
            )
    for value in copy.graph.inputs:
        if value.shape and not isinstance(value.shape[0], int):
            value.shape = ir.Shape([size, *list(value.shape)[1:]])
    return copy


@dataclass(frozen=True, slots=True)
class _ProviderText:
    """The keys of a file in ``engines/``."""

    provider: str
    library: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    fallback: bool = False
    batch: int | None = None


def load_provider(path: Path) -> ProviderBackend:
    """The backend ``ep-NAME`` that the TOML file NAME.toml at ``path`` describes; no library is
    loaded.

    Raises:
        InputError: a wrong key, or a value that is not one of those of ``ProviderBackend``.
    """
    text = value_from_table(_ProviderText, read_toml(path), f"'{path}'")
    if text.device not in _KINDS:
        raise InputError(
            f"Reading '{path}'",
            found=f"device = '{text.device}'",
            expected=f"one of {', '.join(_KINDS[1:])}",
            remedy="Leave it out to use the first device that the provider offers.",
        )
    if text.batch is not None:
        require_count(f"Reading '{path}'", "batch", text.batch)
    library = text.library
    packages: tuple[str, ...] = ("onnxruntime",)
    if _MODULE_ATTRIBUTE.fullmatch(library):
        packages = (*packages, library.partition(":")[0].partition(".")[0].replace("_", "-"))
    elif library:
        library = str((path.parent / library).absolute())
    return ProviderBackend(
        name=f"ep-{path.stem}",
        provider=text.provider,
        library=library,
        options=tuple(sorted(text.options.items())),
        kind=text.device,
        fallback=text.fallback,
        batch=text.batch,
        packages=packages,
    )

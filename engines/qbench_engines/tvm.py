"""TVM on the CPU: the ONNX file through its Relax importer and its LLVM compiler, in a process
of its own.
"""

import re
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    FIRST_MESSAGE_S,
    Array,
    Child,
    ChildError,
    EngineError,
    EngineExecutor,
    Executed,
    Executor,
    FeedCheck,
    executed_as_written,
    in_slices,
    loaded,
    not_installed,
    own_environment,
    own_python,
    serve,
    with_batch,
)
from qbench.errors import UnavailableError, UnsupportedError, require_count
from qbench.graph import MESSAGE_LIMIT, Capabilities, constant_bytes, model_bytes
from qbench.host import package_versions

_CAPABILITIES = Capabilities(
    activation_qtypes=frozenset({"int8", "uint8", "int16", "uint16"}),
    weight_qtypes=frozenset({"int8", "uint8", "int16", "uint16"}),
    dynamic=True,
    taps=False,
)
"""What its importer takes (0.27). It writes QuantizeLinear and DequantizeLinear as float
operators.
"""
_EXTRA = "tvm"
_BATCH = 8
"""The batch size that is compiled where a free one is not."""
_COMPILE_S = 900.0
"""Seconds after which a compiler that gives no answer is taken to hang."""
_TARGET = "llvm"
"""Code for any processor of this kind, without fused multiply-adds: its numbers do not depend
on the processor.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmBackend:
    """TVM's CPU compiler.

    Args:
        name: its name in suites.
        seconds: how long compiling or running may take.
    """

    name: str = "tvm"
    seconds: float = _COMPILE_S
    capabilities: Capabilities = field(default_factory=lambda: _CAPABILITIES)
    packages: tuple[str, ...] = ("apache-tvm",)

    @property
    def arithmetic(self) -> str | None:
        """``ideal``: every operator between Q/DQ pairs is computed in float32."""
        return "ideal"

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
        """A compiled model in a process of its own.

        A free batch size stays free if TVM compiles that; else batches run in slices of a fixed
        size.

        Raises:
            InputError: not an ONNX model.
            UnsupportedError: TVM does not import or compile it, or taps are requested.
            NotFetchedError: TVM is not installed. UnavailableError: the compiler crashed or hangs.
        """
        require_count(f"Preparing a model on '{self.name}'", "threads", threads)
        if find_spec("tvm") is None:
            raise not_installed(ImportError("no module 'tvm'"), extra=_EXTRA, backend=self.name)
        graph = loaded(model)
        doing = f"Preparing '{graph.graph.name or 'model'}' on '{self.name}'"
        if further := [
            name for name in taps if name not in {value.name for value in graph.graph.outputs}
        ]:
            raise UnsupportedError(
                doing,
                found=f"a tap on '{further[0]}'",
                expected=(
                    "no taps: TVM fuses other operators when a value between them is an output"
                ),
                remedy="Watch an integer interpreter or another backend.",
            )
        if constant_bytes(graph) >= MESSAGE_LIMIT:
            raise UnsupportedError(
                doing,
                found="constants beyond 2 GB",
                expected="a model that fits into one message to the compiler's process",
                remedy="Choose another backend.",
            )
        try:
            return self._compiled(graph, threads, doing)
        except UnsupportedError:
            fixed = with_batch(graph, _BATCH)
            if fixed is graph:
                raise
            return in_slices(self._compiled(fixed, threads, doing), fixed)

    def _compiled(self, graph: ir.Model, threads: int, doing: str) -> "_TvmExecutor":
        child = Child(
            own_python(__name__),
            {**own_environment(), "TVM_NUM_THREADS": str(threads)},
            shares=True,
        )
        executor = _TvmExecutor(child, graph, FeedCheck.of(graph, self.name), self.seconds)
        try:
            executor.compile(doing)
        except EngineError as error:
            executor.close()
            if error.kind in ("ImportError", "ModuleNotFoundError", "OSError"):
                raise not_installed(error, extra=_EXTRA, backend=self.name) from error
            version = self.package_versions().get("apache-tvm", "")
            raise UnsupportedError(
                doing,
                found=sentence(str(error)) or error.kind,
                expected=f"a graph that TVM {version} imports and compiles",
                remedy="Choose another backend, or export the model with other operators.",
            ) from error
        except BaseException:
            executor.close()
            raise
        return executor


def sentence(message: str) -> str:
    """TVM's message without the source files, lines and stack of its C++ code."""
    text = re.split(r"\n\s*(?:Stack trace|File \"|\d+: )", message)[0]
    text = re.sub(r"^\s*(?:\[[\d:]+\] )?\S+\.(?:cc|h|cpp):\d+: ", "", text)
    return " ".join(text.split())[:300]


class _TvmExecutor(EngineExecutor[Child]):
    """The executor of one compiled model in a child process; closing it ends that process."""

    def __init__(self, child: Child, graph: ir.Model, check: FeedCheck, seconds: float) -> None:
        super().__init__(child, check)
        self._graph = graph
        self._seconds = seconds

    def compile(self, doing: str) -> None:
        """Have the child compile the graph.

        Raises:
            EngineError: TVM refuses it. UnavailableError: the child died or hangs.
        """
        assert self._held is not None
        try:
            self._held.receive(FIRST_MESSAGE_S)
        except ChildError as error:
            raise self._dead(error, doing) from error
        data = np.frombuffer(model_bytes(self._graph), np.uint8)
        self._ask({"do": "compile", "inputs": list(self._check.required)}, {"model": data}, doing)

    def _answer(self, held: Child, arrays: dict[str, Array]) -> dict[str, Array]:  # noqa: ARG002 - asked by ``_ask``
        doing = f"Running '{self._check.graph}' on '{self._check.backend}'"
        for name in arrays.keys() - set(self._check.required):
            raise self._refusal(
                f"input '{name}' with a default value, which the compiled model does not replace"
            )
        try:
            results = self._ask({"do": "run"}, arrays, doing)
        except EngineError as error:
            raise self._refusal(sentence(str(error))) from error
        names = [str(value.name) for value in self._graph.graph.outputs]
        return {name: results[str(place)] for place, name in enumerate(names)}

    def _ask(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array], doing: str
    ) -> dict[str, Array]:
        assert self._held is not None
        try:
            return self._held.ask(header, arrays, seconds=self._seconds)[1]
        except ChildError as error:
            self.close()
            raise self._dead(error, doing) from error

    def _dead(self, error: ChildError, doing: str) -> UnavailableError:
        found = (
            f"no answer in {self._seconds:.0f} s"
            if error.silent
            else f"that its process {error.found}"
        )
        return UnavailableError(
            doing,
            found=found + (f"; its last words: {error.said}" if error.said else ""),
            expected="an answer",
            remedy="Choose another backend, and report the model to the authors of TVM.",
        )

    def executed(self) -> Mapping[str, Executed]:
        """Every node in the type of its first input: the importer writes Q/DQ pairs as float
        operators.
        """
        return executed_as_written(self._graph, "cpu")

    def close(self) -> None:
        """End the process."""
        if self._held is not None:
            self._held.close()
        super().close()


# The child: it imports and compiles one model, and runs it.


class _Handler:
    """The compiled model of this process; every request names the method that handles it."""

    def __init__(self) -> None:
        self._main: Any = None
        self._inputs: list[str] = []

    def answer(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """The reply to ``header``."""
        found: tuple[dict[str, Any], dict[str, Array]] = getattr(self, header["do"])(header, arrays)
        return found

    def compile(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Import and compile the model; code is generated twice, once to optimize it and once
        to load it.
        """
        import onnx
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        model = onnx.ModelProto.FromString(arrays["model"].tobytes())
        module = from_onnx(model, keep_params_in_input=False)
        machine = relax.VirtualMachine(tvm.compile(module, tvm.target.Target(_TARGET)), tvm.cpu())
        self._main, self._inputs = machine["main"], list(header["inputs"])
        return {}, {}

    def run(
        self, _: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """One batch; the results have their places as names."""
        import tvm

        found = self._main(
            *(tvm.runtime.tensor(np.asarray(arrays[name], order="C")) for name in self._inputs)
        )
        results = [found] if hasattr(found, "numpy") else list(found)
        return {}, {str(place): one.numpy() for place, one in enumerate(results)}


if __name__ == "__main__":
    # a crash is expected
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    serve(sys.argv[1:], lambda: ({}, {}), _Handler().answer)

"""LiteRT on the CPU: a graph written as a TFLite file, run by one of the engine's three sets of
kernels.

litert-reference    the plain C++ kernels                                  counts as ``gemmlowp``
litert-builtin      the kernels of the engine without any delegate         counts as ``litert-x64``
litert-xnnpack      the XNNPACK delegate, which LiteRT applies itself      counts as ``xnnpack``
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    HANG_S,
    Array,
    EngineExecutor,
    Executed,
    Executor,
    FeedCheck,
    importing_engine,
    loaded,
)
from qbench.errors import UnsupportedError, require_count
from qbench.graph import Capabilities, Form, file_held_by
from qbench_engines.tflite_file import Shape, Written
from qbench_engines.tflite_model import SUFFIX, fed, is_first, returned
from qbench_engines.tflite_writer import free_axes, write_tflite

_KERNELS = MappingProxyType(
    {
        "reference": ("BUILTIN_REF", "gemmlowp"),
        "builtin": ("BUILTIN_WITHOUT_DEFAULT_DELEGATES", "litert-x64"),
        "xnnpack": ("BUILTIN", "xnnpack"),
    }
)
"""A set of kernels → LiteRT's name of its resolver, and the arithmetic by which it counts on
x64.
"""
_LONGEST_SOFTMAX = 512
"""Elements: beyond this sum of exponentials the reference kernel ends the process (12 integer
bits, softmax.h).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LitertBackend:
    """One set of kernels of LiteRT.

    Args:
        kernels: ``reference``, ``builtin`` or ``xnnpack``.
        hang_s: as of ``MayCrash``.
    """

    kernels: str
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(
            forms=frozenset({Form.FLOAT, Form.QDQ, Form.QOPERATOR}),
            file_formats=frozenset({SUFFIX}),
            weight_qtypes=frozenset({"int4", "int8"}),
            integer_products=frozenset(product(("int8", "uint8"), ("int4", "int8"))),
            # no integer kernel has a float result
            requantized_products=frozenset({"Conv", "Gemm", "MatMul"}),
        )
    )
    packages: tuple[str, ...] = ("ai-edge-litert",)
    hang_s: float = HANG_S

    @property
    def name(self) -> str:
        """``litert-`` and the kernels."""
        return f"litert-{self.kernels}"

    @property
    def arithmetic(self) -> str:
        """That of its kernels on x64, the same for every class of processor."""
        return _KERNELS[self.kernels][1]

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """An interpreter over the TFLite file of ``model``; taps are values of the lowered
        graph and change nothing.

        A model that holds a TFLite file is run from that file as it is, and has no taps.

        Raises:
            InputError: not an ONNX model, an invalid graph, or a tap that names no value.
            UnsupportedError: TFLite has no operator for a node, LiteRT refuses the file, or a given
                file has taps.
            NotFetchedError: LiteRT is not installed.
        """
        require_count(f"Preparing a model on '{self.name}'", "threads", threads)
        _engine(self.name)
        graph = loaded(model)
        data = file_held_by(graph)
        if data is not None:
            return _FileExecutor(self, graph, data, tuple(taps), threads)
        executor = _LitertExecutor(self, graph, tuple(taps), threads)
        if not free_axes(graph):
            executor.prepare({})
        return executor


class _LitertExecutor(EngineExecutor[ir.Model]):
    """The interpreter for batches of one shape; another shape gets a new one."""

    def __init__(
        self, backend: LitertBackend, model: ir.Model, taps: tuple[str, ...], threads: int
    ) -> None:
        super().__init__(model, FeedCheck.of(model, backend.name))
        self._backend = backend
        self._taps = taps
        self._threads = threads
        self._written: Written | None = None
        self._interpreter: Any = None
        self._shapes: Mapping[str, Shape] = {}

    def prepare(self, shapes: Mapping[str, Shape]) -> None:
        """Make the interpreter for inputs of these ``shapes``; empty: those that the model
        declares.

        Raises:
            UnsupportedError: TFLite has no operator for a node, or LiteRT refuses the file.
        """
        assert self._held is not None
        if self._written is None or (shapes and not _fits(self._written, shapes)):
            self._written = write_tflite(
                self._held, shapes=shapes, taps=self._taps, backend=self._backend.name
            )
        written = self._written
        try:
            interpreter = _interpreter(self._backend, written.data, self._threads)
            for detail, name in zip(interpreter.get_input_details(), written.inputs, strict=True):
                if name in shapes and shapes[name] != written.shapes[name]:
                    interpreter.resize_tensor_input(detail["index"], shapes[name])
            _require_no_abort(interpreter, self._backend, self._check.graph)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise _refusal(self._backend, self._check.graph, str(error)) from error
        self._interpreter, self._shapes = interpreter, dict(shapes or written.shapes)

    def _answer(self, held: ir.Model, arrays: dict[str, Array]) -> dict[str, Array]:  # noqa: ARG002 - ``prepare`` reads it
        shapes = {name: array.shape for name, array in arrays.items()}
        if self._interpreter is None or shapes != self._shapes:
            self._interpreter = None  # one copy of the packed weights, not two
            self.prepare(shapes)
        interpreter, written = self._interpreter, self._written
        assert written is not None
        try:
            for detail, name in zip(interpreter.get_input_details(), written.inputs, strict=True):
                interpreter.set_tensor(detail["index"], arrays[name])
            interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise self._refusal(str(error)) from error
        details = interpreter.get_output_details()
        found = {
            name: interpreter.get_tensor(detail["index"])
            for name, detail in zip(written.outputs, details, strict=True)
        }
        return {name: np.asarray(array) for name, array in found.items()}

    def executed(self) -> Mapping[str, Executed]:
        """Node of the lowered graph → the type of its data in the interpreter's plan."""
        if self._interpreter is None or self._written is None:
            return {}
        steps = self._interpreter._get_ops_details()  # noqa: SLF001 - its only list of operators
        found = {}
        for node, step in zip(self._written.nodes, steps, strict=False):
            # a delegate comes after them
            if node:
                found[node] = Executed(_data_type(step), "cpu")
        return found

    def close(self) -> None:
        """Release the interpreter."""
        self._interpreter, self._written = None, None
        super().close()


class _FileExecutor(EngineExecutor[Any]):
    """A TFLite file as it came: reals are quantized as its inputs are, and its results are
    reals again.
    """

    def __init__(
        self,
        backend: LitertBackend,
        model: ir.Model,
        data: bytes,
        taps: tuple[str, ...],
        threads: int,
    ) -> None:
        if taps:
            raise _refusal(
                backend, str(model.graph.name), "a TFLite file, whose inner values are not returned"
            )
        check = FeedCheck.of(model, backend.name)
        self._outputs = [str(value.name) for value in model.graph.outputs]
        try:
            interpreter = _interpreter(backend, data, threads)
            _require_no_abort(interpreter, backend, check.graph)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise _refusal(backend, check.graph, str(error)) from error
        super().__init__(interpreter, check)

    def _answer(self, held: Any, arrays: dict[str, Array]) -> dict[str, Array]:  # noqa: ANN401 - LiteRT has no types
        interpreter = held
        try:
            details = dict(zip(self._check.inputs, interpreter.get_input_details(), strict=True))
            first = any(
                is_first(arrays[name].shape, detail["shape"]) for name, detail in details.items()
            )
            given = {name: fed(arrays[name], detail) for name, detail in details.items()}
            resized = [
                name
                for name, detail in details.items()
                if given[name].shape != tuple(detail["shape"])
            ]
            for name in resized:
                interpreter.resize_tensor_input(details[name]["index"], given[name].shape)
            if resized:
                interpreter.allocate_tensors()
            for name, detail in details.items():
                interpreter.set_tensor(detail["index"], given[name])
            interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            raise self._refusal(str(error)) from error
        return {
            name: returned(interpreter.get_tensor(detail["index"]), detail, channels_first=first)
            for name, detail in zip(self._outputs, interpreter.get_output_details(), strict=True)
        }

    def executed(self) -> Mapping[str, Executed]:
        """Name of an operator's result in the file → the type of its data in the interpreter's
        plan.
        """
        if self._held is None:
            return {}
        names = {one["index"]: one["name"] for one in self._held.get_tensor_details()}
        found = {}
        for step in self._held._get_ops_details():  # noqa: SLF001 - its only list of operators
            if step["op_name"] != "DELEGATE":
                found[names[step["outputs"][0]]] = Executed(_data_type(step), "cpu")
        return found


_DATA = MappingProxyType(
    {
        "TRANSPOSE_CONV": 2,
        "CONV_3D_TRANSPOSE": 2,
        "SPARSE_TO_DENSE": 2,
        "ONE_HOT": 2,
        "SPLIT": 1,
        "SELECT": 1,
        "SELECT_V2": 1,
        "FILL": 1,
        "SCATTER_ND": 1,
        "EMBEDDING_LOOKUP": 1,
    }
)
"""Operator → the place of its data, after a shape, an axis, a condition or indices; all others
have them first.
"""


def _data_type(step: Mapping[str, Any]) -> str:
    """The type of the data of one operator in the interpreter's plan."""
    return str(np.dtype(step["operand_types"][_DATA.get(step["op_name"], 0)]).name)


def _interpreter(backend: LitertBackend, data: bytes, threads: int) -> Any:  # noqa: ANN401 - a module without types
    engine = _engine(backend.name)
    resolver = engine.OpResolverType[_KERNELS[backend.kernels][0]]
    return engine.Interpreter(
        model_content=data, experimental_op_resolver_type=resolver, num_threads=threads
    )


def _require_no_abort(interpreter: Any, backend: LitertBackend, graph: str) -> None:  # noqa: ANN401
    if backend.kernels != "reference":
        return
    shapes = {detail["index"]: detail["shape"] for detail in interpreter.get_tensor_details()}
    types = {
        detail["index"]: np.dtype(detail["dtype"]).name
        for detail in interpreter.get_tensor_details()
    }
    for step in interpreter._get_ops_details():  # noqa: SLF001 - its only list of operators
        place = step["inputs"][0]
        if (
            step["op_name"] == "SOFTMAX"
            and types[place] == "int8"
            and shapes[place][-1] > _LONGEST_SOFTMAX
        ):
            found = (
                f"SOFTMAX over {shapes[place][-1]} elements, which ends the process where Σ exp "
                "exceeds 512"
            )
            raise _refusal(backend, graph, found)


def _refusal(backend: LitertBackend, graph: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        f"Preparing '{graph}' on '{backend.name}'",
        found=" ".join(found.split())[:300],
        expected="a file that LiteRT runs",
        remedy="Choose another backend for this model.",
    )


def _fits(written: Written, shapes: Mapping[str, Shape]) -> bool:
    """Whether the file takes inputs of these shapes: those that it was written for, or another
    batch of them.
    """
    return all(
        len(shape) == len(written.shapes[name])
        and shape[1:] == written.shapes[name][1:]
        and (written.free or shape[:1] == written.shapes[name][:1])
        for name, shape in shapes.items()
    )


def _engine(backend: str) -> Any:  # noqa: ANN401 - a module without types
    with importing_engine(extra="litert", backend=backend):
        from ai_edge_litert import interpreter
    return interpreter

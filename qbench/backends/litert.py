"""LiteRT on the CPU: a graph written as a TFLite file, run by one of the engine's three sets of kernels.

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

from qbench.backends.protocol import Array, Closing, Executed, Executor, FeedCheck, Feeds, batch_refusal, loaded
from qbench.backends.tflite_file import Shape, Written
from qbench.backends.tflite_writer import free_axes, write_tflite
from qbench.errors import UnavailableError, UnsupportedError, require_count
from qbench.graph import Capabilities, Form

_KERNELS = MappingProxyType(
    {
        "reference": ("BUILTIN_REF", "gemmlowp"),
        "builtin": ("BUILTIN_WITHOUT_DEFAULT_DELEGATES", "litert-x64"),
        "xnnpack": ("BUILTIN", "xnnpack"),
    }
)
"""A set of kernels → LiteRT's name of its resolver, and the arithmetic by which it counts on x64."""
_LONGEST_SOFTMAX = 512
"""Elements: beyond this sum of exponentials the reference kernel ends the process (12 integer bits, softmax.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LitertBackend:
    """One set of kernels of LiteRT.

    Args:
        kernels: ``reference``, ``builtin`` or ``xnnpack``.
    """

    kernels: str
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(
            forms=frozenset({Form.FLOAT, Form.QDQ, Form.QOPERATOR}),
            weight_qtypes=frozenset({"int4", "int8"}),
            integer_products=frozenset(product(("int8", "uint8"), ("int4", "int8"))),
            requantized_products=frozenset({"Conv", "Gemm", "MatMul"}),  # no integer kernel has a float result
        )
    )
    packages: tuple[str, ...] = ("ai-edge-litert",)

    @property
    def name(self) -> str:
        """``litert-`` and the kernels."""
        return f"litert-{self.kernels}"

    @property
    def arithmetic(self) -> str:
        """That of its kernels on x64, the same for every class of processor."""
        return _KERNELS[self.kernels][1]

    def prepare(self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1) -> Executor:
        """An interpreter over the TFLite file of ``model``; taps are values of the lowered graph and change nothing.

        Raises:
            InputError: not an ONNX model, an invalid graph, or a tap that names no value.
            UnsupportedError: TFLite has no operator for a node, or LiteRT refuses the file.
            UnavailableError: LiteRT is not installed.
        """
        require_count(f"Preparing a model on '{self.name}'", "threads", threads)
        _engine()
        graph = loaded(model)
        executor = _LitertExecutor(self, graph, tuple(taps), threads)
        if not free_axes(graph):
            executor.prepare({})
        return executor


class _LitertExecutor(Closing):
    """The interpreter for batches of one shape; another shape gets a new one."""

    def __init__(self, backend: LitertBackend, model: ir.Model, taps: tuple[str, ...], threads: int) -> None:
        self._backend = backend
        self._model: ir.Model | None = model
        self._taps = taps
        self._threads = threads
        self._check = FeedCheck.of(model, backend.name)
        self._written: Written | None = None
        self._interpreter: Any = None
        self._shapes: Mapping[str, Shape] = {}

    def prepare(self, shapes: Mapping[str, Shape]) -> None:
        """Make the interpreter for inputs of these ``shapes``; empty: those that the model declares.

        Raises:
            UnsupportedError: TFLite has no operator for a node, or LiteRT refuses the file.
        """
        assert self._model is not None
        if self._written is None or (shapes and not _fits(self._written, shapes)):
            self._written = write_tflite(self._model, shapes=shapes, taps=self._taps, backend=self._backend.name)
        written = self._written
        resolver = _engine().OpResolverType[_KERNELS[self._backend.kernels][0]]
        try:
            interpreter = _engine().Interpreter(
                model_content=written.data, experimental_op_resolver_type=resolver, num_threads=self._threads
            )
            for detail, name in zip(interpreter.get_input_details(), written.inputs, strict=True):
                if name in shapes and shapes[name] != written.shapes[name]:
                    interpreter.resize_tensor_input(detail["index"], shapes[name])
            self._require_no_abort(interpreter)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise self._refusal(" ".join(str(error).split())[:300]) from error
        self._interpreter, self._shapes = interpreter, dict(shapes or written.shapes)

    def _require_no_abort(self, interpreter: Any) -> None:  # noqa: ANN401 - a module without types
        if self._backend.kernels != "reference":
            return
        shapes = {detail["index"]: detail["shape"] for detail in interpreter.get_tensor_details()}
        types = {detail["index"]: np.dtype(detail["dtype"]).name for detail in interpreter.get_tensor_details()}
        for step in interpreter._get_ops_details():  # noqa: SLF001 - its only list of operators
            place = step["inputs"][0]
            if step["op_name"] == "SOFTMAX" and types[place] == "int8" and shapes[place][-1] > _LONGEST_SOFTMAX:
                raise self._refusal(
                    f"SOFTMAX over {shapes[place][-1]} elements, which ends the process where Σ exp exceeds 512"
                )

    def _refusal(self, found: str) -> UnsupportedError:
        return UnsupportedError(
            f"Preparing '{self._check.graph}' on '{self._backend.name}'",
            found=found,
            expected="a file that LiteRT runs",
            remedy="Choose another backend for this model.",
        )

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch: input name → array, to output or tap name → array.

        Raises:
            InputError: an input does not fit the graph, or the batch as a whole does not.
            UnsupportedError: TFLite has no operator for a node at these shapes.
        """
        if self._model is None:
            raise RuntimeError(f"this executor of '{self._backend.name}' was closed")
        arrays = self._check.checked(feeds)
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
            raise batch_refusal(str(error), graph=self._check.graph, backend=self._backend.name) from error
        details = interpreter.get_output_details()
        found = {
            name: interpreter.get_tensor(detail["index"]) for name, detail in zip(written.outputs, details, strict=True)
        }
        return {name: np.asarray(array) for name, array in found.items()}

    def executed(self) -> Mapping[str, Executed]:
        """Node of the lowered graph → the type of its first operand in the interpreter's plan."""
        if self._interpreter is None or self._written is None:
            return {}
        steps = self._interpreter._get_ops_details()  # noqa: SLF001 - its only list of operators
        found = {}
        for node, step in zip(self._written.nodes, steps, strict=False):  # a delegate comes behind them
            if node:
                found[node] = Executed(np.dtype(step["operand_types"][0]).name, "cpu")
        return found

    def close(self) -> None:
        """Release the interpreter."""
        self._interpreter, self._written, self._model = None, None, None


def _fits(written: Written, shapes: Mapping[str, Shape]) -> bool:
    """Whether the file takes inputs of these shapes: those that it was written for, or another batch of them."""
    return all(
        len(shape) == len(written.shapes[name])
        and shape[1:] == written.shapes[name][1:]
        and (written.free or shape[:1] == written.shapes[name][:1])
        for name, shape in shapes.items()
    )


def _engine() -> Any:  # noqa: ANN401 - a module without types
    try:
        from ai_edge_litert import interpreter
    except ImportError as error:
        raise UnavailableError(
            "Preparing a model on LiteRT",
            found=str(error),
            expected="the package ai-edge-litert",
            remedy="Install it: pip install 'pytest-qbench[litert]'.",
        ) from error
    return interpreter

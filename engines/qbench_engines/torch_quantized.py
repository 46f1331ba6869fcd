"""torch-fbgemm, torch-qnnpack, torch-onednn: the operator form by PyTorch's quantized
operators, node by node.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
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
    executed_as_written,
    importing_engine,
    loaded,
    with_taps,
)
from qbench.errors import UnsupportedError, require_count
from qbench.extension import install_command
from qbench.graph import (
    Capabilities,
    Form,
    constant_value,
    form_of,
    node_key,
    origin_of,
)
from qbench.host import has_amx, processor_class
from qbench.interpreter import BatchError, KernelContext, best_means
from qbench.numerics import get_arithmetic
from qbench.passes import Target, lower_to_integers
from qbench_engines.torch_kernels import QUANTIZED, Making, Run, TorchQParams, make_torch_kernel

PREFIX = "torch-"
ENGINES = ("fbgemm", "qnnpack", "onednn")
"""Names of PyTorch's quantized engines, and of the arithmetics that repeat them."""

_TARGET = Target(frozenset(QUANTIZED), any_qparams=True)
"""What PyTorch has quantized operators for; anything else stays float between DequantizeLinear
and QuantizeLinear.
"""
_CAPABILITIES = Capabilities(
    forms=frozenset({Form.QDQ, Form.QOPERATOR}),
    activation_qtypes=frozenset({"uint8"}),
    weight_qtypes=frozenset({"int8"}),
    batched_per_channel=False,
    blocks_of_vectors=False,
    integer_products=frozenset({("uint8", "int8")}),
    # no operator has a float result
    requantized_products=frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"}),
)
_VNNI = "x64-avx512-vnni"


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBackend:
    """PyTorch's quantized operators under one engine, on the CPU.

    Float operators between quantized ones run in float PyTorch where ``torch_kernels.FLOATS`` has
    them, else by the kernels of the ``onnx`` package. An operator of the QOperator form that
    PyTorch lacks is refused.

    Args:
        engine: of ``torch.backends.quantized``, one of ``ENGINES``.
        hang_s: as of ``MayCrash``.
    """

    engine: str
    capabilities: Capabilities = field(default_factory=lambda: _CAPABILITIES)
    packages: tuple[str, ...] = ("torch",)
    hang_s: float = HANG_S

    @property
    def name(self) -> str:
        """``torch-`` and the engine's name."""
        return PREFIX + self.engine

    @property
    def arithmetic(self) -> str | None:
        """That of the engine on this processor; None where it is not known.

        FBGEMM multiplies without saturation with AVX-512 VNNI only; oneDNN is known on such
        processors only, and not with AMX: by the size of the batch it chooses kernels that
        multiply the scales of data and weights first.
        """
        processor = processor_class()
        if not processor.startswith("x64-") or self.unusual_kernels:
            return None
        if self.engine == "qnnpack" or processor == _VNNI:
            return self.engine
        return "fbgemm-avx2" if self.engine == "fbgemm" and processor != "x64-sse" else None

    @property
    def unusual_kernels(self) -> dict[str, str]:
        """``onednn``: ``amx``, for that engine where the processor has it."""
        return {"onednn": "amx"} if self.engine == "onednn" and has_amx() else {}

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """The lowered ``model`` with its weights packed; taps on values that lowering removes
        keep operators float.

        Raises:
            InputError: not an ONNX model, or a tap that names no value of it.
            UnsupportedError: a float graph, an operator that the engine does not have, or torch
                built without it.
            NotFetchedError: torch is not installed.
        """
        require_count(f"Preparing a model on '{self.name}'", "threads", threads)
        torch = _torch(self.engine)
        graph = loaded(model)
        if form_of(graph) is Form.FLOAT:
            raise UnsupportedError(
                f"Preparing '{graph.graph.name}' on '{self.name}'",
                found="a float graph",
                expected=(
                    "a quantized graph: this backend runs products of uint8 activations and int8 "
                    "weights"
                ),
                remedy="Choose a schema with unsigned activations ('qbench quantize --why' says "
                "why slots stay float), or a float backend.",
            )
        lowered = lower_to_integers(graph, _TARGET)
        computed = {value.name for node in lowered.graph for value in node.outputs}
        if not computed.issuperset(taps):
            lowered = lower_to_integers(with_taps(graph, taps), _TARGET)
        with _set_up(torch, self.engine, threads):
            program = _Program(torch, lowered, self.arithmetic or self.engine, taps, self.name)
        return _TorchExecutor(program, FeedCheck.of(lowered, self.name), self.engine, threads)


def _torch(engine: str) -> Any:  # noqa: ANN401 - a module without types
    with importing_engine(extra="torch", backend=PREFIX + engine):
        import torch

        with warnings.catch_warnings():
            # PyTorch warns once a process: of these operators' future, and of arrays
            warnings.simplefilter("ignore")
            nothing = np.zeros(1, np.float32)
            nothing.flags.writeable = False
            torch.quantize_per_tensor(torch.from_numpy(nothing), 1.0, 0, torch.quint8)
        supported = torch.backends.quantized.supported_engines
    if engine not in supported:
        raise UnsupportedError(
            f"Preparing a model on '{PREFIX}{engine}'",
            found=f"torch {torch.__version__} with the engines {', '.join(supported)}",
            expected=f"the engine {engine}",
            remedy=(f"Install the package torch for this processor: {install_command('torch')}."),
        )
    return torch


@contextmanager
def _set_up(torch: Any, engine: str, threads: int) -> Iterator[None]:  # noqa: ANN401 - a module without types
    """PyTorch with this engine and number of threads, which are settings of the process;
    restored afterwards.
    """
    quantized = torch.backends.quantized
    before = torch.backends.quantized.engine
    count = torch.get_num_threads()
    if before != engine:
        quantized.engine = engine
    if count != threads:
        torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            yield
    finally:
        if before != engine:
            quantized.engine = before
        if count != threads:
            torch.set_num_threads(count)


# A graph compiled to steps.


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A kernel, the places it reads with what brings each to its form, those it writes, and
    those read no more.
    """

    node: str
    run: Run
    reads: tuple[tuple[int, Run | None], ...]
    writes: tuple[int, ...]
    empties: tuple[int, ...]


class _Program:
    """The steps of a lowered graph.

    Raises:
        UnsupportedError: an operator that PyTorch and the float kernels lack, with its reason.
    """

    def __init__(
        self,
        torch: Any,  # noqa: ANN401
        lowered: ir.Model,
        arithmetic: str,
        taps: Sequence[str],
        backend: str,
    ) -> None:
        self.torch, self._graph, self._backend = torch, lowered.graph.name or "model", backend
        self._engine = backend.removeprefix(PREFIX)
        self._rules = get_arithmetic(arithmetic)
        self._qparams: dict[ir.Value, TorchQParams] = {}
        self._places: dict[ir.Value, int] = {}
        self._constants: dict[int, Any] = {}
        self.executed: dict[str, Executed] = executed_as_written(lowered, "cpu")
        self.inputs = {value.name or "": self._place(value) for value in lowered.graph.inputs}
        steps = [step for node in lowered.graph if (step := self._step(node)) is not None]
        values = {
            v.name or "": v
            for v in (*lowered.graph.inputs, *(v for n in lowered.graph for v in n.outputs))
        }
        wanted = {value.name or "": value for value in lowered.graph.outputs} | {
            name: values[name] for name in taps
        }
        for value in wanted.values():
            self._hold_constant(value)
        self.outputs = {name: (self._place(v), self._bring(v, None)) for name, v in wanted.items()}
        self.steps = _with_ends(
            steps, {place for place, _ in self.outputs.values()} | set(self._constants)
        )
        # whose keys hold the graph, and with it a second copy of the weights
        self._qparams, self._places = {}, {}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One batch.

        Raises:
            BatchError: a node that cannot compute it.
        """
        held: dict[int, Any] = dict(self._constants)
        held.update((self.inputs[name], array) for name, array in feeds.items())
        for step in self.steps:
            try:
                _run(step, held)
            except (RuntimeError, ValueError, IndexError) as error:
                raise BatchError(f"{_sentence(error)} at '{step.node}'") from error
            for place in step.empties:
                held.pop(place, None)
        found = {
            name: held[place] if bring is None else bring(held[place])
            for name, (place, bring) in self.outputs.items()
        }
        return {name: np.asarray(array, order="C") for name, array in found.items()}

    def _step(self, node: ir.Node) -> _Step | None:
        try:
            return self._made(node)
        except (ValueError, RuntimeError) as error:
            raise UnsupportedError(
                f"Preparing '{self._graph}' on '{self._backend}'",
                found=f"'{node_key(node)}' ({node.op_type}): {_sentence(error)}",
                expected=(
                    f"operators that torch {self.torch.__version__} runs with the engine "
                    f"{self._engine}"
                ),
                remedy="Keep the node in float, or choose another backend.",
            ) from error

    def _made(self, node: ir.Node) -> _Step | None:
        """The step of ``node``; None where it only computes constants, which is done now."""
        key, context = node_key(node), KernelContext(node, self._rules, best_means())
        kernel = make_torch_kernel(Making(self.torch, context, self._qparams))
        if kernel.precision:
            names = {key, origin_of(node)} & self.executed.keys()
            self.executed.update(dict.fromkeys(names, Executed(kernel.precision, "cpu")))
        reads = []
        for index, qparams in kernel.operands:
            value = node.inputs[index]
            assert value is not None
            self._hold_constant(value)
            reads.append((self._place(value), self._bring(value, qparams)))
        if kernel.result is not None:
            self._qparams[node.outputs[0]] = kernel.result
        step = _Step(
            key, kernel.run, tuple(reads), tuple(self._place(value) for value in node.outputs), ()
        )
        if reads and not all(place in self._constants for place, _ in reads):
            return step
        _run(step, self._constants)
        return None

    def _place(self, value: ir.Value) -> int:
        return self._places.setdefault(value, len(self._places))

    def _hold_constant(self, value: ir.Value) -> None:
        place = self._place(value)
        if place not in self._constants and value.producer() is None and not value.is_graph_input():
            array = constant_value(value)
            if array is not None:
                self._constants[place] = array

    def _bring(self, value: ir.Value, qparams: TorchQParams | None) -> Run | None:
        """What makes of ``value``, as it is held, a tensor on ``qparams`` or an array; None where
        it is that already.
        """
        torch, held = self.torch, self._qparams.get(value)
        if held == qparams:
            return None
        if qparams is None:
            return lambda one: one.int_repr().numpy()
        make, scale, zero = torch._make_per_tensor_quantized_tensor, *qparams.target  # noqa: SLF001 - PyTorch's only way
        if held is None:
            return lambda one: make(torch.from_numpy(np.asarray(one)), scale, zero)
        return lambda one: make(one.int_repr(), scale, zero)


def _run(step: _Step, held: dict[int, Any]) -> None:
    results = step.run(
        *(held[place] if bring is None else bring(held[place]) for place, bring in step.reads)
    )
    if len(step.writes) == 1:
        held[step.writes[0]] = results
    else:
        held.update(zip(step.writes, results, strict=False))


def _sentence(error: Exception) -> str:
    """The first line of PyTorch's messages; the rest is a trace of its own functions."""
    return " ".join(str(error).split("\nException raised from")[0].split())[:300]


def _with_ends(steps: Sequence[_Step], kept: set[int]) -> tuple[_Step, ...]:
    """Steps that know which places they empty: those read or written for the last time, unless
    ``kept``.
    """
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        last.update(dict.fromkeys((*(place for place, _ in step.reads), *step.writes), index))
    empties: dict[int, list[int]] = {}
    for place, index in last.items():
        if place not in kept:
            empties.setdefault(index, []).append(place)
    return tuple(
        _Step(step.node, step.run, step.reads, step.writes, tuple(empties.get(index, ())))
        for index, step in enumerate(steps)
    )


class _TorchExecutor(EngineExecutor[_Program]):
    """The executor of one program."""

    def __init__(self, program: _Program, check: FeedCheck, engine: str, threads: int) -> None:
        super().__init__(program, check)
        self._executed = program.executed
        self._engine, self._threads = engine, threads

    def _answer(self, held: _Program, arrays: dict[str, Array]) -> dict[str, Array]:
        try:
            with _set_up(held.torch, self._engine, self._threads):
                return held.run(arrays)
        except BatchError as error:
            raise self._refusal(str(error)) from error

    def executed(self) -> Mapping[str, Executed]:
        """Every node of the lowered graph, ``float32`` where it is computed between
        dequantizing and quantizing.
        """
        return dict(self._executed)

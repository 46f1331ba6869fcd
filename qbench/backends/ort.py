"""ONNX Runtime on the CPU: one session per prepared model, deterministic."""

import enum
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from qbench.backends.block_products import ATTRIBUTE, OPERATOR, ROUNDING, rounds_data
from qbench.backends.execution import INTEGER_PRODUCTS, EngineExecutor, executed_as_written
from qbench.backends.feeds import FeedCheck, loaded, with_taps
from qbench.backends.ort_patterns import (
    miscomputed,
    notes,
    quantizes_floats,
    with_float_scales,
    with_kept_relus,
)
from qbench.backends.protocol import Array, EngineNote, Executed, Executor, Miscomputed
from qbench.backends.refusals import refusal
from qbench.errors import QbenchError, UnavailableError, require_count
from qbench.graph import (
    MESSAGE_LIMIT,
    Capabilities,
    Form,
    constant_bytes,
    input_at,
    model_bytes,
    node_key,
    origin_of,
    own_copy,
    save_model,
)
from qbench.host import processor_class
from qbench.passes import NameScope

if TYPE_CHECKING:
    import onnxruntime


# A workaround for optimized sessions of ONNX Runtime: a Q/DQ pair after every operator that only
# moves int8 values.
#
# After such an operator (Transpose, Reshape, …) the optimizer adds the missing Q/DQ pair. It writes
# the type of an int8 pair as an attribute, as opset 21 allows, and later changes the zero point to
# uint8 but not the attribute. Then loading fails with "output_dtype INT8 does not match
# y_zero_point type UINT8" (onnxruntime 1.31.1; uint8 and int16 codes, and models before opset 21,
# work). A pair with the same qparams changes no value, so it is written here.

_MOVERS = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def with_int8_pairs(model: ir.Model) -> ir.Model:
    """``model`` itself, or a copy in which every operator that moves int8 values has a Q/DQ
    pair after it.
    """
    if not any(_is_open(node) for node in model.graph):
        return model
    copy = own_copy(model)
    names, nodes = NameScope.of_values(copy), NameScope.of_nodes(copy)
    for node in list(copy.graph):  # in order: the pair after one mover is before the next
        if _is_open(node):
            _close(copy.graph, node, names, nodes)
    return copy


def _is_open(node: ir.Node) -> bool:
    """Whether ``node`` moves int8 values, and its result is not quantized."""
    if node.op_type not in _MOVERS or node.domain or node.inputs[0] is None:
        return False
    maker = node.inputs[0].producer()
    if maker is None or maker.op_type != "DequantizeLinear" or maker.domain:
        return False
    codes, scale = maker.inputs[0], maker.inputs[1]
    of_int8 = codes is not None and (codes.dtype is ir.DataType.INT8 or _zero_point_is_int8(maker))
    whole = scale is not None and scale.shape is not None and scale.shape.dims in ((), (1,))
    return (
        of_int8
        and whole
        and not any(use.op_type == "QuantizeLinear" for use, _ in node.outputs[0].uses())
    )


def _zero_point_is_int8(node: ir.Node) -> bool:
    zero_point = input_at(node, 2)
    return zero_point is not None and zero_point.dtype is ir.DataType.INT8


def _close(graph: ir.Graph, node: ir.Node, names: NameScope, nodes: NameScope) -> None:
    source, moved = node.inputs[0], node.outputs[0]
    maker = source.producer() if source is not None else None
    assert maker is not None
    name = str(moved.name)
    qparams = maker.inputs[1:]
    quantizer = ir.node(
        "QuantizeLinear",
        [moved, *qparams],
        name=nodes.fresh(f"{node.name}_levels"),  # stored name
        outputs=[
            ir.val(names.fresh(f"{name}_levels"), ir.DataType.INT8, moved.shape)
        ],  # stored name
    )
    closed = ir.val(name, moved.dtype, moved.shape)
    dequantizer = ir.node(
        "DequantizeLinear",
        [quantizer.outputs[0], *qparams],
        name=nodes.fresh(f"{node.name}_closed"),
        outputs=[closed],
    )
    moved.replace_all_uses_with(closed, replace_graph_outputs=True)
    quantizer.replace_input_with(0, moved)
    moved.name = names.fresh(f"{name}_moved")
    graph.insert_after(node, [quantizer, dequantizer])


# A workaround for the precise mode of ONNX Runtime: one initializer per use of integer weights and
# their zero points.
#
# Where pairs could saturate, that mode rewrites int8 weights and their zero points as uint8, under
# names derived from the old ones. For an initializer with two uses the name clashes, and loading
# fails with "Attempt to replace the existing tensor" (onnxruntime 1.31.1). The copies change no
# number.

_WEIGHT, _ZERO_POINT = 0, 2


def unshared(model: ir.Model) -> ir.Model:
    """``model`` itself, or a copy in which no dequantized constant shares its integers or its
    zero point.
    """
    if not any(_shared(node, index) for node in model.graph for index in (_WEIGHT, _ZERO_POINT)):
        return model
    copy = own_copy(model)
    names = NameScope.of_values(copy)
    for node in copy.graph:
        for index in (_WEIGHT, _ZERO_POINT):
            if _shared(node, index):
                _give_own(copy.graph, node, index, names)
    return copy


def _shared(node: ir.Node, index: int) -> bool:
    if node.op_type != "DequantizeLinear" or node.domain or index >= len(node.inputs):
        return False
    weight, value = node.inputs[_WEIGHT], node.inputs[index]
    return (
        weight is not None
        and weight.is_initializer()
        and weight.dtype is ir.DataType.INT8
        and value is not None
        and value.is_initializer()
        and len(value.uses()) > 1
    )


def _give_own(graph: ir.Graph, node: ir.Node, index: int, names: NameScope) -> None:
    value = node.inputs[index]
    assert value is not None
    own = ir.val(
        names.fresh(str(value.name)), value.dtype, value.shape, const_value=value.const_value
    )
    graph.register_initializer(own)
    node.replace_input_with(index, own)


class Level(enum.Enum):
    """Levels of graph optimization (``GraphOptimizationLevel``); each includes those before it."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    LAYOUT = "layout"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """The graph optimizations of one session.

    Args:
        level: of the optimizations.
        without: optimizers and rules that are disabled, by the engine's names; it ignores unknown
            names (``session_optimizers`` lists those that it has).
        kept: file for the optimized graph; None: it is not written.
        logged: whether the engine logs on standard error which optimizers changed the graph.
    """

    level: Level = Level.ALL
    without: frozenset[str] = frozenset()
    kept: Path | None = None
    logged: bool = False


# There are four backends of one engine, because its results depend on its options: with all graph
# optimizations (QDQ becomes integer kernels), with none (each QDQ pair is computed in float), with
# all of them in the precise x64 mode, which prevents u8×s8 dot products from saturating in pairs of
# 16 bits on processors without VNNI, and as a session has it whose user sets nothing, which rounds
# real data to 8 bits before products with dequantized weights.

_FATAL_ONLY = 4
"""Log level: errors are raised anyway, and then reported once."""
_EVERYTHING = 0
"""Log level: the changes of each optimizer, and much else."""
_LEVELS = {
    Level.NONE: "ORT_DISABLE_ALL",
    Level.BASIC: "ORT_ENABLE_BASIC",
    Level.EXTENDED: "ORT_ENABLE_EXTENDED",
    Level.LAYOUT: "ORT_ENABLE_LAYOUT",
    Level.ALL: "ORT_ENABLE_ALL",
}
_QUIET = {
    # Spinning threads take the cores that other workers of the same run need; no number depends on
    # it.
    "session.intra_op.allow_spinning": "0",
    "session.inter_op.allow_spinning": "0",
}
_ENTRIES = {
    # Its default would round float activations to 8 bits before products with dequantized weights.
    "session.qdq_matmulnbits_accuracy_level": "0",
}
_PROVIDERS = ("CPUExecutionProvider",)
_UNFUSED = frozenset({Level.NONE, Level.BASIC})
"""Levels of optimization at which Q/DQ pairs stay around every operator, so it is computed in
float32.
"""
_FLOAT8 = frozenset({"float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"})
"""Dequantized, and computed in float32; it has no kernel of float6, of float4 or of e8m0 scales."""
_CAPABILITIES = Capabilities(
    activation_qtypes=frozenset({"int8", "uint8", "int16", "uint16"}) | _FLOAT8,
    weight_qtypes=frozenset({"int4", "uint4", "int8", "uint8", "int16", "uint16"}) | _FLOAT8,
    weight_per_block=True,
    # QLinearMatMul, MatMulIntegerToFloat and DynamicQuantizeMatMul fail at run time;
    # DequantizeLinear refuses both.
    batched_per_channel=False,
    blocks_of_vectors=False,
    integer_products=frozenset({("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")}),
    float_products=frozenset({"ConvTranspose"}),
    # QGemm and MatMulIntegerToFloat have float results, QLinearConv has not
    requantized_products=frozenset({"Conv"}),
    dynamic=True,
    # DynamicQuantizeMatMul, of constant weights, and QGemm, whose bias has to be quantized.
    dynamic_products=frozenset({("Gemm", 1), ("MatMul", 1)}),
    unbiased_dynamic_products=frozenset({"Gemm"}),
)
"""What every level of optimization loads and runs (1.31). Optimized sessions refuse sums of
activations per channel, although the operators alone have kernels.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrtBackend:
    """ONNX Runtime's CPU provider under one set of options.

    Args:
        name: its name in suites.
        optimization: the graph optimizations; all by default.
        precise: ``session.x64quantprecision``: exact u8×s8 sums on every x64 processor, slower.
        arena: whether a session keeps memory that it has used; of no use with many sessions.
        records: whether each session writes its optimized graph, so that ``executed`` needs no
            second session.
        defaults: whether it leaves settings that change numbers as the engine has them, and hands
            it the graph without workarounds, as a session of a user does.
    """

    name: str
    optimization: Optimization = field(default_factory=Optimization)
    precise: bool = False
    arena: bool = True
    records: bool = False
    defaults: bool = False
    capabilities: Capabilities = field(default_factory=lambda: _CAPABILITIES)
    packages: tuple[str, ...] = ("onnxruntime",)

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """A session over ``model``; ``taps`` become graph outputs before it is made.

        Taps on an optimized session disable fusions and so change other outputs.

        Raises:
            InputError: not an ONNX model, an invalid graph, or a tap that names no value of it.
            UnsupportedError: ONNX Runtime has no kernel or opset for it.
            UnavailableError: onnxruntime is not installed.
        """
        # ONNX Runtime takes 0 threads for one on each processor.
        require_count(f"Preparing a model on '{self.name}'", "threads", threads)
        runtime = _runtime()
        graph = loaded(model)
        fitted, check = self.fitted(graph, taps), FeedCheck.of(graph, self.name)
        if (
            self.records
            and self.optimization.level is not Level.NONE
            and constant_bytes(fitted) < MESSAGE_LIMIT
        ):
            session, found = self._recorded(runtime, fitted, threads)
            return _OrtExecutor(session, check, lambda: found)
        session = self._session(runtime, fitted, threads)
        return _OrtExecutor(session, check, partial(self._executed, model, taps))

    def _recorded(
        self,
        runtime: Any,  # noqa: ANN401 - a module without types
        fitted: ir.Model,
        threads: int,
    ) -> "tuple[onnxruntime.InferenceSession, dict[str, Executed]]":
        """A session over ``fitted``, and how it runs the nodes; the file of its optimized graph
        is removed again.
        """
        with tempfile.NamedTemporaryFile(prefix="qbench-", suffix=".onnx") as file:
            path = Path(file.name)
            keeping = replace(self, optimization=replace(self.optimization, kept=path))
            session = keeping._session(runtime, fitted, threads)  # noqa: SLF001 - a value of this class
            return session, executed_nodes(path, fitted)

    def _executed(self, model: ir.Model | Path | str, taps: Sequence[str]) -> dict[str, Executed]:
        """How the nodes of ``model`` run, by a further session."""
        fitted = self.fitted(loaded(model), taps)
        if self.optimization.level is Level.NONE:
            return executed_as_written(fitted, "cpu")
        return self._recorded(_runtime(), fitted, 1)[1]

    @property
    def arithmetic(self) -> str | None:
        """That of its integer kernels on this processor; ``ideal`` where no operator is fused
        into one.
        """
        if self.optimization.level in _UNFUSED:
            return "ideal"
        return fused_arithmetic(processor_class(), precise=self.precise)

    def unoptimized(self) -> "OrtBackend":
        """The same without graph optimizations."""
        if self.optimization.level is Level.NONE:
            return self
        return replace(self, optimization=replace(self.optimization, level=Level.NONE))

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels of ONNX Runtime's graph optimizations."""
        return tuple(level.value for level in Level)

    def at_level(self, level: str) -> "OrtBackend":
        """The same with every optimization of ``level``."""
        return replace(
            self, name=f"{self.name}-{level}", optimization=Optimization(level=Level(level))
        )

    def for_many_sessions(self) -> "OrtBackend":
        """The same without an arena."""
        return replace(self, arena=False)

    def recording(self) -> "OrtBackend":
        """The same with sessions that write their optimized graph; it has a second copy of the
        constants.
        """
        return replace(self, records=True)

    def fitted(self, model: ir.Model, taps: Sequence[str] = ()) -> ir.Model:
        """The model for a session: ``model`` with ``taps`` as outputs, and with workarounds for
        its optimizers.

        Raises:
            InputError: a tap names no value of it.
        """
        tapped = with_taps(model, taps)
        if self.defaults:
            return tapped
        if self.optimization.level is not Level.NONE:
            tapped = with_float_scales(with_kept_relus(with_int8_pairs(tapped)))
        return unshared(tapped) if self.precise else tapped

    def miscomputed(self, model: ir.Model) -> tuple[Miscomputed, ...]:
        """The nodes of ``model`` that a session of a user computes wrong; only the backend with
        its settings does so here.
        """
        return miscomputed(model)

    def notes(self, model: ir.Model) -> tuple[EngineNote, ...]:
        """What a session of a user does with ``model`` that its file does not say.

        Raises:
            InputError: an invalid Q or DQ.
        """
        return notes(model)

    @property
    def level_name(self) -> str:
        """The engine's name of its optimization level."""
        return _LEVELS[self.optimization.level]

    @property
    def session_entries(self) -> Mapping[str, str]:
        """The entries of a session's configuration."""
        if self.defaults:
            return _QUIET
        return _QUIET | _ENTRIES | ({"session.x64quantprecision": "1"} if self.precise else {})

    @property
    def _log_level(self) -> int:
        return _EVERYTHING if self.optimization.logged else _FATAL_ONLY

    def session_settings(self, threads: int) -> dict[str, object]:
        """The options of a session as plain values, for a session in another process."""
        return {
            "level": self.level_name,
            "threads": threads,
            "without": sorted(self.optimization.without),
            "entries": dict(self.session_entries),
            "log": self._log_level,
        }

    def _session(
        self,
        runtime: Any,  # noqa: ANN401
        model: ir.Model,
        threads: int,
    ) -> "onnxruntime.InferenceSession":
        options = self._options(runtime, threads)
        without = set(self.optimization.without)
        if not self.defaults and quantizes_floats(model):
            options.add_session_config_entry("session.disable_quant_qdq", "1")
            without.add("ClipQuantRewrite")
        given = {"providers": list(_PROVIDERS), "disabled_optimizers": without}
        try:
            if constant_bytes(model) < MESSAGE_LIMIT:
                return runtime.InferenceSession(model_bytes(model), options, **given)
            with tempfile.TemporaryDirectory(prefix="qbench-") as folder:
                path = Path(folder) / "model.onnx"
                save_model(model, path)
                return runtime.InferenceSession(os.fspath(path), options, **given)
        except QbenchError:
            raise
        except Exception as error:  # onnxruntime's exceptions share no public parent
            graph = model.graph.name or "model"
            raise refusal(
                type(error).__name__,
                str(error),
                graph=graph,
                backend=self.name,
                version=runtime.__version__,
            ) from error

    def _options(self, runtime: Any, threads: int) -> Any:  # noqa: ANN401 - a module without types
        options = runtime.SessionOptions()
        options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, self.level_name)
        if self.optimization.kept is not None:
            options.optimized_model_filepath = os.fspath(self.optimization.kept)
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = self._log_level
        options.use_deterministic_compute = not self.defaults
        options.enable_cpu_mem_arena = self.arena
        options.enable_mem_pattern = (
            False  # it keeps a plan per input shape: more memory, no less time
        )
        for name, value in self.session_entries.items():
            options.add_session_config_entry(name, value)
        return options


def fused_arithmetic(processor: str, *, precise: bool) -> str | None:
    """The arithmetic of ONNX Runtime's integer kernels on a ``processor`` of that class; None:
    not known.

    They sum u8 × s8 products exactly with VNNI or in precise mode (``ort-x64``), in pairs of 16
    bits on AVX2 without it (``ort-x64-avx2``), and exactly, but without fused multiply-adds, on
    older processors (``ort-x64-sse``).
    """
    if not processor.startswith("x64-"):
        return None
    if processor == "x64-sse":
        return "ort-x64-sse"
    return "ort-x64" if precise or processor.endswith("-vnni") else "ort-x64-avx2"


# How the nodes of a graph run, by the optimized graph that a session writes.
#
# The file has the fused nodes, with names that the engine made of the old ones, and hardly any
# types. A fused node is traced by its name, else by the first of its outputs that the prepared
# graph has too. Types follow from those of the constants: every operator on integers has a zero
# point of its result.

_MADE = re.compile(r"(?:_nchwc|_token_\d+|/MatMulAddFusion)+$")
"""What the engine appends to the name of the node that a new one replaces."""
_FUSED = "fused "
_QUANTIZES_ITSELF = frozenset({"DynamicQuantizeMatMul", "DynamicQuantizeLSTM"})
"""Operators that take floats and multiply integers, of the type of their weight."""
_RESULT_POINT = {"QuantizeLinear": 2, "QLinearConv": 7, "QLinearMatMul": 7, "QGemm": 8}
"""Operator → the input that is the zero point of its result."""


def executed_nodes(path: Path, prepared: ir.Model) -> dict[str, Executed]:
    """How the session that wrote the optimized graph at ``path`` runs the nodes of ``prepared``."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    nodes = list(ir.traversal.RecursiveGraphIterator(prepared.graph))
    origins = {node_key(node): origin_of(node) for node in nodes}
    makers = {
        str(value.name): node_key(node) for node in nodes for value in node.outputs if value.name
    }
    found: dict[str, Executed] = {}
    _collect(graph, {}, origins, makers, found)
    return found


def _collect(
    graph: Any,  # noqa: ANN401 - a message of onnx
    outside: Mapping[str, int],
    origins: Mapping[str, str],
    makers: Mapping[str, str],
    found: dict[str, Executed],
) -> None:
    """Add the nodes of ``graph`` and of the graphs inside it; ``outside``: value → type of the
    graphs around it.
    """
    types = dict(outside)
    types |= {
        value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)
    }
    types |= {constant.name: constant.data_type for constant in graph.initializer}
    for node in graph.node:
        # the first input of QLinearConcat is a scale
        read = node.input[1:] if node.op_type == "QLinearConcat" else node.input
        first = next((types.get(name, 0) for name in read if name), 0)
        computed = types.get(node.input[1], 0) if node.op_type in _QUANTIZES_ITSELF else first
        result = _result_type(node, types, first)
        types.update((name, result) for name in node.output if not types.get(name))
        key = _traced(node, origins, makers)
        how = Executed(ir.DataType(computed).numpy().name if computed else "", "cpu")
        if how.precision == "float32" and _rounds_data(node):
            how = Executed("int8", "cpu", rounds_data=True)
        found.setdefault(key, how)
        if node.op_type in INTEGER_PRODUCTS:
            found[origins.get(key, key)] = how
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _collect(inner, types, origins, makers, found)


def _rounds_data(node: Any) -> bool:  # noqa: ANN401 - a message of onnx
    """Whether ``node`` is a product with weights in blocks that rounds its data on this
    processor.
    """
    if node.op_type != OPERATOR:
        return False
    known = {one.name: one.i for one in node.attribute}
    return known.get(ATTRIBUTE) == ROUNDING and rounds_data(
        known.get("bits", 4), known["block_size"]
    )


def _result_type(node: Any, types: Mapping[str, int], first: int) -> int:  # noqa: ANN401 - a message of onnx
    """The type of the results of ``node``, whose first input has the type ``first``; 0: not
    known.
    """
    if node.op_type == "Cast":
        return int(next(one.i for one in node.attribute if one.name == "to"))
    if node.op_type in ("DynamicQuantizeLinear", "QuantizeLinear") and len(node.input) < 3:
        return int(ir.DataType.UINT8)
    if node.op_type == "DequantizeLinear":
        return types.get(node.input[1], 0)
    if node.op_type in _RESULT_POINT:
        at = _RESULT_POINT[node.op_type]
        point = node.input[at] if at < len(node.input) else ""
        return types.get(point, 0) if point else int(ir.DataType.FLOAT)
    if node.op_type == "MatMulIntegerToFloat":
        return int(ir.DataType.FLOAT)
    return int(ir.DataType.INT32) if node.op_type in ("MatMulInteger", "ConvInteger") else first


def _traced(node: Any, names: Mapping[str, str], makers: Mapping[str, str]) -> str:  # noqa: ANN401 - a message of onnx
    """The name of the prepared node that ``node`` stems from; the engine's own where that is
    not known.
    """
    for name in (node.name, _MADE.sub("", node.name.removeprefix(_FUSED))):
        if name in names:
            return name
    traced = next((makers[value] for value in node.output if value in makers), "")
    return traced or node.name or next(iter(node.output), "")


class _OrtExecutor(EngineExecutor["onnxruntime.InferenceSession"]):
    """The executor of one session; closing it frees the memory."""

    def __init__(
        self,
        session: "onnxruntime.InferenceSession",
        check: FeedCheck,
        executed: Callable[[], dict[str, Executed]],
    ) -> None:
        super().__init__(session, check)
        self._executed = executed
        self._outputs = [output.name for output in session.get_outputs()]

    def _answer(
        self, held: "onnxruntime.InferenceSession", arrays: dict[str, Array]
    ) -> dict[str, Array]:
        try:
            results = held.run(self._outputs, arrays)
        except Exception as error:  # onnxruntime's exceptions share no public parent
            raise self._refusal(str(error)) from error
        return dict(zip(self._outputs, results, strict=True))

    def executed(self) -> Mapping[str, Executed]:
        """The nodes of the optimized graph under the names of those that they stem from, on its
        only provider.
        """
        return self._executed()


def _runtime() -> Any:  # noqa: ANN401 - a module without types
    try:
        import onnxruntime
    except ImportError as error:
        raise UnavailableError(
            "Preparing a model on ONNX Runtime",
            found=str(error),
            expected="the package onnxruntime",
            remedy="Install it: pip install onnxruntime.",
        ) from error
    onnxruntime.disable_telemetry_events()
    return onnxruntime


_NAME = "ort-cpu-qoperator"
_FORMS = frozenset({Form.FLOAT, Form.QOPERATOR})


_LOWERED_DYNAMIC = frozenset({("Conv", 1), ("Gemm", 1), ("MatMul", 1)})
"""ConvInteger and MatMulInteger, of constant weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredOrtBackend:
    """ONNX Runtime's CPU provider on the QOperator form: qbench lowers a QDQ graph to
    QLinearConv and the like.

    The engine's lowering depends on its version and on the places of Q/DQ pairs; on integer
    operators its optimizations change no number. Float graphs run as they are. Signed activations
    run 20 times slower than unsigned ones on x64 (onnxruntime issue 12072).
    """

    name: str = _NAME
    engine: OrtBackend = field(default_factory=lambda: OrtBackend(name=_NAME))
    capabilities: Capabilities = field(
        default_factory=lambda: replace(
            _CAPABILITIES,
            forms=_FORMS,
            dynamic_products=_LOWERED_DYNAMIC,
            unbiased_dynamic_products=frozenset(),
        )
    )
    packages: tuple[str, ...] = ("onnxruntime",)

    @property
    def arithmetic(self) -> str | None:
        """That of the engine, which runs the same kernels."""
        return self.engine.arithmetic

    def prepare(
        self, model: ir.Model | Path | str, *, taps: Sequence[str] = (), threads: int = 1
    ) -> Executor:
        """A session over the lowered ``model``; a tapped operator stays float, since its result
        has another reader.

        Raises:
            What ``OrtBackend.prepare`` raises.
        """
        return self.engine.prepare(self.lowered(loaded(model), taps), threads=threads)

    def recording(self) -> "LoweredOrtBackend":
        """The same with an engine that is ``recording``."""
        return replace(self, engine=self.engine.recording())

    def lowered(self, model: ir.Model, taps: Sequence[str] = ()) -> ir.Model:
        """``model`` lowered to operators on integers, with ``taps`` as outputs.

        Raises:
            InputError: a tap names no value of it.
        """
        # imported here: this loads all lowerings, which the other backends here do not use
        from qbench.passes import lower_to_qoperator

        return lower_to_qoperator(with_taps(model, taps))


ORT_BACKENDS: Mapping[str, OrtBackend | LoweredOrtBackend] = {
    "ort-cpu": OrtBackend(name="ort-cpu"),
    "ort-cpu-noopt": OrtBackend(name="ort-cpu-noopt", optimization=Optimization(level=Level.NONE)),
    "ort-cpu-precise": OrtBackend(name="ort-cpu-precise", precise=True),
    "ort-cpu-default": OrtBackend(
        name="ort-cpu-default",
        defaults=True,
        capabilities=replace(_CAPABILITIES, rounds_data=True),
    ),
    _NAME: LoweredOrtBackend(),
}
"""The built-in backends of this engine, by name."""

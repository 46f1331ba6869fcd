"""Bias correction: what quantization moves the mean of a result by is taken off the bias."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import (
    Array,
    Backend,
    Closing,
    Executed,
    Executor,
    Feeds,
    executed_by,
    in_slices,
    isolated,
)
from qbench.calibration import Unit, units_of
from qbench.errors import InputError
from qbench.graph import (
    Kind,
    constant_value,
    float_attribute,
    is_constant,
    node_key,
    op_spec,
    read_entry,
)
from qbench.numerics import QParams
from qbench.quantization.internal_qparams import LIMIT, bias_qparams
from qbench.quantization.plan import Plan
from qbench.quantization.sample_adjustment import (
    Adjustment,
    counted,
    give_constant,
    samples_in,
)
from qbench.quantization.spec import Role, stored
from qbench.quantization.writing import NodeWriter, PairWriter
from qbench.working import working

# Moving a bias in a written graph: its integers where it is quantized, else its float numbers.
#
# integers    q := clip(q + round_half_even(δ / s))
#             in the type that the plan gave it; ±2³⁰ in 32 bits
# floats      b := b + δ
# none        q := round_half_even(δ / (s_x · s_w)), int32
#             where both scales are known beforehand; else a float bias

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BiasPlace:
    """The place of the bias of a unit.

    Args:
        unit: its name.
        node, index: the operand.
        behind_window: it is shaped [channels, 1, …] and not [.., channels].
        factor: what its node multiplies it with: β of a Gemm.
    """

    unit: str
    node: str
    index: int
    behind_window: bool = False
    factor: float = 1.0


def move_bias(model: ir.Model, node: ir.Node, place: BiasPlace, plan: Plan, shift: Doubles) -> int:
    """Add ``shift`` (float64, one per channel) to the bias at ``place``, which is an operand of
    ``node`` of ``model``.

    Returns:
        How many entries met the end of the range of their codes.
    """
    value = node.inputs[place.index] if place.index < len(node.inputs) else None
    change = shift / place.factor
    if value is None:
        return _create(model, node, place, plan, change)
    maker = value.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        array = constant_value(value)
        assert array is not None
        moved = array.astype(np.float64) + _shaped(change, array, place)
        give_constant(model, node, place.index, ir.tensor(moved.astype(array.dtype)), _MOVED)
        return 0
    integers = constant_value(maker.inputs[0])
    assert integers is not None
    assert maker.inputs[0] is not None
    planned = (
        q for s, q in plan.constants.items() if (s.node, s.index) == (place.node, place.index)
    )
    # that of a bias which an earlier correction made
    qparams = next(planned, None) or _product(place, plan)
    assert qparams is not None
    scale = _spread(qparams, integers.ndim)
    moved = integers.astype(np.float64) + np.rint(_shaped(change, integers, place) / scale)
    low, high = _ends(qparams)
    dtype = maker.inputs[0].dtype
    assert dtype is not None
    codes = stored(np.clip(moved, low, high).astype(np.int64), dtype)
    give_constant(model, maker, 0, codes, _MOVED)
    return int(np.count_nonzero((moved < low) | (moved > high)))


def _create(model: ir.Model, node: ir.Node, place: BiasPlace, plan: Plan, change: Doubles) -> int:
    """A bias that was not there."""
    if place.index >= len(node.inputs):
        node.resize_inputs(place.index + 1)
    qparams = _product(place, plan)
    saturated = 0
    if qparams is not None:
        low, high = _ends(qparams)
        codes = np.rint(change / qparams.scale)
        saturated = int(np.count_nonzero((codes < low) | (codes > high)))
        scale = qparams.scale.astype(np.float64)
        # the codes of the pair written below end at 2³¹
        change = np.clip(change, low * scale, high * scale)
    name = f"{place.unit}.bias"
    node.replace_input_with(
        place.index, NodeWriter(model).initializer(name, ir.tensor(change.astype(np.float32)))
    )
    if qparams is not None:
        writer = PairWriter(model)
        writer.constant(node, place.index, qparams)
        writer.drop_unused()
    return saturated


def _product(place: BiasPlace, plan: Plan) -> QParams | None:
    """The qparams of the products of the unit, where they are of int32 and known beforehand."""
    inputs = [
        plan.values.get(s.value)
        for s in plan.decisions
        if (s.node, s.role) == (place.unit, Role.INPUT)
    ]
    weights = [
        q for s, q in plan.constants.items() if (s.node, s.role) == (place.unit, Role.WEIGHT)
    ]
    first = inputs[0] if inputs else None
    if first is None or first.axis is not None or not weights or weights[0].block_size is not None:
        return None
    return bias_qparams(weights[0], float(first.scale), 0)


def _ends(qparams: QParams) -> tuple[float, float]:
    return max(qparams.qmin, -LIMIT), min(qparams.qmax, LIMIT)


def _shaped(change: Doubles, bias: npt.NDArray[np.generic], place: BiasPlace) -> Doubles:
    """``change`` in a form that is added to ``bias`` channel by channel."""
    return change.reshape(-1, *[1] * (bias.ndim - 1)) if place.behind_window else change


def _spread(qparams: QParams, rank: int) -> Doubles:
    """The scale in a form that broadcasts against a bias of ``rank`` dimensions."""
    scale = qparams.scale.astype(np.float64)
    if qparams.axis is None:
        return scale
    return np.asarray(scale.reshape([-1 if i == qparams.axis % rank else 1 for i in range(rank)]))


_MOVED = "corrected"


# Means of values over samples and positions, one per channel, summed in float64 batch by batch.
#
# E[v]_c = Σ over samples and positions of v_c / how many there were


class ChannelMeans:
    """The running means of one value; ``axis`` of it runs over channels."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._sums: Doubles | None = None
        self._count = 0

    def add(self, batch: Array) -> None:
        """Count in a batch of the value; the channels are the same in all batches."""
        kept = self._axis % batch.ndim
        sums = np.asarray(
            batch.sum(axis=tuple(i for i in range(batch.ndim) if i != kept), dtype=np.float64)
        )
        self._sums = sums if self._sums is None else self._sums + sums
        self._count += batch.size // max(batch.shape[kept], 1)

    @property
    def value(self) -> Doubles:
        """The means so far, shape [channels]; NaN while nothing was counted."""
        return (
            np.full(0, np.nan)
            if self._sums is None or not self._count
            else self._sums / self._count
        )


def channel_means(
    model: ir.Model,
    axes: Mapping[str, int],
    batches: Iterable[Feeds],
    backend: Backend,
    *,
    threads: int,
) -> tuple[dict[str, Doubles], list[dict[str, Array]]]:
    """The means of the values named in ``axes`` (name → axis of channels), and what the graph
    was fed.

    The feeds are ``batches``, or slices of them where the graph takes a fixed number of samples.

    Raises:
        QbenchError: what the backend raises.
    """
    means = {name: ChannelMeans(axis) for name, axis in axes.items()}
    with _Recording(
        isolated(backend).prepare(model, taps=tuple(axes), threads=threads), means
    ) as recording:
        runner = in_slices(recording, model)
        for feeds in batches:
            runner.run(feeds)
        return {name: mean.value for name, mean in means.items()}, recording.fed


class _Recording(Closing):
    """An executor that counts the means of its taps and remembers what it was fed."""

    def __init__(self, executor: Executor, means: Mapping[str, ChannelMeans]) -> None:
        self.fed: list[dict[str, Array]] = []
        self._executor = executor
        self._means = means

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch, of the size that the graph takes."""
        results = self._executor.run(feeds)
        for name, mean in self._means.items():
            mean.add(results[name])
        self.fed.append({name: np.asarray(array) for name, array in feeds.items()})
        return results

    def executed(self) -> Mapping[str, Executed]:
        """As the executor inside."""
        return executed_by(self._executor)

    def close(self) -> None:
        """Close the executor inside."""
        self._executor.close()


# Running a graph piece by piece: up to one node, then on to the next, while its constants may
# change in between.
#
# What a piece computed that later ones read is kept, batch by batch, as the integers behind a
# QuantizeLinear wherever there are some; a DequantizeLinear is computed anew for every piece that
# reads it. So each node runs once, the nodes that are asked for twice, and no more than a front of
# the graph is held in memory.

_PACKED_BITS = 8
"""Integers narrower than this do not leave an engine."""


class PartialRun:
    """The state of one such run.

    Args:
        model: the graph; constants of nodes that did not run yet may be changed by its owner.
        batches: what it is fed; held until nothing reads it any more.
        backend: runs the pieces.
        threads: of each of them.
    """

    def __init__(
        self, model: ir.Model, batches: Sequence[Feeds], backend: Backend, *, threads: int
    ) -> None:
        self._model = model
        self._backend = isolated(backend)
        self._threads = threads
        self._done: set[ir.Node] = set()
        self._known: dict[str, ir.Value] = {str(value.name): value for value in model.graph.inputs}
        self._front: list[dict[str, Array]] = [dict(feeds) for feeds in batches]

    def means(self, node: ir.Node, axis: int) -> Doubles:
        """The means of the first result of ``node`` over all batches, one per channel along
        ``axis``.

        What ``node`` depends on counts as done from now on; ``node`` itself runs again when later
        ones depend on it.

        Raises:
            QbenchError: what the backend raises.
        """
        nodes, read = self._piece(node)
        self._done |= {other for other in nodes if other is not node and not _is_cheap(other)}
        made = [
            v
            for other in nodes
            if other in self._done
            for v in other.outputs
            if v.name and self._is_wanted(v)
        ]
        result = node.outputs[0]
        graph = ir.convenience.extract(self._model.graph, read, [result, *made])
        means = ChannelMeans(axis)
        with self._backend.prepare(
            ir.Model(graph, ir_version=self._model.ir_version), threads=self._threads
        ) as run:
            for front in self._front:
                results = run.run({str(value.name): front[str(value.name)] for value in read})
                means.add(results[str(result.name)])
                front.update({str(value.name): results[str(value.name)] for value in made})
        self._known.update({str(value.name): value for value in made})
        self._forget()
        return means.value

    def _piece(self, node: ir.Node) -> tuple[list[ir.Node], list[ir.Value]]:
        """The nodes that ``node`` still needs to run, with itself, and the known values that
        they read.
        """
        nodes: dict[ir.Node, None] = {}
        read: dict[ir.Value, None] = {}
        waiting = [node]
        while waiting:
            current = waiting.pop()
            if current in nodes:
                continue
            nodes[current] = None
            for value in _operands(current):
                maker = value.producer()
                if self._known.get(str(value.name)) is value:
                    read[value] = None
                elif maker is not None:
                    waiting.append(maker)
            waiting.extend(
                use.node for value in current.outputs if _is_packed(value) for use in value.uses()
            )
        return list(nodes), list(read)

    def _is_wanted(self, value: ir.Value) -> bool:
        """Whether a node that has not run yet reads ``value``, or what is cheaply computed from
        it.
        """
        readers = (use.node for use in value.uses())
        return any(
            any(self._is_wanted(v) for v in node.outputs)
            if _is_cheap(node)
            else node not in self._done
            for node in readers
        )

    def _forget(self) -> None:
        for name in [name for name, value in self._known.items() if not self._is_wanted(value)]:
            del self._known[name]
            for front in self._front:
                front.pop(name, None)


def _is_cheap(node: ir.Node) -> bool:
    """Whether ``node`` is computed anew wherever it is read: its integers are a quarter of its
    result, or constant.
    """
    if node.domain or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return False
    return not _is_packed(node.inputs[0])


def _is_packed(value: ir.Value) -> bool:
    """Whether ``value`` cannot leave an engine, so that whatever reads it runs in the same
    piece.
    """
    return value.dtype is not None and value.dtype.bitwidth < _PACKED_BITS


def _operands(node: ir.Node) -> Iterator[ir.Value]:
    """What ``node`` reads from the graph that it is in, the graphs inside it too."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        inner: tuple[ir.Graph, ...] = ()
        if attribute.type == ir.AttributeType.GRAPH:
            inner = (attribute.as_graph(),)
        elif attribute.type == ir.AttributeType.GRAPHS:
            inner = tuple(attribute.as_graphs())
        for graph in inner:
            for node_inside in ir.traversal.RecursiveGraphIterator(graph):
                yield from (
                    v for v in node_inside.inputs if v is not None and v.graph is node.graph
                )


# Bias correction: what quantization moves the mean of a result by, on calibration samples, is taken
# off its bias.
#
#     b_c := b_c + E[y_c of the float graph] − E[y_c of the quantized graph]
#     c a channel, y before any clip
#
# Rounded weights are off by a constant amount each, so that their products are off on average, in
# depthwise filters of nine weights most of all. Units are corrected from front to back, and each is
# measured behind predecessors that are corrected already: else an error would be taken off again by
# everything that inherits it.
#
# Cost: one run of the float graph over the samples and two of the quantized one, a piece at a time
# (``partial_run``), whatever the number of units. Pieces run as float graphs, QDQ pairs and all, so
# that no engine's kernels matter.
#
# Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
# (arXiv 1906.04721), 4.2.

CORRECTED = "qbench.bias_correction"
"""Metadata key of a model whose biases were corrected: how many, on how many samples."""


@dataclass(frozen=True, slots=True)
class BiasCorrection:
    """What was corrected in a model.

    Args:
        biases: how many units have another bias now.
        samples: how many samples the means are of.
        saturated: entries that would have needed a code out of the range of their codes.
    """

    biases: int
    samples: int
    saturated: int = 0

    def __str__(self) -> str:
        ends = f", {self.saturated} entries at the end of their codes" if self.saturated else ""
        return f"{self.biases} biases corrected on {self.samples} samples{ends}"


@working("correcting biases")
def correct_biases(
    model: ir.Model,
    quantized: ir.Model,
    plan: Plan,
    batches: Iterable[Feeds],
    *,
    backend: Backend | None = None,
    threads: int = 1,
) -> ir.Model:
    """A copy of ``quantized`` with corrected biases; ``bias_correction_of`` tells what was done.

    Units whose weight is quantized are corrected: Conv, ConvTranspose, Gemm, and MatMul with a bias
    behind it. A bias that is computed stays; one that is not there is made, int32 at s_x · s_w
    where both are known beforehand.

    Args:
        model: the float graph (canonicalized here); not touched.
        quantized: what ``quantize_model(model, plan)`` gave; not touched.
        plan: that it was written from.
        batches: input name → array whose first axis runs over samples, batch by batch; held in
            memory meanwhile.
        backend: runs both graphs; None: ``ort-cpu-noopt``.
        threads: of the engine.

    Raises:
        InputError: no batches, a quantized model that is not of this plan, means that are not
            finite.
        QbenchError: what the backend raises.
    """
    start = Adjustment.of("Correcting the biases", (model, quantized), plan, batches, backend)
    copy, engine = start.copy, start.engine
    measured = list(_measured_units(start.canonical.graph, plan))
    axes = {str(unit.value.name): unit.axis for unit in measured}
    real, fed = channel_means(start.canonical, axes, start.feeds, engine, threads=threads)
    run = PartialRun(copy, fed, engine, threads=threads)
    moved = saturated = 0
    for unit in measured:
        node = start.nodes[unit.node]
        shift = _finite(real[str(unit.value.name)] - run.means(node, unit.axis), unit.place.unit)
        if np.any(shift):
            moved += 1
            saturated += move_bias(copy, node, unit.place, plan, shift)
    correction = BiasCorrection(moved, samples_in(fed), saturated)
    copy.metadata_props[CORRECTED] = json.dumps(
        [correction.biases, correction.samples, correction.saturated]
    )
    return copy


def bias_correction_of(model: ir.Model) -> BiasCorrection | None:
    """What ``correct_biases`` did to ``model``; None when it did nothing.

    Raises:
        InputError: the metadata are not as ``correct_biases`` writes them.
    """
    return read_entry(
        model.metadata_props, CORRECTED, f"the model '{model.graph.name}'", _correction
    )


def _correction(numbers: list[int]) -> BiasCorrection:
    return BiasCorrection(*counted(numbers))


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """A unit to correct: the node whose result is compared, its value in the float graph, and
    the place of the bias.
    """

    node: str
    value: ir.Value
    axis: int
    place: BiasPlace


def _measured_units(graph: ir.Graph, plan: Plan) -> Iterator[_Measured]:
    """In graph order."""
    weighted = {slot.node for slot in plan.constants if slot.role is Role.WEIGHT}
    for unit in units_of(graph):
        place = bias_place(unit) if unit.name in weighted else None
        if place is not None:
            maker = unit.bias or unit.head
            axis = 1 if op_spec(unit.head).kind is Kind.CONVOLUTION else -1
            yield _Measured(node_key(maker), maker.outputs[0], axis, place)


def bias_place(unit: Unit) -> BiasPlace | None:
    """The place of the bias of ``unit``, or of one to be added; None where it cannot have a
    constant bias.
    """
    head = unit.head
    if head.domain or op_spec(head).weight is None:
        return None
    operand = unit.bias_operand
    if operand is not None:
        node, index, value = operand
        behind = unit.bias is not None and op_spec(head).kind is Kind.CONVOLUTION
        factor = (
            float_attribute(head, "beta", 1.0)
            if head.op_type == "Gemm" and unit.bias is None
            else 1.0
        )
        known = is_constant(value) and factor != 0
        return BiasPlace(unit.name, node_key(node), index, behind, factor) if known else None
    if head.op_type == "MatMul":
        return None  # an Add behind it would keep engines from multiplying integers
    factor = float_attribute(head, "beta", 1.0) if head.op_type == "Gemm" else 1.0
    return BiasPlace(unit.name, unit.name, 2, factor=factor) if factor else None


def _finite(shift: Doubles, unit: str) -> Doubles:
    if np.isfinite(shift).all():
        return shift
    raise InputError(
        f"Correcting the bias of '{unit}'",
        found="results that are not finite on average",
        expected="finite results on the calibration samples",
        remedy="Look at the samples, or leave bias correction out.",
    )

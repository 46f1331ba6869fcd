"""Fitting the codes of weights, layer by layer, to what the float layers give on samples.

A layer is a Conv, a Gemm, or a MatMul by a constant of two axes, whose weight the plan quantizes.
Its inputs in the float graph are the x of ``rounding_fit``; scales and zero points stay as planned.
No layer waits for another, so that one run of the float graph serves as many layers as fit into
``_MEMORY``.

A bias takes the mean of an error off (``bias_correction``, which follows). So for a layer that has
one, or can be given one, H is the covariance E[(x − μ)(x − μ)ᵀ], and else E[x xᵀ].

Bounds: of one sample at most ``_POSITIONS`` windows are used, evenly spaced; a row of more than
``_WIDEST`` columns is fitted in parts, as if their inputs had no correlation.
"""

import itertools
import json
import math
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
    int_attribute,
    op_spec,
    read_entry,
    weight_summed_axis,
)
from qbench.interpreter import Windows
from qbench.numerics import QParams
from qbench.quantization.bias_correction import bias_place, correct_biases
from qbench.quantization.plan import Plan
from qbench.quantization.rounding_fit import Doubles, RoundingProblem
from qbench.quantization.sample_adjustment import (
    Adjustment,
    counted,
    give_constant,
    samples_in,
)
from qbench.quantization.spec import Role, Slot, stored
from qbench.working import working

FITTED = "qbench.weight_fit"
"""Metadata key of a model whose weights were fitted: how many, on how many samples, and how many
codes are not the nearest, of how many.
"""

_OPERATORS = frozenset({"Conv", "Gemm", "MatMul"})
_MEMORY = 1 << 28
"""Bytes of second moments that are held at once; a layer of more is fitted alone."""
_WIDEST = 2048
_POSITIONS = 4096


@dataclass(frozen=True, slots=True)
class WeightFit:
    """What was fitted in a model.

    Args:
        weights: how many layers.
        samples: how many samples their inputs are of.
        moved: codes that are not the nearest to their weight.
        codes: of all these layers.
    """

    weights: int
    samples: int
    moved: int
    codes: int

    def __str__(self) -> str:
        share = f"{100 * self.moved / max(self.codes, 1):.1f} %"
        return (
            f"{self.weights} weights fitted on {self.samples} samples, {share} of their codes not "
            "the nearest"
        )


@working("fitting weights")
def fit_weights(
    model: ir.Model,
    quantized: ir.Model,
    plan: Plan,
    batches: Iterable[Feeds],
    *,
    backend: Backend | None = None,
    threads: int = 1,
) -> ir.Model:
    """A copy of ``quantized`` with fitted codes of weights; ``weight_fit_of`` tells what was done.

    Layers of other operators keep the nearest codes. ``correct_biases`` should follow.

    Args:
        model: the float graph (canonicalized here); not touched.
        quantized: what ``quantize_model(model, plan)`` gave; not touched.
        plan: that it was written from.
        batches: input name → array whose first axis runs over samples, batch by batch; held in
            memory meanwhile.
        backend: runs the float graph; None: ``ort-cpu-noopt``.
        threads: of the engine.

    Raises:
        InputError: no batches, a quantized model that is not of this plan, inputs of a layer that
            are not finite.
        QbenchError: what the backend raises.
    """
    start = Adjustment.of("Fitting the weights", (model, quantized), plan, batches, backend)
    canonical, copy, nodes, feeds = start.canonical, start.copy, start.nodes, start.feeds
    layers = [layer for layer in _layers(canonical.graph, plan) if _is_own(layer, nodes)]
    moved = codes = 0
    for group in _groups(layers):
        for layer, moments in zip(
            group, _moments_of(canonical, group, feeds, start.engine, threads), strict=True
        ):
            nearest, fitted = layer.fitted(moments.value)
            moved += int(np.count_nonzero(nearest != fitted))
            codes += fitted.size
            maker = nodes[layer.slot.node].inputs[layer.slot.index]
            assert maker is not None
            dequantizer = maker.producer()
            assert dequantizer is not None
            old = dequantizer.inputs[0]
            assert old is not None
            assert old.dtype is not None
            tensor = stored(fitted.astype(np.int64), old.dtype)
            give_constant(copy, dequantizer, 0, tensor, "fitted")
    fit = WeightFit(len(layers), samples_in(feeds), moved, codes)
    copy.metadata_props[FITTED] = json.dumps([fit.weights, fit.samples, fit.moved, fit.codes])
    return copy


def adjusted_on_samples(
    model: ir.Model, quantized: ir.Model, plan: Plan, batches: Iterable[Feeds]
) -> ir.Model:
    """``quantized`` with what ``plan`` asks for once it is written: weights fitted, then biases
    corrected.

    Raises:
        QbenchError: as ``fit_weights`` and ``correct_biases``.
    """
    feeds = list(batches)
    if plan.fits_weights:
        quantized = fit_weights(model, quantized, plan, feeds)
    if plan.corrects_biases:
        quantized = correct_biases(model, quantized, plan, feeds)
    return quantized


def weight_fit_of(model: ir.Model) -> WeightFit | None:
    """What ``fit_weights`` did to ``model``; None when it did nothing.

    Raises:
        InputError: the metadata are not as ``fit_weights`` writes them.
    """
    return read_entry(model.metadata_props, FITTED, f"the model '{model.graph.name}'", _fit)


def _fit(numbers: list[int]) -> WeightFit:
    return WeightFit(*counted(numbers))


# Layers: the weight as rows, and the inputs that the rows are multiplied with.


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A weight that is fitted: ``data`` is the value that it is multiplied with."""

    unit: Unit
    slot: Slot
    qparams: QParams
    weight: npt.NDArray[np.generic]
    data: str

    @property
    def groups(self) -> int:
        """Of a convolution; else 1."""
        return int_attribute(self.unit.head, "group", 1) if self._is_window else 1

    @property
    def columns(self) -> int:
        """Elements of a row."""
        shape = self.weight.shape
        return int(math.prod(shape[1:]) if self._is_window else shape[self._summed])

    @property
    def parts(self) -> tuple[slice, ...]:
        """The columns that are fitted together."""
        count = max(1, math.ceil(self.columns / _WIDEST))
        ends = [self.columns * at // count for at in range(count + 1)]
        return tuple(slice(*pair) for pair in itertools.pairwise(ends))

    @property
    def bytes(self) -> int:
        """Of its second moments."""
        widths = [int(one.stop - one.start) for one in self.parts]
        return 8 * self.groups * sum(width * width for width in widths)

    @property
    def _is_window(self) -> bool:
        return op_spec(self.unit.head).kind is Kind.CONVOLUTION

    @property
    def _summed(self) -> int:
        axis = weight_summed_axis(self.unit.head, self.weight.ndim)
        assert axis is not None
        return axis

    def inputs(self, array: Array) -> Array:
        """What its rows meet in a batch of ``data``: (groups, positions, columns), in the order of
        the weight's columns.
        """
        head = self.unit.head
        if self._is_window:
            return self._windows(array)
        if head.op_type == "Gemm" and int_attribute(head, "transA", 0):
            array = array.T
        return _thinned(array.reshape(-1, array.shape[-1]))[None]

    def _windows(self, array: Array) -> Array:
        windows = Windows.of(self.unit.head, tuple(self.weight.shape[2:]))
        last = np.moveaxis(array, 1, -1)
        counts = windows.outputs_for(last.shape[1:-1])
        padded = windows.padded(last, 0.0)
        channels = last.shape[-1]
        taps = [
            _thinned(windows.tap(padded, offset, counts).reshape(-1, channels))
            for offset in windows.offsets()
        ]
        rows = np.stack(taps, axis=-1).reshape(-1, self.groups, self.columns)
        return np.moveaxis(rows, 1, 0)

    def fitted(self, moments: Sequence[Doubles]) -> tuple[Array, Array]:
        """The nearest codes and the fitted ones, of the weight's shape."""
        scale, point = self.qparams.expanded(self.weight.shape)
        rows = [
            self._as_rows(np.broadcast_to(array, self.weight.shape).astype(np.float64))
            for array in (self.weight, scale, point)
        ]
        ends = (self.qparams.qmin, self.qparams.qmax)
        nearest, fitted = np.empty_like(rows[0]), np.empty_like(rows[0])
        for part, found in zip(self.parts, moments, strict=True):
            weight, scales, points = (array[:, :, part] for array in rows)
            problem = RoundingProblem(weight, scales, points, ends, found)
            nearest[:, :, part], fitted[:, :, part] = problem.nearest(), problem.fitted()
        return self._as_weight(nearest), self._as_weight(fitted)

    def _as_rows(self, array: Array) -> Array:
        if self._is_window:
            return array.reshape(self.groups, -1, self.columns)
        return np.moveaxis(array, self._summed, -1)[None]

    def _as_weight(self, rows: Array) -> Array:
        if self._is_window:
            return rows.reshape(self.weight.shape)
        return np.moveaxis(rows[0], -1, self._summed)


def _layers(graph: ir.Graph, plan: Plan) -> Iterator[_Layer]:
    """In graph order."""
    weights = {slot.node: slot for slot in plan.constants if slot.role is Role.WEIGHT}
    for unit in units_of(graph):
        slot, head = weights.get(unit.name), unit.head
        if slot is None or head.domain or head.op_type not in _OPERATORS or slot.index != 1:
            continue
        weight, data = constant_value(head.inputs[1]), head.inputs[0]
        if weight is None or data is None or not weight.size:
            continue
        if head.op_type != "MatMul" or weight.ndim == 2:
            yield _Layer(unit, slot, plan.constants[slot], weight, str(data.name))


def _is_own(layer: _Layer, nodes: Mapping[str, ir.Node]) -> bool:
    """Whether the written graph has the codes of ``layer`` as a constant behind its operand."""
    node = nodes.get(layer.slot.node)
    operand = None if node is None else node.inputs[layer.slot.index]
    maker = None if operand is None else operand.producer()
    return maker is not None and constant_value(maker.inputs[0]) is not None


def _groups(layers: Sequence[_Layer]) -> Iterator[list[_Layer]]:
    """``layers`` in their order, as many at a time as ``_MEMORY`` holds."""
    group: list[_Layer] = []
    for layer in layers:
        if group and sum(one.bytes for one in group) + layer.bytes > _MEMORY:
            yield group
            group = []
        group.append(layer)
    if group:
        yield group


def _thinned(rows: Array) -> Array:
    """At most ``_POSITIONS`` of ``rows`` (positions, columns), evenly spaced.

    The step is odd, so that pictures whose width is a power of two are not read in columns.
    """
    step = math.ceil(len(rows) / _POSITIONS)
    return rows if step == 1 else rows[:: step | 1]


# Second moments, summed in float64 sample by sample.


class _Moments:
    """H of one layer, and the mean of its inputs."""

    def __init__(self, layer: _Layer) -> None:
        self._layer = layer
        self._is_centred = bias_place(layer.unit) is not None
        self._count = 0
        self._sums: list[Doubles] = []
        self._means: Doubles = np.zeros(())

    def add(self, array: Array) -> None:
        """Count in a batch of the layer's input."""
        is_stacked = not (
            self._layer.unit.head.op_type == "Gemm"
            and int_attribute(self._layer.unit.head, "transA", 0)
        )
        for sample in array if is_stacked and array.ndim > 1 else (array,):
            rows = self._layer.inputs(sample[None] if is_stacked else sample)
            parts = (rows[:, :, part] for part in self._layer.parts)
            with np.errstate(invalid="ignore", over="ignore"):  # refused at the end, by name
                found = [(np.swapaxes(one, 1, 2) @ one).astype(np.float64) for one in parts]
            self._sums = (
                [old + new for old, new in zip(self._sums, found, strict=True)]
                if self._count
                else found
            )
            self._means = self._means + rows.sum(axis=1, dtype=np.float64)
            self._count += rows.shape[1]

    @property
    def value(self) -> list[Doubles]:
        """H of each part of the columns, (groups, columns, columns).

        Raises:
            InputError: an input is not finite.
        """
        mean = self._means / max(self._count, 1)
        found = [total / max(self._count, 1) for total in self._sums]
        if self._is_centred:
            parts = (mean[:, part] for part in self._layer.parts)
            with np.errstate(invalid="ignore", over="ignore"):
                found = [
                    np.asarray(one - part[:, :, None] * part[:, None, :])
                    for one, part in zip(found, parts, strict=True)
                ]
        if all(np.isfinite(one).all() for one in found):
            return found
        raise InputError(
            f"Fitting the weight of '{self._layer.unit.name}'",
            found="inputs that are not finite",
            expected="finite inputs on the calibration samples",
            remedy="Look at the samples, or choose a schema that rounds to the nearest.",
        )


class _Observed(Closing):
    """An executor that hands what layers are fed to their moments."""

    def __init__(
        self, executor: Executor, moments: Sequence[_Moments], layers: Sequence[_Layer]
    ) -> None:
        self._executor = executor
        self._pairs = tuple(zip(layers, moments, strict=True))

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch, of the size that the graph takes."""
        results = self._executor.run(feeds)
        for layer, moments in self._pairs:
            found = feeds[layer.data] if layer.data in feeds else results[layer.data]
            moments.add(np.asarray(found))
        return results

    def executed(self) -> Mapping[str, Executed]:
        """As the executor inside."""
        return executed_by(self._executor)

    def close(self) -> None:
        """Close the executor inside."""
        self._executor.close()


def _moments_of(
    canonical: ir.Model,
    layers: Sequence[_Layer],
    feeds: Sequence[Feeds],
    backend: Backend,
    threads: int,
) -> list[_Moments]:
    """The moments of ``layers``, by one run of the float graph over ``feeds``."""
    fed = {str(value.name) for value in canonical.graph.inputs}
    taps = tuple(dict.fromkeys(one.data for one in layers if one.data not in fed))
    moments = [_Moments(layer) for layer in layers]
    executor = isolated(backend).prepare(canonical, taps=taps, threads=threads)
    with _Observed(executor, moments, layers) as observed:
        runner = in_slices(observed, canonical)
        for batch in feeds:
            runner.run(batch)
    return moments

"""The runs of one unit: on the backend, in real arithmetic, and with the error of its
quantization alone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    Array,
    Backend,
    Executor,
    Feeds,
    IntegerBackend,
    Timeout,
    executed_by,
    for_many_sessions,
    get_backend,
    in_slices,
    no_timeout,
)
from qbench.diagnosis.engine.client import UnitSession
from qbench.diagnosis.target import FOLDED, Target
from qbench.diagnosis.units import QuantizedUnit, codes_without_unit, quantized_units, real_units
from qbench.errors import QbenchError, UnsupportedError
from qbench.graph import (
    axis_of,
    constant_value,
    float_qparams,
    int_attribute,
    is_constant,
    node_key,
    node_qparams,
    own_copy,
    producer,
    values_by_name,
    with_shapes,
)
from qbench.judging import Unaligned
from qbench.numerics import AddScheme, Arithmetic, QParams, dequantize, quantize

# The error that quantization parameters alone explain: the fp32 operators with every operand and
# the result quantized.
#
#     y = fq(f(fq(x), fq(w)))
#     f, x, w of fp32; fq: fake quantization with the parameters of the quantized graph
#
# The quantized graph holds weights, limits, attributes and operators that a pass or an exporter may
# have got wrong. Only its quantization parameters are used here. So an error of the target's node
# beyond this one has another cause than they.

_WEIGHT_BITS = 16
"""The most bits of a weight; a constant of more is a bias."""
OVER_A_STEP = 1.01
"""Steps of its own from which a weight is off by more than one, whatever float32 rounds."""
_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatUnit:
    """The fp32 counterpart of a unit.

    Args:
        graph: fp32 operators with fake-quantized constants; inputs are ``feeds``.
        feeds: names of the fp32 values, one for each input of the unit, in its order.
        is_explained: whether its error is that of the quantization parameters alone; not where some
            are computed at run time.
        moved: constants of the unit that differ from the quantized fp32 ones: name → rms of the
            difference in steps of the constant; of a bias, which is added to the result, in steps
            of the result.
        clipped: share of the weights that lie beyond the ends of their codes by more than a step.
        bits: the fewest of a weight; None: no weight is quantized.
    """

    graph: ir.Model
    feeds: tuple[str, ...]
    moved: Mapping[str, float]
    is_explained: bool = True
    clipped: float = 0.0
    bits: int | None = None


def float_counterpart(
    unit: QuantizedUnit, original: ir.Model, represents: Mapping[str, str], *, rounded: bool = True
) -> FloatUnit:
    """The counterpart of ``unit``.

    Args:
        unit: of the quantized graph.
        original: the float graph that was quantized, with shapes; not changed.
        represents: quantized value or graph input → the fp32 value, for every input of the unit.
        rounded: whether its constants are fake-quantized as in the unit.

    Raises:
        LookupError: the float graph has no such values, or does not compute one from the others;
            the text names them.
    """
    known = values_by_name(original)
    feeds = tuple(represents[feed] for feed in unit.feeds)
    for name in (*feeds, unit.represents):
        if name not in known:
            raise LookupError(f"fp32 has no value '{name}'")
    if unit.represents in feeds:
        raise LookupError(f"'{unit.value}' only requantizes '{unit.represents}'")
    ends = [known[name] for name in dict.fromkeys(feeds)]
    try:
        piece = ir.convenience.extract(original.graph, ends, [known[unit.represents]])
    except ValueError as error:
        raise LookupError(
            f"fp32 does not compute '{unit.represents}' from {', '.join(feeds)}"
        ) from error
    constants = _rounded_constants(unit) if rounded else {}
    weights = {key: own for key, (own, _) in constants.items() if own.qtype.bits <= _WEIGHT_BITS}
    clipped = _clipped_share(piece, weights)
    moved = dict(_round_constants(piece, constants, unit.scale))
    graph = ir.Model(piece, ir_version=original.ir_version)
    at_run_time = any(node.op_type == "DynamicQuantizeLinear" for node in unit.graph.graph)
    return FloatUnit(
        graph=graph,
        feeds=feeds,
        moved=moved,
        is_explained=not at_run_time,
        clipped=clipped,
        bits=min((qparams.qtype.bits for qparams in weights.values()), default=None),
    )


def _clipped_share(piece: ir.Graph, weights: Mapping[tuple[str, int], QParams]) -> float:
    """The share of the fp32 weights of ``piece`` that lie beyond the ends of their codes by
    more than a step.
    """
    clipped = elements = 0
    for node in piece:
        for place, value in enumerate(node.inputs):
            constant, qparams = constant_value(value), weights.get((node_key(node), place))
            if constant is None or qparams is None or qparams.qtype.is_float:
                continue  # the largest number of a block of floats is on its scale
            try:
                scale, point = qparams.expanded(constant.shape)
            except ValueError:  # the parameters do not fit the shape in fp32: another layout
                continue
            codes = constant.astype(np.float64) / scale + point
            beyond = (codes < qparams.qmin - OVER_A_STEP) | (codes > qparams.qmax + OVER_A_STEP)
            clipped, elements = clipped + int(beyond.sum()), elements + constant.size
    return clipped / max(elements, 1)


def _rounded_constants(unit: QuantizedUnit) -> dict[tuple[str, int], tuple[QParams, Array]]:
    """(operator, index of its operand) → the quantization parameters of that constant, and its
    dequantized values.

    Raises:
        LookupError: the quantization parameters of a constant are not constant.
    """
    found = {}
    for node in unit.graph.graph:
        if node.op_type in _PAIRS:
            continue
        for place, value in enumerate(node.inputs):
            maker = producer(value)
            if (
                maker is None
                or maker.op_type != "DequantizeLinear"
                or not is_constant(maker.inputs[0])
            ):
                continue
            qparams = node_qparams(maker) or float_qparams(maker)
            codes = constant_value(maker.inputs[0])
            if qparams is None or codes is None:
                raise LookupError(
                    f"the quantization parameters of '{value.name if value else place}' are not "
                    "known"
                )
            found[node_key(node), place] = (qparams, _dequantized(codes, qparams))
    return found


def _round_constants(
    piece: ir.Graph, constants: Mapping[tuple[str, int], tuple[QParams, Array]], step: float
) -> Iterator[tuple[str, float]]:
    """Fake-quantize the constants of ``piece``; yields (name, rms difference) of those that the
    unit has otherwise.

    Raises:
        LookupError: fp32 does not have one of the operands.
    """
    left = dict(constants)
    for node in piece:
        for place, value in enumerate(node.inputs):
            constant = constant_value(value)
            if value is None or constant is None or (node_key(node), place) not in left:
                continue
            qparams, theirs = left.pop((node_key(node), place))
            try:
                rounded = _dequantized(quantize(constant.astype(np.float32), qparams), qparams)
            except ValueError:
                # the parameters do not fit the shape in fp32: another layout
                yield str(value.name), float("inf")
                continue
            if theirs.shape != rounded.shape:
                yield str(value.name), float("inf")
            else:
                is_bias = qparams.qtype.bits > _WEIGHT_BITS
                apart = theirs.astype(np.float64) - rounded
                size = qparams.expanded(rounded.shape)[0]
                if (np.abs(apart) > size).any():
                    # ties and rounding corrections may move a constant by a step
                    yield (
                        str(value.name),
                        float(np.sqrt(np.mean(np.square(apart / (step if is_bias else size))))),
                    )
            name = f"{value.name}_rounded_{node_key(node)}"
            held = ir.Value(name=name, const_value=ir.tensor(rounded.astype(np.float32), name=name))
            piece.initializers[name] = held
            node.replace_input_with(place, held)
    for operator, place in left:
        raise LookupError(f"fp32 has no operand {place} of '{operator}'")


def _dequantized(codes: Array, qparams: QParams) -> Array:
    """Computed in float64: biases of 32 bits are not exact in float32."""
    if qparams.qtype.is_float:
        return np.asarray(dequantize(codes, qparams), np.float32)
    scale, point = qparams.expanded(codes.shape)
    return np.asarray((codes.astype(np.int64) - point) * scale.astype(np.float64), np.float32)


def refuse_values_of_floats(target: Target) -> None:
    """Check that no value is quantized to floats of few bits: these have no steps in which a result
    could be compared with what quantization explains.

    Raises:
        UnsupportedError: one is.
    """
    made = [node for node in target.quantized.graph if node.op_type == "QuantizeLinear"]
    found = [(node, qparams) for node in made if (qparams := float_qparams(node)) is not None]
    if found:
        node, qparams = found[0]
        raise UnsupportedError(
            "Examining the nodes of a quantized graph",
            found=f"'{node.inputs[0].name}' and {len(found) - 1} more values in {qparams.qtype}",  # type: ignore[union-attr]
            expected="values in integers or real ones; weights may be floats of few bits",
            remedy="Localize the same weights alone, by the schema without 'af…' in its name.",
        )


FLOAT_BACKEND = "ort-cpu"
"""Runs the float graph that the quantized one is compared with."""
_IR_VERSION, _OPSET = 10, 24
"""Of a graph that has lost its floats of few bits, for whose types alone it may be newer than the
engine reads (IR 13, opset 27 in 1.31); float operators mean the same.
"""
EXACT = "ort-cpu-noopt"
"""Runs single operators in float32 without fusing them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units of a target, in the order of its graph.

    Args:
        units: all of them; those with real results last.
        by_value: the same by the value that they compute.
        floats: value → fp32 counterpart of its unit.
        unaligned: the values without one, with reasons.
        aligned: the values that represent an fp32 value.
        represents: quantized value or graph input → fp32 value.
        original: the float graph, with shapes.
    """

    units: tuple[QuantizedUnit, ...]
    by_value: Mapping[str, QuantizedUnit]
    floats: Mapping[str, FloatUnit]
    unaligned: tuple[Unaligned, ...]
    aligned: frozenset[str]
    represents: Mapping[str, str]
    original: ir.Model

    @classmethod
    def of(cls, target: Target) -> "Units":
        """The units of ``target``.

        Raises:
            InputError: a QuantizeLinear or DequantizeLinear of its graph is invalid.
        """
        original = with_shapes(target.original)
        known = values_by_name(original)
        results = {
            node.metadata_props.get(FOLDED, node_key(node)): str(node.outputs[0].name)
            for node in original.graph
            if len(node.outputs) == 1
        }
        found = (*quantized_units(target.quantized), *real_units(target.quantized))
        units = tuple(
            replace(unit, represents=results.get(unit.origin, unit.represents)) for unit in found
        )
        by_value = {unit.value: unit for unit in units}
        represents = {str(value.name): str(value.name) for value in target.quantized.graph.inputs}
        represents |= {unit.value: unit.represents for unit in units}
        floats: dict[str, FloatUnit] = {}
        reason = "an operator before it has a subgraph, or it depends on no input"
        unaligned = [
            Unaligned(value=name, reason=reason)
            for name in codes_without_unit(target.quantized, found)
        ]
        for unit in units:
            if unit.represents not in known:
                unaligned.append(
                    Unaligned(value=unit.value, reason=f"fp32 has no value '{unit.represents}'")
                )
                continue
            if _is_whole(known[unit.represents]):
                unaligned.append(
                    Unaligned(value=unit.value, reason="it holds whole numbers, such as indices")
                )
                continue
            try:
                floats[unit.value] = float_counterpart(unit, original, represents)
            except LookupError as error:
                if unit.operators:
                    unaligned.append(Unaligned(value=unit.value, reason=str(error.args[0])))
        return cls(
            units=units,
            by_value=by_value,
            floats=floats,
            unaligned=tuple(unaligned),
            aligned=frozenset(
                unit.value
                for unit in units
                if unit.represents in known and not _is_whole(known[unit.represents])
            ),
            represents=represents,
            original=original,
        )

    def rounded(self, unit: QuantizedUnit, floats: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs of ``unit`` quantized from fp32 values; graph inputs stay as they are.

        Args:
            unit: whose inputs.
            floats: fp32 values by their names in fp32.

        Raises:
            KeyError: an input has no counterpart in fp32.
        """
        found = {}
        for name in unit.feeds:
            maker = self.by_value.get(name)
            found[name] = (
                floats[name] if maker is None else codes_of(maker, floats[maker.represents])
            )
        return found

    def reals(self, unit: QuantizedUnit, rounded: Mapping[str, Array]) -> dict[str, Array]:
        """``rounded`` dequantized, by the names of the inputs of the fp32 counterpart of
        ``unit``.
        """
        names = self.floats[unit.value].feeds
        return {
            name: self.by_value[feed].reals(rounded[feed])
            if feed in self.by_value
            else rounded[feed]
            for name, feed in zip(names, unit.feeds, strict=True)
        }


def _is_whole(value: ir.Value) -> bool:
    """Whether the fp32 value is of integers or truth values: the distance of two indices says
    nothing.
    """
    return value.dtype is not None and not value.dtype.is_floating_point()


def codes_of(unit: QuantizedUnit, reals: Array) -> Array:
    """``reals`` quantized with the parameters of ``unit``; unchanged where it has none."""
    if unit.qparams is None:
        return reals
    codes = np.rint(reals.astype(np.float32) / np.float32(unit.scale)) + np.float32(unit.zero_point)
    return np.asarray(
        np.clip(codes, unit.lowest, unit.highest).astype(unit.qparams.qtype.storage_dtype)
    )


_FLOAT_SUMS = frozenset({AddScheme.FUSED, AddScheme.SEPARATE, AddScheme.REAL})


ALONE = 8
"""Samples on which units run alone; the whole graph runs on all."""


def random_batch(
    own: Mapping[str, Array], random: np.random.Generator, *, is_any: bool
) -> dict[str, Array]:
    """Inputs like ``own``, of at least ``ALONE`` samples: their values at other places, or any
    between their ends.

    Args:
        own: inputs of a unit; where all have an axis of samples in common, few samples become
            several.
        is_any: whether integers are drawn anew; real values always are.
    """
    sizes = {len(array) if array.ndim else 0 for array in own.values()}
    times = -(-ALONE // min(sizes)) if len(sizes) == 1 and 0 not in sizes else 1
    return {
        name: np.concatenate([_shuffled(array, random, is_any=is_any) for _ in range(times)])
        if times > 1
        else _shuffled(array, random, is_any=is_any)
        for name, array in own.items()
    }


def _shuffled(array: Array, random: np.random.Generator, *, is_any: bool) -> Array:
    if array.dtype.kind == "f" and array.size:
        return np.asarray(random.uniform(array.min(), array.max(), array.shape).astype(array.dtype))
    if is_any and array.dtype.kind in "iu" and array.size:
        drawn = random.integers(int(array.min()), int(array.max()), array.shape, endpoint=True)
        return np.asarray(drawn.astype(array.dtype))
    return np.asarray(random.permutation(array.reshape(-1)).reshape(array.shape))


def computes_in_float(unit: QuantizedUnit, arithmetic: Arithmetic | None) -> bool:
    """Whether ``arithmetic`` has no integer kernel for an operator of ``unit``: the order of
    float32 sums decides.

    A normalization, for example, is computed in float32 between its DequantizeLinear and its
    QuantizeLinear.
    """
    if arithmetic is None:
        return False
    operators = {node_key(node) for node in unit.graph.graph if node.op_type not in _PAIRS}
    if not unit.operators:
        return True  # a quantizer alone divides, or multiplies by a reciprocal
    if unit.operators in (("Add",), ("Sub",)) and arithmetic.adding.scheme in _FLOAT_SUMS:
        return True
    try:
        with IntegerBackend(arithmetic=arithmetic).prepare(unit.graph) as executor:
            executed = executed_by(executor)
    except (QbenchError, ValueError):
        return False
    return any(executed[name].precision.startswith("float") for name in operators & executed.keys())


def exact_backend() -> Backend:
    """A backend that computes operators in float32 without fusing them, and keeps no memory
    between runs.
    """
    return for_many_sessions(get_backend(EXACT))


def exact_run(model: ir.Model, taps: Sequence[str] = ()) -> Executor:
    """A run of ``model`` on ``exact_backend``. Weights in floats of few bits are float32 constants
    there, of the same numbers: it lacks some of their types. Scales are along the axis that they
    fit: it refuses another one, which engines do not look at where they fuse.

    Raises:
        UnsupportedError: it lacks an operator.
    """
    return exact_backend().prepare(_with_real_weights(_with_fitting_axes(model)), taps=taps)


def _with_fitting_axes(model: ir.Model) -> ir.Model:
    """``model`` with the axis of ``axis_of`` at each DQ whose written one does not fit."""
    fitting = {
        str(node.outputs[0].name): axis_of(node)
        for node in model.graph
        if node.op_type == "DequantizeLinear" and axis_of(node) != int_attribute(node, "axis", 1)
    }
    if not fitting:
        return model
    made = own_copy(model)
    for node in made.graph:
        axis = fitting.get(str(node.outputs[0].name))
        if axis is not None:
            node.attributes["axis"] = ir.AttrInt64("axis", axis)
    return made


def _with_real_weights(model: ir.Model) -> ir.Model:
    real = {}
    for node in model.graph:
        is_pair = node.op_type == "DequantizeLinear" and is_constant(node.inputs[0])
        qparams = float_qparams(node) if is_pair else None
        codes = constant_value(node.inputs[0]) if qparams is not None else None
        if qparams is not None and codes is not None:
            real[node.outputs[0].name] = _dequantized(codes, qparams)
    if not real:
        return model
    made = own_copy(model)
    made.ir_version = min(made.ir_version, _IR_VERSION)
    made.graph.opset_imports[""] = min(made.graph.opset_imports[""], _OPSET)
    for node in [one for one in made.graph if one.outputs[0].name in real]:
        value = node.outputs[0]
        held_as = f"{value.name}_real"
        array = real[value.name]
        held = ir.Value(name=held_as, const_value=ir.tensor(array, name=held_as))
        made.graph.initializers[held_as] = held
        value.replace_all_uses_with(held, replace_graph_outputs=True)
    made.graph.remove([one for one in made.graph if one.outputs[0].name in real], safe=True)
    for name in [one.name for one in made.graph.initializers.values() if not one.uses()]:
        made.graph.initializers.pop(str(name))
    return made


def fused_sums_of(units: Sequence[QuantizedUnit], arithmetic: Arithmetic | None) -> frozenset[str]:
    """The sums that an engine of ``arithmetic`` takes of a convolution's result before that is
    rounded.

    Alone such a sum is one of codes, as its convolution is not in the unit.
    """
    if arithmetic is None or not arithmetic.adding.fused:
        return frozenset()
    makers = {unit.value: unit for unit in units}
    readers = Counter(name for unit in units for name in unit.feeds)
    return frozenset(
        unit.value
        for unit in units
        if unit.operators[:1] == ("Add",)
        and any(
            readers[name] == 1 and "Conv" in makers[name].operators
            for name in unit.feeds
            if name in makers
        )
    )


class UnitRunner:
    """A unit prepared on every backend that runs it alone.

    Args:
        target: whose unit.
        unit: to be run.
        counterpart: its counterpart in fp32; None: it has none.
        stack: closes what is prepared here.
        timeout: of one run on the target's backend.
        is_fused: whether the engine fuses it with a unit before it; then its claim is the watched
            backend's, alone.
    """

    def __init__(
        self,
        target: Target,
        unit: QuantizedUnit,
        counterpart: FloatUnit | None,
        stack: ExitStack,
        timeout: Timeout = no_timeout,
        *,
        is_fused: bool = False,
    ) -> None:
        self.unit = unit
        name = unit.real
        made = {str(value.name) for node in unit.graph.graph for value in node.outputs}
        taps = (name,) if name in made else ()
        self._exact = in_slices(stack.enter_context(exact_run(unit.graph, taps)), unit.graph)
        self._float: Executor | None = None
        if counterpart is not None and counterpart.is_explained:
            self._float = in_slices(
                stack.enter_context(exact_run(counterpart.graph)), counterpart.graph
            )
        alone = target.watched if is_fused else None
        claims = target.claims if target.is_watched_itself else alone
        self._claimed = None if claims is None else stack.enter_context(UnitSession(unit, claims))
        self._target = stack.enter_context(UnitSession(unit, target.backend, timeout=timeout))
        self._engine = target.backend.name

    @property
    def crash(self) -> str:
        """How the target's backend failed on the unit, in a sentence; empty: it did not."""
        found = self._target.crash
        return f"'{self._engine}' fails on it alone: {found}" if found else ""

    def steps(self, feeds: Feeds) -> Array:
        """The value before rounding by real arithmetic on ``feeds``: in steps without the zero
        point, float32.
        """
        values = {**feeds, **self._exact.run(feeds)}
        return np.asarray(np.divide(values[self.unit.real], self.unit.scale, dtype=np.float32))

    def counted(self, feeds: Feeds) -> Array | None:
        """The result of the target's backend; None: it fails, and ``crash`` says how."""
        return self._target.run(feeds)

    def claimed(self, feeds: Feeds) -> Array | None:
        """The result of the interpreter that a watched target must equal; None: there is none,
        or it fails.
        """
        return None if self._claimed is None else self._claimed.run(feeds)

    def explained(self, feeds: Feeds) -> Array | None:
        """The fake-quantized result of the fp32 counterpart: real; None: the unit has none."""
        if self._float is None:
            return None
        exact = self._float.run(feeds)[self.unit.represents]
        return (
            self.unit.reals(codes_of(self.unit, exact)) if self.unit.qparams is not None else exact
        )

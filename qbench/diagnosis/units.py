"""The units of a quantized graph, and two results of one quantized value compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Array
from qbench.graph import (
    PRODUCTS,
    clip_of_codes,
    constant_value,
    float_qparams,
    input_at,
    is_constant,
    node_key,
    node_qparams,
    only_consumer,
    origin_of,
    with_shapes,
)
from qbench.judging import NodeErrors
from qbench.numerics import Arithmetic, MultiplierForm, QParams, QType

# Two results of one quantized value, compared element by element: how many differ, and why.
#
# Let t be the real value before rounding, in its steps, without the zero point, computed in
# float32 by the QDQ formula with all optimizations off. Where a Relu or Clip precedes the
# quantizer, t is the value before it. A difference is
#
#     clamp      if t lies beyond a limit: that of the Clip or Relu, or that of the codes by more
#                than half a step
#     tie        else if it is one step, and t lies within 2⁻¹⁰ of a step of halfway between two
#                quantized values
#     one step   else if it is one step
#     real       else
#
# At a tie, the order of additions decides the result. The width covers the error of float32 for a
# value of some hundred steps (a few times 2⁻²⁴ · 255 = 1.5·10⁻⁵) and for a sum of products (about
# 10⁻⁴).

Values = npt.NDArray[Any]

TIE_WIDTH = 2.0**-10
"""Distance from halfway, in steps, up to which a value is a tie."""


_BY_CHANCE = 0.1
"""Share of the ties that float32 may round to the other side; another rounding rule moves about
half of them.
"""


def leaves_ties_open(arithmetic: Arithmetic | None) -> bool:
    """Whether an engine that follows ``arithmetic`` may round a value near a tie either way.

    No engine computes with rationals. One that declares them sums in floats, in an order of its own
    (``float_sums``).
    """
    return arithmetic is not None and arithmetic.scaling.form is MultiplierForm.EXACT


_SINGLE = 1e-4
"""Share of the values that float32 sums and functions may move by a step without a tie."""


def are_of_floats(differing: int, beyond: int, ties: float, elements: int) -> bool:
    """Whether the order of float32 sums explains ``differing`` values of ``elements``,
    ``beyond`` by over a step.
    """
    return not beyond and differing <= max(1.0, _BY_CHANCE * ties) + _SINGLE * elements


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCauses:
    """How many of ``elements`` differ, by cause, and the ``largest`` difference in steps."""

    elements: int = 0
    tie: int = 0
    one_step: int = 0
    clamp: int = 0
    real: int = 0
    largest: int = 0

    @property
    def differing(self) -> int:
        """Number of elements that differ."""
        return self.tie + self.one_step + self.clamp + self.real


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The limits, in steps without the zero point, between which no value is clamped."""

    low: float
    high: float

    @classmethod
    def of_codes(cls, qmin: int, qmax: int, zero_point: int) -> "Ends":
        """The limits of the codes: up to half a step beyond an end, a value is rounded to it and
        not clamped.
        """
        return cls(low=qmin - zero_point - 0.5, high=qmax - zero_point + 0.5)

    def within(self, low: float, high: float) -> "Ends":
        """The intersection with the limits of a Clip or Relu."""
        return Ends(low=max(self.low, low), high=min(self.high, high))


def count_causes(ours: Values, theirs: Values, real: Values, ends: Ends) -> StepCauses:
    """The differences of one value by cause.

    Args:
        ours, theirs: quantized values of one shape.
        real: t, of their shape, float64.
        ends: limits of the codes and of a Relu or Clip before it.

    Raises:
        ValueError: the shapes differ.
    """
    if not ours.shape == theirs.shape == real.shape:
        raise ValueError(f"the shapes {ours.shape}, {theirs.shape} and {real.shape}")
    steps = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    apart = steps > 0
    steps, t = steps[apart], real[apart]
    clamp = (t < ends.low) | (t > ends.high)
    single = ~clamp & (steps == 1)
    tie = single & (np.abs(t - np.floor(t) - 0.5) <= TIE_WIDTH)
    return StepCauses(
        elements=ours.size,
        tie=int(tie.sum()),
        one_step=int((single & ~tie).sum()),
        clamp=int(clamp.sum()),
        real=int((~clamp & (steps > 1)).sum()),
        largest=int(steps.max(initial=0)),
    )


# The units of a quantized graph: for each quantized value, the piece that computes it from the
# quantized values before.
#
#     quantized values → DequantizeLinear → one or a few operators
#                      → (Relu | Clip) → QuantizeLinear → quantized value
#
# The piece that computes a float output from the last quantized values is a unit without qparams.
# Each unit is a graph of its own, with quantized values as inputs and output. So an engine fuses
# the same operators as in the whole graph, and no difference comes from another unit. A tap inside
# a unit would prevent that fusion.

UnitValues = npt.NDArray[Any]

_ENDLESS = float("inf")
_MOST_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedUnit:
    """The piece of a quantized graph that computes one quantized value.

    Args:
        value: its name.
        node: name of its last operator; where that adds a bias to a product, name of the product.
        operators: types of those between the Q/DQ pairs, in order.
        graph: the piece; its inputs are ``feeds``, its one output ``value``.
        real: name of the float value before rounding, and before a Relu or Clip.
        represents: name of the float value that is quantized, after the Relu or Clip; for a
            requantized value, that of the first quantization.
        origin: the fp32 node whose result this is, from the metadata of the graph, also where the
            code limits replace a Relu; empty: the graph has no such metadata.
        qparams, ends: quantization parameters and limits; ``qparams`` None: ``value`` is real, with
            steps of 1.
        lowest, highest: the least and the largest quantized value.
    """

    value: str
    node: str
    operators: tuple[str, ...]
    graph: ir.Model
    feeds: tuple[str, ...]
    real: str
    represents: str
    qparams: QParams | None
    ends: Ends
    lowest: float = -_ENDLESS
    highest: float = _ENDLESS
    origin: str = ""

    @property
    def code_type(self) -> QType | None:
        """The type whose range the codes have: that of ``qparams``, or one of fewer bits whose ends
        clip them (4 bits in uint8); None without ``qparams``.
        """
        if self.qparams is None:
            return None
        stored = self.qparams.qtype
        narrower = (QType(bits, signed=stored.signed) for bits in range(2, stored.bits))
        return next((one for one in narrower if self._ends_with(one)), stored)

    def _ends_with(self, qtype: QType) -> bool:
        """Whether all codes are of ``qtype``, up to one of its ends.

        0 is the lowest code of every unsigned type.
        """
        at_end = self.highest == qtype.qmax or (qtype.signed and self.lowest == qtype.qmin)
        return at_end and qtype.qmin <= self.lowest and self.highest <= qtype.qmax

    @property
    def scale(self) -> float:
        """The size of a step."""
        return 1.0 if self.qparams is None else float(self.qparams.scale)

    @property
    def zero_point(self) -> int:
        """The zero point; 0 without qparams."""
        return 0 if self.qparams is None else int(self.qparams.zero_point)

    @property
    def has_real_products(self) -> bool:
        """Whether it has a product with an operand that is not quantized: engines differ in the
        order of its sums.
        """
        products = (node for node in self.graph.graph if node.op_type in PRODUCTS)
        return any(
            (maker := value.producer()) is None or maker.op_type != "DequantizeLinear"
            for node in products
            for value in node.inputs[:2]
            if value is not None
        )

    def in_steps(self, values: Mapping[str, UnitValues]) -> UnitValues:
        """The value before rounding, from the ``values`` of a run, in steps without the zero
        point: float64.
        """
        return values[self.real].astype(np.float64) / self.scale

    def codes(self, reals: UnitValues) -> UnitValues:
        """The quantized values of dequantized numbers: int64."""
        return np.rint(reals.astype(np.float64) / self.scale).astype(np.int64) + self.zero_point

    def reals(self, codes: UnitValues) -> UnitValues:
        """The dequantized values of ``codes``: float32."""
        return (codes.astype(np.float32) - np.float32(self.zero_point)) * np.float32(self.scale)

    def rounded(self, steps: UnitValues) -> UnitValues:
        """Numbers in steps without the zero point, rounded and clamped: float64; unchanged
        without qparams.
        """
        if self.qparams is None:
            return steps
        limited = np.clip(steps, self.ends.low, self.ends.high)
        return np.asarray(np.clip(np.rint(limited) + self.zero_point, self.lowest, self.highest))


def quantized_units(model: ir.Model) -> tuple[QuantizedUnit, ...]:
    """The units of ``model``, in its order: one for each value with static qparams per tensor
    of at most 16 bits.

    A piece cannot be extracted where an operator with a subgraph reads values from outside of it.

    Raises:
        InputError: a Q or DQ means nothing.
    """
    shaped = with_shapes(model)
    used = _behind_outputs(shaped)
    quantizers = [node for node in shaped.graph if node in used and _is_per_tensor(node)]
    borders = {_codes(node) for node in quantizers} | _real_borders(shaped).keys()
    units = (_unit(shaped, node, borders) for node in quantizers)
    return tuple(unit for unit in units if unit is not None)


def whole_unit(model: ir.Model, value: str) -> QuantizedUnit | None:
    """All of ``model`` as one unit that computes its output ``value``; None: it cannot be
    extracted.

    Raises:
        InputError: a Q or DQ means nothing.
    """
    shaped = with_shapes(model)
    for node in (one for one in shaped.graph if _is_per_tensor(one) and _codes(one).name == value):
        return _unit(shaped, node, {_codes(node)})
    return next(
        (_real_unit(shaped, one, set()) for one in shaped.graph.outputs if one.name == value), None
    )


def codes_without_unit(model: ir.Model, units: Sequence[QuantizedUnit]) -> tuple[str, ...]:
    """The values of ``model`` with static qparams per tensor that none of ``units`` computes."""
    made = {unit.value for unit in units}
    names = (str(_codes(node).name) for node in model.graph if _is_per_tensor(node))
    return tuple(name for name in names if name not in made)


def _behind_outputs(model: ir.Model) -> set[ir.Node]:
    """The nodes that an output needs; every engine removes the others."""
    used: set[ir.Node] = set()
    waiting = [value.producer() for value in model.graph.outputs]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in used:
            used.add(node)
            waiting += [value.producer() for value in node.inputs if value is not None]
    return used


def real_units(model: ir.Model) -> tuple[QuantizedUnit, ...]:
    """The units that compute real values of ``model``: its float outputs, and results of
    products before them.

    An output that is only dequantized has no unit.

    Raises:
        InputError: a Q or DQ means nothing.
    """
    shaped = with_shapes(model)
    codes = {_codes(node) for node in shaped.graph if _is_per_tensor(node)}
    inner = _real_borders(shaped)
    results = {result: name for result, name in inner.items() if result not in codes}
    results |= {
        output: "" for output in shaped.graph.outputs if output not in codes and output not in inner
    }
    found = (
        (_real_unit(shaped, result, codes | inner.keys()), name) for result, name in results.items()
    )
    return tuple(
        replace(unit, node=name or unit.node)
        for unit, name in found
        if unit is not None and unit.operators
    )


def _real_borders(model: ir.Model) -> dict[ir.Value, str]:
    """Results of products by quantized weights whose other operand is real, or has the qparams of
    its own batch → the node.

    They are borders of units, after a Relu or Clip: otherwise a network whose weights alone are
        quantized is one unit.
    """
    used = _behind_outputs(model)
    found = {
        _limited(one.outputs[0]): node_key(one)
        for one in model.graph
        if one in used and _has_rounded_weight(one)
    }
    return {
        value: name
        for value, name in found.items()
        if not any(_is_per_tensor(use.node) for use in value.uses())
    }


def _has_rounded_weight(node: ir.Node) -> bool:
    """Whether ``node`` is a product by a quantized constant whose other operand has no static
    qparams.
    """
    if node.op_type not in PRODUCTS:
        return False
    makers = [None if value is None else value.producer() for value in node.inputs[:2]]
    pairs = [one for one in makers if one is not None and one.op_type == "DequantizeLinear"]
    static = [one for one in pairs if _has_qparams(one)]
    return any(is_constant(one.inputs[0]) for one in static) and len(static) < len(makers)


def _has_qparams(node: ir.Node) -> bool:
    """Whether a DQ has parameters of integers, or of floats of few bits if its codes are constant:
    values of floats have no steps, so that products of them count as real.
    """
    is_weight = is_constant(node.inputs[0])
    return node_qparams(node) is not None or (is_weight and float_qparams(node) is not None)


def _limited(value: ir.Value) -> ir.Value:
    """The result of the Relu or Clip that alone reads ``value``; else itself."""
    reader = only_consumer(value)
    return reader.outputs[0] if reader is not None and limits_of(reader, 1.0) is not None else value


def _real_unit(model: ir.Model, output: ir.Value, borders: set[ir.Value]) -> QuantizedUnit | None:
    feeds, between = _between(model, output, borders)
    name, piece = str(output.name), _extracted(model, feeds, output) if feeds else None
    if piece is None:
        return None
    return QuantizedUnit(
        value=name,
        node=node_key(_naming(between[-1])) if between else name,
        operators=tuple(node.op_type for node in between),
        graph=piece,
        feeds=tuple(str(feed.name) for feed in feeds),
        real=name,
        represents=name,
        qparams=None,
        ends=Ends(low=-_ENDLESS, high=_ENDLESS),
    )


def _is_per_tensor(node: ir.Node) -> bool:
    if node.op_type != "QuantizeLinear" or is_constant(node.inputs[0]):
        return False
    qparams = node_qparams(node)
    return qparams is not None and qparams.axis is None and qparams.qtype.bits <= _MOST_BITS


def _codes(quantizer: ir.Node) -> ir.Value:
    clip = clip_of_codes(quantizer)
    return (quantizer if clip is None else clip).outputs[0]


def _unit(model: ir.Model, quantizer: ir.Node, borders: set[ir.Value]) -> QuantizedUnit | None:
    qparams, codes, source = node_qparams(quantizer), _codes(quantizer), quantizer.inputs[0]
    assert qparams is not None
    assert source is not None
    feeds, between = _between(model, codes, borders)
    piece = _extracted(model, feeds, codes) if feeds else None
    if piece is None:
        return None
    operators = [node for node in between if node is not codes.producer()]
    lowest, highest = _code_ends(quantizer, qparams)
    ends = Ends.of_codes(lowest, highest, int(qparams.zero_point))
    represents = _first_real(source)
    maker = source.producer()
    if (limits := limits_of(maker, float(qparams.scale))) is not None and maker is not None:
        ends, source = ends.within(*limits), maker.inputs[0]
    return QuantizedUnit(
        value=str(codes.name),
        node=node_key(_naming(operators[-1]) if operators else quantizer),
        operators=tuple(node.op_type for node in operators),
        graph=piece,
        feeds=tuple(str(feed.name) for feed in feeds),
        real=str(source.name if source is not None else ""),
        represents=represents,
        qparams=qparams,
        ends=ends,
        lowest=lowest,
        highest=highest,
        origin="" if origin_of(quantizer) == node_key(quantizer) else origin_of(quantizer),
    )


def _naming(last: ir.Node) -> ir.Node:
    """The node that names a unit with the operator ``last`` at its end.

    A product whose bias is an Add of its own is one kernel in engines, which computes nearly all in
    the product. Rules of a schema name both by the product, too.
    """
    if last.op_type != "Add" or last.domain:
        return last
    left, right = last.inputs
    for summand, bias in ((left, right), (right, left)):
        maker = None if summand is None else summand.producer()
        if maker is None or summand is None or maker.op_type not in PRODUCTS or maker.domain:
            continue
        if only_consumer(summand) is last and _is_stored(bias):
            return maker
    return last


def _is_stored(value: ir.Value | None) -> bool:
    """Whether ``value`` is a constant, or a quantized constant that is dequantized."""
    maker = None if value is None else value.producer()
    if maker is not None and maker.op_type == "DequantizeLinear":
        value = maker.inputs[0]
    return is_constant(value)


_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def _first_real(value: ir.Value) -> str:
    """The name of ``value``, or of the float value that it was quantized from."""
    maker = value.producer()
    while maker is not None and maker.op_type in _PAIRS | {"Clip"} and not _is_clip_of_reals(maker):
        source = maker.inputs[0]
        if source is None or is_constant(source):
            break
        value, maker = source, source.producer()
    return str(value.name)


def _is_clip_of_reals(node: ir.Node) -> bool:
    """Whether ``node`` is a Clip of real numbers, not of quantized values."""
    maker = None if node.inputs[0] is None else node.inputs[0].producer()
    return node.op_type == "Clip" and (maker is None or clip_of_codes(maker) is not node)


def _extracted(model: ir.Model, feeds: list[ir.Value], result: ir.Value) -> ir.Model | None:
    """The piece; None: an operator in it has a subgraph that reads values from outside."""
    try:
        return ir.Model(
            ir.convenience.extract(model.graph, feeds, [result]), ir_version=model.ir_version
        )
    except ValueError:
        return None


def _between(
    model: ir.Model, result: ir.Value, borders: set[ir.Value]
) -> tuple[list[ir.Value], list[ir.Node]]:
    """The values that ``result`` is computed from, and the operators in between without the
    Q/DQ pairs, in order.
    """
    feeds, nodes = _behind(result, borders, set(model.graph.inputs))
    order = {node: index for index, node in enumerate(model.graph)}
    return feeds, sorted(
        (node for node in nodes if node.op_type not in _PAIRS), key=order.__getitem__
    )


def _behind(
    codes: ir.Value, borders: set[ir.Value], inputs: set[ir.Value]
) -> tuple[list[ir.Value], set[ir.Node]]:
    """The borders and graph inputs that ``codes`` are computed from, and the nodes in between."""
    feeds: dict[ir.Value, None] = {}
    nodes: set[ir.Node] = set()
    waiting = [codes]
    while waiting:
        value = waiting.pop()
        maker = value.producer()
        if value is not codes and (value in borders or value in inputs):
            feeds[value] = None
        elif maker is not None and maker not in nodes:
            nodes.add(maker)
            waiting += [one for one in maker.inputs if one is not None]
    return list(feeds), nodes


def limits_of(node: ir.Node | None, scale: float) -> tuple[float, float] | None:
    """The limits of a Relu or Clip with constant limits, in steps; None for any other node."""
    if node is None or node.domain or node.op_type not in {"Relu", "Clip"}:
        return None
    if node.op_type == "Relu":
        return 0.0, _ENDLESS
    low, high = (_end(node, index) for index in (1, 2))
    if low is None or high is None:
        return None
    return low / scale, high / scale


def _end(clip: ir.Node, index: int) -> float | None:
    """One limit of a Clip; infinite where it is omitted, None where it is computed."""
    value = input_at(clip, index)
    if value is None:
        return -_ENDLESS if index == 1 else _ENDLESS
    constant = constant_value(value)
    return None if constant is None else float(constant.reshape(()))


def _code_ends(quantizer: ir.Node, qparams: QParams) -> tuple[int, int]:
    """The least and the largest quantized value: those of the type, or of the Clip after the
    quantizer.
    """
    clip = clip_of_codes(quantizer)
    low, high = (-_ENDLESS, _ENDLESS) if clip is None else (_end(clip, 1), _end(clip, 2))
    assert low is not None
    assert high is not None
    return int(max(qparams.qtype.qmin, low)), int(min(qparams.qtype.qmax, high))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """The unit run once more on the same inputs: its result, and the result of the run just before.

    ``first`` is the result of the first run on these inputs; None: ``Captured.again``.
    """

    codes: Array
    before: Array
    first: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Captured:
    """Inputs and results of one unit on a few samples, from which its cause is determined.

    Args:
        unit: without qparams its result is real, and so are ``found`` and ``again``.
        errors: its numbers over all samples.
        feeds: its inputs in the run of the whole graph, by name.
        found: its result in that run.
        again: the result of the target's backend for ``feeds``, with the unit alone; None: it
            fails.
        crash: how it fails, in a sentence; empty: it does not.
        real: the value before rounding by real arithmetic on ``feeds``, in steps without the zero
            point: float64.
        fed: its fp32 inputs, quantized.
        isolated: the result of the backend for ``fed``.
        expected: the fp32 value, real.
        replays: further runs on ``feeds``, or on the samples of one run of a graph with a fixed
            batch.
        probed: the same unit on random inputs, where few values differ on the samples; None: they
            cannot be made.
    """

    unit: QuantizedUnit
    errors: NodeErrors
    feeds: Mapping[str, Array]
    found: Array
    again: Array | None
    crash: str = ""
    real: Array
    fed: Mapping[str, Array]
    isolated: Array | None
    expected: Array
    replays: tuple[Replay, ...] = ()
    probed: "Callable[[], Captured | None] | None" = None

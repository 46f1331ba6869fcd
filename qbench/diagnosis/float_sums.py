"""Which differences of a unit the order of float32 sums explains, by the error bound of a sum
in any order.

    |computed − exact| ≤ γₙ · Σ|x||w|,    γₙ = n·u / (1 − n·u),    u = 2⁻²⁴

n is the number of roundings on the way of a term to the result. (N. J. Higham, Accuracy and
Stability of Numerical Algorithms, 2nd edition, section 3.1: the bound holds for every order of the
additions, with or without fused ones.)
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Array, Closing, Executor, Feeds, in_slices
from qbench.diagnosis.unit_runs import exact_run
from qbench.diagnosis.units import TIE_WIDTH, QuantizedUnit
from qbench.graph import node_qparams, own_copy
from qbench.numerics import QParams

# An engine that declares rationals computes in floats. Its result for a value t before rounding may
# be any code that the rounding of a number within the error bound of t gives:
#
#     |code − t| ≤ ½ + bound
#     of both results that are compared, or the order of sums does not explain them
#
# A tie in one place of many is so explained, and a step in a value between two ties is not. The
# bound is 0 where all scales are powers of two and the sums of integers are below 2²⁴: every order
# then gives the exact result, and no more than a tenth of the ties, or one, may have moved for
# whatever other reason. The bound of a product of thousands of terms may reach half a step, and
# explain the rounding of every second value. There the share of ties that moved counts too: errors
# are by far smaller than their bound, a wrong rounding moves every second.

Explained = npt.NDArray[np.bool_]

_UNIT = 2.0**-24
_ROUNDINGS = 8
"""Roundings besides those of a sum: of the operands, the product, the bias, the division by the
step, and t's own.
"""
_EXACT_BELOW = 2.0**24
_NARROW = 2.0**-4
"""Bound in steps up to which no known rule of rounding is hidden by it."""
_SHARE, _SIGMAS = 0.25, 3.0
"""The share of the ties within a wide bound that may move, and the allowance for chance in
standard deviations.
"""
_EXACT_SHARE = 0.1
"""Share of the ties that may move where float32 is exact: a rule of rounding moves about half
of them.
"""

_MOVING = frozenset(
    {"Flatten", "Identity", "MaxPool", "Relu", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
_SUMS = frozenset({"Add", "Sub", "Sum"})
_MEANS = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"})
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_ADDING = _SUMS | _MEANS | _PRODUCTS
_BOUNDED = _MOVING | _ADDING
"""Operators whose result on absolute operands is the sum of the absolute terms, or not below it."""
_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_MADE = "qbench_absolute_"


class FloatSums(Closing):
    """The error bound of one unit in float32; a context manager that closes its engine, which
    is made at first need.

    Args:
        unit: whose values before rounding are bounded.
    """

    def __init__(self, unit: QuantizedUnit) -> None:
        self._unit = unit
        self._absolute = _AbsoluteTerms.of(unit)

    def explained(self, found: Array, correct: Array, steps: Array, feeds: Feeds) -> Explained:
        """Where ``found`` and ``correct`` may both be right.

        Args:
            found, correct: results of the unit, of one shape.
            steps: the value before rounding, in steps without the zero point.
            feeds: the inputs of the unit.

        Raises:
            QbenchError: the operators of the unit cannot be run.
        """
        bound = np.broadcast_to(self._bound(feeds), found.shape)
        if self._unit.qparams is None:
            return np.asarray(np.abs(found.astype(np.float64) - correct) <= 2 * bound)
        real = np.clip(
            steps.astype(np.float64).reshape(found.shape), self._unit.ends.low, self._unit.ends.high
        )
        off = (
            np.abs(one.astype(np.float64) - self._unit.zero_point - real)
            for one in (found, correct)
        )
        within = np.logical_and.reduce(
            [one <= 0.5 + np.where(bound > 0, bound, TIE_WIDTH) for one in off]
        )
        return np.asarray(within & _by_chance(found != correct, real, bound))

    def _bound(self, feeds: Feeds) -> Array:
        """The error bound of the value before rounding: in steps, or of a real value in its own
        unit.
        """
        if self._absolute is None:
            return np.asarray(TIE_WIDTH if self._unit.qparams is not None else 0.0)
        return self._absolute.bound(feeds)

    def close(self) -> None:
        """Close the engine."""
        if self._absolute is not None:
            self._absolute.close()


def _by_chance(differing: Explained, real: Array, bound: Array) -> Explained:
    """Where a difference within ``bound`` proves no rule: in narrow bounds, else where few of
    the ties have moved.
    """
    off = np.abs(real - np.floor(real) - 0.5)
    wide, exact = bound > _NARROW, bound == 0
    ties = int((wide & (off <= bound)).sum())
    most = _SHARE * ties + _SIGMAS * math.sqrt(_SHARE * ties) + 1
    few = int((wide & differing).sum()) <= most
    single = int((exact & differing).sum()) <= max(
        1.0, _EXACT_SHARE * int((exact & (off <= TIE_WIDTH)).sum())
    )
    return np.where(wide, few, np.where(exact, single, True))


class _AbsoluteTerms(Closing):
    """The operators of a unit on absolute operands, whose result is Σ|x||w|.

    Args:
        model: of them.
        unit: the unit.
        adding: those of its operators that add, with the names of their first and second operands
            and of their results in ``model``.
    """

    def __init__(
        self,
        model: ir.Model,
        unit: QuantizedUnit,
        adding: Sequence[tuple[ir.Node, tuple[str, ...]]],
    ) -> None:
        self._model, self._unit, self._adding = model, unit, adding
        self._quantum = _quantum(unit)
        self._executor: Executor | None = None

    @classmethod
    def of(cls, unit: QuantizedUnit) -> "_AbsoluteTerms | None":
        """None: the unit has an operator whose result on absolute operands is no bound."""
        copy = own_copy(unit.graph)
        goal = next(
            (value for node in copy.graph for value in node.outputs if value.name == unit.real),
            None,
        )
        if goal is None:
            return None
        piece = ir.Model(
            ir.convenience.extract(copy.graph, copy.graph.inputs, [goal]),
            ir_version=copy.ir_version,
        )
        nodes = [node for node in piece.graph if node.op_type not in _PAIRS]
        if any(node.op_type not in _BOUNDED for node in nodes):
            return None
        adding = [
            (node, _made_absolute(piece.graph, node)) for node in nodes if node.op_type in _ADDING
        ]
        return cls(piece, unit, adding)

    def bound(self, feeds: Feeds) -> Array:
        """The error bound of the unit's real value, in steps or in its own unit: float64."""
        if self._executor is None:
            known = {str(value.name) for value in self._model.graph.outputs}
            taps = {name for _, names in self._adding for name in names} - known
            self._executor = in_slices(exact_run(self._model, sorted(taps)), self._model)
        names = {str(value.name) for value in self._model.graph.inputs}
        found = self._executor.run({name: array for name, array in feeds.items() if name in names})
        count = sum(
            _terms(node, *(found[name].shape for name in names)) for node, names in self._adding
        )
        absolute = np.abs(found[self._unit.real].astype(np.float64))
        relative = (count + _ROUNDINGS) * _UNIT / (1 - (count + _ROUNDINGS) * _UNIT)
        bound = relative * absolute / self._unit.scale
        if self._quantum is None:
            return np.asarray(bound)
        return np.where(absolute < self._quantum * _EXACT_BELOW, 0.0, bound)

    def close(self) -> None:
        """Close the engine."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None


def _made_absolute(graph: ir.Graph, node: ir.Node) -> tuple[str, ...]:
    """Make the operands of ``node`` absolute; the names of the first two of them, and of its
    result.
    """
    operands = node.inputs[:1] if node.op_type in _MEANS else node.inputs
    names = []
    for place, value in enumerate(operands):
        if value is None:
            continue
        absolute = ir.node("Abs", [value], name=f"{_MADE}{node.outputs[0].name}_{place}")
        made = absolute.outputs[0]
        made.name = f"{_MADE}{node.outputs[0].name}_{place}"
        made.shape = value.shape
        made.type = value.type
        graph.insert_before(node, absolute)
        node.replace_input_with(place, made)
        names.append(made.name)
    if node.op_type == "Sub":
        node.op_type = "Add"
    return (*names[:2], str(node.outputs[0].name))


def _terms(node: ir.Node, *shapes: tuple[int, ...]) -> int:
    """How many terms a result of ``node`` adds, without the bias; ``shapes``: of its first
    operands and its result.
    """
    data, second, result = shapes[0], shapes[1], shapes[-1]
    if node.op_type in _SUMS:
        return len(node.inputs)
    if node.op_type == "Conv":
        return math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(second) // max(second[1], 1)
    if node.op_type in ("Gemm", "MatMul"):
        return _contracted(node, data)
    if node.op_type == "AveragePool":
        return math.prod(node.attributes["kernel_shape"].as_ints())
    return math.prod(data) // max(math.prod(result), 1)


def _contracted(node: ir.Node, data: tuple[int, ...]) -> int:
    is_turned = (
        node.op_type == "Gemm"
        and "transA" in node.attributes
        and node.attributes["transA"].as_int()
    )
    return data[0] if is_turned else data[-1]


def _quantum(unit: QuantizedUnit) -> float | None:
    """A power of two of which all terms of the one operator of ``unit`` are multiples; None:
    there is none.
    """
    nodes = [node for node in unit.graph.graph if node.op_type not in _PAIRS | _MOVING | {"Clip"}]
    if len(nodes) > 1 or any(node.op_type not in _PRODUCTS | _SUMS for node in nodes):
        return None
    found = [_qparams_of(value) for node in nodes for value in node.inputs if value is not None]
    scales = [None if one is None else np.asarray(one.scale, np.float64) for one in found]
    if not scales or not all(
        one is not None and _is_power_of_two(one) for one in (*scales, np.asarray(unit.scale))
    ):
        return None
    least = [float(one.min()) for one in scales if one is not None]
    if nodes[0].op_type in _SUMS:
        return min(least)
    return min([math.prod(least[:2]), *least[2:]])


def _qparams_of(value: ir.Value) -> QParams | None:
    """The qparams of an operand, through operators that only move values."""
    maker = value.producer()
    while maker is not None and maker.op_type in _MOVING and maker.inputs[0] is not None:
        maker = maker.inputs[0].producer()
    return (
        node_qparams(maker) if maker is not None and maker.op_type == "DequantizeLinear" else None
    )


def _is_power_of_two(scale: npt.NDArray[np.floating[Any]]) -> bool:
    mantissas, _ = np.frexp(scale)
    return bool((mantissas == 0.5).all())

"""The runs of one unit: on the backend, in real arithmetic, as its quantization alone would have it."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Feeds, for_many_sessions, get_backend
from qbench.diagnosis.engine.client import Alone, Patience, endless
from qbench.diagnosis.target import Target
from qbench.diagnosis.units import QuantizedUnit, levels_without_unit, quantized_units, real_units
from qbench.graph import constant_value, grid_of, is_constant, node_key, producer, values_by_name, with_shapes
from qbench.judging import Unaligned
from qbench.numerics import QParams, quantize

# A node as its grids alone would have it: the fp32 operators, with every operand rounded to the grid that it has.
#
#     y = round(f(round(x), round(w)))        f, x, w of fp32; the rounding is that of the quantized graph's own grids
#
# The quantized graph holds weights, limits, attributes and operators that a pass or an exporter may have got wrong.
# None of them is used here but its grids, so what the target's node is further from fp32 than this one is no grid's
# fault.

_WEIGHT_BITS = 16
_PAIRS = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshUnit:
    """The fp32 counterpart of a unit.

    Args:
        graph: fp32 operators with rounded constants; inputs are ``feeds``.
        feeds: fp32 values in front, one for each of the unit's, in its order.
        moved: constants that the unit has otherwise than rounding alone would make them: name → rms, in steps of
            theirs; of a bias, which is added to the result, in steps of the result.
    """

    graph: ir.Model
    feeds: tuple[str, ...]
    moved: Mapping[str, float]


def fresh_unit(
    unit: QuantizedUnit, original: ir.Model, stands_for: Mapping[str, str], *, rounded: bool = True
) -> FreshUnit:
    """The counterpart of ``unit``.

    Args:
        unit: of the quantized graph.
        original: the float graph that it was written into, with shapes; not touched.
        stands_for: levels (or an input) → the fp32 value that they are of, for every feed of the unit.
        rounded: whether its constants are put on the unit's grids.

    Raises:
        LookupError: fp32 has no such values, or they do not follow from each other; the text names them.
    """
    known = values_by_name(original)
    feeds = tuple(stands_for[feed] for feed in unit.feeds)
    for name in (*feeds, unit.stands_for):
        if name not in known:
            raise LookupError(f"fp32 has no value '{name}'")
    if any(node.op_type == "DynamicQuantizeLinear" for node in unit.graph.graph):
        raise LookupError(f"grids in front of '{unit.value}' are computed at run time")
    if unit.stands_for in feeds:
        raise LookupError(f"'{unit.value}' only changes the grid of '{unit.stands_for}'")
    ends = [known[name] for name in dict.fromkeys(feeds)]
    try:
        piece = ir.convenience.extract(original.graph, ends, [known[unit.stands_for]])
    except ValueError as error:
        raise LookupError(f"'{unit.stands_for}' does not follow from {', '.join(feeds)} in fp32") from error
    moved = dict(_round_constants(piece, _rounded_constants(unit), unit.scale)) if rounded else {}
    return FreshUnit(graph=ir.Model(piece, ir_version=original.ir_version), feeds=feeds, moved=moved)


def _rounded_constants(unit: QuantizedUnit) -> dict[tuple[str, int], tuple[QParams, Array]]:
    """(operator, place of its operand) → the grid of that constant, and its numbers.

    Raises:
        LookupError: a constant comes off no grid that is known beforehand.
    """
    found = {}
    for node in unit.graph.graph:
        if node.op_type in _PAIRS:
            continue
        for place, value in enumerate(node.inputs):
            maker = producer(value)
            if maker is None or maker.op_type != "DequantizeLinear" or not is_constant(maker.inputs[0]):
                continue
            grid, levels = grid_of(maker), constant_value(maker.inputs[0])
            if grid is None or levels is None:
                raise LookupError(f"nothing says on which grid '{value.name if value else place}' lies")
            found[node_key(node), place] = (grid, _dequantized(levels, grid))
    return found


def _round_constants(
    piece: ir.Graph, grids: Mapping[tuple[str, int], tuple[QParams, Array]], step: float
) -> Iterator[tuple[str, float]]:
    """Put the constants of ``piece`` on their grids; name → how far the unit's are from these, where they are not.

    Raises:
        LookupError: one of the grids is of an operand that fp32 has not.
    """
    left = dict(grids)
    for node in piece:
        for place, value in enumerate(node.inputs):
            constant = constant_value(value)
            if value is None or constant is None or (node_key(node), place) not in left:
                continue
            grid, theirs = left.pop((node_key(node), place))
            try:
                rounded = _dequantized(quantize(constant.astype(np.float32), grid), grid)
            except ValueError:
                yield str(value.name), float("inf")  # the grid does not fit fp32's shape: another layout
                continue
            if theirs.shape != rounded.shape:
                yield str(value.name), float("inf")
            else:
                apart, size = theirs.astype(np.float64) - rounded, grid.expanded(rounded.shape)[0]
                if (np.abs(apart) > size).any():  # a step is what ties and corrections of rounding may move
                    yield str(value.name), float(np.sqrt(np.mean(np.square(apart / (step if _adds(grid) else size)))))
            name = f"{value.name}_rounded_{node_key(node)}"
            held = ir.Value(name=name, const_value=ir.tensor(rounded.astype(np.float32), name=name))
            piece.initializers[name] = held
            node.replace_input_with(place, held)
    for operator, place in left:
        raise LookupError(f"fp32 has no operand {place} of '{operator}'")


def _adds(grid: QParams) -> bool:
    """Whether a constant on ``grid`` is a bias: weights have no more than 16 bits."""
    return grid.qtype.bits > _WEIGHT_BITS


def _dequantized(levels: Array, grid: QParams) -> Array:
    """In float64 before it is rounded: biases of 32 bits are beyond float32."""
    scale, point = grid.expanded(levels.shape)
    return np.asarray((levels.astype(np.int64) - point) * scale.astype(np.float64), np.float32)


# The runs of one unit: by the target's backend, by real arithmetic, as its grids alone would have it, as claimed.

FLOAT_BACKEND = "ort-cpu"
"""Runs the float graph that the quantized one is compared with."""
EXACT = "ort-cpu-noopt"
"""Runs single operators in float32 as they are in the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The pieces of a target, in the order of its graph.

    Args:
        units: all of them; those with real results last. by_value: the same by what they make.
        fresh: value → its counterpart in fp32. unaligned: the values without one, with reasons.
        aligned: the values that represent an fp32 value. stands_for: levels or input → that value.
        original: the float graph, with shapes.
    """

    units: tuple[QuantizedUnit, ...]
    by_value: Mapping[str, QuantizedUnit]
    fresh: Mapping[str, FreshUnit]
    unaligned: tuple[Unaligned, ...]
    aligned: frozenset[str]
    stands_for: Mapping[str, str]
    original: ir.Model

    @classmethod
    def of(cls, target: Target) -> "Units":
        """Those of ``target``.

        Raises:
            InputError: a Q or DQ of its graph means nothing.
        """
        original = with_shapes(target.original)
        known, results = values_by_name(original), _results(original)
        found = (*quantized_units(target.quantized), *real_units(target.quantized))
        units = tuple(replace(unit, stands_for=results.get(unit.origin, unit.stands_for)) for unit in found)
        by_value = {unit.value: unit for unit in units}
        stands_for = {str(value.name): str(value.name) for value in target.quantized.graph.inputs}
        stands_for |= {unit.value: unit.stands_for for unit in units}
        fresh, unaligned = (
            {},
            [
                Unaligned(
                    value=name, reason="an operator in front of it has a graph of its own, or nothing is fed to it"
                )
                for name in levels_without_unit(target.quantized, found)
            ],
        )
        for unit in units:
            if unit.stands_for not in known:
                unaligned.append(Unaligned(value=unit.value, reason=f"fp32 has no value '{unit.stands_for}'"))
                continue
            try:
                fresh[unit.value] = fresh_unit(unit, original, stands_for)
            except LookupError as error:
                if unit.operators:
                    unaligned.append(Unaligned(value=unit.value, reason=str(error.args[0])))
        return cls(
            units=units,
            by_value=by_value,
            fresh=fresh,
            unaligned=tuple(unaligned),
            aligned=frozenset(unit.value for unit in units if unit.stands_for in known),
            stands_for=stands_for,
            original=original,
        )

    def rounded(self, unit: QuantizedUnit, floats: Mapping[str, Array]) -> dict[str, Array]:
        """fp32 numbers in front of ``unit`` on the grids there: levels, and graph inputs as they are.

        Args:
            unit: whose feeds. floats: fp32 values by their names in fp32.

        Raises:
            KeyError: a feed has no counterpart in fp32.
        """
        found = {}
        for name in unit.feeds:
            maker = self.by_value.get(name)
            found[name] = floats[name] if maker is None else levels_of(maker, floats[maker.stands_for])
        return found

    def reals(self, unit: QuantizedUnit, rounded: Mapping[str, Array]) -> dict[str, Array]:
        """The real values of ``rounded``, by the fp32 names that the counterpart of ``unit`` is fed by."""
        fresh = self.fresh[unit.value]
        return {
            name: self.by_value[feed].reals(rounded[feed]) if feed in self.by_value else rounded[feed]
            for name, feed in zip(fresh.feeds, unit.feeds, strict=True)
        }


def _results(model: ir.Model) -> dict[str, str]:
    """Node → the one value that it gives."""
    return {node_key(node): str(node.outputs[0].name) for node in model.graph if len(node.outputs) == 1}


def levels_of(unit: QuantizedUnit, reals: Array) -> Array:
    """``reals`` on the grid of ``unit``: its integers; themselves where it has none."""
    if unit.grid is None:
        return reals
    levels = np.rint(reals.astype(np.float32) / np.float32(unit.scale)) + np.float32(unit.zero_point)
    return np.asarray(np.clip(levels, unit.lowest, unit.highest).astype(unit.grid.qtype.storage_dtype))


def exact_backend() -> Backend:
    """What computes operators in float32 as they are in the graph, and keeps no memory between runs."""
    return for_many_sessions(get_backend(EXACT))


class UnitRunner:
    """A unit prepared on all that run it alone.

    Args:
        target: whose. unit: to be run. fresh: its counterpart in fp32; None: it has none.
        stack: closes what is prepared here. patience: how long an answer of the target's backend is waited for.
    """

    def __init__(
        self,
        target: Target,
        unit: QuantizedUnit,
        fresh: FreshUnit | None,
        stack: ExitStack,
        patience: Patience = endless,
    ) -> None:
        self.unit = unit
        exact, name = exact_backend(), unit.real
        made = {str(value.name) for node in unit.graph.graph for value in node.outputs}
        self._exact = stack.enter_context(exact.prepare(unit.graph, taps=(name,) if name in made else ()))
        self._fresh = None if fresh is None else stack.enter_context(exact.prepare(fresh.graph))
        claims = target.claims if target.is_watched_itself else None
        self._claimed = None if claims is None else stack.enter_context(Alone(unit, claims))
        self._target = stack.enter_context(Alone(unit, target.backend, patience=patience))
        self._engine = target.backend.name

    @property
    def crash(self) -> str:
        """How the target's backend fails on the unit, in a sentence; empty: it did not."""
        found = self._target.crash
        return f"'{self._engine}' fails on it alone: {found}" if found else ""

    def steps(self, feeds: Feeds) -> Array:
        """The number in front of rounding, by real arithmetic on ``feeds``: float32 steps, zero point left out."""
        values = {**feeds, **self._exact.run(feeds)}
        return np.asarray(np.divide(values[self.unit.real], self.unit.scale, dtype=np.float32))

    def counted(self, feeds: Feeds) -> Array | None:
        """What the target's backend makes of ``feeds``; None where it fails; ``crash`` is then a sentence."""
        return self._target.run(feeds)

    def claimed(self, feeds: Feeds) -> Array | None:
        """What the machine that a watched target claims to be makes of ``feeds``; None: it claims none, or fails."""
        return None if self._claimed is None else self._claimed.run(feeds)

    def explained(self, feeds: Feeds) -> Array | None:
        """The fp32 value that rounded operands give, rounded too: real; None: it has no counterpart."""
        if self._fresh is None:
            return None
        exact = self._fresh.run(feeds)[self.unit.stands_for]
        return self.unit.reals(levels_of(self.unit, exact)) if self.unit.grid is not None else exact

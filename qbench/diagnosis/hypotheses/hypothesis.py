"""The protocol of a hypothesis: evidence about one unit in, an explanation out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import IntegerBackend, in_slices
from qbench.diagnosis.float_sums import FloatSums
from qbench.diagnosis.hypotheses.interior import Floats, Interior
from qbench.diagnosis.unit_runs import computes_in_float
from qbench.diagnosis.units import (
    TIE_WIDTH,
    Captured,
    QuantizedUnit,
    are_of_floats,
    leaves_ties_open,
)
from qbench.errors import QbenchError
from qbench.graph import PRODUCTS, values_by_name
from qbench.judging import Cause
from qbench.numerics import Arithmetic, get_arithmetic

# The weight of an explanation:
#
#     weight = explained / (differing + disturbed)
#     explained: differing values that the hypothesis predicts
#     disturbed: correct values for which it predicts another value

SURE = 0.999
"""The weight from which no other hypothesis is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A possible cause: ``evidence`` is a sentence with numbers, ``weight`` (0 … 1) the share
    that it explains.
    """

    cause: Cause
    evidence: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCause:
    """The cause of the error of a node.

    Args:
        cause: None: nothing is wrong.
        evidence: one sentence with numbers.
        weight: 0 … 1, the share that the cause explains.
        others: other explanations, the heaviest first.
        notes: hypotheses that could not be tried, and why.
    """

    cause: Cause | None
    evidence: str
    weight: float = 0.0
    others: tuple[Explanation, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_mistake(self) -> bool:
        """Whether the cause is a mistake of a known kind, and not the cost of the quantization
        parameters.
        """
        return (
            self.cause is not None
            and self.cause is not Cause.WRONG_KERNEL
            and self.cause not in OF_QPARAMS
        )


OF_QPARAMS = frozenset(
    {Cause.COARSE, Cause.RANGE_OUTLIER, Cause.CLIPPING, Cause.DEAD_RANGE, Cause.CHANNELS_DIFFER}
)
"""Costs of the chosen quantization parameters; not reported for a cell that does not fail."""


def heaviest(found: Iterable[Explanation | None]) -> Explanation | None:
    """The first of the heaviest explanations; the search stops at one that is sure."""
    best: Explanation | None = None
    for one in found:
        if one is not None and (best is None or one.weight > best.weight + 1e-9):
            best = one
            if best.weight >= SURE:
                break
    return best


# The quantized values of one unit compared with the correct ones, and how much of the difference a
# mistake explains.
#
# All values are in steps above the zero point. An element differs where the target's value is not
# that of the declared arithmetic. Where the backend declares none, an element differs where no
# rounding of real arithmetic gives its value; ties within 2⁻¹⁰ may be rounded either way.

Mask = npt.NDArray[np.bool_]

MOST = 60_000
"""Elements that are examined, unless one sample has more."""
_ENOUGH, _FEW, _TENTH = 8, 3, 0.1
_ARRAYS = ("found", "correct", "real", "differing", "hard")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitEvidence:
    """The values of a unit on a few samples.

    Args:
        captured: the unit.
        arithmetic: that of the backend.
        claimed: whether the backend declares it; else it is ``ideal``.
        feeds: the quantized inputs.
        found: the target's result.
        again: the target's result for the unit alone; None: it fails.
        correct: the result of the arithmetic.
        real: the values before rounding.
        differing: where ``found`` is not right.
        hard: where, in addition, no rounding of ``real`` gives ``found``.
        low, high: limits of ``real`` by a Relu, a Clip or the codes.
        lowest, highest: the least and largest result.
        slack: by how much the arithmetic may differ from ``real`` beyond half a step.
        interior: the float operators; None: there are none.
        operands: the operands of ``interior``, real.
        original: the float graph; None: it is not known.
        region: where a mistake is looked for; None: everywhere.
        result_axis: the channel axis of the result.
        channel_axis: that of the arrays, where they have another shape.
        count, hard_count: number of ``differing`` and ``hard`` values.
    """

    captured: Captured
    arithmetic: Arithmetic
    claimed: bool
    feeds: Mapping[str, npt.NDArray[Any]]
    found: Floats
    again: Floats | None
    correct: Floats
    real: Floats
    differing: Mask
    hard: Mask
    low: float
    high: float
    lowest: float
    highest: float
    slack: float
    interior: Interior | None
    operands: Mapping[str, Floats] = field(default_factory=dict)
    original: ir.Model | None = None
    region: Mask | None = None
    result_axis: int = 1
    channel_axis: int | None = None

    count: int = field(init=False)
    hard_count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", int(self.differing.sum()))
        object.__setattr__(self, "hard_count", int(self.hard.sum()))

    @property
    def is_beyond_chance(self) -> bool:
        """Whether enough values differ to tell one rule from another: eight, or three that are
        a tenth of all.

        Some sixty rules are tried, each also in only those places that differ. Values that differ
        by one step go up or down, so that by chance one rule in sixty-four fits six of them.
        """
        return self.count >= _ENOUGH or (
            self.count >= _FEW and self.count > _TENTH * self.found.size
        )

    @property
    def is_product(self) -> bool:
        """Whether the unit holds a convolution or a matrix product."""
        return self.interior is not None and self.interior.node.op_type in PRODUCTS

    @property
    def axis(self) -> int:
        """The channel axis of the arrays."""
        return self.result_axis if self.channel_axis is None else self.channel_axis

    def along(self, values: npt.ArrayLike) -> Floats:
        """One number per channel (or one for all), in a shape that broadcasts with the arrays."""
        each = np.asarray(values, np.float64).reshape(-1)
        if each.size == 1:
            return each.reshape(())
        shape = [1] * self.found.ndim
        shape[self.axis] = each.size
        return each.reshape(shape)

    def clipped(self, real: Floats) -> Floats:
        """``real`` clamped to the limits."""
        return np.clip(real, self.low, self.high)

    def thinned(self) -> "UnitEvidence":
        """At most ``MOST`` values as (positions, channels), half of them at positions with a
        difference.
        """
        if self.found.size <= MOST or self.found.ndim < 2:
            return self
        channels = self.found.shape[self.axis]
        flat = {name: _by_channel(getattr(self, name), self.axis) for name in _ARRAYS}
        off = flat["differing"].sum(axis=1)
        wanted, count = max(1, MOST // channels), len(off)
        off_places, rest = np.flatnonzero(off), np.flatnonzero(off == 0)
        half = max(wanted // 2, wanted - len(rest))
        chosen = np.concatenate(
            [_spread(off_places, half), _spread(rest, wanted - min(half, len(off_places)))]
        )
        region = None if self.region is None else _by_channel(self.region, self.axis)
        if count <= wanted or not len(chosen):
            return self
        kept: dict[str, Any] = {name: array[chosen] for name, array in flat.items()}
        return replace(
            self,
            **kept,
            again=None,
            region=None if region is None else region[chosen],
            channel_axis=1,
        )

    @property
    def looked_at(self) -> Mask:
        """Where a mistake is searched."""
        return np.ones(self.found.shape, bool) if self.region is None else self.region

    def narrowed(self) -> "UnitEvidence | None":
        """The evidence restricted to the slices or the memory range with differences; None:
        more than half remains.
        """
        region = np.ones(self.found.shape, bool)
        for axis in range(self.found.ndim):
            rest = tuple(a for a in range(self.found.ndim) if a != axis)
            region &= self.differing.any(axis=rest, keepdims=True)
        flat = np.flatnonzero(self.differing)
        places = np.arange(region.size).reshape(region.shape)
        stretch = (places >= flat[0]) & (places <= flat[-1])
        region = stretch if stretch.sum() < region.sum() else region
        return replace(self, region=region) if 2 * int(region.sum()) <= region.size else None

    @property
    def inside(self) -> Mask:
        """Where the found value is not clamped and the real one is finite: the values that scales
        and offsets are fitted to.
        """
        return (
            (self.found > self.lowest)
            & (self.found < self.highest)
            & np.isfinite(self.real)
            & self.looked_at
        )

    def rounded(self, real: Floats) -> Floats:
        """Rounded numbers clamped to the least and largest result."""
        return np.clip(real, self.lowest, self.highest)

    def weigh_codes(self, cause: Cause, words: str, codes: Floats) -> Explanation | None:
        """The explanation by a mistake that gives exactly ``codes`` (steps above the zero
        point, clamped).
        """
        if codes.shape != self.found.shape:
            return None
        same = codes == self.found
        disturbed = self.looked_at & ~self.differing & ~same & (codes != self.correct)
        return self._weighed(cause, words, int((self.differing & same).sum()), int(disturbed.sum()))

    def weigh_arithmetic(
        self,
        cause: Cause,
        words: str,
        *,
        arithmetic: Arithmetic | None = None,
        graph: ir.Model | None = None,
    ) -> Explanation | None:
        """The explanation by a mistake that gives the result of another ``arithmetic``, or of
        another ``graph``.
        """
        captured = self.captured
        if graph is not None:
            captured = replace(captured, unit=replace(captured.unit, graph=graph))
        codes = counted(captured, arithmetic or self.arithmetic, self.feeds)
        return None if codes is None else self.weigh_codes(cause, words, codes)

    def weigh_reals(
        self, cause: Cause, words: str, real: Floats, share: float = 1.0
    ) -> Explanation | None:
        """The explanation by a mistake with ``real`` before rounding; ``share`` is a factor of
        the weight.
        """
        shown = (
            np.broadcast_to(real, self.found.shape) if np.ndim(real) <= self.found.ndim else real
        )
        if shown.shape != self.found.shape or 2 * self.hard_count < self.count:
            return None  # differences at ties show a rounding rule, nothing else
        # of very many values a regular subset is weighed
        step = max(1, self.found.size // (4 * MOST)) if self.channel_axis is None else 1
        found, t = self.found.reshape(-1)[::step], shown.reshape(-1)[::step]
        hard = self.hard.reshape(-1)[::step]
        rest = (self.looked_at & ~self.differing).reshape(-1)[::step]
        fits = np.abs(found - self.clipped(t)) <= 0.5 + self.slack
        explained, disturbed = int((hard & fits).sum()) * step, int((rest & ~fits).sum()) * step
        return self._weighed(cause, words, min(explained, self.count), disturbed, share)

    def _weighed(
        self, cause: Cause, words: str, explained: int, disturbed: int, share: float = 1.0
    ) -> Explanation | None:
        if not explained:
            return None
        wrong = f", and would change {disturbed} that agree" if disturbed else ""
        words = words if self.region is None else words.rstrip(",")
        where = (
            ""
            if self.region is None
            else f", in {int(self.region.sum())} of {self.region.size} places alone,"
        )
        return Explanation(
            cause=cause,
            evidence=(
                f"{words}{where} explains {explained} of {self.count} codes that differ{wrong}"
            ),
            weight=share * explained / (self.count + disturbed),
        )


def _by_channel(array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])


def _spread(places: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """``count`` of ``places``, evenly."""
    if len(places) <= count:
        return places
    return places[np.linspace(0, len(places) - 1, max(count, 1)).astype(np.int64)]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A family of mistakes of an engine or a quantizer.

    Args:
        name: in notes.
        tried: the explanations by each mistake of the family; None: it explains nothing.
        by_element: whether it uses each element independently, so that a subset of many is enough.
    """

    name: str
    tried: Callable[[UnitEvidence], Iterable[Explanation | None]]
    by_element: bool = False

    def explain(self, facts: UnitEvidence) -> Explanation | None:
        """The mistake of this family that explains most of ``facts``; None: none explains
        anything.
        """
        return heaviest(self.tried(facts))


# The convolution or matrix product of a unit:
#
# t = Σ (x − z_x)(w − z_w) · u + b,    u = s_x · s_w / s_y,    b in steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """A product by constant weights with only a Relu or Clip after it.

    Args:
        weight: its name among the operands.
        values: the real weights. scales, zero_point: of the weights, per channel or one.
        unit: u, in a shape that broadcasts with the result.
        bias: in steps, likewise; None: it has none.
        x: the name of the other operand. x_scale, x_zero: its quantization parameters.
    """

    weight: str
    values: Floats
    scales: Floats
    zero_point: Floats
    unit: Floats
    bias: Floats | None
    x: str
    x_scale: float
    x_zero: int

    @classmethod
    def of(cls, facts: UnitEvidence) -> "Product | None":
        """None: the unit has no product by constant weights, or an operator after it."""
        inner = facts.interior
        if inner is None or not facts.is_product or inner.node.outputs[0].name != inner.output:
            return None
        x, weight = inner.operand(0), inner.operand(1)
        if (
            x is None
            or weight is None
            or x.qparams is None
            or weight.qparams is None
            or weight.codes is None
        ):
            return None
        if np.size(x.qparams.scale) != 1 or weight.qparams.block_size:
            return None
        scales = np.asarray(weight.qparams.scale, np.float64).reshape(-1)
        if scales.size not in (1, facts.found.shape[facts.axis]):
            return None
        bias = inner.constant(2)
        return cls(
            weight=weight.name,
            values=facts.operands[weight.name],
            scales=scales,
            zero_point=np.asarray(weight.qparams.zero_point, np.float64).reshape(-1),
            unit=facts.along(float(x.qparams.scale) * scales / inner.scale),
            bias=None if bias is None else facts.along(bias.astype(np.float64) / inner.scale),
            x=x.name,
            x_scale=float(x.qparams.scale),
            x_zero=int(x.qparams.zero_point),
        )


_REMEDIES: Mapping[Cause, str] = MappingProxyType(
    {
        Cause.RANGE_OUTLIER: (
            "Choose a range method that cuts outliers (percentile, mse), 16 bits, or float."
        ),
        Cause.CLIPPING: "Calibrate on samples like those that are scored, or by a range method "
        "that keeps the ends, of weights too.",
        Cause.DEAD_RANGE: (
            "Choose asymmetric or unsigned qparams, and calibrate anew if the profile is an old "
            "one."
        ),
        Cause.CHANNELS_DIFFER: (
            "Quantize the weights per channel, or equalize the channels across layers before."
        ),
        Cause.BIAS_SATURATION: (
            "Give the bias 32 bits, or the weights a larger scale; or keep the node in float."
        ),
        Cause.WRONG_BIAS: (
            "Compare the bias that the engine reads, its order and its scale s_x · s_w with fp32's."
        ),
        Cause.WRONG_SCALE: (
            "Compare the multiplier of each channel with s_x · s_w / s_y, and the bits it is held "
            "in."
        ),
        Cause.PAIR_SATURATION: (
            "Use weights of 7 bits, unsigned weights, or the engine's precise mode here."
        ),
        Cause.ACCUMULATOR: (
            "Sum in a wider register or in parts, and saturate where a sum is requantized."
        ),
        Cause.ROUNDING: (
            "Compare the kernel's last rounding, and where it adds the zero point, with the "
            "arithmetic's."
        ),
        Cause.ABSORBED_CLIP: (
            "Keep the Clip after QuantizeLinear, where fusion keeps it, or end the range there."
        ),
        Cause.PADDING: (
            "Pad with the input's zero point, on the sides and in the sizes that ONNX defines."
        ),
        Cause.LAYOUT: (
            "Check the axis, the order of channels and operands, and the layout that the kernel "
            "reads."
        ),
        Cause.NOT_WRITTEN: (
            "Check the bounds and tails of loops, and the contents of buffers that are used again."
        ),
        Cause.TABLE: (
            "Compute the table from exact values, with one entry per input value or more bits."
        ),
        Cause.NONDETERMINISM: (
            "Run the node alone with one thread and with all, and look for writes that race."
        ),
        Cause.CRASH: (
            "Report the unit and its input to the engine's authors; keep the node in float until "
            "then."
        ),
        Cause.WRONG_KERNEL: (
            "Report the smallest failing input to the engine's authors, or name its arithmetic."
        ),
        Cause.WRONG_GRAPH: (
            "Compare its operators and constants with fp32's, and look for a pass that changed "
            "them."
        ),
        Cause.IN_FLOAT: (
            "See which operand lost its integers (a Q/DQ pair, a folded weight), or what the "
            "engine lacks."
        ),
        Cause.WRONG_WEIGHT: (
            "Compare the bytes of the weight that the engine reads with those of the file."
        ),
        Cause.CALIBRATION: (
            "Compare the calibration data, their order and preprocessing with the accepted run's."
        ),
        Cause.COARSE: (
            "Give the node more bits (its weights 8, its values 16), or keep it in float."
        ),
    }
)


def remedy_of(cause: Cause) -> str:
    """What to do about ``cause``, in one sentence."""
    return _REMEDIES[cause]


# The channel axis of a result: the second after a convolution, the last after a matrix product. A
# sum of rank 3 may be [N, C, L] or [N, T, C]. Then the nearest operators with weights decide;
# without any it is the last.

_SECOND = frozenset(
    {"Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "GroupNormalization"}
)
_LAST = frozenset({"Gemm", "MatMul", "LayerNormalization", "RMSNormalization"})
_MOVING = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_AMBIGUOUS = 3
_NEAR = 64
"""Neighbours that are searched at most."""


def axis_of_channels(
    rank: int, interior: Interior | None, original: ir.Model | None, value: str
) -> int:
    """The axis, from 0.

    Args:
        rank: of the result.
        interior: the operators that compute it, if any.
        original: the float graph, if known.
        value: the name of the result there.
    """
    last = max(rank - 1, 0)
    operator = "" if interior is None else interior.node.op_type
    if rank < _AMBIGUOUS or operator in _LAST:
        return last
    if rank > _AMBIGUOUS or operator in _SECOND:
        return 1
    known = {} if original is None else values_by_name(original)
    near = next(_weighted(known[value]), "") if value in known else ""
    return 1 if near in _SECOND else last


def _weighted(value: ir.Value) -> Iterator[str]:
    """The operators around ``value`` that determine its channel axis, the nearest first."""
    reached, visited = [value], {value}
    while reached and len(visited) <= _NEAR:
        one = reached.pop(0)
        maker = one.producer()
        for node in (*([] if maker is None else [maker]), *(use.node for use in one.uses())):
            if node.op_type in _SECOND | _LAST:
                yield node.op_type
            elif node.op_type not in _MOVING:
                fresh = [
                    v
                    for v in (*node.inputs, *node.outputs)
                    if v is not None and v.const_value is None and v not in visited
                ]
                reached += fresh
                visited.update(fresh)


OFTEN = 0.01
"""Share of values that may be a step off real arithmetic where none is declared: arithmetics
differ in rounding.
"""
_REAL_TOLERANCE = 1e-4


def evidence_of(
    captured: Captured, correct: Arithmetic | None, original: ir.Model | None = None
) -> tuple[UnitEvidence, tuple[str, ...]]:
    """The evidence of a captured unit, and notes on what could not be computed."""
    captured = _cropped(captured)
    unit = captured.unit
    zero = unit.zero_point
    values = _Values.of(captured)
    lowest, highest = (float(unit.rounded(np.array(end))) - zero for end in (-np.inf, np.inf))
    codes, notes = _correct_codes(values, correct)
    differences = _differences(values, correct, codes)
    slack = differences.slack
    if unit.qparams is None:
        slack = float(np.max(values.width)) - 0.5  # without rounding there is no half step
    interior = Interior.of(unit)
    facts = UnitEvidence(
        captured=captured,
        arithmetic=correct or get_arithmetic("ideal"),
        claimed=codes is not None,
        feeds=captured.feeds,
        found=values.found,
        again=None if captured.again is None else captured.again.astype(np.float64) - zero,
        correct=differences.correct,
        real=values.real,
        differing=differences.differing,
        hard=differences.hard,
        low=unit.ends.low,
        high=unit.ends.high,
        lowest=lowest,
        highest=highest,
        slack=slack,
        interior=interior,
        operands={} if interior is None else interior.values(captured.feeds),
        original=original,
        result_axis=axis_of_channels(values.found.ndim, interior, original, unit.represents),
    )
    return facts, notes


@dataclass(frozen=True, slots=True, eq=False)
class _Values:
    """The values of a unit, in steps above the zero point.

    Args:
        captured: the unit on the samples that are examined.
        found: the target's result.
        real: the values before rounding.
        clipped: ``real`` clamped to the limits of the unit.
        width: the error of float32 at each value; of a quantized result at least ``TIE_WIDTH``.
    """

    captured: Captured
    found: Floats
    real: Floats
    clipped: Floats
    width: Floats

    @classmethod
    def of(cls, captured: Captured) -> "_Values":
        unit = captured.unit
        found = captured.found.astype(np.float64) - unit.zero_point
        real = captured.real.reshape(found.shape)
        return cls(
            captured,
            found,
            real,
            clipped=np.clip(real, unit.ends.low, unit.ends.high),
            width=_width(real, unit.qparams is not None),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Differences:
    """How the values of a unit differ from the correct ones: ``correct``, ``differing``, ``hard``
    and ``slack`` of ``UnitEvidence``.
    """

    correct: Floats
    differing: Mask
    hard: Mask
    slack: float


def _correct_codes(
    values: _Values, correct: Arithmetic | None
) -> tuple[Floats | None, tuple[str, ...]]:
    """The result under the arithmetic ``correct`` (None: only real arithmetic can judge the
    unit), and notes.
    """
    captured, unit = values.captured, values.captured.unit
    if correct is None or (unit.qparams is None and unit.has_real_products):
        return None, ()
    codes = counted(captured, correct, captured.feeds)
    if codes is None:
        note = f"'{correct.name}' cannot compute the unit, so it is compared with real arithmetic"
        return None, (note,)
    return (codes if codes.shape == values.found.shape else None), ()


def _differences(values: _Values, correct: Arithmetic | None, codes: Floats | None) -> _Differences:
    """How the values differ from ``codes``, the result under ``correct``; from real arithmetic
    where there are none.
    """
    if codes is None:
        return _from_real(values)
    if values.captured.unit.qparams is None:
        # float32 sums in another order are no difference
        differing = np.abs(values.found - codes) > values.width
        nearest = np.where(differing, codes, values.found)
        return _Differences(nearest, differing, differing, TIE_WIDTH)
    assert correct is not None
    return _from_codes(values, correct, codes)


def _from_real(values: _Values) -> _Differences:
    """How the values differ from every rounding of real arithmetic."""
    found, unit = values.found, values.captured.unit
    half_step = 0.5 if unit.qparams else 0.0
    hard = np.abs(found - values.clipped) > half_step + values.width
    claimed = values.captured.errors.claimed
    if claimed is not None and not claimed.differing:
        # all values are as its arithmetic says: real arithmetic cannot prove a mistake
        return _Differences(found, np.zeros_like(hard), np.zeros_like(hard), TIE_WIDTH)
    ideal = unit.rounded(values.real) - unit.zero_point
    is_within_a_step = np.abs(found - ideal).max(initial=0) <= 1
    if unit.qparams is not None and is_within_a_step and hard.mean() <= OFTEN:
        hard = np.zeros_like(hard)
    return _Differences(np.where(hard, ideal, found), hard, hard, TIE_WIDTH)


def _from_codes(values: _Values, correct: Arithmetic, codes: Floats) -> _Differences:
    """How a quantized result differs from ``codes``, that of ``correct``. Differences that the
    order of float32 sums explains are none.
    """
    found, unit = values.found, values.captured.unit
    differing = found != codes
    slack = _slack(values, codes)
    hard = differing & (np.abs(found - values.clipped) > 0.5 + slack)
    if not differing.any():
        return _Differences(codes, differing, hard, slack)
    if leaves_ties_open(correct):
        explained = _by_order(unit, found, codes, values.captured)
        nearest = np.where(explained, found, codes)
        return _Differences(nearest, differing & ~explained, hard & ~explained, slack)
    tied = float((np.abs(values.real - np.floor(values.real) - 0.5) <= TIE_WIDTH).sum())
    over_a_step = int((np.abs(found - codes) > 1).sum())
    by_floats = are_of_floats(int(differing.sum()), over_a_step, tied, found.size)
    if by_floats and computes_in_float(unit, correct):
        return _Differences(found, np.zeros_like(differing), hard, slack)
    return _Differences(codes, differing, hard, slack)


def _slack(values: _Values, codes: Floats) -> float:
    """How far ``codes`` lie from real arithmetic beyond half a step: all but one value in a
    thousand, and one step at most.
    """
    beyond = np.abs(codes - values.clipped) - 0.5
    usual = np.quantile(beyond, 0.999) if beyond.size else 0
    return float(np.clip(usual, TIE_WIDTH, 1.0)) + TIE_WIDTH


def _by_order(unit: QuantizedUnit, found: Floats, codes: Floats, captured: Captured) -> Mask:
    """Where the order of float32 sums explains that ``found`` is not ``codes``, both in steps
    above the zero point.
    """
    zero = unit.zero_point
    with FloatSums(unit) as sums:
        return sums.explained(found + zero, codes + zero, captured.real, captured.feeds)


def counted(
    captured: Captured, arithmetic: Arithmetic, feeds: Mapping[str, npt.NDArray[Any]]
) -> Floats | None:
    """The result of the unit under ``arithmetic``, in steps above the zero point, float64;
    None: it cannot run it.
    """
    unit = captured.unit
    try:
        with IntegerBackend(arithmetic=arithmetic).prepare(unit.graph) as executor:
            codes = in_slices(executor, unit.graph).run(feeds)[unit.value]
    except (QbenchError, ValueError):
        return None
    return np.asarray(codes.astype(np.float64) - unit.zero_point)


def _width(real: Floats, is_quantized: bool) -> Floats:
    """How far float32 may move each of ``real``; in steps at least ``TIE_WIDTH``, within which a
    tie may be rounded either way.
    """
    if is_quantized:
        return np.maximum(TIE_WIDTH, np.abs(real) * 2.0**-20)
    return np.abs(real) * _REAL_TOLERANCE + _REAL_TOLERANCE * float(np.abs(real).max(initial=0))


def _cropped(captured: Captured) -> Captured:
    """``captured`` on the first sample and those with most differences, up to ``MOST`` elements."""
    found = captured.found
    arrays = [*captured.feeds.values(), captured.real]
    count = found.shape[0] if found.ndim else 0
    if found.size <= MOST or count < 2 or any(a.ndim == 0 or a.shape[0] != count for a in arrays):
        return captured
    unit = captured.unit
    limited = np.clip(captured.real, unit.ends.low, unit.ends.high).reshape(found.shape)
    off = np.abs(found.astype(np.float64) - unit.zero_point - limited) > 0.5 + TIE_WIDTH
    if captured.again is not None and captured.again.shape == found.shape:
        off = off | (captured.again != found)
    worst = np.argsort(-off.reshape(count, -1).sum(axis=1), kind="stable")
    several = max(1, MOST * count // found.size)
    kept = np.sort(worst[:several])
    if several > 1 and 0 not in kept:
        kept[0] = 0  # a mistake may put the values of the first sample into all others
    again = captured.again
    return replace(
        captured,
        feeds={name: array[kept] for name, array in captured.feeds.items()},
        found=found[kept],
        again=None if again is None or again.shape != found.shape else again[kept],
        real=captured.real[kept],
        fed={
            name: array[kept] if array.shape[:1] == (count,) else array
            for name, array in captured.fed.items()
        },
        isolated=None if captured.isolated is None else captured.isolated[kept],
        expected=captured.expected[kept],
    )

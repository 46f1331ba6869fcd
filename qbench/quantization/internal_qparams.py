"""Quantization parameters inside a unit: of a product, of a sum before its clip, of a bias."""

import copy
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from qbench.calibration import Distribution, Profile, Statistics, Unit
from qbench.errors import InputError
from qbench.graph import constant_value, is_constant, node_key, op_spec
from qbench.numerics import Interval, QParams, QParamsKind, QType
from qbench.passes import is_product
from qbench.quantization.by_hand import HandRanges, refuse_other
from qbench.quantization.decision import (
    BY_SCHEMA,
    Decision,
    Derived,
    Given,
    KeptFloat,
    Shared,
    Static,
    qparams_of,
)
from qbench.quantization.schema import SlotOptions
from qbench.quantization.spec import BiasKind, BiasSpec, Finer, Granularity, Role, Slot, Spec

# Ranges of watched values by the methods that specs name, each searched for once.
#
# Per channel the range is that of the channel's extremes, all that a profile keeps of channels;
# axis 1 is theirs.

CHANNELS = 1
_PLAIN = "minmax"


class Ranges:
    """The ranges of one profile's values; kept, so that plans of many schemas search once.

    The digest of the profile is kept, too: every plan names it.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._found: dict[tuple[str, str, QParamsKind], Interval | str] = {}
        self._distributions: dict[str, Distribution] = {}
        self.hand: HandRanges | None = None

    def with_hand(self, hand: HandRanges | None) -> "Ranges":
        """These ranges, but for the values of ``hand``; what was searched for is shared."""
        if hand is None:
            return self
        view = copy.copy(self)
        view.hand = hand
        return view

    @cached_property
    def profile_digest(self) -> str:
        """The digest of the profile."""
        return self._profile.digest

    def problem(self, name: str) -> str | None:
        """What is wrong with the statistics of the value ``name``; None when it has a range."""
        if self.hand is not None and name in self.hand:
            return None
        statistics = self._profile.values.get(name)
        if statistics is not None and statistics.infinite:
            return f"'{name}' was infinite {statistics.infinite:,} times in calibration"
        return (
            None
            if statistics is not None and statistics.count
            else f"the profile has no statistics of '{name}'"
        )

    def absmax(self, name: str) -> float:
        """The largest magnitude of the value ``name``, which has no ``problem``; infinite where
        it was never observed and its range is by hand.
        """
        statistics = self._profile.values.get(name)
        if statistics is None or not statistics.count:
            return np.inf
        return self._distribution(name).absmax

    def interval(self, name: str, spec: Spec) -> Interval | str:
        """The range of the value ``name`` that ``spec`` asks for, 0-d or one per channel, or
        why there is none.
        """
        if (problem := self.problem(name)) is not None:
            return problem
        if (given := self.by_hand(name, spec)) is not None:
            return _interval_of(given.qparams)
        statistics = self._profile.values[name]
        if spec.granularity is Granularity.CHANNEL:
            return _of_channels(name, statistics, spec)
        key = (name, spec.range_method, spec.kind)
        if key not in self._found:
            self._found[key] = self._searched(name, spec)
        return self._found[key]

    def by_hand(self, name: str, spec: Spec) -> Given | None:
        """The parameters of the value ``name`` under ``spec`` that its file gives; None: none.

        Raises:
            InputError: ``spec`` has no such parameters, or fixes others.
        """
        if self.hand is None or name not in self.hand:
            return None
        statistics, channels = self._profile.values.get(name), spec.granularity
        lows = None if statistics is None else statistics.channel_lows
        if channels is not Granularity.CHANNEL:
            given = self.hand.given(name, spec.kind)
        elif lows is None:
            raise InputError(
                self.hand.doing,
                found=f"no statistics of the channels of '{name}'",
                expected="a profile with channels, as the schema asks for",
                remedy="Calibrate the model for this schema.",
            )
        else:
            given = self.hand.given(name, spec.kind, shape=lows.shape, axis=CHANNELS)
        if spec.fixed is not None:
            refuse_other(given, spec.fixed, f"the schema fixes '{name}'")
        return given

    def _searched(self, name: str, spec: Spec) -> Interval | str:
        try:
            return spec.method.of_distribution(self._distribution(name), spec.kind)
        except InputError as error:
            return (
                f"'{name}' has no range by {spec.range_method}: found {error.found}, expected "
                f"{error.expected}"
            )

    def _distribution(self, name: str) -> Distribution:
        if name not in self._distributions:
            self._distributions[name] = self._profile.values[name].distribution()
        return self._distributions[name]

    def qparams(
        self, names: tuple[str, ...], spec: Spec, also: Interval | None = None
    ) -> QParams | str:
        """The qparams that cover the ranges of all of ``names`` (at least one), or why there is
        none.

        Args:
            names: of values.
            spec: the type and the range method.
            also: a further range to cover, 0-d.
        """
        if len(names) == 1 and (given := self.by_hand(names[0], spec)) is not None:
            return given.qparams
        lows: list[npt.NDArray[np.float64]] = []
        highs: list[npt.NDArray[np.float64]] = []
        for name in names:
            interval = self.interval(name, spec)
            if isinstance(interval, str):
                return interval
            if lows and interval.low.shape != lows[0].shape:
                return (
                    f"'{names[0]}' and '{name}' have different channels, "
                    "and one grid for both is asked for"  # stored name
                )
            lows.append(interval.low)
            highs.append(interval.high)
        if also is not None:
            lows.append(also.low)
            highs.append(also.high)
        axis = CHANNELS if lows[0].ndim else None
        try:
            return spec.kind.choose(np.minimum.reduce(lows), np.maximum.reduce(highs), axis=axis)
        except InputError as error:
            return f"no grid for '{names[0]}' as {spec}: found {error.found}"  # stored name


def _interval_of(qparams: QParams) -> Interval:
    """The real values of the lowest and the highest code."""
    scale, point = qparams.scale.astype(np.float64), qparams.zero_point
    return Interval((qparams.qmin - point) * scale, (qparams.qmax - point) * scale)


def _of_channels(name: str, statistics: Statistics, spec: Spec) -> Interval | str:
    lows, highs = statistics.channel_lows, statistics.channel_highs
    if lows is None or highs is None:
        return f"the profile has no channels of '{name}': profile with channels, where it has them"
    if spec.range_method != _PLAIN:
        return (
            f"'{name}' has no range by {spec.range_method}: of channels a profile keeps extremes "
            "only"
        )
    seen = lows <= highs
    return Interval(np.where(seen, lows, 0.0), np.where(seen, highs, 0.0))


# The qparams of a bias: the product's or its own, and the weight scales that make room for it.
#
# derived    q_b = round_half_even(b / (s_x · s_w)), int32
#            |q_b| ≤ 2³⁰: the other half of int32 is the products'
# own        q_b = round_half_even(b / s_b) in a type of its own width, s_b the smallest scale that
#            covers max |b|
#
#
#     finer chosen    s_x·s_w · q_xw + s_b · q_b: the sum has the finer of both scales, where
#                     nothing more is lost
#     product         s_b := max(s_b, s_x·s_w): a bias finer than the product is rounded to the
#                     product's scale
#     bias            round(s_x·s_w · q_xw / s_b) + q_b: the product is rounded to the bias's scale,
#                     int32
#
# Where a bias that is added at the product's scale would not fit there, the weight's scale is
# raised until it does: a weight that coarse is small compared with its bias. A channel of zeros
# takes a scale from the others, so that its bias keeps its precision: zeros themselves determine no
# scale.
#
# Sources: TVM relay quantization (AddRealize, and the patch that gave biases 16 bits), Glow's
# channelwise rules.

LIMIT = 2.0**30
_SMALLEST_PRODUCT = 2.0**-126
_DEAD_BITS = 20

Floats = npt.NDArray[np.float64]
INT32 = QType.parse("int32")


def added_on_product(spec: BiasSpec) -> bool:
    """Whether the sum of product and bias may have the product's scale, where the bias has to
    fit.
    """
    return spec.kind is BiasKind.DERIVED or (
        spec.kind is BiasKind.OWN and spec.finer is not Finer.BIAS
    )


def without_dead_channels(weight: QParams, dead: npt.NDArray[np.bool_]) -> QParams:
    """``weight`` with the scale of channels of zeros (``dead``, one flag a scale) replaced by
    the median of the others.

    Where all are dead nothing is known; ``raised_for_bias`` then gives them a scale from the bias.
    """
    if weight.axis is None or not dead.any() or dead.all():
        return weight
    living = np.sort(weight.scale[~dead])
    scale = np.where(dead, living[len(living) // 2], weight.scale)
    return _with_scale(weight, scale.astype(np.float64))


def raised_for_bias(
    weight: QParams, input_scale: float, bias: Floats, *, pow2: bool, dead: bool
) -> tuple[QParams, int]:
    """``weight`` with scales large enough for ``bias``, and how many of them were raised.

    Args:
        weight: per tensor or per channel.
        input_scale: s_x.
        bias: one value a channel, or any number of them per tensor.
        pow2: keep scales powers of two.
        dead: all weights are zero, so that their scale is free: 2²⁰ codes for the largest bias.
    """
    reach = np.abs(bias) if weight.axis is not None else np.abs(bias).max(initial=0.0)
    if dead and np.any(reach):
        top = np.log2(np.max(reach) / input_scale)
        weight = _with_scale(
            weight, np.full(weight.scale.shape, 2.0 ** (np.ceil(top) - _DEAD_BITS))
        )
    needed = np.maximum(reach / LIMIT, _SMALLEST_PRODUCT) / input_scale
    short = weight.scale < needed
    if not short.any():
        return weight, 0
    if pow2:
        needed = 2.0 ** np.ceil(np.log2(needed))
    # Half a unit in the last place may be lost on the way to float32; LIMIT leaves room for it.
    return _with_scale(weight, np.where(short, needed, weight.scale)), int(short.sum())


def bias_qparams(weight: QParams, input_scale: float, axis: int) -> QParams:
    """The int32 qparams of a product: the float32 product of both scales, per channel along
    ``axis`` of its bias.
    """
    product = np.float32(input_scale) * weight.scale
    return QParams(product, 0, INT32, axis=None if weight.axis is None else axis)


def own_qparams(spec: BiasSpec, bias: Floats) -> QParams:
    """Qparams for a bias alone, per tensor, that cover all of ``bias``."""
    return spec.qparams_kind.choose(bias.min(), bias.max())


def no_finer_than(own: QParams, product: QParams) -> QParams:
    """``own`` with its scale raised to that of ``product`` where it is finer; per channel where
    the product is.
    """
    return QParams(np.maximum(own.scale, product.scale), 0, own.qtype, axis=product.axis)


def _with_scale(weight: QParams, scale: Floats) -> QParams:
    largest = float(np.finfo(np.float32).max)
    return QParams(
        np.clip(scale, _SMALLEST_PRODUCT, largest),
        weight.zero_point,
        weight.qtype,
        axis=weight.axis,
        narrow_range=weight.narrow_range,
    )


# Qparams inside a unit: of the product before its bias, of the sum before its clip, of a bias at
# the product's scale.
#
#     correlation ──Q──┐
#                      + ──Q── clip ──output──
#     bias ────────Q───┘
#
# Such values exist where the canonical passes split biases off. Where a schema requests nothing for
# them, a unit of such a graph is planned like a fused one: nothing between its operands and its
# result is rounded.

_WIDEST_CHECKED = 16
"""Biases of so many bits are stored in types that no engine fuses."""


def inner_problem(unit: Unit, options: SlotOptions, ranges: Ranges) -> str | None:
    """Why the qparams requested inside ``unit`` cannot be planned; None when they can, or none
    are requested.
    """
    words = _asked(unit, options)
    if _mistaken(unit, options):
        return (
            "ONNX Runtime takes a Gemm's int32 bias for one at the product's scale: use canonical "
            "= 'split_bias'"
        )
    if op_spec(unit.head).weight is None or not words:
        return None
    if not is_product(unit.head):
        return (
            f"{words[0]}, and no value of this graph is that product alone: use canonical = "
            "'split_bias'"
        )
    if _shares(unit, options) and options.correlation is None:
        return (
            "the bias is to share the correlation's grid, "  # stored name
            "and the schema gives the correlation none"
        )
    if _rules(unit, options) and options.correlation is not None:
        return "the correlation is to be on the bias's grid, and on one of its own"  # stored name
    for name, spec in (("correlation", options.correlation), ("sum", options.sum)):
        if spec is not None and (spec.dynamic or spec.granularity is not Granularity.TENSOR):
            return f"the {name} has one grid a tensor, known beforehand, not {spec}"  # stored name
    return _without_range(unit, options, ranges)


def _without_range(unit: Unit, options: SlotOptions, ranges: Ranges) -> str | None:
    """What of the statistics of inner values, or of the qparams that are to cover them, cannot
    be had.
    """
    for value in (unit.correlation, unit.sum):
        if value is not None and (problem := ranges.problem(value.name or "")) is not None:
            return problem
    if (
        unit.correlation is not None
        and options.correlation is not None
        and options.correlation.fixed is None
    ):
        found = ranges.qparams(
            (unit.correlation.name or "",), options.correlation, _bias_range(unit, options)
        )
        if isinstance(found, str):
            return found
    if unit.sum is not None and options.sum is not None and options.sum.fixed is None:
        found = ranges.qparams((unit.sum.name or "",), options.sum)
        if isinstance(found, str):
            return found
    return None


def _mistaken(unit: Unit, options: SlotOptions) -> bool:
    """Whether the unit is a Gemm whose own bias would stand in int32: QGemm multiplies it by
    s_x · s_w, unchecked.
    """
    own = (
        options.bias.kind is BiasKind.OWN and QType.parse(options.bias.qtype).bits > _WIDEST_CHECKED
    )
    return (
        own and unit.head.op_type == "Gemm" and unit.bias is None and unit.bias_operand is not None
    )


def plan_inner(
    unit: Unit, options: SlotOptions, decided: Mapping[Slot, Decision], ranges: Ranges
) -> dict[Slot, Decision]:
    """Slot → decision for the correlation and the sum, where requested, and for a bias that
    shares qparams.

    Args:
        unit: one without an ``inner_problem``.
        options: of the schema.
        decided: slots of the unit's constants.
        ranges: of the graph's values.
    """
    if op_spec(unit.head).weight is None:
        return {}
    found: dict[Slot, Decision] = {}
    correlation = Slot(unit.name, Role.CORRELATION, 0, unit.head.outputs[0].name or "")
    if options.correlation is not None:
        found[correlation] = _correlation(unit, options, options.correlation, ranges)
    elif _rules(unit, options):
        found[correlation] = _ruled(unit, decided, ranges)
    if _shares(unit, options):
        found.update(_sharing(unit, correlation, found.get(correlation)))
    if options.sum is not None:
        last = unit.bias or unit.head
        found[Slot(node_key(last), Role.SUM, 0, last.outputs[0].name or "")] = _sum(
            unit, options.sum, found, ranges
        )
    return found


def _asked(unit: Unit, options: SlotOptions) -> list[str]:
    words = []
    if options.correlation is not None:
        words.append("the schema gives the correlation a grid")  # stored name
    if options.sum is not None:
        words.append("the schema gives the sum a grid")  # stored name
    if _rules(unit, options):
        words.append("the schema adds the bias on the bias's grid")  # stored name
    if _shares(unit, options):
        words.append("the schema adds the bias on the correlation's grid")  # stored name
    return words


def _rules(unit: Unit, options: SlotOptions) -> bool:
    """Whether the qparams of the unit's bias are forced upon its correlation."""
    own = options.bias.kind is BiasKind.OWN and options.bias.finer is Finer.BIAS
    return own and unit.bias_operand is not None


def _shares(unit: Unit, options: SlotOptions) -> bool:
    """Whether the unit's bias, a constant, is to have the qparams of its correlation."""
    operand = unit.bias_operand
    return options.bias.kind is BiasKind.SHARED and operand is not None and is_constant(operand[2])


def _correlation(unit: Unit, options: SlotOptions, spec: Spec, ranges: Ranges) -> Decision:
    value = unit.correlation
    if value is None:
        return KeptFloat(
            "no bias and no clip follow: "
            "the product is the result, which has a grid of its own"  # stored name
        )
    if (given := ranges.by_hand(value.name or "", spec)) is not None:
        return given
    if spec.fixed is not None:
        return Given(spec.fixed, BY_SCHEMA)
    bias = _bias_range(unit, options)
    return _static(
        ranges.qparams((value.name or "",), spec, bias), "for product and bias" if bias else ""
    )


def _bias_range(unit: Unit, options: SlotOptions) -> Interval | None:
    """The range of a finite bias that shares the qparams of the correlation, which have to
    cover both.
    """
    operand = unit.bias_operand
    bias = constant_value(operand[2]) if operand is not None and _shares(unit, options) else None
    if bias is None or not bias.size or not np.isfinite(bias).all():
        return None  # ``plan_constants`` refuses one that is not finite
    return Interval(bias.min(), bias.max())


def _ruled(unit: Unit, decided: Mapping[Slot, Decision], ranges: Ranges) -> Decision:
    """The qparams of the bias, at the width of an accumulator."""
    slot, own = next(
        (
            (slot, qparams_of(decision))
            for slot, decision in decided.items()
            if slot.role is Role.BIAS
        ),
        (None, None),
    )
    operand, value = unit.bias_operand, unit.correlation
    if slot is None or own is None or operand is None or value is None:
        return KeptFloat("its bias has no grid to put it on")  # stored name
    if not np.any(constant_value(operand[2])):
        return KeptFloat("its bias is zero, on any grid")  # stored name
    seen = ranges.absmax(value.name or "")
    beyond = seen / float(own.scale) > INT32.qmax
    note = (
        f"int32 ends at {INT32.qmax * float(own.scale):.4g}, the product at {seen:.4g}"
        if beyond
        else ""
    )
    return Derived(QParams(own.scale, 0, INT32), (str(slot),), note)


def _sharing(unit: Unit, correlation: Slot, decision: Decision | None) -> dict[Slot, Decision]:
    operand = unit.bias_operand
    qparams = None if decision is None else qparams_of(decision)
    assert operand is not None
    assert qparams is not None
    node, index, value = operand
    return {
        Slot(node_key(node), Role.BIAS, index, value.name or ""): Shared(qparams, correlation.value)
    }


def _sum(unit: Unit, spec: Spec, found: Mapping[Slot, Decision], ranges: Ranges) -> Decision:
    value = unit.sum
    if value is None:
        return KeptFloat(
            "no clip follows: the sum is the result, which has a grid of its own"  # stored name
        )
    if value is unit.correlation and any(
        qparams_of(decision) is not None for decision in found.values()
    ):
        return KeptFloat(
            "there is no bias: the sum is the correlation, which has a grid"  # stored name
        )
    if (given := ranges.by_hand(value.name or "", spec)) is not None:
        return given
    if spec.fixed is not None:
        return Given(spec.fixed, BY_SCHEMA)
    return _static(ranges.qparams((value.name or "",), spec))


def _static(qparams: QParams | str, note: str = "") -> Static:
    """The decision for qparams that ``inner_problem`` found to be there."""
    assert not isinstance(qparams, str)
    return Static(qparams, note)

"""The cost of quantization parameters where the engine computes right: clipped, wide or shared
ranges.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qbench.diagnosis.hypotheses.hypothesis import Explanation, UnitEvidence
from qbench.diagnosis.hypotheses.interior import Floats, Operand
from qbench.graph import int_attribute
from qbench.judging import IDEAL_STEPS, Cause

LOW_SQNR_DB = 25.0
"""SQNR below which 8 bits cost too much: a Gaussian with fitted qparams has about 40 dB."""
_BIT_DB = 6.02
"""20 · log₁₀ 2: the change per bit."""
_USUAL_BITS = 8
HIGH_STEPS = 1.0
_NARROW = 1 / 8
"""Least share of the codes that 99.8 % of the values must use."""
_APART = 4.0
_DEAD = 0.6
_LEAST_CLIPPED = 1e-4
_NOTHING = 2.0**-20
"""Share of the widest channel below which a channel is practically zero and left out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cost:
    """fp32 values ``x`` and results ``y`` in steps above the zero point, with the limits and
    bits of the codes.
    """

    x: Floats
    y: Floats
    low: float
    high: float
    axis: int
    bits: int

    @classmethod
    def of(cls, facts: UnitEvidence, *, of_reals: bool = False) -> "Cost | None":
        """None: there are no qparams and not ``of_reals`` (steps of 1, no ends, 8 bits), or nothing
        to compare.
        """
        captured = facts.captured
        qparams = captured.unit.qparams
        codes = captured.found if captured.isolated is None else captured.isolated
        if (
            (qparams is None and not of_reals)
            or codes.shape != captured.expected.shape
            or not codes.size
        ):
            return None
        x = captured.expected.astype(np.float64) / captured.unit.scale
        kept = np.where(np.isfinite(x), x, 0.0)
        y = np.where(np.isfinite(x), codes.astype(np.float64) - captured.unit.zero_point, 0.0)
        bits = _USUAL_BITS if qparams is None else qparams.qtype.bits
        return cls(x=kept, y=y, low=facts.lowest, high=facts.highest, axis=facts.axis, bits=bits)

    @property
    def error(self) -> float:
        """The error E = Σ (y − x)²."""
        return max(float(((self.y - self.x) ** 2).sum()), 1e-30)

    @property
    def rounding(self) -> float:
        """The share of E by rounding to these steps."""
        inside = np.clip(self.x, self.low, self.high)
        return min(1.0, float(((np.rint(inside) - inside) ** 2).sum()) / self.error)

    @property
    def clipping(self) -> float:
        """The share of E by clipping."""
        beyond = self.x - np.clip(self.x, self.low - 0.5, self.high + 0.5)
        return min(1.0, float((beyond**2).sum()) / self.error)

    @property
    def sqnr_db(self) -> float:
        """The SQNR of all values."""
        return _decibels(self.x, self.y)

    @property
    def usual_db(self) -> float:
        """The SQNR without the largest 1 % of the values, or of the median channel: large
        values hide other losses.
        """
        bulk = np.abs(self.x) <= np.quantile(np.abs(self.x), 0.99)
        found = [_decibels(self.x[bulk], self.y[bulk])]
        if self.x.ndim > 1:
            x, y = (
                np.moveaxis(a, self.axis, 0).reshape(a.shape[self.axis], -1)
                for a in (self.x, self.y)
            )
            sizes = np.abs(x).max(axis=1, initial=0.0)
            present = sizes > _NOTHING * sizes.max(initial=0.0)
            channels = [_decibels(a, b) for a, b in zip(x[present], y[present], strict=True)]
            found.append(float(np.median(channels)) if channels else found[0])
        return min(found)

    @property
    def steps(self) -> float:
        """The rms error √(E / n)."""
        return float(np.sqrt(self.error / self.x.size))

    @property
    def is_high(self) -> bool:
        """Whether the cost is high enough to explain."""
        low = LOW_SQNR_DB + _BIT_DB * (self.bits - _USUAL_BITS)
        return (
            min(self.sqnr_db, self.usual_db) < low or self.steps > HIGH_STEPS or self.clipping > 0.5
        )

    def ranges(self) -> Floats:
        """The 99th percentile of |x| per channel."""
        if self.x.ndim < 2:
            return np.array([float(np.abs(self.x).max(initial=0))])
        return np.asarray(
            np.quantile(
                np.abs(np.moveaxis(self.x, self.axis, 0)).reshape(self.x.shape[self.axis], -1),
                0.99,
                axis=1,
            )
        )


def qparams_costs(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The cost of the qparams of the result, where it is high."""
    cost = Cost.of(facts)
    if cost is None or not cost.is_high:
        return
    size = cost.high - cost.low
    lost = float((cost.x < cost.low - 0.5).mean()), float((cost.x > cost.high + 0.5).mean())
    if sum(lost) > _LEAST_CLIPPED:
        evidence = (
            f"{lost[0]:.2%} of the fp32 values lie below and {lost[1]:.2%} above the codes, which "
            f"makes up {cost.clipping:.0%} of the error ({cost.sqnr_db:.1f} dB)"
        )
        yield Explanation(cause=Cause.CLIPPING, evidence=evidence, weight=cost.clipping)
    bulk = np.quantile(cost.x, [0.001, 0.999])
    ends = max(float(cost.x.min()), cost.low), min(float(cost.x.max()), cost.high)
    used, wide = float(bulk[1] - bulk[0]), ends[1] - ends[0]
    ranges = cost.ranges()
    median, apart = _apart(ranges)
    if ranges.size > 1 and apart >= _APART:
        evidence = (
            f"channels differ by {apart:.3g} between the widest and the median on one scale, which "
            f"leaves the median one {2 * median:.3g} of {size:.0f} steps ({cost.sqnr_db:.1f} dB)"
        )
        weight = cost.rounding * min(1.0, 0.6 + 0.05 * apart)
        yield Explanation(cause=Cause.CHANNELS_DIFFER, evidence=evidence, weight=weight)
    if used < _NARROW * size and wide > 2 * used:
        evidence = (
            f"99.8 % of the fp32 values lie on {used:.3g} of {size:.0f} steps, all on {wide:.3g}"
        )
        yield Explanation(
            cause=Cause.RANGE_OUTLIER,
            evidence=f"{evidence} ({cost.sqnr_db:.1f} dB)",
            weight=0.9 * cost.rounding,
        )
    dead = 1 - wide / size
    if dead >= _DEAD:
        evidence = f"{dead:.0%} of the {size:.0f} steps are never reached ({cost.sqnr_db:.1f} dB)"
        yield Explanation(cause=Cause.DEAD_RANGE, evidence=evidence, weight=cost.rounding * dead)


def weight_costs(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The cost of the qparams of the weights, where it is high.

    The reasons are rows of different ranges under one scale, outliers, or few bits.
    """
    cost, inner = Cost.of(facts, of_reals=True), facts.interior
    if (
        cost is None
        or inner is None
        or not facts.is_product
        or not (cost.is_high or facts.captured.unit.qparams is None)
    ):
        return
    operand, weight = inner.operand(1), inner.constant(1)
    if operand is None or operand.qparams is None or weight is None or not weight.size:
        return
    axis = 1 if inner.node.op_type == "ConvTranspose" else 0
    if inner.node.op_type == "MatMul" or (
        inner.node.op_type == "Gemm" and not int_attribute(inner.node, "transB", 0)
    ):
        axis = weight.ndim - 1
    rows = np.abs(np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)).astype(np.float64)
    step = float(np.max(operand.qparams.scale))
    share = _share(facts, cost, step)
    _, apart = _apart(rows.max(axis=1))
    if np.size(operand.qparams.scale) == 1 and apart >= _APART:
        evidence = (
            f"rows of the weights differ by {apart:.3g} between the widest and the median on one "
            f"scale, and their rounding makes up {share:.0%} of the error ({cost.sqnr_db:.1f} dB)"
        )
        yield Explanation(cause=Cause.CHANNELS_DIFFER, evidence=evidence, weight=share)
        return
    bulk = float(np.quantile(rows, 0.999))
    if bulk < _NARROW * float(rows.max()):
        evidence = f"99.9 % of the weights lie within {bulk / float(rows.max()):.1%} of their range"
        yield Explanation(
            cause=Cause.RANGE_OUTLIER,
            evidence=f"{evidence}, and their rounding makes up {share:.0%} of the error",
            weight=0.9 * share,
        )
        return
    if operand.qparams.qtype.bits < _USUAL_BITS and share > 0:
        held = f"the weights have {_used_bits(operand)} bits"
        evidence = (
            f"{held}, and their rounding makes up {share:.0%} of the error ({cost.sqnr_db:.1f} dB)"
        )
        yield Explanation(cause=Cause.COARSE, evidence=evidence, weight=share)


def _share(facts: UnitEvidence, cost: Cost, step: float) -> float:
    """The share of E by rounded weights, from the effect of uniform errors of up to half a step."""
    inner = facts.interior
    assert inner is not None
    values = inner.values(facts.captured.fed)
    name = inner.main[1]
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, values[name].shape) * step
    moved = inner.run({**values, name: values[name] + noise.astype(np.float32)}) - inner.run(values)
    within = (cost.x > cost.low) & (cost.x < cost.high)
    return min(1.0, float((moved.reshape(cost.x.shape)[within] ** 2).sum()) / cost.error)


def coarse(facts: UnitEvidence) -> Explanation | None:
    """The cost of coarse steps, where no other cause is found."""
    cost, code_type = Cost.of(facts), facts.captured.unit.code_type
    if cost is None or code_type is None or not cost.is_high:
        return None
    evidence = (
        f"{cost.steps:.3g} steps of error at {code_type.bits} bits, where ideal rounding "
        f"leaves {IDEAL_STEPS:.3g} ({cost.sqnr_db:.1f} dB); rounding to its own steps makes up "
        f"{cost.rounding:.0%} of it, the rest comes from the quantized inputs and weights"
    )
    return Explanation(cause=Cause.COARSE, evidence=evidence, weight=0.3)


def _used_bits(operand: Operand) -> int:
    """Bits for the used range of quantized values; a type may have more bits than a schema uses."""
    assert operand.qparams is not None
    codes = np.zeros(1) if operand.codes is None else operand.codes.astype(np.float64)
    reach = float(codes.max() - codes.min()) + 1
    return min(operand.qparams.qtype.bits, max(1, int(np.ceil(np.log2(reach)))))


def _apart(ranges: Floats) -> tuple[float, float]:
    """The median of ``ranges`` without those that are practically zero, and the ratio of the
    widest to it.
    """
    widest = float(ranges.max(initial=0.0))
    wide = ranges[ranges > _NOTHING * widest]
    if not wide.size:
        return 0.0, 1.0
    median = float(np.median(wide))
    return median, widest / median


def _decibels(x: Floats, y: Floats) -> float:
    signal, noise = (float((a**2).sum()) for a in (x, x - y))
    return 10 * float(np.log10(max(signal, 1e-15) / max(noise, 1e-15)))

"""The time of a sample compared with fp32 on the same engine, and with the accepted result:
``max_latency_ratio``.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qbench.judging.context import Context
from qbench.judging.kinds import GateKind, Quantity, RememberedNumber
from qbench.judging.rules import Setting
from qbench.judging.suite_keys import RatioLimits, SuiteKey
from qbench.judging.verdict import Gate, GateState
from qbench.number_text import counted

# Cell and float model are timed in turns, so that what slows the computer for a while slows both.
# Each turn gives one ratio. What is judged is the interval of their median, at least 95 %, by order
# statistics: its lower end is the k-th smallest of n ratios, its upper end the k-th largest, for
# the largest k with P(Binomial(n, ½) < k) ≤ 2.5 % (W. J. Conover, Practical Nonparametric
# Statistics, section 3.2).
#
#     interval wholly within the limit    holds
#     wholly beyond it                    broken
#     else                                inconclusive: the noise is wider than the margin

MAX_LATENCY_RATIO = SuiteKey(
    name="max_latency_ratio",
    entry=RatioLimits,
    default="none",
    sentence=(
        "the longest time of a sample, as a multiple of that of fp32 on the same engine, and of "
        "the accepted ratio"
    ),
    short="fp32",
    example="0.8, or { fp32 = 0.8, accepted = 1.2 }",
    of_recorded=False,
)


UNDECIDED_TIME = "The noise of the time is wider than the margin to its limit"
"""The heading of cells whose time is not decided."""

RATIO = Quantity(name="latency", unit="× fp32", is_exact=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long the engine took for a sample, in each turn.

    Args:
        cell, fp32: seconds of a sample, one number a turn.
        samples: that were run in every turn.
    """

    cell: tuple[float, ...]
    fp32: tuple[float, ...]
    samples: int

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Low, median and high of the time of the cell as a multiple of that of fp32."""
        return median_interval(
            [ours / theirs for ours, theirs in zip(self.cell, self.fp32, strict=True)]
        )

    @property
    def text(self) -> str:
        """``0.112 ms of a sample (0.110 to 0.115), fp32 0.25 ms; 21 turns of 8 samples``."""
        low, middle, high = (f"{1000 * one:.3g}" for one in median_interval(self.cell))
        theirs = 1000 * median_interval(self.fp32)[1]
        turns = f"{counted(len(self.cell), 'turn')} of {counted(self.samples, 'sample')}"
        return f"{middle} ms of a sample ({low} to {high}), fp32 {theirs:.3g} ms; {turns}"


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Low, median and high: the median of ``values`` with its interval of at least 95 % by
    order statistics.

    With fewer than six values it runs from the smallest to the largest, and covers less.
    """
    ordered, n = sorted(values), len(values)
    # how many values are left out on each side, and the chance that this is wrong
    below, outside = 0, 0.0
    while below < (n - 1) // 2:
        outside += math.comb(n, below) / 2**n
        if outside > 0.025:
            break
        below += 1
    start = max(below - 1, 0)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return ordered[start], middle, ordered[n - 1 - start]


def judge_latency(context: Context) -> Iterable[Gate]:
    """The ratio of the cell's time to that of fp32, and how much it grew since it was accepted.

    The accepted number is a ratio to fp32, too: a faster or slower computer of the same class
    cancels out.
    """
    evidence = context.measurement.evidence.get(GateKind.LATENCY)
    setting = context.rules.more.get(MAX_LATENCY_RATIO.name)
    if evidence is None or setting is None:
        return
    limits: RatioLimits = setting.value
    rule = f"{MAX_LATENCY_RATIO.name} {limits.fp32 or limits.accepted:g} ({setting.rule})"
    if UNKNOWN in evidence:
        yield _gate(GateKind.LATENCY, GateState.INCOMPARABLE, str(evidence[UNKNOWN]), rule)
        return
    timing = Timing(**evidence)
    if limits.fp32 is not None:
        rule = f"{MAX_LATENCY_RATIO.name} {limits.fp32:g} of fp32 ({setting.rule})"
        yield _ratio_gate(GateKind.LATENCY, timing, limits.fp32, rule)
    if limits.accepted is not None:
        rule = f"{MAX_LATENCY_RATIO.name} {limits.accepted:g} of the accepted ({setting.rule})"
        yield _against_accepted(context, timing, limits.accepted, rule)


UNKNOWN = "unknown"
"""The key of evidence that could not be collected; its value says why."""


def _against_accepted(context: Context, timing: Timing, limit: float, rule: str) -> Gate:
    accepted = context.here.result
    before = accepted.remembered.get(GateKind.LATENCY.value) if accepted is not None else None
    if before is not None:
        return _ratio_gate(GateKind.LATENCY_DRIFT, timing, limit, rule, accepted=before)
    detail = f"no time of this cell is accepted here; {timing.text}"
    return _gate(GateKind.LATENCY_DRIFT, GateState.INCOMPARABLE, detail, rule)


def _gate(kind: GateKind, state: GateState, detail: str, rule: str) -> Gate:
    return Gate(kind=kind, metric="latency", state=state, detail=detail, rule=rule)


def _ratio_gate(
    kind: GateKind, timing: Timing, limit: float, rule: str, *, accepted: float | None = None
) -> Gate:
    """Whether the ratio to fp32, or that ratio to the ``accepted`` one, is at most ``limit``,
    by its interval.
    """
    of, unit = "that of fp32", 1.0
    if accepted is not None:
        of, unit = f"the accepted, which was {accepted:.3g} times fp32", accepted
    low, middle, high = (ratio / unit for ratio in timing.ratio)
    state, why = GateState.INCONCLUSIVE, _wider(limit, low, middle, high)
    if high <= limit:
        state, why = GateState.HOLDS, ""
    elif low > limit:
        state, why = GateState.BROKEN, ""
    detail = (
        f"latency {middle:.3g} times {of} (95 %: {low:.3g} to {high:.3g}), limit {limit:g}{why}; "
        f"{timing.text}"
    )
    gate = _gate(kind, state, detail, rule)
    return replace(gate, value=middle * unit, limit=limit * unit)


def _wider(limit: float, low: float, middle: float, high: float) -> str:
    """Why a ratio of ``low`` to ``high`` is not decided: both numbers, on the side of ``limit``."""
    noise = high - middle if middle <= limit else middle - low
    margin = abs(limit - middle)
    return f": the noise of {noise:.2g} is wider than the margin of {margin:.2g}"


def remembered_ratio(evidence: Mapping[str, Any], setting: Setting) -> RememberedNumber | None:
    """The median ratio to fp32, to four digits; None: it is not known, or ``setting`` does not
    compare it with the accepted one.

    An accepted ratio stays unless the whole interval is slower or faster than it by more than the
    limit. Medians of equal code differ by more than the interval of one run: a number that every
    acceptance replaces would be a conflict of any two branches, and could grow unseen.
    """
    limits: RatioLimits = setting.value
    if UNKNOWN in evidence or limits.accepted is None:
        return None
    margin = max(limits.accepted, 1 / limits.accepted)
    low, middle, high = Timing(**evidence).ratio
    return RememberedNumber(float(f"{middle:.4g}"), low / margin, high * margin)


def wanting_time(_: Context, gate: Gate) -> str:
    """Which noise is wider than which margin."""
    return gate.detail.partition(";")[0]


def quiet_computer(context: Context, _: Gate) -> str:
    """The next step where the time is not decided."""
    return f'pytest "{context.node_id}" again on a computer that does nothing else'


def find_what_is_slow(_context: Context, _gate: Gate, _drifted: bool) -> str:
    """The next step where the cell is too slow."""
    return (
        "find what got slower ('qbench eval' shows what the engine ran in float), or raise "
        "max_latency_ratio"
    )


def accept_all(context: Context, _gate: Gate, _drifted: bool) -> str:
    """The next step where a time or a size drifted, whether or not the answers did."""
    return f'pytest "{context.node_id}" --qbench-accept=all --qbench-reason "…" if it is intended'

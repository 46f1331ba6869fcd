"""Which nodes exceed what their quantization explains, the worst first."""

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from qbench.diagnosis.examine import Examined
from qbench.diagnosis.units import are_of_floats
from qbench.judging import NodeErrors

_NEARER = 0.98
"""Share of the error with fp32's constants and the same quantization parameters; chance changes
it by less.
"""


def is_corrected(node: NodeErrors) -> bool:
    """Whether the changed constants of ``node`` reduce its error, as bias correction for
    rounded weights does.
    """
    alone, ideal = node.isolated, node.explained
    return alone is not None and ideal is not None and alone.relative < _NEARER * ideal.relative


# Anomalies are ranked by kind, in the order below, and within a kind by size:
#
#     crash      the engine fails on the node alone
#     counting   the results differ from those of the arithmetic that the engine declares. Where it
#                declares none: they differ from real arithmetic by more than a step, or by a step
#                without a tie in over 1 % of the values
#     pass       a pass changed the values more than its effect allows
#     graph      isolated² > explained²: the fp32 operators with the same quantization parameters
#                lose less; or a constant is not the quantized fp32 one, and does not reduce the
#                error
#     trace      as counting, but by less than a hundredth of a step (rms), such as a race or a tie;
#                what the order of float32 sums explains is no difference where the declared
#                arithmetic is exact (``float_sums``)
#     qparams    the quantization parameters cost much: the node in float would remove a fifth of
#                the noise of the outputs, or its own noise is a sixteenth of its signal (12 dB), or
#                many values are clipped
#
# The second condition of qparams is for several bad nodes: none of them alone removes noise of the
# outputs. Where some node alone does, a node that alone removes none is not reported: no repair of
# it helps.

_OFTEN = 0.01
"""Share of values that may differ from real arithmetic by a step without a tie: arithmetics
differ in rounding.
"""
_BEYOND = 1e-4
"""Share of values that may differ by more: float32 sums cause single ones."""
_EXCESS = 0.1
"""Steps (rms) by which a node may exceed the explained error: the rounding of an arithmetic."""
_FIFTH_DB = 0.97
"""10 · log₁₀(1 / 0.8): the gain of the outputs when a fifth of their noise is removed."""
_NOISY_DB = 12.0
"""SQNR of a node alone below which its quantization parameters are reported, whatever the
outputs gain.
"""
_HALF_DB = 3.01
"""10 · log₁₀ 2: the gain of the outputs when half of their noise is removed."""
_NOTHING_DB = 0.05
"""Gain of the outputs below which a node in float is no repair."""
_FITTED_DB, _FITTED_BITS, _BIT_DB = 25.0, 8, 6.02
"""SQNR of a node alone below which qparams of so many bits do not fit its values, and the
change with each bit.
"""
_CLIPPED = 0.02
"""Share of clipped values from which a node is reported."""
_CLIPPED_DB = 10.0
"""What a node with all values clipped adds to its score."""
_TRACE = 0.01
"""Steps (rms) of a difference that does not reach the outputs."""


class AnomalyKind(enum.IntEnum):
    """The kind of an anomaly; the most severe first."""

    CRASH = 0
    COUNTING = 1
    PASS = 2
    GRAPH = 3
    TRACE = 4
    QPARAMS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedNode:
    """An anomalous node; ``score`` is its size: steps (rms), or for qparams dB of the outputs."""

    node: NodeErrors
    excess: AnomalyKind
    score: float


def with_gains(examined: Examined, gains: Mapping[str, float]) -> Examined:
    """``examined`` with the gain of the outputs by each node in float: ``gains``, quantized
    value → dB.
    """
    return replace(
        examined,
        nodes=tuple(replace(node, gain_db=gains.get(node.codes)) for node in examined.nodes),
    )


def rank_nodes(examined: Examined) -> tuple[RankedNode, ...]:
    """The anomalous nodes, the worst first; each once, by its most severe anomaly."""
    found: dict[str, RankedNode] = {}
    for one in sorted(_excesses(examined), key=lambda one: (one.excess, -one.score)):
        found.setdefault(one.node.codes, one)
    return tuple(found.values())


def _excesses(examined: Examined) -> Iterator[RankedNode]:
    some_repair = any((node.gain_db or 0.0) >= _FIFTH_DB for node in examined.nodes)
    for node in examined.nodes:
        if node.codes in examined.crashes:
            yield RankedNode(node=node, excess=AnomalyKind.CRASH, score=math.inf)
        counted = _counting(node, examined)
        if counted > 0:
            yield RankedNode(
                node=node,
                excess=AnomalyKind.COUNTING if counted > _TRACE else AnomalyKind.TRACE,
                score=counted,
            )
        broken = examined.broken.get(node.codes, 0.0)
        if broken > 0:
            yield RankedNode(node=node, excess=AnomalyKind.PASS, score=broken)
        moved = (
            0.0
            if is_corrected(node)
            else max(examined.moved.get(node.codes, {}).values(), default=0.0)
        )
        graph = max(_beyond_explained(node), moved)
        if graph > _EXCESS:
            yield RankedNode(node=node, excess=AnomalyKind.GRAPH, score=graph)
        qparams = _qparams(node)
        if qparams > 0 and not (some_repair and gains_nothing(node)):
            yield RankedNode(node=node, excess=AnomalyKind.QPARAMS, score=qparams)


def gains_nothing(node: NodeErrors) -> bool:
    """Whether the outputs were seen to gain nothing with ``node`` in float."""
    return node.gain_db is not None and node.gain_db < _NOTHING_DB


def is_outstanding(node: NodeErrors, examined: Examined) -> bool:
    """Whether the qparams of ``node`` cost more than fitted ones: a fault of a cell
    that holds.

    A node under 12 dB alone removes a fifth of the noise of the outputs, or one below the SQNR of
    fitted qparams of its bits removes half of it.
    """
    if node.isolated is None:
        return False
    alone, gain = node.isolated.sqnr_db, node.gain_db
    bits = min(examined.bits.get(node.codes, _FITTED_BITS), _FITTED_BITS)
    if (
        alone < _FITTED_DB + _BIT_DB * (bits - _FITTED_BITS)
        and gain is not None
        and gain >= _HALF_DB
    ):
        return True
    is_noisy = alone < _NOISY_DB + _BIT_DB * (bits - _FITTED_BITS)
    return is_noisy and (gain is None or gain >= _FIFTH_DB)


def ties_alone(node: NodeErrors, examined: Examined) -> bool:
    """Whether ``node`` differs from its arithmetic by what the order of float32 sums decides
    there: a few ties.
    """
    found = node.claimed
    if found is None or not found.differing:
        return False
    ties = node.ties * found.elements
    return node.codes in examined.in_float and are_of_floats(
        found.differing, found.beyond, ties, found.elements
    )


def _counting(node: NodeErrors, examined: Examined) -> float:
    """Steps (rms) by which the engine differs from its arithmetic; 0 where it does not, or at
    ties of float32 alone.
    """
    found = node.claimed
    if found is not None:
        return found.rms_steps if found.differing and not ties_alone(node, examined) else 0.0
    counted = node.counting
    if counted is None or not counted.elements:
        return 0.0
    single = counted.differing - counted.ties - counted.beyond
    is_off = counted.beyond > _BEYOND * counted.elements or single > _OFTEN * counted.elements
    return counted.rms_steps if is_off else 0.0


def _beyond_explained(node: NodeErrors) -> float:
    """Steps (rms) of the isolated error beyond the explained one; a step of a real result is
    1/255 of its rms.
    """
    if node.isolated is None or node.explained is None or node.unexplained is None:
        return 0.0
    alone, explained, apart = (
        255 * one.relative if one.steps is None else one.steps
        for one in (node.isolated, node.explained, node.unexplained)
    )
    # the difference of squares overstates a small difference in the direction of a large error
    return min(math.sqrt(max(alone * alone - explained * explained, 0.0)), apart)


def _qparams(node: NodeErrors) -> float:
    """Cost of the quantization parameters of ``node`` in dB; 0: it is not much."""
    gain, clipped = node.gain_db or 0.0, node.clipped_low + node.clipped_high
    lacking = 0.0 if node.isolated is None else max(_NOISY_DB - node.isolated.sqnr_db, 0.0)
    if gain < _FIFTH_DB and not lacking and clipped < _CLIPPED:
        return 0.0
    return max(gain, 0.0) + lacking + (_CLIPPED_DB * clipped if clipped >= _CLIPPED else 0.0)

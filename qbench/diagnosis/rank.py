"""Which nodes exceed what their quantization explains, the worst first."""

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from qbench.diagnosis.examine import Examined
from qbench.judging import CountingErrors, Errors, NodeErrors

# Whether what moved a node's constants corrects it: it is nearer to fp32 than fp32's own constants would bring it.

_NEARER = 0.98
"""Of the error that fp32's constants leave on the same grids: chance moves it by less."""


def is_corrected(node: NodeErrors) -> bool:
    """As of a bias that was corrected for rounded weights."""
    alone, ideal = node.isolated, node.explained
    return alone is not None and ideal is not None and alone.relative < _NEARER * ideal.relative


# Which nodes exceed what their grids explain, the worst first.
#
# Six kinds of excess, in this order; within a kind by how large it is:
#
#     crash     the engine fails on the node alone     counting  its levels are not those of the arithmetic that it
# claims; where it claims none, they are more than a step               off real arithmetic, or off it by a step without
# a tie at more than every hundredth value     pass      a pass that promised not to move its levels, or not so far,
# made others of it     graph     isolated² > explained²: with the fp32 operators on the very same grids less would be
# lost; or a constant               that is not what rounding makes of fp32's, and brings nothing     trace     as
# counting, but less than a hundredth of a step (rms): a race, a tie     grid      what its grids cost is much: in float
# the node would give the outputs back a fifth of what they lose, or               a sixteenth of its own signal is
# noise (12 dB), or many numbers lie beyond an end
#
# Where several nodes are ruined none gives anything back alone, hence the second condition on grids.

_OFTEN = 0.01
"""Share of values that may be off real arithmetic by a step without being ties: other machines round otherwise."""
_BEYOND = 1e-4
"""Share of values that may be off by more: single ones are what float32 makes of a sum."""
_EXCESS = 0.1
"""Steps (rms) by which a node may exceed what its grids explain: a machine's own rounding."""
_FIFTH_DB = 0.97
"""10 · log₁₀(1 / 0.8): what the outputs gain when a fifth of their noise goes."""
_NOISY_DB = 12.0
"""SQNR of a node alone below which its grids are to blame, whatever the others do."""
_CLIPPED = 0.02
"""Share of numbers beyond an end that is worth a word."""
_CLIPPED_DB = 10.0
"""What a node that is clipped wholly adds to its score."""
_TRACE = 0.01
"""Steps (rms) of a difference that no output feels."""


class AnomalyKind(enum.IntEnum):
    """Of what kind; the gravest first."""

    CRASH = 0
    COUNTING = 1
    PASS = 2
    GRAPH = 3
    TRACE = 4
    GRID = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedNode:
    """A node that exceeds what its grids explain, and by how much: steps (rms) or, of a grid, dB of the outputs."""

    node: NodeErrors
    excess: AnomalyKind
    score: float


def with_gains(examined: Examined, gains: Mapping[str, float]) -> Examined:
    """``examined`` with what the outputs gain by each node: ``gains``, levels → dB."""
    return replace(examined, nodes=tuple(replace(node, gain_db=gains.get(node.levels)) for node in examined.nodes))


def rank_nodes(examined: Examined) -> tuple[RankedNode, ...]:
    """The nodes with an excess, the worst first; each once, by its gravest."""
    found: dict[str, RankedNode] = {}
    for one in sorted(_excesses(examined), key=lambda one: (one.excess, -one.score)):
        found.setdefault(one.node.levels, one)
    return tuple(found.values())


def _excesses(examined: Examined) -> Iterator[RankedNode]:
    for node in examined.nodes:
        if node.levels in examined.crashes:
            yield RankedNode(node=node, excess=AnomalyKind.CRASH, score=math.inf)
        counted = _counting(node)
        if counted > 0:
            yield RankedNode(
                node=node, excess=AnomalyKind.COUNTING if counted > _TRACE else AnomalyKind.TRACE, score=counted
            )
        broken = examined.broken.get(node.levels, 0.0)
        if broken > 0:
            yield RankedNode(node=node, excess=AnomalyKind.PASS, score=broken)
        moved = 0.0 if is_corrected(node) else max(examined.moved.get(node.levels, {}).values(), default=0.0)
        graph = max(_beyond_explained(node), moved)
        if graph > _EXCESS:
            yield RankedNode(node=node, excess=AnomalyKind.GRAPH, score=graph)
        grid = _grid(node)
        if grid > 0:
            yield RankedNode(node=node, excess=AnomalyKind.GRID, score=grid)


def _counting(node: NodeErrors) -> float:
    """Steps (rms) by which an engine counts otherwise than it should; 0 where it does not."""
    if node.claimed is not None:
        return node.claimed.rms_steps if node.claimed.differing else 0.0
    counted = node.counting
    if counted is None or not counted.elements:
        return 0.0
    return counted.rms_steps if _is_off(counted) else 0.0


def _is_off(counted: CountingErrors) -> bool:
    single = counted.differing - counted.ties - counted.beyond
    return counted.beyond > _BEYOND * counted.elements or single > _OFTEN * counted.elements


def _beyond_explained(node: NodeErrors) -> float:
    """Steps (rms) of the isolated error beyond the explained one; of a real result 255ths of its root mean square."""
    if node.isolated is None or node.explained is None or node.unexplained is None:
        return 0.0
    alone, grids, apart = (_steps(one) for one in (node.isolated, node.explained, node.unexplained))
    # a small difference along a large error counts for more than it is
    return min(math.sqrt(max(alone * alone - grids * grids, 0.0)), apart)


def _steps(errors: Errors) -> float:
    return 255 * errors.relative if errors.steps is None else errors.steps


def _grid(node: NodeErrors) -> float:
    """DB that speak against the grids of ``node``; 0: none."""
    gain, clipped = node.gain_db or 0.0, node.clipped_low + node.clipped_high
    lacking = 0.0 if node.isolated is None else max(_NOISY_DB - node.isolated.sqnr_db, 0.0)
    if gain < _FIFTH_DB and not lacking and clipped < _CLIPPED:
        return 0.0
    return max(gain, 0.0) + lacking + (_CLIPPED_DB * clipped if clipped >= _CLIPPED else 0.0)

"""A promise held to what occurs: what a pass changed, run before and after on the levels that stood in front of it.

    for every value computed otherwise:  before(levels) against after(levels), as `check_run`, on no other inputs

A level that moves is no broken promise where what reads it makes good for it, as when a limit wanders: of several
values that moved those count whose region is wrong still when the earlier ones are taken inside.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from qbench.errors import QbenchError
from qbench.passes.effect import Effect
from qbench.passes.effect_check.comparing import Yardstick
from qbench.passes.effect_check.judging_region import KERNEL_ERRORS
from qbench.passes.effect_check.machines import running
from qbench.passes.effect_check.reach import reach_of
from qbench.passes.effect_check.regions import Region, Side, changed_regions
from qbench.passes.effect_check.steps import step_of
from qbench.passes.effect_check.verdicts import Array

Occurring = Callable[[tuple[str, ...]], Mapping[str, Array]]
"""Names of inputs and levels of the graph before → what they are on some samples."""
_MOST = 16
"""Values that moved, of which more than the first are not looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class BrokenRegion:
    """A value that a pass makes other than it promised: the ways to compute it, and the levels that show it."""

    region: Region
    feeds: Mapping[str, Array]


def broken_regions(effect: Effect, before: ir.Model, after: ir.Model, occurring: Occurring) -> tuple[BrokenRegion, ...]:
    """Where ``after`` is not what ``effect`` promises of ``before``, in graph order; neither is touched.

    What a machine of the promise does not run shows nothing.

    Args:
        occurring: gives what the inputs of regions are; asked once, and not where nothing changed.

    Raises:
        QbenchError: ``occurring`` fails.
    """
    sides = Side.of(before), Side.of(after)
    first = tuple(changed_regions(*sides))
    if not first:
        return ()
    fed = {name for name, value in sides[0].values.items() if value.producer() is None}
    borders = {name for name in sides[0].values if all(side.border(name) is not None for side in sides)} | fed
    known = occurring(tuple(name for name in sides[0].values if name in borders))
    moved = [region for region in first if _is_broken(region, effect, sides[0], known)][:_MOST]
    return tuple(
        BrokenRegion(region, {name: known[name] for name in region.inputs})
        for region in _not_made_good(moved, effect, sides, known)
    )


def _not_made_good(
    moved: list[Region], effect: Effect, sides: tuple[Side, Side], known: Mapping[str, Array]
) -> Iterator[Region]:
    """Those of ``moved`` that no later one makes good for."""
    good, inside = set[str](), set[str]()
    for region in moved:
        whole = _with_inside(region.output, sides, frozenset(inside)) if inside else region
        if whole is not None and _is_broken(whole, effect, sides[0], known):
            inside.add(region.output)
            continue
        good |= {region.output, *(set() if whole is None else inside & _made_in(whole))}
    yield from (region for region in moved if region.output not in good)


def _with_inside(output: str, sides: tuple[Side, Side], inside: frozenset[str]) -> Region | None:
    return next((one for one in changed_regions(*sides, inside) if one.output == output), None)


def _made_in(region: Region) -> set[str]:
    return {str(value.name) for node in region.before.graph for value in node.outputs}


def _is_broken(region: Region, effect: Effect, side: Side, known: Mapping[str, Array]) -> bool:
    end = side.end(region.output)
    yardstick = Yardstick(effect, reach_of(end), step_of(end))
    feeds = {name: known[name] for name in region.inputs}
    return any(_is_wrong(region, machine, feeds, yardstick) for machine in effect.machines)


def _is_wrong(region: Region, machine: str, feeds: Mapping[str, Array], yardstick: Yardstick) -> bool:
    try:
        before, after = (running(one, machine)(feeds)[region.output] for one in (region.before, region.after))
    except (QbenchError, *KERNEL_ERRORS):
        return False
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return True
    return bool(yardstick.wrong(before, after).any())

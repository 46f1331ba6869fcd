"""What checking a pass found: a verdict a region, the smallest counterexample of a refuted one, faults of the pass."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.passes.effect import Effect

Array = npt.NDArray[Any]

_SHOWN = 8


class PassVerdict(enum.Enum):
    """How far a promise is known to hold, the worst last."""

    PROVEN = "proven"
    TRIED = "tried"
    REFUTED = "refuted"


_ORDER = tuple(PassVerdict)


@dataclass(frozen=True, slots=True, eq=False)
class Counterexample:
    """An input on which a region does not do what its pass declares, made as small as it would go.

    Args:
        machine: that shows it. output: the value, and ``index`` the place in it, that is wrong.
        feeds: of the region; everything is at its zero but ``elements``: (input, place, number).
        before, after: the two results there. steps: of the output's grid between them; None where it has none.
        nodes_before, nodes_after: names of the nodes of the region.
    """

    machine: str
    output: str
    index: tuple[int, ...]
    feeds: Mapping[str, Array]
    elements: tuple[tuple[str, tuple[int, ...], float], ...]
    before: float
    after: float
    steps: int | None
    nodes_before: tuple[str, ...]
    nodes_after: tuple[str, ...]

    def __str__(self) -> str:
        given = [f"{place(name, where, self.feeds[name])} = {value:.9g}" for name, where, value in self.elements]
        more = "" if len(given) <= _SHOWN else f" and {len(given) - _SHOWN} more"
        where = place(self.output, self.index, None)
        apart = "" if self.steps is None else f", {self.steps} step{'s' * (self.steps != 1)} apart"
        return (
            f"at {', '.join(given[:_SHOWN]) or 'zeros alone'}{more} '{where}' is {self.before:.9g} before and "
            f"{self.after:.9g} after{apart} ({self.machine}); {named(self.nodes_before)} became "
            f"{named(self.nodes_after)}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class RegionVerdict:
    """What is known of one changed region: the value ``output``, and the nodes that make it of values around.

    Args:
        inputs: how many were looked at; of a region that treats every element alike, elements, else whole batches.
        steps: the farthest that a level moved; None: not measured, or beyond any grid. moved: elements that did.
        note: why nothing could be tried; empty where something was.
    """

    output: str
    verdict: PassVerdict
    inputs: int
    moved: int = 0
    steps: int | None = 0
    counterexample: Counterexample | None = None
    note: str = ""

    def __str__(self) -> str:
        everything = f"all {self.inputs} inputs" if self.inputs > 1 else "there is one input"
        words = {
            PassVerdict.PROVEN: f"proven ({everything})",
            PassVerdict.TRIED: f"tried ({self.inputs} inputs)",
            PassVerdict.REFUTED: f"refuted: {self.counterexample or self.note}",
        }[self.verdict]
        return f"'{self.output}' {words}{f': {self.note}' * (bool(self.note) and self.verdict is PassVerdict.TRIED)}"


@dataclass(frozen=True, slots=True)
class OutputChange:
    """How far one output of a whole graph moved on samples, under one arithmetic.

    Args:
        moved, of: elements that differ, of how many.
        steps: the farthest, in whole steps of the output's grid; None: it has no grid, or an element is not a number.
    """

    output: str
    arithmetic: str
    moved: int
    of: int
    steps: int | None

    def __str__(self) -> str:
        if not self.moved:
            return f"'{self.output}': none of {self.of} moved ({self.arithmetic})"
        steps = "" if self.steps is None else f", by up to {self.steps} step{'s' * (self.steps != 1)}"
        if self.steps == 0:
            steps = ", by up to half a step"
        return f"'{self.output}': {self.moved} of {self.of} moved{steps} ({self.arithmetic})"


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """A pass on one graph.

    Args:
        name, effect: of the pass. machines: under which its promise was tried.
        changed: whether it changed the graph. regions: the values that are computed otherwise since, in graph order.
        faults: what is wrong with it whatever the numbers, in words: an unsound graph, dishonesty, no fixed point.
    """

    name: str
    effect: Effect
    machines: tuple[str, ...]
    changed: bool
    regions: tuple[RegionVerdict, ...]
    faults: tuple[str, ...]

    @property
    def verdict(self) -> PassVerdict:
        """The worst of all regions, and refuted where there is a fault; of a pass that changed nothing, proven."""
        if self.faults:
            return PassVerdict.REFUTED
        return max((one.verdict for one in self.regions), key=_ORDER.index, default=PassVerdict.PROVEN)

    @property
    def refuted(self) -> bool:
        """Whether the pass is not what it declares."""
        return self.verdict is PassVerdict.REFUTED

    @property
    def counterexample(self) -> Counterexample | None:
        """The one with the fewest elements, and of these with the smallest numbers."""
        found = [one.counterexample for one in self.regions if one.counterexample is not None]
        return min(found, key=_size, default=None)

    def count(self, verdict: PassVerdict) -> int:
        """How many regions have it."""
        return sum(one.verdict is verdict for one in self.regions)

    def __str__(self) -> str:
        what = f"the pass '{self.name}', which declares {self.effect}"
        if self.faults:
            return f"{what}, is refuted: {'; '.join(self.faults)}"
        if self.counterexample is not None:
            return f"{what}, is refuted: {self.counterexample}"
        if self.refuted:
            return f"{what}, is refuted: {next(one.note for one in self.regions if one.verdict is PassVerdict.REFUTED)}"
        counts = ", ".join(f"{self.count(one)} {one.value}" for one in _ORDER if self.count(one))
        return f"{what}: {f'regions: {counts}' if counts else 'changed nothing'}"


def place(name: str, index: tuple[int, ...], whole: Array | None) -> str:
    """``x[0,3]``; ``x`` where there is one element alone."""
    inside = "" if whole is not None and whole.size == 1 else f"[{','.join(map(str, index))}]" * bool(index)
    return f"{name}{inside}"


def named(nodes: tuple[str, ...]) -> str:
    """``a, b, c``, the first of many."""
    shown = ", ".join(nodes[:_SHOWN]) + (f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else "")
    return shown or "nothing"


def _size(one: Counterexample) -> tuple[int, float]:
    return len(one.elements), float(np.sum([abs(value) for _, _, value in one.elements]))

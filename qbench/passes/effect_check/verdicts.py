"""What checking a pass found, and what two results differ in."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.interpreter import Program
from qbench.numerics import Arithmetic, get_arithmetic
from qbench.passes.contract import QDQ, Effect, EffectKind
from qbench.passes.integer_form import lower_to_integers
from qbench.passes.lowering.site import integer_target
from qbench.passes.requantization.reach import Reach

# What checking a pass found: a verdict per region, the smallest counterexample of a refuted one,
# faults of the pass.

Array = npt.NDArray[Any]

_SHOWN = 8


class PassVerdict(enum.Enum):
    """How far a promise is known to hold, the worst last; CHANGED: a lossy pass made it another
    function.
    """

    PROVEN = "proven"
    TRIED = "tried"
    CHANGED = "changed"
    REFUTED = "refuted"


_ORDER = tuple(PassVerdict)


@dataclass(frozen=True, slots=True, eq=False)
class Counterexample:
    """An input on which a region does not do what its pass declares, made as small as it would go.

    Args:
        arithmetic: that shows it.
        output: the value, and ``index`` the place in it, that is wrong.
        feeds: of the region; everything is at its zero but ``elements``: (input, place, number).
        before, after: the two results there.
        steps: of the output's scale between them; None where it has none.
        nodes_before, nodes_after: names of the nodes of the region.
    """

    arithmetic: str
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
        given = [
            f"{place(name, where, self.feeds[name])} = {value:.9g}"
            for name, where, value in self.elements
        ]
        more = "" if len(given) <= _SHOWN else f" and {len(given) - _SHOWN} more"
        where = place(self.output, self.index, None)
        apart = "" if self.steps is None else f", {self.steps} step{'s' * (self.steps != 1)} apart"
        return (
            f"at {', '.join(given[:_SHOWN]) or 'zeros alone'}{more} '{where}' is {self.before:.9g} "
            f"before and {self.after:.9g} after{apart} ({self.arithmetic}); "
            f"{named(self.nodes_before)} became {named(self.nodes_after)}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class RegionVerdict:
    """What is known of one changed region: the value ``output`` and the nodes that make it.

    Args:
        inputs: how many were looked at; of a region that treats every element alike, elements, else
            whole batches.
        steps: the farthest that a code moved; None: not measured, or without qparams.
        moved: elements that did.
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
            PassVerdict.CHANGED: f"changed to another function: {self.counterexample}",
            PassVerdict.REFUTED: f"refuted: {self.counterexample or self.note}",
        }[self.verdict]
        return (
            f"'{self.output}' "
            f"{words}{f': {self.note}' * (bool(self.note) and self.verdict is PassVerdict.TRIED)}"
        )


@dataclass(frozen=True, slots=True)
class OutputChange:
    """How far one output of a whole graph moved on samples, under one arithmetic.

    Args:
        moved, of: elements that differ, of how many.
        steps: the farthest, in whole steps of the output's scale; None: it has none, or an element
            is not a number.
    """

    output: str
    arithmetic: str
    moved: int
    of: int
    steps: int | None

    def __str__(self) -> str:
        if not self.moved:
            return f"'{self.output}': none of {self.of} moved ({self.arithmetic})"
        steps = (
            "" if self.steps is None else f", by up to {self.steps} step{'s' * (self.steps != 1)}"
        )
        if self.steps == 0:
            steps = ", by up to half a step"
        return f"'{self.output}': {self.moved} of {self.of} moved{steps} ({self.arithmetic})"


@dataclass(frozen=True, slots=True, eq=False)
class Checked:
    """A pass on one graph.

    Args:
        name, effect: of the pass.
        arithmetics: under which its promise was tried.
        changed: whether it changed the graph.
        regions: the values that are computed otherwise since, in graph order.
        faults: what is wrong with it whatever the numbers: an unsound graph, a wrong return value,
            no fixed point.
    """

    name: str
    effect: Effect
    arithmetics: tuple[str, ...]
    changed: bool
    regions: tuple[RegionVerdict, ...]
    faults: tuple[str, ...]

    @property
    def verdict(self) -> PassVerdict:
        """The worst of all regions, and refuted where there is a fault; of a pass that changed
        nothing, proven.
        """
        if self.faults:
            return PassVerdict.REFUTED
        return max(
            (one.verdict for one in self.regions), key=_ORDER.index, default=PassVerdict.PROVEN
        )

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
            return (
                f"{what}, is refuted: "
                f"{next(one.note for one in self.regions if one.verdict is PassVerdict.REFUTED)}"
            )
        counts = ", ".join(f"{self.count(one)} {one.value}" for one in _ORDER if self.count(one))
        return f"{what}: {f'regions: {counts}' if counts else 'changed nothing'}"


def place(name: str, index: tuple[int, ...], whole: Array | None) -> str:
    """``x[0,3]``; ``x`` where there is one element alone."""
    inside = (
        ""
        if whole is not None and whole.size == 1
        else f"[{','.join(map(str, index))}]" * bool(index)
    )
    return f"{name}{inside}"


def named(nodes: tuple[str, ...]) -> str:
    """``a, b, c``, the first of many."""
    shown = ", ".join(nodes[:_SHOWN]) + (
        f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    )
    return shown or "nothing"


def _size(one: Counterexample) -> tuple[int, float]:
    return len(one.elements), float(np.sum([abs(value) for _, _, value in one.elements]))


# What two results differ, and whether an effect admits it: bits, steps of the output's scale, and
# its ends.
#
# exact      every bit; one NaN is as good as another
# rounding   |after − before| ≤ n steps, and nothing leaves the ends that everything lay within


@dataclass(frozen=True, slots=True)
class Yardstick:
    """By what results are measured.

    Args:
        effect: what is declared.
        reach: the ends of the output before.
        step: one step of it, as ``step_of`` has it; None: it has no qparams.
    """

    effect: Effect
    reach: Reach
    step: float | None

    def steps(self, before: Array, after: Array) -> Array:
        """Whole steps between results of one shape; infinite where they differ and there are no
        qparams.
        """
        differ = different(before, after)
        with np.errstate(invalid="ignore"):
            apart = np.abs(after.astype(np.float64) - before.astype(np.float64)) / (
                self.step or 1.0
            )
        counted = np.rint(np.where(np.isnan(apart), np.inf, apart))
        return np.where(differ, counted if self.step else np.inf, 0.0)

    def wrong(self, before: Array, after: Array) -> Array:
        """Where the effect does not admit what became of ``before``."""
        if self.effect.kind is EffectKind.EXACT:
            return different(before, after)
        if self.effect.kind is EffectKind.LOSSY:
            return np.zeros(before.shape, bool)
        outside = (after < self.reach.low) | (after > self.reach.high)
        return (self.steps(before, after) > self.effect.steps) | outside


def different(before: Array, after: Array) -> Array:
    """Where results of one shape are not the same bit for bit."""
    if before.dtype.kind != "f":
        return np.asarray(before != after)
    bits = np.dtype(f"u{before.dtype.itemsize}")
    same = (before.view(bits) == after.view(bits)) | (np.isnan(before) & np.isnan(after))
    return np.asarray(~same)


# A graph run as one arithmetic of an effect runs it: the float graph node by node, or lowered and
# counted.

AnyArithmetic = str | Arithmetic
"""``qdq``, the name of an arithmetic, or an arithmetic."""
Feeds = Mapping[str, Array]
Running = Callable[[Feeds], dict[str, Array]]


def arithmetic_name(arithmetic: AnyArithmetic) -> str:
    """Its name in messages."""
    return arithmetic if isinstance(arithmetic, str) else arithmetic.name


def running(model: ir.Model, arithmetic: AnyArithmetic, taps: tuple[str, ...] = ()) -> Running:
    """What runs ``model`` on a batch; feeds that it does not take are ignored.

    Args:
        arithmetic: ``qdq`` runs the graph as it is, Q by ONNX's own rule and everything else by
            ONNX's reference; any other lowers it to operators on integers first.
        taps: names of further values, of the graph as it is run.

    Raises:
        InputError: an unknown arithmetic, or a scale that it cannot hold.
        UnsupportedError: a node that has no kernel.
    """
    if arithmetic == QDQ:
        program = Program(model, get_arithmetic("ideal"), taps)  # whose rule at a border is ONNX's
    else:
        arithmetic = get_arithmetic(arithmetic) if isinstance(arithmetic, str) else arithmetic
        program = Program(lower_to_integers(model, integer_target(arithmetic)), arithmetic, taps)

    def run(feeds: Feeds) -> dict[str, Array]:
        with np.errstate(all="ignore"):  # what overflows in a kernel is a result
            return program.run(feeds)

    return run

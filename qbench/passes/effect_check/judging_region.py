"""One region, run before and after on every trial under every machine, and what becomes of its promise."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qbench.errors import QbenchError, UnsupportedError
from qbench.interpreter import BatchError
from qbench.passes.effect_check.comparing import Yardstick
from qbench.passes.effect_check.machines import Machine, Running, machine_name, running
from qbench.passes.effect_check.regions import Region
from qbench.passes.effect_check.shrinking import elements_of, shrunk, smallest_case
from qbench.passes.effect_check.trials import Trials
from qbench.passes.effect_check.verdicts import Array, Counterexample, PassVerdict, RegionVerdict

_BY_ONNX = frozenset({"qdq", "ideal"})
"""Machines that quantize reals by ONNX's own rule."""
_Feeds = Mapping[str, Array]
KERNEL_ERRORS = (BatchError, ValueError, TypeError, ArithmeticError, LookupError, NotImplementedError)
"""What kernels raise for what they cannot compute."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """A region on one machine."""

    machine: Machine
    output: str
    before: Running
    after: Running

    def run(self, feeds: _Feeds) -> tuple[Array, Array]:
        return self.before(feeds)[self.output], self.after(feeds)[self.output]


class _Seen:
    """What was seen of a region until now: how many results, how many moved, how far the farthest."""

    def __init__(self) -> None:
        self.moved, self.steps, self.ran = 0, 0.0, set[str]()

    def add(self, machine: str, apart: Array) -> None:
        self.ran.add(machine)
        self.moved += int(np.count_nonzero(apart))
        self.steps = max(self.steps, float(apart.max(initial=0.0)))

    @property
    def whole_steps(self) -> int | None:
        return int(self.steps) if np.isfinite(self.steps) else None


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Whether a region keeps its promise.

    Args:
        trials: what it is tried on, and ``samples``: feeds of it that occurred.
        yardstick: by what results are measured. zeros: what counts as nothing at each input.
    """

    region: Region
    trials: Trials
    samples: tuple[_Feeds, ...]
    yardstick: Yardstick
    zeros: Mapping[str, float]

    @property
    def batches(self) -> tuple[_Feeds, ...]:
        """All that it is run on."""
        return self.trials.batches if self.trials.complete else (*self.trials.batches, *self.samples)


def judged(asked: Question, machines: tuple[Machine, ...]) -> RegionVerdict:
    """The verdict, under all ``machines``.

    Raises:
        InputError: an unknown machine.
    """
    region, trials = asked.region, asked.trials
    seen, notes = _Seen(), list[str]()
    for machine in machines:
        try:
            before = running(region.before, machine)
            before(trials.batches[0])
        except (UnsupportedError, *KERNEL_ERRORS) as error:
            notes.append(f"{machine_name(machine)} cannot run it ({error})")
            continue
        try:
            found = _on_one(asked, _Pair(machine, region.output, before, running(region.after, machine)), seen)
        except (QbenchError, *KERNEL_ERRORS) as error:
            words = str(error) if isinstance(error, (QbenchError, BatchError)) else f"{type(error).__name__}: {error}"
            note = f"the graph after it does not run: '{region.output}' ({machine_name(machine)}): {words}"
            return RegionVerdict(region.output, PassVerdict.REFUTED, 0, note=note)
        if found is not None:
            return found
    inputs = trials.inputs + len(asked.batches) - len(trials.batches) if seen.ran else 0
    by_onnx = all(machine_name(machine) in _BY_ONNX for machine in machines)
    whole = len(seen.ran) == len(machines) and (trials.complete or (trials.of_steps and by_onnx))
    verdict = PassVerdict.PROVEN if whole else PassVerdict.TRIED
    return RegionVerdict(region.output, verdict, inputs, seen.moved, seen.whole_steps, note="; ".join(notes))


def _on_one(asked: Question, pair: _Pair, seen: _Seen) -> RegionVerdict | None:
    """Every batch on one machine; a verdict where one refutes the promise."""
    region, trials, yardstick = asked.region, asked.trials, asked.yardstick
    for index, feeds in enumerate(asked.batches):
        before, after = pair.run(feeds)
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            note = f"'{region.output}' is {_said(before)} before and {_said(after)} after"
            return RegionVerdict(region.output, PassVerdict.REFUTED, 1, note=note)
        seen.add(machine_name(pair.machine), yardstick.steps(before, after))
        wrong = yardstick.wrong(before, after)
        if wrong.any():
            alike = trials.alike and index < len(trials.batches)
            cases = np.asarray(wrong.reshape(len(wrong), -1).any(axis=1)) if alike else None
            found = _counterexample(asked, pair, _small(asked, pair, feeds, cases))
            return RegionVerdict(region.output, PassVerdict.REFUTED, index + 1, seen.moved, seen.whole_steps, found)
    return None


def _small(asked: Question, pair: _Pair, feeds: _Feeds, cases: Array | None) -> _Feeds:
    """The smallest input that is wrong, too; ``cases``: which of those along the first axis are."""

    def fails(tried: _Feeds) -> bool:
        try:
            return bool(asked.yardstick.wrong(*pair.run(tried)).any())
        except KERNEL_ERRORS:
            return False  # made small it is no input of the graph any more

    if cases is not None:
        case = smallest_case(feeds, cases, asked.zeros)
        if fails(case):
            return case if all(array.size == 1 for array in case.values()) else shrunk(case, asked.zeros, fails)
    return shrunk(feeds, asked.zeros, fails)


def _counterexample(asked: Question, pair: _Pair, feeds: _Feeds) -> Counterexample:
    before, after = pair.run(feeds)
    steps = asked.yardstick.steps(before, after)
    wrong = np.where(asked.yardstick.wrong(before, after), steps + 1, 0)
    where = tuple(map(int, np.unravel_index(int(wrong.argmax()), wrong.shape)))
    apart = float(steps[where])
    return Counterexample(
        machine_name(pair.machine),
        pair.output,
        where if before.size > 1 else (),
        dict(feeds),
        elements_of(feeds, asked.zeros),
        float(before[where]),
        float(after[where]),
        int(apart) if np.isfinite(apart) else None,
        *asked.region.names,
    )


def _said(array: Array) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"

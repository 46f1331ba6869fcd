"""Which inputs a region is tried on, before and after, and the smallest counterexample."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.errors import QbenchError, UnsupportedError
from qbench.graph import constant_value, node_macs, node_qparams
from qbench.interpreter import BatchError
from qbench.numerics import QParams
from qbench.passes.effect_check.regions import BORDERS, Region, dims_of_a_case
from qbench.passes.effect_check.verdicts import (
    AnyArithmetic,
    Array,
    Counterexample,
    PassVerdict,
    RegionVerdict,
    Running,
    Yardstick,
    arithmetic_name,
    running,
)
from qbench.passes.requantization.reach import Reach
from qbench.passes.requantization.tables import critical_reals

# Which inputs a region is tried on: all of them where they can be counted, else those on which
# mistakes show.
#
# A region that treats every element alike is tried on elements: its cases are stacked along the
# first axis.
#
#     every code of one input, every pair of two, as long as there are 65,536       → proof
#     both sides of every step of a quantizer, of one real input of monotone nodes  → proof, where Q
#                                                                                     is ONNX's rule
#
# Any other takes whole tensors: ends, zeros, ends of everything in it, thresholds, random numbers,
# calibration samples.

_MONOTONE = BORDERS | {"Identity", "Relu", "Clip"}
_CASES = 65_536
_ELEMENTS = 2**24
_WORK = 20_000_000
"""Multiply-accumulates and elements that all batches of a region may cost together, each time
it is run.
"""
_FEWEST, _MOST, _SWEEPS = 4, 24, 64
_WIDEST = 16
_LARGEST = 64
"""Beyond it, reals of a graph without quantizers are not tried."""
_MOST_QPARAMS = 64
"""Whose steps are all tried; a weight has more channels."""


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """Batches to run a region on.

    Args:
        batches: its feeds.
        inputs: how many, in elements where ``alike``, else in batches.
        complete: whether there are no others, if codes come; ``of_steps``: if reals come and Q is
            ONNX's own rule.
        alike: whether every element is a case of its own, along the first axis.
    """

    batches: tuple[Mapping[str, Array], ...]
    inputs: int
    alike: bool
    complete: bool = False
    of_steps: bool = False


def trials_of(
    region: Region, reaches: Mapping[str, Reach], shapes: Mapping[str, tuple[int, ...]], seed: int
) -> Trials:
    """What to try ``region`` on.

    Args:
        reaches: of its inputs.
        shapes: of its inputs, whole.
        seed: of what is random.
    """
    rng = np.random.default_rng(seed)
    inputs = {name: _dtype(region, name) for name in region.inputs}
    inner = dims_of_a_case(region, {len(shapes[name]) for name in region.inputs})
    if inner is None:
        return _of_tensors(region, inputs, reaches, shapes, rng)
    if not inputs:
        return Trials(({},), 1, alike=False, complete=True)
    one = next(iter(inputs))
    if all(dtype.kind in "iu" for dtype in inputs.values()):
        count = math.prod(int(reaches[name].size) for name in inputs)
        if count <= _CASES and count * math.prod(inner) <= _ELEMENTS:
            ranges = [np.arange(reaches[name].low, reaches[name].high + 1) for name in inputs]
            cases = dict(
                zip(inputs, (axis.reshape(-1) for axis in np.meshgrid(*ranges)), strict=True)
            )
            return _of_cases(inputs, cases, inner, complete=True)
    elif len(inputs) == 1 and all(node.op_type in _MONOTONE for node in _nodes(region)):
        known = _tensor_qparams(region) is not None
        return _of_cases(inputs, {one: _steps(region, reaches[one])}, inner, of_steps=known)
    count = max(1, min(_CASES, _ELEMENTS // math.prod(inner)))
    pools = {name: _pool(region, dtype, reaches[name]) for name, dtype in inputs.items()}
    random = {
        name: _random(dtype, reaches[name], pools[name], count, rng)
        for name, dtype in inputs.items()
    }
    return _of_cases(inputs, random, inner)


def at_zero(region: Region, reaches: Mapping[str, Reach], name: str) -> float:
    """What counts as nothing at the input ``name``: the zero of its qparams, or the end that is
    nearest to it.
    """
    found = reaches[name]
    return (
        float(np.clip(found.zero, found.low, found.high))
        if _dtype(region, name).kind in "iuf"
        else 0.0
    )


def _of_cases(
    inputs: Mapping[str, np.dtype[np.generic]],
    cases: Mapping[str, Array],
    inner: tuple[int, ...],
    *,
    complete: bool = False,
    of_steps: bool = False,
) -> Trials:
    count = len(next(iter(cases.values())))
    feeds = {
        name: np.ascontiguousarray(
            np.broadcast_to(
                cases[name].astype(dtype).reshape(-1, *(1 for _ in inner)), (count, *inner)
            )
        )
        for name, dtype in inputs.items()
    }
    return Trials((feeds,), count, alike=True, complete=complete, of_steps=of_steps)


def _of_tensors(
    region: Region,
    inputs: Mapping[str, np.dtype[np.generic]],
    reaches: Mapping[str, Reach],
    shapes: Mapping[str, tuple[int, ...]],
    rng: np.random.Generator,
) -> Trials:
    elements = {name: math.prod(shapes[name]) for name in inputs}
    cost = sum(node_macs(region.before).values()) + sum(elements.values())
    affordable = _WORK // max(cost, 1)
    pools = {name: _pool(region, dtype, reaches[name]) for name, dtype in inputs.items()}
    sweeps = {
        name: _sweep(inputs[name], reaches[name], pools[name], elements[name]) for name in inputs
    }
    swept = max((len(sweep) for sweep in sweeps.values()), default=0)
    count = max(_FEWEST, min(max(_MOST, swept + _FEWEST), affordable)) if inputs else 1
    batches = []
    for index in range(count):
        feeds = {}
        for place, (name, dtype) in enumerate(inputs.items()):
            numbers = _random(dtype, reaches[name], pools[name], elements[name], rng)
            if index in (1, 2):  # ends, and where there are several inputs, other ends of others
                numbers = np.full(
                    numbers.shape,
                    pools[name].min() if index == 1 or place % 2 else pools[name].max(),
                )
            elif 2 < index < len(sweeps[name]) + 3:
                numbers = sweeps[name][index - 3]
            feeds[name] = numbers.astype(dtype).reshape(shapes[name])
        batches.append(feeds)
    return Trials(tuple(batches), len(batches), alike=False, complete=not inputs)


def _sweep(dtype: np.dtype[np.generic], reach: Reach, pool: Array, elements: int) -> Array:
    """(batches, elements): one code after the other, of 8 bits every one, else of ``pool``, all
    at least once.
    """
    every = (
        np.arange(reach.low, reach.high + 1) if dtype.kind in "iu" and dtype.itemsize == 1 else pool
    )
    batches = min(-(-len(every) // max(elements, 1)), _SWEEPS)
    return every[np.arange(batches * elements).reshape(batches, elements) % len(every)]


def _random(
    dtype: np.dtype[np.generic], reach: Reach, pool: Array, count: int, rng: np.random.Generator
) -> Array:
    """Half of them anything, half out of ``pool``."""
    if dtype.kind in "iu":
        low, high = (reach.low, reach.high) if dtype.itemsize <= _WIDEST // 8 else (0, 1)
        anything: Array = rng.integers(int(low), int(high) + 1, count)
    elif dtype.kind == "f":
        ends = pool[np.isfinite(pool)]
        anything = rng.uniform(ends.min(initial=-1.0), ends.max(initial=1.0), count)
    else:
        return rng.integers(0, 2, count)
    return np.where(rng.random(count) < 0.5, anything, rng.choice(pool, count))


def _pool(region: Region, dtype: np.dtype[np.generic], reach: Reach) -> Array:
    """Where mistakes show: ends, zeros and their neighbours; of reals, both sides of steps."""
    if dtype.kind == "f":
        steps = _steps(region, reach)
        return steps[np.isfinite(steps)]  # infinity less infinity is not a number
    if dtype.itemsize > _WIDEST // 8:
        return np.array([0, 1])
    ends = {reach.low, reach.high, reach.zero, *_limits(region)}
    near = np.array(sorted({end + step for end in ends for step in (-1, 0, 1)}))
    return near[(near >= reach.low) & (near <= reach.high)]


def _steps(region: Region, reach: Reach) -> Array:
    """Float32 within ``reach``: both sides of every step of the quantizers in the region,
    limits, zeros.
    """
    found = [np.array([0.0, -0.0, reach.low, reach.high], np.float32)]
    all_qparams = _tensor_qparams(region) or ()
    found += [critical_reals(qparams) for qparams in all_qparams]
    ends = np.array(list(_limits(region)), np.float32)
    found += [ends, np.nextafter(ends, np.float32(np.inf)), np.nextafter(ends, np.float32(-np.inf))]
    if not all_qparams:
        found.append(np.linspace(-_LARGEST, _LARGEST, _LARGEST * 2 + 1, dtype=np.float32))
    reals = np.concatenate(found)
    return reals[(reals >= np.float32(reach.low)) & (reals <= np.float32(reach.high))]


def _tensor_qparams(region: Region) -> tuple[QParams, ...] | None:
    """The qparams of all quantizers in ``region``, one per channel; None where the steps of one
    are not known.

    They are unknown of computed qparams, of types wider than 16 bits, and of many channels.
    """
    found: dict[QParams, None] = {}
    for node in _nodes(region):
        if node.op_type != "QuantizeLinear":
            continue
        qparams = node_qparams(node)
        if qparams is None or qparams.qtype.bits > _WIDEST or qparams.block_size is not None:
            return None
        pairs = zip(
            qparams.scale.reshape(-1).tolist(), qparams.zero_point.reshape(-1).tolist(), strict=True
        )
        found.update(dict.fromkeys(QParams(scale, point, qparams.qtype) for scale, point in pairs))
        if len(found) > _MOST_QPARAMS:
            return None
    return tuple(found)


def _limits(region: Region) -> Iterator[float]:
    """The ends of every Clip in it."""
    for node in _nodes(region):
        if node.op_type == "Clip":
            ends = (constant_value(end) for end in node.inputs[1:] if end is not None)
            yield from (float(end.reshape(-1)[0]) for end in ends if end is not None and end.size)


def _nodes(region: Region) -> tuple[ir.Node, ...]:
    return (*region.before.graph, *region.after.graph)


def _dtype(region: Region, name: str) -> np.dtype[np.generic]:
    models = (region.before, region.after)
    value = next(value for model in models for value in model.graph.inputs if value.name == name)
    return np.dtype((value.dtype or ir.DataType.FLOAT).numpy())


# The smallest input that still shows a mistake: fewest elements that are not zero, then the
# smallest numbers.
#
# Of elements that are treated alike the smallest failing one is taken. A whole tensor is taken
# apart by delta debugging (Zeller, Hildebrandt 2002): halves, quarters, … are set to zero as long
# as the mistake stays.

Fails = Callable[[Mapping[str, Array]], bool]

_RUNS = 200
"""Tries at most; what is left then is as small as it gets."""
_FEW = 8
"""Elements whose numbers are made smaller, too."""

_Element = tuple[str, int]


def smallest_case(
    feeds: Mapping[str, Array], failing: Array, zeros: Mapping[str, float]
) -> dict[str, Array]:
    """One of the ``failing`` cases along the first axis: with most inputs at zero, then nearest
    to it.
    """
    cases = np.flatnonzero(failing)
    away = {
        name: np.abs(array[cases].reshape(len(cases), -1).astype(float) - zeros[name])
        for name, array in feeds.items()
    }
    count = np.sum([far.any(axis=1) for far in away.values()], axis=0)
    size = np.sum([far.sum(axis=1) for far in away.values()], axis=0)
    signs = np.sum(
        [
            array[cases].reshape(len(cases), -1).astype(float).sum(axis=1) < 0
            for array in feeds.values()
        ],
        axis=0,
    )
    best = int(cases[np.lexsort((signs, size, count))[0]])
    return {name: array[best : best + 1] for name, array in feeds.items()}


def shrunk(
    feeds: Mapping[str, Array], zeros: Mapping[str, float], fails: Fails
) -> dict[str, Array]:
    """``feeds``, which fail, with as much as possible set to ``zeros``, deterministically."""
    left = _RUNS

    def still(kept: Sequence[_Element], source: Mapping[str, Array]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(_only(source, zeros, kept))

    live = [
        (name, int(index))
        for name, array in feeds.items()
        for index in np.flatnonzero(array != zeros[name])
    ]
    live = _fewest(live, lambda kept: still(kept, feeds))
    found = _only(feeds, zeros, live)
    for name, index in live if len(live) <= _FEW else ():
        zero, number = zeros[name], float(found[name].flat[index])
        for share in (0.0, 0.125, 0.25, 0.5, 0.75):
            nearer = zero + np.sign(number - zero) * max(1.0, abs(number - zero) * share // 1)
            if np.isfinite(number) and abs(nearer - zero) < abs(number - zero):
                smaller = _with(found, name, index, nearer)
                if still(live, smaller):
                    found = smaller
                    break
    return found


def elements_of(
    feeds: Mapping[str, Array], zeros: Mapping[str, float]
) -> tuple[tuple[str, tuple[int, ...], float], ...]:
    """(input, place, number) of each number that is not zero, and of every input of one element."""
    found = []
    for name, array in feeds.items():
        where = np.flatnonzero((array != zeros[name]) | (array.size == 1))
        for flat in where:
            place = tuple(map(int, np.unravel_index(int(flat), array.shape)))
            found.append((name, place, float(array.flat[int(flat)])))
    return tuple(found)


def _fewest(live: list[_Element], still: Callable[[Sequence[_Element]], bool]) -> list[_Element]:
    if still([]):
        return []
    parts = 2
    while len(live) > 1:
        size = -(-len(live) // parts)
        chunks = [live[start : start + size] for start in range(0, len(live), size)]
        without = ([one for chunk in chunks if chunk is not out for one in chunk] for out in chunks)
        smaller = next(
            (kept for kept in (*chunks, *without) if len(kept) < len(live) and still(kept)), None
        )
        if smaller is not None:
            live, parts = smaller, 2
        elif size == 1:
            break
        else:
            parts = min(parts * 2, len(live))
    return live


def _only(
    feeds: Mapping[str, Array], zeros: Mapping[str, float], kept: Sequence[_Element]
) -> dict[str, Array]:
    found = {name: np.full_like(array, zeros[name]) for name, array in feeds.items()}
    for name, index in kept:
        found[name].flat[index] = feeds[name].flat[index]
    return found


def _with(feeds: Mapping[str, Array], name: str, index: int, number: float) -> dict[str, Array]:
    copy = feeds[name].copy()
    copy.flat[index] = number
    return {**feeds, name: copy}


# One region, run before and after on every trial under every arithmetic, and the verdict on its
# effect.

_BY_ONNX = frozenset({"qdq", "ideal"})
"""Arithmetics that quantize reals by ONNX's own rule."""
_Feeds = Mapping[str, Array]
KERNEL_ERRORS = (
    BatchError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    NotImplementedError,
)
"""What kernels raise for what they cannot compute."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """A region under one arithmetic."""

    arithmetic: AnyArithmetic
    output: str
    before: Running
    after: Running

    def run(self, feeds: _Feeds) -> tuple[Array, Array]:
        return self.before(feeds)[self.output], self.after(feeds)[self.output]


class _Seen:
    """What was seen of a region until now: how many results, how many moved, how far the
    farthest.
    """

    def __init__(self) -> None:
        self.moved, self.steps, self.ran = 0, 0.0, set[str]()

    def add(self, arithmetic: str, apart: Array) -> None:
        self.ran.add(arithmetic)
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
        yardstick: by what results are measured.
        zeros: what counts as nothing at each input.
    """

    region: Region
    trials: Trials
    samples: tuple[_Feeds, ...]
    yardstick: Yardstick
    zeros: Mapping[str, float]

    @property
    def batches(self) -> tuple[_Feeds, ...]:
        """All that it is run on."""
        return (
            self.trials.batches if self.trials.complete else (*self.trials.batches, *self.samples)
        )


def judged(asked: Question, arithmetics: tuple[AnyArithmetic, ...]) -> RegionVerdict:
    """The verdict, under all ``arithmetics``.

    Raises:
        InputError: an unknown arithmetic.
    """
    region, trials = asked.region, asked.trials
    seen, notes = _Seen(), list[str]()
    for arithmetic in arithmetics:
        try:
            before = running(region.before, arithmetic)
            before(trials.batches[0])
        except (UnsupportedError, *KERNEL_ERRORS) as error:
            notes.append(f"{arithmetic_name(arithmetic)} cannot run it ({error})")
            continue
        try:
            found = _on_one(
                asked,
                _Pair(arithmetic, region.output, before, running(region.after, arithmetic)),
                seen,
            )
        except (QbenchError, *KERNEL_ERRORS) as error:
            words = (
                str(error)
                if isinstance(error, (QbenchError, BatchError))
                else f"{type(error).__name__}: {error}"
            )
            note = (
                f"the graph after it does not run: '{region.output}' "
                f"({arithmetic_name(arithmetic)}): {words}"
            )
            return RegionVerdict(region.output, PassVerdict.REFUTED, 0, note=note)
        if found is not None:
            return found
    inputs = trials.inputs + len(asked.batches) - len(trials.batches) if seen.ran else 0
    by_onnx = all(arithmetic_name(arithmetic) in _BY_ONNX for arithmetic in arithmetics)
    whole = len(seen.ran) == len(arithmetics) and (trials.complete or (trials.of_steps and by_onnx))
    verdict = PassVerdict.PROVEN if whole else PassVerdict.TRIED
    return RegionVerdict(
        region.output, verdict, inputs, seen.moved, seen.whole_steps, note="; ".join(notes)
    )


def _on_one(asked: Question, pair: _Pair, seen: _Seen) -> RegionVerdict | None:
    """Every batch under one arithmetic; a verdict where one refutes the effect."""
    region, trials, yardstick = asked.region, asked.trials, asked.yardstick
    for index, feeds in enumerate(asked.batches):
        before, after = pair.run(feeds)
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            note = f"'{region.output}' is {_said(before)} before and {_said(after)} after"
            return RegionVerdict(region.output, PassVerdict.REFUTED, 1, note=note)
        seen.add(arithmetic_name(pair.arithmetic), yardstick.steps(before, after))
        wrong = yardstick.wrong(before, after)
        if wrong.any():
            alike = trials.alike and index < len(trials.batches)
            cases = np.asarray(wrong.reshape(len(wrong), -1).any(axis=1)) if alike else None
            found = _counterexample(asked, pair, _small(asked, pair, feeds, cases))
            return RegionVerdict(
                region.output, PassVerdict.REFUTED, index + 1, seen.moved, seen.whole_steps, found
            )
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
            return (
                case
                if all(array.size == 1 for array in case.values())
                else shrunk(case, asked.zeros, fails)
            )
    return shrunk(feeds, asked.zeros, fails)


def _counterexample(asked: Question, pair: _Pair, feeds: _Feeds) -> Counterexample:
    before, after = pair.run(feeds)
    steps = asked.yardstick.steps(before, after)
    wrong = np.where(asked.yardstick.wrong(before, after), steps + 1, 0)
    where = tuple(map(int, np.unravel_index(int(wrong.argmax()), wrong.shape)))
    apart = float(steps[where])
    return Counterexample(
        arithmetic_name(pair.arithmetic),
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

"""Which inputs a region is tried on: all of them where they can be counted, else those on which mistakes show.

A region that treats every element alike is tried on elements: along the first axis stands one case beside the other.
    every level of one input, every pair of two, as long as there are 65,536        → proof
    both sides of every step of every grid, of one real input of monotone nodes     → proof, where Q is ONNX's own rule
Any other takes whole tensors: ends, zeros, ends of everything in it, thresholds, random numbers, calibration samples.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, grid_of, node_macs
from qbench.numerics import QParams
from qbench.passes.effect_check.elements import BORDERS, dims_of_a_case
from qbench.passes.effect_check.reach import Reach
from qbench.passes.effect_check.regions import Region
from qbench.passes.effect_check.verdicts import Array
from qbench.passes.levels.thresholds import critical_reals

_MONOTONE = BORDERS | {"Identity", "Relu", "Clip"}
_CASES = 65_536
_ELEMENTS = 2**24
_WORK = 20_000_000
"""Multiply-accumulates and elements that all batches of a region may cost together, each time it is run."""
_FEWEST, _MOST, _SWEEPS = 4, 24, 64
_WIDEST = 16
_LARGEST = 64
"""Beyond it, reals of a graph without any grid are not tried."""
_MOST_GRIDS = 64
"""Whose steps are all tried; a weight has more channels."""


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """Batches to run a region on.

    Args:
        batches: its feeds. inputs: how many, in elements where ``alike``, else in batches.
        complete: whether there are no others, if levels come; ``of_steps``: if reals come and Q is ONNX's own rule.
        alike: whether every element is a case of its own, along the first axis.
    """

    batches: tuple[Mapping[str, Array], ...]
    inputs: int
    alike: bool
    complete: bool = False
    of_steps: bool = False


def trials_of(region: Region, reaches: Mapping[str, Reach], shapes: Mapping[str, tuple[int, ...]], seed: int) -> Trials:
    """What to try ``region`` on.

    Args:
        reaches: of its inputs. shapes: of its inputs, whole. seed: of what is random.
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
            cases = dict(zip(inputs, (axis.reshape(-1) for axis in np.meshgrid(*ranges)), strict=True))
            return _of_cases(inputs, cases, inner, complete=True)
    elif len(inputs) == 1 and all(node.op_type in _MONOTONE for node in _nodes(region)):
        known = _tensor_grids(region) is not None
        return _of_cases(inputs, {one: _steps(region, reaches[one])}, inner, of_steps=known)
    count = max(1, min(_CASES, _ELEMENTS // math.prod(inner)))
    pools = {name: _pool(region, dtype, reaches[name]) for name, dtype in inputs.items()}
    random = {name: _random(dtype, reaches[name], pools[name], count, rng) for name, dtype in inputs.items()}
    return _of_cases(inputs, random, inner)


def at_zero(region: Region, reaches: Mapping[str, Reach], name: str) -> float:
    """What counts as nothing at the input ``name``: the zero of its grid, or the end that is nearest to it."""
    found = reaches[name]
    return float(np.clip(found.zero, found.low, found.high)) if _dtype(region, name).kind in "iuf" else 0.0


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
            np.broadcast_to(cases[name].astype(dtype).reshape(-1, *(1 for _ in inner)), (count, *inner))
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
    sweeps = {name: _sweep(inputs[name], reaches[name], pools[name], elements[name]) for name in inputs}
    swept = max((len(sweep) for sweep in sweeps.values()), default=0)
    count = max(_FEWEST, min(max(_MOST, swept + _FEWEST), affordable)) if inputs else 1
    batches = []
    for index in range(count):
        feeds = {}
        for place, (name, dtype) in enumerate(inputs.items()):
            numbers = _random(dtype, reaches[name], pools[name], elements[name], rng)
            if index in (1, 2):  # ends, and where there are several inputs, other ends of others
                numbers = np.full(numbers.shape, pools[name].min() if index == 1 or place % 2 else pools[name].max())
            elif 2 < index < len(sweeps[name]) + 3:
                numbers = sweeps[name][index - 3]
            feeds[name] = numbers.astype(dtype).reshape(shapes[name])
        batches.append(feeds)
    return Trials(tuple(batches), len(batches), alike=False, complete=not inputs)


def _sweep(dtype: np.dtype[np.generic], reach: Reach, pool: Array, elements: int) -> Array:
    """(batches, elements): one level after the other, of 8 bits every one, else of ``pool``, all at least once."""
    every = np.arange(reach.low, reach.high + 1) if dtype.kind in "iu" and dtype.itemsize == 1 else pool
    batches = min(-(-len(every) // max(elements, 1)), _SWEEPS)
    return every[np.arange(batches * elements).reshape(batches, elements) % len(every)]


def _random(dtype: np.dtype[np.generic], reach: Reach, pool: Array, count: int, rng: np.random.Generator) -> Array:
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
    """Where mistakes show: ends, zeros and what lies beside them; of reals, both sides of steps."""
    if dtype.kind == "f":
        steps = _steps(region, reach)
        return steps[np.isfinite(steps)]  # infinities less infinities are nobody's numbers
    if dtype.itemsize > _WIDEST // 8:
        return np.array([0, 1])
    ends = {reach.low, reach.high, reach.zero, *_limits(region)}
    beside = np.array(sorted({end + step for end in ends for step in (-1, 0, 1)}))
    return beside[(beside >= reach.low) & (beside <= reach.high)]


def _steps(region: Region, reach: Reach) -> Array:
    """Float32 within ``reach``: both sides of every step of every grid in the region, limits, zeros."""
    found = [np.array([0.0, -0.0, reach.low, reach.high], np.float32)]
    grids = _tensor_grids(region) or ()
    found += [critical_reals(grid) for grid in grids]
    ends = np.array(list(_limits(region)), np.float32)
    found += [ends, np.nextafter(ends, np.float32(np.inf)), np.nextafter(ends, np.float32(-np.inf))]
    if not grids:
        found.append(np.linspace(-_LARGEST, _LARGEST, _LARGEST * 2 + 1, dtype=np.float32))
    reals = np.concatenate(found)
    return reals[(reals >= np.float32(reach.low)) & (reals <= np.float32(reach.high))]


def _tensor_grids(region: Region) -> tuple[QParams, ...] | None:
    """The grids of all quantizers in ``region``, one of each channel; None where the steps of one are not known.

    That is so of a grid that is computed, of one wider than 16 bits, and of many channels.
    """
    found: dict[QParams, None] = {}
    for node in _nodes(region):
        if node.op_type != "QuantizeLinear":
            continue
        grid = grid_of(node)
        if grid is None or grid.qtype.bits > _WIDEST or grid.block_size is not None:
            return None
        pairs = zip(grid.scale.reshape(-1).tolist(), grid.zero_point.reshape(-1).tolist(), strict=True)
        found.update(dict.fromkeys(QParams(scale, point, grid.qtype) for scale, point in pairs))
        if len(found) > _MOST_GRIDS:
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

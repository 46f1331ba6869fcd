"""The distributions of values and weights against the ranges of a plan, a profile or a graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Feeds, get_backend, in_slices, isolated
from qbench.calibration import Distribution, Profile, Statistics, get_range_method
from qbench.diagnosis.target import Target
from qbench.diagnosis.unit_runs import FLOAT_BACKEND
from qbench.diagnosis.units import QuantizedUnit
from qbench.graph import constant_value, node_key, node_qparams, op_spec, values_by_name
from qbench.judging import ChannelRange, ValueDistribution
from qbench.numerics import QParams, QParamsKind, QType
from qbench.passes import plannable
from qbench.quantization import Plan, Role, Slot, numbers, qparams_of

# x → code = round(x / scale) + zero point, which the codes' ends limit; x is clipped where that is
# more than half a step beyond them.
#
# Of a profile the numbers are the means of cells less than 0.1 % wide: its codes are counted up to
# 8 bits, beyond which a cell holds more than one code. Weights are counted one by one.

Array = npt.NDArray[Any]

BINS = 96
_MOST_CODES = 256
"""Codes that are drawn one by one; more are drawn in groups, and of a profile not at all."""
_MOST_CHANNELS = 128
"""Channels that are kept one by one; of more, equal groups."""
_COMPARED = ("percentile", "mse")
"""The range methods whose choice is drawn where no plan has chosen."""
_MOST_NUMBERS = 1 << 20
"""Numbers of a suspect's value that are counted, which takes a quarter of a second: of a large
value the first samples.
"""
_DIGITS = 6
"""Of the ends of channels: a finding is stored in a run file."""
_WIDEST = 16
"""Bits of the widest type that is drawn: sums and biases in int32 have none."""


def distributions_of_profile(profile: Profile) -> Iterator[ValueDistribution]:
    """The values of ``profile`` that hold a finite number, with the ranges that some range methods
    take for 8 bits.
    """
    kind = QParamsKind(QType.parse("uint8"), "asymmetric")
    for name, seen in profile.values.items():
        if seen.count:
            found = seen.distribution()
            ranges = (
                (str(method), method.of_distribution(found, kind))
                for method in map(get_range_method, _COMPARED)
            )
            choices = tuple((name, float(one.low), float(one.high)) for name, one in ranges)
            yield replace(_seen(name, "", found), choices=choices)


def distributions_of_plan(
    plan: Plan, model: ir.Model, profile: Profile | None
) -> Iterator[ValueDistribution]:
    """The quantized values and weights of ``plan``, in its order, each once; values that
    ``profile`` lacks are left out.

    Args:
        plan: of ``model``.
        model: the float graph.
        profile: None: weights alone.
    """
    constants = values_by_name(plannable(model, plan.canonical))
    known = {} if profile is None else profile.values
    done = set[str]()
    for slot, decision in plan.decisions.items():
        qparams = qparams_of(decision)
        if qparams is None or not _has_few_codes(qparams) or slot.value in done:
            continue
        array = constant_value(constants.get(slot.value)) if slot.role in _CONSTANTS else None
        seen = known.get(slot.value)
        if array is not None and array.size:
            done.add(slot.value)
            yield of_array(slot.value, _place(slot), array, qparams)
        elif seen is not None and seen.count:
            done.add(slot.value)
            yield of_statistics(slot.value, _place(slot), seen, qparams)


def _has_few_codes(qparams: QParams) -> bool:
    """Whether it is of integers whose codes can be counted."""
    return qparams.qtype.bits <= _WIDEST and not qparams.qtype.is_float


_CONSTANTS = (Role.WEIGHT, Role.INPUT)


def _place(slot: Slot) -> str:
    return f"{slot.node}.{slot.role.value}[{slot.index}]"


def of_statistics(
    name: str,
    place: str,
    seen: Statistics,
    qparams: QParams,
    limits: tuple[int, int] | None = None,
) -> ValueDistribution:
    """A watched value of at least one finite number, under ``qparams``.

    Args:
        name, place: what it is called.
        seen: its statistics.
        qparams: its own.
        limits: the lowest and the highest code; None: those of ``qparams``. A 4-bit value in uint8
            has others.
    """
    found = seen.distribution()
    lowest, highest = limits or (qparams.qmin, qparams.qmax)
    made = _seen(name, place, found, qparams, (lowest, highest))
    if qparams.axis is not None:
        lows, highs = seen.channel_lows, seen.channel_highs
        if lows is None or highs is None or lows.shape != qparams.scale.shape:
            return made
        ends = _ends(qparams, lowest, highest)
        return replace(made, channels=_channels(lows, highs, *ends, None))
    points = found.points / float(qparams.scale) + int(qparams.zero_point)
    codes: tuple[int, ...] = ()
    if made.code_count <= _MOST_CODES:
        half = float(qparams.scale) / 2
        low, high = (float(end) for end in _ends(qparams, lowest, highest))
        codes = tuple(found.equal_width(made.code_count, low - half, high + half).tolist())
    return replace(
        made,
        clipped_low=int(found.counts[points < lowest - 0.5].sum()),
        clipped_high=int(found.counts[points > highest + 0.5].sum()),
        codes=codes,
        used=sum(map(bool, codes)) if codes else None,
    )


def of_array(name: str, place: str, array: Array, qparams: QParams) -> ValueDistribution:
    """A weight of at least one element, under ``qparams``."""
    reals = array.astype(np.float64)
    scale, point = qparams.expanded(array.shape)
    steps = reals / scale + point
    codes = np.clip(np.rint(steps), qparams.qmin, qparams.qmax).astype(np.int64) - qparams.qmin
    limits = (qparams.qmin, qparams.qmax)
    count = limits[1] - limits[0] + 1
    by_code = np.bincount(codes.reshape(-1), minlength=count)
    channels: tuple[ChannelRange, ...] = ()
    if qparams.axis is not None and qparams.block_size is None:
        rows = np.moveaxis(reals, qparams.axis, 0).reshape(len(qparams.scale), -1)
        held = np.moveaxis(codes, qparams.axis, 0).reshape(len(qparams.scale), -1)
        used = np.array([len(np.unique(row)) for row in held])
        ends = _ends(qparams, *limits)
        channels = _channels(rows.min(axis=1), rows.max(axis=1), *ends, used)
    return replace(
        _seen(name, place, Distribution.of(reals), qparams, limits),
        clipped_low=int((steps < qparams.qmin - 0.5).sum()),
        clipped_high=int((steps > qparams.qmax + 0.5).sum()),
        codes=tuple(_grouped(by_code).tolist()),
        used=int(np.count_nonzero(by_code)),
        channels=channels,
    )


def _seen(
    name: str,
    place: str,
    found: Distribution,
    qparams: QParams | None = None,
    limits: tuple[int, int] = (0, 0),
) -> ValueDistribution:
    """The histogram, and the range where there is one."""
    left, right = found.low, found.high
    chosen = ValueDistribution(
        value=name,
        place=place,
        count=found.count,
        low=found.low,
        high=found.high,
        left=left,
        right=right,
        bins=(),
    )
    if qparams is not None:
        lows, highs = _ends(qparams, *limits)
        low, high = float(lows.min()), float(highs.max())
        left, right = min(left, low), max(right, high)
        odd = f" codes {limits[0]} … {limits[1]}" * (limits != (qparams.qmin, qparams.qmax))
        chosen = replace(
            chosen,
            left=left,
            right=right,
            qtype=qparams.qtype.name,
            qparams=numbers(qparams) + odd,
            range_low=low,
            range_high=high,
            code_count=limits[1] - limits[0] + 1,
        )
    return replace(chosen, bins=tuple(found.equal_width(BINS, left, right).tolist()))


def _ends(qparams: QParams, lowest: int, highest: int) -> tuple[Array, Array]:
    """What the lowest and the highest code stand for."""
    scale = qparams.scale.astype(np.float64)
    return (lowest - qparams.zero_point) * scale, (highest - qparams.zero_point) * scale


def _grouped(counts: Array) -> Array:
    """``counts`` of neighbouring codes together, where they are more than can be drawn."""
    size = -(-len(counts) // _MOST_CODES)
    return np.add.reduceat(counts, np.arange(0, len(counts), size))


def _channels(
    lows: Array, highs: Array, range_lows: Array, range_highs: Array, used: Array | None
) -> tuple[ChannelRange, ...]:
    size = -(-len(lows) // _MOST_CHANNELS)
    starts = np.arange(0, len(lows), size)
    fewest = None if used is None else np.minimum.reduceat(used, starts)
    columns = (
        np.minimum.reduceat(lows, starts),
        np.maximum.reduceat(highs, starts),
        np.minimum.reduceat(range_lows, starts),
        np.maximum.reduceat(range_highs, starts),
    )
    return tuple(
        ChannelRange(
            first=int(start),
            last=min(int(start) + size, len(lows)) - 1,
            low=_rounded(low),
            high=_rounded(high),
            range_low=_rounded(range_low),
            range_high=_rounded(range_high),
            used=None if fewest is None else int(fewest[at]),
        )
        for at, (start, low, high, range_low, range_high) in enumerate(
            zip(starts, *columns, strict=True)
        )
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


# Of suspects: the float values of the samples that localization kept, and the weights, under the
# qparams of the quantized graph.


def distributions_of_units(
    target: Target, units: Sequence[QuantizedUnit], names: Mapping[str, str], feeds: Feeds
) -> Iterator[ValueDistribution]:
    """The result and the weight of each of ``units``, where they are quantized and fp32 has them.

    Args:
        target: whose graphs.
        units: of it.
        names: quantized value → the operator of fp32 that makes it.
        feeds: samples of the float graph.

    Raises:
        QbenchError: the float graph does not run.
    """
    known = values_by_name(target.original)
    wanted = [unit.represents for unit in units if unit.qparams is not None]
    taps = tuple(dict.fromkeys(name for name in wanted if name in known))
    with isolated(get_backend(FLOAT_BACKEND)).prepare(target.original, taps=taps) as run:
        values = {**feeds, **in_slices(run, target.original).run(feeds)}
    nodes = {node_key(node): node for node in target.original.graph}
    for unit in units:
        node = names[unit.value]
        array = values.get(unit.represents)
        if unit.qparams is not None and array is not None:
            finite = _some_finite(array)
            if finite.size:
                place = f"{node}.{Role.OUTPUT.value}[0]"
                limits = (int(unit.lowest), int(unit.highest))
                seen = Statistics.of(finite)
                yield of_statistics(unit.represents, place, seen, unit.qparams, limits)
        weight = None if node not in nodes else _weight(unit, nodes[node])
        if weight is not None:
            yield weight


def _some_finite(array: Array) -> Array:
    """The finite numbers of as many first samples as are counted."""
    if array.ndim and array.size > _MOST_NUMBERS:
        array = array[: max(1, _MOST_NUMBERS * len(array) // array.size)]
    return np.asarray(array[np.isfinite(array)])


def _weight(unit: QuantizedUnit, original: ir.Node) -> ValueDistribution | None:
    """The fp32 weight of ``original`` under the qparams that it has in ``unit``."""
    name, index = node_key(original), op_spec(original).weight
    here = next((node for node in unit.graph.graph if node_key(node) == name), None)
    if index is None or here is None or index >= min(len(here.inputs), len(original.inputs)):
        return None
    value, given = original.inputs[index], here.inputs[index]
    array = constant_value(value)
    maker = None if given is None else given.producer()
    if array is None or not array.size or maker is None or maker.op_type != "DequantizeLinear":
        return None
    qparams = node_qparams(maker)
    if qparams is None or qparams.qtype.bits > _WIDEST:
        return None
    try:
        return of_array(
            str(value and value.name), f"{name}.{Role.WEIGHT.value}[{index}]", array, qparams
        )
    except ValueError:  # the graph has it in another shape, as where a tool transposed it
        return None

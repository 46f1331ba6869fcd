"""Results that change between runs, and elements that are not computed."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import numpy.typing as npt

from qbench.diagnosis.hypotheses.hypothesis import MOST, Explanation, Mask, UnitEvidence
from qbench.errors import QbenchError
from qbench.judging import Cause
from qbench.numerics import dequantize

_FILLED = 0.8
"""Share of differing neighbours from which a block was overwritten, and not single elements."""
_LONG = 8


def repeating(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Another result in the whole graph than alone: by a race, or by a buffer that holds older
    values.

    Only values that are wrong in one of the two runs count, since engines fuse otherwise in a unit
    alone.
    """
    again = facts.again
    if again is None or again.shape != facts.found.shape:
        return
    alone_off = np.abs(again - facts.clipped(facts.real)) > 0.5 + facts.slack
    if facts.claimed:
        alone_off = again != facts.correct
    moved = (facts.found != again) & (facts.differing | alone_off)
    count = int(moved.sum())
    if not count:
        return
    weight = count / int((facts.differing | alone_off).sum())
    both = f"{count} codes differ between the graph and the unit alone on the same inputs"
    older = _older(facts, moved)
    if (moved & alone_off).any():
        cause, evidence = Cause.NONDETERMINISM, f"{both}, and alone not right either"
    elif older:
        cause, evidence = Cause.NOT_WRITTEN, f"{both}, {older}; alone all are right"
    else:
        cause, evidence = Cause.NONDETERMINISM, f"{both}, at scattered places; alone all are right"
    yield Explanation(cause=cause, evidence=evidence, weight=weight)


def _older(facts: UnitEvidence, moved: Mask) -> str:
    """Whether the differing values are a block or belong elsewhere, in words; empty: neither."""
    for sample in range(facts.found.shape[0] if facts.found.ndim > 1 else 0):
        here = moved & (facts.found == facts.correct[sample])
        here[sample] = False
        if here.sum() > max(_LONG, 0.9 * moved.sum()):
            return f"and hold the values of sample {sample}"
    flat = np.flatnonzero(moved)
    length = int(flat[-1] - flat[0]) + 1
    if len(flat) >= _LONG and len(flat) >= _FILLED * length:
        return f"a block of {length} neighbours"
    for axis in range(moved.ndim):
        rest = tuple(one for one in range(moved.ndim) if one != axis)
        share = moved.mean(axis=rest)
        lines = share > _FILLED
        if lines.any() and moved.sum() <= share[lines].sum() * moved.size / moved.shape[axis] * 1.1:
            return f"{int(lines.sum())} whole slices of axis {axis}"
    return ""


_FEW = 0.34
"""Share of the slices of an axis up to which a difference may be a skipped border."""
_UNKNOWN = 0.7
"""Factor of the weight where the elements hold neither one value nor those of other elements."""


def unwritten(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Slices of the result, or its tail in memory, that are not computed: they hold one value,
    or other elements.

    Only where all differences lie in few neighbouring slices of an axis.
    """
    if not facts.found.ndim or not facts.count:
        return
    for axis in range(facts.found.ndim):
        lines = np.flatnonzero(
            facts.differing.any(axis=tuple(a for a in range(facts.found.ndim) if a != axis))
        )
        size = facts.found.shape[axis]
        yield _block(facts, axis, lines)
        contiguous = int(lines[-1] - lines[0]) + 1 == len(lines)
        if contiguous and len(lines) <= max(1, _FEW * size) and size > 1:
            where = _where(lines, size)
            region = np.zeros(facts.found.shape, bool)
            region[(slice(None),) * axis + (lines,)] = True
            yield _held(facts, region, f"{len(lines)} {where} of {size} slices of axis {axis}")
    flat = np.flatnonzero(facts.differing)
    first = int(flat[0])
    if facts.found.size - first <= _FEW * facts.found.size:
        tail = np.arange(facts.found.size).reshape(facts.found.shape) >= first
        yield _held(
            facts, tail, f"the last {facts.found.size - first} of {facts.found.size} elements"
        )
    rows = facts.found.reshape(facts.found.shape[0], -1)
    if len(rows) > 1 and (rows == rows[0]).all():
        codes = np.broadcast_to(facts.correct[:1], facts.found.shape)
        words = f"the first of {len(rows)} samples in place of all"
        yield facts.weigh_codes(Cause.NOT_WRITTEN, words, codes)
    yield _constants(facts)
    yield _blank(facts)


def overwritten(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The tail of an operand that holds the codes of the other one: its buffer was used again
    too early.

    In each sample the tail begins at the first value that differs.
    """
    inner = facts.interior
    if inner is None or facts.is_product or not facts.found.ndim:
        return
    feeds = {
        name: one for name, one in inner.operands.items() if one.feed and one.qparams is not None
    }
    rows = facts.differing.reshape(len(facts.found), -1)
    tail = (np.cumsum(rows, axis=1) > 0).reshape(facts.found.shape)
    for name, other in permutations(feeds, 2):
        qparams = feeds[name].qparams
        codes, own = facts.feeds[feeds[other].feed], facts.feeds[feeds[name].feed]
        if qparams is None or own.shape != facts.found.shape or codes.dtype != own.dtype:
            continue
        try:
            held = np.where(tail, np.broadcast_to(codes, own.shape), own)
        except ValueError:  # the other operand is larger
            continue
        real = inner.run({**facts.operands, name: dequantize(held, qparams)})
        words = f"the codes of '{other}' in the tail of '{name}', which is still to be read,"
        yield facts.weigh_reals(Cause.NOT_WRITTEN, words, real)


def unread(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The last or first slices of an axis of the input that are not read.

    The first operand has zeros in these slices.
    """
    inner = facts.interior
    if inner is None or not inner.main or inner.main[0] not in facts.operands:
        return
    x, most = facts.operands[inner.main[0]], 10 if facts.found.size <= 2 * MOST else 1
    for axis in range(1, x.ndim):
        size = x.shape[axis]
        for left_out in dict.fromkeys(
            (1, 2, 3, 4, 8, 16, size % 4, size % 8, size % 16, size % 32)[:most]
        ):
            if not 0 < left_out < size:
                continue
            for words, part in (
                ("last", slice(size - left_out, None)),
                ("first", slice(0, left_out)),
            ):
                silent = x.copy()
                silent[(slice(None),) * axis + (part,)] = 0
                try:
                    real = inner.run({**facts.operands, inner.main[0]: silent})
                except QbenchError:
                    return
                said = (
                    f"the {words} {left_out} of {size} slices of the input's axis {axis} not read"
                )
                yield facts.weigh_reals(Cause.NOT_WRITTEN, said, real)


def _block(facts: UnitEvidence, axis: int, lines: npt.NDArray[np.int64]) -> Explanation | None:
    """One value in all slices from the first to the last that differs; some may be right by
    chance.
    """
    rows = np.moveaxis(facts.found, axis, 0).reshape(facts.found.shape[axis], -1)
    value = rows[lines[0], 0]
    same = (rows == value).all(axis=1)
    first, last = int(lines[0]), int(lines[-1])
    if not same[first : last + 1].all() or same.all() or rows.shape[1] < 2:
        return None
    while first > 0 and same[first - 1]:
        first -= 1
    while last + 1 < len(same) and same[last + 1]:
        last += 1
    region = np.zeros(facts.found.shape, bool)
    region[(slice(None),) * axis + (slice(first, last + 1),)] = True
    where = _where(np.arange(first, last + 1), len(rows))
    words = (
        f"{last + 1 - first} {where} of {len(rows)} slices of axis {axis} holding {value:g} steps "
        "throughout"
    )
    return facts.weigh_codes(Cause.NOT_WRITTEN, words, np.where(region, value, facts.correct))


def _held(facts: UnitEvidence, region: Mask, words: str) -> Explanation | None:
    """The contents of ``region``: one value, the values of neighbours, or unknown ones."""
    inside = facts.found[region]
    value = float(np.median(inside))
    constant = np.where(region, value, facts.correct)
    found = facts.weigh_codes(
        Cause.NOT_WRITTEN, f"{words} holding {value:g} steps throughout", constant
    )
    if found is not None and found.weight > _UNKNOWN and (inside == value).mean() > 0.9:
        return found
    for axis in range(facts.found.ndim):
        for by in (1, -1, 2, -2):
            other = np.where(region, np.roll(facts.correct, by, axis), facts.correct)
            copied = facts.weigh_codes(
                Cause.NOT_WRITTEN,
                f"{words} holding the values {abs(by)} slices away along axis {axis}",
                other,
            )
            if copied is not None and copied.weight > _UNKNOWN:
                return copied
    share = float(facts.differing[region].mean())
    evidence = f"all {facts.count} codes that differ lie in {words}, {share:.0%} of what is there"
    return Explanation(
        cause=Cause.NOT_WRITTEN, evidence=evidence, weight=_UNKNOWN * min(1.0, share * 1.25)
    )


def _constants(facts: UnitEvidence) -> Explanation | None:
    """One value at all differences, at scattered positions."""
    values, counts = np.unique(facts.found[facts.differing], return_counts=True)
    value = float(values[counts.argmax()])
    if (
        counts.max() < 8
        or counts.max() < 0.95 * facts.count
        or value in (facts.lowest, facts.highest)
    ):
        return None
    share = float(counts.max()) / facts.count
    evidence = f"{int(counts.max())} of {facts.count} codes that differ hold {value:g} steps"
    return Explanation(cause=Cause.NOT_WRITTEN, evidence=evidence, weight=_UNKNOWN * share)


def _blank(facts: UnitEvidence) -> Explanation | None:
    """Zeros in all of a result that should hold many values, as in memory that nothing was
    written to.
    """
    codes = facts.found + facts.captured.unit.zero_point
    if facts.found.size < _LONG or codes.any() or len(np.unique(facts.correct)) < _LONG:
        return None
    evidence = (
        f"all {facts.found.size} values are 0 as stored, as in memory that nothing was written to"
    )
    return Explanation(cause=Cause.NOT_WRITTEN, evidence=evidence, weight=_UNKNOWN)


def _where(lines: npt.NDArray[np.int64], size: int) -> str:
    if lines[0] == 0:
        return "first"
    return "last" if lines[-1] == size - 1 else "neighbouring"

"""Another arithmetic: sums, multipliers, roundings, tables."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, product
from types import MappingProxyType
from typing import Any

import numpy as np

from qbench.diagnosis.hypotheses.hypothesis import (
    MOST,
    Explanation,
    Product,
    UnitEvidence,
    counted,
    heaviest,
)
from qbench.diagnosis.hypotheses.interior import Floats, Interior
from qbench.diagnosis.operators.check import other_rules
from qbench.graph import OPERATORS
from qbench.judging import Cause, NodeErrors
from qbench.numerics import (
    Accumulator,
    Arithmetic,
    MultiplierForm,
    Overflow,
    Rounding,
    Scaling,
    Stage,
    get_arithmetic,
    held,
)

PAIR_BITS = 16
_EXACT_BITS = 24
"""Bits of a multiplier from which its error is no larger than that of float32."""
_HALF = 0.5
"""Share of an error from which a rule of the arithmetic itself explains it."""
_NEARLY = 0.8
_LAST = (Rounding.HALF_AWAY, Rounding.HALF_UP, Rounding.HALF_EVEN)


def pairs(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Neighbouring products summed in 16 bits.

    Where the arithmetic itself sums pairs, the mistake is not to sum them.
    """
    if not facts.is_product:
        return
    own = facts.arithmetic.accumulator
    if own.pair_bits:
        other = Accumulator(bits=own.bits)
        words = "summing products one by one, where the arithmetic sums pairs,"
    else:
        other = Accumulator(bits=own.bits, overflow=own.overflow, pair_bits=PAIR_BITS)
        words = f"summing pairs of products in {PAIR_BITS} bits"
    yield facts.weigh_arithmetic(
        Cause.PAIR_SATURATION, words, arithmetic=_summing(facts.arithmetic, other)
    )


def own_rules(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The cost of the rules that the arithmetic declares: pairs and sums of few bits, short
    multipliers, roundings.

    The weight is the share of the error that disappears when one rule is exact. A result without
    qparams counts, too.
    """
    yield from _own_rules(facts, 1.0)


def rules_of_excess(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """As ``own_rules``, with the share of the error that the quantization parameters do not
    explain.
    """
    beyond = unexplained_share(facts.captured.errors)
    if beyond > 0:
        yield from _own_rules(facts, beyond)


def _own_rules(facts: UnitEvidence, part: float) -> Iterator[Explanation | None]:
    """The explanations by the rules of the declared arithmetic of a ``part`` (0 … 1) of the
    squared error.
    """
    captured, own = facts.captured, facts.arithmetic
    found = captured.isolated
    if not facts.claimed or found is None or found.shape != captured.expected.shape:
        return
    unit = captured.unit
    x = captured.expected.astype(np.float64) / unit.scale
    error = float(((found.astype(np.float64) - unit.zero_point - x) ** 2).sum())
    for cause, words, other in _exact_rules(own, facts.is_product) if error > 0 else ():
        codes = counted(captured, other, captured.fed)
        if codes is None or codes.shape != x.shape:
            continue
        share = 1 - float(((codes - x) ** 2).sum()) / error
        if share < _HALF * part:
            continue
        evidence = (
            f"'{own.name}' {words}, as it claims: without that, {share:.0%} of the error disappears"
        )
        yield Explanation(cause=cause, evidence=evidence, weight=min(share / part, 1.0))
        if cause is not Cause.COARSE and share / part >= _NEARLY:
            return  # all rules exact would explain a little more, and say less


def _exact_rules(own: Arithmetic, is_product: bool) -> Iterator[tuple[Cause, str, Arithmetic]]:
    """(cause, words, the arithmetic with that rule exact), the likeliest first; all rules exact
    last.
    """
    sums = own.accumulator
    if is_product and sums.pair_bits:
        words = f"sums pairs of products in {sums.pair_bits} bits"
        yield Cause.PAIR_SATURATION, words, _summing(own, Accumulator(bits=sums.bits))
    if is_product and sums.bits < Accumulator().bits:
        yield Cause.ACCUMULATOR, f"sums in {sums.bits} bits", _summing(own, Accumulator())
    if (
        is_product
        and own.scaling.form is MultiplierForm.FIXED
        and (own.scaling.bits or 0) < _EXACT_BITS
    ):
        exact = own.with_multiplier(get_arithmetic("ideal").scaling)
        yield Cause.WRONG_SCALE, f"holds multipliers in {own.scaling.bits} bits", exact
    yield Cause.COARSE, "rounds otherwise than real arithmetic", get_arithmetic("ideal")


def unexplained_share(errors: NodeErrors) -> float:
    """The share of the squared error beyond that of the quantization parameters alone; 0 where
    that is not known.
    """
    alone, explained = errors.isolated, errors.explained
    if alone is None or explained is None or not alone.relative:
        return 0.0
    return max(1 - (explained.relative / alone.relative) ** 2, 0.0)


def registers(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Sums that wrap or saturate in fewer bits: widths from that of the largest sum downwards."""
    product = Product.of(facts)
    if product is None:
        return
    sums = np.rint((facts.real / product.unit).astype(np.float64)).astype(np.int64)
    bias = (
        np.rint(product.bias / product.unit).astype(np.int64) if product.bias is not None else None
    )
    widest = int(np.abs(sums).max(initial=0)).bit_length()
    for bits in range(min(widest, 31), 7, -1):
        for overflow in Overflow:
            words = f"sums that {overflow.value} in {bits} bits (the largest needs {widest + 1})"
            register = Accumulator(bits=bits, overflow=overflow)
            yield facts.weigh_reals(Cause.ACCUMULATOR, words, held(sums, register) * product.unit)
            if bias is not None:
                later = (held(sums - bias, register) + bias) * product.unit
                yield facts.weigh_reals(
                    Cause.ACCUMULATOR, f"{words}, the bias added afterwards,", later
                )


def rules(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Roundings, zero points, sums and averages by a rule of another arithmetic.

    Only where the backend declares its arithmetic: otherwise no rounding of a tie is a mistake.
    """
    if not facts.claimed or facts.interior is None:
        return
    if facts.found.size > 2 * MOST and 2 * facts.hard_count > facts.count:
        # too slow; most differences are not ties, so the roundings of real values show as much
        return
    node = facts.interior.node
    own = facts.arithmetic.at(node.op_type, str(node.name))
    for words, other in (*other_rules(own, node.op_type), *_twice(own)):
        cause = _cause(own, other)
        if cause is not None:
            yield facts.weigh_arithmetic(cause, words, arithmetic=other)


def _twice(own: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    """A product that is rounded to the bits of its multiplier, and then once more to an integer."""
    for bits, first, last in product((31, 15), (Rounding.HALF_UP, Rounding.FLOOR), _LAST):
        stages = (Stage(first, bits), Stage(last))
        scaling = Scaling(form=MultiplierForm.FIXED, bits=bits, stages=stages)
        words = f"rounding twice, '{first.value}' to {bits} bits and then '{last.value}',"
        yield words, own.with_multiplier(scaling)


def multipliers(facts: UnitEvidence, product: Product) -> Iterator[Explanation | None]:
    """Multipliers of few bits."""
    exact = np.asarray(product.unit, np.float64)
    fraction, exponent = np.frexp(exact)
    for bits in (*range(1, 13), 14, 15, 16):
        for rule, words in ((np.rint, "rounded to"), (np.floor, "cut to")):
            kept = np.ldexp(np.maximum(rule(np.ldexp(fraction, bits)), 1), exponent - bits)
            yield _scaled(facts, exact, kept, f"a multiplier {words} {bits} significant bits")
            steps = np.ldexp(rule(np.ldexp(exact, bits)), -bits)
            yield _scaled(facts, exact, steps, f"a multiplier {words} steps of 2^-{bits}")
    power = np.exp2(np.rint(np.log2(exact)))
    yield _scaled(facts, exact, power, "a multiplier rounded to a power of two")


def _scaled(facts: UnitEvidence, exact: Floats, kept: Floats, words: str) -> Explanation | None:
    if np.allclose(kept, exact, rtol=1e-6, atol=0) or (kept <= 0).any():
        # a multiplier of 0 is not an explanation
        return None
    return facts.weigh_reals(Cause.WRONG_SCALE, words, facts.real * (kept / exact))


def _cause(own: Arithmetic, other: Arithmetic) -> Cause | None:
    """The cause for the exchanged rule; None: another hypothesis tests it in more ways."""
    if own.accumulator != other.accumulator and own.scaling == other.scaling:
        return None
    if own.narrow != other.narrow:
        return Cause.ABSORBED_CLIP
    coarse = other.scaling.form is MultiplierForm.FIXED and (other.scaling.bits or 0) < _EXACT_BITS
    if coarse and (
        own.scaling.form is not other.scaling.form or own.scaling.bits != other.scaling.bits
    ):
        return Cause.WRONG_SCALE
    return Cause.ROUNDING


def _summing(arithmetic: Arithmetic, accumulator: Accumulator) -> Arithmetic:
    """``arithmetic`` with ``accumulator`` in all nodes."""
    overrides = tuple(one for one in arithmetic.overrides if one.accumulator is None)
    return replace(arithmetic, accumulator=accumulator, overrides=overrides)


_FUNCTIONS = frozenset(name for name, spec in OPERATORS.items() if spec.table) | {
    "LeakyRelu",
    "LogSoftmax",
    "Softmax",
    "Swish",
}
"""Operators that engines compute by a table, or whose exponentials they do."""
_REST = 0.6


def tables(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """A wrong table of a function: shifted by an entry, too coarse, or inexact beyond rounding.

    The found values are a table over the quantized inputs, compared with the right table.
    """
    operators = set(facts.captured.unit.operators)
    if not operators & _FUNCTIONS:
        return
    feed = next(iter(facts.feeds.values()))
    pointwise = (
        len(facts.feeds) == 1 and feed.shape == facts.found.shape and not operators & {"Softmax"}
    )
    if pointwise and not facts.is_product:
        yield from _entries(facts, feed.astype(np.int64))
    steps = np.abs(facts.found - facts.correct)[facts.differing]
    if steps.size:
        names = " and ".join(sorted(operators & _FUNCTIONS))
        evidence = (
            f"{names} is off by {steps.mean():.2f} steps on {facts.count} codes, by "
            f"{steps.max():g} at most"
        )
        yield Explanation(cause=Cause.TABLE, evidence=evidence, weight=_REST)


def _entries(facts: UnitEvidence, codes: np.ndarray[Any, Any]) -> Iterator[Explanation | None]:
    right = _table(codes, facts.correct)
    for by in (1, -1, 2, -2):
        shifted = np.array(
            [right.get(code + by, right[code]) for code in codes.reshape(-1).tolist()]
        )
        words = (
            f"a table read {abs(by)} {'entry' if abs(by) == 1 else 'entries'} "
            f"{'up' if by > 0 else 'down'}"
        )
        yield facts.weigh_codes(Cause.TABLE, words, shifted.reshape(codes.shape))
    found = _table(codes, facts.found)
    flat, every = facts.found.reshape(-1), codes.reshape(-1)
    if not np.array_equal(np.array([found[code] for code in every.tolist()]), flat):
        return  # not a function of the input value alone
    off = [code for code in sorted(found) if found[code] != right[code]]
    coarse = _coarseness(found, right)
    words = f"a table with {coarse} neighbouring codes to an entry" if coarse > 1 else "a table"
    evidence = (
        f"{words}, wrong for {len(off)} of {len(found)} codes (the first {off[0]}), explains all"
    )
    yield Explanation(
        cause=Cause.TABLE, evidence=f"{evidence} {facts.count} codes that differ", weight=0.95
    )


def _table(codes: np.ndarray[Any, Any], results: np.ndarray[Any, Any]) -> dict[int, float]:
    keys, first = np.unique(codes.reshape(-1), return_index=True)
    return dict(zip(keys.tolist(), results.reshape(-1)[first].tolist(), strict=True))


def _coarseness(found: dict[int, float], right: dict[int, float]) -> int:
    """The number of neighbours that share an entry, where the right table has different ones."""
    keys = [key for key in sorted(found) if key + 1 in found and right[key] != right[key + 1]]
    same = sum(found[key] == found[key + 1] for key in keys)
    return round(len(keys) / max(1, len(keys) - same)) if keys else 1


_TIE = 1e-4
"""Distance from halfway up to which a value is a tie: the error of float32."""
_RULES: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "half up": lambda t: np.floor(t + 0.5),
        "half away from zero": lambda t: np.copysign(np.floor(np.abs(t) + 0.5), t),
        "truncation": np.trunc,
        "rounding down": np.floor,
        "rounding up": np.ceil,
        "half to even": np.rint,
        "half down": lambda t: np.ceil(t - 0.5),
    }
)


def roundings(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Every rounding rule, before and after the zero point, once or twice; and a constant added
    to all results.

    Only for a quantized result: a real one is not rounded.
    """
    qparams = facts.captured.unit.qparams
    if qparams is None:
        return
    zero = int(qparams.zero_point)
    snapped, cause = _snapped(facts.real), Cause.ROUNDING
    yield _constant(facts, zero)
    for words, rule in _RULES.items():
        yield facts.weigh_codes(cause, words, _moved(facts, rule(snapped)))
        if zero:
            early = rule(snapped + zero) - zero
            yield facts.weigh_codes(
                cause, f"{words} after the zero point is added", _moved(facts, early)
            )
    for bits in range(1, 5):
        for words in ("half up", "half to even", "truncation"):
            twice = np.floor(_RULES[words](_snapped(facts.real * 2**bits)) / 2**bits + 0.5)
            said = f"rounding twice, first by {words} to {bits} more bits,"
            yield facts.weigh_codes(cause, said, _moved(facts, twice))


def zero_points(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """A zero point of an operand that is omitted, or another one.

    One step more in an operand changes the result by R; the error of the zero point is the δ that
    fits best.
    """
    inner = facts.interior
    if inner is None:
        return
    yield from _exchanged_points(facts, inner)
    for name, one in inner.operands.items():
        if one.qparams is None or np.size(one.qparams.scale) != 1 or one.qparams.qtype.bits > 16:
            continue
        scale, zero = float(one.qparams.scale), int(one.qparams.zero_point)
        if not facts.is_product:
            if zero:
                moved = inner.run(
                    {**facts.operands, name: facts.operands[name] + np.float32(scale * zero)}
                )
                yield facts.weigh_reals(
                    Cause.ROUNDING, f"zero point {zero} of '{name}' left out", moved
                )
            continue
        response = (
            inner.run({**facts.operands, name: facts.operands[name] + np.float32(scale)})
            - facts.real
        )
        inside = facts.inside & (response != 0)
        if not inside.any():
            continue
        step = solved(facts, response)
        for off in dict.fromkeys((zero, round(step))):
            if off:
                words = f"zero point {zero - off} in place of {zero} for '{name}'"
                yield facts.weigh_reals(Cause.ROUNDING, words, facts.real + off * response)


def _exchanged_points(facts: UnitEvidence, inner: Interior) -> Iterator[Explanation | None]:
    """Operands read with the zero points of each other: of a sum, a constant on every code."""
    own = {
        name: one.qparams
        for name, one in inner.operands.items()
        if one.feed and one.qparams is not None
    }
    for (name, qparams), (other, its) in combinations(own.items(), 2):
        if (
            np.size(qparams.scale) != 1
            or np.size(its.scale) != 1
            or qparams.zero_point == its.zero_point
        ):
            continue
        apart = int(qparams.zero_point) - int(its.zero_point)
        first = facts.operands[name] + np.float32(float(qparams.scale) * apart)
        second = facts.operands[other] - np.float32(float(its.scale) * apart)
        real = inner.run({**facts.operands, name: first, other: second})
        words = (
            f"the zero points of '{name}' ({qparams.zero_point}) and '{other}' ({its.zero_point}) "
            "exchanged"
        )
        yield facts.weigh_reals(Cause.ROUNDING, words, real)


def wraps_at_end(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The highest code of a quantized result that comes out as the lowest: a clamp of another
    type, say.
    """
    if facts.captured.unit.qparams is None:
        return
    low, high = facts.lowest, facts.highest
    for words, end, other in (("highest", high, low), ("lowest", low, high)):
        codes = np.where(facts.correct == end, other, facts.correct)
        yield facts.weigh_codes(
            Cause.ACCUMULATOR, f"the {words} code that wraps to the other end", codes
        )


def solved(facts: UnitEvidence, response: Floats) -> float:
    """The multiple of ``response`` by which the found values differ, by least squares where
    nothing is clamped.
    """
    inside = facts.inside & np.isfinite(response)
    energy = float((response[inside] ** 2).sum())
    return float(((facts.found - facts.real) * response)[inside].sum()) / energy if energy else 0.0


def _constant(facts: UnitEvidence, zero: int) -> Explanation | None:
    off = (facts.found - facts.correct)[
        facts.differing & (facts.found > facts.lowest) & (facts.found < facts.highest)
    ]
    if not off.size:
        return None
    values, counts = np.unique(off, return_counts=True)
    step = float(values[counts.argmax()])
    words = f"{step:+.0f} on every code"
    if zero and step == -zero:
        words = f"a zero point of {zero} that is not added"
    elif zero and step == zero:
        words = f"a zero point of {zero} that is added twice"
    after = facts.weigh_codes(Cause.ROUNDING, words, facts.rounded(facts.correct + step))
    clamped = (facts.correct <= facts.lowest) | (facts.correct >= facts.highest)
    free = np.where(clamped & np.isfinite(facts.real), np.rint(facts.real), facts.correct)
    before = facts.weigh_codes(
        Cause.ROUNDING, f"{words}, before its limits,", facts.rounded(free + step)
    )
    return heaviest((after, before))


def _moved(facts: UnitEvidence, rounded: Floats) -> Floats:
    """The result of the arithmetic, changed as the rule changes the rounded real values."""
    return facts.rounded(
        np.where(facts.differing, rounded, facts.correct + rounded - np.rint(_snapped(facts.real)))
    )


def _snapped(real: Floats) -> Floats:
    half = np.floor(real) + 0.5
    return np.where(np.abs(real - half) < _TIE, half, real)

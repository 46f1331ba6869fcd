"""A machine with one rule exchanged: what a kernel counts by that took the one for the other."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from qbench.numerics import (
    Accumulator,
    AddScheme,
    Arithmetic,
    Averaging,
    MultiplierForm,
    Rounding,
    Scaling,
    Stage,
    ZeroPoint,
)

_PAIR_BITS = 16


def other_rules(own: Arithmetic, operator: str) -> Iterator[tuple[str, Arithmetic]]:
    """Machines that differ from ``own`` in one rule of ``operator`` (in two, rounding and zero point), with words."""
    if operator == "Add":
        yield from _other_sums(own)
    if "AveragePool" in operator:
        yield from _other_averages(own)
    yield from _other_roundings(own)
    yield from _other_multipliers(own)
    yield from _other_accumulators(own)
    yield "levels that stop short of the lowest one", replace(own, narrow=True)


def _other_sums(own: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    for scheme in AddScheme:
        if scheme not in (own.adding.scheme, AddScheme.WEIGHTED):  # which needs bits
            words = f"adding by '{scheme.value}' in place of '{own.adding.scheme.value}'"
            yield words, replace(own, adding=replace(own.adding, scheme=scheme))


def _other_averages(own: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    for averaging in (Averaging.SCALED, Averaging.RAW, Averaging.REAL):
        if averaging is not own.averaging:
            words = f"averaging by '{averaging.value}' in place of '{own.averaging.value}'"
            yield words, replace(own, averaging=averaging)


def _other_roundings(own: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    scaling, last = own.scaling, own.scaling.stages[-1]
    for zero_point, rounding in product(sorted(ZeroPoint, key=lambda one: one is not scaling.zero_point), Rounding):
        words = []
        if rounding is not last.rounding:
            words.append(f"rounding '{rounding.value}' in place of '{last.rounding.value}'")
        if zero_point is not scaling.zero_point:
            words.append(f"the zero point added {zero_point.value} rounding in place of {scaling.zero_point.value} it")
        if words and (other := _rescaled(own, rounding, zero_point)) is not None:
            yield ", and ".join(words), other


def _rescaled(own: Arithmetic, rounding: Rounding, zero_point: ZeroPoint) -> Arithmetic | None:
    """``own`` with another last rounding; None where integers cannot have the zero point added first."""
    stages = (*own.scaling.stages[:-1], Stage(rounding))
    try:
        changed = [
            None if one is None else replace(one, stages=stages, zero_point=zero_point)
            for one in (own.scaling, own.multiplying)
        ]
    except ValueError:
        return None
    scaling, multiplying = changed
    assert scaling is not None
    return replace(own, scaling=scaling, multiplying=multiplying)


def _other_multipliers(own: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    last = own.scaling.stages[-1]
    for bits in (8, 15, 31):
        if (own.scaling.form, own.scaling.bits) != (MultiplierForm.FIXED, bits):
            scaling = Scaling(form=MultiplierForm.FIXED, bits=bits, stages=(last,))
            words = f"a fixed multiplier of {bits} bits in place of '{own.scaling.form.value}'"
            yield words, replace(own, scaling=scaling, multiplying=None)
    for form in (MultiplierForm.FLOAT32, MultiplierForm.FLOAT64):
        if own.scaling.form is not form:
            words = f"a multiplier as {form.value} in place of '{own.scaling.form.value}'"
            yield words, replace(own, scaling=Scaling(form=form, stages=(last,)), multiplying=None)


def _other_accumulators(own: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    if own.accumulator.pair_bits:
        yield "pairs of products that do not saturate", replace(own, accumulator=Accumulator(bits=own.accumulator.bits))
    else:
        pairs = Accumulator(bits=own.accumulator.bits, overflow=own.accumulator.overflow, pair_bits=_PAIR_BITS)
        yield f"pairs of products that saturate in {_PAIR_BITS} bits", replace(own, accumulator=pairs)
    for bits, overflow in product((16, 24), type(own.accumulator.overflow)):
        words = f"an accumulator of {bits} bits that does not hold every sum ({overflow.value})"
        yield words, replace(own, accumulator=Accumulator(bits=bits, overflow=overflow))

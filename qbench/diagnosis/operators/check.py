"""One operator subject on a kernel or backend compared with an arithmetic, and known mistakes
of kernels.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from qbench.backends import Backend, get_backend
from qbench.diagnosis.operators.kernels import (
    Codes,
    ExactResult,
    Kernel,
    Trial,
    accumulators,
    counted,
    exact_result,
)
from qbench.errors import QbenchError
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
    get_arithmetic,
    list_arithmetics,
    load_arithmetic,
    requantize,
)
from qbench.subjects import OperandQParams, OperatorSubject, get_operator

# Arithmetics in which one rule is exchanged: what a kernel computes that follows another rule.

_PAIR_BITS = 16


def other_rules(own: Arithmetic, operator: str) -> Iterator[tuple[str, Arithmetic]]:
    """Arithmetics that differ from ``own`` in one rule of ``operator`` (or in rounding and zero
    point), with words.
    """
    if operator == "Add":
        yield from _other_sums(own)
    if "AveragePool" in operator:
        yield from _other_averages(own)
    yield from _other_roundings(own)
    yield from _other_multipliers(own)
    yield from _other_accumulators(own)
    yield "codes that stop short of the lowest one", replace(own, narrow=True)


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
    for zero_point, rounding in product(
        sorted(ZeroPoint, key=lambda one: one is not scaling.zero_point), Rounding
    ):
        words = []
        if rounding is not last.rounding:
            words.append(f"rounding '{rounding.value}' in place of '{last.rounding.value}'")
        if zero_point is not scaling.zero_point:
            words.append(
                f"the zero point added {zero_point.value} rounding in place of "
                f"{scaling.zero_point.value} it"
            )
        if words and (other := _rescaled(own, rounding, zero_point)) is not None:
            yield ", and ".join(words), other


def _rescaled(own: Arithmetic, rounding: Rounding, zero_point: ZeroPoint) -> Arithmetic | None:
    """``own`` with another last rounding; None where the zero point cannot be added before it."""
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
            yield words, own.with_multiplier(scaling)
    for form in (MultiplierForm.FLOAT32, MultiplierForm.FLOAT64):
        if own.scaling.form is not form:
            words = f"a multiplier as {form.value} in place of '{own.scaling.form.value}'"
            yield words, own.with_multiplier(Scaling(form=form, stages=(last,)))


def _other_accumulators(own: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    if own.accumulator.pair_bits:
        yield (
            "pairs of products that do not saturate",
            replace(own, accumulator=Accumulator(bits=own.accumulator.bits)),
        )
    else:
        pairs = Accumulator(
            bits=own.accumulator.bits, overflow=own.accumulator.overflow, pair_bits=_PAIR_BITS
        )
        yield (
            f"pairs of products that saturate in {_PAIR_BITS} bits",
            replace(own, accumulator=pairs),
        )
    for bits, overflow in product((16, 24), type(own.accumulator.overflow)):
        words = f"an accumulator of {bits} bits that does not hold every sum ({overflow.value})"
        yield words, replace(own, accumulator=Accumulator(bits=bits, overflow=overflow))


def named_mistake(trial: Trial, arithmetic: Arithmetic, found: Codes) -> str:
    """The known mistake that gives every element of ``found``, such as ``'gemmlowp' gives``;
    empty: none does.
    """
    for words, codes in _mistakes(trial, arithmetic):
        if codes is not None and np.array_equal(codes, found):
            return f"'{arithmetic.name}' gives with {words}"
    for name in list_arithmetics():
        if name != arithmetic.name:
            codes = _codes(trial, get_arithmetic(name))
            if codes is not None and np.array_equal(codes, found):
                return f"'{name}' gives"
    return ""


def _mistakes(trial: Trial, arithmetic: Arithmetic) -> Iterator[tuple[str, Codes | None]]:
    """Each known mistake in words, with its result; None: the arithmetic cannot compute it."""
    own = arithmetic.at(trial.subject.operator, trial.subject.operator.lower())
    for words, other in other_rules(own, trial.subject.operator):
        yield words, _codes(trial, other)
    for words, other_trial in _other_operands(trial):
        yield words, _codes(other_trial, arithmetic)
    yield "codes that wrap in place of being clamped", _wrapped(trial, own)


def _codes(trial: Trial, arithmetic: Arithmetic) -> Codes | None:
    try:
        return counted(trial, arithmetic)
    except QbenchError:  # a multiplier that this arithmetic cannot represent
        return None


def _other_operands(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """The subject with wrong padding, zero points or bias."""
    subject = trial.subject
    if (padded := _padded_with_code_0(trial)) is not None:
        yield "padding with code 0 in place of the zero point", padded
    if subject.bias:
        yield "a bias that is left out", replace(trial, subject=replace(subject, bias=0))
    for place, operand in enumerate(subject.inputs):
        if operand.qparams.zero_point:
            inputs = list(subject.inputs)
            inputs[place] = replace(operand, qparams=_without_point(operand.qparams))
            name = "the input" if len(inputs) == 1 else f"input {place}"
            changed = replace(subject, inputs=tuple(inputs))
            yield f"a zero point of {name} that is left out", replace(trial, subject=changed)
    if subject.weight is not None and subject.weight.qparams.zero_point:
        weight = replace(subject.weight, qparams=_without_point(subject.weight.qparams))
        yield (
            "a zero point of the weight that is left out",
            replace(trial, subject=replace(subject, weight=weight)),
        )


def _padded_with_code_0(trial: Trial) -> Trial | None:
    subject, pads = trial.subject, trial.subject.attributes.get("pads")
    if subject.operator != "Conv" or not isinstance(pads, tuple) or not any(pads):
        return None
    half = len(pads) // 2
    padded = np.pad(trial.fed[0], [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)])
    operand = replace(subject.inputs[0], shape=padded.shape[1:])
    attributes = {**subject.attributes, "pads": (0,) * len(pads)}
    return replace(
        trial, subject=replace(subject, inputs=(operand,), attributes=attributes), fed=(padded,)
    )


def _without_point(qparams: OperandQParams) -> OperandQParams:
    return replace(qparams, zero_point=0)


def _wrapped(trial: Trial, own: Arithmetic) -> Codes | None:
    """The result modulo 256, from accumulators; None: the operator has none."""
    subject = trial.subject
    if subject.weight is None:
        return None
    weight = subject.weight.qparams
    axis = 1 if subject.operator in ("Conv", "ConvTranspose") else -1
    each = np.array(weight.scales) if weight.axis is not None else weight.scales[0]
    scales = (subject.inputs[0].qparams.scales[0], each, subject.output.scales[0])
    try:
        wide = requantize(
            accumulators(trial), scales, subject.output.zero_point, "int32", own, axis=axis
        )
    except QbenchError:
        return None
    low, _ = subject.output.ends
    return ((wide.astype(np.int64) - low) % 256 + low).astype(np.float64)


def check_operator(
    tried: Kernel | Backend | str,
    subject: OperatorSubject | str,
    arithmetic: Arithmetic | Path | str,
) -> None:
    """Check that ``tried`` computes every element of ``subject`` as ``arithmetic`` does.

    For tests of kernel authors: ``check_operator(my_conv, "op.conv.dense.u8s8.ties", "gemmlowp")``.

    Args:
        tried: a backend or its name; or a kernel, ``kernel(x, …[, weight[, bias]], parameters)``:
            arrays of codes (samples first, in ONNX's layout, of their own integer types; the bias
            int32) and their ``OperatorParameters``; it returns an array of quantized values.
        subject: an operator subject or its id (``list_operators("op.conv.*")``).
        arithmetic: itself, its name, or the path of the TOML file that defines it.

    Raises:
        AssertionError: the shape or elements differ. It says how many; the first one with its
            accumulator, multiplier, expected and found value and its kind (tie, clamp, step); and
            the known mistake that explains all, if any.
        InputError: an unknown name, or a multiplier that the arithmetic cannot represent.
        TypeError: a kernel does not return integers.
    """
    __tracebackhide__ = True
    if isinstance(subject, str):
        subject = get_operator(subject)
    if isinstance(arithmetic, Path) or (
        isinstance(arithmetic, str) and arithmetic.endswith(".toml")
    ):
        arithmetic = load_arithmetic(arithmetic)
    elif isinstance(arithmetic, str):
        arithmetic = get_arithmetic(arithmetic)
    trial = Trial.of(subject)
    name, found = _found(tried, trial)
    expected = counted(trial, arithmetic)
    doing = f"{subject.id} on {name}"
    if found.shape != expected.shape:
        raise AssertionError(
            f"{doing}: found codes of shape {found.shape}; expected {expected.shape}."
        )
    if not np.array_equal(found, expected):
        raise AssertionError(f"{doing}: {_difference(trial, arithmetic, found, expected)}")


def _found(tried: Kernel | Backend | str, trial: Trial) -> tuple[str, Codes]:
    backend = get_backend(tried) if isinstance(tried, str) else tried
    if not callable(backend):
        return f"'{backend.name}'", trial.on_backend(backend)
    return f"'{getattr(backend, '__name__', type(backend).__name__)}'", trial.by_kernel(backend)


def _difference(trial: Trial, arithmetic: Arithmetic, found: Codes, expected: Codes) -> str:
    different = found != expected
    index = tuple(int(place) for place in np.argwhere(different)[0])
    largest = float(np.abs(found - expected).max())
    lines = [
        f"{int(different.sum())} of {found.size} elements differ from '{arithmetic.name}', "
        f"by at most {_code(largest)} {'code' if largest == 1 else 'codes'}.",
        f"First at {list(index)} (sample first): expected {_code(expected[index])}, found "
        f"{_code(found[index])}.",
        f"There: {_where(trial, exact_result(trial, index), found[index], expected[index])}.",
    ]
    if mistake := named_mistake(trial, arithmetic, found):
        lines.append(f"Every element is what {mistake}.")
    return "\n".join(lines)


def _where(trial: Trial, exact: ExactResult, found: float, expected: float) -> str:
    """The numbers of one element, and the kind of its difference."""
    zero = trial.subject.output.zero_point
    position = float(exact.position)
    if exact.accumulator is None or exact.multiplier is None:
        numbers = f"exact result {position:.9g} in codes"
    else:
        numbers = (
            f"accumulator {exact.accumulator}, multiplier {_multiplier(float(exact.multiplier))}, "
            f"{float(exact.position - zero):.9g} + zero point {zero} = {position:.9g}"
        )
    return f"{numbers}: {_rule(trial, exact, found, expected)}"


def _rule(trial: Trial, exact: ExactResult, found: float, expected: float) -> str:
    low, high = trial.subject.output.ends
    if found != np.rint(found):
        return "not a code, a real number between two codes"
    if not low <= exact.position <= high:
        return f"a clamp, beyond the codes {low} … {high}"
    if exact.is_tie and abs(found - expected) == 1:
        return "a tie, halfway between two codes"
    away = abs(found - expected)
    return f"a step, {_code(away)} {'code' if away == 1 else 'codes'} away, and no tie"


def _code(value: float) -> str:
    return f"{value:.9g}"


def _multiplier(value: float) -> str:
    fraction, exponent = np.frexp(value)
    return f"{value:.9g} (2^{int(exponent) - 1})" if fraction == 0.5 else f"{value:.9g}"

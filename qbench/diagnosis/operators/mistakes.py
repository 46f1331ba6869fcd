"""What kernels get wrong, each as the levels it would give: if all that were found are those, that is the mistake."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt

from qbench.diagnosis.operators.kernel_call import Trial, counted
from qbench.errors import QbenchError
from qbench.numerics import (
    Accumulator,
    AddScheme,
    Arithmetic,
    Averaging,
    MultiplierForm,
    Rounding,
    Stage,
    ZeroPoint,
    get_arithmetic,
    list_arithmetics,
)
from qbench.zoo.operators.levels import Ints
from qbench.zoo.operators.subject import Grid

Levels = npt.NDArray[np.float64]


def named_mistake(trial: Trial, machine: Arithmetic, found: Levels) -> str:
    """The mistake that explains every element of ``found``, in words; empty where none of those known does."""
    for words, levels_of in _mistakes(trial, machine):
        try:
            levels = levels_of()
        except (QbenchError, ValueError):  # a machine that has no such multiplier, or settings that none has together
            continue
        if np.array_equal(levels, found):
            return words
    return ""


def _mistakes(trial: Trial, machine: Arithmetic) -> Iterator[tuple[str, Callable[[], Levels]]]:
    for words, other in _other_rules(trial, machine):
        yield words, lambda other=other: counted(trial, other())  # type: ignore[misc]
    for words, other_trial in _other_operands(trial):
        yield words, lambda other=other_trial: counted(other, machine)  # type: ignore[misc]
    yield "levels that wrap in place of being clamped", lambda: _wrapped(trial, machine)
    for name in list_arithmetics():
        if name != machine.name:
            yield f"the arithmetic '{name}'", lambda name=name: counted(trial, get_arithmetic(name))  # type: ignore[misc]


def _other_rules(trial: Trial, machine: Arithmetic) -> Iterator[tuple[str, Callable[[], Arithmetic]]]:
    """The machine with one rule exchanged; made when tried, since not all settings go together."""
    own = machine.at(trial.subject.operator, trial.subject.operator.lower())
    scaling, last = own.scaling, own.scaling.stages[-1]
    if trial.subject.operator == "Add":
        for scheme in AddScheme:
            if scheme is not own.adding.scheme:
                yield (
                    f"adding by '{scheme.value}' in place of '{own.adding.scheme.value}'",
                    lambda scheme=scheme: replace(own, adding=replace(own.adding, scheme=scheme)),  # type: ignore[misc]
                )
    for averaging in Averaging if "AveragePool" in trial.subject.operator else ():
        if averaging is not own.averaging:
            yield (
                f"averaging by '{averaging.value}' in place of '{own.averaging.value}'",
                lambda averaging=averaging: replace(own, averaging=averaging),  # type: ignore[misc]
            )
    for rounding, zero_point in product(Rounding, ZeroPoint):
        words = []
        if rounding is not last.rounding:
            words.append(f"rounding '{rounding.value}' in place of '{last.rounding.value}'")
        if zero_point is not scaling.zero_point:
            words.append(f"the zero point added {zero_point.value} rounding in place of {scaling.zero_point.value}")
        if words:
            yield (
                ", and ".join(words),
                lambda rounding=rounding, zero_point=zero_point: _rescaled(own, rounding, zero_point),  # type: ignore[misc]
            )
    for bits in (8, 15, 31):
        yield (
            f"a fixed multiplier of {bits} bits in place of '{scaling.form.value}'",
            lambda bits=bits: replace(  # type: ignore[misc]
                own,
                multiplying=None,
                scaling=replace(scaling, form=MultiplierForm.FIXED, bits=bits, zero_point=ZeroPoint.AFTER),
            ),
        )
    if own.accumulator.pair_bits != 16:
        pairs = replace(own.accumulator, pair_bits=16)
        yield "pairs of products that saturate in 16 bits", lambda: replace(own, accumulator=pairs)
    else:
        yield "pairs of products that do not saturate", lambda: replace(own, accumulator=Accumulator())
    for bits, overflow in product((16, 24), type(own.accumulator.overflow)):
        yield (
            f"an accumulator of {bits} bits ({overflow.value})",
            lambda bits=bits, overflow=overflow: replace(  # type: ignore[misc]
                own, accumulator=replace(own.accumulator, bits=bits, overflow=overflow)
            ),
        )
    yield "levels that stop short of the lowest one", lambda: replace(own, narrow=True)


def _rescaled(own: Arithmetic, rounding: Rounding, zero_point: ZeroPoint) -> Arithmetic:
    stages = (*own.scaling.stages[:-1], Stage(rounding))
    scaling = replace(own.scaling, stages=stages, zero_point=zero_point)
    other = None if own.multiplying is None else replace(own.multiplying, stages=stages, zero_point=zero_point)
    return replace(own, scaling=scaling, multiplying=other)


def _other_operands(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """The subject read wrongly: padding, zero points, bias."""
    subject = trial.subject
    pads = subject.attributes.get("pads")
    x = subject.inputs[0]
    if subject.operator == "Conv" and isinstance(pads, tuple) and any(pads):
        half = len(pads) // 2
        widths = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
        padded = np.pad(trial.fed[0], widths)
        operand = replace(x, shape=padded.shape[1:])
        attributes = {**subject.attributes, "pads": (0,) * len(pads)}
        yield (
            "padding with level 0 in place of the zero point",
            replace(trial, subject=replace(subject, inputs=(operand,), attributes=attributes), fed=(padded,)),
        )
    if subject.bias:
        yield "a bias that is left out", replace(trial, subject=replace(subject, bias=0))
    for place, operand in enumerate(subject.inputs):
        if operand.grid.zero_point:
            inputs = list(subject.inputs)
            inputs[place] = replace(operand, grid=_without_point(operand.grid))
            name = "the input" if len(inputs) == 1 else f"input {place}"
            yield (
                f"a zero point of {name} that is left out",
                replace(trial, subject=replace(subject, inputs=tuple(inputs))),
            )
    if subject.weight is not None and subject.weight.grid.zero_point:
        weight = replace(subject.weight, grid=_without_point(subject.weight.grid))
        yield "a zero point of the weight that is left out", replace(trial, subject=replace(subject, weight=weight))


def _without_point(grid: Grid) -> Grid:
    return replace(grid, zero_point=0)


def _wrapped(trial: Trial, machine: Arithmetic) -> Levels:
    """Levels modulo 256: from a wider grid of the same step, in two halves, as no 8-bit graph holds them.

    Raises:
        ValueError: the subject does not sum products.
    """
    from qbench.diagnosis.operators.exact_results import accumulators
    from qbench.numerics import requantize

    sums, axis = accumulators(trial), 1 if trial.subject.operator in ("Conv", "ConvTranspose") else -1
    own = machine.at(trial.subject.operator, trial.subject.operator.lower())
    subject = trial.subject
    if subject.weight is None:
        raise ValueError("no constant operand")
    weight = subject.weight.grid
    scales = (
        subject.inputs[0].grid.scales[0],
        np.array(weight.scales) if weight.axis is not None else weight.scales[0],
        subject.output.scales[0],
    )
    wide = requantize(sums, scales, subject.output.zero_point, "int32", own, axis=axis)
    low, _ = subject.output.ends
    span: Ints = np.asarray((wide.astype(np.int64) - low) % 256 + low)
    return span.astype(np.float64)

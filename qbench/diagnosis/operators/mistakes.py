"""What kernels get wrong, each as the levels it would give: if all that were found are those, that is the mistake."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from qbench.diagnosis.operators.exact_results import accumulators
from qbench.diagnosis.operators.kernel_call import Levels, Trial, counted
from qbench.diagnosis.operators.other_rules import other_rules
from qbench.errors import QbenchError
from qbench.numerics import Arithmetic, get_arithmetic, list_arithmetics, requantize
from qbench.zoo import OperandGrid


def named_mistake(trial: Trial, machine: Arithmetic, found: Levels) -> str:
    """What explains every element of ``found``, as ``'gemmlowp' gives``; empty where nothing that is known does."""
    for words, levels in _mistakes(trial, machine):
        if levels is not None and np.array_equal(levels, found):
            return f"'{machine.name}' gives with {words}"
    for name in list_arithmetics():
        if name != machine.name:
            levels = _levels(trial, get_arithmetic(name))
            if levels is not None and np.array_equal(levels, found):
                return f"'{name}' gives"
    return ""


def _mistakes(trial: Trial, machine: Arithmetic) -> Iterator[tuple[str, Levels | None]]:
    """Each in words, with its levels; None where the machine cannot make it."""
    own = machine.at(trial.subject.operator, trial.subject.operator.lower())
    for words, other in other_rules(own, trial.subject.operator):
        yield words, _levels(trial, other)
    for words, other_trial in _other_operands(trial):
        yield words, _levels(other_trial, machine)
    yield "levels that wrap in place of being clamped", _wrapped(trial, own)


def _levels(trial: Trial, machine: Arithmetic) -> Levels | None:
    try:
        return counted(trial, machine)
    except QbenchError:  # a multiplier that this machine cannot hold
        return None


def _other_operands(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """The subject read wrongly: padding, zero points, bias."""
    subject = trial.subject
    if (padded := _padded_with_level_0(trial)) is not None:
        yield "padding with level 0 in place of the zero point", padded
    if subject.bias:
        yield "a bias that is left out", replace(trial, subject=replace(subject, bias=0))
    for place, operand in enumerate(subject.inputs):
        if operand.grid.zero_point:
            inputs = list(subject.inputs)
            inputs[place] = replace(operand, grid=_without_point(operand.grid))
            name = "the input" if len(inputs) == 1 else f"input {place}"
            changed = replace(subject, inputs=tuple(inputs))
            yield f"a zero point of {name} that is left out", replace(trial, subject=changed)
    if subject.weight is not None and subject.weight.grid.zero_point:
        weight = replace(subject.weight, grid=_without_point(subject.weight.grid))
        yield "a zero point of the weight that is left out", replace(trial, subject=replace(subject, weight=weight))


def _padded_with_level_0(trial: Trial) -> Trial | None:
    subject, pads = trial.subject, trial.subject.attributes.get("pads")
    if subject.operator != "Conv" or not isinstance(pads, tuple) or not any(pads):
        return None
    half = len(pads) // 2
    padded = np.pad(trial.fed[0], [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)])
    operand = replace(subject.inputs[0], shape=padded.shape[1:])
    attributes = {**subject.attributes, "pads": (0,) * len(pads)}
    return replace(trial, subject=replace(subject, inputs=(operand,), attributes=attributes), fed=(padded,))


def _without_point(grid: OperandGrid) -> OperandGrid:
    return replace(grid, zero_point=0)


def _wrapped(trial: Trial, own: Arithmetic) -> Levels | None:
    """Levels modulo 256, from accumulators on a wider grid of the same step; None where there are none."""
    subject = trial.subject
    if subject.weight is None:
        return None
    weight, axis = subject.weight.grid, 1 if subject.operator in ("Conv", "ConvTranspose") else -1
    each = np.array(weight.scales) if weight.axis is not None else weight.scales[0]
    scales = (subject.inputs[0].grid.scales[0], each, subject.output.scales[0])
    try:
        wide = requantize(accumulators(trial), scales, subject.output.zero_point, "int32", own, axis=axis)
    except QbenchError:
        return None
    low, _ = subject.output.ends
    return ((wide.astype(np.int64) - low) % 256 + low).astype(np.float64)

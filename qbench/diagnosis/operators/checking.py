"""One operator subject on a kernel or a backend against an arithmetic: every level equal, or an assertion that tells.

For kernel authors: in a test of their own, ``check_operator(my_conv, "op.conv.dense.u8s8.ties", "gemmlowp")``.
"""

from pathlib import Path

import numpy as np

from qbench.backends import Backend, get_backend
from qbench.diagnosis.operators.exact_results import ExactResult, exact_result
from qbench.diagnosis.operators.kernel_call import Kernel, Levels, Trial, counted
from qbench.diagnosis.operators.mistakes import named_mistake
from qbench.numerics import Arithmetic, get_arithmetic, load_arithmetic
from qbench.zoo import OperatorSubject, get_operator


def check_operator(
    tried: Kernel | Backend | str, subject: OperatorSubject | str, arithmetic: Arithmetic | Path | str
) -> None:
    """Check that ``tried`` counts ``subject`` as ``arithmetic`` does, in every element.

    Args:
        tried: a backend or its name; or a kernel, ``kernel(x, …[, weight[, bias]], parameters)``: arrays of levels
            (samples first, in ONNX's layout, of their own integer types; the bias int32) and their
            ``OperatorParameters``, to an array of levels.
        subject: an operator subject or its id (``list_operators("op.conv.*")``).
        arithmetic: a machine, its name, or the path of the TOML file that spells it.

    Raises:
        AssertionError: another shape, or elements that differ: how many, the first with its accumulator, multiplier,
            expected and found level and the rule that it lies under, and the mistake that explains them all, if one
            of those known does.
        InputError: an unknown name, or a multiplier that the machine cannot hold.
        TypeError: a kernel answers with something else than integers.
    """
    __tracebackhide__ = True
    if isinstance(subject, str):
        subject = get_operator(subject)
    machine = _machine(arithmetic)
    trial = Trial.of(subject)
    name, found = _found(tried, trial)
    expected = counted(trial, machine)
    doing = f"{subject.id} on {name}"
    if found.shape != expected.shape:
        raise AssertionError(f"{doing}: found levels of shape {found.shape}; expected {expected.shape}.")
    if not np.array_equal(found, expected):
        raise AssertionError(f"{doing}: {_difference(trial, machine, found, expected)}")


def _machine(arithmetic: Arithmetic | Path | str) -> Arithmetic:
    if isinstance(arithmetic, Arithmetic):
        return arithmetic
    if isinstance(arithmetic, Path) or arithmetic.endswith(".toml"):
        return load_arithmetic(arithmetic)
    return get_arithmetic(arithmetic)


def _found(tried: Kernel | Backend | str, trial: Trial) -> tuple[str, Levels]:
    backend = get_backend(tried) if isinstance(tried, str) else tried
    if isinstance(backend, Backend):
        return f"'{backend.name}'", trial.on_backend(backend)
    return f"'{getattr(backend, '__name__', type(backend).__name__)}'", trial.by_kernel(backend)


def _difference(trial: Trial, machine: Arithmetic, found: Levels, expected: Levels) -> str:
    different = found != expected
    index = tuple(int(place) for place in np.argwhere(different)[0])
    largest = float(np.abs(found - expected).max())
    lines = [
        f"{int(different.sum())} of {found.size} elements differ from '{machine.name}', by at most {_level(largest)} "
        f"{'level' if largest == 1 else 'levels'}.",
        f"First at {list(index)} (sample first): expected {_level(expected[index])}, found {_level(found[index])}.",
        f"There: {_where(trial, exact_result(trial, index), found[index], expected[index])}.",
    ]
    if mistake := named_mistake(trial, machine, found):
        lines.append(f"Every element is what {mistake}.")
    return "\n".join(lines)


def _where(trial: Trial, exact: ExactResult, found: float, expected: float) -> str:
    """The numbers of one element and the rule that it lies under."""
    zero = trial.subject.output.zero_point
    position = float(exact.position)
    if exact.accumulator is None or exact.multiplier is None:
        numbers = f"exact result {position:.9g} in levels"
    else:
        numbers = (
            f"accumulator {exact.accumulator}, multiplier {_multiplier(float(exact.multiplier))}, "
            f"{float(exact.position - zero):.9g} + zero point {zero} = {position:.9g}"
        )
    return f"{numbers}: {_rule(trial, exact, found, expected)}"


def _rule(trial: Trial, exact: ExactResult, found: float, expected: float) -> str:
    low, high = trial.subject.output.ends
    if found != np.rint(found):
        return "off the grid, a real that lies on no level"
    if not low <= exact.position <= high:
        return f"a clamp, beyond the grid {low} … {high}"
    if exact.is_tie and abs(found - expected) == 1:
        return "a tie, halfway between two levels"
    away = abs(found - expected)
    return f"a step, {_level(away)} {'level' if away == 1 else 'levels'} away, and no tie"


def _level(value: float) -> str:
    return f"{value:.9g}"


def _multiplier(value: float) -> str:
    fraction, exponent = np.frexp(value)
    return f"{value:.9g} (2^{int(exponent) - 1})" if fraction == 0.5 else f"{value:.9g}"

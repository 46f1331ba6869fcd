"""Equality with another backend: the same quantized model on the same samples, judged by counts of elements.

equal_to: no element of any graph output differs (NaN is NaN, −0.0 is 0.0: values are compared, not their bits)
close_to: |a − b| ≤ steps × scale and |a − b| ≤ relative × max|b|, whichever of the two limits is given, or both

It is today's run beside today's run of the other backend, so nothing of it is stored in a baseline.
"""

from dataclasses import dataclass

from qbench.judging.amounts import steps_text
from qbench.judging.compared import Compared, FirstNode
from qbench.judging.verdict import Gate, GateState
from qbench.judging.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """What a cell must be beside ``backend``: equal where no limit is given, else close.

    Args:
        backend: the other backend, by name.
        steps: largest difference in output steps, multiples of an output's scale; None: not limited.
        relative: largest difference as a share of the largest absolute value of the output; None: not limited.
        rule: who set it, e.g. ``suite smoke``.
    """

    backend: str
    steps: float | None = None
    relative: float | None = None
    rule: str = "default"

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("relative", self.relative)):
            if value is not None and not value >= 0:
                raise ValueError(f"{name} = {value} is impossible: a difference is at least 0")

    @property
    def is_exact(self) -> bool:
        """Whether every element has to be equal."""
        return self.steps is None and self.relative is None

    @property
    def text(self) -> str:
        """``equal_to ort-cpu (suite smoke)`` or ``close_to ort-cpu, 1 step, relative 0.001 (model m)``."""
        limits = [] if self.steps is None else [steps_text(self.steps)]
        limits += [] if self.relative is None else [f"relative {self.relative:g}"]
        word = "equal_to" if self.is_exact else "close_to"
        return f"{', '.join([f'{word} {self.backend}', *limits])} ({self.rule})"


def holds(compared: Compared, criterion: Criterion) -> bool:
    """Whether what was counted is within ``criterion``."""
    if criterion.is_exact or compared.unbounded:
        return not compared.differing
    near = criterion.steps is None or (compared.steps or 0.0) <= criterion.steps
    return near and (criterion.relative is None or compared.relative <= criterion.relative)


def equality_gate(compared: Compared, criterion: Criterion) -> Gate:
    """The gate of one comparison, with its numbers."""
    return Gate(
        kind="equality",
        metric=compared.backend,
        state=GateState.HOLDS if holds(compared, criterion) else GateState.BROKEN,
        detail=_detail(compared),
        rule=criterion.text,
    )


def broken_text(compared: Compared | None, criterion: Criterion | None) -> str:
    """What was counted and asked, in one line, where the one is not within the other; empty elsewhere."""
    if compared is None or criterion is None or holds(compared, criterion):
        return ""
    return f"{unequal_text(compared)}: {criterion.text}"


def unequal_text(compared: Compared) -> str:
    """The line of a cell that is not what it should be: how much differs, and where it begins."""
    text = f"{compared.differing} of {counted(compared.elements, 'element')} differ from {compared.backend}"
    if compared.first is not None and compared.first.origin:
        text += f", first at '{compared.first.origin}'"
    return text


def _detail(compared: Compared) -> str:
    if not compared.differing:
        return f"all {counted(compared.elements, 'element')} equal those of {compared.backend}"
    largest = [f"relative {compared.relative:.3g}"]
    if compared.steps is not None:
        largest.insert(0, steps_text(compared.steps))
    text = (
        f"{compared.differing} of {counted(compared.elements, 'element')} differ from {compared.backend}, "
        f"by at most {', '.join(largest)}"
    )
    if compared.unbounded:
        text += f"; {compared.unbounded} are NaN or infinite on one side only"
    text += f"; first at sample '{compared.sample}'" if compared.sample else ""
    return text + _first(compared.first)


def _first(first: FirstNode | None) -> str:
    if first is None:
        return ""
    text = f"; {first.note}" if first.note else ""
    if not first.origin:
        return text
    if not first.elements:
        return f"; first in the floats of node '{first.origin}'{text}"
    integers = counted(first.elements, "integer")
    return f"; first in {integers} of node '{first.origin}', by at most {steps_text(first.steps)}{text}"

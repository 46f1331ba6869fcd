"""A gate of a verdict as it is stored, and the times and sizes that gates judge."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from qbench.judging import Quantity
from qbench.number_text import value_text


class GateRecord(Struct, frozen=True, kw_only=True):
    """One gate of a verdict, in the words of the line; ``limit`` is a fraction, absent or None
    where it has none. ``value``: of a time or size, which alone has one (``Gate``).
    """

    kind: str = ""
    metric: str = ""
    state: str = ""
    detail: str = ""
    rule: str = ""
    limit: float | UnsetType | None = UNSET
    value: float | UnsetType = UNSET
    shown: dict[str, Any] | UnsetType | None = UNSET
    decided: str | UnsetType | None = UNSET


class JudgedCost(NamedTuple):
    """A time or size of a cell: its name, unit and value, the least of its limits (None: not
    known), and the worst state of its gates.

    ``is_exact``: whether the same code always gives the same number.
    """

    name: str
    unit: str
    is_exact: bool
    value: float
    limit: float | None
    state: str

    @property
    def text(self) -> str:
        """``0.712 × fp32``, ``30,000 bytes``."""
        return value_text(self.value, self.unit)

    @property
    def limit_text(self) -> str:
        """``at most 0.8 × fp32``; empty where no limit is known."""
        return "" if self.limit is None else f"at most {value_text(self.limit, self.unit)}"


_WORST = ("broken", "inconclusive", "incomparable", "holds")
"""The states of a gate of time or size, the worst first."""


def _worst_first(gate: GateRecord) -> int:
    return _WORST.index(gate.state) if gate.state in _WORST else 0


def judged_cost(quantity: Quantity, gates: Sequence[GateRecord]) -> JudgedCost:
    """The time or size that ``gates`` judge, by the worst of them."""
    worst = min(gates, key=_worst_first)
    assert isinstance(worst.value, float)
    return JudgedCost(
        *(quantity.name, quantity.unit, quantity.is_exact),
        value=worst.value,
        limit=min((gate.limit for gate in gates if isinstance(gate.limit, float)), default=None),
        state=worst.state,
    )

"""What is decided about one slot: parameters and where they come from, or float and why."""

from dataclasses import dataclass

from qbench.numerics import QParams


@dataclass(frozen=True, slots=True)
class Static:
    """Parameters chosen for the range of this value; ``note`` tells what bent them."""

    qparams: QParams
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Parameters that the operator's own range gives, whatever was profiled."""

    qparams: QParams


@dataclass(frozen=True, slots=True)
class Shared:
    """The parameters of another value, because the operator only moves or picks elements of it."""

    qparams: QParams
    source: str


@dataclass(frozen=True, slots=True)
class Derived:
    """Parameters computed from those of other slots: a bias at scale(input) · scale(weight)."""

    qparams: QParams
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptFloat:
    """No parameters."""

    reason: str


Decision = Static | Fixed | Shared | Derived | KeptFloat


def qparams_of(decision: Decision) -> QParams | None:
    """The parameters of a decision; None for float."""
    return None if isinstance(decision, KeptFloat) else decision.qparams

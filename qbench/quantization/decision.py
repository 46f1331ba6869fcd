"""What is decided about one slot: parameters and where they come from, or float and why."""

from dataclasses import dataclass

from qbench.numerics import QParams, QType

BY_SCHEMA = "the schema"
"""The source of given parameters that a schema fixes."""


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
    """The parameters of another value: the operator only moves or picks its elements, or the schema says so."""

    qparams: QParams
    source: str


@dataclass(frozen=True, slots=True)
class Derived:
    """Parameters computed from those of other slots: a bias at scale(input) · scale(weight); ``note`` as in Static."""

    qparams: QParams
    sources: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Parameters computed from every batch at run time, on the grid ``qtype``, asymmetric, one pair a tensor."""

    qtype: QType


@dataclass(frozen=True, slots=True)
class Given:
    """Parameters that were there before: a hand-placed Q/DQ pair, an imported model, or a schema's fixed ones."""

    qparams: QParams
    source: str


@dataclass(frozen=True, slots=True)
class KeptFloat:
    """No parameters."""

    reason: str


Decision = Static | Fixed | Shared | Derived | Given | Dynamic | KeptFloat


def qparams_of(decision: Decision) -> QParams | None:
    """The parameters that are known beforehand; None for float, and for what is computed at run time."""
    return None if isinstance(decision, KeptFloat | Dynamic) else decision.qparams

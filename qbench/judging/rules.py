"""The numbers beside the tolerance that cells are judged by, with the places where they were set."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.judging.allowance import IDENTICAL, Allowance
from qbench.judging.decision import POINT, Decision

DEFAULT_INTEGER_MACS = 0.5
DEFAULT_AGREEMENT = 0.85
DEFAULT_RANGES = 0.01


@dataclass(frozen=True, slots=True)
class Limit:
    """The ``value`` of a distance to fp32, in its metric's unit, that is still admitted; ``rule`` says who set it."""

    value: float
    rule: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Shares and limits; ``rule``, ``agreement_rule`` and ``ranges_rule`` say who set the shares, e.g. ``suite smoke``.

    Args:
        integer_macs: planned share of multiply-accumulates in integers (of a schema of weights alone: by weights on
            grids) below which a cell is unsupported.
        agreement: share of samples that must agree with the fp32 reference, whatever was accepted for a cell.
        decision: what makes a loss red. allowance: how far answers may be from the accepted ones.
        ranges: share of what its grid spans by which a calibrated range may be other than accepted.
        limits: metric, as the suite writes it → the limit of that distance; what is not named is shown.
        equivalents: groups of environment classes whose results are comparable (``environment.are_equivalent``).
    """

    integer_macs: float = DEFAULT_INTEGER_MACS
    agreement: float = DEFAULT_AGREEMENT
    rule: str = "default"
    agreement_rule: str = "default"
    ranges: float = DEFAULT_RANGES
    ranges_rule: str = "default"
    decision: Decision = POINT
    allowance: Allowance = IDENTICAL
    equivalents: tuple[tuple[str, ...], ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("integer_macs", "agreement", "ranges"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} = {getattr(self, name)} is impossible: it is a share in [0, 1]")

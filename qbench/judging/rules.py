"""The numbers beside the tolerance that cells are judged by, with the places where they were set."""

from dataclasses import dataclass

from qbench.judging.allowance import IDENTICAL, Allowance
from qbench.judging.decision import POINT, Decision

DEFAULT_INTEGER_MACS = 0.5
DEFAULT_AGREEMENT = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Two shares; ``rule`` and ``agreement_rule`` say who set the first and the second, e.g. ``suite smoke``.

    Args:
        integer_macs: planned share of multiply-accumulates in integers (of a schema of weights alone: by weights on
            grids) below which a cell is unsupported.
        agreement: share of samples that must agree with the fp32 reference, whatever was accepted for a cell.
        decision: what makes a loss red. allowance: how far answers may be from the accepted ones.
        equivalents: groups of environment classes whose results are comparable (``environment.are_equivalent``).
    """

    integer_macs: float = DEFAULT_INTEGER_MACS
    agreement: float = DEFAULT_AGREEMENT
    rule: str = "default"
    agreement_rule: str = "default"
    decision: Decision = POINT
    allowance: Allowance = IDENTICAL
    equivalents: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("integer_macs", "agreement"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} = {getattr(self, name)} is impossible: it is a share in [0, 1]")

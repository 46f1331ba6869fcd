"""What a pass does to numbers, as its author declares it, and what a policy admits."""

import enum
from dataclasses import dataclass

QDQ = "qdq"
"""Not an arithmetic: the QDQ graph in float32, node by node."""
ARITHMETICS = (QDQ, "ideal")
"""The arithmetics under which an effect holds unless it names others."""


class EffectKind(enum.Enum):
    """How much a pass may change, the least first."""

    EXACT = "exact"
    ROUNDING = "rounding"
    LOSSY = "lossy"


_ORDER = tuple(EffectKind)


@dataclass(frozen=True, slots=True)
class Effect:
    """A declared effect.

    Args:
        kind: how much may change. steps: of ROUNDING alone: by how many steps a code may move.
        machines: the arithmetics under which the effect holds.

    Raises:
        ValueError: steps of an effect that is not ROUNDING, a ROUNDING without steps, or no arithmetic.
    """

    kind: EffectKind
    steps: int = 0
    machines: tuple[str, ...] = ARITHMETICS

    def __post_init__(self) -> None:
        if (self.kind is EffectKind.ROUNDING) != (self.steps > 0):
            raise ValueError(f"an effect that is {self.kind.value} with {self.steps} steps")
        if not self.machines:
            raise ValueError("an effect needs at least one arithmetic")

    def __str__(self) -> str:
        return f"{self.kind.value}({self.steps})" if self.steps else self.kind.value


EXACT = Effect(EffectKind.EXACT)
LOSSY = Effect(EffectKind.LOSSY)


def within(steps: int) -> Effect:
    """EXACT for no step at all, else ROUNDING by that many."""
    return Effect(EffectKind.ROUNDING, steps) if steps else EXACT


class Policy(enum.Enum):
    """Which effects are admitted after quantization."""

    EXACT = "exact"
    ROUNDING = "rounding"
    FAST = "fast"

    def admits(self, effect: Effect) -> bool:
        """Whether passes of this ``effect`` run."""
        return _ORDER.index(effect.kind) <= tuple(Policy).index(self)

    @property
    def steps(self) -> int:
        """By how many steps the standard pipeline's passes may move a code of an output."""
        return {Policy.EXACT: 0, Policy.ROUNDING: 1, Policy.FAST: _ANY_OF_8_BITS}[self]


_ANY_OF_8_BITS = 255

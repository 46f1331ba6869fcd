"""What a pass does to numbers, as its author declares it, and which of that a policy admits.

    exact      every output is the same bit for bit, on every input of numbers
    rounding   at every site that a pass changes, given what comes there, levels move by at most ``steps`` steps of the
               site's grid; what saturated still does, at the same ends
    lossy      anything else: float sums in another order, roundings and limits that are gone

Exact holds for whole pipelines. Rounding does not bound the outputs of a graph: what several sites move adds up, and
operators and finer grids behind them make more steps of it. ``output_changes`` measures that on samples.

A NaN is no number: a quantizer makes its lowest level of it, and a limit that moves behind one meets that level.

A promise holds under the ``machines`` it names: ``qdq``, the float graph of QuantizeLinear and DequantizeLinear as ONNX
defines them, and arithmetics by name. What is exact where a machine rounds once need not be where it rounds twice.
"""

import enum
from dataclasses import dataclass

QDQ = "qdq"
"""Not an arithmetic: the QDQ graph in float32, node by node."""
MACHINES = (QDQ, "ideal")
"""What a promise is about unless it says otherwise."""


class EffectKind(enum.Enum):
    """How much a pass may change, the least first."""

    EXACT = "exact"
    ROUNDING = "rounding"
    LOSSY = "lossy"


_ORDER = tuple(EffectKind)


@dataclass(frozen=True, slots=True)
class Effect:
    """A declared effect; ``steps`` belongs to ROUNDING alone.

    Raises:
        ValueError: steps where there can be none, or none where there must be some; no machine.
    """

    kind: EffectKind
    steps: int = 0
    machines: tuple[str, ...] = MACHINES

    def __post_init__(self) -> None:
        if (self.kind is EffectKind.ROUNDING) != (self.steps > 0):
            raise ValueError(f"an effect that is {self.kind.value} with {self.steps} steps")
        if not self.machines:
            raise ValueError("an effect under no machine promises nothing")

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
        """By how many steps of an output the standard pipeline's passes may move a level."""
        return {Policy.EXACT: 0, Policy.ROUNDING: 1, Policy.FAST: _ANY_OF_8_BITS}[self]


_ANY_OF_8_BITS = 255

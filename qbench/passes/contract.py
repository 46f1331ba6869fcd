"""What a pass is: a frozen value that changes a model in place, its effect on numbers, and what
it declined.
"""

import enum
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import onnx_ir as ir

from qbench.graph import node_key

# What a pass does to numbers, as its author declares it, and what a policy admits.

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
        kind: how much may change.
        steps: of ROUNDING alone: by how many steps a code may move.
        arithmetics: the arithmetics under which the effect holds.

    Raises:
        ValueError: steps of an effect that is not ROUNDING, a ROUNDING without steps, or no
            arithmetic.
    """

    kind: EffectKind
    steps: int = 0
    arithmetics: tuple[str, ...] = ARITHMETICS

    def __post_init__(self) -> None:
        if (self.kind is EffectKind.ROUNDING) != (self.steps > 0):
            raise ValueError(f"an effect that is {self.kind.value} with {self.steps} steps")
        if not self.arithmetics:
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


# What a pass is: a small frozen value that changes a model in place and returns whether it did.


@runtime_checkable
class Pass(Protocol):
    """A named change of a graph; its class docstring says what it requires and what it ensures.

    A frozen dataclass whose fields are its settings, so that pipelines print, parse and digest.
    Idempotent: run again on its own result it returns False and changes nothing.
    """

    @property
    def name(self) -> str:
        """Short kebab; how pipelines and messages call it."""
        ...

    @property
    def effect(self) -> Effect:
        """The most it does to numbers, with its settings as they are."""
        ...

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place.

        Returns:
            Whether anything changed; a reason that was written into a node (``decline``) is no
            change.

        Raises:
            QbenchError: the model is one this pass cannot be applied to.
        """
        ...


@runtime_checkable
class Placed(Protocol):
    """A pass from outside that wants a place in the standard pipeline; without one it runs
    after all others.
    """

    @property
    def after(self) -> tuple[str, ...]:
        """Names of passes that it follows."""
        ...

    @property
    def before(self) -> tuple[str, ...]:
        """Names of passes that it precedes."""
        ...


# What a pass left as it was, and why: written into the metadata of the nodes, so that it outlives
# the run.

_KEY = "qbench.declined"


def decline(node: ir.Node, reason: str, by: str = "") -> bool:
    """Write ``reason``, as of the pass ``by``, into ``node``; True when it was not there.

    Lowering is the last pass; its reasons need no name.
    """
    key = f"{_KEY}.{by}" if by else _KEY
    if node.metadata_props.get(key) == reason:
        return False
    node.metadata_props[key] = reason
    return True


def declined(model: ir.Model) -> dict[str, str]:
    """Node name → why the last lowering left it as it was, in graph order."""
    return {
        node_key(node): node.metadata_props[_KEY]
        for node in model.graph
        if _KEY in node.metadata_props
    }


def take_declined(model: ir.Model) -> dict[tuple[str, str], str]:
    """(pass, node name) → why the pass left it, in graph order; the reasons leave the model."""
    found: dict[tuple[str, str], str] = {}
    for node in model.graph:
        for key in [key for key in node.metadata_props if key.startswith(f"{_KEY}.")]:
            found[key.removeprefix(f"{_KEY}."), node_key(node)] = node.metadata_props.pop(key)
    return found

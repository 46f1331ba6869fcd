"""One rule of a schema: which units it matches, and the specs of the slots that it speaks about."""

import enum
from dataclasses import dataclass
from fnmatch import fnmatchcase

from qbench.quantization.bias_spec import BiasSpec
from qbench.quantization.slot import Role
from qbench.quantization.spec import Granularity, Spec


class Share(enum.Enum):
    """Which values of a unit have one grid: all computed ``inputs``, or the ``output`` and the first input."""

    INPUTS = "inputs"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Units that match, and what is asked of their slots.

    A unit matches when its head is of one of ``operators`` and its name fits one of ``names`` (none given: all do),
    and when it is among the ``first`` or the ``last`` so many of those. A rule speaks about the slots that it has a
    spec for or keeps in float; one that has neither keeps the whole unit in float.

    Args:
        operators: kinds, as in ``Conv``.
        names: patterns of node names with ``*``, ``?`` and ``[…]``.
        first, last: how many of the units that match otherwise, in graph order from the front or from the back.
        activation: for inputs and outputs.
        input, output: for one side only, before ``activation``.
        weight: for constants that are multiplied.
        correlation, sum: for the product before its bias, and for the result before its clip.
        bias: how it is added; where no rule says so, int32 at the product's scale.
        keep_float: slots that stay float.
        share: values of the unit that have one grid; the first rule with any decides.
        reason: why, for a rule that keeps something in float.

    Raises:
        ValueError: a count below one, a spec that no slot of the rule has, or one that its slot cannot have.
    """

    operators: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    first: int | None = None
    last: int | None = None
    activation: Spec | None = None
    input: Spec | None = None
    output: Spec | None = None
    weight: Spec | None = None
    correlation: Spec | None = None
    sum: Spec | None = None
    bias: BiasSpec | None = None
    keep_float: tuple[Role, ...] = ()
    share: tuple[Share, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        for count in (self.first, self.last):
            if count is not None and count < 1:
                raise ValueError(f"'first' and 'last' count from 1, not {count}")
        for role in self.keep_float:
            if getattr(self, role.value) is not None:
                raise ValueError(f"a spec for '{role.value}', which 'keep_float' keeps in float")
        sides = (Role.INPUT, Role.OUTPUT)
        if self.activation is not None and all(self._spec(r) is not self.activation for r in sides):
            raise ValueError("'activation' beside settings for both 'input' and 'output'")
        for role in Role:
            spec = self.spec_of(role)
            if spec is not None and role is not Role.WEIGHT and spec.granularity is Granularity.BLOCK:
                raise ValueError(f"blocks for '{role.value}': only weights have them")
            if spec is not None and role not in sides and spec.dynamic:
                raise ValueError(f"dynamic parameters for '{role.value}': only inputs and outputs have them")

    def fits(self, operator: str, name: str) -> bool:
        """Whether a unit of kind ``operator`` called ``name`` matches, wherever it stands."""
        if self.operators and operator not in self.operators:
            return False
        return not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)

    def speaks_about(self, role: Role) -> bool:
        """Whether it decides about slots of ``role``."""
        if self._keeps_all:
            return True
        given = self.bias if role is Role.BIAS else self._spec(role)
        return given is not None or role in self.keep_float

    def spec_of(self, role: Role) -> Spec | None:
        """What it asks of a slot that is no bias; None is float, where it speaks."""
        return None if role is Role.BIAS else self._spec(role)

    @property
    def _keeps_all(self) -> bool:
        specs = (self.activation, self.input, self.output, self.weight, self.correlation, self.sum, self.bias)
        return not self.keep_float and not self.share and all(spec is None for spec in specs)

    def _spec(self, role: Role) -> Spec | None:
        if role in self.keep_float:
            return None
        match role:
            case Role.INPUT:
                return self.input or self.activation
            case Role.OUTPUT:
                return self.output or self.activation
            case Role.WEIGHT:
                return self.weight
            case Role.CORRELATION:
                return self.correlation
            case Role.SUM:
                return self.sum
            case Role.BIAS:
                return None

    def __str__(self) -> str:
        words = [f"operators {', '.join(self.operators)}"] * bool(self.operators)
        words += [f"names {', '.join(self.names)}"] * bool(self.names)
        words += [f"first {self.first}"] * (self.first is not None) + [f"last {self.last}"] * (self.last is not None)
        return "; ".join(words) or "every unit"

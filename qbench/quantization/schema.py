"""What a schema says: rules that match operators, and for each the specs of the slots it governs.

The first rule that matches an operator decides about it. A slot without a spec stays float.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from qbench.errors import unknown_name
from qbench.passes import CANONICAL
from qbench.quantization.spec import Spec
from qbench.storage import value_from_table


class BiasKind(enum.Enum):
    """What a bias is added as."""

    INT32 = "int32"
    FLOAT = "float"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Operators that match ``operators`` and ``names``, and what is asked of their slots.

    Args:
        operators: kinds, as in ``Conv``; none given: every kind.
        names: patterns of node names with ``*`` and ``?``; none given: every name.
        activation: for inputs and outputs; None keeps them in float.
        weight: for constants that are multiplied; None keeps them in float.
        bias: int32 at (scale of the input · scale of the weight), or float.
        reason: why, for a rule that keeps something in float.
    """

    operators: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    activation: Spec | None = None
    weight: Spec | None = None
    bias: BiasKind = BiasKind.INT32
    reason: str = ""

    def matches(self, operator: str, name: str) -> bool:
        """Whether the node ``name`` of kind ``operator`` is this rule's."""
        if self.operators and operator not in self.operators:
            return False
        return not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A named list of rules.

    Args:
        name: how suites call it.
        rules: tried in order.
        canonical: name of the canonical passes before profiling; schemas with the same share profiles.

    Raises:
        ValueError, InputError: no rules, or no such canonical passes.
    """

    name: str
    rules: tuple[Rule, ...]
    canonical: str = "default"

    def __post_init__(self) -> None:
        if not self.rules:
            raise ValueError("a schema has at least one rule")
        if self.canonical not in CANONICAL:
            raise unknown_name(f"Reading the schema '{self.name}'", "canonical pipeline", self.canonical, CANONICAL)

    def rule_for(self, operator: str, name: str) -> Rule | None:
        """The first rule that matches, or None."""
        return next((rule for rule in self.rules if rule.matches(operator, name)), None)

    def preceded_by(self, rules: tuple[Rule, ...]) -> "Schema":
        """This schema with further ``rules`` tried first: an override."""
        return Schema(name=self.name, rules=rules + self.rules, canonical=self.canonical)


def schema_from_table(table: Mapping[str, Any], where: str) -> Schema:
    """The schema that a TOML table spells; ``where`` names the table in errors.

    Raises:
        InputError: an unknown key, a wrong type, or an impossible spec.
    """
    return value_from_table(Schema, table, where)

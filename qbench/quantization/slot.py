"""Slots: the places of a node that can have parameters."""

import enum
from dataclasses import dataclass


class Role(enum.Enum):
    """What a tensor is to the node it stands at."""

    INPUT = "input"
    WEIGHT = "weight"
    BIAS = "bias"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Slot:
    """The ``index``-th input (or output) of node ``node``, which is ``value``.

    WEIGHT is every constant that meets data in a product or a sum, BIAS one that is added in the accumulator.
    """

    node: str
    role: Role
    index: int
    value: str

    def __str__(self) -> str:
        return f"{self.node}.{self.role.value}[{self.index}]"

"""Slots: the places of a node that can have parameters.

    x ──input──┐
               × ──correlation──┐
    w ──weight─┘                + ──sum── clip ──output──
    b ──bias────────────────────┘

An integer machine that adds the bias in the accumulator has no grid for correlation and sum; a schema that asks for
one names canonical passes that split the bias off, so that both are values of the graph.
"""

import enum
from dataclasses import dataclass


class Role(enum.Enum):
    """What a tensor is to the node it stands at."""

    INPUT = "input"
    WEIGHT = "weight"
    CORRELATION = "correlation"
    BIAS = "bias"
    SUM = "sum"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Slot:
    """The ``index``-th input (or output) of node ``node``, which is ``value``.

    WEIGHT is every constant that meets data in a product or a sum, BIAS one that is added in the accumulator;
    CORRELATION is the product before the bias, SUM the result before a clip, OUTPUT what leaves the unit.
    """

    node: str
    role: Role
    index: int
    value: str

    def __str__(self) -> str:
        return f"{self.node}.{self.role.value}[{self.index}]"

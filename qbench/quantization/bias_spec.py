"""How a bias is to be added: on whose grid, in how many bits, and at whose scale the sum is."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast, get_args

from qbench.numerics import GridKind, QType, ScaleKind


class BiasKind(enum.Enum):
    """Where the grid of a bias comes from: the scales of input and weight, its own range, or the correlation's grid."""

    DERIVED = "derived"
    OWN = "own"
    SHARED = "shared"
    FLOAT = "float"


class Finer(enum.Enum):
    """On whose grid product and bias are added when the bias has a scale of its own.

    CHOSEN: on the finer of the two, which loses nothing. PRODUCT: on the product's, so that a bias finer than it is
    rounded to it. BIAS: on the bias's, so that a product finer than it is rounded to it.
    """

    CHOSEN = "chosen"
    PRODUCT = "product"
    BIAS = "bias"


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasSpec:
    """What a bias is added as.

    Args:
        kind: ``derived``: int32 at scale(input) · scale(weight); ``own``: at a scale of its own, symmetric, one a
            tensor; ``shared``: on the grid of the unit's correlation, which then covers both; ``float``.
        qtype: the grid of an ``own`` one.
        scale_kind: of an ``own`` one.
        finer: whose grid the sum has when the bias's is its own.

    Raises:
        ValueError, InputError: an unsigned or unknown grid, or settings of an own grid without one.
    """

    kind: BiasKind = BiasKind.DERIVED
    qtype: str = "int32"
    scale_kind: str = "real"
    finer: Finer = Finer.CHOSEN

    def __post_init__(self) -> None:
        if not QType.parse(self.qtype).signed:
            raise ValueError(f"the unsigned {self.qtype} for a bias")
        if self.scale_kind not in get_args(ScaleKind):
            raise ValueError(f"{self.scale_kind!r}, which is none of {', '.join(get_args(ScaleKind))}")
        own = (self.qtype, self.scale_kind, self.finer)
        if self.kind is not BiasKind.OWN and own != ("int32", "real", Finer.CHOSEN):
            raise ValueError(f"'qtype', 'scale_kind' or 'finer' for a bias of kind '{self.kind.value}', not 'own'")

    @property
    def grid_kind(self) -> GridKind:
        """The grid of an ``own`` one, without its scale."""
        return GridKind(QType.parse(self.qtype), "symmetric", scale_kind=cast(ScaleKind, self.scale_kind))

    def __str__(self) -> str:
        if self.kind is not BiasKind.OWN:
            return _BIASES[self.kind]
        words = [f"{self.qtype} at a scale of its own"]
        words += [self.scale_kind] * (self.scale_kind != "real")
        words += [f"added on the grid of the {self.finer.value}"] * (self.finer is not Finer.CHOSEN)
        return ", ".join(words)


_BIASES: Mapping[BiasKind, str] = MappingProxyType(
    {
        BiasKind.DERIVED: "int32 at the product's scale",
        BiasKind.SHARED: "on the correlation's grid",
        BiasKind.FLOAT: "float",
    }
)
FLOAT_BIAS = BiasSpec(kind=BiasKind.FLOAT)

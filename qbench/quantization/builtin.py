"""The schemas that come with qbench, by the grammar of their names.

w8a8_<asym|sym|symu8>_<pt|pc>[_pow2]

asym   activations uint8 with any zero point
sym    activations int8 with zero point 0
symu8  activations uint8, zero point 0 where nothing is negative, else 128
pt pc  weights (int8, symmetric, −127 … 127) per tensor, per output channel
pow2   scales of both rounded up to a power of two
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbench.quantization.schema import Schema

_ACTIVATIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "asym": ("uint8", "asymmetric"),
        "sym": ("int8", "symmetric"),
        "symu8": ("uint8", "symmetric_unsigned"),
    }
)
_NAMES = (
    "w8a8_asym_pc",
    "w8a8_asym_pc_pow2",
    "w8a8_asym_pt",
    "w8a8_asym_pt_pow2",
    "w8a8_sym_pc",
    "w8a8_sym_pc_pow2",
    "w8a8_sym_pt",
    "w8a8_sym_pt_pow2",
    "w8a8_symu8_pc",
    "w8a8_symu8_pc_pow2",
    "w8a8_symu8_pt",
    "w8a8_symu8_pt_pow2",
)


def builtin_schemas() -> Mapping[str, Callable[[], "Schema"]]:
    """Name → maker of the schema; listing the names loads no numerics."""
    return {name: partial(_schema, name) for name in _NAMES}


def _schema(name: str) -> "Schema":
    from qbench.quantization.schema import Rule, Schema
    from qbench.quantization.spec import Granularity, Spec

    _, family, granularity, *kinds = name.split("_")
    qtype, symmetry = _ACTIVATIONS[family]
    scale_kind = "pow2" if "pow2" in kinds else "real"
    activation = Spec(qtype=qtype, symmetry=symmetry, scale_kind=scale_kind)
    weight = Spec(
        qtype="int8",
        symmetry="symmetric",
        granularity=Granularity.CHANNEL if granularity == "pc" else Granularity.TENSOR,
        narrow_range=True,
        scale_kind=scale_kind,
    )
    return Schema(name=name, rules=(Rule(activation=activation, weight=weight),))

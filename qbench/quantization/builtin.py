"""The names of the grammar that are listed: one or two for every idea, so that people see what can be asked for."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qbench.quantization.schema import Schema

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
    "w8a8_asym_pc_dyn",
    "w8a8_asym_pc_entropy",
    "w8a8_asym_pc_mse",
    "w8a8_asym_pc_percentile",
    "w8a8_sym_pc_entropy",
    "w8a8_sym_pt_pow2_bias8",
    "w8a8_sym_pt_pow2_bias16",
    "w8a16_asym_pc",
    "w8a16_sym_pc",
    "w4a8_asym_pc",
    "w4a8_asym_pc_mse",
    "w8_sym_pc",
    "w4_sym_b32",
    "w4_asym_b32",
    "w4_sym_b32_mse",
)


def builtin_schemas() -> Mapping[str, Callable[[], "Schema"]]:
    """Name → maker of the schema; listing the names loads no numerics."""
    return {name: partial(_schema, name) for name in _NAMES}


def _schema(name: str) -> "Schema":
    from qbench.quantization.grammar import SchemaGrammar

    grammar = SchemaGrammar()
    make = grammar.maker(name)
    if make is None:
        raise grammar.unknown("Looking up a schema", name, _NAMES)
    return make()

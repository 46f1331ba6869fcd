"""The operators that can be counted on integers, as float graphs call them, and what stands for them once lowered.

Conv → QLinearConv      Add → com.microsoft::QLinearAdd, qbench.integer::QLinearAdd      MaxPool → MaxPool
"""

import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import onnx_ir as ir

from qbench.graph import INTEGER_DOMAIN, OPERATORS, POINTWISE
from qbench.passes.lowering.machines import INTEGER_MACHINES
from qbench.passes.lowering.target import ENGINE_DOMAIN, Target

REQUANTIZE = "Requantize"
"""The change of a grid: a QuantizeLinear of what a DequantizeLinear gave."""

_GEMM = "QGemm"
_PREFIX = "QLinear"
_WITH_REALS = frozenset({"ConvInteger", "MatMulInteger", "MatMulIntegerToFloat"})
_BORDERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_PICKERS = frozenset({"ReduceMax", "ReduceMin", "TopK", "Resize"})
_BY_MULTIPLIERS = frozenset({"Abs", "Add", "Clip", "Div", "LeakyRelu", "Mul", "Neg", "PRelu", "Relu", "Sign", "Sub"})

TABLES = POINTWISE - _BY_MULTIPLIERS
"""Functions of one level that a machine looks up."""


def float_name(node: ir.Node) -> str:
    """What a node of a lowered graph, or of a float one, is called in a device's list of operators."""
    if node.domain in ("", INTEGER_DOMAIN, ENGINE_DOMAIN):
        return _float_name(node.op_type)
    return f"{node.domain}.{node.op_type}"


def operators_on_integers() -> frozenset[str]:
    """Every name that a device may list."""
    return frozenset(_spellings())


def target_of(operators: Iterable[str]) -> Target:
    """What lowering may bring in where there are ``operators`` alone."""
    known = _spellings()
    return Target(frozenset(spelled for name in operators for spelled in known[name]), any_grids=True)


@functools.cache
def _spellings() -> Mapping[str, frozenset[tuple[str, str]]]:
    """Float name → (domain, operator) of all that counts it; movers stand for themselves."""
    moved = {name for name, facts in OPERATORS.items() if facts.moved == (0,)} | _PICKERS
    found: dict[str, set[tuple[str, str]]] = {name: {("", name)} for name in moved}
    for domain, operator in INTEGER_MACHINES.operators:
        if operator not in _BORDERS | _WITH_REALS:
            found.setdefault(_float_name(operator), set()).add((domain, operator))
    return MappingProxyType({name: frozenset(found[name]) for name in sorted(found)})


def _float_name(operator: str) -> str:
    return "Gemm" if operator == _GEMM else operator.removeprefix(_PREFIX)

"""Operator → what makes its kernel."""

import functools
import importlib
from collections.abc import Mapping
from types import MappingProxyType

import onnx.defs
import onnx_ir as ir

from qbench.errors import InputError, UnsupportedError, unknown_name
from qbench.graph import INTEGER_FORMS, OPERATORS, QLINEAR, REFERENCE_KERNEL, float_name, node_key, outside_operator
from qbench.interpreter.float_kernels.reference import reference as reference_kernel
from qbench.interpreter.integer_kernels import functions
from qbench.interpreter.kernel import KernelContext, KernelFunction, Maker
from qbench.numerics import Arithmetic


def _maker(reference: str) -> Maker:
    """The maker that a row of ``graph.ops`` names."""
    if reference == REFERENCE_KERNEL:
        return reference_kernel
    module, _, name = reference.partition(":")
    found: Maker = getattr(importlib.import_module(f"qbench.interpreter.integer_kernels.{module}"), name)
    return found


KERNELS: Mapping[tuple[str, str], Maker] = MappingProxyType(
    {("", row.name): _maker(row.kernel) for row in OPERATORS.values() if row.kernel}
    | {key: _maker(form.kernel) for key, form in INTEGER_FORMS.items() if form.kernel}
)
"""(domain, operator) → maker, from the rows of operators."""


def float_operator(node: ir.Node) -> str:
    """What a node of a lowered graph was called in the float graph: ``Conv`` of a QLinearConv."""
    return float_name(node.op_type)


def require_known_operators(arithmetic: Arithmetic) -> None:
    """Refuse overrides of operators that neither ONNX nor this interpreter has: they would never apply.

    Raises:
        InputError: there is one; the nearest name is suggested.
    """
    for operator in dict.fromkeys(name for override in arithmetic.overrides for name in override.operators):
        if operator not in _operators():
            doing = f"Reading the overrides of the arithmetic '{arithmetic.name}'"
            raise unknown_name(doing, "operator", operator, _operators())


@functools.cache
def _operators() -> frozenset[str]:
    own = {float_name(name) for _, name in KERNELS}
    onnx_has = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    return frozenset({name for name in onnx_has if float_name(name) == name} | own)


def _of_others(node: ir.Node) -> Maker:
    """A table for the function of an extension on codes; for anything else what computes it as it is."""
    on_codes = node.op_type.startswith(QLINEAR) and outside_operator(node) is not None
    return functions.function if on_codes else reference_kernel


def make_kernel(making: KernelContext) -> KernelFunction:
    """The kernel of a node under its arithmetic.

    Raises:
        UnsupportedError: no kernel of this operator, or not of such a node.
        InputError: scales that the arithmetic cannot hold; it names the node.
    """
    node = making.node
    maker = KERNELS.get((node.domain, node.op_type), _of_others(node))
    doing = f"Compiling '{node_key(node)}' ({node.op_type}) for the arithmetic '{making.arithmetic.name}'"
    try:
        return maker(making)
    except (InputError, UnsupportedError) as error:
        if f"'{node_key(node)}'" in error.doing:
            raise
        what = error.doing[:1].lower() + error.doing[1:]
        raise type(error)(
            f"{doing}, {what}", found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    except ValueError as error:
        raise UnsupportedError(
            doing,
            found=str(error),
            expected="an operator that the interpreter has",
            remedy="Keep the node in float, or choose another backend.",
        ) from error

"""Operator → what makes its kernel."""

import functools
from collections.abc import Mapping
from types import MappingProxyType

import onnx.defs
import onnx_ir as ir

from qbench.errors import InputError, UnsupportedError, unknown_name
from qbench.graph import INTEGER_DOMAIN, POINTWISE, QLINEAR, node_key, outside_operator
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.integer_kernels import borders, convolutions, functions, moving, pooling, products
from qbench.interpreter.integer_kernels import convolutions as transposed
from qbench.interpreter.integer_kernels import functions as linear
from qbench.interpreter.integer_kernels import functions as softmax
from qbench.interpreter.integer_kernels import functions as tables
from qbench.interpreter.integer_kernels import moving as combining
from qbench.interpreter.integer_kernels import pooling as means
from qbench.interpreter.integer_kernels import products as dynamic_products
from qbench.interpreter.kernel import KernelContext, KernelFunction, Maker
from qbench.numerics import Arithmetic

_ENGINE = "com.microsoft"

KERNELS: Mapping[tuple[str, str], Maker] = MappingProxyType(
    {
        ("", "QuantizeLinear"): borders.quantize_linear,
        ("", "DynamicQuantizeLinear"): borders.dynamic_quantize_linear,
        ("", "DequantizeLinear"): borders.dequantize_linear,
        ("", "Clip"): borders.clip,
        ("", "MaxPool"): pooling.max_pool,
        ("", "Flatten"): moving.flatten,
        ("", "GlobalMaxPool"): reference,
        ("", "Pad"): reference,
        ("", "Resize"): moving.resize,
        ("", "TopK"): reference,
        ("", "ConvInteger"): convolutions.conv_integer,
        ("", "MatMulInteger"): dynamic_products.matmul_integer,
        ("", "QLinearConv"): convolutions.conv,
        ("", "QLinearMatMul"): products.matmul,
        (INTEGER_DOMAIN, "QLinearConvTranspose"): transposed.conv_transpose,
        (_ENGINE, "MatMulIntegerToFloat"): dynamic_products.matmul_integer_to_float,
        (_ENGINE, "QGemm"): products.gemm,
        (_ENGINE, "QLinearAdd"): tables.add,
        (_ENGINE, "QLinearMul"): tables.mul,
        (_ENGINE, "QLinearSigmoid"): functions.sigmoid,
        (_ENGINE, "QLinearSoftmax"): softmax.softmax,
        (_ENGINE, "QLinearLeakyRelu"): linear.leaky_relu,
        (_ENGINE, "QLinearConcat"): combining.concat,
        (_ENGINE, "QLinearAveragePool"): pooling.average_pool,
        (_ENGINE, "QLinearGlobalAveragePool"): means.global_average,
        **{(INTEGER_DOMAIN, f"QLinear{name}"): functions.function for name in POINTWISE},
        (INTEGER_DOMAIN, "QLinearSigmoid"): functions.sigmoid,
        (INTEGER_DOMAIN, "QLinearTanh"): functions.tanh,
        (INTEGER_DOMAIN, "QLinearHardSwish"): functions.hard_swish,
        (INTEGER_DOMAIN, "QLinearRelu"): linear.relu,
        (INTEGER_DOMAIN, "QLinearClip"): linear.clip,
        (INTEGER_DOMAIN, "QLinearAbs"): linear.absolute,
        (INTEGER_DOMAIN, "QLinearNeg"): linear.negative,
        (INTEGER_DOMAIN, "QLinearLeakyRelu"): linear.leaky_relu,
        (INTEGER_DOMAIN, "QLinearPRelu"): linear.prelu,
        (INTEGER_DOMAIN, "QLinearAdd"): tables.own_add,
        (INTEGER_DOMAIN, "QLinearMul"): tables.own_mul,
        (INTEGER_DOMAIN, "QLinearSub"): tables.sub,
        (INTEGER_DOMAIN, "QLinearDiv"): tables.div,
        (INTEGER_DOMAIN, "QLinearMax"): combining.largest,
        (INTEGER_DOMAIN, "QLinearMin"): combining.smallest,
        (INTEGER_DOMAIN, "QLinearWhere"): combining.where,
        (INTEGER_DOMAIN, "QLinearRequantize"): combining.requantize,
        (INTEGER_DOMAIN, "QLinearSoftmax"): softmax.softmax,
        (INTEGER_DOMAIN, "QLinearGlobalAveragePool"): means.global_average,
        (INTEGER_DOMAIN, "QLinearReduceMean"): means.reduce_mean,
        (INTEGER_DOMAIN, "QLinearReduceSum"): means.reduce_sum,
    }
)
"""(domain, operator) → maker."""


_FLOAT_NAMES = MappingProxyType(
    {"QGemm": "Gemm", "ConvInteger": "Conv", "MatMulInteger": "MatMul", "MatMulIntegerToFloat": "MatMul"}
)


def float_operator(node: ir.Node) -> str:
    """What a node of a lowered graph was called in the float graph: ``Conv`` of a QLinearConv."""
    return _float_name(node.op_type)


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
    own = {_float_name(name) for _, name in KERNELS}
    onnx_has = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    return frozenset({name for name in onnx_has if _float_name(name) == name} | own)


def _float_name(operator: str) -> str:
    return _FLOAT_NAMES.get(operator, operator.removeprefix(QLINEAR))


def _of_others(node: ir.Node) -> Maker:
    """A table for the function of an extension on levels; for anything else what computes it as it is."""
    on_levels = node.op_type.startswith(QLINEAR) and outside_operator(node) is not None
    return functions.function if on_levels else reference


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
            expected="an operator that the interpreter counts",
            remedy="Keep the node in float, or choose another backend.",
        ) from error

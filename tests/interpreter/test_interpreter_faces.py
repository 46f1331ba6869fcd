"""What Python's functions of two operands say is what a run
of the machine of that name counts, of all pairs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.interpreter import Program
from qbench.numerics import (
    QParams,
    add_quantized,
    divide_quantized,
    get_arithmetic,
    list_arithmetics,
    rescale_quantized,
    subtract_quantized,
)
from qbench.passes import INTEGER_INTERPRETER, lower_to_qoperator

FACES: dict[str, Callable[..., Any]] = {
    "Add": add_quantized,
    "Sub": subtract_quantized,
    "Div": divide_quantized,
}
LEVELS = np.arange(-128, 128).astype(np.int8)
PAIRS = (np.repeat(LEVELS, 256), np.tile(LEVELS, 256))
DYADIC = ((0.125, 3), (0.0625, -9), (0.25, 7))


def counted(operator: str, machine: str) -> Any:
    (sa, za), (sb, zb), (sy, zy) = DYADIC
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int8[N] a, int8[N] b) => (int8[N] r) '
        f"<float sa = {{{sa}}}, int8 za = {{{za}}}, float sb = {{{sb}}}, int8 zb = {{{zb}}}, "
        f"float sy = {{{sy}}}, int8 zy = {{{zy}}}>"
        "{ x = DequantizeLinear(a, sa, za) w = DequantizeLinear(b, sb, zb) "
        f"y = {operator}(x, w) r = QuantizeLinear(y, sy, zy) }}"
    )
    model = lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER)
    assert [node.op_type for node in model.graph] == [f"QLinear{operator}"]
    left, right = PAIRS
    return Program(model, get_arithmetic(machine)).run({"a": left, "b": right})["r"]


@pytest.mark.slow_but(22)
@pytest.mark.parametrize("machine", list_arithmetics())
@pytest.mark.parametrize("operator", FACES)
def test_a_function_and_a_run_agree(operator: str, machine: str) -> None:
    grids = tuple(QParams(scale, zero_point, "int8") for scale, zero_point in DYADIC)
    np.testing.assert_array_equal(
        FACES[operator](*PAIRS, *grids, machine), counted(operator, machine)
    )


def test_overrides_of_an_operator_hold_in_its_function() -> None:
    """LiteRT's Add and Sub on x64 are other than its plain scheme, which a machine without
    overrides counts by.
    """
    x, w, y = (QParams(scale, zero_point, "int8") for scale, zero_point in DYADIC)
    for operator in ("Add", "Sub"):
        ours = FACES[operator](*PAIRS, x, w, y, "litert-x64")
        plain = FACES[operator](*PAIRS, x, w, y, get_arithmetic("litert-x64").at("Conv", ""))
        assert np.count_nonzero(ours != plain) > 1_000
    machine = get_arithmetic("litert-x64")
    np.testing.assert_array_equal(
        rescale_quantized(LEVELS, x, y, machine), rescale_quantized(LEVELS, x, y, "litert-x64")
    )

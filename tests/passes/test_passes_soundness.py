"""What a pass may not leave: operators that there are not, operands too few or too many, types
that do not agree.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, text

from qbench.passes.soundness import Interface, fault_of

LIMITED = chain(Grid(0.5, low=-4, high=6))


def node(model: ir.Model, kind: str) -> ir.Node:
    return next(one for one in model.graph if one.op_type == kind)


def renamed(model: ir.Model) -> None:
    node(model, "Clip").op_type = "NoSuchOp"


def too_few(model: ir.Model) -> None:
    node(model, "QuantizeLinear").resize_inputs(1)


def too_many(model: ir.Model) -> None:
    node(model, "Clip").resize_inputs(4)


def left_out(model: ir.Model) -> None:
    node(model, "DequantizeLinear").replace_input_with(1, None)


def other_zero_point(model: ir.Model) -> None:
    point = ir.Value(name="point", const_value=ir.tensor(np.array(0, np.uint8), name="point"))
    model.graph.register_initializer(point)
    node(model, "QuantizeLinear").replace_input_with(2, point)


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (renamed, "'c0' with the operator 'NoSuchOp', which opset 21 has not"),
        (too_few, "'q0' with 1 input, where 'QuantizeLinear' has 2 to 3"),
        (too_many, "'c0' with 4 inputs, where 'Clip' has 1 to 3"),
        (left_out, "'y' with no input 1, which 'DequantizeLinear' needs"),
        (other_zero_point, "'c0' with 'l0' of int8 with uint8 in 'Clip'"),
    ],
)
def test_what_no_schema_allows_is_a_fault(edit: Callable[[ir.Model], None], found: str) -> None:
    model = LIMITED.clone()
    assert fault_of(model, Interface.of(LIMITED)) is None
    edit(model)
    assert fault_of(model, Interface.of(LIMITED)) == found
    assert fault_of(model, Interface.of(model)) is None, "it was so before"


def test_of_other_domains_nothing_is_known() -> None:
    lines = ["a = acme.NoSuchOp(x)", "y = com.microsoft.QuickGelu(a)"]
    model = text(
        "float[4] x", "float[4] y", ["float s = {1.0}"], lines, ', "acme" : 1, "com.microsoft" : 1'
    )
    assert Interface.of(model).forbidden == frozenset()


def test_operands_that_may_differ_do() -> None:
    constants = ["float s = {0.5}", "int8 z = {0}", "int64[1] flat = {-1}"]
    lines = [
        *("q = QuantizeLinear(x, s, z)", "f = Reshape(q, flat)", "d = DequantizeLinear(f, s, z)"),
        *(
            "c = Cast<to = 7>(d)",
            "m = Concat<axis = 0>(d, d, d)",
            "a, b = TopK(m, flat)",
            "y = Max(a, a, a)",
        ),
    ]
    model = text("float[4] x", "float[1] y", constants, lines)
    assert Interface.of(model).forbidden == frozenset()

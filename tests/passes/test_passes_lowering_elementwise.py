"""Operators of our own domain: where they are brought in, what they look like,
what is declined in which words.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.graph import (
    INTEGER_DOMAIN,
    POINTWISE,
    Form,
    constant_value,
    form_of,
    graph_digest,
    origin_of,
)
from qbench.interpreter import float_operator
from qbench.passes import INTEGER_INTERPRETER, declined, lower_to_qoperator


def net(
    body: str,
    types: Sequence[str] = ("uint8",),
    out: str = "uint8",
    opset: int = 21,
    **constants: Any,
) -> ir.Model:
    """``body`` makes y of x0, x1, …; y is quantized."""
    given = ", ".join(f"{kind}[2, 3, 4] q{i}" for i, kind in enumerate(types))
    grids = ", ".join(
        f"float s{i} = {{0.0{i + 3}}}, {kind} z{i} = {{{i + 5}}}" for i, kind in enumerate(types)
    )
    read = " ".join(f"x{i} = DequantizeLinear(q{i}, s{i}, z{i})" for i in range(len(types)))
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g ({given}) => ({out}[A, B, C] r)'
        f"<{grids}, float sy = {{0.021}}, {out} zy = {{4}}>"
        f"{{ {read} {body} r = QuantizeLinear(y, sy, zy) }}"
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return ir.from_proto(proto)


def only_node(model: ir.Model) -> ir.Node:
    (node,) = model.graph
    return node


def names(node: ir.Node) -> list[str | None]:
    return [None if value is None else value.name for value in node.inputs]


NUMBER = np.float32(0.7)
OWN = {
    "Tanh": ("[it] y = Tanh(x0)", ["q0", "s0", "z0", "sy", "zy"], {}),
    "Sub": ("[it] y = Sub(x0, x1)", ["q0", "s0", "z0", "q1", "s1", "z1", "sy", "zy"], {}),
    "Mul": ("[it] y = Mul(c, x0)", ["c", None, None, "q0", "s0", "z0", "sy", "zy"], {"c": NUMBER}),
    "Clip": ("[it] y = Clip(x0, , c)",
             ["q0", "s0", "z0", None, None, None, "c", None, None, "sy", "zy"], {"c": NUMBER}),
    "ReduceMean": ("[it] y = ReduceMean(x0, c)", ["q0", "s0", "z0", "c", None, None, "sy", "zy"],
                   {"c": np.array([1])}),
    "Max": ("[it] y = Max(x0, x1, c)",
            ["q0", "s0", "z0", "q1", "s1", "z1", "c", None, None, "sy", "zy"],
            {"c": np.array([1, 2, 3, 4], np.float32)}),
    "Where": ("[it] y = Where(c, x0, x1)",
              ["c", None, None, "q0", "s0", "z0", "q1", "s1", "z1", "sy", "zy"],
              {"c": np.array([True, False, True, True])}),
}  # fmt: skip


@pytest.mark.parametrize("operator", OWN)
def test_operands_are_triples_and_the_result_has_its_grid_behind_them(operator: str) -> None:
    body, expected, constants = OWN[operator]
    model = net(body, ("uint8", "uint8") if "x1" in body else ("uint8",), **constants)
    before = graph_digest(model)
    lowered = lower_to_qoperator(model, INTEGER_INTERPRETER)
    node = only_node(lowered)
    assert (node.domain, node.op_type) == (INTEGER_DOMAIN, f"QLinear{operator}")
    assert names(node) == expected
    assert (node.name, node.outputs[0].name, origin_of(node)) == ("it", "r", "y")
    assert float_operator(node) == operator
    assert form_of(lowered) is Form.INTEGER
    assert graph_digest(model) == before
    assert graph_digest(lower_to_qoperator(lowered, INTEGER_INTERPRETER)) == graph_digest(lowered)


@pytest.mark.parametrize(
    "operator", [*sorted(POINTWISE), "Max", "Min", "ReduceMean", "ReduceSum", "Resize", "TopK"]
)
def test_onnx_runtime_gets_none_of_them(operator: str) -> None:
    """Its target has its own operators alone: what it had before,
    and floats with a reason elsewhere.
    """
    operands = {
        "Add": "(x0, x1)",
        "Sub": "(x0, x1)",
        "Mul": "(x0, x1)",
        "Div": "(x0, x1)",
        "Pow": "(x0, x1)",
        "PRelu": "(x0, x1)",
        "Max": "(x0, x1)",
        "Min": "(x0, x1)",
    }.get(operator, "(x0)")
    body = f"[it] y = {operator}{operands}"
    if operator == "TopK":
        body = "[it] y, places = TopK(x0, c)"
    if operator == "Resize":
        body = '[it] y = Resize<mode = "linear">(x0, , c)'
    constants = {"TopK": np.array([2]), "Resize": np.array([1, 2, 2], np.float32)}
    given = {"c": constants[operator]} if operator in constants else {}
    lowered = lower_to_qoperator(
        net(body, ("uint8", "uint8") if "x1" in body else ("uint8",), **given)
    )
    kinds = [(node.domain, node.op_type) for node in lowered.graph]
    assert not [kind for kind in kinds if kind[0] == INTEGER_DOMAIN]
    if operator in ("Add", "Mul", "Sigmoid", "LeakyRelu"):
        assert kinds == [("com.microsoft", f"QLinear{operator}")]
    else:
        assert ("", operator) in kinds
        assert "it" in declined(lowered)


def test_the_engines_operator_comes_first() -> None:
    for operator in ("Sigmoid", "LeakyRelu", "GlobalAveragePool", "Softmax"):
        assert (
            only_node(lower_to_qoperator(net(f"y = {operator}(x0)"), INTEGER_INTERPRETER)).domain
            == "com.microsoft"
        )
    assert (
        only_node(
            lower_to_qoperator(
                net("y = Add(x0, x1)", ("int8", "int8"), "int8"), INTEGER_INTERPRETER
            )
        ).domain
        != INTEGER_DOMAIN
    )


@pytest.mark.parametrize("operator", ["Sigmoid", "Softmax", "GlobalAveragePool", "Add"])
def test_ours_takes_any_two_types(operator: str) -> None:
    operands = "(x0, x1)" if operator == "Add" else "(x0)"
    model = net(
        f"y = {operator}{operands}", ("int8", "uint8") if operator == "Add" else ("int8",), "uint8"
    )
    assert only_node(lower_to_qoperator(model, INTEGER_INTERPRETER)).domain == INTEGER_DOMAIN
    (reason,) = declined(lower_to_qoperator(model)).values()
    assert "one type of 8 bits" in reason


@pytest.mark.parametrize(
    ("body", "types", "constants", "reason"),
    [
        ("[it] y = Mul(x0, c)", ("uint8",), {"c": np.ones(4, np.float32)}, "an operand is real"),
        ("[it] y = Pow(x0, x1)", ("int16", "int16"), {}, "a table has two sides of 8 bits"),
        (
            "[it] t = Tanh(x0) [be] y = Neg(t)",
            ("uint8",),
            {},
            "its result is real: no QuantizeLinear alone reads it",
        ),
        (
            "[it] y = CumSum(x0, c)",
            ("uint8",),
            {"c": np.array(1)},
            "there is no integer operator for CumSum",
        ),
    ],
)
def test_what_is_declined_says_why(
    body: str, types: Sequence[str], constants: dict[str, Any], reason: str
) -> None:
    lowered = lower_to_qoperator(net(body, types, types[0], **constants), INTEGER_INTERPRETER)
    assert declined(lowered)["it"] == reason
    assert not [
        node for node in lowered.graph if node.domain == INTEGER_DOMAIN and node.name == "it"
    ]


def test_grids_per_channel_are_declined() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (uint8[2, 3, 4] q) => (uint8[2, 3, 4] r)'
        "<float[3] s = {0.1, 0.2, 0.3}, uint8[3] z = {1, 2, 3}, float sy = {0.1}, uint8 zy = {0}>"
        "{ x = DequantizeLinear(q, s, z) [it] y = Tanh(x) r = QuantizeLinear(y, sy, zy) }"
    )
    lowered = lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER)
    assert declined(lowered) == {"it": "its kernel has one static scale for each operand"}


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32"])
def test_from_grid_to_grid(kind: str) -> None:
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({kind}[2] q) => (uint8[2] r)'
        f"<float s = {{0.1}}, {kind} z = {{0}}, float sy = {{0.3}}, uint8 zy = {{9}}>"
        "{ x = DequantizeLinear(q, s, z) [it] r = QuantizeLinear(x, sy, zy) }"
    )
    node = only_node(lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER))
    assert (node.op_type, names(node)) == ("QLinearRequantize", ["q", "s", "z", "sy", "zy"])
    plain = lower_to_qoperator(ir.from_proto(proto))
    assert [one.op_type for one in plain.graph] == ["DequantizeLinear", "QuantizeLinear"]
    assert not declined(plain)


@pytest.mark.parametrize(("opset", "axis"), [(21, -1), (13, -1), (12, 1)])
def test_a_softmax_keeps_the_meaning_of_its_opset(opset: int, axis: int) -> None:
    node = only_node(lower_to_qoperator(net("y = Softmax(x0)", opset=opset)))
    assert node.attributes["opset"].as_int() == min(opset, 13)
    assert node.attributes["axis"].as_int() == axis


def test_attributes_and_constants_are_kept() -> None:
    node = only_node(
        lower_to_qoperator(net("y = HardSigmoid<alpha = 0.4, beta = 0.1>(x0)"), INTEGER_INTERPRETER)
    )
    assert {name: round(one.as_float(), 6) for name, one in node.attributes.items()} == {
        "alpha": 0.4,
        "beta": 0.1,
    }
    node = only_node(lower_to_qoperator(net("y = Pow(x0, c)", c=np.int64(3)), INTEGER_INTERPRETER))
    exponent = constant_value(node.inputs[3])
    assert exponent is not None
    assert exponent.dtype == np.int64


def test_a_constant_that_was_quantized_keeps_its_grid() -> None:
    body = "c = DequantizeLinear(k, sc, zc) y = Div(x0, c)"
    node = only_node(
        lower_to_qoperator(
            net(body, k=np.array([3, 9, 1, 2], np.uint8), sc=NUMBER, zc=np.uint8(0)),
            INTEGER_INTERPRETER,
        )
    )
    assert names(node)[3:6] == ["k", "sc", "zc"]

"""Which inputs and outputs are a decoder's cache: names, types and forms of both sides."""

import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from qbench.errors import InputError
from qbench.graph import cache_values, quantized_cache

FLOAT, INT8, UINT8, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT8,
    TensorProto.UINT8,
    TensorProto.STRING,
)
HEADS = ("N", 2, "S", 8)
GROWN = ("N", 2, "S + T", 8)
PICTURE = ("N", 1, 28, 28)


def model(inputs, outputs):
    """A graph whose outputs are copies of ``x``, whatever they are called."""
    of = helper.make_tensor_value_info
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "net",
        [of("x", FLOAT, ["N", 3]), *[of(name, *form) for name, form in inputs.items()]],
        [of(name, *form) for name, form in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"v": (UINT8, PICTURE)}, {"y": (FLOAT, ["N", 3])}),
        ({"v": (UINT8, PICTURE)}, {"value": (FLOAT, PICTURE)}),
        ({"v": (UINT8, PICTURE)}, {"value": (UINT8, PICTURE)}),
        ({"key": (STRING, ["N"])}, {"value": (FLOAT, ["N", 3])}),
        ({"past_key": (STRING, ["N"])}, {"present_key": (STRING, ["N"])}),
        ({"key": (UINT8, ["N"]), "value": (UINT8, ["N"])}, {"v": (UINT8, ["N"])}),
        (
            {"k": (UINT8, HEADS), "v": (UINT8, HEADS)},
            {"key": (FLOAT, HEADS), "value": (FLOAT, HEADS)},
        ),
        (
            {"k": (UINT8, HEADS), "v": (UINT8, HEADS)},
            {"k_2": (UINT8, HEADS), "value": (UINT8, ["N", 2, 4, 4])},
        ),
    ],
)
def test_inputs_that_are_only_called_key_or_value_are_no_cache(inputs, outputs):
    found = model(inputs, outputs)
    assert quantized_cache(found) == ""
    assert cache_values(found.graph) == ()


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.{}", "present.0.{}"),
        ("past_{}_0", "present_{}_0"),
        ("{}_cache.3", "{}_cache_out.3"),
        ("{}_3", "next_{}_3"),
        ("kv_3_{}", "new_3_{}"),
    ],
)
@pytest.mark.parametrize("words", [("key", "value"), ("k", "v")])
def test_keys_and_values_that_come_in_and_leave_are_a_cache(past, present, words):
    pairs = [(past.format(word), present.format(word)) for word in words]
    for kind, said in ((FLOAT, ""), (INT8, f"'{pairs[0][0]}' in int8")):
        found = model(
            {name: (kind, HEADS) for name, _ in pairs}, {name: (kind, GROWN) for _, name in pairs}
        )
        cache = cache_values(found.graph)
        assert [(one.past.name, one.present) for one in cache] == pairs
        assert quantized_cache(found) == said


def test_a_past_without_a_present_is_one_sentence():
    found = model({"past_key_values.0.key": (FLOAT, HEADS)}, {"y": (FLOAT, ["N", 3])})
    with pytest.raises(InputError) as caught:
        cache_values(found.graph)
    assert "'past_key_values.0.key'" in caught.value.found


@pytest.mark.parametrize("order", [("decoder", "encoder"), ("encoder", "decoder")])
def test_of_two_inputs_that_fit_the_one_with_the_same_words_is_the_past(order):
    """A Concat with its own past stores the new part; one with the other's stores itself."""
    of = helper.make_tensor_value_info
    past = [f"past_key_values.0.{side}.key" for side in order]
    sides = ("decoder", "encoder")
    nodes = [
        helper.make_node(
            "Concat",
            [f"past_key_values.0.{side}.key", f"new_{side}"],
            [f"present.0.{side}.key"],
            axis=2,
        )
        for side in sides
    ]
    inputs = [of(name, FLOAT, HEADS) for name in (*past, *(f"new_{side}" for side in sides))]
    outputs = [of(f"present.0.{side}.key", FLOAT, GROWN) for side in sides]
    opsets = [helper.make_opsetid("", 21)]
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    found = ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    cache = cache_values(found.graph)
    assert [one.value.name for one in cache] == ["new_decoder", "new_encoder"]
    assert [one.past.name for one in cache] == [f"past_key_values.0.{side}.key" for side in sides]

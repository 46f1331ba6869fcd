"""Decoders of which one layer comes with ONNX Runtime's GroupQueryAttention in floats and another
with attention of products: both keep codes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.calibration import calibrate, watched_values
from qbench.errors import UnsupportedError
from qbench.evaluation import Quantized, cache_words
from qbench.graph import kept_type
from qbench.passes import lower_attention, plannable, require_codes_inside
from qbench.passes.canonical.cleanup import RemoveDead
from qbench.quantization import get_schema, insert_qdq, make_plan, read_plan
from qbench.subjects import decoder_form
from qbench_zoo.networks.decoder import DecoderSize, build_decoder, parameter_shapes

SIZE = DecoderSize(words=50, width=64, heads=4, kept_heads=2, layers=2, places=24)
TOKENS = np.random.default_rng(3).integers(SIZE.words, size=(1, 8))
Outputs = Mapping[str, Any]


def decoder() -> ir.Model:
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(SIZE).items()
    arrays = {name: rng.normal(0, 0.6, shape).astype(np.float32) for name, shape in shapes}
    return build_decoder(arrays, SIZE)


def feeds(model: ir.Model, tokens: Any, past: Outputs | None = None) -> dict[str, Any]:
    kept = {
        one.past: one.nothing(len(tokens)) if past is None else past[one.present]
        for one in decoder_form(model).cache
    }
    return {"input_ids": tokens, **kept}


def pairs_of(model: ir.Model) -> ir.Model:
    schema = get_schema("kv8h")
    pipeline = schema.canonical
    profile = calibrate(model, [feeds(model, TOKENS)], channels=True, pipeline=pipeline)
    return insert_qdq(plannable(model, pipeline), make_plan(model, profile, schema))


def value_of(model: ir.Model, name: str) -> ir.Value:
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    return next(value for value in values if value.name == name)


def mixed_decoder(grouped: int) -> ir.Model:
    """The decoder of two layers of which one, ``grouped``, has the operator in floats."""
    model, layer = decoder(), f"layer{grouped}"
    past = [value_of(model, f"past_key_values.{grouped}.{role}") for role in ("key", "value")]
    one = ir.tensor(np.ones(1, np.int32), name="one")
    model.graph.initializers["one"] = ir.val("one", one.dtype, one.shape, const_value=one)
    fed = [value_of(model, f"{layer}.{name}") for name in ("query.scaled", "key", "value")]
    before = ir.node("Shape", past[:1], {"start": 2, "end": 3})
    new = ir.node("Shape", fed[1:2], {"start": 1, "end": 2})
    whole = ir.node("Add", [before.outputs[0], new.outputs[0]])
    total = ir.node("Cast", whole.outputs, {"to": int(ir.DataType.INT32)})
    last = ir.node("Sub", [total.outputs[0], model.graph.initializers["one"]])
    rows = ir.node("Shape", fed[1:2], {"start": 0, "end": 1})
    lengths = ir.node("Expand", [last.outputs[0], rows.outputs[0]])
    node = ir.node(
        "GroupQueryAttention",
        [*fed, *past, lengths.outputs[0], total.outputs[0]],
        {"num_heads": SIZE.heads, "kv_num_heads": SIZE.kept_heads, "scale": 1.0},
        domain="com.microsoft",
        num_outputs=3,
    )
    together = value_of(model, f"{layer}.together").producer()
    assert together is not None
    added = (before, new, whole, total, last, rows, lengths, node)
    for number, each in enumerate(added):
        each.name = f"added{number}"
        for place, value in enumerate(each.outputs):
            value.name = f"added{number}.{place}"
    model.graph.insert_before(together, added)
    together.outputs[0].replace_all_uses_with(node.outputs[0])
    for role, present in zip(("key", "value"), node.outputs[1:], strict=True):
        kept = value_of(model, f"present.{grouped}.{role}")
        place = model.graph.outputs.index(kept)
        present.type, present.shape = kept.type, kept.shape
        kept.name, present.name = f"{layer}.{role}.unread", kept.name
        model.graph.outputs[place] = present
    model.graph.opset_imports["com.microsoft"] = 1
    RemoveDead().run(model)
    return model


@pytest.mark.parametrize("grouped", [0, 1])
def test_a_graph_with_the_operator_and_with_products_keeps_codes_in_both(grouped: int) -> None:
    model = mixed_decoder(grouped)
    assert {"GroupQueryAttention", "Softmax"} <= {node.op_type for node in model.graph}
    written, whole = lower_attention(pairs_of(model)), lower_attention(pairs_of(decoder()))
    assert [kept_type(one) for one in written.graph if kept_type(one)] == ["int8", "int8"]
    past = [one for one in written.graph.inputs if "past" in str(one.name)]
    assert {one.dtype for one in past} == {ir.DataType.INT8}
    assert len(read_plan(written).cached_values) == len(past) == 4
    found, expected = (last_of(each) for each in (written, whole))
    for name in expected.keys() - {"logits"}:
        assert np.abs(found[name].astype(int) - expected[name]).max() <= 1, name
    np.testing.assert_allclose(found["logits"], expected["logits"], atol=0.05)


def last_of(model: ir.Model) -> Outputs:
    """What ``model`` gives for the last token, after those before it."""
    backend = get_backend("ort-cpu")
    with backend.prepare(model) as executor:
        past = executor.run(feeds(model, TOKENS[:, :7]))
        return executor.run(feeds(model, TOKENS[:, 7:], past))


@pytest.mark.parametrize("grouped", [0, 1])
def test_products_that_the_operator_cannot_write_are_named_next_to_one_in_floats(
    grouped: int,
) -> None:
    pairs = pairs_of(mixed_decoder(grouped))
    pairs.graph.outputs.append(value_of(pairs, f"layer{1 - grouped}.weights"))
    with pytest.raises(UnsupportedError, match=r"\.weights', inside its attention, is an output"):
        lower_attention(pairs)


def test_words_say_how_much_of_the_cache_the_engine_stores() -> None:
    pairs = pairs_of(decoder())
    graphs = {"qdq": pairs, "gqa": lower_attention(pairs)}
    plans = {name: read_plan(model) for name, model in graphs.items()}
    words = {
        name: cache_words(Quantized({name: graphs[name]}, {name: plans[name]})) for name in graphs
    }
    assert words == {
        "qdq": "4 keys and values in int8",
        "gqa": "4 keys and values in int8, stored so by the engine",
    }
    both = cache_words(Quantized(graphs, plans))
    assert both == "8 keys and values in int8, 4 of them stored so by the engine"


def test_an_operator_of_that_name_from_another_library_is_not_taken_for_it() -> None:
    model = mixed_decoder(0)
    pairs = pairs_of(model)
    for graph in (model.graph, pairs.graph):
        node = next(one for one in graph if one.op_type == "GroupQueryAttention")
        node.domain = "other"
    require_codes_inside(pairs)
    kept = {value.name for value in node.outputs[1:]}
    assert kept.isdisjoint(one.name for one in watched_values(model))
    with pytest.raises(UnsupportedError, match="is no Concat of"):
        lower_attention(pairs)

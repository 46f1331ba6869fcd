"""Operators from outside: facts, shapes and kernels, from the float graph to levels, and what
has no such operator.
"""

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.calibration import prepare_watch
from qbench.errors import InputError, QbenchError
from qbench.extension import Extension
from qbench.graph import (
    Operator,
    OperatorFacts,
    graph_digest,
    node_macs,
    op_spec,
    operator_catalogue,
    outside_operator,
    shapes_alone,
    with_operators,
    with_shapes,
)
from qbench.interpreter import Program
from qbench.numerics import QParams, QType, dequantize, get_arithmetic, quantize
from qbench.passes import assert_effect, canonicalize, declined, lower_to_integers
from qbench.passes.rewrites.requantize import MergeRequantize, RequantizeIntoProducer
from qbench.quantization import make_plan, quantize_model

TEXT = """<ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
net (float[N, 4] x) => (float[N, 3] y)
<float[4, 4] w = {1, -2, 3, 4, 0.5, 1, 1, 1, 2, 0, -1, 1, 1, 1, 1, -3},
 float[2, 3] v = {1, 2, 3, -1, 1, 0.5}>
{
    [first] m = MatMul(x, w)
    [swish] s = acme.Swish<beta = 1.5>(m)
    [turn] t = acme.Rotate<shift = 1>(s)
    [halve] h = acme.Halve(t)
    [last] y = MatMul(h, v)
}"""


def swish(x, beta=1.0):
    return x * np.exp(-np.logaddexp(0, -beta * x.astype(np.float64)))


def halve(x):
    return x.reshape(*x.shape[:-1], -1, 2).mean(-1)


MADE = {
    "acme::Swish": Operator(kernel=swish, facts=OperatorFacts(low=-0.3), pointwise=True),
    "acme::Rotate": Operator(
        kernel=lambda x, shift=0: np.roll(x, shift, axis=-1),
        facts=OperatorFacts(moved=(0,), real=(0,)),
    ),
    "acme::Halve": Operator(
        kernel=halve, shape=lambda shapes: (*shapes[0][:-1], shapes[0][-1] // 2)
    ),
}


def extension(made=None, name="acme"):
    return Extension(
        name=name, operators={key: lambda one=one: one for key, one in (made or MADE).items()}
    )


def model(made=None, text=TEXT):
    return with_operators(ir.from_onnx_text(text), operator_catalogue([extension(made)]))


def batches(count=8, seed=0):
    random = np.random.default_rng(seed)
    return [{"x": random.normal(size=(8, 4)).astype(np.float32)} for _ in range(count)]


def quantized(net, schema="w8a8_asym_pc"):
    with prepare_watch(net, get_backend("onnx-reference")) as watch:
        for feeds in batches():
            watch.run(feeds)
        profile = watch.profile()
    plan = make_plan(net, profile, schema, capabilities=get_backend("integer-ideal").capabilities)
    return plan, quantize_model(net, plan)


def run(net, backend, feeds):
    with get_backend(backend).prepare(net) as executor:
        return executor.run(feeds)["y"]


def test_facts_are_those_of_the_extension_and_outlive_copies_and_passes():
    for net in (model(), model().clone(), canonicalize(model())):
        nodes = {node.op_type: node for node in net.graph}
        assert op_spec(nodes["Rotate"]).moved == (0,)
        assert op_spec(nodes["Swish"]).low == -0.3
        assert op_spec(nodes["Swish"]).pointwise
        assert not op_spec(nodes["Halve"]).pointwise
    assert outside_operator(ir.from_onnx_text(TEXT).graph[1]) is None


def test_a_pass_by_way_of_onnx_loses_no_operator():
    text = TEXT.replace('"" : 21', '"" : 18')
    nodes = {node.op_type: node for node in canonicalize(model(text=text)).graph}
    assert nodes["Swish"].graph.opset_imports[""] == 21
    assert outside_operator(nodes["Swish"]) is MADE["acme::Swish"]


def test_shapes_go_through_rules_and_through_those_without():
    values = {value.name: value for node in with_shapes(model()).graph for value in node.outputs}
    assert {name: str(values[name].shape) for name in "msthy"} == {
        **dict.fromkeys("mst", "[N,4]"),
        "h": "[N,2]",
        "y": "[N,3]",
    }
    assert all(values[name].dtype is ir.DataType.FLOAT for name in "mstyh")
    alone = shapes_alone(model(), free_dims=5)
    assert [node.op_type for node in alone.graph] == [node.op_type for node in model().graph]
    assert sum(node_macs(model()).values()) == 4 * 4 + 2 * 3


def test_the_interpreter_and_the_evaluator_compute_the_kernel():
    (feeds,) = batches(1)
    w, v = (model().graph.initializers[name].const_value.numpy() for name in "wv")
    expected = halve(np.roll(swish(feeds["x"] @ w, 1.5).astype(np.float32), 1, axis=-1)) @ v
    assert run(model(), "onnx-reference", feeds).dtype == np.float32
    np.testing.assert_allclose(
        run(model(), "onnx-reference", feeds), expected, rtol=1e-5, atol=1e-6
    )
    ours = Program(model(), get_arithmetic("ideal")).run(feeds)["y"]
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_the_planner_puts_what_is_computed_on_a_grid_and_what_is_moved_on_the_same():
    plan, _ = quantized(model())
    decided = {
        (slot.node, slot.role.value): type(one).__name__ for slot, one in plan.decisions.items()
    }
    assert decided["swish", "output"] == "Static"
    assert decided["turn", "output"] == "Shared"
    assert decided["halve", "output"] == "Static"
    assert not plan.floats


def test_an_operator_that_gives_no_data_stays_float(words):
    plan, _ = quantized(
        model(
            {
                **MADE,
                "acme::Halve": Operator(kernel=halve, shape=MADE["acme::Halve"].shape, data=()),
            }
        )
    )
    words(plan.floats["halve"].reason)


def test_levels_are_looked_up_and_moved_and_the_rest_is_real_between_grids():
    _, pairs = quantized(model())
    lowered = lower_to_integers(pairs)
    made = [(node.domain, node.op_type) for node in lowered.graph]
    assert [one for one in made if one[0] == "acme"] == [
        ("acme", "QLinearSwish"),
        ("acme", "Rotate"),
        ("acme", "Halve"),
    ]
    assert ("com.microsoft", "MatMulIntegerToFloat") in made
    assert set(declined(lowered)) == {"halve"}
    (feeds,) = batches(1, seed=5)
    np.testing.assert_allclose(
        run(pairs, "integer-ideal", feeds), run(pairs, "onnx-reference", feeds), atol=1e-5
    )
    assert (
        np.abs(run(pairs, "integer-ideal", feeds) - run(model(), "onnx-reference", feeds)).max()
        < 0.3
    )


@pytest.mark.parametrize("qtype", ["int8", "uint8", "int16"])
def test_every_level_of_a_table_is_the_kernel_of_that_level(qtype):
    source, target = (
        QParams(0.05, 3, QType.parse(qtype)),
        QParams(0.03, -2 if qtype[0] == "i" else 9, QType.parse(qtype)),
    )
    text = f"""<ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
    net ({qtype}[N] x) => ({qtype}[N] y)
    <float s = {{0.05}}, {qtype} z = {{3}}, float t = {{0.03}}, {qtype} o = {{{target.zero_point}}}>
    {{ r = DequantizeLinear(x, s, z) a = acme.Swish<beta = 2.0>(r) y = QuantizeLinear(a, t, o) }}"""
    lowered = lower_to_integers(model(text=text))
    assert [node.op_type for node in lowered.graph] == ["QLinearSwish"]
    levels = np.arange(source.qtype.qmin, source.qtype.qmax + 1).astype(source.qtype.storage_dtype)
    found = Program(lowered, get_arithmetic("ideal")).run({"x": levels})["y"]
    expected = quantize(swish(dequantize(levels, source), 2.0).astype(np.float32), target)
    assert found.dtype == levels.dtype
    np.testing.assert_array_equal(found, expected)


def test_passes_around_it_are_held_to_their_word():
    net = model(
        text="""<ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
    net (int8[16] x) => (int8[16] y) <float s = {0.1}, int8 z = {0}, float t = {0.2}> {
        d = DequantizeLinear(x, s, z) a = acme.Swish(d)
        q = QuantizeLinear(a, s, z) r = DequantizeLinear(q, s, z)
        p = QuantizeLinear(r, t, z) e = DequantizeLinear(p, t, z) y = QuantizeLinear(e, s, z) }"""
    )
    for one in (MergeRequantize(steps=255), RequantizeIntoProducer(steps=255)):
        checked = assert_effect(one, net)
        assert checked.changed
        assert [(region.verdict.value, region.inputs) for region in checked.regions] == [
            ("proven", 256)
        ]


def test_two_extensions_under_one_name_are_refused_and_so_is_a_name_without_domain():
    with pytest.raises(InputError, match=r"'acme::Swish' of 'other'.*'acme' defines the same name"):
        operator_catalogue([extension(), extension(name="other")])
    for name in ("Swish", "::Swish", "acme::", "qbench.integer::Swish"):
        with pytest.raises(InputError, match="no domain of its own"):
            operator_catalogue([extension({name: MADE["acme::Swish"]})])


def test_a_kernel_that_breaks_is_one_sentence_about_its_node():
    def broken(x, beta):
        return x[:, :9, 0]

    net = model({**MADE, "acme::Swish": Operator(kernel=broken, pointwise=True)})
    with pytest.raises(QbenchError, match=r"IndexError|too many indices"):
        run(net, "onnx-reference", batches(1)[0])
    with pytest.raises(Exception, match=r"IndexError.*at 'swish'"):
        Program(net, get_arithmetic("ideal")).run(batches(1)[0])


def test_without_its_extension_the_operator_is_refused_by_name():
    net = ir.from_onnx_text(TEXT)
    with pytest.raises(QbenchError, match="Swish"):
        get_backend("onnx-reference").prepare(net)
    with pytest.raises(QbenchError, match=r"no kernel of acme\.Swish"):
        Program(net, get_arithmetic("ideal"))


def test_the_version_of_a_domain_is_part_of_the_digest():
    assert graph_digest(model()) != graph_digest(
        model(text=TEXT.replace('"acme" : 1', '"acme" : 2'))
    )


def test_what_is_moved_is_not_computed():
    with pytest.raises(ValueError, match="moves values and computes"):
        Operator(kernel=swish, facts=OperatorFacts(moved=(0,)), pointwise=True)

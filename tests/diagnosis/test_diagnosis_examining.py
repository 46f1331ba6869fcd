"""Every node in numbers: against sums of the test's own,
and with one thing changed at a known node.
"""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from digits_targets import (
    batches,
    capture,
    constant_behind,
    digits,
    examine,
    machine,
    put,
    quantized,
    target,
)

from qbench.backends import Closing, get_backend
from qbench.calibration import calibrate
from qbench.diagnosis.examine import Examination, each_gain
from qbench.diagnosis.rank import AnomalyKind, rank_nodes, with_gains
from qbench.diagnosis.tallies import CountingTally, ErrorTally, TieTally
from qbench.diagnosis.target import Target
from qbench.diagnosis.unit_runs import Units, exact_run
from qbench.errors import InputError
from qbench.passes import canonicalize, plannable
from qbench.quantization import insert_qdq, make_plan

NODES = ["x_quantized", "conv1", "conv2", "pool", "flatten", "dense1", "dense2"]


def skips_last_row(name):
    def around(node, run):
        if node.name != name:
            return run

        def wrong(inputs):
            (result,) = run(inputs)
            result = np.array(result)
            result[:, :, -1] = result[:, :, 0]
            return (result,)

        return wrong

    return around


def test_a_healthy_machine_exceeds_nothing():
    found = examine(target(), batches(3))
    assert [node.node for node in found.nodes] == NODES
    assert found.samples == 48
    assert not found.unaligned
    assert not found.moved
    assert not rank_nodes(found)
    for node in found.nodes[1:]:
        assert node.isolated is not None
        assert node.isolated.sqnr_db == pytest.approx(node.explained.sqnr_db, abs=1e-3)
        assert node.counting.beyond == 0
        assert node.counting.differing == node.counting.ties
    assert {node.macs > 0 for node in found.nodes if node.operators in {("Conv",), ("Gemm",)}} == {
        True
    }


def test_the_cumulative_error_is_that_of_the_run_beside_fp32():
    (feeds,) = batches(1)
    node = next(one for one in examine(target(), [feeds]).nodes if one.node == "conv2")
    with get_backend("ort-cpu").prepare(digits().planned()["model"], taps=("relu2",)) as run:
        x = run.run(feeds)["relu2"].astype(np.float64)
    with machine().prepare(quantized(), taps=("relu2_quantized",)) as run:
        levels = run.run(feeds)["relu2_quantized"].astype(np.float64)
    unit = Units.of(target()).by_value["relu2_quantized"]
    y = (levels - unit.zero_point) * unit.scale
    noise = np.square(x - y)
    assert node.value == "relu2"
    assert node.elements == x.size
    assert node.cumulative.sqnr_db == pytest.approx(
        10 * np.log10(np.square(x).sum() / noise.sum()), abs=1e-3
    )
    assert node.cumulative.relative == pytest.approx(
        np.sqrt(noise.sum() / np.square(x).sum()), rel=1e-4
    )
    assert node.cumulative.steps == pytest.approx(np.sqrt(noise.mean()) / unit.scale, rel=1e-4)


def test_the_input_has_the_error_of_ideal_rounding_or_less():
    node = examine(target(), batches(1)).nodes[0]
    assert node.cumulative.steps <= 0.2887 + 0.02
    assert node.isolated.steps == node.cumulative.steps


@pytest.mark.slow
def test_numbers_do_not_depend_on_how_samples_are_batched():
    whole, parts = (examine(target(), batches(count, size)) for count, size in ((1, 32), (8, 4)))
    for one, other in zip(whole.nodes, parts.nodes, strict=True):
        assert one.cumulative.sqnr_db == pytest.approx(other.cumulative.sqnr_db, abs=1e-6)
        assert one.counting == other.counting
        assert one.clipped_high == other.clipped_high


@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("name", ["conv1", "conv2"])
def test_a_kernel_that_skips_a_row_is_the_first_suspect(name, claims):
    sick = machine(skips_last_row(name))
    first, *others = rank_nodes(
        examine(target(sick, claims=machine() if claims else None), batches(1))
    )
    assert first.node.node == name
    assert first.excess is AnomalyKind.COUNTING
    assert all(one.excess is not AnomalyKind.COUNTING for one in others)


def test_another_machine_than_claimed_is_seen_at_every_node_where_it_counts_otherwise():
    found = examine(target(machine(arithmetic="glow-cpu"), claims=machine()), batches(1))
    differing = {node.node for node in found.nodes if node.claimed.differing}
    assert differing
    assert differing <= {"conv1", "conv2", "dense1", "dense2"}


def test_weights_that_rounding_does_not_explain_are_a_matter_of_the_graph():
    model = quantized()
    value, levels = constant_behind(model, "conv2", 1, 0)
    put(value, np.roll(levels, 1, axis=0))
    found = examine(target(model=model), batches(1))
    first = rank_nodes(found)[0]
    assert (first.node.node, first.excess) == ("conv2", AnomalyKind.GRAPH)
    assert list(found.moved) == ["relu2_quantized"]
    assert first.node.isolated.sqnr_db < first.node.explained.sqnr_db - 10
    assert first.node.counting.beyond == 0


def test_a_range_that_cuts_off_what_matters_is_a_matter_of_the_grid():
    model = quantized()
    scales = {
        value.name: value for value in model.graph.initializers.values() if "relu2" in value.name
    }
    (scale,) = (value for name, value in scales.items() if "scale" in name)
    put(scale, scale.const_value.numpy() / np.float32(8))
    sick = target(model=model)
    found = examine(sick, batches(1))
    units = Units.of(sick)
    first = rank_nodes(with_gains(found, dict(each_gain(sick, units, batches(1)[0]))))[0]
    assert (first.node.node, first.excess) == ("conv2", AnomalyKind.QPARAMS)
    assert first.node.clipped_high > 0.1
    assert first.node.gain_db > 3


def test_a_gain_is_what_a_run_with_that_result_exchanged_has():
    (feeds,) = batches(1, 4)
    sick = target()
    units = Units.of(sick)
    gains = dict(each_gain(sick, units, feeds))
    unit, last = units.by_value["relu_dense1_quantized"], units.by_value["logits"]
    with get_backend("ort-cpu").prepare(sick.original) as run:
        wanted = run.run(feeds)["logits"].astype(np.float64)
    with machine().prepare(sick.quantized, taps=unit.feeds) as run:
        seen = run.run(feeds)
    weight, bias = (
        sick.original.graph.initializers[name].const_value.numpy()
        for name in _operands(sick, "dense1")
    )
    front = units.by_value[unit.feeds[0]].reals(seen[unit.feeds[0]])
    exact = np.maximum(front @ weight + bias, 0)
    (levels, scales, points), bias = (
        [constant_behind(sick.quantized, "dense2", 1, part)[1] for part in range(3)],
        _operands(sick, "dense2")[1],
    )
    weight = (levels.astype(np.float64) - points) * scales
    after = exact @ weight + sick.original.graph.initializers[bias].const_value.numpy()
    noise = np.square(wanted - seen["logits"]).sum() / np.square(wanted - after).sum()
    assert last.feeds == (unit.value,)
    assert gains[unit.value] == pytest.approx(10 * np.log10(noise), abs=0.02)


def _operands(sick, name):
    (node,) = (one for one in sick.original.graph if one.name == name)
    assert "transB" not in node.attributes
    return node.inputs[1].name, node.inputs[2].name


def test_a_real_engine_is_not_tapped_and_its_answers_stand_beside_the_watched_ones():
    found = examine(target(get_backend("ort-cpu-precise")), batches(1))
    assert found.outputs.elements == 160
    assert found.outputs.differing == 0
    assert all(node.claimed.differing == 0 for node in found.nodes)


def test_captured_numbers_are_those_of_the_run():
    sick = target(machine(skips_last_row("conv2")), claims=machine())
    (feeds,) = batches(1, 4)
    nodes = [node for node in examine(sick, [feeds]).nodes if node.node == "conv2"]
    (one,) = capture(sick, nodes, feeds)
    assert (one.found == one.again).all()
    rounded = one.unit.rounded(one.real)
    assert (one.found[:, :, :-1] == rounded[:, :, :-1]).all()
    assert (one.found[:, :, -1] != rounded[:, :, -1]).any()
    assert one.expected.shape == one.found.shape
    assert one.crash == ""


class Crashing(Closing):
    """An executor that fails on whatever has a convolution in it."""

    def __init__(self, executor, model):
        self.executor = executor
        self.sick = len(model.graph) < 12 and any(node.name == "conv2" for node in model.graph)

    def run(self, feeds):
        if self.sick:
            raise InputError(
                "Running it", found="a broken kernel", expected="none", remedy="Mend it."
            )
        return self.executor.run(feeds)

    def close(self):
        self.executor.close()


def test_an_engine_that_fails_on_a_node_alone_is_the_first_suspect():
    engine = get_backend("ort-cpu-precise")

    class Sick:
        name, capabilities, packages = engine.name, engine.capabilities, engine.packages

        def prepare(self, model, *, taps=(), threads=1):
            return Crashing(engine.prepare(model, taps=taps, threads=threads), model)

    found = examine(target(Sick()), batches(1))
    assert found.crashes == {
        "relu2_quantized": "'ort-cpu-precise' fails on it alone: a broken kernel"
    }
    first = rank_nodes(found)[0]
    assert (first.node.node, first.excess) == ("conv2", AnomalyKind.CRASH)


def test_other_outputs_than_the_float_graph_are_refused():
    model = quantized()
    model.graph.outputs[0].name = "scores"
    with pytest.raises(InputError, match="outputs scores"):
        examine(target(model=model), batches(1))


def test_a_value_that_fp32_has_not_is_listed(words):
    sick = target()
    original = sick.original.clone()
    for node in original.graph:
        if node.name == "pool":
            node.name = "pooling"
            node.outputs[0].name = "pooled"
    found = examine(replace(sick, original=original), batches(1))
    values = {one.value: one.reason for one in found.unaligned}
    assert set(values) == {"pool_quantized", "flatten_quantized"}
    words(values["pool_quantized"])
    node = next(one for one in found.nodes if one.node == "pool")
    assert node.cumulative is None
    assert node.counting.differing == 0


def test_a_task_drives_it_as_any_executor():
    subject = digits().subject
    (data,) = subject.data.values()
    samples = digits().samples(data)
    few = replace(samples, ids=samples.ids[:20], labels=samples.labels[:20])
    with (
        Examination(target()) as examination,
        get_backend("ort-cpu").prepare(digits().planned()["model"]) as run,
    ):
        answers = subject.model.task.answer({"model": examination}, few)
        plain = subject.model.task.answer({"model": run}, few)
        assert examination.examined().samples == 20
    assert answers.digest == plain.digest


TWO_HEADS = """<ir_version: 10, opset_import: ["" : 21]>
heads (float[n,4] x) => (float[n,3] small, float[n,3] large) {
  [first] a = MatMul(x, w1)
  [relu] b = Relu(a)
  [second] small = MatMul(b, w2)
  [third] c = MatMul(x, w3)
  [relu3] d = Relu(c)
  [fourth] large = MatMul(d, w4)
}"""


def with_weights(text, **shapes):
    """The text's model with random constants of these shapes, times a factor."""
    random = np.random.default_rng(1)
    written = []
    for name, (factor, *shape) in shapes.items():
        values = ", ".join(
            repr(float(one)) for one in (factor * random.normal(size=shape)).ravel().round(4)
        )
        written.append(f"float{shape} {name} = {{{values}}}")
    return ir.from_onnx_text(text.replace(" {", f" <{', '.join(written)}> {{", 1))


def patient_of(model, schema="w8a8_asym_pc", *, feeds):
    original = canonicalize(model)
    plan = make_plan(
        original, calibrate(original, [feeds]), schema, capabilities=machine().capabilities
    )
    planned = plannable(original)
    return Target(
        model="made",
        original=planned,
        quantized=insert_qdq(planned, plan),
        backend=machine(),
        watched=machine(),
    )


def numbers(count, *shape):
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)


def test_a_small_head_counts_as_much_as_a_large_one():
    feeds = {"x": numbers(16, 4)}
    model = with_weights(TWO_HEADS, w1=(1, 4, 8), w2=(1, 8, 3), w3=(1, 4, 8), w4=(1000, 8, 3))
    sick = patient_of(model, feeds=feeds)
    (scale,) = (
        value
        for name, value in sick.quantized.graph.initializers.items()
        if name.startswith("b_scale")
    )
    put(scale, scale.const_value.numpy() / np.float32(16))
    units = Units.of(sick)
    gains = dict(each_gain(sick, units, feeds))
    assert max(gains, key=gains.get) == "b_quantized"
    assert gains["b_quantized"] > 6


CHAIN = """<ir_version: 10, opset_import: ["" : 21]>
chain (float[{batch},2,6,6] x) => (float[{batch},1] y) {{
  [conv] a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
  [relu] b = Relu(a)
  [flat] c = Flatten(b)
  [fc] y = MatMul(c, v)
}}"""


def chain(batch, feeds):
    return patient_of(
        with_weights(CHAIN.format(batch=batch), w=(0.3, 3, 2, 3, 3), v=(0.1, 108, 1)), feeds=feeds
    )


def test_an_output_of_one_number_a_sample_is_no_suspect():
    feeds = {"x": numbers(5, 2, 6, 6)}
    found = examine(chain("n", feeds), [{"x": one[None]} for one in feeds["x"]])
    assert not rank_nodes(found)
    assert all(node.counting.beyond == 0 for node in found.nodes)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(("batch", "count"), [(1, 6), (4, 6), (4, 2)])
def test_graphs_of_a_fixed_batch(batch, count):
    feeds = {"x": numbers(count, 2, 6, 6)}
    given = {"x": numbers(batch, 2, 6, 6)}
    sick = chain(batch, given)
    with (
        Examination(sick) as examination,
        get_backend("ort-cpu").prepare(chain("n", feeds).original) as free,
    ):
        answered = examination.run(feeds)
        found = examination.examined()
        np.testing.assert_allclose(answered["y"], free.run(feeds)["y"], rtol=1e-4, atol=1e-5)
    assert found.samples == count
    assert all(
        one.excess is AnomalyKind.QPARAMS for one in rank_nodes(found)
    )  # other samples than it was calibrated on
    gains = dict(each_gain(sick, Units.of(sick), feeds))
    assert set(gains) == {"b_quantized", "c_quantized", "y"}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(("batch", "count"), [(1, 6), (4, 6), (4, 2)])
def test_nodes_of_a_fixed_batch_are_captured_on_all_samples(batch, count):
    sick, feeds = chain(batch, {"x": numbers(batch, 2, 6, 6)}), {"x": numbers(count, 2, 6, 6)}
    nodes = [node for node in examine(sick, [feeds]).nodes if node.node == "conv"]
    (one,) = capture(sick, nodes, feeds)
    assert one.crash == ""
    assert len(one.found) == len(one.expected) == count
    assert (one.found == one.again).all()


@pytest.mark.parametrize("schema", ["w4a8_sym_b16", "w8a8_sym_pc_pow2"])
def test_weights_in_blocks_are_explained_by_their_blocks(schema):
    feeds = {"x": numbers(8, 2, 6, 6)}
    sick = patient_of(
        with_weights(CHAIN.format(batch="n"), w=(0.3, 3, 2, 3, 3), v=(0.1, 108, 1)),
        schema,
        feeds=feeds,
    )
    assert all(one.excess is AnomalyKind.QPARAMS for one in rank_nodes(examine(sick, [feeds])))


def test_infinite_numbers_are_counted_and_stay_out_of_sums():
    one, other = ErrorTally(), CountingTally()
    x = np.array([1, 2, np.inf, np.nan, -3.4e38], np.float32)
    y = np.array([1.5, 2, np.inf, 4, -3.4e38], np.float32)
    one.add(x, y)
    other.add(y[:4], x[:4], None)
    assert one.noise == pytest.approx(0.25)
    assert np.isfinite(one.errors(None).relative)
    assert other.differing == 2
    assert other.beyond == 2
    assert np.isfinite(other.errors().rms_steps)
    same = CountingTally()
    same.add(x, x, None)
    assert same.differing == 0
    ties = TieTally()
    ties.add(np.array([0.5, np.inf, -np.inf, np.nan, 2.0], np.float32))
    assert (ties.ties, ties.elements) == (1, 5)


def test_of_several_ruined_nodes_each_is_a_suspect():
    model = quantized()
    for node in ("conv1", "conv2", "dense1"):
        value, levels = constant_behind(model, node, 1, 0)
        put(value, np.sign(levels).astype(levels.dtype) * 4)
        scale, sizes = constant_behind(model, node, 1, 1)
        put(scale, sizes / np.float32(8))
    found = examine(target(model=model), batches(1))
    assert {one.node.node for one in rank_nodes(found)} >= {"conv1", "conv2", "dense1"}


def test_a_unit_whose_grids_are_computed_at_run_time_is_not_explained():
    found = examine(target(schema="w8a8_asym_pc_dyn"), batches(1))
    assert [one.node for one in found.nodes] == [
        "conv1",
        "conv2",
        "dense1",
        "dense2",
    ]  # not one unit of all
    assert all(one.explained is None and one.isolated is not None for one in found.nodes)
    assert found.unaligned == ()
    assert not rank_nodes(found)


BIAS_OF_ONE_ROW = """
<ir_version: 10, opset_import: ["": 21]>
net (float[n, 2] x) => (float[n, 2] y)
<int8[2, 2] wq = {1, 2, 3, 4}, int32[1, 2] bq = {5, 6}, float[2] s = {0.5, 2.0}>
{
    w = DequantizeLinear <axis = 1> (wq, s)
    b = DequantizeLinear <axis = 0> (bq, s)
    y = Gemm(x, w, b)
}
"""


def test_the_exact_run_takes_the_axis_that_the_scales_of_a_bias_fit():
    """ONNX Runtime's quantizer writes axis 0 for a bias of one row, which its own operator for
    DequantizeLinear refuses.
    """
    model = ir.from_onnx_text(BIAS_OF_ONE_ROW)
    with exact_run(model) as run:
        (y,) = run.run({"x": np.ones((1, 2), np.float32)}).values()
    np.testing.assert_array_equal(y, [[0.5 * (1 + 3 + 5), 2.0 * (2 + 4 + 6)]])
    assert model.graph[1].attributes["axis"].value == 0

"""Bias correction: means of every unit meet those of the float graph;
what is not asked for stays as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from quantization_subjects import SUBJECTS, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate, units_of
from qbench.errors import InputError
from qbench.graph import (
    check_convention,
    constant_value,
    graph_digest,
    model_bytes,
    node_key,
    values_by_name,
)
from qbench.passes import plannable
from qbench.quantization import (
    BiasCorrection,
    BiasKind,
    BiasSpec,
    Plan,
    Role,
    Rule,
    Schema,
    Spec,
    bias_correction_of,
    correct_biases,
    get_schema,
    load_plan,
    make_plan,
    quantize_model,
    save_plan,
)
from qbench.quantization.bias_correction import BiasPlace, move_bias

Array = np.ndarray
ENGINE = get_backend("ort-cpu-noopt")


def means_of(
    model: ir.Model, axes: Mapping[str, int], batches: list[dict[str, Array]]
) -> dict[str, Array]:
    """By one run of the whole graph and plain float64 means: knows nothing of pieces."""
    found: dict[str, list[Array]] = {name: [] for name in axes}
    with ENGINE.prepare(model, taps=list(axes)) as executor:
        for feeds in batches:
            results = executor.run(feeds)
            for name, axis in axes.items():
                array = np.moveaxis(results[name].astype(np.float64), axis, -1)
                found[name].append(array.reshape(-1, array.shape[-1]))
    return {name: np.concatenate(parts).mean(axis=0) for name, parts in found.items()}


def results_of_units(model: ir.Model, plan: Plan) -> dict[str, tuple[int, str]]:
    """Value before the clip → (axis of channels, unit) for the units whose weights are on grids."""
    weighted = {slot.node for slot in plan.constants if slot.role is Role.WEIGHT}
    return {
        str((unit.bias or unit.head).outputs[0].name): (
            1 if "Conv" in unit.head.op_type else -1,
            unit.name,
        )
        for unit in units_of(plannable(model, plan.canonical).graph)
        if unit.name in weighted
        and unit.head.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")
    }


def step_of(plan: Plan, unit: str) -> float:
    """The largest step of the grid of the unit's products, on which its bias stands."""
    value = next(
        slot.value for slot in plan.decisions if (slot.node, slot.role) == (unit, Role.INPUT)
    )
    weight = next(
        q for slot, q in plan.constants.items() if (slot.node, slot.role) == (unit, Role.WEIGHT)
    )
    return float(plan.values[value].scale) * float(np.max(weight.scale))


def coarse(bias: BiasSpec | None = None, canonical: str = "default", **more: Any) -> Schema:
    """Weights of four bits a tensor, so that there is something to correct."""
    rule = Rule(
        activation=Spec(qtype="uint8", symmetry="asymmetric"),
        weight=Spec(qtype="int4", symmetry="symmetric"),
        **({} if bias is None else {"bias": bias}),
        **more,
    )
    return Schema(name="coarse", rules=(rule,), canonical=canonical)


def batches_of(model: ir.Model, count: int = 3) -> list[dict[str, Array]]:
    """Samples whose means are not zero, as pictures' are not."""
    return [
        {k: a + np.float32(0.5) for k, a in feeds_of(model, seed=i, rows=5 + i).items()}
        for i in range(count)
    ]


def planned(
    model: ir.Model, schema: Schema, batches: list[dict[str, Array]]
) -> tuple[Plan, ir.Model]:
    plan = make_plan(model, calibrate(model, batches, pipeline=schema.canonical), schema)
    assert not plan.refusals
    return plan, quantize_model(model, plan)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("name", ["conv_relu", "residual", "depthwise", "pooled_concat"])
@pytest.mark.parametrize("canonical", ["default", "split_bias", "equalized", "fold_after"])
def test_behind_corrected_predecessors_every_mean_is_that_of_the_float_graph(
    name: str, canonical: str
) -> None:
    model = SUBJECTS[name]()
    batches = batches_of(model)
    plan, quantized = planned(model, coarse(canonical=canonical), batches)
    before = graph_digest(quantized)
    corrected = correct_biases(model, quantized, plan, batches)
    assert graph_digest(quantized) == before != graph_digest(corrected)
    onnx.checker.check_model(onnx.load_model_from_string(model_bytes(corrected)), full_check=True)
    assert check_convention(corrected) == ()
    units = results_of_units(model, plan)
    axes = {value: axis for value, (axis, _) in units.items()}
    real = means_of(plannable(model, canonical), axes, batches)
    was, now = means_of(quantized, axes, batches), means_of(corrected, axes, batches)
    for value, (_, unit) in units.items():
        room = 0.51 * step_of(plan, unit) + 2e-6 * max(np.abs(real[value]).max(), 1)
        np.testing.assert_allclose(now[value], real[value], atol=room, rtol=0, err_msg=value)
    assert any(
        np.abs(was[value] - real[value]).max() > 3 * step_of(plan, unit)
        for value, (_, unit) in units.items()
    )
    report = bias_correction_of(corrected)
    assert report == BiasCorrection(len(units), 18)
    assert str(report) == f"{len(units)} biases corrected on 18 samples"
    assert bias_correction_of(quantized) is None


def test_one_unit_by_hand() -> None:
    model = model_of(
        "float[N,2] x",
        "float[N,3] z",
        "y = Gemm<transB=1>(x, w, b) z = Relu(y)",
        w=np.array([[1.0, 0.1], [0.3, -0.2], [-0.7, 0.45]], np.float32),
        b=np.array([0.5, -0.25, 0.125], np.float32),
    )
    x = np.array([[1, 2], [3, 0.5], [0.25, 4], [2, 2]], np.float32)
    plan, quantized = planned(model, coarse(), [{"x": x}])
    corrected = correct_biases(model, quantized, plan, [{"x": x}])
    weight = next(q for s, q in plan.constants.items() if s.role is Role.WEIGHT)
    grid = plan.values["x"]
    assert float(weight.scale) == pytest.approx(1 / 7)
    rounded = np.rint(
        np.array([[1.0, 0.1], [0.3, -0.2], [-0.7, 0.45]]) / float(weight.scale)
    ) * float(weight.scale)
    seen = (np.rint(x / float(grid.scale)) * float(grid.scale)).astype(np.float64)
    product = float(weight.scale) * float(grid.scale)
    integers = np.rint(np.array([0.5, -0.25, 0.125]) / product)
    error = (seen @ rounded.T + integers * product).mean(axis=0) - (
        x.astype(np.float64) @ np.array([[1.0, 0.1], [0.3, -0.2], [-0.7, 0.45]]).T
        + [0.5, -0.25, 0.125]
    ).mean(axis=0)
    bias = _integers(corrected, "bias")
    np.testing.assert_array_equal(bias, integers - np.rint(error / product))
    assert not np.array_equal(bias, integers)


def _integers(model: ir.Model, slot: str) -> Array:
    """What stands at the third operand of the graph's only Gemm or Conv."""
    head = next(node for node in model.graph if node.op_type in ("Gemm", "Conv"))
    operand = head.inputs[{"bias": 2, "weight": 1}[slot]]
    assert operand is not None
    maker = operand.producer()
    found = constant_value(operand if maker is None else maker.inputs[0])
    assert found is not None
    return found.astype(np.int64) if maker is not None else found


PLAIN = "c = Conv(x, w) y = Relu(c)"


def bare(body: str = PLAIN, **more: Array) -> ir.Model:
    return model_of("float[N,3,6,6] x", "float[N,4,H,W] y", body, w=weights(0, 4, 3, 3, 3), **more)


def test_a_bias_that_is_not_there_is_made_on_the_product_s_grid() -> None:
    model = bare()
    batches = batches_of(model)
    plan, quantized = planned(model, coarse(), batches)
    corrected = correct_biases(model, quantized, plan, batches)
    conv = next(node for node in corrected.graph if node.op_type == "Conv")
    dequantize = conv.inputs[2].producer()
    assert dequantize.op_type == "DequantizeLinear"
    assert dequantize.inputs[0].dtype == ir.DataType.INT32
    weight = next(q for s, q in plan.constants.items() if s.role is Role.WEIGHT)
    expected = np.float32(plan.values["x"].scale) * weight.scale
    np.testing.assert_array_equal(constant_value(dequantize.inputs[1]), expected)
    assert check_convention(corrected) == ()
    onnx.checker.check_model(onnx.load_model_from_string(model_bytes(corrected)), full_check=True)
    real = means_of(plannable(model), {"c": 1}, batches)["c"]
    np.testing.assert_allclose(
        means_of(corrected, {"c": 1}, batches)["c"], real, atol=float(expected) + 1e-5
    )
    with get_backend("ort-cpu").prepare(corrected) as executor:  # the integer kernel takes it
        assert executor.run(batches[0])["y"].shape == (5, 4, 4, 4)


@pytest.mark.parametrize("with_bias", [False, True])
def test_weights_alone_on_a_grid_get_a_bias_in_float(with_bias: bool) -> None:
    model = bare("c = Conv(x, w, b) y = Relu(c)", b=weights(1, 4)) if with_bias else bare()
    batches = batches_of(model)
    plan, quantized = planned(model, get_schema("w4_sym_pt"), batches)
    corrected = correct_biases(model, quantized, plan, batches)
    bias = _integers(corrected, "bias")
    assert bias.dtype == np.float32
    real, was = (means_of(m, {"c": 1}, batches)["c"] for m in (plannable(model), quantized))
    np.testing.assert_allclose(
        bias, (weights(1, 4) if with_bias else 0) + real - was, rtol=1e-5, atol=1e-6
    )
    assert "b" not in corrected.graph.initializers


@pytest.mark.parametrize("bits", [8, 9, 16, 32])
def test_a_bias_on_its_own_grid_moves_in_its_own_steps(bits: int) -> None:
    model = bare("c = Conv(x, w, b) y = Relu(c)", b=weights(1, 4))
    batches = batches_of(model)
    spec = BiasSpec(kind=BiasKind.OWN, qtype=f"int{bits}")
    plan, quantized = planned(model, coarse(bias=spec), batches)
    corrected = correct_biases(model, quantized, plan, batches)
    grid = next(q for s, q in plan.constants.items() if s.role is Role.BIAS)
    levels, before = _integers(corrected, "bias"), _integers(quantized, "bias")
    real, was = (means_of(m, {"c": 1}, batches)["c"] for m in (plannable(model), quantized))
    ends = (max(grid.qmin, -(2**30)), min(grid.qmax, 2**30))
    wanted = before + np.rint((real - was) / np.asarray(grid.scale, np.float64))
    np.testing.assert_allclose(
        levels, np.clip(wanted, *ends), atol=1 if bits == 32 else 0, rtol=1e-6
    )
    saturated = int(((wanted < ends[0]) | (wanted > ends[1])).sum())
    assert bias_correction_of(corrected) == BiasCorrection(1, 18, saturated)


def test_one_bias_for_all_channels_becomes_one_a_channel() -> None:
    model = model_of(
        "float[N,6] x",
        "float[N,3] y",
        "y = Gemm(x, w, b)",
        w=weights(0, 6, 3),
        b=np.array([0.5], np.float32),
    )
    batches = batches_of(model)
    plan, quantized = planned(model, coarse(), batches)
    corrected = correct_biases(model, quantized, plan, batches)
    assert _integers(corrected, "bias").shape == (3,)
    means = [means_of(m, {"y": -1}, batches)["y"] for m in (plannable(model), corrected)]
    ((_, unit),) = results_of_units(model, plan).values()
    np.testing.assert_allclose(means[1], means[0], atol=0.51 * step_of(plan, unit) + 1e-6)


def test_matrix_products_and_what_is_left_alone() -> None:
    model = model_of(
        "float[N,5,6] x, float[K,4] e",
        "float[N,5,4] y",
        "p = MatMul(x, w) s = Add(p, b) r = Relu(s) y = MatMul(r, v)",
        w=weights(0, 6, 7),
        b=weights(1, 7),
        v=weights(2, 7, 4),
    )
    batches = [{"x": f["x"], "e": f["e"]} for f in batches_of(model)]
    plan, quantized = planned(model, coarse(), batches)
    corrected = correct_biases(model, quantized, plan, batches)
    assert bias_correction_of(corrected) == BiasCorrection(1, 18)
    assert [n.op_type for n in corrected.graph] == [n.op_type for n in quantized.graph]
    ((_, unit),) = (found for value, found in results_of_units(model, plan).items() if value == "s")
    real, now = (means_of(m, {"s": -1}, batches)["s"] for m in (plannable(model), corrected))
    np.testing.assert_allclose(now, real, atol=0.51 * step_of(plan, unit) + 1e-6)
    computed = model_of(
        "float[N,6] x, float[7] c", "float[N,7] y", "y = Gemm(x, w, c)", w=weights(0, 6, 7)
    )
    feeds = [{"x": f["x"], "c": np.ones(7, np.float32)} for f in batches_of(computed)]
    plan, quantized = planned(computed, coarse(), feeds)
    assert graph_digest(correct_biases(computed, quantized, plan, feeds)) == graph_digest(quantized)


def test_a_unit_in_float_keeps_its_bias() -> None:
    model = SUBJECTS["conv_relu"]()
    batches = batches_of(model)
    schema = coarse()
    schema = replace(schema, rules=(Rule(operators=("Conv",), first=1), *schema.rules))
    plan, quantized = planned(model, schema, batches)
    corrected = correct_biases(model, quantized, plan, batches)
    assert bias_correction_of(corrected) == BiasCorrection(1, 18)
    np.testing.assert_array_equal(
        constant_value(corrected.graph.initializers["b"]),
        constant_value(model.graph.initializers["b"]),
    )


@dataclass(frozen=True)
class Counting:
    """A backend that notes the size and the inputs of everything it is asked to run."""

    nodes: list[int] = field(default_factory=list)
    inputs: list[set[str]] = field(default_factory=list)
    outputs: list[set[str]] = field(default_factory=list)
    name: str = "counting"
    capabilities: Any = ENGINE.capabilities
    packages: tuple[str, ...] = ()

    def prepare(self, model: ir.Model, *, taps: tuple[str, ...] = (), threads: int = 1) -> Any:
        self.nodes.append(sum(node.op_type != "DequantizeLinear" for node in model.graph))
        self.inputs.append({str(v.dtype) for v in model.graph.inputs})
        self.outputs.append({str(v.name) for v in model.graph.outputs})
        return ENGINE.prepare(model, taps=taps, threads=threads)


def deep(count: int) -> ir.Model:
    body = "\n".join(f"c{i} = Conv(r{i}, w{i}, b{i}) r{i + 1} = Relu(c{i})" for i in range(count))
    constants = {f"w{i}": weights(i, 4, 4, 1, 1) for i in range(count)} | {
        f"b{i}": weights(i, 4) for i in range(count)
    }
    return model_of("float[N,4,5,5] r0", f"float[N,4,5,5] r{count}", body, **constants)


@pytest.mark.parametrize("count", [4, 12])
def test_every_node_runs_twice_at_most_and_only_integers_are_kept(count: int) -> None:
    model = deep(count)
    batches = batches_of(model)
    plan, quantized = planned(model, get_schema("w8a8_asym_pt"), batches)
    counting = Counting()
    correct_biases(model, quantized, plan, batches, backend=counting)
    pieces = counting.nodes[1:]
    assert len(pieces) == count
    operators = sum(node.op_type != "DequantizeLinear" for node in quantized.graph)
    assert sum(pieces) <= 2 * operators
    assert max(pieces) <= 4
    assert all(types == {"UINT8"} for types in counting.inputs[2:])
    assert all(len(names) <= 2 for names in counting.outputs[1:])


def test_the_size_of_batches_and_a_fixed_one_do_not_matter() -> None:
    model = SUBJECTS["depthwise"]()
    fixed = model.clone()
    for value in (*fixed.graph.inputs, *fixed.graph.outputs):
        value.shape = ir.Shape([2 if i == 0 else d for i, d in enumerate(value.shape)])
    (feeds,) = batches_of(model, 1)
    feeds = {k: np.concatenate([a, a[:1]]) for k, a in feeds.items()}
    plan, quantized = planned(model, coarse(), [feeds])
    whole = correct_biases(model, quantized, plan, [feeds])
    singly = correct_biases(
        model, quantized, plan, [{k: a[i : i + 1] for k, a in feeds.items()} for i in range(6)]
    )
    plan, quantized = planned(fixed, coarse(), [feeds])
    sliced = correct_biases(fixed, quantized, plan, [feeds])
    for other in (singly, sliced):
        for name, value in whole.graph.initializers.items():
            np.testing.assert_allclose(
                np.asarray(constant_value(other.graph.initializers[name]), np.float64),
                np.asarray(constant_value(value), np.float64),
                atol=1,
                err_msg=name,
            )


def test_grids_of_four_bits_do_not_leave_the_engine() -> None:
    model = SUBJECTS["residual"]()
    batches = batches_of(model)
    plan, quantized = planned(model, get_schema("w8a4_asym_pt"), batches)
    corrected = correct_biases(model, quantized, plan, batches)
    units = results_of_units(model, plan)
    axes = {value: axis for value, (axis, _) in units.items()}
    real, now = (means_of(m, axes, batches) for m in (plannable(model), corrected))
    for value, (_, unit) in units.items():
        np.testing.assert_allclose(now[value], real[value], atol=0.51 * step_of(plan, unit) + 1e-5)


def test_branches_inside_an_if_are_read_too() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[N,3,6,6] x, bool go, float[4,3,1,1] w, float[4] b, float[4,4,1,1] v)
          => (float[N,4,6,6] y)
        { c = Conv(x, w, b)
          r = Relu(c)
          k = If (go) <then_branch = then_graph () => (float[N,4,6,6] t) { t = Add(r, r) },
                       else_branch = else_graph () => (float[N,4,6,6] e) { e = Neg(r) }>
          y = Conv(k, v, b) }"""
    )
    for name, array in (
        ("w", weights(0, 4, 3, 1, 1)),
        ("b", weights(1, 4)),
        ("v", weights(2, 4, 4, 1, 1)),
    ):
        value = values_by_name(model)[name]
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(array, name=name)
        model.graph.register_initializer(value)
    batches = [{"x": f["x"], "go": np.array(True)} for f in batches_of_x(model)]
    plan, quantized = planned(model, coarse(operators=("Conv",)), batches)
    corrected = correct_biases(model, quantized, plan, batches)
    assert bias_correction_of(corrected) == BiasCorrection(2, 8)
    axes = {"c": 1, "y": 1}
    real, now = (means_of(m, axes, batches) for m in (plannable(model), corrected))
    for value, (_, unit) in results_of_units(model, plan).items():
        np.testing.assert_allclose(now[value], real[value], atol=0.51 * step_of(plan, unit) + 1e-5)


def batches_of_x(model: ir.Model) -> list[dict[str, Array]]:
    return [
        {"x": np.random.default_rng(i).normal(size=(4, 3, 6, 6)).astype(np.float32) + 1}
        for i in range(2)
    ]


def test_a_bias_that_is_made_leaves_half_of_int32_to_the_products() -> None:
    model = bare()
    plan, quantized = planned(model, coarse(), batches_of(model))
    node = next(node for node in quantized.graph if node.op_type == "Conv")
    weight = next(
        q
        for slot, q in plan.constants.items()
        if (slot.node, slot.role) == (node_key(node), Role.WEIGHT)
    )
    scale = float(plan.values["x"].scale) * float(weight.scale)
    array = constant_value(node.inputs[1].producer().inputs[0])
    assert array is not None
    shift = np.zeros(len(array))
    shift[:3] = scale * np.array([1.5 * 2.0**30, -(2.0**40), 2.0**20])
    saturated = move_bias(
        quantized, node, BiasPlace(node_key(node), node_key(node), 2), plan, shift
    )
    integers = constant_value(node.inputs[2].producer().inputs[0])
    assert integers is not None
    assert saturated == 2
    assert integers[:3].tolist() == [2**30, -(2**30), 2**20]


def test_a_plan_tells_that_biases_are_corrected(tmp_path: Path) -> None:
    model = bare()
    batches = batches_of(model)
    plain = make_plan(model, calibrate(model, batches), coarse())
    plan = make_plan(model, calibrate(model, batches), replace(coarse(), bias_correction=True))
    sentence = "biases are corrected on samples once it is written"
    assert sentence in plan.lines()
    assert sentence not in plain.lines()
    assert plain.diff(plan) == [f"+ biases: {sentence}"]
    assert plain != plan
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan


def test_corrected_once_more_hardly_anything_moves() -> None:
    model = SUBJECTS["depthwise"]()
    batches = batches_of(model)
    plan, quantized = planned(model, coarse(), batches)
    once = correct_biases(model, quantized, plan, batches)
    twice = correct_biases(model, once, plan, batches)
    for first, second in zip(_biases(once), _biases(twice), strict=True):
        np.testing.assert_allclose(second, first, atol=1, rtol=0)
    bare_plan, bare_model = planned(bare(), coarse(), batches_of(bare()))
    made = correct_biases(bare(), bare_model, bare_plan, batches_of(bare()))
    again = correct_biases(bare(), made, bare_plan, batches_of(bare()))
    np.testing.assert_allclose(_integers(again, "bias"), _integers(made, "bias"), atol=1, rtol=0)


def _biases(model: ir.Model) -> list[Array]:
    operands = [
        node.inputs[2].producer().inputs[0]
        for node in model.graph
        if node.op_type in ("Conv", "Gemm")
    ]
    return [np.asarray(constant_value(operand), np.int64) for operand in operands]


def test_bad_input_is_a_sentence() -> None:
    model = bare()
    batches = batches_of(model)
    plan, quantized = planned(model, coarse(), batches)
    with pytest.raises(InputError, match=r"no samples.*at least one batch"):
        correct_biases(model, quantized, plan, [])
    with pytest.raises(InputError, match="a model that this plan was not written into"):
        correct_biases(model, model, plan, batches)
    other, _ = planned(model, get_schema("w8a8_asym_pc"), batches)
    with pytest.raises(InputError, match="a model that this plan was not written into"):
        correct_biases(model, quantized, other, batches)
    broken = [{"x": np.full((2, 3, 6, 6), np.nan, np.float32)}]
    with pytest.raises(
        InputError,
        match=r"Correcting the bias of '.*': found results that are not finite on average",
    ):
        correct_biases(model, quantized, plan, broken)

"""Operators of an engine that quantize inside themselves: what they say is noted, and they are
measured as they are.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from quantization_subjects import model_of, weights

from qbench.backends import get_backend
from qbench.cli import main
from qbench.graph import Form, form_of, load_model, node_key, node_macs
from qbench.numerics import dequantize
from qbench.quantization import (
    Dynamic,
    Given,
    Plan,
    is_quantized,
    qparams_of,
    quantize_model,
    read_plan,
)
from qbench.subjects.samples import BATCH

STEPS, FEATURES, UNITS, CLASSES = 5, 6, 8, 3


def recurrent(directions: int = 1) -> ir.Model:
    """(N, steps, features) → the last state of an LSTM → classes."""
    word = ("forward", "bidirectional")[directions - 1]
    return model_of(
        f"float[N,{STEPS},{FEATURES}] x",
        f"float[N,{CLASSES}] z",
        f"""t = Transpose<perm=[1,0,2]>(x)
        y, h, c = LSTM<hidden_size={UNITS}, direction="{word}">(t, w, r, b)
        m = ReduceSum<keepdims=0>(h, axes)
        z = MatMul(m, f)""",
        w=weights(0, directions, 4 * UNITS, FEATURES),
        r=weights(1, directions, 4 * UNITS, UNITS),
        b=weights(2, directions, 8 * UNITS),
        f=weights(3, UNITS, CLASSES),
        axes=np.array([0], np.int64),
    )


def dynamically(folder: Path, model: ir.Model, **options: Any) -> ir.Model:
    ir.save(model, folder / "float.onnx")
    quantization.quantize_dynamic(folder / "float.onnx", folder / "int8.onnx", **options)
    return load_model(folder / "int8.onnx")


def slots_of(plan: Plan, node: str) -> dict[str, Any]:
    return {f"{s.role.value}[{s.index}]": d for s, d in plan.decisions.items() if s.node == node}


@pytest.mark.parametrize(("directions", "per_channel"), [(1, False), (2, False), (1, True)])
def test_an_lstm_with_parameters_at_run_time_is_noted(
    directions: int, per_channel: bool, tmp_path: Path
) -> None:
    model = dynamically(tmp_path, recurrent(directions), per_channel=per_channel)
    (node,) = (n for n in model.graph if n.op_type == "DynamicQuantizeLSTM")
    plan = read_plan(model)
    slots = slots_of(plan, node_key(node))
    assert isinstance(slots["input[0]"], Dynamic)
    constants = {
        name: value.const_value.numpy() for name, value in model.graph.initializers.items()
    }  # type: ignore[union-attr]
    for index, float_weights in ((1, weights(0, directions, 4 * UNITS, FEATURES)), (2, None)):
        decision = slots[f"weight[{index}]"]
        assert isinstance(decision, Given)
        stored = constants[str(node.inputs[index].name)]  # type: ignore[union-attr]
        if float_weights is not None:
            real = dequantize(stored, decision.qparams).transpose(0, 2, 1)
            assert np.abs(real - float_weights).max() <= 0.51 * decision.qparams.scale.max()
    assert plan.integer_macs == 1.0
    assert plan.refusals == ()
    assert is_quantized(model)
    # both count the same: steps · (|W| + |R|), and the layer behind it
    per_sample = STEPS * directions * 4 * UNITS * (FEATURES + UNITS)
    before = recurrent(directions)
    (lstm,) = (n for n in before.graph if n.op_type == "LSTM")
    assert node_macs(before)[node_key(lstm)] == node_macs(model)[node_key(node)] == per_sample


def test_an_lstm_that_came_quantized_is_measured_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dynamically(tmp_path, recurrent())
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, STEPS, FEATURES)).astype(np.float32)
    found = {}
    for name in ("float", "int8"):
        with get_backend("ort-cpu").prepare(tmp_path / f"{name}.onnx") as executor:
            # parameters at run time are those of a batch: the same batches, then
            parts = [executor.run({"x": x[at : at + BATCH]})["z"] for at in range(0, len(x), BATCH)]
            found[name] = np.concatenate(parts).argmax(axis=1)
    np.savez(tmp_path / "test.npz", x=x, y=found["float"])
    arguments = ["--data", str(tmp_path / "test.npz"), "--cache", str(tmp_path / "cache"), "--json"]
    assert (
        main(
            [
                "eval",
                str(tmp_path / "int8.onnx"),
                "--fp32",
                str(tmp_path / "float.onnx"),
                *arguments,
            ]
        )
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    scores = {score["metric"]: score for score in facts["quantized"]["scores"]}
    same = int((found["int8"] == found["float"]).sum())
    assert (scores["top1"]["hits"], scores["agreement"]["hits"]) == (same, same)
    assert scores["top1"]["losses"] == 200 - same
    assert facts["quantized"]["integer_macs"] == 1.0


@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_in_blocks_of_bits_are_unpacked(symmetric: bool, tmp_path: Path) -> None:
    weight = weights(0, 64, 6)
    model = model_of("float[N,64] x", "float[N,6] z", "z = MatMul(x, w)", w=weight)
    quantizer = MatMulNBitsQuantizer(ir.to_proto(model), block_size=32, is_symmetric=symmetric)
    quantizer.process()
    blocked = ir.from_proto(quantizer.model.model)
    (node,) = blocked.graph
    assert node.op_type == "MatMulNBits"
    assert form_of(blocked) is Form.QOPERATOR
    plan = read_plan(blocked)
    slots = slots_of(plan, node_key(node))
    assert (plan.macs, plan.integer_macs) == (64 * 6, 0.0)
    assert (plan.weight_mac_count, plan.refusals) == (plan.macs, ())  # weights alone
    grid = qparams_of(slots["weight[1]"])
    assert grid is not None
    assert (grid.qtype.name, grid.axis, grid.block_size, grid.scale.shape) == (
        "uint4",
        0,
        32,
        (2, 6),
    )
    assert symmetric == bool((grid.zero_point >= 7).all() and (grid.zero_point <= 8).all())
    ones = np.eye(64, dtype=np.float32)
    written = quantize_model(blocked, plan)
    with get_backend("ort-cpu-noopt").prepare(blocked) as executor:
        computed = executor.run({"x": ones})["z"]
    with get_backend("integer-ideal").prepare(written) as executor:
        assert np.array_equal(executor.run({"x": ones})["z"], computed)


def test_products_whose_scale_is_nowhere_are_read_as_they_multiply() -> None:
    model = model_of(
        "uint8[N,8] x",
        "int32[N,6] z",
        "z = MatMulInteger(x, w, zx, zw)",
        w=np.random.default_rng(0).integers(-9, 9, (8, 6)).astype(np.int8),
        zx=np.array(12, np.uint8),
        zw=np.array(3, np.int8),
    )
    plan = read_plan(model)
    grids = {str(slot): qparams_of(d) for slot, d in plan.decisions.items()}
    assert {
        name: (str(g.qtype), float(g.scale), int(g.zero_point))
        for name, g in grids.items()
        if g is not None
    } == {
        "z.input[0]": ("uint8", 1.0, 12),
        "z.weight[1]": ("int8", 1.0, 3),
    }
    assert plan.integer_macs == 1.0

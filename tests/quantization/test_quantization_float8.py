"""Products of float8 by float8: read, counted apart from integers, and named by lint."""

import json

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

from qbench.cli import main
from qbench.diagnosis import lint_products
from qbench.quantization import float8_share, read_plan


def model_of(moved: str = "m = Flatten(d)") -> ir.Model:
    """A Conv in uint8, then a Gemm of float8 by float8, as ModelOpt writes it."""
    proto = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        net (float[N,3,5,5] x) => (float[N,4] y) {{
        q = QuantizeLinear(x, s, u)
        a = DequantizeLinear(q, s, u)
        w = DequantizeLinear(wq, s, i)
        [conv] c = Conv(a, w)
        cq = QuantizeLinear(c, s, u)
        cd = DequantizeLinear(cq, s, u)
        e = QuantizeLinear(cd, s, f)
        d = DequantizeLinear(e, s, f)
        {moved}
        gq = QuantizeLinear(g, s, f)
        gr = DequantizeLinear(gq, s, f)
        [fc] y = Gemm(m, gr)
        }}"""
    )
    random = np.random.default_rng(3)
    constants = {
        "s": np.float32(0.05), "u": np.uint8(128), "i": np.int8(0),
        "f": np.zeros((), ml_dtypes.float8_e4m3fn),
        "wq": random.integers(-60, 60, (2, 3, 1, 1)).astype(np.int8),
        "g": random.normal(size=(50, 4)).astype(np.float32),
    }  # fmt: skip
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    return ir.from_proto(proto)


def test_the_share_of_float8_is_counted_apart() -> None:
    plan = read_plan(model_of())
    assert dict(plan.node_macs) == {"conv": 150, "fc": 200}
    assert plan.integer_nodes == {"conv"}
    assert plan.float8_nodes == {"fc"}
    assert plan.float8_mac_count == 200
    assert plan.floats["fc"].reason == "its data and weight are float8 in the model"
    assert float8_share(model_of()) == (("fc",), 200 / 350)


def test_what_is_computed_behind_float8_is_none() -> None:
    plan = read_plan(model_of("r = Sigmoid(d)\n m = Flatten(r)"))
    assert plan.float8_nodes == frozenset()
    assert plan.floats["fc"].reason == "its data are float in the model"


def test_lint_names_them() -> None:
    lint = lint_products(model_of())
    assert [layer.node for layer in lint.layers] == ["conv"]
    assert (lint.float8, lint.float8_macs) == (("fc",), 200 / 350)


def float_model() -> ir.Model:
    """Of the same form as ``model_of``, with other weights."""
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[N,3,5,5] x) => (float[N,4] y) {
        [conv] c = Conv(x, w)
        m = Flatten(c)
        [fc] y = Gemm(m, g)
        }"""
    )
    random = np.random.default_rng(3)
    constants = {"w": random.normal(size=(2, 3, 1, 1)), "g": random.normal(size=(50, 4))}
    proto.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()
    )
    return ir.from_proto(proto)


def test_the_commands_say_it(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    ir.save(model_of(), tmp_path / "f8.onnx")
    ir.save(float_model(), tmp_path / "float.onnx")
    x = np.random.default_rng(4).normal(size=(6, 3, 5, 5)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.zeros(6, int))
    model = str(tmp_path / "f8.onnx")
    assert main(["lint", model, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert (table["float8"], table["float8_macs"]) == (["fc"], 200 / 350)
    data = str(tmp_path / "d.npz")
    assert main(["eval", model, "--fp32", model, "--data", data, "--backend", "ort-cpu"]) == 2
    assert "a model that is quantized already" in capsys.readouterr().err
    words = ["eval", model, "--fp32", str(tmp_path / "float.onnx"), "--data", data]
    assert main([*words, "--backend", "ort-cpu", "--json"]) == 0
    given = json.loads(capsys.readouterr().out)["quantized"]
    assert (given["integer_macs"], given["float8_macs"]) == (150 / 350, 200 / 350)

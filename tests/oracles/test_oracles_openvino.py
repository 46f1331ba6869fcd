"""OpenVINO against the arithmetic that its backend declares: products between Q and DQ, element for element."""

from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import arithmetic_of, get_backend
from qbench.host import processor_class

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(processor_class() != "x64-avx512-vnni", reason="the arithmetic follows kernels of AVX-512 VNNI"),
]

CHANNELS = (1, 2, 3, 4, 5, 8, 12, 16, 17, 31, 32, 33, 48, 64)
KINDS = {"1x1": 1, "3x3": 3, "strided": 3, "depthwise": 3, "linear": 0}
STORED = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8}


def block(random: np.random.Generator, kind: str, codes: str, *, ties: bool) -> tuple[ir.Model, np.ndarray[Any, Any]]:
    """Q, DQ, one product, perhaps a bias and a Relu, Q, DQ; and a batch for it.

    Where ``ties``, products of scales are by the scale of the result as 1 to a power of two.
    """
    channels, filters = (int(random.choice(CHANNELS)) for _ in range(2))
    kernel, per_channel, biased, relu = KINDS[kind], random.random() < 0.5, random.random() < 0.7, random.random() < 0.5
    filters = channels if kind == "depthwise" else filters
    shape = (filters, 1 if kind == "depthwise" else channels, kernel, kernel) if kernel else (channels, filters)
    low, high = (-128, 127) if codes == "int8" else (0, 255)
    x_zero, y_zero = (0, 0) if codes == "int8" else random.integers(0, 256, 2)
    x, w = (np.float32(random.uniform(0.001, 0.1)) for _ in range(2))
    weights = random.integers(-127, 128, shape).astype(np.int8)
    scales = (w * random.uniform(0.3, 1, filters)).astype(np.float32) if per_channel else w
    fan = weights.size / filters
    y = x * w * np.float32(2.0 ** np.ceil(np.log2(90 * np.sqrt(fan))) if ties else 90 * np.sqrt(fan))
    constants = {"w": weights, "ws": scales, "wz": np.zeros(np.shape(scales), np.int8)}
    constants |= {"xs": x, "xz": np.array(x_zero, codes), "ys": np.float32(y), "yz": np.array(y_zero, codes)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0 if kernel else 1),
    ]
    operands = ["xd", "wd"]
    if biased:
        of_bias = np.asarray(x * scales, np.float32)
        constants |= {"b": random.integers(-5000, 5000, filters).astype(np.int32), "bs": of_bias}
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0))
        operands.append("bd")
    layout = {"pads": [kernel // 2] * 4, "strides": [2, 2] if kind == "strided" else [1, 1]}
    layout["group"] = channels if kind == "depthwise" else 1
    nodes.append(helper.make_node("Conv" if kernel else "Gemm", operands, ["c"], **(layout if kernel else {})))
    if relu:
        nodes.append(helper.make_node("Relu", ["c"], ["r"]))
    nodes.append(helper.make_node("QuantizeLinear", ["r" if relu else "c", "ys", "yz"], ["yq"]))
    nodes.append(helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]))
    sides = [channels, 6, 6] if kernel else [channels]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *sides])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    held = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, kind, inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    batch = ((random.integers(low, high + 1, (2, *sides)) - x_zero) * x).astype(np.float32)
    batch += (random.uniform(-0.5, 0.5, batch.shape) * x).astype(np.float32)
    return ir.from_proto(onnx.shape_inference.infer_shapes(model)), batch


def differing(model: ir.Model, batch: "np.ndarray[Any, Any]") -> tuple[int, int]:
    """Codes that differ between the engine and the arithmetic that it declares, and by how much at most."""
    engine = get_backend("openvino")
    arithmetic = arithmetic_of(engine)
    assert arithmetic is not None
    scale = model.graph.initializers["ys"].const_value
    assert scale is not None
    with engine.prepare(model) as theirs, get_backend(f"integer-{arithmetic.name}").prepare(model) as ours:
        # OpenVINO computes the scale of signed results anew from their range, so floats may differ in the last bit
        codes = [np.rint(run.run({"x": batch})["y"] / scale.numpy()).astype(int) for run in (theirs, ours)]
    return int((codes[0] != codes[1]).sum()), int(np.abs(codes[0] - codes[1]).max())


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("codes", ["uint8", "int8"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "linear"])
def test_convolutions(kind: str, codes: str, ties: bool, openvino: ModuleType) -> None:
    random = np.random.default_rng(21)
    assert [differing(*block(random, kind, codes, ties=ties)) for _ in range(12)] == [(0, 0)] * 12


@pytest.mark.parametrize("codes", ["uint8", "int8"])
def test_linear_products_differ_next_to_ties_alone(codes: str, openvino: ModuleType) -> None:
    """OpenVINO corrects their sums for the zero point in float, behind the scale."""
    random = np.random.default_rng(22)
    found = [differing(*block(random, "linear", codes, ties=False)) for _ in range(40)]
    assert max(most for _, most in found) <= 1
    assert sum(count for count, _ in found) <= 2


@pytest.mark.slow
def test_a_thousand_convolutions(openvino: ModuleType) -> None:
    random = np.random.default_rng(23)
    kinds = random.choice([kind for kind in KINDS if kind != "linear"], 1000)
    blocks = (block(random, str(kind), str(random.choice([*STORED])), ties=False) for kind in kinds)
    assert sum(differing(*one)[0] for one in blocks) == 0

"""MatMulNBits and GatherBlockQuantized of ONNX Runtime, read and written: its numbers, bit by bit
where both sum one product after another.
"""

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from qbench.backends import get_backend
from qbench.cli import main
from qbench.errors import InputError
from qbench.graph import Form, form_of, node_qparams
from qbench.passes import lower_blocks, plannable, rewrite
from qbench.passes.qdq.block_operators import RaiseBlocks
from qbench.quantization import Given, KeptFloat, make_plan, quantize_model, read_plan


def one_node(operator: str, order: str, constants: dict, x: np.ndarray, **numbers: int) -> ir.Model:
    inputs = [name.replace("-", "") for name in order.split()]
    node = helper.make_node(operator, inputs, ["y"], "one", domain="com.microsoft", **numbers)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", kind, [None, *x.shape[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return ir.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=10))


def run(model: ir.Model, backend: str, x: np.ndarray) -> np.ndarray:
    with get_backend(backend).prepare(model) as executor:
        return next(iter(executor.run({model.graph.inputs[0].name or "": x}).values()))


def product(
    bits: int = 4, size: int = 32, depth: int = 100, *, points: bool = False, seed: int = 0
) -> tuple[ir.Model, np.ndarray]:
    """A MatMulNBits with scales of either sign, and its data."""
    random, count = np.random.default_rng(seed), -(-depth // size)
    constants = {
        "B": random.integers(0, 256, (6, count, size * bits // 8)).astype(np.uint8),
        "s": random.uniform(-1, 1, 6 * count).astype(np.float32),
    }
    order = "x B s"
    if points:
        row = -(-count * bits // 8)
        constants["z"], order = random.integers(0, 256, 6 * row).astype(np.uint8), "x B s z"
    x = random.normal(size=(5, depth)).astype(np.float32)
    numbers = {"K": depth, "N": 6, "bits": bits, "block_size": size}
    return one_node("MatMulNBits", order, constants, x, **numbers), x


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_are_those_of_the_engine(bits: int) -> None:
    for size, depth, points in itertools.product((16, 64), (64, 100), (False, True)):
        model, x = product(bits, size, depth, points=points)
        ours, engines = run(model, "integer-floats-dequantized", x), run(model, "ort-cpu-noopt", x)
        weights = np.abs(run(model, "integer-floats-dequantized", np.eye(depth, dtype=np.float32)))
        bound = 2 * depth * 2.0**-24 / (1 - depth * 2.0**-24) * (np.abs(x) @ weights)
        assert (np.abs(ours - engines) <= bound).all()
        ones = np.eye(depth, dtype=np.float32)
        read = run(model, "ort-cpu-noopt", ones)
        assert np.array_equal(run(model, "integer-ideal", ones), read)


@pytest.mark.parametrize(
    ("kind", "bits"), [("uint8", 2), ("uint8", 4), ("uint8", 8), ("int4", 4), ("uint4", 4)]
)
def test_lookups_are_those_of_the_engine(kind: str, bits: int) -> None:
    ids = np.array([[0, 3], [7, -1]], np.int64)
    for size, points in itertools.product((16, 32), (False, True)):
        random = np.random.default_rng(size + points)
        packed, count = kind == "uint8", -(-72 // size)
        dtype = np.uint8 if packed else getattr(ml_dtypes, kind)
        least, most = (0, 256) if packed else (0, 8)
        columns = 72 * bits // 8 if packed else 72
        constants = {
            "d": random.integers(least, most, (8, columns)).astype(dtype),
            "s": random.uniform(-1, 1, (8, count)).astype(np.float32),
        }
        if points:
            columns = -(-count * bits // 8) if packed else count
            constants["z"] = random.integers(least, most, (8, columns)).astype(dtype)
        order = f"d x s{' z' * points}"
        numbers = {"bits": bits, "block_size": size, "gather_axis": 0, "quantize_axis": 1}
        model = one_node("GatherBlockQuantized", order, constants, ids, **numbers)
        assert form_of(model) is Form.QOPERATOR
        engines = run(model, "ort-cpu-noopt", ids)
        assert np.array_equal(run(model, "integer-ideal", ids), engines)


def test_scales_below_zero_and_blocks_of_zeros_keep_their_numbers() -> None:
    scales = np.array([-0.5, 0.0, 0.25, 2.0], np.float32)
    codes = np.zeros((2, 2, 8), np.uint8)
    codes[0, 0], codes[0, 1] = 0x80, 0x88  # 0 and 8 less 8; zeros alone
    x = np.eye(32, dtype=np.float32)
    numbers = {"K": 32, "N": 2, "bits": 4, "block_size": 16}
    model = one_node("MatMulNBits", "x B s", {"B": codes, "s": scales}, x, **numbers)
    found = run(model, "integer-ideal", x)
    assert np.array_equal(found, run(model, "ort-cpu-noopt", x))
    assert found[:2, 0].tolist() == [4.0, 0.0]
    (weight,) = (node for node in rewrite(model, (RaiseBlocks(),)).graph if node.op_type[0] == "D")
    qparams = node_qparams(weight)
    assert qparams is not None
    assert qparams.scale.tolist() == [[0.5, 0.25], [1.0, 2.0]]
    assert qparams.zero_point.tolist() == [[7, 8], [8, 8]]


@pytest.mark.parametrize(
    ("constant", "value", "words"),
    [
        ("s", np.full(6 * 4, np.nan, np.float32), "found a scale of nan"),
        ("s", np.full(6 * 4, np.inf, np.float32), "found a scale of inf"),
        ("s", np.zeros(6 * 4, np.float32), "found a scale of zero for codes that are not"),
        ("s", np.ones(6 * 3, np.float32), r"scales of shape \(18,\), which are no blocks of 32"),
        ("B", np.zeros((6, 3, 16), np.uint8), "weights of shape .*, which are no blocks of 32"),
    ],
)
def test_what_means_nothing_is_one_sentence(constant, value, words) -> None:
    model, x = product()
    model.graph.initializers[constant].const_value = ir.tensor(value)
    for reading in (read_plan, lambda one: run(one, "integer-ideal", x)):
        with pytest.raises(InputError, match=rf"^Reading the MatMulNBits 'one': .*{words}"):
            reading(model)


def test_a_plan_holds_its_weight_and_writes_the_same_numbers() -> None:
    model, x = product()
    plan = read_plan(model)
    ((slot, decision),) = plan.decisions.items()
    assert (str(slot), plan.macs) == ("one.weight[1]", 600)
    assert isinstance(decision, Given)
    assert (decision.qparams.block_size, decision.qparams.qtype.name) == (32, "uint4")
    written = quantize_model(model, plan)
    assert form_of(written) is Form.QDQ
    expected = run(model, "integer-floats-dequantized", x)
    assert np.array_equal(run(written, "integer-floats-dequantized", x), expected)


def test_weights_that_are_reordered_stay_the_engine_s() -> None:
    random = np.random.default_rng(8)
    constants = {
        "B": random.integers(0, 256, (6, 2, 16)).astype(np.uint8),
        "s": random.uniform(0.1, 1, 12).astype(np.float32),
        "g": np.arange(64, dtype=np.int32) % 2,
    }
    x, numbers = np.ones((1, 64), np.float32), {"K": 64, "N": 6, "bits": 4, "block_size": 32}
    model = one_node("MatMulNBits", "x B s - g", constants, x, **numbers)
    assert [node.op_type for node in plannable(model).graph] == ["MatMulNBits"]
    decisions = read_plan(model).decisions.values()
    reasons = [one.reason for one in decisions if isinstance(one, KeptFloat)]
    assert any("reordered" in reason for reason in reasons)


def network() -> ir.Model:
    """Two products, one of them a Gemm, the last with a depth that no block divides."""
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (float[4,64] x) => (float[4,10] y) {
        h = Gemm(x, w, b)
        r = Relu(h)
        [head] y = MatMul(r, v)
        }"""
    )
    random = np.random.default_rng(5)
    for name, shape in {"w": (64, 40), "b": (40,), "v": (40, 10)}.items():
        array = random.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


@pytest.mark.parametrize("schema", ["w4a16", "w4_asym_b16", "w2_sym_b32", "w8_sym_b64"])
def test_written_weights_are_those_of_the_pairs(schema: str) -> None:
    model = network()
    pairs = quantize_model(model, make_plan(model, None, schema))
    blocks, left = lower_blocks(pairs)
    assert all(value.uses() for value in blocks.graph.initializers.values())
    operators = [node.op_type for node in blocks.graph]
    assert (operators.count("MatMulNBits"), left) == (2, {})
    assert "DequantizeLinear" not in operators
    bits = int(schema[1])
    assert {node.attributes["bits"].as_int() for node in blocks.graph if node.domain} == {bits}
    x = np.random.default_rng(6).standard_normal((4, 64)).astype(np.float32)
    again = run(blocks, "integer-floats-dequantized", x)
    assert np.array_equal(again, run(pairs, "integer-floats-dequantized", x))
    np.testing.assert_allclose(run(blocks, "ort-cpu-precise", x), again, rtol=0, atol=1e-4)


def test_what_stays_is_said() -> None:
    model = network()
    pairs = quantize_model(model, make_plan(model, None, "w4_sym_b24"))
    blocks, left = lower_blocks(pairs)
    assert left["head"] == "its blocks of 24 are no power of two from 16 upwards"
    assert "MatMulNBits" not in [node.op_type for node in blocks.graph]
    with pytest.raises(InputError, match="found no MatMul, Gemm or Gather with a weight in blocks"):
        lower_blocks(quantize_model(model, make_plan(model, None, "w8_sym_pc")))


def test_a_table_goes_there_and_back() -> None:
    ids, random = np.array([1, 5], np.int64), np.random.default_rng(7)
    constants = {
        "d": random.integers(0, 256, (8, 32)).astype(np.uint8),
        "s": random.uniform(0.1, 1, (8, 2)).astype(np.float32),
    }
    numbers = {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    model = one_node("GatherBlockQuantized", "d x s", constants, ids, **numbers)
    written, left = lower_blocks(quantize_model(model, read_plan(model)))
    (node,) = written.graph
    assert (node.op_type, left) == ("GatherBlockQuantized", {})
    assert np.array_equal(run(written, "ort-cpu-noopt", ids), run(model, "ort-cpu-noopt", ids))


def test_the_table_of_an_embedding_stays_float() -> None:
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        net (int64[N] ids) => (float[N,32] y) {
        [embed] a = Gather(table, ids)
        [fc] y = MatMul(a, w)
        }"""
    )
    for name, shape in (("table", (64, 32)), ("w", (32, 32))):
        array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    model = ir.from_proto(proto)
    written, left = lower_blocks(quantize_model(model, make_plan(model, None, "w4a16")))
    assert [node.op_type for node in written.graph] == ["Gather", "MatMulNBits"]
    assert left == {}


def test_the_type_of_two_bits_is_read() -> None:
    if onnx.defs.onnx_opset_version() < 25:
        pytest.skip("this onnx has no integers of two bits")
    random = np.random.default_rng(9)
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 25]>
        net (float[N,64] x) => (float[N,6] y) {
        d = DequantizeLinear<axis = 0, block_size = 32>(w, s)
        [fc] y = MatMul(x, d)
        }"""
    )
    codes = random.integers(-2, 2, (64, 6)).astype(ml_dtypes.int2)
    scales = random.uniform(0.1, 1, (2, 6)).astype(np.float32)
    for name, array in (("w", codes), ("s", scales)):
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    model = ir.from_proto(proto)
    (decision,) = read_plan(model).decisions.values()
    assert isinstance(decision, Given)
    assert decision.qparams.qtype.name == "int2"
    found = run(model, "integer-ideal", np.eye(64, dtype=np.float32))
    assert np.array_equal(found, codes.astype(np.float32) * np.repeat(scales, 32, 0))


def test_the_command_writes_them(tmp_path: Path) -> None:
    ir.save(network(), tmp_path / "net.onnx")
    output = tmp_path / "q.onnx"
    words = ["quantize", str(tmp_path / "net.onnx"), "--schema", "w4a16", "-o", str(output)]
    assert main([*words, "--form", "nbits"]) == 0
    written = onnx.load(output)
    assert [node.op_type for node in written.graph.node].count("MatMulNBits") == 2

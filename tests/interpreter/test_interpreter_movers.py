"""Movers run on levels: bit for bit what the QDQ graph gives in float, and nothing is left
between a Q and a DQ.
"""

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from qbench.backends import get_backend
from qbench.interpreter import Program
from qbench.numerics import QParams, QType, get_arithmetic, rescale_quantized
from qbench.passes import INTEGER_INTERPRETER, declined, lower_to_qoperator

RANDOM = np.random.default_rng(17)
SHAPE = (2, 4, 6, 8)


def net(body: str, dtype: str = "uint8", sy: float = 0.05, **constants: Any) -> onnx.ModelProto:
    """``body`` makes y of x on one grid, or on one with another scale ``sy``; further results
    go out as they are.
    """
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({dtype}[{", ".join(map(str, SHAPE))}] q) => '
        f"({dtype}[N] r)"
        f"<float s = {{0.05}}, {dtype} z = {{11}}, float sy = {{{sy}}}>"
        f"{{ x = DequantizeLinear(q, s, z) {body} r = QuantizeLinear(y, sy, z) }}"
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return onnx.shape_inference.infer_shapes(proto)


def levels_of(dtype: str = "uint8") -> Any:
    ends = np.iinfo(dtype)
    return RANDOM.integers(ends.min, ends.max + 1, SHAPE).astype(dtype)


INDEX = RANDOM.integers(0, 6, (2, 4, 6, 3))
MOVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Identity": ("y = Identity(x)", {}),
    "Split": ("y, other = Split<axis = 1, num_outputs = 2>(x)", {}),
    "Split in parts": ("other, y = Split<axis = -1>(x, parts)", {"parts": np.array([3, 5])}),
    "Slice": (
        "y = Slice(x, starts, ends, axes, steps)",
        {
            "starts": np.array([5, 0]),
            "ends": np.array([-100, 7]),
            "axes": np.array([2, 3]),
            "steps": np.array([-2, 3]),
        },
    ),
    "Pad": ("y = Pad(x, pads)", {"pads": np.array([0, 1, 2, 0, 0, 0, 1, 3])}),
    "Pad with 0": (
        "y = Pad(x, pads, zero)",
        {"pads": np.array([0, 0, 2, 1, 0, 0, 1, 3]), "zero": np.float32(0)},
    ),
    "Pad by reflection": (
        'y = Pad<mode = "reflect">(x, pads)',
        {"pads": np.array([0, 0, 2, 1, 0, 0, 1, 3])},
    ),
    "Pad by edges": (
        'y = Pad<mode = "edge">(x, pads)',
        {"pads": np.array([0, 0, 2, 1, 0, 0, 1, 3])},
    ),
    "Resize": ("y = Resize(x, , scales)", {"scales": np.array([1, 1, 2, 1.5], np.float32)}),
    "Transpose": ("y = Transpose<perm = [0, 2, 3, 1]>(x)", {}),
    "Reshape": ("y = Reshape(x, shape)", {"shape": np.array([0, -1, 3])}),
    "Squeeze": (
        "t = Slice(x, zero, one, one) y = Squeeze(t, one)",
        {"zero": np.array([0]), "one": np.array([1])},
    ),
    "Unsqueeze": ("y = Unsqueeze(x, axes)", {"axes": np.array([1, -1])}),
    "Flatten": ("y = Flatten<axis = 2>(x)", {}),
    "Expand": ("y = Expand(x, shape)", {"shape": np.array([3, 1, 1, 6, 8])}),
    "Tile": ("y = Tile(x, repeats)", {"repeats": np.array([1, 2, 1, 3])}),
    "Gather": ("y = Gather<axis = 2>(x, index)", {"index": np.array([[0, 5], [-1, 3]])}),
    "GatherElements": ("y = GatherElements<axis = 3>(x, index)", {"index": INDEX}),
    "GatherND": ("y = GatherND(x, index)", {"index": np.array([[0, 3], [1, 0], [-1, 2]])}),
    "DepthToSpace": ("y = DepthToSpace<blocksize = 2>(x)", {}),
    "DepthToSpace by columns": ('y = DepthToSpace<blocksize = 2, mode = "CRD">(x)', {}),
    "SpaceToDepth": ("y = SpaceToDepth<blocksize = 2>(x)", {}),
    "MaxPool": ("y = MaxPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]>(x)", {}),
    "GlobalMaxPool": ("y = GlobalMaxPool(x)", {}),
    "ReduceMax": ("y = ReduceMax<keepdims = 0>(x, axes)", {"axes": np.array([1, 3])}),
    "ReduceMin": ("y = ReduceMin(x)", {}),
    "TopK": ("y, places = TopK<axis = 2, sorted = 1>(x, k)", {"k": np.array([4])}),
}


def lowered(proto: onnx.ModelProto) -> ir.Model:
    return lower_to_qoperator(ir.from_proto(proto), INTEGER_INTERPRETER)


@pytest.mark.slow_but(26)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("name", MOVERS)
def test_levels_move_as_reals_do(name: str, dtype: str) -> None:
    body, constants = MOVERS[name]
    # What is squeezed comes from a mover itself: its own pair has to be there.
    if name == "Squeeze":
        body = body.replace(
            " y =", " u = QuantizeLinear(t, s, z) v = DequantizeLinear(u, s, z) y ="
        ).replace("Squeeze(t", "Squeeze(v")
    proto, levels = net(body, dtype, **constants), levels_of(dtype)
    model = lowered(proto)
    assert not [node.op_type for node in model.graph if "uantize" in node.op_type]
    assert not declined(model)
    found = Program(model, get_arithmetic("gemmlowp")).run({"q": levels})["r"]
    expected = ReferenceEvaluator(proto).run(None, {"q": levels})[0]
    assert found.dtype == levels.dtype
    np.testing.assert_array_equal(found, expected)


def test_every_part_of_a_split_goes_its_way() -> None:
    """Two parts: one on the grid it has, one on another."""
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int8[2, 4, 6, 8] q) => (int8[2, 2, 6, 8] a, '
        "int8[2, 2, 6, 8] b)"
        "<float s = {0.05}, int8 z = {11}, float t = {0.037}>"
        "{ x = DequantizeLinear(q, s, z) u, v = Split<axis = 1, num_outputs = 2>(x)"
        "a = QuantizeLinear(u, s, z) b = QuantizeLinear(v, t, z) }"
    )
    model, levels = lowered(onnx.shape_inference.infer_shapes(proto)), levels_of("int8")
    assert [node.op_type for node in model.graph] == ["Split", "QLinearRequantize"]
    found = Program(model, get_arithmetic("gemmlowp")).run({"q": levels})
    np.testing.assert_array_equal(found["a"], levels[:, :2])
    x, y = (QParams(scale, 11, QType.parse("int8")) for scale in (0.05, 0.037))
    np.testing.assert_array_equal(found["b"], rescale_quantized(levels[:, 2:], x, y, "gemmlowp"))


def test_where_both_grids_are_one_nothing_is_computed() -> None:
    model = lowered(net("y = Transpose(x)", sy=0.05))
    assert [node.op_type for node in model.graph] == ["Transpose"]
    model = lowered(net("y = Transpose(x)", sy=0.03))
    assert [node.op_type for node in model.graph] == ["Transpose", "QLinearRequantize"]


RESIZES = [
    (mode, nearest)
    for mode in (
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
    )
    for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
]


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(("mode", "nearest"), RESIZES)
def test_the_nearest_is_onnx_runtimes(mode: str, nearest: str) -> None:
    """From 1 … 9 elements to 1 … 17, by sizes, and by scales."""
    for size in (1, 2, 3, 5, 9):
        x = np.arange(size, dtype=np.float32)[None, None, None]
        proto = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 1, 1, W] x, int64[4] sizes) => '
            "(float[1, 1, 1, V] y)"
            f'{{ y = Resize<mode = "nearest", coordinate_transformation_mode = "{mode}", '
            f'nearest_mode = "{nearest}">'
            "(x, , , sizes) }"
        )
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        for wanted in (1, 2, 4, 7, 10, 15, 17):
            sizes = np.array([1, 1, 1, wanted])
            (theirs,) = session.run(None, {"x": x, "sizes": sizes})
            model = ir.from_proto(_with_constant(proto, sizes))
            ours = Program(model, get_arithmetic("ideal")).run({"x": x})["y"]
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{size} → {wanted}")


def _with_constant(proto: onnx.ModelProto, sizes: Any) -> onnx.ModelProto:
    fixed = onnx.ModelProto()
    fixed.CopyFrom(proto)
    del fixed.graph.input[1]
    fixed.graph.initializer.append(onnx.numpy_helper.from_array(sizes, "sizes"))
    return fixed


@pytest.mark.parametrize("scale", [0.5, 0.6, 1.0, 1.3, 2.0, 2.7])
def test_the_nearest_by_scales(scale: float) -> None:
    proto = net("y = Resize(x, , scales)", scales=np.array([1, 1, scale, 2], np.float32))
    levels = levels_of()
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = Program(lowered(proto), get_arithmetic("ideal")).run({"q": levels})["r"]
    np.testing.assert_array_equal(found, session.run(None, {"q": levels})[0])


IN_FLOAT = {
    "Resize": ((
        '[it] y = Resize<mode = "linear">(x, , scales)'
    ), {"scales": np.array([1, 1, 2, 1.5], np.float32)}),
    "Resize by cubes": ((
        '[it] y = Resize<mode = "cubic">(x, , scales)'
    ), {"scales": np.array([1, 1, 2, 2], np.float32)}),
    "LayerNormalization": ("[it] y = LayerNormalization(x, gain)",
                           {"gain": np.linspace(0.5, 2, 8, dtype=np.float32)}),
    "LSTM": ("u = Reshape(x, shape) w = QuantizeLinear(u, s, z) v = DequantizeLinear(w, s, z) "
             "[it] y = LSTM<hidden_size = 2>(v, w0, w1)",
             {"shape": np.array([8, 6, 8]), "w0": RANDOM.normal(size=(1, 8, 8)).astype(np.float32),
              "w1": RANDOM.normal(size=(1, 8, 2)).astype(np.float32)}),
    "GRU": ("u = Reshape(x, shape) w = QuantizeLinear(u, s, z) v = DequantizeLinear(w, s, z) "
            "[it] y = GRU<hidden_size = 2>(v, w0, w1)",
            {"shape": np.array([8, 6, 8]), "w0": RANDOM.normal(size=(1, 6, 8)).astype(np.float32),
             "w1": RANDOM.normal(size=(1, 6, 2)).astype(np.float32)}),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_FLOAT)
def test_what_has_no_integer_form_runs_in_float_and_says_so(name: str) -> None:
    body, constants = IN_FLOAT[name]
    proto, levels = net(body, **constants), levels_of()
    model = lowered(proto)
    operator = name.split(maxsplit=1)[0]
    assert declined(model) == {"it": f"there is no integer operator for {operator}"}
    kinds = [node.op_type for node in model.graph]
    place = kinds.index(operator)
    assert (kinds[place - 1], kinds[place + 1]) == ("DequantizeLinear", "QuantizeLinear")
    executor = get_backend("integer-ort-x64").prepare(ir.from_proto(proto))
    expected = ReferenceEvaluator(proto).run(None, {"q": levels})[0]
    np.testing.assert_array_equal(executor.run({"q": levels})["r"], expected)


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("axis", [-3, 0, 1, 2, 4])
def test_a_flattened_batch_may_be_empty(axis: int, rows: int) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (uint8[N, 4, 6, 8] q) => (uint8[M, K] y)'
        f"{{ y = Flatten<axis = {axis}>(q) }}"
    )
    levels = levels_of()[:rows]
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (theirs,) = session.run(None, {"q": levels})
    found = Program(ir.from_proto(proto), get_arithmetic("ideal")).run({"q": levels})["y"]
    assert found.shape == theirs.shape
    np.testing.assert_array_equal(found, theirs)


def test_nan_wins_a_maximum_wherever_it_stands() -> None:
    """As in PyTorch; ONNX Runtime on x64 keeps it in the one window where it is last."""
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 1, 5, 5] x) => (float[1, 1, 3, 3] y)'
        "{ y = MaxPool<kernel_shape = [3, 3]>(x) }"
    )
    x = np.zeros((1, 1, 5, 5), np.float32)
    x[0, 0, 2, 3] = np.nan
    (found,) = Program(ir.from_proto(proto), get_arithmetic("ort-x64")).run({"x": x}).values()
    assert np.isnan(found[0, 0]).tolist() == [[False, True, True]] * 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    theirs: Any = session.run(None, {"x": x})[0]
    assert np.isnan(theirs[0, 0]).sum() < 6

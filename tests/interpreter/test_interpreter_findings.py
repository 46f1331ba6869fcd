"""The smallest calls that ONNX's evaluator computes wrongly or not at all:
docs/findings/onnx-reference-evaluator.md.

Each is right here and in ONNX Runtime. A failure of ``test_the_evaluator_still_differs`` means that
the installed onnx computes it now: qbench's own kernel, or the row that refuses it, in
``float_kernels/evaluator.py`` can go.
"""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from operator_cases.float_ground import Example, model_of
from operator_cases.float_sweep import by_engine

from qbench.backends import get_backend
from qbench.errors import UnsupportedError
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic

f = np.float32
ONE = np.ones((1, 1, 1), f)


def _f(*values: Any) -> Any:
    return np.array(values, f)


# name: (operator, opset, inputs, attributes, what is right of the first or the last output)
FINDINGS: dict[str, tuple[str, int, list[Any], dict[str, Any], Any]] = {
    "lrn-loops-over-the-batch": ("LRN", 13, [np.ones((1, 2, 1, 1), f)],
        {"size": 1, "alpha": 1.0, "beta": 1.0}, [[[[0.5]], [[0.5]]]]),
    "convtranspose-groups-share-a-bias": ("ConvTranspose", 11,
        [np.ones((1, 2, 1, 1), f), np.ones((2, 1, 1, 1), f), _f(1, 2)], {"group": 2},
        [[[[2]], [[3]]]]),
    "batchnormalization-9-trains": ("BatchNormalization", 9,
        [_f([0], [2]), _f(1), _f(0), _f(0), _f(4)], {"epsilon": 0.0}, [[0], [1]]),
    "batchnormalization-7-raises": ("BatchNormalization", 7,
        [_f([0], [2]), _f(1), _f(0), _f(0), _f(4)], {"epsilon": 0.0}, [[0], [1]]),
    "softmax-11-is-of-one-axis": ("Softmax", 11, [np.zeros((1, 2, 2), f)],
        {}, [[[0.25, 0.25], [0.25, 0.25]]]),
    "hardmax-11-is-of-one-axis": ("Hardmax", 11, [np.zeros((1, 2, 2), f)], {}, [[[1, 0], [0, 0]]]),
    "logsoftmax-underflows": ("LogSoftmax", 13, [_f(0, 200)], {}, [-200, 0]),
    "lpnormalization-1-keeps-signs": ("LpNormalization", 1, [_f(-1, 3)],
        {"p": 1, "axis": -1}, [-0.25, 0.75]),
    "globalmaxpool-drops-an-axis": ("GlobalMaxPool", 1, [_f([[1, 2]])], {}, [[[2]]]),
    "slice-backwards-from-before-the-start": ("Slice", 13,
        [_f(5, 6), np.array([-4]), np.array([-9]), np.array([0]), np.array([-1])], {}, [5]),
    "shape-with-an-end-before-the-start": ("Shape", 15, [np.zeros((5, 5), f)], {"end": -3}, []),
    "unsqueeze-11-takes-axes-in-turn": ("Unsqueeze", 11, [np.ones((2, 3), f)], {"axes": [3, 0]},
        [[[[1], [1], [1]], [[1], [1], [1]]]]),
    "unique-unsorted": ("Unique", 11, [_f(2, 1, 2)], {"sorted": 0}, [2, 1]),
    "reducesumsquare-of-int32": ("ReduceSumSquare", 13, [np.array([2], np.int32)],
        {}, np.array([4], np.int32)),
    "quantizelinear-wraps": ("QuantizeLinear", 13, [_f(np.inf, 3e9, -3e9), f(1), np.uint8(0)], {},
        np.array([255, 255, 0], np.uint8)),
    "gru-clips-nothing": ("GRU", 14, [ONE, np.full((1, 3, 1), 5, f), np.zeros((1, 3, 1), f)],
        {"hidden_size": 1, "clip": 0.5}, [[[(1 - 1 / (1 + np.exp(-0.5))) * np.tanh(0.5)]]]),
    "rnn-leaves-out-lengths": ("RNN", 14,
        [np.ones((2, 1, 1), f), ONE, ONE, None, np.array([1], np.int32)],
        {"hidden_size": 1}, [[[np.tanh(1)]]]),
    "lstm-leaves-out-activations": ("LSTM", 14,
        [ONE, np.ones((1, 4, 1), f), np.zeros((1, 4, 1), f)],
        {"hidden_size": 1, "activations": ["Sigmoid", "Relu", "Relu"]},
        [[[(1 / (1 + np.exp(-1))) ** 2]]]),
    "roialign-10-is-shifted": ("RoiAlign", 10,
        [np.arange(16, dtype=f).reshape(1, 1, 4, 4), _f([0, 0, 2, 2]), np.array([0])],
        {"output_height": 1, "output_width": 1, "sampling_ratio": 1}, [[[[5]]]]),
    "resize-pytorch-half-pixel-of-one": ("Resize", 13, [_f([1, 3, 5]), None, _f(1, 0.4)],
        {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}, [[1]]),
    "layernormalization-stashes-float64": ("LayerNormalization", 17, [np.ones((1, 2)), np.ones(2)],
        {}, np.array([[1]], f)),
    "gatherelements-of-fewer-indices": ("GatherElements", 13, [_f([1, 2], [3, 4]), np.array([[1]])],
        {"axis": 1}, [[2]]),
    "mean-of-a-scalar-and-a-vector": ("Mean", 13, [f(1), _f(1, 3)], {}, [1, 2]),
    "softsign-of-a-scalar": ("Softsign", 1, [f(1)], {}, 0.5),
    "pad-crops": ("Pad", 13, [_f(1, 2), np.array([-1, 1])], {}, [2, 0]),
    "dequantizelinear-13-is-missing": ("DequantizeLinear", 13, [np.array([3], np.uint8), f(2)],
        {}, [6]),
    "averagepool-same-with-ceil": ("AveragePool", 11, [_f([[1, 3]])],
        {"kernel_shape": [2], "auto_pad": "SAME_UPPER", "ceil_mode": 1}, [[[2, 3]]]),
    "lppool-counts-what-lies-behind": ("LpPool", 18, [_f([[1, 2, 3, 4]])],
        {"kernel_shape": [2], "strides": [3], "ceil_mode": 1, "p": 1}, [[[3, 4]]]),
    "globallppool-is-missing": ("GlobalLpPool", 2, [_f([[3, 4]])], {}, [[[5]]]),
    "scatter-is-missing": ("Scatter", 9, [_f(1, 2), np.array([1]), _f(3)], {}, [1, 3]),
    "upsample-7-raises": ("Upsample", 7, [np.ones((1, 1, 1, 1), f)],
        {"mode": "nearest", "scales": [1.0, 1, 1, 2]}, [[[[1, 1]]]]),
}  # fmt: skip
_OUTPUTS = {"GRU": 2, "RNN": [False, True], "LSTM": [False, True], "LayerNormalization": 2}


def _model(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    operator, opset, inputs, attributes, _ = FINDINGS[name]
    arrays = [None if value is None else np.asarray(value) for value in inputs]
    fixed = (
        frozenset(range(1, len(arrays)))
        if operator in ("QuantizeLinear", "DequantizeLinear")
        else frozenset()
    )
    return model_of(operator, opset, Example(arrays, attributes, _OUTPUTS.get(operator, 1), fixed))


def _is_right(name: str, found: Any) -> bool:
    operator, *_, right = FINDINGS[name]
    kind = right.dtype if isinstance(right, np.ndarray) else np.int64 if operator == "Shape" else f
    wanted, found = np.asarray(right, kind), np.asarray(found)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    return bool(
        np.allclose(found, wanted, rtol=1e-6, atol=1e-7)
        if kind == f
        else np.array_equal(found, wanted)
    )


@pytest.mark.parametrize("name", FINDINGS)
def test_it_is_right_here_and_in_the_engine(name: str) -> None:
    model, feeds = _model(name)
    program = Program(ir.from_proto(model), get_arithmetic("ort-x64"))
    assert _is_right(name, list(program.run(feeds).values())[-1])
    with get_backend("onnx-reference").prepare(ir.from_proto(model)) as executor:
        assert _is_right(name, list(executor.run(feeds).values())[-1])
    expected = by_engine(model, feeds)
    assert expected is not None
    assert _is_right(name, expected[-1])


@pytest.mark.parametrize("name", FINDINGS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_evaluator_still_differs(name: str) -> None:
    model, feeds = _model(name)
    try:
        found = ReferenceEvaluator(model).run(None, feeds)[-1]
    except Exception:
        return
    assert not _is_right(name, found), (
        "onnx computes it now: what replaces or refuses it here can go"
    )


def _loop() -> onnx.ModelProto:
    names = {"count": TensorProto.INT64, "go": TensorProto.BOOL, "state": TensorProto.FLOAT}
    inputs = [
        helper.make_tensor_value_info(n, k, [1, 2] if n == "state" else [])
        for n, k in names.items()
    ]
    nodes = [
        helper.make_node("Identity", [a], [b])
        for a, b in (("go", "goes"), ("state", "next"), ("state", "seen"))
    ]
    outputs = [helper.make_tensor_value_info("goes", TensorProto.BOOL, [])]
    outputs += [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("next", "seen")
    ]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    return model_of(
        "Loop",
        13,
        Example([np.array(3), np.array(1, bool), np.zeros((1, 2), f)], {"body": body}, 2),
    )[0]


def test_the_evaluator_still_joins_what_a_loop_gives() -> None:
    feeds = {"i0": np.array(3), "i1": np.array(1, bool), "i2": np.zeros((1, 2), f)}
    assert ReferenceEvaluator(_loop()).run(None, feeds)[1].shape == (3, 2)
    expected = by_engine(_loop(), feeds)
    assert expected is not None
    assert expected[1].shape == (3, 1, 2)


def test_a_dilated_block_in_one_dimension_is_misplaced_by_onnx_runtime_alone() -> None:
    x = np.array([[[1], [2], [3], [4]]], f)
    model, feeds = model_of(
        "Col2Im", 18, Example([x, np.array([3]), np.array([2])], {"dilations": [2]})
    )
    right = [[[1, 0, 2], [3, 0, 4]]]
    np.testing.assert_array_equal(
        Program(ir.from_proto(model), get_arithmetic("ideal")).run(feeds)["o0"], right
    )
    expected = by_engine(model, feeds)
    assert expected is not None
    assert expected[0].tolist() != right


@pytest.mark.parametrize("backend", ["onnx-reference", "integer-ort-x64"])
@pytest.mark.parametrize(
    ("operator", "text", "version"),
    [
        ("RandomNormalLike", "y = RandomNormalLike(a)", 21),
        ("Dropout", "y = Dropout(a, r, t)", 21),
        ("Upsample", 'y = Upsample<mode = "linear">(a, s)', 9),
    ],
)
def test_what_is_refused_names_operator_version_and_reason(
    backend: str, operator: str, text: str, version: int
) -> None:
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : {version}]>
    net (float[1,1,2,2] x) => (float[N,M,H,W] y)
    <float q = {{0.05}}, uint8 z = {{128}}, float r = {{0.5}}, bool t = {{1}},
     float[4] s = {{1.0, 1.0, 2.0, 2.0}}> {{
    b = QuantizeLinear(x, q, z)
    a = DequantizeLinear(b, q, z)
    {text}
    }}""")
    with pytest.raises(UnsupportedError) as caught:
        get_backend(backend).prepare(model)
    assert f"{operator} of opset {version}: " in caught.value.found


@pytest.mark.parametrize("operator", ["Scatter", "GlobalLpPool"])
def test_operators_that_the_evaluator_lacks_run_between_integers(operator: str) -> None:
    line = "y = Scatter(a, i, u)" if operator == "Scatter" else "y = GlobalLpPool(a)"
    version = 10 if operator == "Scatter" else 21
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["" : {version}]>
    net (float[1,1,2] x) => (float[N,M,L] y)
    <float q = {{0.05}}, uint8 z = {{128}}, int64[1,1,1] i = {{0}}, float[1,1,1] u = {{2.0}}> {{
    b = QuantizeLinear(x, q, z)
    a = DequantizeLinear(b, q, z)
    {line}
    }}""")
    feeds, answers = {"x": np.array([[[0.5, 1]]], f)}, []
    for backend in ("ort-cpu-noopt", "integer-ort-x64"):
        with get_backend(backend).prepare(model) as executor:
            answers.append(executor.run(feeds)["y"])
    np.testing.assert_allclose(*answers, rtol=1e-6)

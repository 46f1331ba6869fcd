"""Small models of the kinds that people bring, as ONNX files with their data: what every verb
has to take.

Weights are random numbers from a fixed seed, and labels are what the float model answers.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    quantize_dynamic,
    quantize_static,
)

COUNTS = {"val": 48, "cal": 24}
KINDS = ("cnn", "cnn-b1", "cnn-b8", "two", "text", "det", "ort-qdq", "ort-qoperator", "ort-dynamic")
CAME_QUANTIZED = {"ort-qdq": "cnn", "ort-qoperator": "cnn", "ort-dynamic": "cnn"}
"""Files that are quantized already → the float file that each was made from."""

Shapes = Mapping[str, tuple[Any, ...]]
_TOKENS, _LENGTH, _WIDTH, _BOXES, _CLASSES = 40, 12, 16, 64, 5


def make_model(kind: str, folder: Path) -> None:
    """``KIND.onnx``, ``KIND-val.npz`` and ``KIND-cal.npz`` in ``folder``,
    and the float file of a quantized one.
    """
    float_kind = CAME_QUANTIZED.get(kind, kind)
    rng = np.random.default_rng(7)
    if float_kind == "two":
        model, feeds = _two_inputs(rng)
    elif float_kind == "text":
        model, feeds = _transformer(rng)
    elif float_kind == "det":
        model, feeds = _detector(rng)
    else:
        model, feeds = _cnn(rng, {"cnn-b1": 1, "cnn-b8": 8}.get(float_kind, "n"))
    onnx.checker.check_model(model)
    onnx.save(model, folder / f"{float_kind}.onnx")
    for name, arrays in feeds.items():
        labels = {} if float_kind == "det" else {"y": _answers(model, arrays)}
        for of in {kind, float_kind}:
            np.savez(folder / f"{of}-{name}.npz", **arrays, **labels)
    if kind in CAME_QUANTIZED:
        _quantize(kind, folder, float_kind, feeds["cal"])


def _answers(model: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    size = session.get_inputs()[0].shape[0]
    size = size if isinstance(size, int) else len(next(iter(arrays.values())))
    rows = [
        session.run(None, {name: array[start : start + size] for name, array in arrays.items()})[0]
        for start in range(0, len(next(iter(arrays.values()))), size)
    ]
    return np.concatenate(rows).argmax(1)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Shapes,
    outputs: Shapes,
    weights: Mapping[str, np.ndarray],
) -> onnx.ModelProto:
    """A model; inputs of names that end in ``ids`` or ``mask``, and outputs ``kept``, are int64."""

    def value(name: str, shape: tuple[Any, ...]) -> onnx.ValueInfoProto:
        is_whole = name.endswith(("ids", "mask", "kept"))
        return helper.make_tensor_value_info(
            name, TensorProto.INT64 if is_whole else TensorProto.FLOAT, shape
        )

    graph = helper.make_graph(
        nodes,
        "own",
        [value(*one) for one in inputs.items()],
        [value(*one) for one in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _random(
    rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Weights scaled so that values keep their size from layer to layer;
    one-dimensional ones are biases.
    """
    return {
        name: (
            rng.normal(size=shape) * (0.1 if len(shape) == 1 else np.prod(shape[1:]) ** -0.5)
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def _node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(
        kind,
        inputs.split(),
        output.split(),
        name=f"{output.split(maxsplit=1)[0]}.{kind.lower()}",
        **attributes,
    )


def _cnn(
    rng: np.random.Generator, batch: int | str
) -> tuple[onnx.ModelProto, dict[str, dict[str, np.ndarray]]]:
    """Three convolutions and a classifier of 10 classes on (3, 16, 16)."""
    weights = _random(
        rng,
        {
            "w0": (8, 3, 3, 3), "b0": (8,), "w1": (16, 8, 3, 3), "b1": (16,), "w2": (16, 16, 3, 3),
            "b2": (16,), "wf": (10, 16), "bf": (10,),
        },
    )  # fmt: skip
    nodes = [
        _node("Conv", "image w0 b0", "c0", pads=[1] * 4),
        _node("Relu", "c0", "r0"),
        _node("Conv", "r0 w1 b1", "c1", pads=[1] * 4, strides=[2, 2]),
        _node("Relu", "c1", "r1"),
        _node("Conv", "r1 w2 b2", "c2", pads=[1] * 4, strides=[2, 2]),
        _node("Relu", "c2", "r2"),
        _node("GlobalAveragePool", "r2", "pooled"),
        _node("Flatten", "pooled", "flat"),
        _node("Gemm", "flat wf bf", "scores", transB=1),
    ]
    model = _model(nodes, {"image": (batch, 3, 16, 16)}, {"scores": (batch, 10)}, weights)
    feeds = {
        name: {"x": rng.normal(size=(n, 3, 16, 16)).astype(np.float32)}
        for name, n in COUNTS.items()
    }
    return model, {name: {"image": one["x"]} for name, one in feeds.items()}


def _two_inputs(
    rng: np.random.Generator,
) -> tuple[onnx.ModelProto, dict[str, dict[str, np.ndarray]]]:
    """A convolution of a picture and a product of a row of facts, added."""
    weights = _random(rng, {"wc": (8, 3, 3, 3), "wm": (6, 8), "wf": (4, 8)})
    nodes = [
        _node("Conv", "image wc", "c", pads=[1] * 4),
        _node("Relu", "c", "r"),
        _node("GlobalAveragePool", "r", "pooled"),
        _node("Flatten", "pooled", "flat"),
        _node("MatMul", "meta wm", "m"),
        _node("Add", "flat m", "sum"),
        _node("Relu", "sum", "s"),
        _node("Gemm", "s wf", "scores", transB=1),
    ]
    model = _model(
        nodes, {"image": ("n", 3, 8, 8), "meta": ("n", 6)}, {"scores": ("n", 4)}, weights
    )
    return model, {
        name: {
            "image": rng.normal(size=(n, 3, 8, 8)).astype(np.float32),
            "meta": rng.normal(size=(n, 6)).astype("f4"),
        }
        for name, n in COUNTS.items()
    }


def _transformer(
    rng: np.random.Generator,
) -> tuple[onnx.ModelProto, dict[str, dict[str, np.ndarray]]]:
    """Ids and their mask → embedding, one layer of attention and one of products, mean over the
    tokens, 4 classes.
    """
    d = _WIDTH
    weights = _random(
        rng,
        {
            "table": (_TOKENS, d), "wq": (d, d), "wk": (d, d), "wv": (d, d), "wo": (d, d),
            "w1": (d, 2 * d), "bw1": (2 * d,), "w2": (2 * d, d), "bw2": (d,),
            "wf": (d, 4), "bf": (4,),
        },
    )  # fmt: skip
    weights["table"] *= 4
    weights |= {name: np.ones(d, np.float32) for name in ("g1", "g2")}
    weights |= {name: np.zeros(d, np.float32) for name in ("z1", "z2")}
    weights |= {
        "one": np.float32(1), "far": np.float32(-1e4), "root": np.float32(d**-0.5),
        "axis1": np.array([1]), "axis2": np.array([2]),
    }  # fmt: skip
    nodes = [
        _node("Gather", "table input_ids", "x"),
        _node("Cast", "attention_mask", "m", to=TensorProto.FLOAT),
        _node("Sub", "one m", "hidden"),
        _node("Mul", "hidden far", "low"),
        _node("Unsqueeze", "low axis1", "bias"),
        _node("MatMul", "x wq", "q"),
        _node("MatMul", "x wk", "k"),
        _node("MatMul", "x wv", "v"),
        _node("Transpose", "k", "kt", perm=[0, 2, 1]),
        _node("MatMul", "q kt", "qk"),
        _node("Mul", "qk root", "scaled"),
        _node("Add", "scaled bias", "masked"),
        _node("Softmax", "masked", "attention", axis=-1),
        _node("MatMul", "attention v", "mixed"),
        _node("MatMul", "mixed wo", "out"),
        _node("Add", "x out", "sum1"),
        _node("LayerNormalization", "sum1 g1 z1", "n1"),
        _node("MatMul", "n1 w1", "h"),
        _node("Add", "h bw1", "hb"),
        _node("Relu", "hb", "hr"),
        _node("MatMul", "hr w2", "h2"),
        _node("Add", "h2 bw2", "h2b"),
        _node("Add", "n1 h2b", "sum2"),
        _node("LayerNormalization", "sum2 g2 z2", "n2"),
        _node("Unsqueeze", "m axis2", "m3"),
        _node("Mul", "n2 m3", "kept_rows"),
        _node("ReduceSum", "kept_rows axis1", "total", keepdims=0),
        _node("ReduceSum", "m axis1", "count", keepdims=1),
        _node("Div", "total count", "mean"),
        _node("MatMul", "mean wf", "f"),
        _node("Add", "f bf", "scores"),
    ]
    model = _model(
        nodes,
        {"input_ids": ("n", _LENGTH), "attention_mask": ("n", _LENGTH)},
        {"scores": ("n", 4)},
        weights,
    )

    def texts(n: int) -> dict[str, np.ndarray]:
        lengths = rng.integers(3, _LENGTH + 1, n)
        mask = (np.arange(_LENGTH) < lengths[:, None]).astype(np.int64)
        return {"input_ids": rng.integers(1, _TOKENS, (n, _LENGTH)) * mask, "attention_mask": mask}

    return model, {name: texts(n) for name, n in COUNTS.items()}


def _detector(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, dict[str, np.ndarray]]]:
    """Boxes and scores of every cell of an 8 × 8 map,
    and the rows that non-maximum suppression keeps.
    """
    weights = _random(
        rng, {"w0": (8, 3, 3, 3), "b0": (8,), "wb": (4, 8, 1, 1), "ws": (_CLASSES, 8, 1, 1)}
    )
    weights |= {
        "box_shape": np.array([0, 4, _BOXES]), "score_shape": np.array([0, _CLASSES, _BOXES]),
        "most": np.array([10]), "overlap": np.array([0.5], np.float32),
        "least": np.array([0.6], np.float32),
    }  # fmt: skip
    nodes = [
        _node("Conv", "image w0 b0", "c0", pads=[1] * 4, strides=[2, 2]),
        _node("Relu", "c0", "r0"),
        _node("Conv", "r0 wb", "cb"),
        _node("Sigmoid", "cb", "sb"),
        _node("Reshape", "sb box_shape", "rb"),
        _node("Transpose", "rb", "boxes", perm=[0, 2, 1]),
        _node("Conv", "r0 ws", "cs"),
        _node("Sigmoid", "cs", "ss"),
        _node("Reshape", "ss score_shape", "scores"),
        _node("NonMaxSuppression", "boxes scores most overlap least", "kept"),
    ]
    outputs = {"boxes": ("n", _BOXES, 4), "scores": ("n", _CLASSES, _BOXES), "kept": ("k", 3)}
    model = _model(nodes, {"image": ("n", 3, 16, 16)}, outputs, weights)
    return model, {
        name: {"image": rng.normal(size=(n, 3, 16, 16)).astype(np.float32)}
        for name, n in COUNTS.items()
    }


class _Batches(CalibrationDataReader):
    def __init__(self, feeds: Mapping[str, np.ndarray]) -> None:
        self._rows = iter([feeds])

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return next(self._rows, None)


def _quantize(kind: str, folder: Path, float_kind: str, feeds: Mapping[str, np.ndarray]) -> None:
    """``KIND.onnx`` by ONNX Runtime's own quantizer."""
    source, target = folder / f"{float_kind}.onnx", folder / f"{kind}.onnx"
    if kind == "ort-dynamic":
        quantize_dynamic(source, target)
    else:
        form = QuantFormat.QDQ if kind == "ort-qdq" else QuantFormat.QOperator
        quantize_static(
            source, target, _Batches(feeds), quant_format=form, per_channel=kind == "ort-qdq"
        )

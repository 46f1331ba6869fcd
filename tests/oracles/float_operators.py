"""Float graphs of one operator each: shapes, constants, attributes, and numbers to feed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
PICTURE = (2, 4, 9, 7)


@dataclass(frozen=True)
class Case:
    """One operator: what it reads that is computed, and its constants at their places."""

    operator: str
    fed: tuple[tuple[int, ...], ...] = (PICTURE,)
    constants: Mapping[int, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    results: int = 1
    positive: bool = False

    def __str__(self) -> str:
        words = [self.operator, *(f"{k}={v}" for k, v in self.attributes.items())]
        words += [f"{k}:{np.shape(v)}" for k, v in self.constants.items()]
        return "-".join(words).replace(" ", "")


def drawn(*shape: int) -> Array:
    random = np.random.default_rng(sum(shape) + 7 * len(shape))
    return random.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def model_of(case: Case, *, batch: Any = None) -> ir.Model:
    """A graph of the one operator at opset 21."""
    feeds = [f"x{index}" for index in range(len(case.fed))]
    names, waiting, kept = [], list(feeds), []
    for place in range(len(feeds) + len(case.constants) + 4):
        if place in case.constants:
            constant = np.asarray(case.constants[place])
            kept.append(numpy_helper.from_array(constant, f"c{place}"))
            names.append(f"c{place}")
        elif waiting:
            names.append(waiting.pop(0))
        else:
            names.append("")
    while names and not names[-1]:
        names.pop()
    results = [f"y{index}" for index in range(case.results)]
    node = helper.make_node(case.operator, names, results, name="it", **case.attributes)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch or shape[0], *shape[1:]])
        for name, shape in zip(feeds, case.fed, strict=True)
    ]
    outputs = [helper.make_tensor_value_info(one, TensorProto.FLOAT, None) for one in results]
    graph = helper.make_graph([node], "one", inputs, outputs, kept)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def feeds_of(case: Case) -> dict[str, Array]:
    """Numbers for every input of the operator."""
    feeds = {f"x{index}": drawn(*shape) * 3 for index, shape in enumerate(case.fed)}
    if len(feeds) > 1:
        feeds["x1"] = feeds["x1"][..., ::-1].copy()
    if case.positive:
        feeds = {name: np.abs(one) + 0.1 for name, one in feeds.items()}
    return feeds


CONVOLUTION = {1: drawn(6, 4, 3, 3), 2: drawn(6)}
CASES = [
    Case("Conv", constants=CONVOLUTION),
    Case("Conv", constants={1: drawn(6, 4, 3, 3)}, attributes={"pads": [1, 1, 1, 1]}),
    Case("Conv", constants=CONVOLUTION, attributes={"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    Case("Conv", constants=CONVOLUTION, attributes={"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", constants=CONVOLUTION, attributes={"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    Case("Conv", constants=CONVOLUTION, attributes={"dilations": [2, 2]}),
    Case("Conv", constants={1: drawn(4, 1, 3, 3), 2: drawn(4)}, attributes={"group": 4}),
    Case("Conv", constants={1: drawn(6, 2, 3, 3)}, attributes={"group": 2}),
    Case("Conv", fed=((2, 3, 11),), constants={1: drawn(4, 3, 3), 2: drawn(4)}),
    Case("Conv", fed=((1, 2, 5, 5, 5),), constants={1: drawn(3, 2, 2, 3, 2)}),
    Case("Conv", fed=(PICTURE, (3, 4, 2, 2))),
    Case("ConvTranspose", constants={1: drawn(4, 3, 3, 3), 2: drawn(3)}),
    Case(
        "ConvTranspose",
        constants={1: drawn(4, 3, 2, 2)},
        attributes={"strides": [2, 2], "group": 2, "output_padding": [1, 1]},
    ),
    Case("Gemm", fed=((3, 5),), constants={1: drawn(5, 4), 2: drawn(4)}),
    Case("Gemm", fed=((3, 5),), constants={1: drawn(4, 5)}, attributes={"transB": 1}),
    Case("Gemm", fed=((3, 5),), constants={1: drawn(4, 5), 2: drawn(1)}, attributes={"transB": 1}),
    Case("Gemm", fed=((5, 3), (5, 4), (3, 1)), attributes={"transA": 1, "alpha": 0.5, "beta": 2.0}),
    Case("MatMul", fed=((2, 3, 5),), constants={1: drawn(5, 4)}),
    Case("MatMul", fed=((2, 3, 5), (2, 5, 4))),
    Case("Add", fed=(PICTURE, PICTURE)),
    Case("Add", constants={1: drawn(4, 1, 1)}),
    Case("Sub", constants={0: drawn(4, 1, 1)}),
    Case("Mul", constants={1: np.float32(1.25)}),
    Case("Div", constants={1: np.float32(3.0)}),
    Case("Pow", constants={1: np.float32(2.0)}),
    Case("Sum", fed=(PICTURE, PICTURE, PICTURE)),
    Case("Max", fed=(PICTURE, PICTURE)),
    Case("Min", constants={1: np.float32(0.25)}),
    *(
        Case(name)
        for name in ("Relu", "LeakyRelu", "Elu", "HardSwish", "HardSigmoid", "Sigmoid", "Tanh")
    ),
    *(Case(name) for name in ("Softplus", "Mish", "Abs", "Neg", "Exp", "Erf", "Identity")),
    *(Case(name, positive=True) for name in ("Log", "Sqrt", "Reciprocal")),
    Case("LeakyRelu", attributes={"alpha": 0.3}),
    Case("HardSigmoid", attributes={"alpha": 0.15, "beta": 0.4}),
    Case("PRelu", constants={1: drawn(4, 1, 1)}),
    Case("Clip", constants={1: np.float32(0.0), 2: np.float32(6.0)}),
    Case("Clip", constants={1: np.float32(-0.5)}),
    Case("Clip", constants={2: np.float32(0.5)}),
    Case("Gelu"),
    Case("Gelu", attributes={"approximate": "tanh"}),
    Case("Softmax", attributes={"axis": 1}),
    Case("LogSoftmax"),
    Case(
        "BatchNormalization",
        constants={1: drawn(4), 2: drawn(4), 3: drawn(4), 4: np.abs(drawn(4)) + 0.5},
    ),
    Case("MaxPool", attributes={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    Case("MaxPool", attributes={"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}),
    Case("MaxPool", attributes={"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    Case("MaxPool", attributes={"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    Case("AveragePool", attributes={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case(
        "AveragePool",
        attributes={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    Case("AveragePool", attributes={"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]}),
    Case(
        "AveragePool",
        attributes={"kernel_shape": [2, 2], "pads": [0, 0, 1, 1], "count_include_pad": 1},
    ),
    Case("GlobalAveragePool"),
    Case("GlobalMaxPool"),
    Case("GlobalAveragePool", fed=((2, 3, 8),)),
    Case("ReduceMean", constants={1: ints(2, 3)}),
    Case("ReduceMean", constants={1: ints(-1)}, attributes={"keepdims": 0}),
    Case("ReduceSum"),
    Case("ReduceMax", constants={1: ints(1)}),
    Case("ReduceMin", constants={1: ints(1)}),
    Case("Concat", fed=(PICTURE, PICTURE), attributes={"axis": 1}),
    Case("Flatten"),
    Case("Flatten", attributes={"axis": 2}),
    Case("Reshape", constants={1: ints(0, -1)}),
    Case("Reshape", constants={1: ints(2, 28, 9)}),
    Case("Transpose", attributes={"perm": [0, 2, 3, 1]}),
    Case("Transpose"),
    Case("Squeeze", fed=((2, 1, 3, 1),), constants={1: ints(1, 3)}),
    Case("Squeeze", fed=((2, 1, 3, 1),)),
    Case("Unsqueeze", constants={1: ints(1, -1)}),
    Case("Pad", constants={1: ints(0, 0, 1, 2, 0, 0, 0, 1), 2: np.float32(0.5)}),
    Case("Pad", constants={1: ints(0, 0, 1, 2, 0, 0, 0, 1)}, attributes={"mode": "reflect"}),
    Case("Pad", constants={1: ints(1, 2), 2: np.float32(0.0), 3: ints(-1)}),
    Case("Slice", constants={1: ints(1, 0), 2: ints(9, -1), 3: ints(2, 3), 4: ints(2, 1)}),
    Case("Split", constants={1: ints(1, 3)}, attributes={"axis": 1}, results=2),
    Case("Split", attributes={"axis": 3, "num_outputs": 2}, results=2),
    Case("Gather", constants={1: np.array(2, np.int64)}, attributes={"axis": 1}),
    Case("Gather", constants={1: ints(3, 0)}, attributes={"axis": 1}),
    Case(
        "Resize",
        constants={2: np.array([1, 1, 2, 2], np.float32)},
        attributes={"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    Case("Resize", constants={3: ints(2, 4, 18, 20)}, attributes={"mode": "linear"}),
    Case(
        "Resize",
        constants={3: ints(2, 4, 5, 5)},
        attributes={"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    Case("DepthToSpace", attributes={"blocksize": 2}),
    Case("DepthToSpace", attributes={"blocksize": 2, "mode": "CRD"}),
]

"""Random small quantized graphs: a float graph of a few operators, its ranges, and the QDQ
graph that these give.

Ordinary graphs are those on which ONNX Runtime counts every operator in integers that it has an
integer kernel for: uint8 activations, symmetric int8 weights, biases of int32 at s_x · s_w.
``untidy`` ones are written as no tool should: clips of dequantized values, Identity, dead nodes,
requantizations, limits, a quantizer for every reader, other types.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Parameters = tuple[np.float32, int, str]
FUNCTIONS = (
    "Sigmoid",
    "Tanh",
    "LeakyRelu",
    "HardSwish",
    "Softplus",
    "Abs",
    "Neg",
    "Exp",
    "HardSigmoid",
)
_ENDS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


@dataclass(frozen=True)
class Family:
    """What graphs are drawn from, for engines that do not run every graph.

    ``codes`` is the type of activations; of int8 half have zero point 0. ``fixed`` are grids that
    an operator's result has, whatever its range. Where ``same_grid``, averages have the grid of
    their data. Where ``quantized_ends``, every output is behind Q and DQ. ``biased`` is the share
    of linear products with a bias.
    """

    codes: str = "uint8"
    functions: tuple[str, ...] = FUNCTIONS
    pairs: tuple[str, ...] = ("Add", "Mul", "Sub", "Max", "Min", "Div", "Concat")
    fixed: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    same_grid: bool = False
    quantized_ends: bool = False
    biased: float = 0.6


ANY = Family()


@dataclass(frozen=True)
class Value:
    """A value of the float graph."""

    name: str
    array: Array


@dataclass(frozen=True)
class Step:
    """One operator of the float graph: ``data`` are quantized values,
    ``weights`` constants (weight, bias).
    """

    operator: str
    data: tuple[str, ...]
    result: str
    weights: tuple[Array, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    more: tuple[Array, ...] = ()
    clip: str = ""


def evaluated(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, Array], outputs: Sequence[str]
) -> dict[str, Array]:
    """What ONNX Runtime computes of ``nodes``, not optimized."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return dict(zip(outputs, session.run(list(outputs), feeds), strict=True))


class RandomGraph:
    """The graph of ``seed``; ``model`` is QDQ, ``feeds`` one batch of its input."""

    def __init__(self, seed: int, *, untidy: bool = False, family: Family = ANY) -> None:
        self.random, self.untidy, self.family = np.random.default_rng(seed), untidy, family
        self.steps: list[Step] = []
        self._floats: list[onnx.NodeProto] = []
        flat = self.random.random() < 0.3
        shape = (int(self.random.integers(1, 4)), int(self.random.integers(2, 9)))
        x = self.random.normal(
            0, 2, shape if flat else (*shape, *self.random.integers(3, 8, 2).tolist())
        )
        self.values = {"x": x.astype(np.float32)}
        for _ in range(int(self.random.integers(1, 6))):
            self._add()
        self.model = _Written(self).model

    @property
    def feeds(self) -> dict[str, Array]:
        """One batch."""
        return {"x": self.values["x"]}

    def _add(self) -> None:
        name = str(self.random.choice(list(self.values)[-3:]))
        array = self.values[name]
        choices: list[Callable[[str, Array], Step | None]] = [
            self._pointwise,
            self._pair,
            self._shaped,
            self._product,
        ]
        weights = np.array([0.2, 0.2, 0.2, 0.4])
        step = choices[int(self.random.choice(4, p=weights))](name, array)
        if step is None:
            return
        clip = (
            str(self.random.choice(["", "", "Relu", "Clip"])) if step.operator in _CLIPPED else ""
        )
        step = Step(**{**step.__dict__, "clip": clip})
        found = _float_result(step, self.values)
        if not np.isfinite(found).all() or not found.size:
            return
        self.values[step.result] = found
        self.steps.append(step)

    def _name(self) -> str:
        return f"v{len(self.values)}"

    def _pointwise(self, name: str, _: Array) -> Step:
        operator = str(self.random.choice(self.family.functions))
        if operator == "Clip":
            ends = np.sort(self.random.normal(0, 2, 2)).astype(np.float32)
            return Step(
                operator, (name,), self._name(), more=(np.asarray(ends[0]), np.asarray(ends[1]))
            )
        attributes = {"alpha": 0.125} if operator == "LeakyRelu" else {}
        return Step(operator, (name,), self._name(), attributes=attributes)

    def _pair(self, name: str, array: Array) -> Step | None:
        operator = str(self.random.choice(self.family.pairs))
        others = [key for key, one in self.values.items() if one.shape == array.shape]
        other = str(self.random.choice(others))
        if operator == "Concat":
            return Step(operator, (name, other), self._name(), attributes={"axis": 1})
        if operator == "Div" or self.random.random() < 0.3:
            size = () if self.random.random() < 0.5 else (array.shape[1], *(1,) * (array.ndim - 2))
            constant = self.random.choice([0.5, 0.75, -1.5, 2.0, 3.0], size).astype(np.float32)
            return Step(operator, (name,), self._name(), more=(constant,))
        return Step(operator, (name, other), self._name())

    def _shaped(self, name: str, array: Array) -> Step | None:
        if array.ndim == 2:
            return Step(str(self.random.choice(["Softmax", "Transpose"])), (name,), self._name())
        kind = str(
            self.random.choice(
                ["MaxPool", "AveragePool", "GlobalAveragePool", "Flatten", "Transpose", "Pad"]
            )
        )
        if kind == "Transpose":
            return Step(kind, (name,), self._name(), attributes={"perm": [0, 1, 3, 2]})
        if kind == "Pad":
            return Step(kind, (name,), self._name(), more=(np.array([0, 0, 1, 0, 0, 0, 0, 1]),))
        if kind in ("MaxPool", "AveragePool"):
            size = self.random.integers(1, min(array.shape[2:]) + 1, 2).tolist()
            attributes: dict[str, Any] = {
                "kernel_shape": size,
                "strides": self.random.integers(1, 3, 2).tolist(),
            }
            if min(size) > 1:
                attributes["pads"] = self.random.integers(0, 2, 4).tolist()
            if kind == "AveragePool":
                attributes["count_include_pad"] = int(self.random.integers(0, 2))
            return Step(kind, (name,), self._name(), attributes=attributes)
        return Step(kind, (name,), self._name())

    def _product(self, name: str, array: Array) -> Step:
        filters, depth = int(self.random.integers(1, 7)), array.shape[1]
        spread = float(self.random.choice([0.1, 0.5]))
        if array.ndim == 2:
            operator, biased = (
                str(self.random.choice(["Gemm", "MatMul"])),
                self.random.random() < self.family.biased,
            )
            weights: tuple[Array, ...] = (self._weight((depth, filters), spread),)
            weights += (self._weight((filters,), 1.0),) if biased else ()
            return Step(operator, (name,), self._name(), weights)
        size = self.random.integers(1, min(3, *array.shape[2:]) + 1, 2).tolist()
        attributes: dict[str, Any] = {"strides": self.random.integers(1, 3, 2).tolist()}
        if min(size) > 1:
            attributes["pads"] = self.random.integers(0, 2, 4).tolist()
        if self.random.random() < 0.25:
            weight, operator = (depth, filters, *size), "ConvTranspose"
        elif self.random.random() < 0.3:
            weight, operator, attributes["group"] = (depth, 1, *size), "Conv", depth
        else:
            weight, operator = (filters, depth, *size), "Conv"
        columns = weight[1] if operator == "ConvTranspose" else weight[0]
        weights = (self._weight(weight, spread), self._weight((columns,), 1.0))
        return Step(
            operator,
            (name,),
            self._name(),
            weights[: 1 + int(self.random.random() < 0.7)],
            attributes,
        )

    def _weight(self, shape: tuple[int, ...], spread: float) -> Array:
        return self.random.normal(0, spread, shape).astype(np.float32)


_CLIPPED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul"})


def _float_nodes(step: Step, names: Sequence[str], result: str) -> list[onnx.NodeProto]:
    """The nodes of ``step`` that read ``names``; of MatMul with a bias two."""
    made, attributes = result if not step.clip else f"{result}_unclipped", step.attributes
    if step.operator == "MatMul" and len(names) == 3:
        nodes = [
            helper.make_node("MatMul", names[:2], [f"{made}_product"], f"{result}_matmul"),
            helper.make_node("Add", [f"{made}_product", names[2]], [made], f"{result}_add"),
        ]
    else:
        nodes = [
            helper.make_node(
                step.operator,
                list(names),
                [made],
                f"{result}_{step.operator.lower()}",
                **attributes,
            )
        ]
    if step.clip == "Relu":
        nodes.append(helper.make_node("Relu", [made], [result], f"{result}_relu"))
    elif step.clip:
        nodes.append(helper.make_node("Clip", [made, "zero", "six"], [result], f"{result}_clip"))
    return nodes


_ENDS_OF_CLIP = {"zero": np.float32(0), "six": np.float32(1.5)}


def _float_result(step: Step, values: dict[str, Array]) -> Array:
    feeds = {f"d{i}": values[name] for i, name in enumerate(step.data)}
    constants = {f"k{i}": array for i, array in enumerate((*step.weights, *step.more))}
    nodes = _float_nodes(step, [*feeds, *constants], "y")
    feeds |= (
        {name: np.asarray(array) for name, array in _ENDS_OF_CLIP.items()}
        if step.clip == "Clip"
        else {}
    )
    return evaluated(nodes, feeds | constants, ["y"])["y"]


class _Written:
    """The QDQ graph of a random float graph."""

    def __init__(self, source: RandomGraph) -> None:
        self.source, self.random = source, source.random
        self.nodes: list[onnx.NodeProto] = []
        self.constants = {name: np.asarray(array) for name, array in _ENDS_OF_CLIP.items()}
        self.grids: dict[str, Parameters] = {}
        self.levels: dict[str, str] = {}
        self.outputs: list[str] = []
        self.count = 0
        self._quantized("x", "x")
        read = {name for step in source.steps for name in step.data}
        for step in source.steps:
            self._step(step, leaves=step.result not in read)
        if not source.steps:
            self._leave(self._real("x"))
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, source.values["x"].shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        typed = onnx.shape_inference.infer_shapes(model)
        for value in typed.graph.value_info:
            if self._often(0.1):
                model.graph.output.append(value)
        untyped = self._often(0.3)  # files of others say the types of inputs and outputs alone
        self.model = ir.from_proto(model if untyped else onnx.shape_inference.infer_shapes(model))

    def _step(self, step: Step, *, leaves: bool) -> None:
        names = [self._real(name) for name in step.data]
        names += self._weights(step)
        for array in step.more:
            plain = array.dtype == np.int64 or step.operator == "Clip"
            names.append(
                self._constant(np.asarray(array)) if plain else self._quantized_constant(array)
            )
        if step.operator == "Pad":
            names.append(self._quantized_constant(np.float32(0)))
        real = f"{step.result}_real"
        self.nodes += _float_nodes(step, names, real)
        if leaves and not self.source.family.quantized_ends and self.random.random() < 0.3:
            self._leave(real)
            return
        self._quantized(step.result, real, self._kept(step))
        if leaves:
            self._leave(self._real(step.result))

    def _kept(self, step: Step) -> Parameters | None:
        """The grid that the result of ``step`` has whatever its range is."""
        family = self.source.family
        if step.operator in family.fixed:
            scale, zero = family.fixed[step.operator]
            return np.float32(scale), zero, family.codes
        averages = family.same_grid and step.operator in ("AveragePool", "GlobalAveragePool")
        moves = averages or step.operator in ("MaxPool", "Flatten", "Transpose", "Pad")
        return self.grids[step.data[0]] if moves else None

    def _leave(self, real: str) -> None:
        name = f"y{len(self.outputs)}"
        self.nodes.append(
            helper.make_node(
                "Cos" if self._often(0.2) else "Identity", [real], [name], f"{name}_node"
            )
        )
        if self.nodes[-1].op_type == "Identity":
            self.nodes.pop()
            for node in self.nodes:
                for where in (node.input, node.output):
                    for index, one in enumerate(where):
                        if one == real:
                            where[index] = name
        self.outputs.append(name)

    def _often(self, share: float) -> bool:
        return self.source.untidy and self.random.random() < share

    def _quantized(self, name: str, real: str, grid: Parameters | None = None) -> None:
        grid = grid or self._grid(self.source.values[name])
        self.grids[name] = grid
        self.levels[name] = self._quantize(real, grid)
        if self._often(0.15):  # nothing reads it
            self.nodes.append(
                helper.make_node("Exp", [real], [self._fresh("dead")], self._fresh("dead_node"))
            )

    def _quantize(self, real: str, grid: Parameters) -> str:
        levels = self._fresh("q")
        self.nodes.append(
            helper.make_node(
                "QuantizeLinear", [real, *self._parameters(grid)], [levels], f"{levels}_n"
            )
        )
        if self._often(0.2) and "16" not in grid[2]:
            low, high = sorted(self.random.integers(*_ENDS[grid[2]], 2).tolist())
            ends = [self._constant(np.array(end, grid[2])) for end in (low, high)]
            limited = self._fresh("limited")
            self.nodes.append(helper.make_node("Clip", [levels, *ends], [limited], f"{limited}_n"))
            levels = limited
        return levels

    def _real(self, name: str) -> str:
        grid, levels = self.grids[name], self.levels[name]
        real = self._dequantize(levels, grid)
        if self._often(0.2):
            other = (
                self._near(grid)
                if self.random.random() < 0.6
                else self._grid(self.source.values[name])
            )
            real = self._dequantize(self._quantize(real, other), other)
            grid = other
        if self._often(0.25):
            clipped, kind = self._fresh("clipped"), self.random.random()
            ends = np.float32(grid[0]) * self.random.integers(-300, 300, 2).astype(np.float32)
            low, high = (self._constant(np.float32(end)) for end in sorted(ends.tolist()))
            inputs = [real] if kind < 0.4 else [real, low, ""] if kind < 0.6 else [real, low, high]
            operator = "Relu" if kind < 0.4 else "Clip"
            inputs = [real, "", high] if 0.6 < kind < 0.8 else inputs
            self.nodes.append(helper.make_node(operator, inputs, [clipped], f"{clipped}_n"))
            real = clipped
        if self._often(0.1):
            same = self._fresh("same")
            self.nodes.append(helper.make_node("Identity", [real], [same], f"{same}_n"))
            real = same
        return real

    def _dequantize(self, levels: str, grid: Parameters) -> str:
        real = self._fresh("d")
        self.nodes.append(
            helper.make_node(
                "DequantizeLinear", [levels, *self._parameters(grid)], [real], f"{real}_n"
            )
        )
        return real

    def _near(self, grid: Parameters) -> Parameters:
        scale, zero, kind = grid
        moved = (
            (scale, max(zero - 128, -128), "int8")
            if kind == "uint8"
            else (scale, min(zero + 100, 127), kind)
        )
        narrower = (np.float32(scale * self.random.choice([0.5, 0.75, 2.0, 1.5])), zero, kind)
        return moved if self.random.random() < 0.5 and "16" not in kind else narrower

    def _grid(self, array: Array) -> Parameters:
        low, high = min(float(array.min()), 0.0), max(float(array.max()), 0.0)
        kind = self.source.family.codes
        if self.source.untidy:
            kind = str(self.random.choice(["uint8"] * 6 + ["int8"] * 2 + ["int16"]))
        qmin, qmax = _ENDS[kind]
        if kind == "int8" and not self.source.untidy and self.random.random() < 0.5:
            return np.float32(max(high, -low, 0.1) / qmax), 0, kind
        scale = max((high - low) / (qmax - qmin), 1e-3)
        if self.random.random() < 0.5:
            scale = 2.0 ** np.ceil(np.log2(scale))
        return np.float32(scale), int(np.clip(np.rint(qmin - low / scale), qmin, qmax)), kind

    def _weights(self, step: Step) -> list[str]:
        if not step.weights:
            return []
        weight, *bias = step.weights
        data = self._scale_read()
        axis = 0 if step.operator == "Conv" else 1
        each = bool(self.random.random() < 0.5)
        around = tuple(i for i in range(weight.ndim) if i != axis) if each else None
        scale = np.maximum(np.abs(weight).max(axis=around), 1e-3).astype(np.float32) / np.float32(
            127
        )
        if self.random.random() < 0.3:
            scale = (2.0 ** np.ceil(np.log2(scale))).astype(np.float32)
        shape = [-1 if i == axis else 1 for i in range(weight.ndim)] if each else ()
        levels = np.clip(np.rint(weight / scale.reshape(shape)), -127, 127).astype(np.int8)
        names = [
            self._dequantized(levels, scale, np.zeros(scale.shape, np.int8), axis if each else None)
        ]
        if bias:
            product = np.asarray(data * scale, np.float32)
            found = np.rint(bias[0] / product).astype(np.int32)
            points = np.zeros(product.shape, np.int32)
            names.append(self._dequantized(found, product, points, 0 if each else None))
        return names

    def _scale_read(self) -> np.float32:
        """The scale of the data that the product reads, behind a requantization too."""
        maker = next(node for node in reversed(self.nodes) if node.op_type == "DequantizeLinear")
        return np.float32(self.constants[maker.input[1]])

    def _dequantized(self, levels: Array, scale: Array, points: Array, axis: int | None) -> str:
        names = [self._constant(one) for one in (levels, scale, points)]
        real = self._fresh("w")
        attributes = {} if axis is None else {"axis": axis}
        self.nodes.append(
            helper.make_node("DequantizeLinear", names, [real], f"{real}_n", **attributes)
        )
        return real

    def _quantized_constant(self, array: Array) -> str:
        grid = self._grid(np.asarray(array))
        if self._often(0.5):
            return self._dequantize(self._quantize(self._constant(np.asarray(array)), grid), grid)
        qmin, qmax = _ENDS[grid[2]]
        levels = np.clip(np.rint(np.asarray(array) / grid[0]) + grid[1], qmin, qmax).astype(grid[2])
        return self._dequantized(levels, np.asarray(grid[0]), np.array(grid[1], grid[2]), None)

    def _parameters(self, grid: Parameters) -> tuple[str, str]:
        return self._constant(np.asarray(grid[0])), self._constant(np.array(grid[1], grid[2]))

    def _constant(self, array: Array) -> str:
        name = self._fresh("c")
        self.constants[name] = np.asarray(array)
        return name

    def _fresh(self, word: str) -> str:
        self.count += 1
        return f"{word}{self.count}"

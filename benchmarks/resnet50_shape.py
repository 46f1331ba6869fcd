"""A network of the shape of ResNet-50 at 224 × 224 with random weights: 25.5 million of them,
4.1 billion products.

    x (N, 3, 224, 224) → 7×7 conv → max pool → 3 + 4 + 6 + 3 bottlenecks → mean → linear → logits
    (N, 1000)

Batch norms are folded already, as an export for inference has them (He et al. 2015, table 1; stride
in the 3×3 conv).
"""

import numpy as np
import onnx_ir as ir

_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


class _Network:
    """Nodes and constants in order; names of values are those of their nodes."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []

    def constant(self, name: str, shape: tuple[int, ...], deviation: float) -> ir.Value:
        """Normal numbers, float32."""
        array = self._rng.standard_normal(shape, np.float32) * np.float32(deviation)
        value = ir.val(
            name, ir.DataType.FLOAT, ir.Shape(shape), const_value=ir.tensor(array, name=name)
        )
        self.constants.append(value)
        return value

    def node(
        self, operator: str, inputs: list[ir.Value], name: str, **attributes: int | list[int]
    ) -> ir.Value:
        """One node; its result."""
        made = ir.node(operator, inputs, dict(attributes), name=name, outputs=[ir.val(name)])
        self.nodes.append(made)
        return made.outputs[0]

    def conv(
        self, x: ir.Value, name: str, sizes: tuple[int, int, int], stride: int = 1
    ) -> ir.Value:
        """A convolution (inputs, outputs, kernel) that keeps the variance of its input."""
        inputs, outputs, kernel = sizes
        pad = kernel // 2
        weight = self.constant(
            f"{name}.weight", (outputs, inputs, kernel, kernel), (2 / inputs / kernel**2) ** 0.5
        )
        bias = self.constant(f"{name}.bias", (outputs,), 0.1)
        return self.node("Conv", [x, weight, bias], name, strides=[stride, stride], pads=[pad] * 4)

    def bottleneck(self, x: ir.Value, name: str, sizes: tuple[int, int], stride: int) -> ir.Value:
        """1×1, 3×3, 1×1 and a shortcut; ``sizes`` are of input and middle."""
        inputs, width = sizes
        y = self.node("Relu", [self.conv(x, f"{name}.conv1", (inputs, width, 1))], f"{name}.relu1")
        y = self.node(
            "Relu", [self.conv(y, f"{name}.conv2", (width, width, 3), stride)], f"{name}.relu2"
        )
        y = self.conv(y, f"{name}.conv3", (width, 4 * width, 1))
        if inputs != 4 * width:
            x = self.conv(x, f"{name}.shortcut", (inputs, 4 * width, 1), stride)
        return self.node("Relu", [self.node("Add", [y, x], f"{name}.sum")], f"{name}.relu3")


def resnet50_shape(seed: int = 0) -> ir.Model:
    """The float graph ``x`` → ``logits``."""
    network = _Network(seed)
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(["N", 3, 224, 224]))
    y = network.node("Relu", [network.conv(x, "stem", (3, 64, 7), 2)], "stem.relu")
    y = network.node("MaxPool", [y], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = 64
    for stage, (width, blocks, stride) in enumerate(_STAGES):
        for block in range(blocks):
            y = network.bottleneck(
                y, f"stage{stage}.{block}", (inputs, width), stride if block == 0 else 1
            )
            inputs = 4 * width
    y = network.node("Flatten", [network.node("GlobalAveragePool", [y], "mean")], "flat")
    weight, bias = (
        network.constant("head.weight", (1000, 2048), 0.02),
        network.constant("head.bias", (1000,), 0.1),
    )
    logits = network.node("Gemm", [y, weight, bias], "logits", transB=1)
    logits.type, logits.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["N", 1000])
    graph = ir.Graph(
        [x],
        [logits],
        nodes=network.nodes,
        initializers=network.constants,
        opset_imports={"": 21},
        name="resnet50_shape",
    )
    return ir.Model(graph, ir_version=10)

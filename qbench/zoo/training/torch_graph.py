"""A float ONNX graph with gradients, by torch: what is trained is the very graph that is written.

    values[node.output] = operator(values[node.inputs])            node by node, in the graph's order

Weights, biases and a batch normalization's γ and β are learned; its μ and σ² follow the batches,
μ ← 0.9·μ + 0.1·mean(batch), and are what it uses outside training.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import onnx_ir as ir
import torch
from torch.nn import functional

from qbench.errors import UnsupportedError

_LEARNED = MappingProxyType({"Conv": (1, 2), "Gemm": (1, 2), "BatchNormalization": (1, 2)})
"""Which inputs of an operator are learned."""


class TorchGraph:
    """The arrays of ``model`` as tensors, and its nodes as a function of them."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        learned = {
            str(value.name)
            for node in model.graph
            for index, value in enumerate(node.inputs)
            if value is not None and index in _LEARNED.get(node.op_type, ())
        }
        self._tensors: dict[str, Any] = {}
        for name, value in model.graph.initializers.items():
            assert value.const_value is not None
            self._tensors[name] = torch.tensor(value.const_value.numpy(), requires_grad=name in learned)

    def learned(self) -> dict[str, Any]:
        """The tensors to learn, by name."""
        return {name: tensor for name, tensor in self._tensors.items() if tensor.requires_grad}

    def __call__(self, x: Any, *, training: bool) -> Any:  # noqa: ANN401 - tensors, which mypy knows nothing of
        """The first output of the graph for ``x``, its first input.

        Raises:
            UnsupportedError: the graph has an operator that is not in the table below.
        """
        values = {**self._tensors, str(self._model.graph.inputs[0].name): x}
        for node in self._model.graph:
            run = _OPERATORS.get(node.op_type)
            if run is None:
                raise UnsupportedError(
                    f"Training the graph '{self._model.graph.name}'",
                    found=f"the operator '{node.op_type}'",
                    expected=f"one of: {', '.join(sorted(_OPERATORS))}",
                    remedy="Write its forward pass in torch_graph.py.",
                )
            inputs = [values[str(value.name)] for value in node.inputs if value is not None]
            values[str(node.outputs[0].name)] = run(inputs, node, training)
        return values[str(self._model.graph.outputs[0].name)]

    def write_back(self) -> None:
        """The tensors as they are now become the constants of the model."""
        for name, tensor in self._tensors.items():
            array = tensor.detach().numpy().copy(order="C")
            self._model.graph.initializers[name].const_value = ir.Tensor(array, name=name)


def _conv(inputs: list[Any], node: ir.Node, training: bool) -> Any:  # noqa: ANN401, ARG001
    pads = node.attributes["pads"].as_ints()
    group = node.attributes["group"].as_int() if "group" in node.attributes else 1
    assert pads[:2] == pads[2:], "torch pads both ends alike"
    x = inputs[0].contiguous(memory_format=torch.channels_last)  # depthwise convolutions learn three times as fast
    strides = node.attributes["strides"].as_ints()
    return functional.conv2d(x, *inputs[1:], stride=strides, padding=pads[:2], groups=group)


def _batch_norm(inputs: list[Any], node: ir.Node, training: bool) -> Any:  # noqa: ANN401
    x, scale, bias, mean, variance = inputs
    epsilon = node.attributes["epsilon"].as_float()
    return functional.batch_norm(x, mean, variance, scale, bias, training=training, momentum=0.1, eps=epsilon)


_OPERATORS: Mapping[str, Callable[[list[Any], ir.Node, bool], Any]] = MappingProxyType(
    {
        "Conv": _conv,
        "BatchNormalization": _batch_norm,
        "Relu": lambda inputs, _, __: functional.relu(inputs[0]),
        "Clip": lambda inputs, _, __: torch.clamp(inputs[0], inputs[1], inputs[2]),
        "Add": lambda inputs, _, __: inputs[0] + inputs[1],
        "GlobalAveragePool": lambda inputs, _, __: inputs[0].mean((2, 3), keepdim=True),
        "Flatten": lambda inputs, _, __: inputs[0].flatten(1),
        "Gemm": lambda inputs, _, __: functional.linear(*inputs),  # written with transB = 1
    }
)

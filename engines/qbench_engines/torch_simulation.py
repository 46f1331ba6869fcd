"""A quantized graph as a torch module that learns: the float graph with a fake quantization
behind every value and constant that a plan names.

A Relu or Clip that the writer moves behind the quantization stays before it here: that gives the
same codes for every number (``numerics.clip_codes``).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import nn

from qbench.backends import Array
from qbench.graph import FitTask, Kind, Moving, constant_value, input_at, node_key, op_spec
from qbench_engines.torch_fake_quantize import BiasQuantizer, FakeQuantizer
from qbench_engines.torch_import import Made, Module, Translation

Tensor = Any


class Simulation:
    """The module of one task, with its quantizers and weights.

    Args:
        task: what is quantized with what.
        lsq: the gradients of scales are LSQ's.
        learned: whether quantization parameters change.
    """

    def __init__(self, task: FitTask, *, lsq: bool = False, learned: bool = True) -> None:
        self.task = task
        self.quantizers: dict[str, FakeQuantizer] = {}
        for name, moving in task.moving.items():
            self.quantizers[name] = FakeQuantizer(moving, lsq=lsq, learned=learned)
        for name, qparams in task.fixed.items():
            self.quantizers[name] = FakeQuantizer(Moving(name=name, qparams=qparams), learned=False)
        self._translation = _Quantized(task, self.quantizers)
        self.module: Module = self._translation.module()
        self.weights: Mapping[str, Any] = self._translation.weights
        for weight in self.weights.values():
            weight.requires_grad_(False)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Tensor]:
        """Graph output → its numbers for ``feeds``, by input."""
        return self.outputs([torch.from_numpy(np.array(one)) for one in self._ordered(feeds)])

    def outputs(self, tensors: list[Tensor]) -> dict[str, Tensor]:
        """The same for tensors in the order of the inputs."""
        found = self.module(*tensors)
        results = found if isinstance(found, tuple) else (found,)
        names = [value.name or "" for value in self.task.model.graph.outputs]
        return dict(zip(names, results, strict=True))

    def switch(self, *, on: bool) -> None:
        """Let all of it quantize, or none: then it is the float graph."""
        for module in self.module.modules():
            if isinstance(module, FakeQuantizer | BiasQuantizer):
                module.is_on = on

    def learned(self) -> Iterator[FakeQuantizer]:
        """The quantizers that change."""
        return (quantizer for quantizer in self.quantizers.values() if quantizer.raw.requires_grad)

    def constants(self) -> dict[str, Array]:
        """Name → float numbers of every quantized constant and bias as they are now."""
        return {name: one.detach().numpy().copy() for name, one in self.weights.items()}

    def _ordered(self, feeds: Mapping[str, Array]) -> list[Array]:
        return [feeds[value.name or ""] for value in self.task.model.graph.inputs]


class _Quantized(Translation):
    """The translation of a task: functions of operands, so that weights pass a quantizer."""

    def __init__(self, task: FitTask, quantizers: Mapping[str, FakeQuantizer]) -> None:
        super().__init__(task.model, layers=False)
        self._task, self._quantizers = task, quantizers
        self._plain: dict[str, Made] = {}
        self.weights: dict[str, Any] = {}
        for index, (name, quantizer) in enumerate(quantizers.items()):
            self.root.add_module(f"quantizer{index}", quantizer)
            self._place_of = {**getattr(self, "_place_of", {}), name: f"quantizer{index}"}

    def settle(self, name: str, made: Made) -> Made:
        """Quantized where the task says so; what leaves the graph as it is stays so."""
        self._plain[name] = made
        quantizer = self._task.values.get(name)
        return (
            made
            if quantizer is None
            else self.graph.call_module(self._place_of[quantizer], (made,))
        )

    def leave(self, name: str) -> Made:
        """Not quantized, but for the outputs that the task names."""
        return self._made[name] if name in self._task.outputs else self._plain[name]

    def read(self, node: ir.Node, index: int) -> Made:
        """The operand; a constant passes through its quantizer."""
        place = (node_key(node), index)
        array = constant_value(input_at(node, index))
        if array is None or place not in {**self._task.constants, **self._task.biases}:
            return super().read(node, index)
        value = input_at(node, index)
        assert value is not None
        held = self._parameter(value.name or "", array)
        if place in self._task.constants:
            return self.graph.call_module(self._place_of[self._task.constants[place]], (held,))
        data, weight = (self._quantizers[name] for name in self._task.biases[place])
        key = f"bias_of_{len(self.weights)}"
        self.root.add_module(key, BiasQuantizer(data, weight, _channels(node, array)))
        return self.graph.call_module(key, (held,))

    def _parameter(self, name: str, array: Array) -> Made:
        if name not in self.weights:
            self.weights[name] = nn.Parameter(torch.from_numpy(np.array(array, np.float32)))
            self.root.register_parameter(f"weight{len(self.weights)}", self.weights[name])
        place = next(k for k, one in self.root.named_parameters() if one is self.weights[name])
        return self.graph.get_attr(place)


def _channels(node: ir.Node, bias: Array) -> int:
    """The axis of ``bias`` over output channels: the last, but [channels, 1, …] behind a
    convolution.
    """
    is_split = node.op_type == "Add" and bias.ndim > 1
    is_convolved = is_split or op_spec(node).kind is Kind.CONVOLUTION
    return 0 if is_convolved else max(bias.ndim - 1, 0)

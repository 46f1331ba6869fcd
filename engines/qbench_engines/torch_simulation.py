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
from qbench_engines.torch_fake_quantize import Grid, ProductGrid
from qbench_engines.torch_import import Made, Module, Translation

Tensor = Any


class Simulation:
    """The module of one task, with its grids and weights.

    Args:
        task: what is quantized with what.
        lsq: the gradients of scales are LSQ's.
        learned: whether quantization parameters change.
    """

    def __init__(self, task: FitTask, *, lsq: bool = False, learned: bool = True) -> None:
        self.task = task
        self.grids: dict[str, Grid] = {}
        for name, moving in task.moving.items():
            self.grids[name] = Grid(moving, lsq=lsq, learned=learned)
        for name, qparams in task.fixed.items():
            self.grids[name] = Grid(Moving(name=name, qparams=qparams), learned=False)
        self._translation = _Quantized(task, self.grids)
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
            if isinstance(module, Grid | ProductGrid):
                module.is_on = on

    def learned(self) -> Iterator[Grid]:
        """The grids that change."""
        return (grid for grid in self.grids.values() if grid.raw.requires_grad)

    def constants(self) -> dict[str, Array]:
        """Name → float numbers of every quantized constant and bias as they are now."""
        return {name: one.detach().numpy().copy() for name, one in self.weights.items()}

    def _ordered(self, feeds: Mapping[str, Array]) -> list[Array]:
        return [feeds[value.name or ""] for value in self.task.model.graph.inputs]


class _Quantized(Translation):
    """The translation of a task: functions of operands, so that weights pass through their grid."""

    def __init__(self, task: FitTask, grids: Mapping[str, Grid]) -> None:
        super().__init__(task.model, layers=False)
        self._task, self._grids = task, grids
        self._plain: dict[str, Made] = {}
        self.weights: dict[str, Any] = {}
        for index, (name, grid) in enumerate(grids.items()):
            self.root.add_module(f"grid{index}", grid)
            self._place_of = {**getattr(self, "_place_of", {}), name: f"grid{index}"}

    def settle(self, name: str, made: Made) -> Made:
        """Quantized where the task says so; what leaves the graph as it is stays so."""
        self._plain[name] = made
        grid = self._task.values.get(name)
        return made if grid is None else self.graph.call_module(self._place_of[grid], (made,))

    def leave(self, name: str) -> Made:
        """Not quantized, but for the outputs that the task names."""
        return self._made[name] if name in self._task.outputs else self._plain[name]

    def read(self, node: ir.Node, index: int) -> Made:
        """The operand; a constant passes through its grid."""
        place = (node_key(node), index)
        array = constant_value(input_at(node, index))
        if array is None or place not in {**self._task.constants, **self._task.biases}:
            return super().read(node, index)
        value = input_at(node, index)
        assert value is not None
        held = self._parameter(value.name or "", array)
        if place in self._task.constants:
            return self.graph.call_module(self._place_of[self._task.constants[place]], (held,))
        data, weight = (self._grids[name] for name in self._task.biases[place])
        key = f"bias_of_{len(self.weights)}"
        self.root.add_module(key, ProductGrid(data, weight, _channels(node, array)))
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

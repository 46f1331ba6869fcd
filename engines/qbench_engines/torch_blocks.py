"""Block by block: parameters of a network chosen by what each block gives from quantized inputs.

A block is a piece of the graph between two places where one value is all that later nodes read,
with at least ``_PRODUCTS`` products; a residual connection is inside. Blocks come in their order.
Each gets what the quantized blocks before it give and is compared with the float block:

    error = ‖f(x) − f̂(x̂)‖² / ‖f(x) − mean f(x)‖²        per output; mean over samples and positions

1. The last bias that has a channel for each channel of the result takes up the mean difference.
2. Each scale is halved, or else doubled, while the error falls by more than ``_GAIN``; real scales
   move by a fourth root of two. In the order of the graph, those of weights among them.
3. Step 1 again.

What does not lower the error is undone. No gradient is needed, and few numbers are chosen: one
exponent for each tensor and one number for each channel, so that few samples suffice. Source of the
blocks and of their inputs: Li et al. 2021, BRECQ, section 3.2; of the mean: Nagel et al. 2019,
Data-Free Quantization, section 4.2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from qbench.errors import InputError
from qbench.graph import FitJob, Fitted
from qbench.working import working
from qbench_engines.torch_fake_quantize import BiasQuantizer, FakeQuantizer
from qbench_engines.torch_fit import Examples, deterministic
from qbench_engines.torch_simulation import Simulation

Tensor = Any
FxNode = Any

_PRODUCTS = 3
_GAIN = 0.015
_REAL_STEP = 2.0**0.25
_SEARCHED = 32
"""Samples that scales are chosen on; means are of all."""


@dataclass(frozen=True, slots=True)
class BlockFitter:
    """The search above. Weights stay as they are; biases and scales change."""

    def fit(self, job: FitJob) -> Fitted:
        """As ``graph.Fitter``; the results of all samples at one place are in memory.

        Raises:
            InputError: labels, or weights to be fitted too, which the method has no use for.
            UnsupportedError: an operator that has no translation.
        """
        if job.labels is not None or job.settings.weights:
            raise InputError(
                f"{job.doing} by blocks",
                found="weights to be fitted too" if job.labels is None else "labels",
                expected="samples alone: each block is compared with itself in float",
                remedy="Leave --labels and --weights out, or choose tqt or lsq.",
            )
        with deterministic(job.settings), torch.no_grad():
            simulation = Simulation(job.task, learned=False)
            samples = Examples.of(simulation, job)
            before = samples.whole_loss(simulation)
            walk = _Walk(simulation, samples)
            walk.all_blocks()
            after = samples.whole_loss(simulation)
            if not after < before:
                walk.undo()
        changed = simulation.constants()
        return Fitted(
            qparams={name: simulation.quantizers[name].result() for name in job.task.moving},
            constants={name: changed[name] for name in walk.biases if after < before},
            losses=(before, min(before, after)),
        )


class _Walk:
    """Both networks, block by block."""

    def __init__(self, simulation: Simulation, samples: Examples) -> None:
        self._simulation, self._samples = simulation, samples
        self._module = simulation.module
        self._names = {id(one): name for name, one in simulation.weights.items()}
        self._moving = {id(simulation.quantizers[name]) for name in simulation.task.moving}
        self._kept: list[tuple[Tensor, Tensor]] = []
        self.biases: list[str] = []

    def all_blocks(self) -> None:
        """Fit every block in order."""
        graph = self._module.graph
        places = [node for node in graph.nodes if node.op == "placeholder"]
        real = list(self._samples.inputs)
        coded = list(real)
        blocks = list(_blocks(graph))
        for number, nodes in enumerate(blocks):
            block = _Block(self._module, places, nodes)
            with working(f"block {number + 1} of {len(blocks)}"):
                real = self._float(block, real)
                self._fit(block, coded, real)
                coded = block.run(coded, self._samples.batch)
            places = block.results

    def undo(self) -> None:
        """All parameters as they were."""
        for parameter, before in reversed(self._kept):
            parameter.copy_(before)

    def _float(self, block: "_Block", inputs: list[Tensor]) -> list[Tensor]:
        self._simulation.switch(on=False)
        found = block.run(inputs, self._samples.batch)
        self._simulation.switch(on=True)
        return found

    def _fit(self, block: "_Block", inputs: list[Tensor], aims: list[Tensor]) -> None:
        stride = max(len(aims[0]) // _SEARCHED, 1)
        picked = range(0, len(aims[0]), stride)
        batch = self._samples.batch
        # whole batches: a graph may take no other number of samples
        rows = list(picked)[: len(picked) // batch * batch or None]
        few = [one[rows] for one in inputs], [one[rows] for one in aims]
        self._correct(block, inputs, aims)
        for quantizer in block.quantizers():
            if id(quantizer) in self._moving:
                self._moving.remove(id(quantizer))
                self._scale(block, quantizer, *few)
        self._correct(block, inputs, aims)

    def _scale(
        self, block: "_Block", quantizer: FakeQuantizer, inputs: list[Tensor], aims: list[Tensor]
    ) -> None:
        """Halve or double the scale of ``quantizer`` while that is better."""
        batch = self._samples.batch
        least = _error(block.run(inputs, batch), aims)
        for direction in (-1, 1):
            has_moved = False
            while True:
                before = quantizer.raw.detach().clone()
                quantizer.raw.copy_(_moved(quantizer, direction))
                error = _error(block.run(inputs, batch), aims)
                if not error < least * (1 - _GAIN):  # NaN is no gain
                    quantizer.raw.copy_(before)
                    break
                self._kept.append((quantizer.raw, before))
                least, has_moved = error, True
            if has_moved:
                return

    def _correct(self, block: "_Block", inputs: list[Tensor], aims: list[Tensor]) -> None:
        """Let the last bias take up the mean difference, where that is better."""
        if len(aims) != 1:
            return
        (aim,), batch = aims, self._samples.batch
        (found,) = block.run(inputs, batch)
        axis = 1 if aim.dim() > 2 else aim.dim() - 1
        bias = block.last_bias(aim.shape[axis])
        if bias is None or id(bias) not in self._names:
            return
        shift = (aim - found).mean([one for one in range(aim.dim()) if one != axis])
        before = bias.detach().clone()
        bias.add_(shift.reshape(bias.shape))
        if not _error(block.run(inputs, batch), aims) < _error([found], aims):
            bias.copy_(before)
            return
        self._kept.append((bias, before))
        self.biases.append(self._names[id(bias)])


def _moved(quantizer: FakeQuantizer, direction: int) -> Tensor:
    """The raw parameter one step further."""
    if quantizer.pow2:
        return quantizer.raw + direction
    return quantizer.raw * _REAL_STEP**direction


def _error(found: Sequence[Tensor], aims: Sequence[Tensor]) -> float:
    """The relative error of all outputs, added."""
    total = 0.0
    for one, aim in zip(found, aims, strict=True):
        axes = [axis for axis in range(aim.dim()) if axis != 1 or aim.dim() == 1]
        size = ((aim - aim.mean(axes, keepdim=True)) ** 2).mean()
        total += float(((one - aim) ** 2).mean() / size.clamp(min=1e-12))
    return total


class _Block:
    """Some nodes one after the other.

    Args:
        places: the nodes whose results come from outside; constants do not count.
        nodes: in order, and the node of results at the end of the last block.
    """

    def __init__(self, module: Any, places: list[FxNode], nodes: list[FxNode]) -> None:  # noqa: ANN401 - a torch module
        self._module, self._places, self._nodes = module, places, nodes
        last = nodes[-1]
        self.results: list[FxNode] = list(last.all_input_nodes) if last.op == "output" else [last]

    def run(self, inputs: list[Tensor], batch: int) -> list[Tensor]:
        """The results for ``inputs``, samples along the first axis, so many at a time."""
        parts = [
            self._once([one[begin : begin + batch] for one in inputs])
            for begin in range(0, len(inputs[0]), batch)
        ]
        return [torch.cat(each) for each in zip(*parts, strict=True)]

    def quantizers(self) -> Iterator[FakeQuantizer]:
        """Those of its values and weights, in order."""
        for node in self._nodes:
            if node.op == "call_module":
                module = self._module.get_submodule(node.target)
                if isinstance(module, FakeQuantizer):
                    yield module

    def last_bias(self, channels: int) -> Tensor | None:
        """The constant that the last quantizer of a bias reads, if it has so many numbers."""
        for node in reversed(self._nodes):
            if node.op != "call_module":
                continue
            if isinstance(self._module.get_submodule(node.target), BiasQuantizer):
                bias = self._attribute(node.args[0])
                return bias if bias.numel() == channels else None
        return None

    def _once(self, inputs: list[Tensor]) -> list[Tensor]:
        known = dict(zip(self._places, inputs, strict=True))
        for node in self._nodes:
            if node.op != "output":
                known[node] = self._value(node, known)
        return [known[node] for node in self.results]

    def _value(self, node: FxNode, known: dict[FxNode, Tensor]) -> Tensor:
        if node.op == "get_attr":
            return self._attribute(node)
        arguments, settings = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
        if node.op == "call_module":
            return self._module.get_submodule(node.target)(*arguments)
        return node.target(*arguments, **settings)

    def _attribute(self, node: FxNode) -> Tensor:
        value: Any = self._module
        for part in node.target.split("."):
            value = getattr(value, part)
        return value


def _blocks(graph: Any) -> Iterator[list[FxNode]]:  # noqa: ANN401 - a torch.fx graph
    """The nodes of ``graph`` behind its inputs, block by block."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    last = {node: max((order[user] for user in node.users), default=-1) for node in graph.nodes}
    block: list[FxNode] = []
    live: set[FxNode] = {node for node in graph.nodes if node.op == "placeholder"}
    products = 0
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        block.append(node)
        products += _is_product(node)
        live = {one for one in (*live, node) if last[one] > order[node]}
        is_read_quantized = all(user.op == "call_module" for user in node.users)
        if live == {node} and products >= _PRODUCTS and not is_read_quantized:
            yield block
            block, products = [], 0
    yield block


def _is_product(node: FxNode) -> bool:
    name = getattr(node.target, "__name__", "")
    return node.op == "call_function" and (node.target is torch.matmul or "conv" in name)

"""AdaRound: whether each weight is rounded down or up, layer by layer.

    min over V of ‖f(W x) − f(Ŵ(V) x̂)‖² / ‖f(W x)‖² + λ Σ 1 − |2 h(V) − 1|^β

x is what the float network feeds the layer and x̂ what the quantized one does, its earlier layers
rounded already; f is the Relu or Clip behind it. β falls from 20 to 2 after a fifth of the steps,
in which the penalty is off. Source: Nagel et al. 2020, Up or Down? Adaptive Rounding for
Post-Training Quantization, sections 3.3 to 3.5.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from qbench.errors import InputError
from qbench.graph import FitJob, FitSettings, Fitted
from qbench.working import working
from qbench_engines.torch_fake_quantize import BiasQuantizer, FakeQuantizer, Rounding
from qbench_engines.torch_fit import Examples, deterministic
from qbench_engines.torch_simulation import Simulation

Tensor = Any
FxNode = Any

_RATE = 1e-2
_FIRST_BETA, _LAST_BETA = 20.0, 2.0
_WARM = 0.2
_STRENGTH = 0.01
"""λ of a whole layer: of the mean penalty of its weights, compared with an error relative to the
layer's results.
"""
_CLIPS = ("relu", "clamp")


@dataclass(frozen=True, slots=True)
class RoundingFitter:
    """AdaRound of every weight that a product reads; parameters stay as they are."""

    def fit(self, job: FitJob) -> Fitted:
        """As ``graph.Fitter``; all samples are in memory at once, in both networks.

        Raises:
            InputError: labels, or thresholds to be fitted too, which the method has no use for.
            UnsupportedError: an operator that has no translation.
        """
        settings = job.settings
        if job.labels is not None or settings.weights:
            raise InputError(
                f"{job.doing} by adaround",
                found="weights to be fitted too" if job.labels is None else "labels",
                expected="samples alone: each layer is compared with itself in float",
                remedy="Leave --labels and --weights out, or choose tqt or lsq.",
            )
        with deterministic(settings):
            simulation = Simulation(job.task, learned=False)
            samples = Examples.of(simulation, job)
            before = samples.whole_loss(simulation)
            walk = _Walk(simulation, settings)
            walk.all_layers(samples.inputs)
            with torch.no_grad():
                for weight, found in walk.rounded:
                    weight.copy_(found)
            after = samples.whole_loss(simulation)
        constants = simulation.constants()
        return Fitted(
            qparams={name: one.qparams for name, one in job.task.moving.items()},
            constants={name: constants[name] for name in walk.names},
            losses=(before, after),
        )


class _Walk:
    """Both networks, node by node: the float values and the quantized ones of all samples."""

    def __init__(self, simulation: Simulation, settings: FitSettings) -> None:
        self._simulation, self._settings = simulation, settings
        self._module = simulation.module
        self._names = {id(one): name for name, one in simulation.weights.items()}
        self._left: dict[FxNode, int] = {}
        self.names: list[str] = []
        self.rounded: list[tuple[Tensor, Tensor]] = []

    def all_layers(self, inputs: list[Tensor]) -> None:
        """Round every layer in order."""
        feeds = list(inputs)
        real: dict[FxNode, Tensor] = {}
        coded: dict[FxNode, Tensor] = {}
        self._left = {node: len(node.users) for node in self._module.graph.nodes}
        for node in self._module.graph.nodes:
            if node.op == "output":
                break
            if node.op == "placeholder":
                real[node] = coded[node] = feeds.pop(0)
                continue
            with torch.no_grad():
                real[node] = self._value(node, real, on=False)
            weight = self._weight_of(node)
            if weight is not None:
                self._round(node, weight, real, coded)
            with torch.no_grad():
                coded[node] = self._value(node, coded, on=True)
            self._forget(node, real, coded)

    def _value(self, node: FxNode, known: Mapping[FxNode, Tensor], *, on: bool) -> Tensor:
        """What ``node`` gives from the ``known`` values, quantized or not."""
        if node.op == "get_attr":
            return self._attribute(node)
        arguments, settings = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
        if node.op != "call_module":
            return node.target(*arguments, **settings)
        module = self._module.get_submodule(node.target)
        if isinstance(module, FakeQuantizer | BiasQuantizer) and not on:
            return arguments[0]
        return module(*arguments)

    def _attribute(self, node: FxNode) -> Tensor:
        value: Any = self._module
        for part in node.target.split("."):
            value = getattr(value, part)
        return value

    def _weight_of(self, node: FxNode) -> FxNode | None:
        """The node that quantizes the weight of the product ``node``; None: it is no product."""
        if node.op != "call_function" or len(node.args) < 2:
            return None
        is_product = node.target is torch.matmul or "conv" in getattr(node.target, "__name__", "")
        source = _through_moves(node.args[1])
        if not is_product or source is None or source.op != "call_module":
            return None
        held = source.args[0]
        is_fake = isinstance(self._module.get_submodule(source.target), FakeQuantizer)
        is_weight = held.op == "get_attr" and id(self._attribute(held)) in self._names
        return source if is_fake and is_weight else None

    def _round(
        self,
        node: FxNode,
        weight: FxNode,
        real: Mapping[FxNode, Tensor],
        coded: dict[FxNode, Tensor],
    ) -> None:
        """Fit the roundings of ``weight`` for the product ``node``, and take them."""
        quantizer, held = self._module.get_submodule(weight.target), self._attribute(weight.args[0])
        rounding = Rounding(quantizer, held.detach())
        finish, bias = _finish(node)
        aims, fed = finish(self._with_bias(bias, real[node], real)), coded[node.args[0]]
        size = float((aims**2).mean()) or 1.0
        optimizer = torch.optim.Adam([rounding.v], lr=self._settings.rate or _RATE)
        steps, count = self._settings.steps, rounding.v.numel()
        with working(f"rounding {node.name}"):
            for step in range(steps):
                chosen = torch.randperm(len(fed))[: self._settings.batch]
                known = {**coded, node.args[0]: fed[chosen], weight: rounding()}
                _move(node.args[1], known)
                result = self._value(node, known, on=True)
                found = finish(self._with_bias(bias, result, coded))
                error = ((found - aims[chosen]) ** 2).mean() / size
                penalty = rounding.penalty(_beta(step, steps)) / count * _STRENGTH
                loss = error + (penalty if step >= _WARM * steps else 0.0)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
        rounding.is_hard = True
        with torch.no_grad():
            fitted = rounding()
        self.names.append(self._names[id(held)])
        self.rounded.append((held, fitted))
        coded[weight] = fitted
        _move(node.args[1], coded)

    def _with_bias(
        self, bias: FxNode | None, result: Tensor, known: Mapping[FxNode, Tensor]
    ) -> Tensor:
        """``result`` plus a constant bias that is added behind the product."""
        if bias is None:
            return result
        constant = bias.args[1]
        if constant not in known:  # it comes later in the graph
            held = constant.args[0] if constant.op == "call_module" else constant
            return result + self._attribute(held)
        return result + known[constant]

    def _forget(self, node: FxNode, *tables: dict[FxNode, Tensor]) -> None:
        """Drop what no later node reads."""
        for source in node.all_input_nodes:
            self._left[source] -= 1
            if not self._left[source]:
                for table in tables:
                    table.pop(source, None)


def _through_moves(node: Any) -> FxNode | None:  # noqa: ANN401 - an argument of a node
    """The node before a transposition of a weight."""
    is_move = getattr(node, "target", None) is torch.transpose
    found = node.args[0] if is_move else node
    return found if isinstance(found, torch.fx.Node) else None


def _move(node: FxNode, known: dict[FxNode, Tensor]) -> None:
    """Transpose the weight again, where it is read transposed."""
    if node.target is torch.transpose and node.args[0] in known:
        known[node] = torch.transpose(known[node.args[0]], *node.args[1:])


def _finish(node: FxNode) -> tuple[Any, FxNode | None]:
    """The clip behind the product, as a function, and the addition of a bias between, if any."""
    following, bias = _only_user(node), None
    if following is not None and following.target is torch.add and following.args[0] is node:
        bias = following if _is_constant(following.args[1]) else None
    clip = following if bias is None else _only_user(bias)
    if clip is None or getattr(clip.target, "__name__", "") not in _CLIPS:
        return nn.Identity(), bias
    return (lambda x: clip.target(x, *clip.args[1:], **clip.kwargs)), bias


def _only_user(node: FxNode) -> FxNode | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_constant(node: Any) -> bool:  # noqa: ANN401 - an argument of a node
    held = node.args[0] if getattr(node, "op", "") == "call_module" else node
    return getattr(held, "op", "") == "get_attr"


def _beta(step: int, steps: int) -> float:
    """The exponent of the penalty: it falls along a cosine after the first steps."""
    begin = _WARM * steps
    share = min(max((step - begin) / max(steps - begin, 1), 0.0), 1.0)
    return _LAST_BETA + 0.5 * (_FIRST_BETA - _LAST_BETA) * (1 + math.cos(share * math.pi))

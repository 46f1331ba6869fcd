"""Trains the two Fashion-MNIST networks: ``python -m qbench_zoo.training.fashion NAME OUT.onnx``.

Needs torch (``pip install torch==2.13.0``; the extra ``oracle``). Softmax cross entropy, stochastic
gradients with Nesterov's momentum and weight decay, a rate that rises for a quarter of the steps
and falls to nothing; pictures are mirrored and shifted by up to two pixels. One thread and a seed:
the same machine gives the same bytes, another one sums in another order, which is why the files are
committed and their digests checked.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch.nn import functional

from qbench.errors import UnsupportedError
from qbench.graph import save_model
from qbench_zoo.fashion import fashion_arrays
from qbench_zoo.networks.parameters import TrainedArrays
from qbench_zoo.networks.pictures import build_fashion_mobile, build_preactivation

# A float ONNX graph with gradients, by torch: the graph that is trained is the one that is written.
#
#     values[node.output] = operator(values[node.inputs])    node by node, in the graph's order
#
# Weights, biases and a batch normalization's γ and β are learned; its μ and σ² follow the batches,
# μ ← 0.9·μ + 0.1·mean(batch), and are what it uses outside training.

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
            self._tensors[name] = torch.tensor(
                value.const_value.numpy(), requires_grad=name in learned
            )

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
    # depthwise convolutions learn three times as fast
    x = inputs[0].contiguous(memory_format=torch.channels_last)
    strides = node.attributes["strides"].as_ints()
    return functional.conv2d(x, *inputs[1:], stride=strides, padding=pads[:2], groups=group)


def _batch_norm(inputs: list[Any], node: ir.Node, training: bool) -> Any:  # noqa: ANN401
    x, scale, bias, mean, variance = inputs
    epsilon = node.attributes["epsilon"].as_float()
    return functional.batch_norm(
        x, mean, variance, scale, bias, training=training, momentum=0.1, eps=epsilon
    )


_OPERATORS: Mapping[str, Callable[[list[Any], ir.Node, bool], Any]] = MappingProxyType(
    {
        "Conv": _conv,
        "BatchNormalization": _batch_norm,
        "Relu": lambda inputs, _, __: functional.relu(inputs[0]),
        "Clip": lambda inputs, _, __: torch.clamp(inputs[0], inputs[1], inputs[2]),
        "Add": lambda inputs, _, __: inputs[0] + inputs[1],
        "Concat": lambda inputs, node, __: torch.cat(inputs, node.attributes["axis"].as_int()),
        # nearest
        "Resize": lambda inputs, _, __: functional.interpolate(
            inputs[0], scale_factor=inputs[1].tolist()[2:]
        ),
        "GlobalAveragePool": lambda inputs, _, __: inputs[0].mean((2, 3), keepdim=True),
        "Flatten": lambda inputs, _, __: inputs[0].flatten(1),
        "Gemm": lambda inputs, _, __: functional.linear(*inputs),  # written with transB = 1
    }
)
SEED = 0
BATCH = 128
RATE = 0.1
DECAY = 5e-4
SHIFT = 2

NETWORKS: Mapping[str, Callable[[TrainedArrays, str], ir.Model]] = MappingProxyType(
    {"fashion_preact": build_preactivation, "fashion_mobile": build_fashion_mobile}
)
EPOCHS: Mapping[str, int] = MappingProxyType({"fashion_preact": 10, "fashion_mobile": 4})
"""Eight minutes each on one core: depthwise convolutions learn slowly there."""

Array = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


class RandomStart:
    """Arrays to begin with: weights after He et al. (2015), normalizations that do nothing,
    biases of zero.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def take(self, name: str, shape: tuple[int, ...]) -> Array:
        """The array called ``name``."""
        if len(shape) > 1:
            spread = np.sqrt(2 / np.prod(shape[1:]))
            return np.asarray(self._random.standard_normal(shape) * spread, np.float32)
        ones = name.endswith((".weight", ".running_var"))
        return np.ones(shape, np.float32) if ones else np.zeros(shape, np.float32)


def train(name: str, pictures: npt.NDArray[np.uint8], labels: Labels, epochs: int) -> ir.Model:
    """The network ``name`` learned from ``pictures`` (n, 1, 28, 28) and ``labels`` (n,)."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    random = np.random.default_rng(SEED)
    model = NETWORKS[name](RandomStart(random), name)
    graph = TorchGraph(model)
    optimizer = torch.optim.SGD(
        graph.learned().values(), lr=RATE, momentum=0.9, weight_decay=DECAY, nesterov=True
    )
    steps = epochs * (len(labels) // BATCH)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=RATE, total_steps=steps, pct_start=0.25
    )
    for step, (x, y) in enumerate(_batches(pictures, labels, epochs, random)):
        loss = functional.cross_entropy(
            graph(torch.from_numpy(x), training=True), torch.from_numpy(y)
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        rate.step()
        if step % 100 == 0:
            sys.stderr.write(f"\rstep {step} of {steps}, loss {loss.item():.3f} ")
    sys.stderr.write("\n")
    graph.write_back()
    return model


def share_right(model: ir.Model, pictures: npt.NDArray[np.uint8], labels: Labels) -> float:
    """Top-1 accuracy of ``model``, 0 … 1."""
    graph = TorchGraph(model)
    right = 0
    with torch.no_grad():
        for start in range(0, len(labels), 500):
            x = torch.from_numpy(pictures[start : start + 500].astype(np.float32) / np.float32(255))
            found = graph(x, training=False).argmax(1).numpy()
            right += int((found == labels[start : start + 500]).sum())
    return right / len(labels)


def _batches(
    pictures: npt.NDArray[np.uint8], labels: Labels, epochs: int, random: np.random.Generator
) -> Iterator[tuple[Array, Labels]]:
    """Every epoch all samples in a new order, mirrored or not, each shifted both ways; whole
    batches only.
    """
    edge = (SHIFT, SHIFT)
    padded = np.pad(pictures, ((0, 0), (0, 0), edge, edge)).astype(np.float32) / np.float32(255)
    # (n, 5, 5, 28, 28)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (28, 28), axis=(2, 3))[:, 0]
    for _ in range(epochs):
        order = random.permutation(len(labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            rows, columns = random.integers(0, 2 * SHIFT + 1, (2, BATCH))
            x = windows[chosen, rows, columns]
            mirrored = random.random(BATCH) < 0.5
            x[mirrored] = x[mirrored, :, ::-1]
            yield np.ascontiguousarray(x[:, None]), labels[chosen]


def main(arguments: Sequence[str]) -> int:
    """Trains, says how well, and writes the network to the path given."""
    if len(arguments) != 2 or arguments[0] not in NETWORKS:
        sys.stderr.write(
            f"usage: python -m qbench_zoo.training.fashion {'|'.join(NETWORKS)} OUT.onnx\n"
        )
        return 2
    name, path = arguments[0], Path(arguments[1])
    model = train(name, *fashion_arrays(test=False), EPOCHS[name])
    save_model(model, path)
    sys.stderr.write(
        f"{name}: {share_right(model, *fashion_arrays(test=True)):.2%} of the test pictures right\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Trains ``digits_cnn`` in 12 s: ``OPENBLAS_NUM_THREADS=1 python -m qbench_zoo.training.digits
OUT.onnx``.

Softmax cross entropy, Adam (Kingma and Ba 2015, algorithm 1), pictures shifted by up to one pixel.
Seeded, so the same machine gives the same bytes; another processor, or another number of BLAS
threads, sums in another order and ends at other weights (98.9 or 99.2 % right on the 360 scored),
which is why the file is committed and its digest checked.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from qbench.graph import save_model
from qbench.subjects import digits_arrays
from qbench_zoo.networks.pictures import DigitsWeights, digits_network

# Layers that learn, in numpy: each keeps what its backward pass needs between the two.
#
# y = f(x; w); backward takes ∂L/∂y and gives ∂L/∂x, leaving ∂L/∂w in ``gradients``. Arrays are
# float32, pictures (N, C, H, W). Batch normalization after Ioffe and Szegedy, "Batch Normalization"
# (2015), section 3; the convolution is a matrix product over unrolled windows.

Array = npt.NDArray[np.float32]
Weights = dict[str, Array]


class Layer(Protocol):
    """One step of a network; the only values here that change, because learning is change."""

    weights: Weights
    gradients: Weights

    def forward(self, x: Array, *, training: bool) -> Array:
        """The layer's output."""
        ...

    def backward(self, dy: Array) -> Array:
        """∂L/∂x from ∂L/∂y of the last ``forward`` with ``training``."""
        ...


class Plain:
    """What layers without weights share."""

    def __init__(self) -> None:
        self.weights: Weights = {}
        self.gradients: Weights = {}


class Relu(Plain):
    """y = max(x, 0)."""

    def forward(self, x: Array, *, training: bool) -> Array:  # noqa: ARG002 - the same in both
        """(any shape) → the same."""
        self._positive = x > 0
        return x * self._positive

    def backward(self, dy: Array) -> Array:
        """Passes where x was positive."""
        return dy * self._positive


class MaxPool(Plain):
    """The largest of every 2×2 square; H and W even."""

    def forward(self, x: Array, *, training: bool) -> Array:  # noqa: ARG002 - the same in both
        """(N, C, H, W) → (N, C, H/2, W/2)."""
        n, c, h, w = x.shape
        self._squares = x.reshape(n, c, h // 2, 2, w // 2, 2)
        self._largest: Array = self._squares.max(axis=(3, 5), keepdims=True)
        pooled: Array = self._largest[:, :, :, 0, :, 0]
        return pooled

    def backward(self, dy: Array) -> Array:
        """To the largest; shared by equals, so that the sum is kept."""
        winners = self._squares == self._largest
        share = dy[:, :, :, None, :, None] / winners.sum(axis=(3, 5), keepdims=True).astype(
            np.float32
        )
        n, c, h, _, w, _ = winners.shape
        spread: Array = (winners * share).reshape(n, c, 2 * h, 2 * w).astype(np.float32)
        return spread


class Flatten(Plain):
    """(N, …) → (N, all the rest)."""

    def forward(self, x: Array, *, training: bool) -> Array:  # noqa: ARG002 - the same in both
        """Rows."""
        self._shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, dy: Array) -> Array:
        """Back to the shape."""
        return dy.reshape(self._shape)


class Dense(Plain):
    """y = x·w + b, with w (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        spread = np.sqrt(2 / inputs)  # He et al. (2015): keeps the variance through a ReLU
        self.weights = {
            "w": (random.standard_normal((inputs, outputs)) * spread).astype(np.float32),
            "b": np.zeros(outputs, np.float32),
        }
        self.gradients = {}

    def forward(self, x: Array, *, training: bool) -> Array:  # noqa: ARG002 - the same in both
        """(N, inputs) → (N, outputs)."""
        self._x = x
        return x @ self.weights["w"] + self.weights["b"]

    def backward(self, dy: Array) -> Array:
        """∂w = xᵀ·∂y, ∂b = Σ ∂y, ∂x = ∂y·wᵀ."""
        self.gradients = {"w": self._x.T @ dy, "b": dy.sum(axis=0)}
        return dy @ self.weights["w"].T


class Conv3x3(Plain):
    """A 3×3 convolution, padding 1, stride 1, no bias (a batch normalization follows), w (O, I,
    3, 3).
    """

    def __init__(self, inputs: int, outputs: int, random: np.random.Generator) -> None:
        spread = np.sqrt(2 / (9 * inputs))
        self.weights = {
            "w": (random.standard_normal((outputs, inputs, 3, 3)) * spread).astype(np.float32)
        }
        self.gradients = {}

    def forward(self, x: Array, *, training: bool) -> Array:  # noqa: ARG002 - the same in both
        """(N, I, H, W) → (N, O, H, W)."""
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        # (N, I, H, W, 3, 3)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        n, i, h, w = x.shape
        self._shape = x.shape
        self._rows: Array = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * h * w, i * 9)
        flat = self._rows @ self.weights["w"].reshape(-1, i * 9).T
        return flat.reshape(n, h, w, -1).transpose(0, 3, 1, 2)

    def backward(self, dy: Array) -> Array:
        """∂w from the rows of windows; ∂x by adding every window's share back where it came
        from.
        """
        n, i, h, w = self._shape
        kernel = self.weights["w"]
        flat = dy.transpose(0, 2, 3, 1).reshape(n * h * w, -1)
        self.gradients = {"w": (flat.T @ self._rows).reshape(kernel.shape)}
        shares = (flat @ kernel.reshape(-1, i * 9)).reshape(n, h, w, i, 3, 3)
        padded = np.zeros((n, i, h + 2, w + 2), np.float32)
        for row in range(3):
            for column in range(3):
                padded[:, :, row : row + h, column : column + w] += shares[
                    ..., row, column
                ].transpose(0, 3, 1, 2)
        return padded[:, :, 1:-1, 1:-1]


class BatchNorm(Plain):
    """y = γ·(x - μ)/√(σ² + ε) + β a channel; μ and σ² of the batch in training, running ones
    after.
    """

    epsilon = 1e-5
    momentum = 0.9

    def __init__(self, channels: int) -> None:
        self.weights = {
            "gamma": np.ones(channels, np.float32),
            "beta": np.zeros(channels, np.float32),
        }
        self.gradients = {}
        self.mean: Array = np.zeros(channels, np.float32)
        self.variance: Array = np.ones(channels, np.float32)

    def forward(self, x: Array, *, training: bool) -> Array:
        """(N, C, H, W) → the same."""
        mean, variance = self.mean, self.variance
        if training:
            mean, variance = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
            self.mean = self.momentum * self.mean + (1 - self.momentum) * mean
            self.variance = self.momentum * self.variance + (1 - self.momentum) * variance
        self._factor: Array = 1 / np.sqrt(variance + np.float32(self.epsilon))
        self._normal: Array = (x - _channels(mean)) * _channels(self._factor)
        return _channels(self.weights["gamma"]) * self._normal + _channels(self.weights["beta"])

    def backward(self, dy: Array) -> Array:
        """Through the batch's own mean and variance."""
        beta, gamma = dy.sum(axis=(0, 2, 3)), (dy * self._normal).sum(axis=(0, 2, 3))
        self.gradients = {"gamma": gamma, "beta": beta}
        count = np.float32(dy.size // dy.shape[1])
        inner = dy - _channels(beta / count) - self._normal * _channels(gamma / count)
        return _channels(self.weights["gamma"] * self._factor) * inner


def _channels(values: Array) -> Array:
    """(C,) shaped to meet (N, C, H, W)."""
    return values[:, None, None]


SEED = 0
EPOCHS = 30
BATCH = 64
RATE = 3e-3


def train(
    pictures: Array, labels: npt.NDArray[np.int64], seed: int = SEED, epochs: int = EPOCHS
) -> DigitsWeights:
    """The weights learned from ``pictures`` (n, 1, 8, 8) in 0 … 1 and ``labels`` (n,)."""
    random = np.random.default_rng(seed)
    conv1 = Conv3x3(1, 16, random)
    norm1 = BatchNorm(16)
    conv2 = Conv3x3(16, 32, random)
    norm2 = BatchNorm(32)
    hidden, last = Dense(32 * 4 * 4, 64, random), Dense(64, 10, random)
    layers: list[Layer] = [
        conv1,
        norm1,
        Relu(),
        conv2,
        norm2,
        Relu(),
        MaxPool(),
        Flatten(),
        hidden,
        Relu(),
        last,
    ]
    steps = epochs * (len(labels) // BATCH)
    adam = Adam(layers)
    for step, (x, y) in enumerate(_batches(pictures, labels, epochs, random)):
        logits = x
        for layer in layers:
            logits = layer.forward(logits, training=True)
        gradient = softmax_gradient(logits, y)
        for layer in reversed(layers):
            gradient = layer.backward(gradient)
        adam.update(RATE * (1 - step / steps))  # falling to nothing: the last steps only settle
    return DigitsWeights(
        convolutions=(conv1.weights["w"], conv2.weights["w"]),
        norms=tuple(
            (n.weights["gamma"], n.weights["beta"], n.mean, n.variance) for n in (norm1, norm2)
        ),
        dense=tuple((d.weights["w"], d.weights["b"]) for d in (hidden, last)),
        epsilon=BatchNorm.epsilon,
    )


def softmax_gradient(logits: Array, labels: npt.NDArray[np.int64]) -> Array:
    """∂/∂logits of the mean of -log softmax(logits)[label]: (softmax - one-hot) / n."""
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    gradient: Array = exponentials / exponentials.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    return gradient / np.float32(len(labels))


class Adam:
    """Steps of w ← w - rate · m̂ / (√v̂ + ε), with running means m of the gradient and v of its
    square.
    """

    decay_m, decay_v, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        self._means = [{n: np.zeros_like(w) for n, w in layer.weights.items()} for layer in layers]
        self._squares = [
            {n: np.zeros_like(w) for n, w in layer.weights.items()} for layer in layers
        ]
        self._count = 0

    def update(self, rate: float) -> None:
        """One step with the gradients that the layers hold."""
        self._count += 1
        for layer, means, squares in zip(self._layers, self._means, self._squares, strict=True):
            for name, gradient in layer.gradients.items():
                means[name] = self.decay_m * means[name] + (1 - self.decay_m) * gradient
                squares[name] = self.decay_v * squares[name] + (1 - self.decay_v) * gradient**2
                mean = means[name] / (1 - self.decay_m**self._count)
                root = np.sqrt(squares[name] / (1 - self.decay_v**self._count))
                layer.weights[name] -= (rate * mean / (root + self.epsilon)).astype(np.float32)


def _batches(
    pictures: Array, labels: npt.NDArray[np.int64], epochs: int, random: np.random.Generator
) -> Iterator[tuple[Array, npt.NDArray[np.int64]]]:
    """Every epoch all samples in a new order, each shifted by -1, 0 or 1 pixels both ways;
    whole batches only.
    """
    padded = np.pad(pictures, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = pictures.shape[2:]
    for _ in range(epochs):
        order = random.permutation(len(labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            shifts = random.integers(0, 3, (BATCH, 2))
            moved = [
                padded[i, :, r : r + height, c : c + width]
                for i, (r, c) in zip(chosen, shifts, strict=True)
            ]
            yield np.stack(moved), labels[chosen]


def main(arguments: Sequence[str]) -> int:
    """Trains, and writes the network to the path given."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m qbench_zoo.training.digits OUT.onnx\n")
        return 2
    pictures, labels = digits_arrays(test=False)
    weights = train(pictures.astype(np.float32) / np.float32(16), labels)
    save_model(digits_network(weights), Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

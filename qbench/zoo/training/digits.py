"""Trains ``digits_cnn`` in 12 s: ``OPENBLAS_NUM_THREADS=1 python -m qbench.zoo.training.digits OUT.onnx``.

Softmax cross entropy, Adam (Kingma and Ba 2015, algorithm 1), pictures shifted by up to one pixel. Seeded, so the same
machine gives the same bytes; another processor, or another number of BLAS threads, sums in another order and ends at
other weights (98.9 or 99.2 % right on the 360 scored), which is why the file is committed and its digest checked.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qbench.graph import save_model
from qbench.zoo.digits import digits_arrays
from qbench.zoo.networks.digits import DigitsWeights, digits_network
from qbench.zoo.training.layers import Array, BatchNorm, Conv3x3, Dense, Flatten, Layer, MaxPool, Relu

SEED = 0
EPOCHS = 30
BATCH = 64
RATE = 3e-3


def train(pictures: Array, labels: npt.NDArray[np.int64], seed: int = SEED, epochs: int = EPOCHS) -> DigitsWeights:
    """The weights learned from ``pictures`` (n, 1, 8, 8) in 0 … 1 and ``labels`` (n,)."""
    random = np.random.default_rng(seed)
    conv1, norm1, conv2, norm2 = Conv3x3(1, 16, random), BatchNorm(16), Conv3x3(16, 32, random), BatchNorm(32)
    hidden, last = Dense(32 * 4 * 4, 64, random), Dense(64, 10, random)
    layers: list[Layer] = [conv1, norm1, Relu(), conv2, norm2, Relu(), MaxPool(), Flatten(), hidden, Relu(), last]
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
        norms=tuple((n.weights["gamma"], n.weights["beta"], n.mean, n.variance) for n in (norm1, norm2)),
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
    """Steps of w ← w - rate · m̂ / (√v̂ + ε), with running means m of the gradient and v of its square."""

    decay_m, decay_v, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = layers
        self._means = [{n: np.zeros_like(w) for n, w in layer.weights.items()} for layer in layers]
        self._squares = [{n: np.zeros_like(w) for n, w in layer.weights.items()} for layer in layers]
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
    """Every epoch all samples in a new order, each shifted by -1, 0 or 1 pixels both ways; whole batches only."""
    padded = np.pad(pictures, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = pictures.shape[2:]
    for _ in range(epochs):
        order = random.permutation(len(labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            shifts = random.integers(0, 3, (BATCH, 2))
            moved = [padded[i, :, r : r + height, c : c + width] for i, (r, c) in zip(chosen, shifts, strict=True)]
            yield np.stack(moved), labels[chosen]


def main(arguments: Sequence[str]) -> int:
    """Trains, and writes the network to the path given."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m qbench.zoo.training.digits OUT.onnx\n")
        return 2
    pictures, labels = digits_arrays(test=False)
    weights = train(pictures.astype(np.float32) / np.float32(16), labels)
    save_model(digits_network(weights), Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

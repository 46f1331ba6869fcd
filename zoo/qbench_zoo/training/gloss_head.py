"""Trains the head of ``minilm_glosses`` in half a minute: ``python -m
qbench_zoo.training.gloss_head OUT.npz``.

    min over W, b of  mean of −log softmax(W·e + b)[class]  +  λ/2 · ‖W‖²
    e: directions of the definitions

A convex problem, solved by L-BFGS of scipy from zero. The directions are those of the fp32 network
under ONNX's own kernels of one engine; another engine moves the weights by no more than their last
digits.
"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qbench.backends import get_backend
from qbench.storage import Cache
from qbench.subjects import batches_by_length, prepare_samples
from qbench_zoo.glosses import minilm_retrieval, sentences, training
from qbench_zoo.networks.transformers import WIDTH
from qbench_zoo.wordnet import FIELDS

DECAY = 1e-4


def train(
    directions: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], decay: float = DECAY
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Weight (numbers, classes) and bias (classes,) for ``directions`` (n, numbers) of classes
    ``labels`` (n,).
    """
    from scipy.optimize import minimize

    count, numbers = directions.shape
    classes = len(FIELDS)
    right = np.eye(classes)[labels]

    def loss(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        weight = flat[: numbers * classes].reshape(numbers, classes)
        bias = flat[numbers * classes :]
        logits = directions @ weight + bias
        logits -= logits.max(axis=1, keepdims=True)
        total = np.log(np.exp(logits).sum(axis=1, keepdims=True))
        slope = (np.exp(logits - total) - right) / count
        value = float(
            ((total[:, 0] - (logits * right).sum(axis=1)).mean()) + decay / 2 * (weight**2).sum()
        )
        return value, np.concatenate(
            [(directions.T @ slope + decay * weight).ravel(), slope.sum(axis=0)]
        )

    found = minimize(
        loss,
        np.zeros((numbers + 1) * classes),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500},
    ).x
    weight, bias = found[: numbers * classes].reshape(numbers, classes), found[numbers * classes :]
    return weight.astype(np.float32), bias.astype(np.float32)


def main(out: Path) -> None:
    """Write the head trained on ``glosses.training`` to ``out``, and print what it scores there."""
    model, entries = minilm_retrieval(), training()
    data = sentences("gloss_training", entries)
    samples = prepare_samples(data, model.preprocess, Cache.default())
    directions = np.zeros((len(entries), WIDTH))
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:
        for places, tokens in batches_by_length(samples, "ids", "length"):
            directions[places] = executor.run({"ids": tokens})["embedding"]
    labels = np.array([gloss.field for gloss in entries])
    weight, bias = train(directions, labels)
    np.savez(out, weight=weight, bias=bias)
    right = (np.argmax(directions @ weight + bias, axis=1) == labels).mean()
    print(f"{out}: {len(entries)} definitions, {right:.1%} of them right")  # noqa: T201 - a script


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Trains the networks that answer with numbers: ``python -m qbench_zoo.training.pixels NAME
OUT.onnx``.

Needs torch (``pip install torch==2.13.0``; the extra ``oracle``). Adam, a rate that rises and
falls; one thread and a seed, as in ``training/fashion.py``. The segmenter learns by cross entropy
from scenes that are drawn anew in each epoch, the denoiser and the regressor by squared error.
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

from qbench.graph import save_model
from qbench_zoo.diabetes import diabetes_arrays, standardized, target_scale
from qbench_zoo.networks.pixels import (
    build_denoiser,
    build_pointer,
    build_regressor,
    build_segmenter,
)
from qbench_zoo.scenes import CLASSES, IGNORED, POINTS, SIDE, draw_noisy, draw_pointed, draw_scenes
from qbench_zoo.training.fashion import RandomStart, TorchGraph

SEED = 0
BATCH = 32

Batches = Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[Any]]]


def _scenes(epochs: int) -> Batches:
    for epoch in range(epochs):
        pictures, masks, _ = draw_scenes(12_800, 1000 + epoch, test=False)
        yield from _batched(_shares(pictures), masks.astype(np.int64), epoch)


def _pointed(epochs: int) -> Batches:
    for epoch in range(epochs):
        pictures, labels, _ = draw_pointed(12_800, 3000 + epoch, test=False)
        points = labels[:, :-1].reshape(-1, POINTS, 3)[:, :, :2].reshape(len(labels), -1)
        yield from _batched(_shares(pictures), (points / SIDE).astype(np.float32), epoch)


def _noisy(epochs: int) -> Batches:
    for epoch in range(epochs):
        noisy, clean, _ = draw_noisy(12_800, 2000 + epoch, test=False)
        if epoch % 2:
            noisy, clean = noisy[:, :, ::-1], clean[:, :, ::-1]
        yield from _batched(_shares(noisy), _shares(clean), epoch)


def _rows(epochs: int) -> Batches:
    x, y = diabetes_arrays(test=False)
    rows, values = standardized(x), (y / target_scale()).astype(np.float32)[:, None]
    for epoch in range(epochs):
        yield from _batched(rows, values, epoch)


def _shares(pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(pictures[:, None].astype(np.float32) / np.float32(255))


def _batched(x: npt.NDArray[np.float32], y: npt.NDArray[Any], epoch: int) -> Batches:
    order = np.random.default_rng([SEED, epoch]).permutation(len(x))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        yield x[chosen], y[chosen]


def _cross_entropy(found: Any, right: Any) -> Any:  # noqa: ANN401 - tensors, which mypy knows nothing of
    return functional.cross_entropy(found, right, ignore_index=IGNORED)


TRAINED: Mapping[
    str,
    tuple[Callable[[RandomStart, str], ir.Model], Callable[[int], Batches], int, int, float, Any],
] = MappingProxyType(
    {
        "clothes_segmenter": (
            lambda start, name: build_segmenter(start, name, CLASSES),
            _scenes,
            6,
            400,
            4e-3,
            _cross_entropy,
        ),
        "clothes_points": (
            lambda start, name: build_pointer(start, name, POINTS),
            _pointed,
            4,
            400,
            2e-3,
            functional.mse_loss,
        ),
        "photo_denoiser": (build_denoiser, _noisy, 2, 400, 3e-3, functional.mse_loss),
        "diabetes_mlp": (
            lambda start, name: build_regressor(start, name, 10),
            _rows,
            60,
            11,
            3e-3,
            functional.mse_loss,
        ),
    }
)
"""How each is built, what it learns from, epochs, batches in each, the highest rate, and its
loss.
"""


def train(name: str) -> ir.Model:
    """The network ``name``, trained."""
    build, batches, epochs, steps, rate, loss_of = TRAINED[name]
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = build(RandomStart(np.random.default_rng(SEED)), name)
    graph = TorchGraph(model)
    optimizer = torch.optim.AdamW(graph.learned().values(), lr=rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=rate, total_steps=epochs * steps, pct_start=0.2
    )
    for step, (x, y) in enumerate(batches(epochs)):
        loss = loss_of(
            graph(torch.from_numpy(x), training=True), torch.from_numpy(np.ascontiguousarray(y))
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            sys.stderr.write(f"\rstep {step} of {epochs * steps}, loss {loss.item():.4f} ")
    sys.stderr.write("\n")
    graph.write_back()
    return model


def main(arguments: Sequence[str]) -> int:
    """Trains and writes the network to the path given."""
    if len(arguments) != 2 or arguments[0] not in TRAINED:
        sys.stderr.write(
            f"usage: python -m qbench_zoo.training.pixels {'|'.join(TRAINED)} OUT.onnx\n"
        )
        return 2
    save_model(train(arguments[0]), Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

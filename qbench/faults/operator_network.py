"""A small network of many operators, for faults that trained networks do not have a place for."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import get_backend
from qbench.faults.fault import Array
from qbench.subjects import GraphBuilder, ZooModel, digits_arrays, get_model

NAME = "digits_many_operators"
_SEED, _RIDGE, _CLASSES = 20260, 2.0, 10
_NO_PADS: Sequence[int] = (0, 0, 0, 0)
_AROUND: Sequence[int] = (1, 1, 1, 1)


def many_operators() -> ZooModel:
    """The network as a model that is fed and judged as ``digits_cnn`` is."""
    return replace(
        get_model("digits_cnn"),
        id=NAME,
        graphs={"model": _network},
        origin="made in code by qbench.faults",
    )


def _network() -> ir.Model:
    return _written(*_readout())


@functools.cache
def _readout() -> tuple[Array, Array]:
    """W (features, 10) and b (10,): the ridge regression of one-hot classes, in float64,
    rounded to float32.
    """
    pictures, labels = digits_arrays(test=False)
    x = pictures.reshape(-1, 1, 8, 8).astype(np.float32) / 16
    with get_backend("ort-cpu").prepare(_written(None, None)) as runner:
        (features,) = runner.run({"x": x}).values()
    design = np.concatenate([features.astype(np.float64), np.ones((len(x), 1))], axis=1)
    wanted = np.eye(_CLASSES)[labels] * 8 - 4
    solved = np.linalg.solve(
        design.T @ design + _RIDGE * np.eye(design.shape[1]), design.T @ wanted
    )
    coarse = np.rint(solved * 2**14) / 2**14  # the last bits are BLAS's own
    return coarse[:-1].astype(np.float32), coarse[-1].astype(np.float32)


class _Layers:
    """Layers with fixed random weights, written one after the other."""

    def __init__(self) -> None:
        self.graph = GraphBuilder(NAME)
        self._random = np.random.default_rng(_SEED)

    def conv(
        self,
        value: ir.Value,
        name: str,
        shape: Sequence[int],
        pads: Sequence[int],
        gain: float = 1.0,
        **more: Sequence[int] | int,
    ) -> ir.Value:
        """A convolution with a weight of ``shape`` and a bias."""
        spread = gain * np.sqrt(2.0 / np.prod(shape[1:]))
        weight = self._numbers(shape) * spread * self._random.uniform(0.5, 2.0, (shape[0], 1, 1, 1))
        inputs = [value, self._constant(f"{name}.weight", weight)]
        inputs.append(self._constant(f"{name}.bias", 0.4 * self._numbers(shape[:1])))
        attributes: Mapping[str, Any] = {
            "kernel_shape": list(shape[2:]),
            "pads": list(pads),
            **more,
        }
        return self.graph.node("Conv", inputs, name, attributes)

    def clip(self, value: ir.Value, name: str, high: float) -> ir.Value:
        """Limits 0 and ``high``."""
        ends = [
            self._constant(f"{name}.{end}", np.array(at))
            for end, at in (("low", 0.0), ("high", high))
        ]
        return self.graph.node("Clip", [value, *ends], name)

    def doubled(self, value: ir.Value, name: str) -> ir.Value:
        """Twice as high and wide, by the nearest pixel."""
        scales = self._constant(f"{name}.scales", np.array([1.0, 1.0, 2.0, 2.0]))
        rule = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        return self.graph.node("Resize", [value, None, scales], name, rule)

    def _numbers(self, shape: Sequence[int]) -> npt.NDArray[np.float64]:
        return self._random.normal(size=tuple(shape))

    def _constant(self, name: str, array: npt.NDArray[Any]) -> ir.Value:
        return self.graph.constant(name, array.astype(np.float32))


def _written(weight: Array | None, bias: Array | None) -> ir.Model:
    """The graph up to its features, or with a last layer on top of them."""
    layers = _Layers()
    node = layers.graph.node
    stem = layers.clip(
        layers.conv(layers.graph.input("x", ("N", 1, 8, 8)), "stem", (12, 1, 3, 3), _AROUND),
        "limit",
        2.5,
    )
    lopsided = layers.conv(stem, "lopsided", (12, 12, 3, 3), (0, 0, 1, 1), strides=(2, 2))
    leaky = node("LeakyRelu", [lopsided], "leaky", {"alpha": 0.25})
    wide = node(
        "AveragePool",
        [layers.doubled(leaky, "up")],
        "mean",
        {"kernel_shape": [3, 3], "pads": list(_AROUND)},
    )
    point = layers.conv(stem, "point", (12, 12, 1, 1), _NO_PADS, gain=0.05)
    summed = node("Add", [node("Sub", [wide, stem], "difference"), point], "sum")
    branches = [
        node(
            "HardSwish", [layers.conv(stem, "depthwise", (24, 1, 3, 3), _AROUND, group=12)], "swish"
        ),
        node(
            "MaxPool", [layers.conv(stem, "grouped", (15, 4, 3, 3), _AROUND, group=3)], "max", _POOL
        ),
        node(
            "Tanh",
            [layers.conv(stem, "dilated", (9, 12, 3, 3), (2, 2, 2, 2), dilations=(2, 2))],
            "tanh",
        ),
        node("Mul", [summed, node("Sigmoid", [summed], "sigmoid")], "gate"),
    ]
    joined = node("Concat", branches, "joined", {"axis": 1})
    strided = node(
        "Relu",
        [layers.conv(joined, "strided", (32, 60, 3, 3), _AROUND, strides=(2, 2))],
        "positive",
    )
    odd = layers.conv(strided, "odd", (5, 32, 3, 3), _NO_PADS, gain=8.0)
    pooled = node("Flatten", [node("GlobalAveragePool", [strided], "global")], "pooled")
    shares = node("Softmax", [node("Flatten", [odd], "rest")], "shares", {"axis": -1})
    parts = [node("Flatten", [strided], "flat"), pooled, shares]
    features = node("Concat", parts, "features", {"axis": 1})
    if weight is None or bias is None:
        return layers.graph.model({"features": features})
    constants = [
        layers.graph.constant("last.weight", weight),
        layers.graph.constant("last.bias", bias),
    ]
    return layers.graph.model({"logits": node("Gemm", [features, *constants], "last")})


_POOL: Mapping[str, Sequence[int]] = {"kernel_shape": [3, 3], "pads": list(_AROUND)}

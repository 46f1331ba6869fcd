"""Products of levels, drawn so that roundings are tight, as PyTorch computes them and as a
machine of ours does.

As a program it is PyTorch in a process of its own: pickled products in, levels out.
"""

import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from qbench.graph import INTEGER_DOMAIN
from qbench.interpreter import Program
from qbench.numerics import Arithmetic, QParams, QType

Array = np.ndarray[Any, np.dtype[Any]]
U8 = QType.parse("uint8")


@dataclass(frozen=True)
class Layout:
    """Shapes of data and weight, and how a convolution goes over them;
    ``linear`` for a matrix product.
    """

    x: tuple[int, ...]
    w: tuple[int, ...]
    groups: int = 1
    stride: int = 1
    pad: int = 0
    dilation: int = 1

    @property
    def linear(self) -> bool:
        return len(self.x) == 2

    @property
    def rank(self) -> int:
        return len(self.x) - 2


@dataclass(frozen=True, eq=False)
class Product:
    """One product; a scale of weights is a number or an array, one a filter."""

    layout: Layout
    x: Array
    w: Array
    x_scale: float
    x_zero: int
    w_scale: Any
    w_zero: int
    y_scale: float
    y_zero: int
    bias: Array | None


def drawn(
    layout: Layout,
    random: np.random.Generator,
    *,
    per_channel: bool,
    biased: bool,
    largest: int = 24,
) -> Product:
    """Levels over their whole type, weights up to ``largest``, and an output scale that puts
    sums next to ties.
    """
    filters, parts = layout.w[0], int(random.integers(3, 100)) * 2
    x_scale, w_scale = (
        np.float32(random.uniform(low, high)) for low, high in ((0.01, 0.05), (0.002, 0.02))
    )
    scales: Any = (
        (float(w_scale) / random.integers(1, 12, filters)).astype(np.float32)
        if per_channel
        else w_scale
    )
    return Product(
        layout=layout,
        x=random.integers(0, 256, layout.x).astype(np.uint8),
        w=random.integers(-largest, largest + 1, layout.w).astype(np.int8),
        x_scale=float(x_scale),
        x_zero=int(random.integers(0, 256)),
        w_scale=scales,
        w_zero=0,
        y_scale=float(
            np.float32(float(x_scale) * float(w_scale) * parts / int(random.integers(1, 6)))
        ),
        y_zero=int(random.integers(0, 256)),
        bias=random.integers(-3000, 3000, filters) if biased else None,
    )


def extreme(product: Product, random: np.random.Generator) -> Product:
    """The same with levels and weights at the ends of their types,
    pushed apart by a coarser output.
    """
    x = random.choice([0, 1, 254, 255], product.x.shape).astype(np.uint8)
    w = random.choice([-128, -127, 126, 127], product.w.shape).astype(np.int8)
    return replace(product, x=x, w=w, y_scale=float(np.float32(product.y_scale * 97)))


def by_engine(torch: ModuleType, engine: str, product: Product, *, relu: bool = False) -> Array:
    """What PyTorch's ``engine`` makes of it; its biases are floats, here those that the
    integers stand for.
    """
    torch.backends.quantized.engine = engine
    x = tensor(torch, product.x, product.x_scale, product.x_zero)
    if np.ndim(product.w_scale):
        points = torch.full((len(product.w),), product.w_zero)
        scales = torch.tensor(product.w_scale, dtype=torch.float64)
        w = torch._make_per_channel_quantized_tensor(torch.from_numpy(product.w), scales, points, 0)
    else:
        w = tensor(torch, product.w, product.w_scale, product.w_zero)
    real = None
    if product.bias is not None:
        scale = np.float32(product.x_scale) * np.asarray(product.w_scale, np.float32)
        real = torch.from_numpy((product.bias * scale.astype(np.float64)).astype(np.float32))
    layout, operators, end = product.layout, torch.ops.quantized, "_relu" if relu else ""
    target = (product.y_scale, product.y_zero)
    if layout.linear:
        packed = operators.linear_prepack(w, real)
        return getattr(operators, f"linear{end}")(x, packed, *target).int_repr().numpy()
    place = [[size] * layout.rank for size in (layout.stride, layout.pad, layout.dilation)]
    packed = getattr(operators, f"conv{layout.rank}d_prepack")(w, real, *place, layout.groups)
    return getattr(operators, f"conv{layout.rank}d{end}")(x, packed, *target).int_repr().numpy()


def counted(product: Product, machine: Arithmetic, *, relu: bool = False) -> Array:
    """What the interpreter counts under ``machine``
    for the same product as one ONNX operator on integers.
    """
    layout = product.layout
    scales = np.asarray(product.w_scale, np.float32)
    constants = {
        "sx": np.float32(product.x_scale),
        "zx": np.uint8(product.x_zero),
        "w": product.w,
        "sw": scales,
        "zw": np.full(scales.shape, product.w_zero, np.int8),
        "sy": np.float32(product.y_scale),
        "zy": np.uint8(product.y_zero),
    }
    bias = "" if product.bias is None else "b"
    if product.bias is not None:
        constants["b"] = product.bias.astype(np.int32)
    if layout.linear:
        names = ["x", "sx", "zx", "w", "sw", "zw", bias, "sy", "zy"]
        node = helper.make_node("QGemm", names, ["y"], domain="com.microsoft", transB=1)
    else:
        names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", *([bias] if bias else [])]
        rank = layout.rank
        node = helper.make_node(
            "QLinearConv", names, ["y"], group=layout.groups, strides=[layout.stride] * rank,
            pads=[layout.pad] * 2 * rank, dilations=[layout.dilation] * rank,
        )  # fmt: skip
    levels = run(node, constants, {"x": product.x}, machine)
    return np.maximum(levels, np.uint8(product.y_zero)) if relu else levels


def run(
    node: Any, constants: dict[str, Any], feeds: dict[str, Array], machine: Arithmetic
) -> Array:
    """``node`` alone in a graph, under ``machine``."""
    kinds = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, kinds[fed.dtype.name], fed.shape)
            for name, fed in feeds.items()
        ],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [
            numpy_helper.from_array(np.asarray(constant), name)
            for name, constant in constants.items()
        ],
    )
    opsets = [
        helper.make_opsetid(name, 17 if not name else 1)
        for name in ("", "com.microsoft", INTEGER_DOMAIN)
    ]
    model = ir.serde.deserialize_model(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    return Program(model, machine).run(feeds)["y"]


def tensor(torch: ModuleType, levels: Array, scale: float, zero: int) -> Any:
    """Levels as a quantized tensor."""
    return torch._make_per_tensor_quantized_tensor(
        torch.from_numpy(levels), float(scale), int(zero)
    )


def grid(scale: float, zero: int, qtype: QType = U8) -> QParams:
    """A grid per tensor."""
    return QParams(float(np.float32(scale)), zero, qtype)


def on_avx2(products: Sequence[Product], emulator: Sequence[str] = ()) -> list[Array]:
    """What FBGEMM makes of ``products`` when it is told to do without VNNI, or on an emulated
    processor without it.
    """
    told = {} if emulator else {"FBGEMM_ENABLE_INSTRUCTIONS": "AVX2"}
    return _answered(products, "fbgemm", told, emulator)


def without_amx(products: Sequence[Product]) -> list[Array]:
    """What oneDNN makes of ``products`` when it is told to do without AMX."""
    return _answered(products, "onednn", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"})


def _answered(
    products: Sequence[Product], engine: str, told: dict[str, str], emulator: Sequence[str] = ()
) -> list[Array]:
    command = [*emulator, sys.executable, __file__, engine]
    done = subprocess.run(
        command,
        input=pickle.dumps(products),
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **told},
        check=True,
    )
    return pickle.loads(done.stdout)


def _answer() -> None:
    import torch

    warnings.simplefilter("ignore")
    levels = [by_engine(torch, sys.argv[1], product) for product in pickle.load(sys.stdin.buffer)]
    sys.stdout.buffer.write(pickle.dumps(levels))


if __name__ == "__main__":
    _answer()

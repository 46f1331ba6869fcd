"""PyTorch's transposed convolutions against ours; two kernels of its engines are wrong,
and stay named here.
"""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from onnx import helper
from torch_products import Array, Layout, Product, drawn, run, tensor

from qbench.backends import get_backend
from qbench.graph import INTEGER_DOMAIN
from qbench.numerics import Arithmetic, get_arithmetic

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:.*torch.quantize_per_tensor.*:UserWarning"),
]

LAYOUTS = {
    "3x3": Layout((1, 16, 6, 6), (16, 16, 3, 3), pad=1),
    "4x4": Layout((1, 8, 6, 6), (8, 4, 4, 4), groups=2, stride=2, pad=1),
    "depthwise": Layout((1, 8, 6, 6), (8, 1, 3, 3), groups=8, stride=2, pad=1),
    "2x2": Layout((1, 12, 6, 6), (12, 12, 2, 2), stride=2),
}
WRONG = {
    "fbgemm": Layout((1, 8, 6, 6), (8, 8, 2, 2), stride=2),
    "onednn": Layout((1, 8, 6, 6), (8, 12, 3, 3), pad=1),
}
"""FBGEMM: its direct kernel (windows of 2 × n, stride 2, 8 | channels, no padding). oneDNN:
several channels a group, and another number of filters.
"""


@pytest.fixture(autouse=True)
def one_thread(torch: ModuleType) -> Iterator[None]:
    before, engine = torch.get_num_threads(), torch.backends.quantized.engine
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.backends.quantized.engine = engine


def transposed(
    layout: Layout, random: np.random.Generator, *, per_channel: bool, biased: bool
) -> Product:
    """A product whose weight is (channels, filters a group, …)."""
    product, filters = (
        drawn(layout, random, per_channel=per_channel, biased=biased),
        layout.w[1] * layout.groups,
    )
    scales = (
        np.resize(product.w_scale, filters).astype(np.float32) if per_channel else product.w_scale
    )
    bias = random.integers(-3000, 3000, filters) if biased else None
    return replace(product, w_scale=scales, bias=bias)


def by_engine(torch: ModuleType, engine: str, product: Product) -> Array:
    torch.backends.quantized.engine = engine
    layout, scale = product.layout, np.asarray(product.w_scale, np.float32)
    if scale.ndim:
        scales, points = (
            torch.tensor(scale, dtype=torch.float64),
            torch.zeros(len(scale), dtype=torch.long),
        )
        w = torch._make_per_channel_quantized_tensor(torch.from_numpy(product.w), scales, points, 1)
    else:
        w = tensor(torch, product.w, product.w_scale, 0)
    bias = None
    if product.bias is not None:
        real = product.bias * (np.float32(product.x_scale) * scale).astype(np.float64)
        bias = torch.from_numpy(real.astype(np.float32))
    place = [[layout.stride] * 2, [layout.pad] * 2, [0, 0], [1, 1]]
    packed = torch.ops.quantized.conv_transpose2d_prepack(w, bias, *place, layout.groups)
    x = tensor(torch, product.x, product.x_scale, product.x_zero)
    return (
        torch.ops.quantized.conv_transpose2d(x, packed, product.y_scale, product.y_zero)
        .int_repr()
        .numpy()
    )


def counted(product: Product, machine: Arithmetic) -> Array:
    layout, scale = product.layout, np.asarray(product.w_scale, np.float32)
    constants = {
        "sx": np.float32(product.x_scale),
        "zx": np.uint8(product.x_zero),
        "w": product.w,
        "sw": scale,
    }
    constants |= {"zw": np.zeros(scale.shape, np.int8), "sy": np.float32(product.y_scale)}
    constants |= {"zy": np.uint8(product.y_zero)}
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    if product.bias is not None:
        names, constants = [*names, "b"], {**constants, "b": product.bias.astype(np.int32)}
    node = helper.make_node(
        "QLinearConvTranspose", names, ["y"], domain=INTEGER_DOMAIN, group=layout.groups,
        strides=[layout.stride] * 2, pads=[layout.pad] * 4,
    )  # fmt: skip
    return run(node, constants, {"x": product.x}, machine)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack", "onednn"])
def test_transposed_convolutions(engine: str, layout: str, torch: ModuleType) -> None:
    if engine == "onednn" and get_backend("torch-onednn").arithmetic is None:
        pytest.skip(
            "our 'onednn' follows its kernels for AVX-512 with VNNI; others multiply scales first"
        )
    random = np.random.default_rng(31)
    for biased in (False, True):
        for per_channel in (
            (False, True) if engine == "qnnpack" else (False,)
        ):  # the only one that takes them
            for _ in range(3):
                product = transposed(
                    LAYOUTS[layout], random, per_channel=per_channel, biased=biased
                )
                theirs = by_engine(torch, engine, product)
                np.testing.assert_array_equal(counted(product, get_arithmetic(engine)), theirs)


@pytest.mark.parametrize("engine", WRONG)
def test_two_kernels_are_wrong(engine: str, torch: ModuleType) -> None:
    product = transposed(WRONG[engine], np.random.default_rng(32), per_channel=False, biased=False)
    layout, centred = (
        product.layout,
        torch.from_numpy(product.x.astype(np.float64) - product.x_zero),
    )
    sums = torch.nn.functional.conv_transpose2d(
        centred,
        torch.from_numpy(product.w.astype(np.float64)),
        None,
        layout.stride,
        layout.pad,
        0,
        layout.groups,
    )
    real = (
        sums.numpy() * (product.x_scale * float(product.w_scale) / product.y_scale) + product.y_zero
    )
    ours, theirs = (
        one.astype(np.int64)
        for one in (counted(product, get_arithmetic(engine)), by_engine(torch, engine, product))
    )
    assert np.abs(ours - np.clip(real, 0, 255)).max() <= 0.501
    assert np.count_nonzero(ours != theirs) > ours.size / 2
    assert np.abs(ours - theirs).max() > 100

"""PyTorch's quantized engines against ours: linear and convolutions, element for element, no
difference allowed.

FBGEMM sums pairs in 16 bits where it has no VNNI; it is told to have none in a process of its own.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from torch_products import (
    Layout,
    Product,
    by_engine,
    counted,
    drawn,
    extreme,
    on_avx2,
    without_amx,
)

from qbench.backends import get_backend
from qbench.host import has_amx, processor_features
from qbench.numerics import Arithmetic, MultiplierForm, get_arithmetic

pytestmark = [
    pytest.mark.oracle,
    # PyTorch calls its quantized tensors deprecated; the operators on them are what judges here.
    pytest.mark.filterwarnings("ignore:.*torch.quantize_per_tensor.*:UserWarning"),
]

LAYOUTS = {
    "linear": Layout((23, 64), (24, 64)),
    "linear-odd": Layout((7, 63), (33, 63)),
    "conv1d": Layout((2, 8, 21), (12, 8, 3), pad=1),
    "1x1": Layout((1, 40, 7, 9), (17, 40, 1, 1)),
    "3x3": Layout((1, 16, 9, 8), (16, 16, 3, 3), pad=1),
    "7x7": Layout((1, 3, 19, 19), (16, 3, 7, 7), stride=2, pad=3),
    "dilated": Layout((1, 8, 11, 11), (16, 8, 3, 3), pad=2, dilation=2),
    "grouped": Layout((1, 16, 9, 9), (32, 4, 3, 3), groups=4, pad=1),
    "grouped-odd": Layout((1, 6, 9, 9), (10, 3, 3, 3), groups=2, pad=1),
    "depthwise": Layout((1, 32, 9, 9), (32, 1, 3, 3), groups=32, pad=1),
    "depthwise-odd": Layout((1, 33, 9, 9), (33, 1, 3, 3), groups=33, stride=2, pad=1),
    "depthwise-5x5": Layout((1, 16, 9, 9), (16, 1, 5, 5), groups=16, pad=2),
    "depthwise-twice": Layout((1, 8, 9, 9), (16, 1, 3, 3), groups=8, pad=1),
    "conv3d": Layout((1, 4, 5, 6, 6), (8, 4, 3, 3, 3), pad=1),
}
KERNELS = {
    "7x7": Layout((1, 8, 9, 9), (8, 1, 7, 7), groups=8, pad=3),
    "9x9": Layout((1, 8, 9, 9), (8, 1, 9, 9), groups=8, pad=4),
    "unpadded": Layout((1, 16, 9, 9), (16, 1, 3, 3), groups=16),
    "strided": Layout((1, 16, 12, 12), (16, 1, 3, 3), groups=16, pad=1, stride=2),
    "far": Layout((1, 16, 12, 12), (16, 1, 3, 3), groups=16, pad=1, stride=3),
    "dilated": Layout((1, 16, 9, 9), (16, 1, 3, 3), groups=16, pad=2, dilation=2),
    "thrice": Layout((1, 8, 9, 9), (24, 1, 3, 3), groups=8, pad=1),
    "twelve": Layout((1, 12, 9, 9), (12, 1, 3, 3), groups=12, pad=1),
    "1d": Layout((2, 8, 21), (8, 1, 3), groups=8, pad=1),
    "3d": Layout((1, 8, 6, 6, 6), (8, 1, 3, 3, 3), groups=8, pad=1),
    "groups-of-2": Layout((1, 16, 9, 9), (16, 2, 3, 3), groups=8, pad=1),
    "three-groups-of-2": Layout((1, 6, 9, 9), (6, 2, 3, 3), groups=3, pad=1),
    "groups-of-4": Layout((1, 16, 9, 9), (16, 4, 3, 3), groups=4, pad=1, stride=2),
    "one-group-of-4": Layout((1, 4, 9, 9), (4, 4, 3, 3), pad=1),
    "groups-of-8": Layout((1, 32, 9, 9), (32, 8, 3, 3), groups=4, pad=1),
    "groups-of-16": Layout((1, 32, 9, 9), (32, 16, 3, 3), groups=2, pad=1),
    "odd-channels": Layout((1, 5, 9, 9), (16, 5, 3, 3), pad=1),
}
"""Convolutions of the kinds that FBGEMM chooses kernels by."""
GROUPWISE = {"3x3", "groups-of-2", "groups-of-4", "groups-of-8", "groups-of-16"}
"""Those of its groupwise kernels, which look at the processor and not at what FBGEMM is told."""
FEATURES = processor_features()
VNNI = any("vnni" in feature for feature in FEATURES)
ENGINES = ("fbgemm", "qnnpack", "onednn")


def machine_of(engine: str) -> Arithmetic:
    """What ``engine`` follows on this processor."""
    if engine == "onednn" and get_backend("torch-onednn").arithmetic is None:
        pytest.skip(
            "our 'onednn' follows its kernels for AVX-512 with VNNI; others multiply scales first"
        )
    return get_arithmetic("fbgemm-avx2" if engine == "fbgemm" and not VNNI else engine)


def wide(layout: Layout, random: np.random.Generator, *, per_channel: bool) -> list[Product]:
    """Two products of weights over their whole type: at random, and at the ends of it."""
    product = drawn(layout, random, per_channel=per_channel, biased=False, largest=127)
    return [product, extreme(product, random)]


@pytest.fixture(autouse=True)
def one_thread(torch: ModuleType) -> Iterator[None]:
    before, engine = torch.get_num_threads(), torch.backends.quantized.engine
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    torch.backends.quantized.engine = engine


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("engine", ENGINES)
def test_products_next_to_ties(
    engine: str, layout: str, per_channel: bool, torch: ModuleType
) -> None:
    random = np.random.default_rng(11)
    machine = machine_of(engine)
    for biased in (False, True):
        for relu in (False, True):
            for _ in range(3):
                product = drawn(LAYOUTS[layout], random, per_channel=per_channel, biased=biased)
                theirs = by_engine(torch, engine, product, relu=relu)
                np.testing.assert_array_equal(counted(product, machine, relu=relu), theirs)


@pytest.mark.skipif(not has_amx(), reason="this processor has no AMX")
def test_onednn_with_amx_is_one_code_off_next_to_ties(torch: ModuleType) -> None:
    """Its kernels for AMX multiply the scales of data and weights first. It chooses them by the
    number of rows, so no arithmetic describes it; without them it is ours.
    """
    random, machine = np.random.default_rng(21), get_arithmetic("onednn")
    products = [
        drawn(layout, random, per_channel=per_channel, biased=biased)
        for layout in LAYOUTS.values()
        for per_channel in (False, True)
        for biased in (False, True)
    ]
    ours = [counted(product, machine).astype(int) for product in products]
    for mine, theirs in zip(ours, without_amx(products), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    with_it = [by_engine(torch, "onednn", product) for product in products]
    far = [np.abs(mine - theirs) for mine, theirs in zip(ours, with_it, strict=True)]
    assert max(int(one.max()) for one in far) == 1
    assert 0 < sum(int(one.sum()) for one in far) < 1e-3 * sum(one.size for one in far)


@pytest.mark.parametrize("layout", {**LAYOUTS, **KERNELS})
@pytest.mark.parametrize("engine", ENGINES)
def test_products_of_whole_ranges(engine: str, layout: str, torch: ModuleType) -> None:
    random = np.random.default_rng(12)
    machine = machine_of(engine)
    if engine == "qnnpack" and layout == "3d":
        # Its depthwise kernel in space rounds the exact product, all others that of float32.
        machine = replace(machine, scaling=replace(machine.scaling, form=MultiplierForm.FLOAT64))
    for per_channel in (False, True):
        for product in wide({**LAYOUTS, **KERNELS}[layout], random, per_channel=per_channel):
            np.testing.assert_array_equal(
                counted(product, machine), by_engine(torch, engine, product)
            )


def test_fbgemm_without_vnni(torch: ModuleType) -> None:
    random, machine = np.random.default_rng(13), get_arithmetic("fbgemm-avx2")
    layouts = {
        name: one
        for name, one in {**LAYOUTS, **KERNELS}.items()
        if not (VNNI and name in GROUPWISE)
    }
    products = [
        (name, one)
        for name, layout in layouts.items()
        for one in wide(layout, random, per_channel=True)
    ]
    for (name, product), theirs in zip(
        products, on_avx2([one for _, one in products]), strict=True
    ):
        np.testing.assert_array_equal(counted(product, machine), theirs, err_msg=name)


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("qemu-x86_64"), reason="there is no qemu-x86_64 to emulate a processor with"
)
def test_fbgemm_on_a_processor_without_vnni(torch: ModuleType) -> None:
    random, machine = np.random.default_rng(19), get_arithmetic("fbgemm-avx2")
    layouts = [{**LAYOUTS, **KERNELS}[name] for name in ("linear", *sorted(GROUPWISE))]
    products = [one for layout in layouts for one in wide(layout, random, per_channel=True)]
    for product, theirs in zip(
        products, on_avx2(products, ["qemu-x86_64", "-cpu", "Haswell"]), strict=True
    ):
        np.testing.assert_array_equal(counted(product, machine), theirs)
        assert (counted(product, get_arithmetic("fbgemm")) != theirs).any()


def test_seven_bits_saturate_nowhere(torch: ModuleType) -> None:
    random = np.random.default_rng(14)
    products = [
        drawn(LAYOUTS[name], random, per_channel=per_channel, biased=True, largest=63)
        for name in ("linear", "3x3", "grouped", "depthwise")
        for per_channel in (False, True)
    ]
    for product, theirs in zip(products, on_avx2(products), strict=True):
        np.testing.assert_array_equal(counted(product, get_arithmetic("fbgemm-avx2")), theirs)
        np.testing.assert_array_equal(counted(product, get_arithmetic("fbgemm")), theirs)


@pytest.mark.parametrize("layout", ["linear", "3x3", "depthwise"])
@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack"])
def test_weights_with_zero_points(engine: str, layout: str, torch: ModuleType) -> None:
    random = np.random.default_rng(15)
    for per_channel in (False, True):
        for zero in (3, -7):
            product = drawn(LAYOUTS[layout], random, per_channel=per_channel, biased=True)
            product = replace(product, w_zero=zero)
            np.testing.assert_array_equal(
                counted(product, machine_of(engine)), by_engine(torch, engine, product)
            )


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_that_float32_does_not_hold(engine: str, torch: ModuleType) -> None:
    random = np.random.default_rng(16)
    product = drawn(
        Layout((40, 5001), (40, 5001)), random, per_channel=True, biased=True, largest=127
    )
    w, x = np.abs(product.w // 2), product.x | 128
    product = replace(
        product,
        x=x,
        w=w,
        x_zero=0,
        y_zero=0,
        y_scale=product.x_scale * float(product.w_scale.max()) * 2e5,
    )
    sums = product.x.astype(np.int64) @ product.w.T.astype(np.int64)
    assert sums.min() > 1 << 24
    theirs = by_engine(torch, engine, product)
    assert 1 < len(np.unique(theirs)) < 256
    np.testing.assert_array_equal(counted(product, machine_of(engine)), theirs)


def test_the_default_engine_is_two_of_these(torch: ModuleType) -> None:
    random = np.random.default_rng(17)
    machines = {
        "fbgemm": [
            LAYOUTS["linear"],
            LAYOUTS["linear-odd"],
            Layout((1, 128, 5, 5), (128, 1, 3, 3), groups=128, pad=1),
        ],
        "onednn": [
            LAYOUTS["1x1"],
            LAYOUTS["3x3"],
            LAYOUTS["grouped"],
            LAYOUTS["depthwise"],
            LAYOUTS["conv1d"],
        ],
    }
    for engine, layouts in machines.items():
        machine = machine_of(engine if VNNI else "fbgemm")
        for layout in layouts:
            for product in wide(layout, random, per_channel=True):
                np.testing.assert_array_equal(
                    counted(product, machine), by_engine(torch, "x86", product)
                )


def test_the_bar_is_high_enough_to_tell_the_engines_apart(torch: ModuleType) -> None:
    random = np.random.default_rng(18)
    products = [
        drawn(LAYOUTS["depthwise"], random, per_channel=False, biased=True) for _ in range(16)
    ]
    for engine in ENGINES:
        theirs = [by_engine(torch, engine, product) for product in products]
        for other in {*ENGINES, "ort-x64", "xnnpack"} - {engine}:
            ours = [counted(product, get_arithmetic(other)) for product in products]
            assert any((one != two).any() for one, two in zip(ours, theirs, strict=True)), (
                engine,
                other,
            )

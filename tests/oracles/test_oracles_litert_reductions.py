"""LiteRT's pools, means, softmax and concatenation: every level as we count it."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from litert_models import BUILT_IN, MACHINES, Kernels, Tensor, is_delegated, run
from qdq_models import counted, grid

from qbench.backends import get_backend

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("litert")]
every_engine = pytest.mark.parametrize("kernels", list(Kernels))
built_in = pytest.mark.parametrize(("kernels", "machine"), BUILT_IN)


def pictures(seed: int, channels: int = 64, height: int = 9, width: int = 10) -> np.ndarray:
    """(2, height, width, channels): levels all over, and few levels, which make ties of means."""
    random = np.random.default_rng(seed)
    levels = random.integers(-128, 128, (2, height, width, channels), np.int8)
    levels[1] >>= random.integers(0, 7)
    return levels


@built_in
@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
@pytest.mark.parametrize("window", [2, 3])
@pytest.mark.parametrize("zero", [0, -128, 37])
def test_average_pools(window, same, zero, kernels, machine) -> None:
    x, levels = grid(0.05, zero), pictures(zero + 200)
    attributes = {
        "kernel_shape": [window, window],
        "strides": [2, 1],
        "auto_pad": "SAME_UPPER" if same else "VALID",
    }
    ours = np.moveaxis(
        counted(machine, "AveragePool", [Tensor(np.moveaxis(levels, 3, 1), x)], x, attributes), 1, 3
    )
    np.testing.assert_array_equal(
        ours, _pool("AVERAGE_POOL_2D", levels, x, ours.shape, window, same, kernels)
    )


@pytest.mark.parametrize("kernels", ["reference", "builtin", "xnnpack"])
@pytest.mark.parametrize("window", ["2, 2", "3, 2", "2, 1"])
def test_average_pools_of_unsigned_codes_next_to_ties(window: str, kernels: str) -> None:
    """The file has signed codes, of which other ties are below 0."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3, 9, 9] x) => (float y)
        <float s = {0.05}, uint8 z = {100}>
        { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
          p = AveragePool <kernel_shape = [WINDOW]> (d)
          r = QuantizeLinear (p, s, z)  y = DequantizeLinear (r, s, z) }"""
    proto = onnx.parser.parse_model(text.replace("WINDOW", window))
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    x = np.random.default_rng(8).uniform(-5, 7.5, (2, 3, 9, 9)).astype(np.float32)
    backend = get_backend(f"litert-{kernels}")
    with (
        backend.prepare(model) as theirs,
        get_backend(f"integer-{backend.arithmetic}").prepare(model) as ours,
    ):
        # the built-in DEQUANTIZE subtracts reals, so that floats differ in their last bit
        codes = [np.rint(run.run({"x": x})["y"] / 0.05) for run in (theirs, ours)]
    assert np.count_nonzero(codes[0] != codes[1]) == 0


@pytest.mark.parametrize("kernels", ["reference", "builtin", "xnnpack"])
def test_a_float_transposed_convolution_is_reported_as_float(kernels: str) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[1, 2, 4, 4] x) => (float y)
        <float[2, 3, 2, 2] w = {WEIGHTS}> { [up] y = ConvTranspose (x, w) }"""
    proto = onnx.parser.parse_model(text.replace("WEIGHTS", ", ".join(["0.5"] * 24)))
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    with get_backend(f"litert-{kernels}").prepare(model) as executor:
        executor.run({"x": np.ones((1, 2, 4, 4), np.float32)})
        assert executor.executed()["up"].precision == "float32"


@every_engine
@pytest.mark.parametrize("same", [False, True], ids=["valid", "same"])
def test_max_pools(same, kernels) -> None:
    x, levels = grid(0.05, 5), pictures(3)
    attributes = {
        "kernel_shape": [3, 3],
        "strides": [2, 1],
        "auto_pad": "SAME_UPPER" if same else "VALID",
    }
    ours = np.moveaxis(
        counted(
            MACHINES[kernels], "MaxPool", [Tensor(np.moveaxis(levels, 3, 1), x)], x, attributes
        ),
        1,
        3,
    )
    np.testing.assert_array_equal(
        ours, _pool("MAX_POOL_2D", levels, x, ours.shape, 3, same, kernels)
    )


def _pool(operator, levels, x, shape, window, same, kernels) -> np.ndarray:
    options = {
        "padding": 0 if same else 1,
        "strideH": 2,
        "strideW": 1,
        "filterHeight": window,
        "filterWidth": window,
    }
    return run(
        operator,
        ("Pool2DOptions", options),
        [Tensor(levels, x)],
        Tensor(np.empty(shape, np.int8), x),
        kernels,
    )


@every_engine
@pytest.mark.parametrize("axes", [(1, 2), (1,), (3,), (1, 2, 3)], ids=str)
@pytest.mark.parametrize(
    "scales", [(0.05, 0.05), (0.25, 0.5), (0.25, 0.125), (0.0417, 0.0151)], ids=str
)
def test_means(axes, scales, kernels) -> None:
    x, y = grid(scales[0], 7), grid(scales[1], 7 if scales[0] == scales[1] else -31)
    levels = pictures(11, height=8)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(levels.shape))
    over = Tensor(np.array(axes, np.int32), constant=True)
    out = Tensor(np.empty(shape, np.int8), y)
    theirs = run(
        "MEAN", ("ReducerOptions", {"keepDims": True}), [Tensor(levels, x), over], out, kernels
    )
    data, operator = Tensor(np.moveaxis(levels, 3, 1), x), "ReduceMean"
    operands = [
        data,
        Tensor(np.array([(0, 2, 3, 1)[axis] for axis in axes], np.int64), constant=True),
    ]
    if axes == (1, 2):  # LiteRT's kernel of its own for these is what GlobalAveragePool stands for
        operator, operands = "GlobalAveragePool", [data]
    np.testing.assert_array_equal(
        np.moveaxis(counted(MACHINES[kernels], operator, operands, y), 1, 3), theirs
    )


@every_engine
@pytest.mark.parametrize("scales", [(0.05, 0.05), (0.25, 0.125), (0.0417, 0.0151)], ids=str)
def test_means_over_planes_of_any_number_of_channels(scales, kernels) -> None:
    """Built-in kernels count channels in blocks of 16; those beyond the last are rounded as by
    the reference kernel.
    """
    x, y = grid(scales[0], 7), grid(scales[1], 7 if scales[0] == scales[1] else -31)
    over = Tensor(np.array((1, 2), np.int32), constant=True)
    for channels in range(1, 51):
        levels = pictures(channels, channels=channels, height=8)
        out = Tensor(np.empty((2, 1, 1, channels), np.int8), y)
        theirs = run(
            "MEAN", ("ReducerOptions", {"keepDims": True}), [Tensor(levels, x), over], out, kernels
        )
        ours = counted(
            MACHINES[kernels], "GlobalAveragePool", [Tensor(np.moveaxis(levels, 3, 1), x)], y
        )
        np.testing.assert_array_equal(np.moveaxis(ours, 1, 3), theirs, f"{channels} channels")


@built_in
@pytest.mark.parametrize("scale", [0.01, 0.0625, 0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    "length", [3, 10, 250]
)  # the reference kernel ends the process where Σ exp exceeds 512
def test_softmax(length, scale, kernels, machine) -> None:
    x, y = grid(scale, 4), grid(1 / 256, -128)
    levels = np.random.default_rng(length).integers(-128, 128, (64, length), np.int8)
    levels[32:] >>= 3
    theirs = run(
        "SOFTMAX",
        ("SoftmaxOptions", {"beta": 1.0}),
        [Tensor(levels, x)],
        Tensor(levels, y),
        kernels,
    )
    ours = counted(machine, "Softmax", [Tensor(levels, x)], y, {"axis": -1})
    np.testing.assert_array_equal(ours, theirs)


@every_engine
def test_concatenation_is_a_copy(kernels) -> None:
    x, parts = grid(0.05, 5), [pictures(seed) for seed in (1, 2)]
    inputs = [Tensor(part, x) for part in parts]
    whole = np.concatenate(parts, axis=3)
    theirs = run(
        "CONCATENATION", ("ConcatenationOptions", {"axis": 3}), inputs, Tensor(whole, x), kernels
    )
    ours = counted(MACHINES[kernels], "Concat", inputs, x, {"axis": 3})
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(theirs, whole)


@pytest.mark.parametrize("operator", ["AVERAGE_POOL_2D", "SOFTMAX", "HARD_SWISH"])
def test_what_the_delegate_leaves_to_built_in_kernels(operator) -> None:
    x, y = grid(0.05, 5), grid(1 / 256, -128)
    options, levels = {
        "AVERAGE_POOL_2D": (
            ("Pool2DOptions", {"strideH": 1, "strideW": 1, "filterHeight": 1, "filterWidth": 1}),
            4,
        ),
        "SOFTMAX": (("SoftmaxOptions", {"beta": 1.0}), 2),
        "HARD_SWISH": (("HardSwishOptions", {}), 2),
    }[operator]
    data = (
        np.arange(64, dtype=np.int8).reshape(1, 8, 4, 2)
        if levels == 4
        else np.arange(64, dtype=np.int8).reshape(8, 8)
    )
    out = Tensor(data, x if operator == "AVERAGE_POOL_2D" else y)
    assert not is_delegated(operator, options, [Tensor(data, x)], out)
    assert is_delegated("ADD", ("AddOptions", {}), [Tensor(data, x)] * 2, Tensor(data, y))

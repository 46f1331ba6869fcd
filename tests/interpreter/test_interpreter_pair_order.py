"""Which products are summed in pairs, by plain integers: neighbours along taps,
data raised, weights halved.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from one_node import Array, counted, levels_of, model_of

from qbench.diagnosis import lint_products
from qbench.interpreter import Program, counting_means
from qbench.numerics import (
    Accumulator,
    Arithmetic,
    PairsAlong,
    PairsIn,
    get_arithmetic,
    load_arithmetic,
    requantize,
)

SCALES = (0.5, 0.25, 64.0)
ORDER = ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy")


def machine(along: PairsAlong = PairsAlong.TAPS, *, raised: bool = True) -> Arithmetic:
    register = Accumulator(pair_bits=16, pairs_in=PairsIn.DENSE, pairs_along=along, raised=raised)
    return replace(get_arithmetic("ideal"), name="pairs", accumulator=register)


def held(total: int) -> int:
    return max(-(2**15), min(2**15 - 1, total))


def sums_of(
    x: Array, w: Array, zero: int, points: Array, groups: int, register: Accumulator
) -> Array:
    """Σ of pairs, corrected for both zero points; x is padded by ``zero`` by one on each side."""
    raised, filters, channels = register.raised and x.dtype == np.int8, len(w), w.shape[1]
    plain = np.pad(x.astype(int), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=zero)
    plain, zero = (plain + 128, zero + 128) if raised else (plain, zero)
    high, wide = plain.shape[2] - 2, plain.shape[3] - 2
    found = np.zeros((len(x), filters, high, wide), np.int64)
    for n, f, top, left in np.ndindex(found.shape):
        first = f // (filters // groups) * channels
        taps = [
            [
                (int(plain[n, first + c, top + i, left + j]), int(w[f, c, i, j]))
                for c in range(channels)
            ]
            for i, j in np.ndindex(3, 3)
        ]
        apart = register.pairs_along is PairsAlong.TAPS and groups == 1
        runs = taps if apart else [[one for tap in taps for one in tap]]
        unsigned, depthwise = raised or x.dtype == np.uint8, (filters, channels) == (groups, 1)
        for run in runs:
            products = [a * b for a, b in run]
            pairs = [sum(products[k : k + 2]) for k in range(0, len(products), 2)]
            found[n, f, top, left] += sum(map(held, pairs) if unsigned and not depthwise else pairs)
            found[n, f, top, left] -= sum(zero * b + (a - zero) * int(points[f]) for a, b in run)
    return found


def convolution(
    x: Array, w: Array, zero: int, points: Array, groups: int
) -> tuple[Any, dict[str, Array]]:
    scales = {
        name: np.float32(scale) for name, scale in zip(("sx", "sw", "sy"), SCALES, strict=True)
    }
    if points.any():
        scales["sw"] = np.full(len(w), SCALES[1], np.float32)
    zeros = {
        "zx": np.array(zero, x.dtype),
        "zw": points if points.any() else np.int8(0),
        "zy": np.array(3, x.dtype),
    }
    given = {"w": w, **scales, **zeros}
    return model_of("QLinearConv", ORDER, {"x": x}, given, group=groups, pads=[1] * 4), {"x": x}


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("codes", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("groups", "channels", "filters"), [(1, 3, 4), (1, 4, 2), (2, 3, 4), (3, 1, 3), (1, 1, 2)]
)
@pytest.mark.parametrize("rule", [machine(), machine(raised=False), machine(PairsAlong.WINDOW)])
def test_sums_are_those_of_plain_integers(
    rule: Arithmetic, groups: int, channels: int, filters: int, codes: str
) -> None:
    zero = 11 if codes == "uint8" else -7
    x = levels_of(0, codes, 2, groups * channels, 4, 3, extreme=True)
    w = levels_of(1, "int8", filters, channels, 3, 3, extreme=True)
    for points in (np.zeros(filters, np.int8), levels_of(2, "int8", filters)):
        model, feeds = convolution(x, w, zero, points, groups)
        sums = sums_of(x, w, zero, points, groups, rule.accumulator)
        np.testing.assert_array_equal(
            counted(model, rule, feeds)[0], requantize(sums, SCALES, 3, codes, rule)
        )


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("constant", [True, False])
def test_raised_data_saturate_in_matrix_products_too(constant: bool) -> None:
    a, b = np.full((1, 3), 127, np.int8), np.full((3, 1), 127, np.int8)
    given = {"sa": np.float32(1), "za": np.int8(0), "sb": np.float32(1), "zb": np.int8(0)}
    given |= {"sy": np.float32(1000), "zy": np.int8(0)} | ({"b": b} if constant else {})
    feeds = {"a": a} | ({} if constant else {"b": b})
    model = model_of("QLinearMatMul", ("a", "sa", "za", "b", "sb", "zb", "sy", "zy"), feeds, given)
    assert counted(model, machine(raised=False), feeds)[0].item() == round(3 * 127 * 127 / 1000)
    lost = 2 * 255 * 127 - 32767
    assert counted(model, machine(), feeds)[0].item() == round((3 * 127 * 127 - lost) / 1000)


@pytest.mark.parametrize("codes", ["uint8", "int8"])
def test_lint_names_as_many_pairs_as_saturate_at_the_highest_data(codes: str) -> None:
    x = np.full((1, 3, 3, 3), np.iinfo(codes).max, codes)
    w = levels_of(3, "int8", 4, 3, 3, 3)
    model, feeds = convolution(x, w, 0, np.zeros(4, np.int8), 1)
    graph = ir.from_proto(model)
    graph.graph.inputs[0].shape = ir.Shape(x.shape)
    graph.graph[0].attributes["pads"] = ir.AttrInt64s("pads", [0] * 4)
    program = Program(graph, machine(), means=counting_means())
    program.run(feeds)
    (layer,) = lint_products(graph, [machine()]).layers
    assert layer.machines["pairs"] == (
        f"{program.counters['one'].saturated} of 72 pairs can saturate in 16 bits",
    )  # 9 taps · 2 · 4


CLIPPED = """<ir_version: 8, opset_import: ["" : 17]>
g (int8[2, 4, 5, 5] x) => (int8[2, F, H, W] y) {
  low = Constant<value = int8 {-50}>()
  bounded = Clip(x, low)
  moved = Identity(bounded)
  y = QLinearConv<group = GROUPS, strides = [STRIDE, STRIDE], pads = [PAD, PAD, PAD, PAD]>
      (moved, s, z, w, s, z, t, z)
}"""


@pytest.mark.parametrize(
    ("groups", "window", "stride", "pad", "loses"),
    [
        (1, 3, 1, 0, True), (4, 3, 1, 0, True), (2, 1, 1, 0, True), (1, 1, 1, 0, False),
        (1, 1, 5, 0, False), (1, 1, 2, 0, True), (1, 1, 1, 1, True),
    ],
)  # fmt: skip
def test_weights_of_signed_data_behind_a_clip_lose_their_last_bit(
    groups: int, window: int, stride: int, pad: int, loses: bool
) -> None:
    """All but those of a product of matrices: one tap, no padding, strides that divide the
    sizes, 5 by 5 here.
    """
    w = levels_of(5, "int8", 4, 4 // groups, window, window, extreme=True)
    text = (
        CLIPPED.replace("GROUPS", str(groups))
        .replace("STRIDE", str(stride))
        .replace("PAD", str(pad))
    )
    model = onnx.parser.parse_model(text)
    constants = {"s": np.float32(0.5), "z": np.int8(0), "w": w, "t": np.float32(300)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(one), key) for key, one in constants.items()
    )
    register = Accumulator(halved=True)
    rule = replace(get_arithmetic("ideal"), accumulator=register)
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    feeds = {"x": levels_of(6, "int8", 2, 4, 5, 5)}
    x = np.pad(np.maximum(feeds["x"], -50), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    used = (
        np.array([2 * round(int(one) / 2) for one in w.flat]).reshape(w.shape)
        if loses
        else w.astype(int)
    )
    each, size = 4 // groups, (5 + 2 * pad - window) // stride + 1
    sums = np.zeros((2, 4, size, size), np.int64)
    for n, f, top, left in np.ndindex(sums.shape):
        part = x[n, f // each * each : f // each * each + each]
        part = part[:, top * stride : top * stride + window, left * stride : left * stride + window]
        sums[n, f, top, left] = sum(
            int(a) * int(b) for a, b in zip(part.flat, used[f].flat, strict=True)
        )
    expected = requantize(sums, (0.5, 0.5, 300.0), 0, "int8", rule)
    np.testing.assert_array_equal(counted(model, rule, feeds)[0], expected)
    plain = np.maximum(feeds["x"], -128)
    assert loses == bool(
        (
            counted(model, replace(rule, accumulator=Accumulator()), {"x": plain})[0] != expected
        ).any()
    )


def test_a_file_says_so(tmp_path: Any) -> None:
    path = tmp_path / "pairs.toml"
    path.write_text(str(machine()))
    assert load_arithmetic(path).digest == machine().digest
    assert machine().digest != machine(PairsAlong.WINDOW).digest != machine(raised=False).digest

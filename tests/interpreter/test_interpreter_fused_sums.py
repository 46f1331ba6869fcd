"""Sums that take a convolution's result before it is rounded: by fractions,
and where they are not fused.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from one_node import MEANS, levels_of

from qbench.errors import UnsupportedError
from qbench.interpreter import Program
from qbench.numerics import Accumulator, Adding, AddScheme, Arithmetic, get_arithmetic

RULE = get_arithmetic("openvino-vnni")
AMX = get_arithmetic("openvino-amx")
APART = replace(RULE, adding=Adding(scheme=AddScheme.REAL))
TEXT = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (uint8[N, 3, H, W] x, uint8[N, OTHER, H, W] r) => (uint8[N, 4, H, W] y MORE) {
  c = QLinearConv(x, sx, zx, w, sw, zw, sc, zc BIAS)
  y = com.microsoft.QLinearAdd(FIRST)
  LATER
}"""
SCALES = {"sx": 0.02, "sw": 0.013, "sc": 0.3, "sr": 0.21, "sy": 0.37}
ZEROS = {"zx": 11, "zc": 120, "zr": 77, "zy": 140}
F = np.float32


def model(
    *,
    codes: str = "uint8",
    first: bool = True,
    bias: bool = True,
    other: int = 4,
    more: str = "",
    later: str = "",
) -> ir.Model:
    operands = "c, sc, zc, r, sr, zr, sy, zy" if first else "r, sr, zr, c, sc, zc, sy, zy"
    words = {
        "OTHER": str(other),
        "MORE": more,
        "LATER": later,
        "FIRST": operands,
        "BIAS": ", b" if bias else "",
    }
    text = TEXT.replace("uint8", codes)
    for word, instead in words.items():
        text = text.replace(word, instead)
    proto = onnx.parser.parse_model(text)
    zeros = {name: np.array(0 if codes == "int8" else zero, codes) for name, zero in ZEROS.items()}
    constants: dict[str, Any] = {name: F(scale) for name, scale in SCALES.items()} | zeros
    constants |= {
        "w": levels_of(1, "int8", 4, 3, 1, 1),
        "zw": np.int8(0),
        "b": np.array([500, -300, 0, 7000], np.int32),
    }
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(one), key) for key, one in constants.items()
    )
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def feeds(codes: str = "uint8", other: int = 4) -> dict[str, Any]:
    return {"x": levels_of(2, codes, 2, 3, 4, 5), "r": levels_of(3, codes, 2, other, 4, 5)}


def result(
    graph: ir.Model, rule: Arithmetic, given: dict[str, Any], taps: tuple[str, ...] = ()
) -> dict[str, Any]:
    found = [Program(graph, rule, taps, means=means).run(given) for means in MEANS]
    for one in found[1:]:
        np.testing.assert_array_equal(one["y"], found[0]["y"])
    return found[0]


def fused(a: Any, b: Any, c: Any) -> Any:
    """a · b + c of float32 numbers, rounded once."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = F(float(exact))  # off by one step at most, where float64 rounds first
    steps = [near, np.nextafter(near, F(np.inf)), np.nextafter(near, F(-np.inf))]
    return min(
        steps, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.int32)) & 1)
    )


def by_hand(given: dict[str, Any], *, signed: bool, bias: bool, anew: bool = True) -> Any:
    """The formulas of ``qbench.numerics.residual``, element by element."""
    low = -128 if signed else 0
    zeros = dict.fromkeys(ZEROS, 0) if signed else ZEROS
    scale = {name: F(one) for name, one in SCALES.items()}
    if signed and anew:  # OpenVINO computes the scales of signed codes anew from their ends
        scale |= {
            name: F(F(scale[name] * F(127)) - F(scale[name] * F(-128))) / F(255)
            for name in ("sx", "sc", "sr")
        }
    w, b = levels_of(1, "int8", 4, 3, 1, 1)[:, :, 0, 0].astype(int), [500, -300, 0, 7000]
    step = F(scale["sx"] * scale["sw"])
    ends = [F(F(SCALES["sc"]) * F(end - zeros["zc"])) for end in (low, low + 255)]
    ends = ends if bias else [F(end / step) for end in ends]
    factor, offset = (
        F(F(255) / F(ends[1] - ends[0])),
        F(F(-ends[0] * F(255)) / F(ends[1] - ends[0])),
    )
    ratio = F(scale["sc"] / scale["sr"])
    zero = F(F(zeros["zc"]) + F(F(scale["sr"] * F(zeros["zr"])) / scale["sc"]))
    bottom, top = (F(F(F(end) - zero) * ratio) for end in (low, low + 255))
    each = F(F(top - bottom) / F(255))
    sums = [F(F(F(SCALES["sy"]) * F(end - zeros["zy"])) / scale["sr"]) for end in (low, low + 255)]
    last = F(F(255) / F(sums[1] - sums[0]))
    shift = F(F(F(-sums[0] * F(255)) / F(sums[1] - sums[0])) + F(low))
    shift = F(0) if abs(shift) < 255e-5 else shift
    out = np.zeros((2, 4, 4, 5), int)
    for n, f, i, j in np.ndindex(out.shape):
        acc = sum(int(w[f, k]) * (int(given["x"][n, k, i, j]) - zeros["zx"]) for k in range(3))
        real = (
            F(F(F(acc) * step) + F(b[f] * float(F(F(SCALES["sx"]) * scale["sw"]))))
            if bias
            else F(acc)
        )
        joined = fused(real, F(factor * each), F(F(offset * each) + bottom))
        joined = min(max(joined, bottom), F(F(F(255) * each) + bottom))
        total = F(joined + F(int(given["r"][n, f, i, j])))
        out[n, f, i, j] = min(max(int(np.rint(fused(total, last, shift))), low), low + 255)
    return out


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("codes", ["uint8", "int8"])
def test_the_product_joins_unrounded(codes: str, first: bool, bias: bool) -> None:
    graph, given = model(codes=codes, first=first, bias=bias), feeds(codes)
    found = result(graph, RULE, given)["y"]
    np.testing.assert_array_equal(found, by_hand(given, signed=codes == "int8", bias=bias))
    apart = result(graph, APART, given)["y"].astype(int)
    assert (found != apart).any()
    assert np.abs(found.astype(int) - apart).max() == 1


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("codes", ["uint8", "int8"])
def test_with_amx_scales_of_signed_codes_are_as_given(codes: str, bias: bool) -> None:
    graph, given = model(codes=codes, bias=bias), feeds(codes)
    hand = by_hand(given, signed=codes == "int8", bias=bias, anew=False)
    np.testing.assert_array_equal(result(graph, AMX, given)["y"], hand)


def test_a_tap_changes_nothing_and_has_the_codes_of_the_convolution_alone() -> None:
    graph, given = model(), feeds()
    tapped = result(graph, RULE, given, ("c",))
    np.testing.assert_array_equal(tapped["y"], result(graph, RULE, given)["y"])
    np.testing.assert_array_equal(tapped["c"], result(graph, APART, given, ("c",))["c"])


@pytest.mark.parametrize(
    ("more", "later"),
    [(", uint8[N, 4, H, W] z", "z = Identity(c)"), (", uint8[N, 4, H, W] c", "")],
)
def test_a_result_that_others_read_is_rounded(more: str, later: str) -> None:
    graph, given = model(more=more, later=later), feeds()
    np.testing.assert_array_equal(result(graph, RULE, given)["y"], result(graph, APART, given)["y"])


def test_an_operand_that_is_broadcast_is_added_to_rounded_codes() -> None:
    given = feeds()
    given["r"] = given["r"][:1]
    np.testing.assert_array_equal(
        result(model(), RULE, given)["y"], result(model(), APART, given)["y"]
    )
    graph, given = model(other=1), feeds(other=1)
    np.testing.assert_array_equal(result(graph, RULE, given)["y"], result(graph, APART, given)["y"])


def test_a_wrapped_kernel_is_called() -> None:
    given, seen = feeds(), []

    def around(node: ir.Node, run: Any) -> Any:
        if node.op_type != "QLinearConv":
            return run
        return lambda inputs: [seen.append(node.op_type) or one for one in run(inputs)]

    found = Program(model(), RULE, around=around).run(given)["y"]
    assert seen == ["QLinearConv"]
    np.testing.assert_array_equal(found, result(model(), APART, given)["y"])


def test_what_has_no_kernel_is_refused_in_a_sentence() -> None:
    graph = model()
    weight = graph.graph.initializers.pop("w")
    weight.const_value = None
    graph.graph.inputs.append(weight)
    with pytest.raises(UnsupportedError, match="input 3 of QLinearConv is no constant"):
        Program(graph, RULE)


def test_other_multipliers_have_no_fused_sums() -> None:
    with pytest.raises(ValueError, match="of the form 'range'"):
        replace(get_arithmetic("ideal"), adding=Adding(scheme=AddScheme.EXACT, fused=True))
    assert replace(RULE, accumulator=Accumulator(bits=24)).adding.fused

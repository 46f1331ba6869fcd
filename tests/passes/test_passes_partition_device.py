"""Descriptions of devices: what each limit refuses, in which words; files that describe none."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.errors import InputError, UnsupportedError
from qbench.graph import Form, ZeroPoints
from qbench.numerics import get_arithmetic
from qbench.passes import Device, Limits, get_device, list_devices, load_device, partition_model
from qbench.passes.partition.marking import marked

FILE = """
source = "a data sheet"
arithmetic = "gemmlowp"
operators = ["Conv", "Relu"]

[limits]
activations = ["int8"]
largest_kernel = 3
zero_points = "zero or qmin"
"""


def device(limits: Limits, *operators: str) -> Device:
    return Device(
        name="d", source="t", arithmetic=get_arithmetic("ideal"), operators=operators, limits=limits
    )


def convolution(
    *,
    levels: str = "uint8",
    point: int = 120,
    side: int = 3,
    channels: bool = False,
    **attributes: object,
) -> ir.Model:
    """x on a grid, a Conv called ``conv``, and a Relu called ``relu``, each on a grid."""
    weight = np.random.default_rng(4).integers(-100, 100, (2, 2, side, side)).astype(np.int8)
    if attributes.get("group") == 2:
        weight = weight[:, :1]
    written = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    scale = "float[2] sw" if channels else "float sw"
    zero = "int8[2] zw" if channels else "int8 zw"
    values = ("{0.01, 0.02}", "{0, 0}") if channels else ("{0.01}", "{0}")
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 2, 12, 12] x) => (float[N, C, H, '
        "W] y)"
        f"<float s = {{0.05}}, {levels} z = {{{point}}}, {scale} = {values[0]}, {zero} = "
        f"{values[1]}>{{"
        " q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) b = DequantizeLinear<axis = "
        "0>(w, sw, zw)"
        f" [conv] c = Conv{'<' + written + '>' if written else ''}(a, b) r = QuantizeLinear(c, s, "
        "z)"
        " d = DequantizeLinear(r, s, z) [relu] e = Relu(d) t = QuantizeLinear(e, s, z) y = "
        "DequantizeLinear(t, s, z) }"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return ir.from_proto(proto)


@pytest.mark.parametrize(
    ("model", "limits", "reason"),
    [
        (
            convolution(levels="int16", point=0),
            Limits(),
            "activations of int16, where the device has int8, uint8",
        ),
        (convolution(), Limits(weights=("uint8",)), "weights of int8, where the device has uint8"),
        (
            convolution(channels=True),
            Limits(weight_per_channel=False),
            "weights with one scale per channel",
        ),
        (
            convolution(),
            Limits(zero_points=ZeroPoints.ZERO),
            "a zero point of 120, where the device has zero",
        ),
        (
            convolution(side=5),
            Limits(largest_kernel=3),
            "a window of 5×5, where the device has sides up to 3",
        ),
        (
            convolution(dilations="[2, 2]"),
            Limits(dilations=False),
            "a window with dilations, which the device does not have",
        ),
        (
            convolution(group=2),
            Limits(groups=False),
            "a convolution with groups, which the device does not have",
        ),
    ],
    ids=["levels", "weights", "channels", "zero points", "kernel", "dilations", "groups"],
)
def test_each_limit_refuses_what_is_beyond_it(model: ir.Model, limits: Limits, reason: str) -> None:
    wide = Limits(activations=("int8", "uint8", "int16"))
    assert partition_model(model, device(wide, "Conv", "Relu")).off == {}
    assert marked(model, device(limits, "Conv", "Relu")).off["conv"] == reason


def test_limits_at_their_ends_are_within() -> None:
    assert (
        partition_model(convolution(side=5), device(Limits(largest_kernel=5), "Conv", "Relu")).off
        == {}
    )
    ends = Limits(zero_points=ZeroPoints.ZERO_OR_QMIN)
    assert (
        partition_model(convolution(levels="int8", point=-128), device(ends, "Conv", "Relu")).off
        == {}
    )
    with pytest.raises(UnsupportedError, match="a zero point of -127"):
        partition_model(convolution(levels="int8", point=-127), device(ends, "Conv", "Relu"))


def test_a_device_speaks_to_the_planner() -> None:
    limits = Limits(activations=("uint8",), weights=("int8",), weight_per_channel=False)
    found = device(limits, "Conv", "Add").capabilities
    assert found.forms == {Form.QDQ}
    assert (found.activation_qtypes, found.weight_qtypes) == ({"uint8"}, {"int8"})
    assert found.integer_products == {("uint8", "int8")}
    assert (found.weight_per_channel, found.tables) == (False, False)
    assert device(limits, "Conv", "Sigmoid").capabilities.tables


def test_a_file_spells_a_device(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(FILE)
    found = load_device(tmp_path / "mine.toml")
    assert (found.name, found.operators, found.arithmetic) == (
        "mine",
        ("Conv", "Relu"),
        get_arithmetic("gemmlowp"),
    )
    assert found.limits == Limits(
        activations=("int8",), largest_kernel=3, zero_points=ZeroPoints.ZERO_OR_QMIN
    )
    other = load_device(tmp_path / "mine.toml", lambda _: get_arithmetic("ideal"))
    assert other.arithmetic.name == "ideal"
    assert other.digests["device"] == found.digests["device"]
    assert other.digests["arithmetic"] != found.digests["arithmetic"]


def test_another_description_has_another_digest() -> None:
    one, other = device(Limits(), "Conv", "Relu"), device(Limits(largest_kernel=7), "Conv", "Relu")
    assert one.digests["device"] == device(Limits(), "Relu", "Conv").digests["device"]
    assert (
        one.digests["device"]
        != other.digests["device"]
        != device(Limits(), "Conv").digests["device"]
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (FILE.replace("source", "sources"), "unknown key 'sources'.* Did you mean 'source'"),
        (FILE.replace("largest_kernel", "largest_kernels"), "unknown key 'largest_kernels'"),
        (
            FILE.replace('"Relu"', '"Rellu"'),
            "unknown operator on integers 'Rellu'.* Did you mean 'Relu'",
        ),
        (FILE.replace('"Relu"', '"LSTM"'), "unknown operator on integers 'LSTM'"),
        (
            FILE.replace("gemmlowp", "gemlowp"),
            "unknown arithmetic 'gemlowp'.* Did you mean 'gemmlowp'",
        ),
        (FILE.replace('["Conv", "Relu"]', "[]"), "no operators, so that it takes nothing"),
        (FILE.replace('["int8"]', "[]"), "no types of activations, so that it takes nothing"),
        (FILE.replace('["int8"]', '["int32"]'), "activations of type 'int32'"),
        (FILE.replace("= 3", "= 0"), "a largest kernel of 0"),
        (FILE.replace("zero or qmin", "any one"), "expected one of 'any', 'zero', 'zero or qmin'"),
        (FILE.replace("arithmetic =", "# arithmetic ="), "no key 'arithmetic'"),
    ],
)
def test_a_file_that_spells_none_says_why_in_a_sentence(
    tmp_path: Path, wrong: str, said: str
) -> None:
    (tmp_path / "mine.toml").write_text(wrong)
    with pytest.raises(InputError, match=rf"^Reading .*device 'mine\.toml'.*{said}") as caught:
        load_device(tmp_path / "mine.toml")
    assert "\n" not in str(caught.value)


def test_the_devices_of_the_package() -> None:
    assert [get_device(name).name for name in list_devices()] == list(list_devices())
    with pytest.raises(InputError, match="Did you mean 'conv-engine'"):
        get_device("conv_engine")


def test_a_device_that_takes_nothing_of_a_model_says_why() -> None:
    with pytest.raises(
        UnsupportedError,
        match="nothing that it takes: of 2 nodes, 1 stay off because the device has no",
    ):
        partition_model(convolution(), device(Limits(), "Softmax"))


def test_only_qdq_is_cut() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    with pytest.raises(
        UnsupportedError, match="a graph in the form float; expected one that is quantized"
    ):
        partition_model(ir.from_onnx_text(text), device(Limits(), "Relu"))

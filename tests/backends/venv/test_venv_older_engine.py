"""What an older engine gets: the same graph under an older stamp,
or nothing where something would be lost.
"""

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.backends.venv.another_python import Limits, stamped_older
from qbench.graph import with_shapes

PAIR = (
    "<float s = {0.5}, int8 z = {0}> { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
)


def model(body, *, x="float[N, 2] x", y="float[N, 2] y", opset=21, ir_version=10):
    text = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> net ({x}) => ({y}) {body}'
    return with_shapes(ir.from_proto(onnx.parser.parse_model(text)))


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        ("… Unsupported model IR version: 10, max supported IR version: 9\n", Limits(ir=9)),
        ("… Current official support for domain ai.onnx is till opset 20.\n", Limits(opset=20)),
        ("Current official support for domain ai.onnx.ml is till opset 4.", Limits()),
        ("no such file", Limits()),
    ],
)
def test_limits_are_read_from_the_engines_words(words, limits):
    assert Limits.named_by(words) == limits


@pytest.mark.parametrize(
    ("limits", "stamps"),
    [(Limits(ir=9), (9, 21)), (Limits(opset=20), (10, 20)), (Limits(ir=8, opset=19), (8, 19))],
    ids=["ir", "opset", "both"],
)
def test_a_stamp_is_lowered_and_the_numbers_stay(limits, stamps):
    before = model(PAIR)
    after = stamped_older(before, limits)
    assert (after.ir_version, after.graph.opset_imports[""]) == stamps
    assert (before.ir_version, before.graph.opset_imports[""]) == (10, 21)
    feeds = {"x": np.array([[0.3, 99], [-0.26, 1]], np.float32)}
    results = []
    for one in (before, after):
        with get_backend("ort-cpu").prepare(one) as executor:
            results.append(executor.run(feeds)["y"].tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(ir=10, opset=21), Limits(ir=12, opset=30)], ids=str
)
def test_what_is_within_the_limits_is_not_copied(limits):
    assert stamped_older(model(PAIR), limits) is None


NARROW = (
    "<float[4, 2] s = {1, 1, 1, 1, 1, 1, 1, 1}, int8[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, "
    "4, 5, 6, 7, 8}>"
)


BLOCKS = f"{NARROW} {{ d = DequantizeLinear<axis = 1, block_size = 2>(w, s) y = MatMul(x, d) }}"
GROUPS = "<float[1] s = {1}, float[1] b = {0}> { y = GroupNormalization<num_groups = 1>(x, s, b) }"


@pytest.mark.parametrize(
    ("body", "width", "limits"),
    [
        (BLOCKS, 4, Limits(opset=20)),  # an attribute that came with opset 21
        (PAIR.replace("int8", "int16"), 2, Limits(opset=20)),  # a type that came with opset 21
        ("{ y = Gelu(x) }", 2, Limits(opset=19)),
        (GROUPS, 2, Limits(opset=20)),
        (PAIR.replace("int8", "int4"), 2, Limits(ir=9)),
    ],
    ids=["blocks", "int16", "a later operator", "a changed meaning", "int4"],
)
def test_what_would_be_lost_is_not_stamped(body, width, limits):
    assert (
        stamped_older(model(body, x=f"float[N, {width}] x", y=f"float[N, {width}] y"), limits)
        is None
    )

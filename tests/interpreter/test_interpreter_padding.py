"""Pad by negative numbers, which crops, as ONNX Runtime does."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.backends import get_backend
from qbench.errors import UnsupportedError

Array = np.ndarray[Any, Any]


def net(pads: list[int], mode: str = "constant", axes: list[int] | None = None) -> ir.Model:
    model = ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N,C,H,W] x) => (float[a,b,c,d] y)
    <float s = {{0.05}}, uint8 z = {{128}}, int64[{len(pads)}] p = {{{",".join(map(str, pads))}}},
    float none = {{0}}, int64[{len(axes or [0])}] axes = {{{",".join(map(str, axes or [0]))}}}> {{
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    t = Pad<mode="{mode}">(a, p{", none, axes" if axes else ""})
    r = QuantizeLinear(t, s, z)
    y = DequantizeLinear(r, s, z)
    }}""")
    if not axes:
        del model.graph.initializers["none"], model.graph.initializers["axes"]
    return model


def run(model: ir.Model, backend: str, x: Array) -> Array:
    with get_backend(backend).prepare(model) as executor:
        return executor.run({"x": x})["y"]


@given(
    first=st.lists(st.integers(-2, 2), min_size=4, max_size=4),
    last=st.lists(st.integers(-2, 2), min_size=4, max_size=4),
)
@settings(max_examples=20)
def test_pads_of_any_sign_are_the_engines(first: list[int], last: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=(5, 5, 6, 5)).astype(np.float32)
    model = net(first + last)
    np.testing.assert_array_equal(run(model, "integer-ort-x64", x), run(model, "ort-cpu-noopt", x))


def test_axes_may_be_named() -> None:
    x = np.random.default_rng(0).normal(size=(2, 2, 6, 5)).astype(np.float32)
    model = net([-2, 1, 0, -1], axes=[2, -1])
    found = run(model, "integer-ort-x64", x)
    assert found.shape == (2, 2, 4, 5)
    np.testing.assert_array_equal(found, run(model, "ort-cpu-noopt", x))


def test_other_modes_refuse_negative_pads_before_anything_runs() -> None:
    with pytest.raises(UnsupportedError, match="negative pads"):
        get_backend("integer-ort-x64").prepare(net([0, 0, -1, 0, 0, 0, 0, 0], "edge"))

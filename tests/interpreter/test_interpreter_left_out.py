"""Outputs that a graph leaves out keep the places of the others."""

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
cell (float[3,1,2] x) => ({outputs}) <float[1,8,2] w = {{{w}}}, float[1,8,2] r = {{{r}}}> {{
  [lstm] {made} = LSTM <hidden_size = 2> (x, w, r)
}}"""


@pytest.mark.parametrize(
    ("made", "outputs"),
    [
        ("none, h, c", "float[1,1,2] h, float[1,1,2] c"),
        ("y, none, c", "float[3,1,1,2] y, float[1,1,2] c"),
        ("none, h", "float[1,1,2] h"),
    ],
)
def test_an_output_that_is_left_out_shifts_no_other(made, outputs):
    random = np.random.default_rng(0)
    w, r = (", ".join(f"{one:.4f}" for one in random.normal(size=16)) for _ in range(2))
    model = ir.from_onnx_text(TEXT.format(made=made, outputs=outputs, w=w, r=r))
    for value in model.graph[0].outputs:
        if value.name == "none":
            value.name = ""
    feeds = {"x": random.normal(size=(3, 1, 2)).astype(np.float32)}
    with get_backend("ort-cpu").prepare(model) as engine:
        wanted = engine.run(feeds)
    found = Program(model, get_arithmetic("ideal")).run(feeds)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)

"""Operators that ONNX's evaluator computes between integers: those whose function depends on
the types of operands.
"""

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.errors import UnsupportedError
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic


@pytest.mark.parametrize(("opset", "count"), [(18, 2), (21, 4)])
def test_a_group_normalization_between_integers_is_the_engines(opset: int, count: int) -> None:
    each = ",".join(map(str, range(1, count + 1)))
    model = ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : {opset}]>
    net (float[N,4,3,3] x) => (float[N,4,3,3] y)
    <float s = {{0.05}}, uint8 z = {{128}},
     float[{count}] g = {{{each}}}, float[{count}] b = {{{each}}}> {{
    q = QuantizeLinear(x, s, z)
    a = DequantizeLinear(q, s, z)
    t = GroupNormalization<num_groups=2>(a, g, b)
    r = QuantizeLinear(t, s, z)
    y = DequantizeLinear(r, s, z)
    }}""")
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 4, 3, 3)).astype(np.float32)}
    answers = []
    for backend in ("ort-cpu-noopt", "integer-ort-x64"):
        with get_backend(backend).prepare(model) as executor:
            answers.append(executor.run(feeds)["y"])
    assert np.unique(answers[0]).size > 20
    np.testing.assert_array_equal(*answers)


def test_without_types_it_is_refused_before_the_first_batch() -> None:
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N,4,3,3] x, float[4] g, float[4] b) => (float[N,4,3,3] y) {
    y = GroupNormalization<num_groups=2>(x, g, b)
    }""")
    for value in model.graph.inputs:
        value.type = None
    with pytest.raises(UnsupportedError, match="types of its operands"):
        Program(model, get_arithmetic("ideal"))

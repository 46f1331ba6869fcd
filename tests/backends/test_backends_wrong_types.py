"""What is no name and no model is said in one sentence; a model in memory is a model,
whoever's type it has.
"""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.numerics import get_arithmetic
from qbench.quantization import get_schema

NET = """<ir_version: 10, opset_import: ["" : 21]> net (float[N] x) => (float[N] y)
<float s = {0.5}, uint8 z = {3}> {
    q = QuantizeLinear(x, s, z)
    y = DequantizeLinear(q, s, z)
}"""


@pytest.mark.parametrize("lookup", [get_arithmetic, get_backend, get_schema])
@pytest.mark.parametrize("wrong", [None, 5, b"ideal", ["ideal"]])
def test_a_name_is_a_text(lookup: Any, wrong: Any) -> None:
    with pytest.raises(InputError, match=f"something of type {type(wrong).__name__}"):
        lookup(wrong)


@pytest.mark.parametrize("backend", ["ort-cpu-noopt", "ort-cpu", "onnx-reference", "integer-ideal"])
def test_onnxs_own_message_is_a_model(backend: str) -> None:
    feeds = {"x": np.array([0.3, 0.8], np.float32)}
    message = onnx.parser.parse_model(NET)
    for model in (message, ir.from_proto(message)):
        with get_backend(backend).prepare(model) as executor:
            assert executor.run(feeds)["y"].tolist() == [0.5, 1.0]
    with pytest.raises(InputError, match="something of type int"):
        get_backend(backend).prepare(5)  # type: ignore[arg-type]

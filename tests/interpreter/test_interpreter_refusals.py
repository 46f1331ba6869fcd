"""What a machine cannot hold is a sentence with the node and the machine in it."""

import onnx.parser
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.errors import InputError

GRAPH = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1, 2] x) => (float[1, 2] y)
<float s = {0.3}, float t = {0.7}, int8 z = {0}, int8[2, 2] weight = {1, 2, 3, 4}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    w = DequantizeLinear(weight, s, z)
    [the_product] p = MatMul(d, w)
    r = QuantizeLinear(p, t, z)
    y = DequantizeLinear(r, t, z)
}"""


@pytest.mark.parametrize("machine", ["pow2-shift", "tqt"])
def test_a_multiplier_that_is_no_power_of_two(machine):
    model = ir.serde.deserialize_model(onnx.parser.parse_model(GRAPH))
    with pytest.raises(InputError) as found:
        get_backend(f"integer-{machine}").prepare(model)
    sentence = str(found.value)
    assert sentence.startswith("Compiling 'the_product")
    assert f"for the arithmetic '{machine}', bringing a multiplier to the form" in sentence
    assert "expected a power of two. Choose other scales" in sentence
    assert sentence.count("Compiling") == 1

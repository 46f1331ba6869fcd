"""Lifting pairs says whether it changed the graph, whatever it inserted on the way."""

import onnx_ir as ir
import pytest

from qbench.graph import clip_of_codes, model_bytes
from qbench.passes.qdq.import_qdq import LiftPairs

CLIP = "k = Clip(q, low, high)"
BODIES = {
    "pair": ("float[2,3] y", "q = QuantizeLinear(x, s, z)\n y = DequantizeLinear(q, s, z)"),
    "integers leave": ("uint8[2,3] y", "y = QuantizeLinear(x, s, z)"),
    "clipped integers leave": (
        "uint8[2,3] y",
        f"q = QuantizeLinear(x, s, z)\n {CLIP}\n y = Identity(k)",
    ),
    "moved integers leave": (
        "uint8[3,2] y",
        "q = QuantizeLinear(x, s, z)\n y = Transpose<perm=[1,0]>(q)",
    ),
    "clip of levels": (
        "float[2,3] y",
        f"q = QuantizeLinear(x, s, z)\n {CLIP}\n y = DequantizeLinear(k, s, z)",
    ),
    "mover": (
        "float[3,2] y",
        "q = QuantizeLinear(x, s, z)\n k = Transpose<perm=[1,0]>(q)\n"
        " y = DequantizeLinear(k, s, z)",
    ),
    "mover with two readers": (
        "float[3,2] y, uint8[3,2] i",
        "q = QuantizeLinear(x, s, z)\n i = Transpose<perm=[1,0]>(q)\n"
        " y = DequantizeLinear(i, s, z)",
    ),
    "a clip that is dequantized otherwise": (
        "float[2,3] y",
        f"q = QuantizeLinear(x, s, z)\n {CLIP}\n d = DequantizeLinear(k, t, z)\n y = Neg(d)",
    ),
    "a mover that is dequantized otherwise": (
        "float[3,2] y",
        "q = QuantizeLinear(x, s, z)\n k = Transpose<perm=[1,0]>(q)\n"
        " d = DequantizeLinear(k, t, z)\n y = Neg(d)",
    ),
    "two grids whose integers leave": (
        "uint8[2,3] y, uint8[2,3] i",
        "y = QuantizeLinear(x, s, z)\n i = QuantizeLinear(x, t, z)",
    ),
    "one batch's grid whose integers leave": (
        "uint8[2,3] y, float u, uint8 v, float[2,3] n",
        "y, u, v = DynamicQuantizeLinear(x)\n n = Neg(x)",
    ),
    "dead": ("float[2,3] y", "q = QuantizeLinear(x, s, z)\n y = Neg(x)"),
}


def model_of(name: str) -> ir.Model:
    outputs, body = BODIES[name]
    return ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[2,3] x) => ({outputs})
    <float s = {{0.5}}, float t = {{0.25}},
     uint8 z = {{3}}, uint8 low = {{3}}, uint8 high = {{9}}> {{
    {body}
    }}""")


@pytest.mark.parametrize("name", BODIES)
def test_it_says_that_it_changed_the_graph_when_it_did(name: str) -> None:
    model = model_of(name)
    for attempt in range(3):
        before = model_bytes(model)
        changed = LiftPairs().run(model)
        assert changed is (model_bytes(model) != before), f"attempt {attempt}"
        assert not (changed and attempt)


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_a_clip_of_levels_stands_behind_a_quantizer_of_any_make(domain: str) -> None:
    model = model_of("clip of levels")
    quantize, clip, dequantize = model.graph
    quantize.domain = domain
    assert clip_of_codes(quantize) is clip
    assert clip_of_codes(clip) is clip_of_codes(dequantize) is None
    model.graph.outputs.append(quantize.outputs[0])
    assert clip_of_codes(quantize) is None

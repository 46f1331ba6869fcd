"""Where a requantize is not sunk: for nothing, into or out of a branch;
and a Concat is looked at once.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import operators, run_qdq, text

from qbench.passes import Pipeline, Policy, run_pipeline, standard_pipeline
from qbench.passes.requantization.requantize import Requantize, requantize_of
from qbench.passes.rewrites import sink_requantize
from qbench.passes.rewrites.sink_requantize import SinkRequantize

CONSTANTS = [
    *(
        "float s = {0.1}",
        "int8 z = {3}",
        "float t = {0.17}",
        "int8 w = {-20}",
        "float u = {0.2}",
        "int8 v = {0}",
    ),
    *("int8 l = {-90}", "int8 h = {60}"),
]
FEED = np.array([-128, 127, -127, 126, *range(-120, 120, 20)], np.int8).reshape(4, 4)


def requantized(value: str) -> list[str]:
    """The levels ``value`` brought from (s, z) to (t, w), as the reals d_``value``."""
    return [
        *(
            f"a_{value} = DequantizeLinear({value}, s, z)",
            f"b_{value} = QuantizeLinear(a_{value}, t, w)",
        ),
        f"d_{value} = DequantizeLinear(b_{value}, t, w)",
    ]


def looks(operands: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a refused Concat of so many requantized operands
    and a real one makes the pass look for one.
    """
    values = [f"x{index}" for index in range(operands)]
    lines = [line for value in values for line in requantized(value)]
    lines.append(f"y = Concat<axis=0>({', '.join(f'd_{value}' for value in values)}, r)")
    inputs = ", ".join(f"int8[1] {value}" for value in values)
    model = text(f"{inputs}, float[1] r", f"float[{operands + 1}] y", CONSTANTS, lines)
    seen: list[ir.Node] = []

    def counted(node: ir.Node) -> Requantize | str | None:
        seen.append(node)
        return requantize_of(node)

    monkeypatch.setattr(sink_requantize, "requantize_of", counted)
    assert not SinkRequantize().run(model)
    return len(seen)


def test_a_refused_concat_is_looked_at_once_whatever_feeds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two, four, eight = (looks(count, monkeypatch) for count in (2, 4, 8))
    assert eight - four == 2 * (four - two)


def test_a_concat_of_one_value_twice_is_left() -> None:
    before = text(
        "int8[4,4] x",
        "float[8,4] y",
        CONSTANTS,
        [*requantized("x"), "y = Concat<axis=0>(d_x, d_x)"],
    )
    assert operators(run_pipeline(before, Pipeline((SinkRequantize(),))).model) == operators(before)


BRANCHES = {
    "all but the quantizer": ([], ["g = DequantizeLinear(b_x, t, w)", "e = Identity(g)"]),
    "the mover": ([], ["e = Identity(d_x)"]),
    "what waits": (["e = Identity(d_x)"], []),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_what_a_branch_reads_of_the_graph_around_it_is_left(name: str) -> None:
    outside, inside = BRANCHES[name]
    above = requantized("x")[: 2 if name == "all but the quantizer" else 3]
    branch = [*inside, "f = QuantizeLinear(e, t, w)", "o = DequantizeLinear(f, t, w)"]
    lines = [
        *(*above, *outside),
        (
            f"y = If(c) <then_branch = yes () => (float[4,4] o) {{ {' '.join(branch)} }}, "
            "else_branch = no () => (float[4,4] p) { p = Identity(r) }>"
        ),
    ]
    model = text("int8[4,4] x, bool c, float[4,4] r", "float[4,4] y", CONSTANTS, lines)
    before = [one.op_type for one in model.graph.all_nodes()]
    assert not SinkRequantize().run(model)
    assert [one.op_type for one in model.graph.all_nodes()] == before


ENDS = {
    "a product": ["y = MatMul(e, r)"],
    "the output": ["y = Identity(e)"],
    "the same grid": ["f = QuantizeLinear(e, t, w)", "y = DequantizeLinear(f, t, w)"],
    "a grid that merges": [
        "f = QuantizeLinear(e, t, z)",
        "g = Clip(f, l, h)",
        "y = DequantizeLinear(g, t, z)",
    ],
    "a grid that would need limits": [
        "f = QuantizeLinear(e, t, z)",
        "y = DequantizeLinear(f, t, z)",
    ],
    "a grid that does not merge": ["f = QuantizeLinear(e, u, v)", "y = DequantizeLinear(f, u, v)"],
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("movers", [1, 3])
def test_no_graph_becomes_larger(name: str, movers: int) -> None:
    road = [f"m{index + 1} = Transpose(m{index})" for index in range(movers - 1)]
    lines = [
        *requantized("x"),
        "m0 = Transpose(d_x)",
        *road,
        f"e = Identity(m{movers - 1})",
        *ENDS[name],
    ]
    weights = "float[4,4] r = {" + ", ".join(str(n / 4) for n in range(16)) + "}"
    before = text("int8[4,4] x", "float[4,4] y", [*CONSTANTS, weights], lines)
    after = run_pipeline(before, standard_pipeline(Policy.EXACT)).model
    assert len(after.graph) <= len(before.graph)
    np.testing.assert_array_equal(run_qdq(after, x=FEED)["y"], run_qdq(before, x=FEED)["y"])

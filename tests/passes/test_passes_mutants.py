"""Passes with the mistakes that such passes are made with: each is caught with its
counterexample, no real one accused.

A mutant is a right rewrite and what a slip leaves behind: the pass runs as it is, or as written
here by hand, then the graph is spoilt in one place. It is honest, settles and leaves sound graphs,
so that its numbers alone give it away.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, text

from qbench.graph import constant_value
from qbench.passes import EXACT, Effect, EffectKind, NameScope, catalogue, check_pass, within
from qbench.passes.editing import set_constant_operand
from qbench.passes.rewrites.requantize import MergeRequantize

Edit = Callable[[ir.Model], bool]


@dataclass(frozen=True)
class Slip:
    """A pass that does ``right``, then ``wrong``;
    one edit alone where the rewrite itself is the mistake.
    """

    edits: tuple[Edit, ...]
    effect: Effect = EXACT
    name: str = "slip"
    done: list[bool] = field(default_factory=list, compare=False)

    def run(self, model: ir.Model) -> bool:
        if "slipped" in model.metadata_props or not self.edits[0](model):
            return False
        model.metadata_props["slipped"] = "yes"
        assert all(edit(model) for edit in self.edits[1:])
        return True


def merging(model: ir.Model) -> bool:
    return MergeRequantize().run(model)


def merging_anyway(model: ir.Model) -> bool:
    return MergeRequantize(255).run(model)


def node(model: ir.Model, op_type: str, place: int = -1) -> ir.Node:
    return [one for one in model.graph if one.op_type == op_type][place]


def constant(
    op_type: str, index: int, change: Callable[[np.ndarray], object], place: int = -1
) -> Edit:
    """Another constant at input ``index`` of the last (or so) node of an operator."""

    def edit(model: ir.Model) -> bool:
        there = node(model, op_type, place)
        old = constant_value(there.inputs[index])
        assert old is not None
        set_constant_operand(
            there, index, np.asarray(change(old), old.dtype), NameScope.of_values(model)
        )
        return True

    return edit


def limits(low: int, high: int) -> tuple[Edit, Edit]:
    return constant("Clip", 1, lambda _: low), constant("Clip", 2, lambda _: high)


def without(op_type: str) -> Edit:
    """The last node of an operator goes; who reads it reads its first input."""

    def edit(model: ir.Model) -> bool:
        gone = next((one for one in reversed(model.graph) if one.op_type == op_type), None)
        if gone is None:
            return False
        source, result = gone.inputs[0], gone.outputs[0]
        assert source is not None
        result.replace_all_uses_with(source)
        model.graph.remove(gone, safe=True)
        return True

    return edit


def attribute(op_type: str, made: ir.Attr) -> Edit:
    def edit(model: ir.Model) -> bool:
        there = node(model, op_type)
        there.attributes[made.name] = made
        return True

    return edit


def swapped(model: ir.Model) -> bool:
    joined = node(model, "Concat")
    first, second = joined.inputs
    joined.replace_input_with(0, second)
    joined.replace_input_with(1, first)
    return True


def shared(model: ir.Model) -> bool:
    """Whoever reads the second QuantizeLinear of a value reads the first."""
    first, second = (
        one for one in model.graph if one.op_type == "QuantizeLinear" and one.inputs[0].name == "x"
    )
    second.outputs[0].replace_all_uses_with(first.outputs[0])
    model.graph.remove(second, safe=True)
    return True


def into_dequantize(model: ir.Model) -> bool:
    """DQ ∘ Q ∘ DQ becomes the first DQ, whatever the range between."""
    first, last = node(model, "DequantizeLinear", 0), node(model, "DequantizeLinear")
    result, name = last.outputs[0], last.outputs[0].name
    first.outputs[0].type, first.outputs[0].shape = result.type, result.shape
    result.replace_all_uses_with(first.outputs[0], replace_graph_outputs=True)
    result.name, first.outputs[0].name = None, name
    model.graph.remove(last, safe=True)
    for gone in [one for one in reversed(model.graph) if one is not first]:
        model.graph.remove(gone, safe=True)
    return True


def by_table(spoilt: int) -> Edit:
    """Q ∘ Sigmoid ∘ DQ of uint8 as a table, whose entry for ``spoilt`` is one too high."""

    def edit(model: ir.Model) -> bool:
        function = next((one for one in model.graph if one.op_type == "Sigmoid"), None)
        if function is None:
            return False
        reals = (np.arange(256) - 128).astype(np.float32) * np.float32(0.05)
        with np.errstate(over="ignore"):
            sigmoid = 1 / (1 + np.exp(-reals))
        table = np.clip(np.rint(sigmoid * np.float32(256)), 0, 255).astype(np.uint8)
        table[spoilt] += 1
        quantizer = node(model, "QuantizeLinear")
        constants = model.graph.register_initializer
        stored = ir.val(
            "table", ir.DataType.UINT8, ir.Shape([256]), const_value=ir.Tensor(table, name="table")
        )
        constants(stored)
        index = ir.node(
            "Cast", [model.graph.inputs[0]], {"to": ir.DataType.INT32.value}, name="index"
        )
        looked_up = ir.node("Gather", [stored, index.outputs[0]], name="looked_up")
        index.outputs[0].name, levels = "wide", quantizer.outputs[0]
        model.graph.insert_before(node(model, "DequantizeLinear", 0), [index, looked_up])
        levels.replace_all_uses_with(looked_up.outputs[0])
        name, levels.name = levels.name, None
        looked_up.outputs[0].name = name
        for gone in (quantizer, function, node(model, "DequantizeLinear", 0)):
            model.graph.remove(gone, safe=True)
        return True

    return edit


def rebased(zero: int) -> Edit:
    """Levels of uint8 between two nodes become int8, on a zero point that may be wrong."""

    def edit(model: ir.Model) -> bool:
        if constant_value(node(model, "QuantizeLinear").inputs[2]).dtype == np.int8:  # type: ignore[union-attr]
            return False
        names = NameScope.of_values(model)
        levels = node(model, "QuantizeLinear").outputs[0]
        set_constant_operand(node(model, "QuantizeLinear"), 2, np.array(3 - 128, np.int8), names)
        set_constant_operand(node(model, "DequantizeLinear"), 2, np.array(zero, np.int8), names)
        levels.type = ir.TensorType(ir.DataType.INT8)
        return True

    return edit


def narrow() -> ir.Model:
    return chain(Grid(0.5, low=-4, high=6), Grid(0.25), integers_in=Grid(0.5))


def three() -> ir.Model:
    return chain(
        Grid(1.0, low=1, high=3),
        Grid(1.0, low=0, high=4),
        Grid(1.0, low=2, high=4),
        integers_in=Grid(1.0),
    )


def uneven() -> ir.Model:
    return chain(Grid(0.3), Grid(0.19), integers_in=Grid(0.1))


def limited() -> ir.Model:
    return chain(Grid(0.1, 3, -20, 90), integers_in=Grid(0.1, 3))


def rectified() -> ir.Model:
    lines = ["a = DequantizeLinear(x, s, z)", "r = Relu(a)", "q = QuantizeLinear(r, t, y0)"]
    constants = ["float s = {0.1}", "int8 z = {5}", "float t = {0.1}", "int8 y0 = {-5}"]
    return text(
        "int8[4,4] x", "float[4,4] y", constants, [*lines, "y = DequantizeLinear(q, t, y0)"]
    )


def residual() -> ir.Model:
    constants = [
        "float s = {0.1}",
        "float t = {0.2}",
        "float u = {0.3}",
        "int8 z = {0}",
        "int8 w = {4}",
    ]
    lines = [
        *("a0 = QuantizeLinear(x, s, z)", "a = DequantizeLinear(a0, s, z)"),
        *("b0 = QuantizeLinear(x, t, w)", "b = DequantizeLinear(b0, t, w)"),
        *("c = Add(a, b)", "c0 = QuantizeLinear(c, u, z)", "y = DequantizeLinear(c0, u, z)"),
    ]
    return text("float[2,3] x", "float[2,3] y", constants, lines)


def added() -> ir.Model:
    constants = ["float s = {0.1}", "float t = {0.07}", "float u = {0.15}", "uint8 z = {7}"]
    lines = [
        *("a = DequantizeLinear(x, s, z)", "b = DequantizeLinear(v, t, z)", "c = Add(a, b)"),
        *("q = QuantizeLinear(c, u, z)", "y = DequantizeLinear(q, u, z)"),
    ]
    return text("uint8[1,8] x, uint8[1,8] v", "float[1,8] y", constants, lines)


def joined() -> ir.Model:
    constants = ["float s = {0.1}", "int8 z = {0}"]
    lines = [
        *(
            "a = DequantizeLinear(x, s, z)",
            "b = DequantizeLinear(v, s, z)",
            "c = Concat<axis=1>(a, b)",
        ),
        *("q = QuantizeLinear(c, s, z)", "y = DequantizeLinear(q, s, z)"),
    ]
    return text("int8[2,3] x, int8[2,3] v", "float[2,6] y", constants, lines)


def turned() -> ir.Model:
    constants = ["float s = {0.1}", "int8 z = {0}"]
    lines = [
        *("a = DequantizeLinear(x, s, z)", "b = Transpose<perm=[1,0,2]>(a)"),
        *("q = QuantizeLinear(b, s, z)", "y = DequantizeLinear(q, s, z)"),
    ]
    return text("int8[3,3,3] x", "float[3,3,3] y", constants, lines)


def pooled() -> ir.Model:
    constants = ["float s = {0.1}", "int8 z = {0}", "float t = {0.1}"]
    lines = [
        *("a = DequantizeLinear(x, s, z)", "b = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)"),
        *("q = QuantizeLinear(b, t, z)", "y = DequantizeLinear(q, t, z)"),
    ]
    return text("int8[1,2,4,4] x", "float[1,2,2,2] y", constants, lines)


def squashed() -> ir.Model:
    constants = ["float s = {0.05}", "uint8 z = {128}", "float t = {0.00390625}", "uint8 n = {0}"]
    lines = [
        *("a = DequantizeLinear(x, s, z)", "b = Sigmoid(a)"),
        *("q = QuantizeLinear(b, t, n)", "y = DequantizeLinear(q, t, n)"),
    ]
    return text("uint8[5] x", "float[5] y", constants, lines)


def convolution() -> ir.Model:
    constants = [
        *(
            "float s = {0.1}",
            "int8 z = {0}",
            "float k = {0.02}",
            "float p = {0.002}",
            "int32 n = {0}",
        ),
        *(
            "float t = {0.05}",
            f"int8[2,2,3,3] w = {{{', '.join(str(i * 5 % 23 - 11) for i in range(36))}}}",
        ),
        "int32[2] b = {40, -60}",
    ]
    lines = [
        *(
            "a = DequantizeLinear(x, s, z)",
            "wr = DequantizeLinear(w, k, z)",
            "br = DequantizeLinear(b, p, n)",
        ),
        *("c = Conv<pads=[1,1,1,1]>(a, wr, br)", "r = Relu(c)"),
        *("q = QuantizeLinear(r, t, z)", "y = DequantizeLinear(q, t, z)"),
    ]
    return text("int8[1,2,5,5] x", "float[1,2,5,5] y", constants, lines)


def lopsided() -> ir.Model:
    return chain(Grid(0.02, 3, qtype="uint8"), size=4)


@dataclass(frozen=True)
class Mutant:
    """A slip on a graph, and in how few elements of the input it shows."""

    graph: Callable[[], ir.Model]
    slip: Slip
    elements: int = 1


MUTANTS = {
    "union instead of intersection": Mutant(narrow, Slip((merging, *limits(-128, 127)))),
    "upper limit off by one": Mutant(narrow, Slip((merging, *limits(-8, 13)))),
    "lower limit off by one": Mutant(narrow, Slip((merging, *limits(-9, 12)))),
    "lower limit lost": Mutant(narrow, Slip((merging, *limits(-128, 12)))),
    "last limits win": Mutant(three, Slip((merging, *limits(2, 4)))),
    "limits of another grid": Mutant(narrow, Slip((merging, *limits(-4, 6)))),
    "scale of the middle grid": Mutant(
        narrow, Slip((merging, constant("QuantizeLinear", 1, lambda _: 0.5)))
    ),
    "zero point moved with the clip": Mutant(
        limited, Slip((constant("QuantizeLinear", 2, lambda z: z - 1),))
    ),
    "a rounding dropped": Mutant(uneven, Slip((merging_anyway,))),
    "two steps where one is declared": Mutant(
        lambda: chain(Grid(0.5), Grid(0.1), integers_in=Grid(0.1)),
        Slip((merging_anyway,), within(1)),
    ),
    "beyond the limit within a step": Mutant(narrow, Slip((merging, *limits(-8, 13)), within(1))),
    "narrower range dropped": Mutant(
        lambda: chain(Grid(0.1, low=-100, high=50), integers_in=Grid(0.1)), Slip((into_dequantize,))
    ),
    "clip dropped": Mutant(limited, Slip((without("Clip"),))),
    "relu dropped": Mutant(rectified, Slip((without("Relu"),))),
    "merged across two grids": Mutant(residual, Slip((shared,))),
    "scale of one operand": Mutant(
        added, Slip((constant("DequantizeLinear", 1, lambda _: 0.1, 1),)), 2
    ),
    "concat swapped": Mutant(joined, Slip((swapped,))),
    "wrong axes": Mutant(turned, Slip((attribute("Transpose", ir.AttrInt64s("perm", [2, 0, 1])),))),
    "wrong window": Mutant(
        pooled, Slip((attribute("MaxPool", ir.AttrInt64s("kernel_shape", [1, 2])),)), 2
    ),
    "wrong table entry": Mutant(
        squashed, Slip((by_table(77),), Effect(EffectKind.EXACT, arithmetics=("qdq",)))
    ),
    "re-based on a wrong zero point": Mutant(lopsided, Slip((rebased(3 - 127),))),
    "bias off by a step": Mutant(
        convolution, Slip((constant("DequantizeLinear", 0, lambda b: b + 25, 2),)), 0
    ),
    "one weight lost": Mutant(
        convolution,
        Slip(
            (
                constant(
                    "DequantizeLinear", 0, lambda w: w * (np.arange(36).reshape(w.shape) != 13), 1
                ),
            )
        ),
    ),
}


@pytest.mark.slow_but(8)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught_with_a_small_counterexample(name: str) -> None:
    mutant = MUTANTS[name]
    found = check_pass(mutant.slip, mutant.graph())
    assert found.refuted
    assert not found.faults, "its numbers alone give it away"
    example = found.counterexample
    assert example is not None
    assert len([one for one in example.elements if one[2] or len(example.elements) == 1]) <= max(
        mutant.elements, 1
    )
    assert example.before != example.after
    assert "slip" in str(found)
    assert example.arithmetic in str(found)


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("name", {mutant.graph: name for name, mutant in MUTANTS.items()}.values())
def test_no_real_pass_is_accused(name: str) -> None:
    known, graph = catalogue(), MUTANTS[name].graph
    found = [check_pass(known.get(one), graph()) for one in known.names()]
    assert [str(one) for one in found if one.refuted] == []


@pytest.mark.parametrize(
    ("edits", "graph"),
    [
        ((by_table(-1),), squashed),
        ((rebased(3 - 128),), lopsided),
        ((merging,), three),
        ((merging,), narrow),
    ],
)
def test_without_the_slip_nothing_is_found(
    edits: tuple[Edit, ...], graph: Callable[[], ir.Model]
) -> None:
    model = graph()
    if edits[0].__qualname__.startswith("by_table"):
        edits = (by_table_rightly,)
    found = check_pass(Slip(edits, Effect(EffectKind.EXACT, arithmetics=("qdq",))), model)
    assert found.changed
    assert not found.refuted, str(found)


def by_table_rightly(model: ir.Model) -> bool:
    if not by_table(0)(model):
        return False
    table = next(value for value in model.graph.initializers.values() if value.name == "table")
    right = np.array(table.const_value.numpy())  # type: ignore[union-attr]
    right[0] -= 1
    table.const_value = ir.Tensor(right, name="table")
    return True

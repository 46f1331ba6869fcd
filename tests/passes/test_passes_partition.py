"""Islands: convex, integer, in an order that runs; stitched together they are the whole,
bit for bit.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import UnsupportedError
from qbench.graph import constant_value, graph_digest, is_qdq, node_key
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic
from qbench.passes import (
    Device,
    Limits,
    Partition,
    Place,
    float_name,
    partition_costs,
    partition_model,
)

CHANNELS, SIDE = 3, 4
SHAPE = f"1, {CHANNELS}, {SIDE}, {SIDE}"
WEIGHT = np.random.default_rng(11).integers(-127, 128, (CHANNELS, CHANNELS, 1, 1)).astype(np.int8)
Step = tuple[str, tuple[str, ...]]


def device(*operators: str, arithmetic: str = "gemmlowp", limits: Limits | None = None) -> Device:
    return Device(
        name="here",
        source="this test",
        arithmetic=get_arithmetic(arithmetic),
        operators=operators,
        limits=limits or Limits(),
    )


def net(
    steps: Sequence[Step], outputs: Sequence[str], *, inputs: Sequence[str] = ("x",)
) -> ir.Model:
    """Each step is an operator on dequantized inputs and earlier results, v0, v1, …; what it
    gives is quantized.
    """
    lines = [f"{name}_q = QuantizeLinear({name}, s, z)" for name in inputs]
    reads = 0
    for number, (operator, read) in enumerate(steps):
        operands = []
        for name in read:
            operands.append(f"d{reads}")
            lines.append(f"d{reads} = DequantizeLinear({name}_q, s, z)")
            reads += 1
        if operator == "Conv":
            lines.append(f"w{number} = DequantizeLinear(w, sw, zw)")
            operands.append(f"w{number}")
        lines.append(f"[{operator.lower()}{number}] v{number} = {operator}({', '.join(operands)})")
        lines.append(f"v{number}_q = QuantizeLinear(v{number}, s, z)")
    lines += [f"{name}_out = DequantizeLinear({name}_q, s, z)" for name in outputs]
    given_ = ", ".join(f"float[{SHAPE}] {name}" for name in inputs)
    returned = ", ".join(f"float[{SHAPE}] {name}_out" for name in outputs)
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({given_}) => ({returned})'
        "<float s = {0.05}, uint8 z = {120}, float sw = {0.004}, int8 zw = {0}>{ "
        + " ".join(lines)
        + " }"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHT, "w"))
    return ir.from_proto(proto)


def feeds(model: ir.Model) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    return {
        str(v.name): draw.normal(0, 3, (1, CHANNELS, SIDE, SIDE)).astype(np.float32)
        for v in model.graph.inputs
    }


def names(section_nodes: Sequence[ir.Node]) -> list[str]:
    return [node_key(node) for node in section_nodes]


def stitched(partition: Partition, fed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every section as a model of its own, one after the other, all on the interpreter."""
    held = dict(fed)
    for section in partition.sections:
        model = section.model(partition.model)
        program = Program(model, partition.device.arithmetic)
        held |= program.run(
            {str(value.name): held[str(value.name)] for value in model.graph.inputs}
        )
    return {str(value.name): held[str(value.name)] for value in partition.model.graph.outputs}


def descendants(nodes: Sequence[ir.Node]) -> set[ir.Node]:
    found: set[ir.Node] = set()
    pending = list(nodes)
    while pending:
        for value in pending.pop().outputs:
            new = {use.node for use in value.uses()} - found
            found |= new
            pending += new
    return found


def check(partition: Partition) -> None:
    """What must hold of every partition, told by other means than those that made it."""
    seen: set[ir.Node] = set()
    for section in partition.sections:
        assert seen.isdisjoint(section.nodes)
        seen.update(section.nodes)
        assert all(
            value.producer() in seen for value in section.reads if value.producer() is not None
        )
    unpacked = [node for node in partition.model.graph if node not in seen]
    assert all(
        node.op_type == "DequantizeLinear" and constant_value(node.inputs[0]) is not None
        for node in unpacked
    )
    for island in partition.islands:
        inside = set(island.nodes)
        assert not [node for node in island.nodes if is_qdq(node)]
        computed = {
            v
            for node in island.nodes
            for v in node.inputs
            if v is not None and constant_value(v) is None
        }
        computed |= {value for node in island.nodes for value in node.outputs}
        assert all(value.dtype is not None and value.dtype.is_integer() for value in computed)
        left = {
            use.node for node in island.nodes for value in node.outputs for use in value.uses()
        } - inside
        assert inside.isdisjoint(descendants(list(left)) | left), (
            "a path leaves the island and comes back"
        )


@st.composite
def nets(draw: st.DrawFn) -> tuple[ir.Model, tuple[str, ...]]:
    """A graph of up to nine operators on two inputs, and what a device has of them."""
    known = ["x", "y"]
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 9))):
        operator = draw(st.sampled_from(("Conv", "Add", "Relu", "Sin", "Neg", "Mul")))
        sides = 2 if operator in ("Add", "Mul") else 1
        read = tuple(draw(st.sampled_from(known[-4:])) for _ in range(sides))
        steps.append((operator, read))
        known.append(f"v{number}")
    used = {name for _, read in steps for name in read}
    outputs = [name for name in known[2:] if name not in used]
    has = draw(st.sets(st.sampled_from(("Conv", "Add", "Relu", "Neg", "Mul")), min_size=1))
    return net(steps, outputs, inputs=sorted({"x", "y"} & used)), tuple(sorted(has))


@settings(max_examples=30)
@given(nets())
def test_sections_stitched_together_are_the_whole(drawn: tuple[ir.Model, tuple[str, ...]]) -> None:
    model, operators = drawn
    before = graph_digest(model)
    taken = [node for node in model.graph if node.op_type in operators]
    if not taken:
        with pytest.raises(UnsupportedError, match="nothing that it takes"):
            partition_model(model, device(*operators))
        return
    partition = partition_model(model, device(*operators))
    assert graph_digest(model) == before
    check(partition)
    on = {name for island in partition.islands for name in names(island.nodes)}
    assert on == {node_key(node) for node in taken}
    assert on.isdisjoint(partition.off)
    assert on | set(partition.off) == {node_key(node) for node in model.graph if not is_qdq(node)}
    fed = feeds(model)
    whole = Program(partition.model, partition.device.arithmetic).run(fed)
    for name, array in stitched(partition, fed).items():
        np.testing.assert_array_equal(array, whole[name])


@settings(max_examples=15)
@given(nets())
def test_the_same_cut_every_time(drawn: tuple[ir.Model, tuple[str, ...]]) -> None:
    model, operators = drawn
    if not any(node.op_type in operators for node in model.graph):
        return
    first, second = (partition_model(model, device(*operators)) for _ in range(2))
    assert [(s.place, names(s.nodes)) for s in first.sections] == [
        (s.place, names(s.nodes)) for s in second.sections
    ]


def test_a_residual_branch_over_the_host_splits_the_island() -> None:
    """conv0 ── sin1 ── add2, and conv0 ── add2: one island of both would wait for itself."""
    partition = partition_model(
        net([("Conv", ("x",)), ("Sin", ("v0",)), ("Add", ("v1", "v0"))], ["v2"]),
        device("Conv", "Add"),
    )
    check(partition)
    assert [names(island.nodes) for island in partition.islands] == [["conv0"], ["add2"]]
    assert partition.off == {"sin1": "the device has no Sin"}


def test_a_residual_branch_on_the_device_is_one_island() -> None:
    steps: list[Step] = [
        ("Conv", ("x",)),
        ("Conv", ("v0",)),
        ("Add", ("v1", "v0")),
        ("Sin", ("v2",)),
    ]
    partition = partition_model(net(steps, ["v3"]), device("Conv", "Add"))
    assert [names(island.nodes) for island in partition.islands] == [["conv0", "conv1", "add2"]]


def test_an_island_that_can_wait_joins_the_one_that_reads_it() -> None:
    """The main branch is ready at once, the shortcut only behind device and host:
    two islands, not three.
    """
    steps: list[Step] = [
        *(("Conv", ("x",)), ("Sin", ("v0",)), ("Conv", ("y",)), ("Conv", ("v2",))),
        ("Add", ("v1", "v3")),
    ]
    partition = partition_model(net(steps, ["v4"], inputs=("x", "y")), device("Conv", "Add"))
    check(partition)
    assert [names(island.nodes) for island in partition.islands] == [
        ["conv0"],
        ["conv2", "conv3", "add4"],
    ]


def test_an_island_that_the_host_waits_for_does_not_wait() -> None:
    steps: list[Step] = [
        ("Conv", ("x",)),
        ("Sin", ("v0",)),
        ("Conv", ("v1",)),
        ("Add", ("v2", "v0")),
        ("Sin", ("v2",)),
    ]
    partition = partition_model(net(steps, ["v3", "v4"]), device("Conv", "Add"))
    check(partition)
    assert [names(island.nodes) for island in partition.islands] == [["conv0"], ["conv2", "add3"]]


def test_two_islands_never_wait_for_each_other() -> None:
    """a1 ── host ── b2 and b1 ── host ── a2: each pair is convex by itself,
    both together are a circle.
    """
    steps: list[Step] = [
        *(("Conv", ("x",)), ("Conv", ("y",)), ("Sin", ("v0",)), ("Sin", ("v1",))),
        *(("Add", ("v0", "v3")), ("Add", ("v1", "v2"))),
    ]
    partition = partition_model(net(steps, ["v4", "v5"], inputs=("x", "y")), device("Conv", "Add"))
    check(partition)
    assert [names(island.nodes) for island in partition.islands] == [
        ["conv0"],
        ["conv1"],
        ["add4"],
        ["add5"],
    ]


def test_conversions_and_bytes_at_the_borders() -> None:
    steps: list[Step] = [
        ("Conv", ("x",)),
        ("Sin", ("v0",)),
        ("Conv", ("v1",)),
        ("Add", ("v2", "v0")),
    ]
    partition = partition_model(net(steps, ["v3"]), device("Conv", "Add"))
    levels = CHANNELS * SIDE * SIDE
    found = partition.conversions
    assert (found.quantize, found.dequantize, found.requantize, found.total) == (2, 2, 0, 4)
    costs = partition_costs(partition)
    assert [(costs.bytes_into(one), costs.bytes_out_of(one)) for one in partition.islands] == [
        (levels, levels),
        (2 * levels, levels),
    ]
    assert costs.bytes_crossing == 5 * levels
    assert (costs.macs_on, costs.macs_off) == (2 * levels * CHANNELS, 0)


GRIDS = (
    '<ir_version: 10, opset_import: ["" : 21]> g (uint8[2, 4] q) => (uint8[2, 4] r)'
    "<float s = {0.05}, uint8 z = {120}, float t = {0.07}, uint8 u = {110}>{"
    " a = DequantizeLinear(q, s, z) [one] b = Relu(a) c = QuantizeLinear(b, s, z) d = "
    "DequantizeLinear(c, s, z)"
    " [change] e = QuantizeLinear(d, t, u) f = DequantizeLinear(e, t, u)"
    " [two] h = Relu(f) r = QuantizeLinear(h, t, u) }"
)


def test_a_grid_that_the_device_cannot_change_is_changed_at_its_border() -> None:
    partition = partition_model(ir.from_onnx_text(GRIDS), device("Relu"))
    assert [names(island.nodes) for island in partition.islands] == [["one"], ["two"]]
    assert [section.place for section in partition.sections] == [
        Place.DEVICE,
        Place.BORDER,
        Place.DEVICE,
    ]
    assert (partition.conversions.requantize, partition.conversions.total) == (1, 1)
    whole = partition_model(ir.from_onnx_text(GRIDS), device("Relu", "Requantize"))
    assert [names(island.nodes) for island in whole.islands] == [["one", "change", "two"]]
    assert whole.conversions.total == 0


def test_levels_that_only_move_go_along() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 3, 4, 4] x) => (float[3, 16] y)'
        "<float s = {0.05}, uint8 z = {120}, int64[2] to = {3, 16}>{"
        " q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z)"
        " [turn] b = Transpose<perm = [0, 1, 3, 2]>(a) [lay] c = Reshape(b, to) [one] h = Relu(c)"
        " r = QuantizeLinear(h, s, z) y = DequantizeLinear(r, s, z) }"
    )
    partition = partition_model(ir.from_onnx_text(text), device("Transpose", "Reshape", "Relu"))
    check(partition)
    assert [names(island.nodes) for island in partition.islands] == [["turn", "lay", "one"]]
    fewer = partition_model(ir.from_onnx_text(text), device("Transpose", "Relu"))
    check(fewer)
    assert [names(island.nodes) for island in fewer.islands] == [["turn"]]
    assert list(fewer.off) == ["lay", "one"]
    assert "Reshape" in fewer.off["lay"]


def test_a_loop_of_the_host_reads_what_an_island_gave() -> None:
    """Subgraphs read values that lie around them: those cross the border too."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2] x, bool c) => (float[2] y)'
        "<float s = {0.05}, uint8 z = {120}>{"
        " q = QuantizeLinear(x, s, z) a = DequantizeLinear(q, s, z) [one] b = Relu(a) r = "
        "QuantizeLinear(b, s, z)"
        " d = DequantizeLinear(r, s, z)"
        " [both] y = If(c) <then_branch = t () => (float[2] m) { m = Sin(d) },"
        " else_branch = e () => (float[2] n) { n = Cos(d) }> }"
    )
    partition = partition_model(ir.from_onnx_text(text), device("Relu"))
    assert [section.place for section in partition.sections] == [
        Place.BORDER,
        Place.DEVICE,
        Place.BORDER,
        Place.HOST,
    ]
    assert [value.name for value in partition.sections[-1].reads] == ["c", "d"]
    model = partition.sections[-1].model(partition.model)
    onnx.checker.check_model(ir.to_proto(model))


def test_twice_the_graph_is_twice_the_sections() -> None:
    chain: list[Step] = []
    for number in range(0, 40, 2):
        chain += [("Conv", (f"v{number - 1}" if number else "x",)), ("Sin", (f"v{number}",))]
    partition = partition_model(net(chain, ["v39"]), device("Conv"))
    check(partition)
    assert len(partition.islands) == 20
    assert {float_name(node) for island in partition.islands for node in island.nodes} == {"Conv"}

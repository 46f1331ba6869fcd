"""Two sides of one network: engines, schemas, passes, float beside quantized; what cannot be
aligned, what fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import pytest

from qbench import calibrate, get_backend, make_plan, quantize_model
from qbench.backends import Closing
from qbench.diagnosis import Side, compare_sides, first_failing_case, run_test_case, save_test_case
from qbench.errors import InputError, UnsupportedError
from qbench.graph import Capabilities
from qbench.passes import Policy, run_pipeline, standard_pipeline

NETWORK = """<ir_version: 10, opset_import: ["" : 21]>
net (float[n, 8] x, float[8, 6] first_w, float[6, 6] second_w, float[6, 4] third_w)
=> (float[n, 4] y)
{
    [first] a = MatMul (x, first_w)
    [relu] b = Relu (a)
    [second] c = MatMul (b, second_w)
    [sum] d = Add (b, c)
    [third] y = MatMul (d, third_w)
}"""
ORDER = ["x", "b", "c", "d", "y"]


def network(text=NETWORK):
    rng = np.random.default_rng(7)
    model = ir.from_onnx_text(text)
    for value in list(model.graph.inputs)[1:]:
        value.const_value = ir.tensor(
            rng.normal(size=value.shape.numpy()).astype(np.float32), name=value.name
        )
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    return model


FLOAT = network()


def batches(count=2, size=20, seed=1):
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(size, 8)).astype(np.float32)} for _ in range(count)]


def written(schema):
    return quantize_model(FLOAT, make_plan(FLOAT, calibrate(FLOAT, batches(seed=2)), schema))


QUANTIZED = {name: written(name) for name in ("w8a8_asym_pc", "w8a8_symu8_pt")}


def side(name, backend, schema="w8a8_asym_pc", **more):
    engine = get_backend(backend) if isinstance(backend, str) else backend
    quantized = QUANTIZED[schema] if isinstance(schema, str) else schema
    return Side(name=name, original=FLOAT, quantized=quantized, backend=engine, **more)


def compared(left, right, **more):
    return compare_sides(left, right, batches(**more))


def test_a_side_beside_itself_is_equal_in_every_value():
    found = compared(side("left", "ort-cpu-precise"), side("right", "ort-cpu-precise"))
    assert found.are_equal
    assert (found.samples, found.outputs.elements, found.flips) == (40, 160, 0)
    assert [node.value for node in found.nodes] == ORDER
    assert [node.node for node in found.nodes] == ["x_quantized", "first", "second", "sum", "third"]
    assert found.first is None
    assert found.unaligned == ()
    assert all(
        "its outputs are those of the untapped graph, bit for bit" in how for how in found.how
    )


def test_an_engine_beside_its_machine_is_equal_and_beside_another_parts_in_levels():
    engine = side("left", "ort-cpu-precise")
    assert compared(engine, side("right", "integer-ort-x64")).first is None
    found = compared(engine, side("right", "integer-glow-cpu"))
    first = found.first
    assert first is not None
    assert first.same_grid
    assert first.value in ORDER[1:]
    assert first.largest == int(first.largest) >= 1
    values = [node.value for node in found.nodes]
    assert all(not node.differing for node in found.nodes[: values.index(first.value)])
    assert "is tapped, which changes no number there" in found.how[1]


def test_two_schemas_are_compared_in_reals_and_steps_of_the_coarser_grid():
    found = compared(side("left", "integer-ideal"), side("right", "integer-ideal", "w8a8_symu8_pt"))
    nodes = {node.value: node for node in found.nodes}
    assert [node.value for node in found.nodes] == ORDER
    assert not nodes["x"].same_grid
    assert 0 < nodes["x"].largest <= 1  # half a step of each
    assert nodes["x"].differing == 0
    assert 20 < nodes["y"].sqnr_db < 60
    assert nodes["y"].largest is None
    assert nodes["y"].relative == pytest.approx(10 ** (-nodes["y"].sqnr_db / 20))


def test_float_beside_quantized_says_what_each_value_lost():
    found = compared(side("left", "ort-cpu", None), side("right", "ort-cpu-precise"))
    assert [node.value for node in found.nodes] == ORDER
    assert all(20 < node.sqnr_db < 80 for node in found.nodes)
    assert found.how[0].startswith("left: 'ort-cpu' is tapped with its optimizations off")
    turned = compared(side("left", "ort-cpu-precise"), side("right", "ort-cpu", None))
    assert {n.value: n.elements for n in turned.nodes} == {n.value: n.elements for n in found.nodes}


def test_float_beside_float_differs_in_no_more_than_the_order_of_sums():
    found = compared(side("left", "ort-cpu", None), side("right", "onnx-reference", None))
    assert [node.value for node in found.nodes] == ["a", "b", "c", "d", "y"]
    assert found.first is None
    assert found.outputs.relative < 1e-5


def test_passes_on_one_side_keep_what_they_keep():
    passed = run_pipeline(
        QUANTIZED["w8a8_asym_pc"], standard_pipeline(Policy.EXACT), Policy.EXACT
    ).model
    found = compared(side("left", "integer-ort-x64"), side("right", "integer-ort-x64", passed))
    assert found.are_equal
    assert found.first is None


def test_what_one_side_keeps_inside_a_unit_is_listed_and_not_guessed(words):
    plan = make_plan(FLOAT, calibrate(FLOAT, batches(seed=2)), "w8a8_asym_pc")
    partly = quantize_model(FLOAT, plan).clone()
    levels = next(
        node
        for node in partly.graph
        if node.op_type == "QuantizeLinear" and node.inputs[0].name == "c"
    )
    (pair,) = [use.node for use in levels.outputs[0].uses()]
    pair.outputs[0].replace_all_uses_with(levels.inputs[0])
    partly.graph.remove([pair, levels], safe=True)
    found = compared(side("left", "ort-cpu-noopt"), side("right", "ort-cpu-noopt", partly))
    assert [node.value for node in found.nodes] == ["x", "b", "d", "y"]
    (missing,) = found.unaligned
    words((missing.value, missing.reason))


def test_other_outputs_are_refused():
    other = network(
        NETWORK.replace("float[n, 4] y)", "float[n, 4] z)").replace("[third] y", "[third] z")
    )
    right = Side(name="right", original=other, backend=get_backend("ort-cpu"))
    with pytest.raises(InputError, match="found the outputs y and z"):
        compare_sides(side("left", "ort-cpu", None), right, batches())


@dataclass(frozen=True)
class Picky:
    """An engine that fuses (who knows what), and takes no unit with an Add."""

    name: str = "picky"
    capabilities: Capabilities = field(default_factory=Capabilities)
    packages: tuple[str, ...] = ()

    def prepare(self, model: ir.Model, *, taps: Sequence[str] = (), threads: int = 1) -> Closing:
        if [node.op_type for node in model.graph].count("Add") and len(list(model.graph)) < 12:
            raise UnsupportedError(
                "Loading it", found="an Add alone", expected="none", remedy="Use another."
            )
        return get_backend("ort-cpu-noopt").prepare(model, taps=taps)


def test_an_engine_that_fails_on_a_unit_is_compared_as_far_as_it_goes():
    found = compared(side("left", "ort-cpu-noopt"), side("right", Picky()))
    assert found.are_equal
    assert [node.value for node in found.nodes] == ["x", "b", "c"]
    assert [(one.value, one.reason) for one in found.unaligned] == [
        ("d_quantized", "right fails on it alone: an Add alone"),
        ("y", "right fails on it alone: one of its inputs is missing"),
    ]


def test_memory_does_not_grow_with_the_batch():
    """What is held is that of 8 samples: a batch of 18 comes back whole,
    in parts that never were larger.
    """
    seen = []

    @dataclass(frozen=True)
    class Counting:
        name: str = "counting"
        capabilities: Capabilities = field(default_factory=Capabilities)
        packages: tuple[str, ...] = ()

        def prepare(self, model, *, taps=(), threads=1):
            executor = get_backend("ort-cpu").prepare(model, taps=taps)
            run = executor.run
            executor.run = lambda feeds: seen.append(len(feeds["x"])) or run(feeds)
            return executor

    found = compared(
        side("left", Counting(), None), side("right", "ort-cpu", None), count=1, size=18
    )
    assert found.samples == 18
    assert seen == [8, 8, 2]


@pytest.mark.slow
def test_the_first_unit_that_parts_is_saved_and_told_apart(tmp_path):
    left, right = side("left", "ort-cpu-precise"), side("right", "integer-glow-cpu")
    case = first_failing_case(left, right, batches())
    assert case is not None
    assert (case.engine, case.interpreter) == ("ort-cpu-precise", "integer-glow-cpu")
    folder = save_test_case(case, tmp_path)
    assert not run_test_case(folder, left.backend).passes
    assert run_test_case(folder, right.backend).passes
    assert first_failing_case(left, side("right", "integer-ort-x64"), batches()) is None


@pytest.mark.parametrize("kept", [0, 12])
def test_the_processes_of_a_remote_engine_are_started_once_where_they_are_few(monkeypatch, kept):
    """Each of its sessions is a process: with many units one is started for every run, not to
    hold all at once.
    """
    started = []

    @dataclass(frozen=True)
    class Remote:  # local: no other process can load it, so that the starts are counted here
        name: str = "remote"
        capabilities: Capabilities = field(default_factory=Capabilities)
        packages: tuple[str, ...] = ()
        has_started: bool = True

        def package_versions(self) -> dict[str, str]:
            return {}

        def prepare(
            self, model: ir.Model, *, taps: Sequence[str] = (), threads: int = 1
        ) -> Closing:
            started.append(model)
            return get_backend("ort-cpu-noopt").prepare(model, taps=taps)

    monkeypatch.setattr("qbench.diagnosis.diff.compare._PROCESSES", kept)
    found = compare_sides(
        side("left", "ort-cpu-noopt"), side("right", Remote()), [*batches(), *batches()]
    )
    assert found.are_equal
    units = len(found.nodes)
    whole = 1
    runs = 2 * -(-len(next(iter(batches()[0].values()))) // 8) * len(batches())
    assert len(started) == whole + (units if kept else units * runs)

"""A cell beside another backend, from outside: equal, unequal with number and node,
close by steps, refused.
"""

import re

import pytest

ENGINES = """
from qbench.backends import get_backend
from qbench.errors import UnsupportedError

STEP = np.float32(0.0625)


class Stepping:
    # the engine's answers, but for one element of the first batch, which is a step higher
    def __init__(self, executor):
        self.executor, self.runs = executor, 0

    def run(self, feeds):
        outputs = self.executor.run(feeds)
        name = next(iter(outputs))
        if not self.runs:
            outputs[name] = outputs[name].copy()
            outputs[name][2, 3] += STEP
        self.runs += 1
        return outputs

    def close(self):
        self.executor.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


class Engine:
    capabilities, packages = get_backend("ort-cpu").capabilities, ("onnxruntime",)

    def __init__(self, name):
        self.name = name

    def prepare(self, model, *, taps=(), threads=1):
        if self.name == "picky":
            raise UnsupportedError(
                "Loading it", found="a Gemm", expected="no Gemm", remedy="Use another.")
        if self.name == "off":
            model = biased(model)
        executor = get_backend("ort-cpu").prepare(model, taps=taps, threads=threads)
        return Stepping(executor) if self.name == "stepping" else executor


def biased(model):
    # one element of the second product's bias is a little higher
    copy = model.clone()
    gemm = next(node for node in copy.graph if node.name == "gemm1")
    bias = gemm.inputs[2].producer().inputs[0]
    levels = bias.const_value.numpy().copy()
    levels[5] += 4000
    bias.const_value = ir.tensor(levels, name=bias.name)
    return copy


def on_grids(graph):
    # the network with its input and its output on grids
    graph = graph()
    constants = {"s": np.float32(0.05), "t": STEP, "z": np.uint8(128)}
    values = {name: ir.val(name, const_value=ir.tensor(array, name=name))
              for name, array in constants.items()}
    for value in values.values():
        graph.graph.register_initializer(value)
    last, x = graph.graph.outputs[0], graph.graph.inputs[0]
    first = next(iter(graph.graph))
    pair = [ir.node("QuantizeLinear", [x, values["s"], values["z"]], name="q_in")]
    operands = [pair[0].outputs[0], values["s"], values["z"]]
    pair.append(ir.node("DequantizeLinear", operands, name="dq_in"))
    graph.graph.insert_before(first, pair)
    first.replace_input_with(0, pair[1].outputs[0])
    back = [ir.node("QuantizeLinear", [last, values["t"], values["z"]], name="q_out")]
    operands = [back[0].outputs[0], values["t"], values["z"]]
    back.append(ir.node("DequantizeLinear", operands, name="dq_out"))
    for node in pair + back:
        node.outputs[0].name = node.name + "_value"
    back[1].outputs[0].type, back[1].outputs[0].shape = last.type, last.shape
    graph.graph.extend(back)
    graph.graph.outputs[0] = back[1].outputs[0]
    return graph


def given():
    from dataclasses import replace

    made = model("tiny_a", 1)()
    return replace(made, id="tiny_q", graphs={"model": lambda: on_grids(made.graphs["model"])})


MORE = {"backends": {name: (lambda name=name: Engine(name))
                     for name in ("twin", "off", "stepping", "picky")}}
"""

SUITE = """
[suite]
tolerance = 0.2
agreement = 0.5
integer_macs = 0.0
backends = ["{backend}"]
schemas = ["w8a8_asym_pc"]
fp32 = false

[[model]]
id = "tiny_a"
data = "points"
calibration = {{ data = "spare", count = 64 }}
metrics = ["top1", "agreement"]
{asked}
"""

GIVEN = """
[[model]]
id = "tiny_q"
fp32 = "tiny_a"
{asked}
"""


def ask(project, backend, asked, *, of_given=False):
    text = SUITE.format(backend=backend, asked="" if of_given else asked)
    project.write_suite(text + (GIVEN.format(asked=asked) if of_given else ""))
    project.write_conftest(ENGINES)
    conftest = project.path / "conftest.py"
    known = "models={name: model(name, seed) for name, seed in WEIGHTS.items()}"
    conftest.write_text(conftest.read_text().replace(known, known + ' | {"tiny_q": given}'))


@pytest.mark.slow
def test_an_equal_cell_is_green_and_its_line_counts(project):
    ask(project, "twin", 'equal_to = { twin = "ort-cpu" }')
    assert project.accept().ret == 0
    assert project.run().ret == 0
    (line,) = project.lines(kind="cell")
    assert line["outcome"] == "passed"
    assert line["headline"].endswith("equals ort-cpu")
    compared = line["compared"]
    assert (compared["backend"], compared["elements"], compared["differing"]) == (
        "ort-cpu",
        400 * 7,
        0,
    )
    assert compared["environment_class"].startswith("x64-test+onnxruntime-")
    assert compared["first"] is None
    assert line["seconds"]["compared"] > 0


@pytest.mark.slow
def test_our_machine_equals_the_engine_and_has_no_float_cell(project):
    ask(project, "integer-ort-x64", 'equal_to = "ort-cpu-precise"')
    project.write_suite(project.suite_path.read_text().replace("fp32 = false", ""))
    assert project.accept().ret == 0
    assert project.outcomes() == {"tiny_a::integer-ort-x64+w8a8_asym_pc": "accepted"}
    assert project.lines(kind="cell")[0]["compared"]["differing"] == 0


def test_an_unequal_cell_is_red_with_number_sample_and_node_whatever_was_accepted(project):
    ask(project, "off", 'equal_to = "ort-cpu"')
    for options in (
        ("--qbench-missing=warn",),
        ("--qbench-accept-fp32", "--qbench-accept=new"),
        (),
    ):
        result = project.run(*options)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(
            [
                "* of 2800 elements differ from ort-cpu, first at 'relu1'*",
                "  cell: tiny_a::off+w8a8_asym_pc is failed",
                (
                    "  ✗ equality: * of 2800 elements differ from ort-cpu, by at most relative *; "
                    "first at sample 'points-*'; first in * of node 'relu1', by at most * step*"
                ),
                "  rule: equal_to ort-cpu (model tiny_a)",
                "* Differs from another backend (1 cell)",
            ]
        )
        if options and "--qbench-accept=new" in options:
            refused = (
                "not accepted: tiny_a::off+w8a8_asym_pc: * of 2800 elements differ from ort-cpu, "
                "first at 'relu1': *"
            )
            result.stdout.fnmatch_lines([refused])
    stored = [path for path in project.path.glob("baselines/**/tiny_a*") if path.is_file()]
    assert stored
    assert not any(b"off+w8a8_asym_pc" in path.read_bytes() for path in stored)
    (line,) = project.lines(kind="cell")
    assert line["compared"]["differing"] > 7
    assert line["compared"]["first"]["origin"] == "relu1"
    assert 0 < line["compared"]["first"]["elements"] <= 8  # one column of a batch of 8
    assert not line["compared"]["first"]["note"]


@pytest.mark.slow
def test_what_is_close_passes_by_its_steps_and_fails_without_them(project):
    close = 'close_to = {{ backend = "ort-cpu", steps = {} }}'
    ask(project, "stepping", close.format(1), of_given=True)
    project.accept("-k", "tiny_a")
    result = project.accept("-k", "tiny_q")
    assert result.ret == 0, result.stdout.str()
    assert project.run("-k", "tiny_q").ret == 0
    (line,) = project.lines(kind="cell")
    assert line["headline"].endswith("close to ort-cpu")
    assert (line["compared"]["differing"], line["compared"]["steps"]) == (1, 1.0)
    assert line["compared"]["sample"] == "points-2"
    ask(project, "stepping", close.format(0), of_given=True)
    result = project.run("-k", "tiny_q")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "1 of 2800 elements differ from ort-cpu, first at 'dq_out'*",
            (
                "*by at most 1 step, relative *; first at sample 'points-2'; "
                "first in the floats of node 'dq_out'"
            ),
            "  rule: close_to ort-cpu, 0 steps (model tiny_q)",
        ]
    )


@pytest.mark.parametrize(
    ("asked", "outcome", "sentence"),
    [
        (
            'equal_to = "picky"',
            "unsupported",
            "Comparing 'tiny_a::twin+w8a8_asym_pc' with 'picky': found a Gemm; *",
        ),
        (
            'close_to = { backend = "ort-cpu", steps = 1 }',
            "error",
            "*output 'h2', which comes out of no Dequantize*",
        ),
    ],
)
def test_what_cannot_be_compared_says_why(project, asked, outcome, sentence):
    ask(project, "twin", asked)
    result = project.run("-rs")
    assert set(project.outcomes().values()) == {outcome}
    result.stdout.fnmatch_lines([f"*{sentence}"])


def test_a_criterion_without_meaning_stops_before_the_first_cell(project):
    ask(project, "twin", 'equal_to = "twin"')
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["*cell 'tiny_a::twin+w8a8_asym_pc': found 'twin' compared with itself*"]
    )


def no_worse_gate(project):
    (line,) = project.lines(kind="cell")
    (gate,) = [gate for gate in line["gates"] if gate["kind"] == "rival"]
    return line, gate


@pytest.mark.slow
def test_a_cell_as_good_as_the_other_backend_passes(project):
    ask(project, "twin", 'no_worse_than = "ort-cpu"')
    assert project.accept().ret == 0
    assert project.run().ret == 0
    line, gate = no_worse_gate(project)
    assert (line["outcome"], gate["state"], gate["metric"]) == ("passed", "holds", "top1")
    assert "losses 0, gains 0" in gate["detail"]
    hits = line["metrics"]["top1"]["hits"]
    assert f"top1 {hits}/400" in gate["detail"]
    assert f"against ort-cpu {hits}/400" in gate["detail"]
    assert gate["rule"] == "no_worse_than ort-cpu by 0.5 % (model tiny_a)"


@pytest.mark.slow
def test_a_cell_worse_than_the_other_backend_fails_though_its_tolerance_to_fp32_admits_it(project):
    ask(project, "off", 'no_worse_than = { backend = "ort-cpu", margin = 0.2 }')
    project.accept()
    line, gate = no_worse_gate(project)
    assert (line["outcome"], gate["state"]) == ("accepted", "holds")
    ask(project, "off", 'no_worse_than = { "off" = "ort-cpu" }')
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    line, gate = no_worse_gate(project)
    assert [one["kind"] for one in line["gates"] if one["state"] == "broken"] == ["rival"]
    assert line["outcome"] == "failed"
    assert gate["rule"] == "no_worse_than ort-cpu by 0.5 % (model tiny_a::off)"
    # by hand: the other backend's right answers of its cell, and the pairs of the two
    ask(project, "twin", "")
    project.run("--qbench-missing=warn")
    (other,) = project.lines(kind="cell")
    theirs, ours = (one["metrics"]["top1"]["hits"] for one in (other, line))
    assert f"top1 {ours}/400" in gate["detail"]
    assert f"against ort-cpu {theirs}/400" in gate["detail"]
    losses, gains = (
        int(re.search(rf"{word} (\d+)", gate["detail"])[1]) for word in ("losses", "gains")
    )
    assert losses - gains == theirs - ours
    result.stdout.fnmatch_lines(["*qbench diff MODEL *--left backend=ort-cpu --right backend=off*"])


@pytest.mark.slow
def test_another_backend_that_is_the_cell_itself_or_is_for_float_asks_nothing(project):
    ask(project, "twin", 'no_worse_than = "twin"')
    assert project.accept().ret == 0
    (line,) = project.lines(kind="cell")
    assert not [gate for gate in line["gates"] if gate["kind"] == "rival"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ('no_worse_than = "ort-cpuu"', "unknown backend 'ort-cpuu'*Did you mean 'ort-cpu'?"),
        ('no_worse_than = { "twinn" = "ort-cpu" }', "unknown cell 'twinn'"),
    ],
)
def test_another_backend_that_cannot_be_is_refused_before_anything_runs(project, asked, words):
    ask(project, "twin", asked)
    result = project.run()
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*no_worse_than of model tiny_a*{words}*"])


def test_losses_are_compared_only_where_labels_are(project):
    ask(project, "twin", 'no_worse_than = "ort-cpu"')
    project.write_suite(
        project.suite_path.read_text().replace('["top1", "agreement"]', '["agreement"]')
    )
    result = project.run()
    result.stdout.fnmatch_lines(["*found no metric that counts against labels*"])

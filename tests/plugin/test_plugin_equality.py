"""A cell beside another backend, from outside: equal, unequal with number and node, close by steps, refused."""

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
            raise UnsupportedError("Loading it", found="a Gemm", expected="no Gemm", remedy="Use another.")
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
    values = {name: ir.val(name, const_value=ir.tensor(array, name=name)) for name, array in constants.items()}
    for value in values.values():
        graph.graph.register_initializer(value)
    last, x = graph.graph.outputs[0], graph.graph.inputs[0]
    first = next(iter(graph.graph))
    pair = [ir.node("QuantizeLinear", [x, values["s"], values["z"]], name="q_in")]
    pair.append(ir.node("DequantizeLinear", [pair[0].outputs[0], values["s"], values["z"]], name="dq_in"))
    graph.graph.insert_before(first, pair)
    first.replace_input_with(0, pair[1].outputs[0])
    back = [ir.node("QuantizeLinear", [last, values["t"], values["z"]], name="q_out")]
    back.append(ir.node("DequantizeLinear", [back[0].outputs[0], values["t"], values["z"]], name="dq_out"))
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


MORE = {"backends": {name: (lambda name=name: Engine(name)) for name in ("twin", "off", "stepping", "picky")}}
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


def test_an_equal_cell_is_green_and_its_line_counts(project):
    ask(project, "twin", 'equal_to = { twin = "ort-cpu" }')
    assert project.accept().ret == 0
    assert project.run().ret == 0
    (line,) = project.lines(kind="cell")
    assert line["outcome"] == "passed"
    assert line["headline"].endswith("equals ort-cpu")
    compared = line["compared"]
    assert (compared["backend"], compared["elements"], compared["differing"]) == ("ort-cpu", 400 * 7, 0)
    assert compared["environment_class"].startswith("x64-test+onnxruntime-")
    assert compared["first"] is None
    assert line["seconds"]["compared"] > 0


def test_our_machine_equals_the_engine_and_has_no_float_cell(project):
    ask(project, "integer-ort-x64", 'equal_to = "ort-cpu-precise"')
    project.write_suite(project.suite_path.read_text().replace("fp32 = false", ""))
    assert project.accept().ret == 0
    assert project.outcomes() == {"tiny_a::integer-ort-x64+w8a8_asym_pc": "accepted"}
    assert project.lines(kind="cell")[0]["compared"]["differing"] == 0


def test_an_unequal_cell_is_red_with_number_sample_and_node_whatever_was_accepted(project):
    ask(project, "off", 'equal_to = "ort-cpu"')
    for options in (("--qbench-missing=warn",), ("--qbench-accept-fp32", "--qbench-accept=new"), ()):
        result = project.run(*options)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(
            [
                "* of 2800 elements differ from ort-cpu, first at 'relu1'*",
                "  cell: tiny_a::off+w8a8_asym_pc is failed",
                "  ✗ equality: * of 2800 elements differ from ort-cpu, by at most relative *; "
                "first at sample 'points-*'; first in * of node 'relu1', by at most * step*",
                "  rule: equal_to ort-cpu (model tiny_a)",
                "* Differs from another backend (1 cell)",
            ]
        )
        if options and "--qbench-accept=new" in options:
            refused = (
                "not accepted: tiny_a::off+w8a8_asym_pc: * of 2800 elements differ from ort-cpu, first at 'relu1': *"
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
            "*by at most 1 step, relative *; first at sample 'points-2'; first in the floats of node 'dq_out'",
            "  rule: close_to ort-cpu, 0 steps (model tiny_q)",
        ]
    )


@pytest.mark.parametrize(
    ("asked", "outcome", "sentence"),
    [
        ('equal_to = "picky"', "unsupported", "Comparing 'tiny_a::twin+w8a8_asym_pc' with 'picky': found a Gemm; *"),
        ('close_to = { backend = "ort-cpu", steps = 1 }', "error", "*output 'h2', which comes out of no Dequantize*"),
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
    result.stdout.fnmatch_lines(["*cell 'tiny_a::twin+w8a8_asym_pc': found 'twin' compared with itself*"])

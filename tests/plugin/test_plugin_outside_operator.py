"""A cell whose network has an operator of the conftest's own: profiled, planned,
written, counted, judged.
"""

import json
import sys

import pytest

OPERATORS = """
import numpy as np


def swish(x, beta=1.0):
    return x * np.exp(-np.logaddexp(0, -beta * x.astype(np.float64)))


def make_swish():
    from qbench.graph import Operator

    return Operator(kernel=swish, pointwise=True)


MORE = {"operators": {"acme::Swish": make_swish}}
"""

SUITE = """
[suite]
tolerance = 0.2
agreement = 0.5
reference = "onnx-reference"
backends = ["integer-ideal", "onnx-reference"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["agreement"]
"""

SWISHED = """
plain = model


def model(name, seed):
    return lambda: dataclasses.replace(plain(name, seed)(), graphs={"model": lambda: swished(seed)})


def swished(seed):
    made = network(seed)
    made.opset_imports["acme"] = 1
    for node in made.graph:
        if node.op_type == "Relu":
            node.op_type, node.domain = "Swish", "acme"
    return made
"""


@pytest.mark.slow
def test_an_operator_of_a_conftest_is_counted_on_integers(project):
    project.write_suite(SUITE)
    project.write_conftest(OPERATORS, "import dataclasses\n" + SWISHED)
    result = project.accept()
    assert result.ret == 0
    assert project.run().ret == 0
    cells = {
        line["backend"]: line for line in project.lines(kind="cell") if line["schema"] != "fp32"
    }
    assert set(cells) == {"integer-ideal", "onnx-reference"}
    assert all(cell["outcome"] == "passed" and cell["integer_macs"] == 1 for cell in cells.values())

    option = ("--extension", "conftest:pytest_qbench_extension")
    listed = project.pytester.run(
        sys.executable, "-m", "qbench", "list", "operators", "--json", *option
    )
    (row,) = json.loads(listed.stdout.str())
    assert row == {
        "name": "acme::Swish",
        "owner": "scratch conftest",
        "what": "looked up on integers",
    }


def test_without_a_domain_of_its_own_it_is_refused(project):
    project.write_suite(SUITE)
    project.write_conftest(OPERATORS.replace("acme::Swish", "Swish"))
    result = project.accept()
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        ["*Adding the operator 'Swish' of 'scratch conftest'*no domain of its own*"]
    )

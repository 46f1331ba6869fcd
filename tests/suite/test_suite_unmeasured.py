"""A cell that could not be measured says why, in the words of whoever knows."""

import pytest

from qbench.errors import InputError, UnsupportedError
from qbench.suite import JudgedCell, expand, gather, load_suite

SUITE = """
[suite]
backends = ["ort-cpu"]
[[model]]
id = "digits_cnn"
data = "digits_test"
metrics = ["top1"]
calibration = { data = "digits_train", count = 8 }
"""
PARTS = {"found": "a", "expected": "b", "remedy": "Do c."}


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "one.qbench.toml"
    path.write_text(SUITE)
    (cell,) = expand(load_suite(path), gather())
    return cell


@pytest.mark.parametrize(
    ("error", "outcome", "headline", "remedy"),
    [
        (
            UnsupportedError("Running x", **PARTS),
            "unsupported",
            "Running x: found a; expected b. Do c.",
            "Do c.",
        ),
        (
            InputError("Reading y", **PARTS),
            "error",
            "Reading y: found a; expected b. Do c.",
            "Do c.",
        ),
        (
            ZeroDivisionError("division by zero\nand more"),
            "error",
            "ZeroDivisionError: division by zero",
            "",
        ),
        (KeyError(), "error", "KeyError: no message", ""),
    ],
)
def test_what_kept_it_is_its_outcome(planned, error, outcome, headline, remedy):
    line = JudgedCell.unmeasured(planned, error).record.line()
    verdict = JudgedCell.unmeasured(planned, error).verdict
    assert (line["outcome"], line["headline"], verdict.remedy) == (outcome, headline, remedy)
    assert (line["model"], line["backend"], line["schema"]) == ("digits_cnn", "ort-cpu", "fp32")

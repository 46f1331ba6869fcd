"""Every verb, and a suite, on the kinds of models that people bring: the table of docs, cell by cell."""

import json

import pytest
from own_models import make_model

SCHEMA = "w8a8_asym_pc"


@pytest.fixture
def own(project, fill_once):
    """Makes a model in the project: (kind) → its arguments for a verb that quantizes it."""
    makers = {}

    def make(kind: str) -> tuple[str, ...]:
        maker = makers.setdefault(kind, lambda: make_model(kind, project))
        fill_once(project, maker)
        return (
            f"{kind}.onnx", "--data", f"{kind}-val.npz", "--calib", f"{kind}-cal.npz", "--schema", SCHEMA,
        )  # fmt: skip

    return make


def test_outputs_whose_size_depends_on_numbers_are_not_compared_one_by_one(own, qbench):
    """Non-maximum suppression keeps another number of boxes of the quantized network than of the float one."""
    model, *axes = own("det")
    code, out, err = qbench("localize", model, *axes, "--json")
    assert code == 0, err
    finding = json.loads(out)["finding"]
    assert [one["value"] for one in finding["unaligned"]] == ["kept"]
    assert {node["node"] for node in finding["nodes"]} >= {"c0.conv", "cb.conv", "cs.conv"}
    code, out, err = qbench(
        "diff", model, "--data", "det-val.npz", "--calib", "det-cal.npz", "--right", f"schema={SCHEMA}", "--json"
    )
    assert code == 1, err
    assert json.loads(out)["equal"] is False

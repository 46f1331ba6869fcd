"""The example of bias widths: the whole cross, schemas that do what they are called, tables
that are the record.
"""

import importlib
import itertools
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from qbench.calibration import calibrate
from qbench.passes import canonicalize, plannable
from qbench.quantization import Role, make_plan
from qbench.subjects import get_model
from qbench.suite import expand, gather, load_suite

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "examples" / "bias-and-scale.qbench.toml"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield importlib.import_module("bias_and_scale")
    for name in ("bias_and_scale", "bias_and_scale_table"):
        sys.modules.pop(name, None)


def test_the_suite_lists_the_whole_cross(example: ModuleType) -> None:
    listed = load_suite(SUITE).table.schemas
    ways = itertools.product(
        (8, 9, 16, 32), ("chosen", "forced"), ("pow2", "global", "l2", "kl"), (0, 1, 2)
    )
    crossed = {f"bias{bits}_{finer}_{ranged}_skip{skip}" for bits, finer, ranged, skip in ways}
    assert crossed < set(listed)
    assert len(crossed) == 96
    assert set(listed) == set(example.EXTENSION.schemas)
    planned = expand(load_suite(SUITE), gather([example.EXTENSION], suites=SUITE.parent))
    assert len(planned) == 3 * (1 + len(listed))


@pytest.mark.slow
def test_a_schema_is_what_its_name_says(example: ModuleType) -> None:
    model = get_model("fashion_preact").graphs["model"]()
    x = np.random.default_rng(0).random((8, 1, 28, 28)).astype(np.float32)
    profile = calibrate(canonicalize(model, "split_bias"), [{"x": x}])
    graph = plannable(model, "split_bias").graph
    for name in (
        "bias9_chosen_l2_skip0",
        "bias16_forced_pow2_skip2",
        "product_kl_skip1",
        "bias8_chosen_global_skip1",
    ):
        schema = example.EXTENSION.schemas[name]()
        plan = make_plan(model, profile, schema)
        assert schema.name == name
        assert plan.idle_rules == ()
        on_grids = {slot.node for slot in plan.constants if slot.role is Role.WEIGHT}
        in_float = {node.name for node in graph if node.op_type in ("Conv", "Gemm")} - on_grids
        skipped = ["stem", "stage1.block1.conv1"][: int(name[-1])]
        assert in_float == {*skipped, "dense"}
        biases = {q.qtype.bits for slot, q in plan.constants.items() if slot.role is Role.BIAS}
        assert biases == {32 if name.startswith("product") else int(name[4:].partition("_")[0])}
        scales = {float(q.scale) for slot, q in plan.constants.items() if slot.role is Role.WEIGHT}
        assert all(np.frexp(scale)[0] == 0.5 for scale in scales)
        assert any(value.endswith(".correlation") for value in plan.values) is ("forced" in name)


def test_the_tables_are_those_of_the_record(example: ModuleType) -> None:
    table = importlib.import_module("bias_and_scale_table")
    page = table.PAGE.read_text(encoding="utf-8")
    lines, integers = table.kept(table.RECORD), table.kept(table.INTEGERS)
    assert table.page_with(table.tables(lines, integers), page) == page
    assert {
        (line["planned"], line["executed"])
        for line in integers
        if line["model"] == "fashion_preact"
    } == {
        (0.999937, 0.999937)  # all but the dense layer
    }
    assert {line["model"] for line in lines} == {model.id for model in load_suite(SUITE).models}


def test_a_table_counts_what_the_record_says(example: ModuleType) -> None:
    table = importlib.import_module("bias_and_scale_table")
    before, after = np.array([1, 1, 0, 0, 1], bool), np.array([1, 0, 1, 0, 0], bool)
    assert table.change(before, after) == {"losses": 2, "gains": 1}
    assert table._interval({"losses": 30, "gains": 10}, 1000).startswith("-2.00 (-3.")
    assert table.page_with("new\n", f"a\n{table.BEGIN}\nold\n{table.END}\nb\n") == (
        f"a\n{table.BEGIN}\n\nnew\n\n{table.END}\nb\n"
    )

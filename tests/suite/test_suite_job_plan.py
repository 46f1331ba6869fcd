"""The plan of a night: what a file gives back, which job holds a cell, and one sentence for each
file that is no plan.
"""

import json

import pytest

from qbench.errors import DamagedError, InputError, StoreError
from qbench.judging import Cell
from qbench.storage import digest_plain, json_text
from qbench.suite import (
    PlannedCode,
    PlannedSuite,
    Unit,
    load_job_plan,
    load_suite,
    make_job_plan,
    save_job_plan,
)

CODE = PlannedCode(commit="c" * 40, dirty=False, qbench="0.1.0", versions={"onnx": "1.19.0"})
SMOKE = PlannedSuite(path="suites/smoke.qbench.toml", name="smoke", digest="d" * 64, cells=7)


def _unit(model, *, backends=None, schemas=None, cells=2, seconds=1.5):
    return Unit(
        suite="smoke",
        model=model,
        backends=backends,
        schemas=schemas,
        cells=cells,
        seconds=seconds,
    )


@pytest.fixture
def plan():
    parted = [_unit("b", backends=("x",)), _unit("b", backends=("y",), schemas=("s",), cells=3)]
    return make_job_plan([SMOKE], CODE, "x64-avx2", [[_unit("a"), parted[0]], [parted[1]], []])


@pytest.fixture
def file(plan, tmp_path):
    path = tmp_path / "plan.json"
    save_job_plan(plan, path)
    return path


def test_a_file_gives_the_plan_back_and_the_same_plan_the_same_bytes(plan, file, tmp_path):
    assert load_job_plan(file) == plan
    save_job_plan(load_job_plan(file), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()


def test_what_the_file_says(plan, file):
    table = json.loads(file.read_text())
    content = {key: value for key, value in table.items() if key != "digest"}
    assert table["format"] == "qbench-plan/1"
    assert table["digest"] == digest_plain(content) == plan.digest
    assert table["environment_class"] == "x64-avx2"
    assert [job["seconds"] for job in table["jobs"]] == [3.0, 1.5, 0]
    assert table["jobs"][1]["units"] == [
        {
            "suite": 0,
            "model": "b",
            "backends": ["y"],
            "schemas": ["s"],
            "cells": 3,
            "seconds": 1.5,
        }
    ]


@pytest.mark.parametrize(
    ("axes", "index"),
    [
        (("a", "x", "fp32"), 1),
        (("b", "x", "any", "calib32"), 1),
        (("b", "y", "s", "passes=exact"), 2),
        (("b", "y", "t"), None),
        (("c", "x", "s"), None),
    ],
)
def test_the_job_that_holds_a_cell(plan, axes, index):
    cell = Cell("smoke", *axes)
    holder = plan.holder(cell)
    assert (holder.index if holder else None) == index
    assert [job.index for job in plan.jobs if job.covers(cell)] == ([index] if index else [])
    assert plan.holder(Cell("other", *axes)) is None


@pytest.mark.parametrize("index", [0, 4, -1])
def test_a_number_out_of_range(plan, index):
    with pytest.raises(InputError, match="expected a number from 1 to 3"):
        plan.job(index)


def test_no_file_and_files_of_another_kind(tmp_path):
    for text, found in {
        "": "no JSON",
        "x": "no JSON",
        "[]": "a list",
        "{}": "no key 'format'",
        '{"format": "qbench-baseline/1"}': "the format 'qbench-baseline/1'",
    }.items():
        (tmp_path / "p.json").write_text(text)
        with pytest.raises(InputError) as error:
            load_job_plan(tmp_path / "p.json")
        assert error.value.found == found
    with pytest.raises(InputError, match="No such file"):
        load_job_plan(tmp_path / "none.json")
    with pytest.raises(InputError, match="directory"):
        load_job_plan(tmp_path)


def test_a_plan_of_a_newer_qbench(tmp_path):
    (tmp_path / "p.json").write_text('{"format": "qbench-plan/2"}')
    with pytest.raises(StoreError, match="made by a newer qbench"):
        load_job_plan(tmp_path / "p.json")


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.999])
def test_the_beginning_of_a_plan(file, share):
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share) - 1])
    with pytest.raises(DamagedError):
        load_job_plan(file)


def test_every_changed_digit_is_found(file):
    text = file.read_text()
    for place in [i for i, one in enumerate(text) if one.isdecimal()]:
        digit = str((int(text[place]) + 1) % 10)
        file.write_text(text[:place] + digit + text[place + 1 :])
        with pytest.raises((DamagedError, StoreError)):  # of the format: a newer one
            load_job_plan(file)


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": []},
        {"jobs": 3},
        {"suites": []},
        {"suites": [json.loads(json_text(SMOKE))] * 2},
        {"jobs": [{"units": [], "seconds": -1}]},
        {"jobs": [{"units": [{"suite": "smoke"}], "seconds": 1}]},
        {"code": None},
    ],
)
def test_a_plan_without_meaning_whose_digest_is_right(file, change):
    table = {**json.loads(file.read_text()), **change}
    del table["digest"]
    file.write_text(json_text({**table, "digest": digest_plain(table)}))
    with pytest.raises(DamagedError):
        load_job_plan(file)


def test_two_units_that_share_cells(tmp_path):
    units = [_unit("b", backends=("x", "y")), _unit("b", schemas=("s",))]
    save_job_plan(make_job_plan([SMOKE], CODE, None, [units]), tmp_path / "p.json")
    with pytest.raises(DamagedError, match="two units that share cells of model 'b'"):
        load_job_plan(tmp_path / "p.json")


def test_keys_of_a_newer_version_are_ignored_and_counted_in_the_digest(plan, file):
    table = {**json.loads(file.read_text()), "colour": "red"}
    del table["digest"]
    digest = digest_plain(table)
    file.write_text(json_text({**table, "digest": digest}))
    read = load_job_plan(file)
    assert read.digest == digest != plan.digest
    assert read.jobs == plan.jobs


SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pt"]

[[model]]
id = "a"
data = "d"
calibration = { data = "c", count = 8 }
metrics = ["top1"]

[[model]]
id = "b"
data = "d"
calibration = { data = "c", count = 8 }
metrics = ["top1"]

[[model]]
id = "b_int8"
fp32 = "b"
"""


def test_a_suite_is_read_with_some_of_its_models_and_the_float_models_of_these(tmp_path):
    path = tmp_path / "night.qbench.toml"
    path.write_text(SUITE)
    whole, part = load_suite(path), load_suite(path, only=["b_int8"])
    assert [model.id for model in part.models] == ["b", "b_int8"]
    assert part.models == whole.models[1:]
    assert part.partners == whole.partners
    assert [model.id for model in load_suite(path, only=["a"]).models] == ["a"]

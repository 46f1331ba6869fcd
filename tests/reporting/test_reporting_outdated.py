"""A suite has one address: what an earlier report drew of what has moved or is gone goes, and
nothing else does.
"""

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import compare, write_comparison, write_reports


def nights(*suites, models=("magika", "resnet50")):
    return [
        make_run(
            [make_cell(model, "ort-cpu", "w8a8_sym_pc", 0.0, suite=suite) for model in models],
            n,
            suite=suite,
        )
        for n, suite in enumerate(suites)
    ]


def drawn(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.html")}


def test_a_suite_that_is_the_newest_again_has_one_address(tmp_path):
    write_reports(nights("mine", "mine", "theirs"), tmp_path, ["html"])
    assert "suites/mine/index.html" in drawn(tmp_path)
    files = write_reports(nights("mine", "mine", "theirs", "mine"), tmp_path, ["html"])
    assert drawn(tmp_path) == {path.relative_to(tmp_path).as_posix() for path in files}
    assert not (tmp_path / "suites/mine").exists()
    assert (tmp_path / "suites/theirs/models/magika.html").is_file()


@pytest.mark.slow
def test_the_page_of_a_model_that_is_gone_goes(tmp_path):
    write_reports(nights("mine"), tmp_path, ["html"])
    write_reports(nights("mine", models=("magika",)), tmp_path, ["html"])
    assert "models/magika.html" in drawn(tmp_path)
    assert "models/resnet50.html" not in drawn(tmp_path)


@pytest.mark.slow
def test_what_somebody_else_put_there_and_what_was_asked_for_stays(tmp_path):
    runs = nights("mine", "mine")
    write_reports(runs[:1], tmp_path, ["html"])
    write_comparison(compare(*runs), tmp_path, first="mine")
    for place in ("models/own.html", "suites/own/index.html", "notes.html"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("<!doctype html><title>qbench and I</title>")
    write_reports(runs[:1], tmp_path, ["html"])
    assert {"models/own.html", "suites/own/index.html", "notes.html", "compare.html"} <= drawn(
        tmp_path
    )

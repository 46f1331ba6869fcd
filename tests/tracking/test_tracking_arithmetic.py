"""Baselines of integer machines remember under which arithmetic a result was accepted."""

import dataclasses
import json

import pytest
from tracked_results import HERE, baseline, measured

from qbench.judging import Rules
from qbench.tracking import (
    Accepting,
    Scope,
    accept_measurements,
    baseline_path,
    load_baseline,
    save_baseline,
)

SLUG = "integer-mine+w8a8_asym_pc"


def counted(arithmetic, predictions="p1"):
    one = measured(slug=SLUG, predictions=predictions)
    return dataclasses.replace(one, digests={**one.digests, "arithmetic": arithmetic})


def accept(base, measurement, scope, reason=""):
    return accept_measurements(
        base, [measurement], accepting=Accepting(scope=scope, reason=reason), rules=Rules()
    ).baseline


def arithmetic_of(base):
    return base.cells[SLUG].accepted[str(HERE)].arithmetic


def test_it_is_written_and_read_back(tmp_path):
    path = baseline_path(tmp_path, "smoke", "mobilenet_v2")
    save_baseline(path, accept(baseline(), counted("a1"), Scope.NEW))
    assert arithmetic_of(load_baseline(path)) == "a1"


def test_results_of_engines_have_none_and_no_key(tmp_path):
    path = baseline_path(tmp_path, "smoke", "mobilenet_v2")
    save_baseline(path, accept(baseline(), measured(slug=SLUG), Scope.NEW))
    assert "arithmetic" not in json.dumps(json.loads(path.read_text())["cells"][SLUG]["accepted"])
    assert arithmetic_of(load_baseline(path)) == ""


@pytest.mark.parametrize("known", ["", "a1"])
def test_another_one_that_answers_the_same_is_taken_over_without_a_reason(known):
    first = accept(baseline(), counted(known) if known else measured(slug=SLUG), Scope.NEW)
    assert arithmetic_of(accept(first, counted("a2"), Scope.NEW)) == "a2"


def test_an_unknown_one_is_not_taken_over():
    first = accept(baseline(), counted("a1"), Scope.NEW)
    assert arithmetic_of(accept(first, measured(slug=SLUG), Scope.ALL, "why not")) == "a1"

"""Exports: what their readers will find, checked against the cells they came from and by
readers of others.
"""

import csv
import io
import json
import math
from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from reporting_histories import edge_histories, nightly_history

from qbench.errors import InputError
from qbench.reporting import EXPORT_FORMATS, export_text
from qbench.storage import visible
from qbench.tracking import metric_rows, record_of_line

RUN = nightly_history()[-1]
MEASURED = [record.line() for record in RUN.cells if record.is_measured]
ROWS = list(metric_rows([RUN]))
TABLES = {(line["model"], line["backend"], line["schema"]): line["metrics"] for line in MEASURED}


def test_csv_is_what_pandas_reads_back():
    import pandas as pd

    frame = pd.read_csv(io.StringIO(export_text([RUN], "csv")), keep_default_na=False)
    rows = list(metric_rows([RUN]))
    assert tuple(frame.columns) == rows[0]._fields
    assert [tuple(row) for row in frame.itertuples(index=False)] == [tuple(row) for row in rows]


def test_json_is_the_same_rows():
    assert json.loads(export_text([RUN], "json")) == [row._asdict() for row in metric_rows([RUN])]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", '"quoted", and\nbroken'])
def test_a_spreadsheet_computes_nothing(text):
    line = {**MEASURED[0], "environment_class": text}
    (_, *rows) = csv.reader(
        io.StringIO(export_text([replace(RUN, cells=(record_of_line(line),))], "csv"))
    )
    assert {row[9] for row in rows} == {
        visible(text) if text.startswith('"') else f"'{visible(text)}"
    }


def test_junit_counts_cells_by_what_became_of_them():
    root = ElementTree.fromstring(export_text([RUN], "junit"))
    (suite,) = root.findall("testsuite")
    kinds = Counter(
        next((child.tag for child in case if child.tag != "properties"), "")
        for case in suite.iter("testcase")
    )
    outcomes = Counter(record.outcome for record in RUN.cells)
    assert kinds["error"] == outcomes["error"] == int(suite.get("errors")) > 0
    assert kinds["skipped"] == outcomes["unsupported"] == int(suite.get("skipped")) > 0
    red = sum(outcomes[name] for name in ("failed", "drifted", "missing", "stale", "expired"))
    assert kinds["failure"] == red == int(suite.get("failures")) > 0
    assert int(suite.get("tests")) == len(RUN.cells)
    assert suite.get("name") == "nightly"


def test_junit_holds_the_counts():
    root = ElementTree.fromstring(export_text([RUN], "junit"))
    cases = {(case.get("classname"), case.get("name")): case for case in root.iter("testcase")}
    for line in MEASURED:
        case = cases[f"nightly.{line['model']}", f"{line['backend']}+{line['schema']}"]
        facts = {item.get("name"): item.get("value") for item in case.iter("property")}
        for metric, table in line["metrics"].items():
            assert (facts[f"{metric}:hits"], facts[f"{metric}:losses"]) == (
                str(table["hits"]),
                str(table["losses"]),
            )
        assert math.isclose(float(case.get("time")), sum(line["seconds"].values()), abs_tol=1e-3)


def test_an_interrupted_run_is_not_green_in_junit():
    (_, run) = edge_histories()["incomplete"]
    root = ElementTree.fromstring(export_text([run], "junit"))
    (error,) = root.iter("error")
    assert "interrupted" in error.get("message")
    assert "stopped by Ctrl-C" in error.text
    assert root.find("testsuite").get("errors") == "1"


def test_a_drop_is_smaller_where_a_cell_is_better():
    entries = {entry["name"]: entry for entry in json.loads(export_text([RUN], "github-benchmark"))}
    assert len(entries) == len(ROWS)
    seen = set()
    for row in ROWS:
        entry = entries[f"nightly/{row.model}::{row.backend}+{row.schema} {row.metric}"]
        direction = TABLES[row.model, row.backend, row.schema][row.metric]["direction"]
        worse = (
            row.hits - row.reference_hits if direction == "lower" else row.reference_hits - row.hits
        )
        assert math.isclose(entry["value"], 100 * worse / row.out_of, abs_tol=1e-6)
        assert entry["unit"] == "pp"
        seen.add((direction, worse > 0))
    assert seen >= {("lower", True), ("higher", True)}


def test_bencher_gets_scores_with_bounds_where_there_are_some():
    found = json.loads(export_text([RUN], "bencher"))
    assert sum(map(len, found.values())) == len(ROWS)
    bounded = 0
    for row in ROWS:
        measure = found[f"nightly/{row.model}::{row.backend}+{row.schema}"][row.metric]
        assert math.isclose(measure["value"], 100 * row.value, abs_tol=1e-6)
        assert measure.keys() <= {"value", "lower_value", "upper_value"}
        if "lower_value" in measure:
            bounded += 1
            assert TABLES[row.model, row.backend, row.schema][row.metric]["proportion"]
            assert measure["lower_value"] <= measure["value"] <= measure["upper_value"]
    assert bounded > 0


def exported(name, **metrics):
    line = {**MEASURED[0], "metrics": metrics}
    return json.loads(
        export_text([replace(RUN, cells=(record_of_line(line),))], name), parse_float=str
    )


def table(hits, out_of, reference, *, losses=0, gains=0, **nature):
    counts = {
        "hits": hits,
        "out_of": out_of,
        "reference_hits": reference,
        "losses": losses,
        "gains": gains,
        "n": 100,
    }
    share = {"direction": "higher", "against": "labels", "unit": "%", "proportion": True}
    return {**counts, **share, **nature}


DISTANCE = {"against": "reference", "proportion": False}


@pytest.mark.parametrize(
    ("metric", "value", "unit"),
    [
        (table(98, 100, 98), "0.0", "pp"),
        (table(10**9, 10**9, 10**9 - 1), "0.0", "pp"),
        (
            table(1_900_000, 10**6, 1_800_000, direction="lower", unit="nats", proportion=False),
            "0.1",
            "nats",
        ),
        (table(12_000, 10**6, 10**6, direction="lower", unit="nats", **DISTANCE), "0.012", "nats"),
        (table(35_200, 1000, 1000, unit="dB", **DISTANCE), "-35.2", "dB"),
    ],
)
def test_a_dashboard_gets_values_in_the_unit_of_the_metric_and_no_negative_zero(
    metric, value, unit
):
    (entry,) = exported("github-benchmark", m=metric)
    assert (entry["value"], entry["unit"]) == (value, unit)
    assert ("fp32" in entry["extra"]) is (metric["against"] == "labels")


def test_bounds_of_a_share_are_shares():
    high = exported("bencher", top1=table(100, 100, 99, gains=1))
    low = exported("bencher", eer=table(0, 100, 1, gains=1, direction="lower"))
    (top1,), (eer,) = (list(next(iter(found.values())).values()) for found in (high, low))
    assert (top1["value"], top1["upper_value"]) == ("100.0", "100.0")
    assert (eer["value"], eer["lower_value"]) == ("0.0", "0.0")
    assert 0 < float(eer["upper_value"]) < 10
    (nats,) = exported(
        "bencher", ppl=table(1_900_000, 10**6, 1, unit="nats", proportion=False)
    ).values()
    assert nats["ppl"] == {"value": "1.9"}


@pytest.mark.slow_but(18)
@pytest.mark.parametrize("name", EXPORT_FORMATS)
@pytest.mark.parametrize("history", edge_histories())
def test_anything_that_was_read_can_be_exported(name, history):
    text = export_text([run for run in edge_histories()[history] if run.header], name)
    if name == "junit":
        ElementTree.fromstring(text)
    elif name == "csv":
        assert len({len(row) for row in csv.reader(io.StringIO(text))}) == 1
    else:
        json.loads(text)


def test_what_xml_cannot_hold_is_written_as_its_escape():
    line = {
        **MEASURED[0],
        "outcome": "failed",
        "headline": "bell \a, nul \0, half \ud800, <b>&",
        "notices": ["\x1b[31m"],
    }
    text = export_text([replace(RUN, cells=(record_of_line(line),))], "junit")
    (failure,) = ElementTree.fromstring(text.encode()).iter("failure")
    assert failure.get("message") == r"failed: bell \x07, nul \x00, half \ud800, <b>&"
    assert r"\x1b[31m" in failure.text


def test_an_unknown_format_is_one_sentence():
    with pytest.raises(InputError, match="unknown format 'junitt'"):
        export_text([RUN], "junitt")

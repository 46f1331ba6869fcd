"""Reports show a change in two parts where integer-ideal ran the very same graph,
and nowhere else.
"""

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import build_report, html_pages, markdown_text

MODEL, SCHEMA = "mobilenet_v2", "w8a8_asym_pc"


def line(backend, loss, *, quantized="q1", data="d1", schema=SCHEMA):
    one = make_cell(MODEL, backend, schema, loss)
    return {**one, "digests": {**one["digests"], "quantized": quantized, "data:photos": data}}


def report_of(*cells):
    return build_report([make_run(cells)])


def parts_of(report, backend):
    (cell,) = [
        cell for cell in report.cells if cell.key.backend == backend and cell.key.schema == SCHEMA
    ]
    return cell.parts


def test_the_parts_add_up_to_the_change():
    report = report_of(line("integer-ideal", 0.002), line("integer-ort-x64-avx2", 0.012))
    parts = parts_of(report, "integer-ort-x64-avx2")
    assert (parts.schema.change, parts.counting.change) == pytest.approx((-0.002, -0.010))
    assert parts_of(report, "integer-ideal") is None


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "ideal",
    [
        line("integer-ideal", 0.002, quantized="q2"),
        line("integer-ideal", 0.002, data="d2"),
        line("integer-ideal", 0.002, schema="w8a8_sym_pc"),
        line("integer-gemmlowp", 0.002),
    ],
)
def test_another_graph_other_data_and_other_machines_tell_nothing(ideal):
    report = report_of(ideal, line("ort-cpu", 0.012))
    assert parts_of(report, "ort-cpu") is None
    assert "Loss in two parts" not in markdown_text([report])
    assert "counting" not in "".join(html_pages([report]).values())


def test_agreement_has_no_parts():
    cells = [line("integer-ideal", 0.002), line("ort-cpu", 0.012)]
    for cell in cells:
        cell["metrics"] = {
            name: one for name, one in cell["metrics"].items() if name.startswith("agreement")
        }
    assert parts_of(report_of(*cells), "ort-cpu") is None


def test_pages_show_both_beside_the_change():
    report = report_of(
        line("integer-ideal", 0.002), line("ort-cpu", 0.012), line("ort-cpu-noopt", 0.003)
    )
    text = markdown_text([report])
    assert text.count("schema −0.20 pp, counting −1.00 pp") == 1  # the red cell
    table = text.partition("## Loss in two parts")[2].partition("##")[0]
    rows = [row for row in table.splitlines() if "::" in row]
    assert [row.split("|")[1].strip() for row in rows] == [
        f"`{MODEL}::{backend}+{SCHEMA}`" for backend in ("ort-cpu", "ort-cpu-noopt")
    ]
    assert [cell.strip() for cell in rows[0].split("|")[3:6]] == [
        "−1.20 pp",
        "−0.20 pp",
        "−1.00 pp",
    ]
    page = "".join(html_pages([report]).values())
    assert (
        page.count("schema −0.20 pp, counting −1.00 pp") == 3
    )  # attention, card, table of all cells
    assert page.count("schema −0.20 pp, counting −0.10 pp") == 2


def test_parts_of_another_unit_than_percent_are_told_in_it():
    perplexity = {
        "direction": "lower",
        "against": "labels",
        "unit": "nats",
        "proportion": False,
        "least_margin": 0.005,
    }
    counts = {"n": 1000, "out_of": 10**6, "reference_hits": 1_800_000, "losses": 0, "gains": 0}
    cells = [line("integer-ideal", 0.002), line("ort-cpu", 0.012)]
    for cell, hits in zip(cells, (1_850_000, 1_849_000), strict=True):
        cell["metrics"] = {"perplexity": {**perplexity, **counts, "hits": hits}}
    report = report_of(*cells)
    assert parts_of(report, "ort-cpu").unit == "nats"
    table = markdown_text([report]).partition("## Loss in two parts")[2].partition("##")[0]
    assert "+0.049 nats | +0.05 nats | −0.001 nats" in table
    assert "schema +0.05 nats, counting −0.001 nats" in "".join(html_pages([report]).values())

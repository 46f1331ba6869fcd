"""The charts and the page of a sweep: what is drawn where, and what is read out of it."""

import itertools
import re
import shutil

import pytest
from test_reporting_pages import Page

from qbench.reporting import sweep_facts, sweep_page, sweep_png, sweep_table
from qbench.reporting.sweep_layout import (
    BOTTOM,
    HEIGHT,
    LEFT,
    LETTER,
    NARROW,
    RIGHT,
    TOP,
    WIDTH,
    sweep_chart,
)
from qbench.reporting.sweep_rows import executed_text, interval_text, loss_text
from qbench.tracking import SweepCell, SweepMetric, SweepState


def cell(backend, schema, loss, size, ms, **more):
    return SweepCell(
        backend=backend, schema=schema, metric="top1", samples=200, loss=loss,
        interval=(loss - 0.02, loss + 0.03), losses=5, gains=1, agreement=0.97,
        metrics={"top1": SweepMetric(value=0.9 - loss, fp32=0.9)}, planned=1.0,
        executed=1.0, file_bytes=size, ms=ms, environment="x64", measured="2026-11-24T01:02:03Z",
        **more,
    )  # fmt: skip


def grid(backends=3, schemas=8):
    """Cells of which those of one schema have one size, as in a real sweep."""
    found = [cell(f"engine-{b}", "fp32", 0.0, 14_200_000, 20.0 + b) for b in range(backends)]
    for b in range(backends):
        for s in range(schemas):
            loss, size = 0.004 * ((5 * s) % 7 - 1), 3_600_000 + 9_000 * s
            found.append(cell(f"engine-{b}", f"w8a8_{s}", loss, size, 9 + b + s))
    return found


def table(cells, **more):
    return sweep_table(cells, model="net.onnx", data="val.npz", **more)


@pytest.mark.parametrize("cost", ["size", "time"])
def test_every_cell_is_a_mark_at_its_place(cost):
    chart = sweep_chart(table(grid()), cost)
    # the float model is far beyond by its size, and would leave the others no room
    assert len(chart.points) == (24 if cost == "size" else 27)
    assert ("14.20 MB" in chart.x_title) == (cost == "size")
    for point in chart.points:
        assert LEFT <= point.x <= WIDTH - RIGHT
        assert TOP <= point.high <= point.y <= point.low <= HEIGHT - BOTTOM
    by_cost = sorted(chart.points, key=lambda one: one.x)
    costs = [one.row.cell.file_bytes if cost == "size" else one.row.cell.ms for one in by_cost]
    assert costs == sorted(costs)
    by_loss = sorted(chart.points, key=lambda one: -one.y)
    assert [one.row.cell.loss for one in by_loss] == sorted(one.row.cell.loss for one in by_loss)
    shapes = {one.row.cell.backend: (one.shape, one.colour) for one in chart.points}
    assert len(set(shapes.values())) == 3
    assert [one for one in chart.points if one.is_front] == [
        one for one in chart.points if cost in one.row.fronts
    ]


@pytest.mark.parametrize("cost", ["size", "time"])
def test_no_label_covers_another_and_the_front_has_its_numbers(cost):
    chart = sweep_chart(table(grid()), cost)
    assert_apart(chart.labels)
    named = {int(text) for label in chart.labels for text in re.findall(r"\d+", label.text)}
    assert {point.row.number for point in chart.points if point.is_front} <= named


def assert_apart(labels, size=1.0):
    """Texts on one line have 3 units between them; ``size``: of their letters."""
    extents = []
    for label in labels:
        wide = LETTER * size * len(label.text)
        left = label.x - {"start": 0.0, "middle": wide / 2, "end": wide}[label.anchor]
        extents.append((left, left + wide, label.y))
    for (left, right, y), (start, end, other) in itertools.combinations(extents, 2):
        assert abs(y - other) >= 9 * size or start - right >= 3 or left - end >= 3


@pytest.mark.parametrize("step", [0.1, 0.15, 0.2, 0.35, 0.5, 0.8])
def test_labels_of_equal_losses_are_apart_on_any_screen(step):
    cells = [cell("b", f"s{n}", 0.0, 10, 1.0 + step * n) for n in range(16)]
    cells += [cell("c", f"s{n}", 0.0, 10, 1.0 + 1.1 * step * n) for n in range(16)]
    chart = sweep_chart(table(cells), "time")
    assert_apart(chart.labels)
    assert_apart(chart.narrow_labels, NARROW)
    assert len(chart.narrow_labels) > 3


def test_costs_that_differ_tenfold_are_in_logarithms():
    def places(largest):
        cells = [cell("b", f"s{n}", 0.0, 10, ms) for n, ms in enumerate((1.0, 3.0, largest))]
        chart = sweep_chart(table(cells), "time")
        one, two, three = (point.x for point in sorted(chart.points, key=lambda one: one.x))
        return (two - one) / (three - one)

    assert places(9.0) == pytest.approx(2 / 8)
    assert places(900.0) == pytest.approx(0.1615, abs=1e-3)  # log 3 / log 900


def test_a_chart_of_one_cell_is_none():
    assert sweep_chart(table([cell("b", "s", 0.0, 1, 1.0)]), "size") is None
    assert (
        sweep_chart(table([cell("b", "s", 0.0, None, 1.0), cell("b", "t", 0, 1, 2)]), "size")
        is None
    )
    equal = [cell("b", f"s{n}", 0.0, 7, 2.0) for n in range(3)]
    assert len(sweep_chart(table(equal), "size").points) == 3


def others():
    left = {"state": SweepState.NOT_MEASURED, "reason": "the budget was used up before it"}
    return [
        *grid(),
        SweepCell(backend="b", schema="x", **left),
        SweepCell(
            backend="<b>", schema="<script>", state=SweepState.UNSUPPORTED, reason="<i>no kernel"
        ),
    ]


def test_the_page_is_well_formed_alone_and_escaped():
    text = sweep_page(table(others(), calibration="<b>cal"))
    page = Page(text)
    assert len(page.all("table")) == len(page.all("caption")) == 2
    assert all(head.get("scope") in ("col", "row", "rowgroup") for head in page.all("th"))
    assert all(
        one.get("role") == "img" or one.get("aria-hidden") == "true" for one in page.all("svg")
    )
    assert len(page.all("h1")) == len(page.all("main")) == 1
    assert not page.all("i")
    assert "<b>cal" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert "Not complete." in text
    assert text.count('class="mark') == 24 + 27 + 3  # both charts, and the key
    assert len(text) < 60_000


def test_a_page_without_a_result_has_the_reasons():
    text = sweep_page(table(others()[-2:]))
    assert "no kernel" in text
    assert "<svg" not in text


def test_the_picture_is_one_and_equal_for_equal_sweeps():
    made = sweep_png(table(grid()))
    assert made.startswith(b"\x89PNG")
    assert made == sweep_png(table(grid()))
    assert sweep_png(table([cell("b", "s$", 0.0, 1, 1.0)])).startswith(b"\x89PNG")


def test_facts_have_one_object_per_cell_in_the_order_of_the_table():
    shown = table(others(), sort="time")
    cells = sweep_facts(shown)["cells"]
    assert [one["number"] for one in cells] == [*range(1, 28), None, None]
    assert [one["ms"] for one in cells[:27]] == sorted(one["ms"] for one in cells[:27])
    assert [one["state"] for one in cells[27:]] == ["not measured", "unsupported"]
    fronts = {one["cell"]: one["front"] for one in cells}
    assert fronts == {
        **{row.cell.name: list(row.fronts) for row in shown.rows},
        "b+x": [],
        "<b>+<script>": [],
    }


@pytest.mark.parametrize(
    ("made", "loss", "interval"),
    [
        (cell("b", "s", 0.0044, 1, 1), "0.44 pp", "−1.56 … 3.44"),
        (cell("b", "s", -0.0012, 1, 1), "−0.12 pp", "−2.12 … 2.88"),
        (
            SweepCell(backend="b", schema="s", unit="dB", loss=0.5, interval=(0.25, 0.75),
                      confidence=0.9),
            "0.500 dB",
            "0.250 … 0.750 (90 %)",
        ),
        (
            SweepCell(backend="b", schema="s", unit="dB", is_distance=True, loss=-35.25),
            "35.25 dB",
            "",
        ),
    ],
)  # fmt: skip
def test_losses_as_text(made, loss, interval):
    assert loss_text(made) == loss
    assert interval_text(made) == interval


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"planned": 1.0, "executed": 1.0}, "100 %"),
        ({"planned": 1.0, "executed": 0.004}, "0 % of 100 %"),
        ({"planned": 0.75}, "? of 75 %"),
        ({"planned": 1.0, "weights_only": True}, "weights"),
        ({"schema": "fp32"}, "float"),
    ],
)
def test_executed_shares_as_text(facts, text):
    assert executed_text(SweepCell(**{"backend": "b", "schema": "s", **facts})) == text


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_asks_for_nothing(tmp_path, width):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    (tmp_path / "sweep.html").write_text(sweep_page(table(others())))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        asked, said = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto((tmp_path / "sweep.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.click("thead th:has-text('ms/sample') button")
        first = page.inner_text(".swept tbody tr:first-child")
        assert "engine-0" in first
        assert "w8a8_0" in first
        browser.close()
    assert (len(asked), said) == (1, [])

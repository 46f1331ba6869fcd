"""The pages in a real browser: no complaint, no request, filters that work, names that stay
text, no page too wide.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from reporting_histories import edge_histories, make_cell, make_run, nightly_history

from qbench.reporting import Memory, compare, remember, write_reports
from qbench.reporting.view import read_run
from qbench.tracking import Annotation, Ruling

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.slow,  # the pages of findings are opened by a quick test
]
NARROW, WIDE = 390, 1440


class Visit:
    """A page that was opened, and everything it said or asked for."""

    def __init__(self, browser, width: int, **settings) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        context.set_default_timeout(120_000)
        self.page = context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on(
            "dialog",
            lambda dialog: (self.said.append(f"dialog {dialog.message}"), dialog.dismiss()),
        )
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, path: Path) -> "Visit":
        self.page.goto(path.as_uri())
        return self

    def js(self, code: str):
        return self.page.evaluate(code)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            timeout=600_000,
        )
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write_reports(nightly_history(), folder, ["html"])
    return folder


@pytest.fixture
def visit(browser):
    opened = []

    def begin(width: int = WIDE, **settings) -> Visit:
        opened.append(Visit(browser, width, **settings))
        return opened[-1]

    yield begin
    for one in opened:
        one.page.context.close()


SPAN = "(element) => { const box = element.getBoundingClientRect(); return [box.left, box.right]; }"


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_every_page_opens_in_silence_asks_for_nothing_and_fits(site, visit, width):
    one = visit(width)
    paths = sorted(site.rglob("*.html"))
    for path in paths:
        one.open(path)
        assert one.js("document.documentElement.scrollWidth") <= width, path.name
    assert one.said == []
    assert one.asked == [path.as_uri() for path in paths]


LEFT = """all => all.map((one) =>
  one.getBoundingClientRect().left + parseFloat(getComputedStyle(one).paddingLeft))"""


@pytest.mark.parametrize("width", [NARROW, 1280, 1600])
def test_head_tables_and_foot_of_a_page_begin_at_one_line(width, site, visit):
    one = visit(width)
    for path in sorted(site.glob("*.html")):
        one.open(path)
        left = one.page.locator(".top, .bar, main, footer").evaluate_all(LEFT)
        assert len(left) == 4, path.name
        assert len({round(at) for at in left}) == 1, path.name


NAMES = """() => {
  const names = new Set();
  const gather = (rules) => {
    for (const rule of rules) {
      for (const name of rule.style ?? []) names.add(name);
      gather(rule.cssRules ?? []);
    }
  };
  for (const sheet of document.styleSheets) gather(sheet.cssRules);
  return [...names].filter((name) => !name.startsWith("--"));
}"""
STYLES = """async (names) => {
  // what watches sizes has its say
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  return [...document.querySelectorAll("body *")].map((element) => {
    const style = getComputedStyle(element);
    return [element.tagName, ...names.map((name) => style.getPropertyValue(name))].join(" ");
  });
}"""


def test_leaving_out_unused_rules_changes_no_element(visit, tmp_path, monkeypatch):
    """By all properties that any rule sets: no other can differ."""
    runs = nightly_history(30)
    write_reports(runs, tmp_path / "trimmed", ["html"])
    monkeypatch.setattr("qbench.reporting.html.trim_page", lambda page: page)
    write_reports(runs, tmp_path / "whole", ["html"])
    page = visit().page
    for path in (
        "index.html",
        "cells.html",
        "known.html",
        "compare.html",
        "run.html",
        "models/magika.html",
    ):
        seen, names = [], []
        for kind in ("whole", "trimmed"):
            page.goto((tmp_path / kind / path).as_uri())
            names = names or page.evaluate(NAMES)
            for media in ("screen", "print"):
                page.emulate_media(media=media)
                seen.append(page.evaluate(STYLES, names))
        assert len(names) > 80
        assert len(seen[0]) > 50
        assert seen[:2] == seen[2:], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_told_from_their_ground(site, visit, scheme):
    """WCAG 2.2, 1.4.3: contrast of at least 4.5 between the text of every shade of the matrix
    and what is behind it.
    """
    one = visit(color_scheme=scheme).open(site / "index.html")
    contrasts = one.js("""() => {
      const light = (text) => {
        const parts = text.match(/[\\d.]+/g).slice(0, 3).map((part) => {
          const c = Number(part) / 255;
          return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
      };
      const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
          const colour = getComputedStyle(at).backgroundColor;
          if (colour !== "rgba(0, 0, 0, 0)") return colour;
        }
      };
      const seen = ".m b, .m small, .headline, .when, .lede, .legend li, td, th";
      return [...document.querySelectorAll(seen)]
        .map((element) => {
          const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
          const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          return [ratio, element.className + ": " + element.textContent];
        });
    }""")
    assert len(contrasts) > 400
    assert min(contrasts)[0] >= 4.5, min(contrasts)


def test_the_overview_filters_by_name_and_outcome(site, visit):
    one = visit().open(site / "index.html")
    output, shown = one.page.locator(".filter output"), ".matrix tbody td.m:not(.dimmed)"
    one.page.get_by_label("Filter cells by name").fill("mobilenet ort-cpu-noopt sym_pc")
    assert output.text_content() == "3 of 120"
    names = one.page.locator(shown).evaluate_all("cells => cells.map((cell) => cell.dataset.cell)")
    assert names == [
        f"mobilenet_v2::ort-cpu-noopt+w8a8_{end}" for end in ("asym_pc", "sym_pc", "sym_pc_pow2")
    ]
    visible = "rows => rows.filter((row) => row.checkVisibility()).length"
    assert one.page.locator(".matrix tbody tr").evaluate_all(visible) == 1
    one.page.get_by_label("Filter cells by name").fill("")
    one.page.get_by_label("Filter cells by outcome").select_option("red")
    assert output.text_content() == "8 of 120"
    one.page.get_by_label("Filter cells by outcome").select_option("drifted")
    assert output.text_content() == "1 of 120"
    one.page.get_by_label("Filter cells by outcome").select_option("")
    assert output.text_content() == ""
    assert one.page.locator(".dimmed, .filtered-out").count() == 0
    assert one.said == []


def test_tables_sort_by_the_keyboard_and_say_so(site, visit):
    one = visit().open(site / "cells.html")
    head = one.page.get_by_role("columnheader", name="Change")
    head.get_by_role("button").focus()
    one.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    names = "rows => rows.map((row) => row.dataset.cell)"
    rows = one.page.locator(".all tbody tr").evaluate_all(names)
    assert rows[0] == "efficientnet_lite0::ort-cpu+w8a8_asym_pt"
    assert all(
        "onnx-reference" in name or "magika::ort-cpu+w8a8_sym_pc_pow2" in name
        for name in rows[-13:]
    )
    one.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert one.page.locator(".all tbody tr").evaluate_all(names)[-13:] == rows[-13:]
    one.open(site / "index.html")
    matrix = one.page.get_by_role("table", name="ort-cpu: models", exact=False).first
    matrix.get_by_role("columnheader", name="w8a8_sym_pc").first.get_by_role("button").click()
    assert matrix.locator("tbody th a").first.text_content() == "mobilenet_v2"


def test_a_table_sorts_wherever_its_head_is_pressed(site, visit):
    one = visit().open(site / "cells.html")
    head = one.page.get_by_role("columnheader", name="Change")
    box = head.bounding_box()
    for corner in ({"x": 2, "y": 2}, {"x": box["width"] - 2, "y": box["height"] - 2}):
        before = head.get_attribute("aria-sort")
        head.click(position=corner)
        assert head.get_attribute("aria-sort") not in (None, before)


def test_steps_are_read_without_scrolling_on_a_narrow_page(site, visit):
    one = visit(NARROW).open(site / "index.html")
    tables = one.page.locator("details[open] table.steps")
    assert tables.count() > 0
    assert tables.first.evaluate(
        "table => table.parentElement.scrollWidth <= table.parentElement.clientWidth"
    )
    assert (
        tables.first.locator("tbody tr").first.evaluate("row => getComputedStyle(row).display")
        == "flex"
    )


@pytest.mark.parametrize(
    ("page", "table", "columns"), [("index", ".matrix", 4), ("models/magika", ".still", 4)]
)
def test_on_a_phone_names_stay_while_numbers_scroll_past(page, table, columns, site, visit):
    one = visit(NARROW).open(site / f"{page}.html")
    box = one.page.locator(f".scroll:has({table})").first
    heads = box.locator("thead th").evaluate_all(f"heads => heads.map({SPAN})")
    room = box.evaluate(SPAN)
    assert sum(right <= room[1] + 1 for _, right in heads) >= columns
    name = box.locator("tbody tr:not(:has([scope=rowgroup])) > :first-child").first
    at_rest = name.evaluate(SPAN)[0]
    assert box.evaluate("box => { box.scrollLeft = box.scrollWidth; return box.scrollLeft; }") > 20
    assert name.evaluate(SPAN)[0] == pytest.approx(at_rest, abs=4)


@pytest.mark.parametrize("width", [NARROW, 800, 1280])
@pytest.mark.parametrize(
    ("page", "table", "moved"), [("cells", ".cells", 8), ("compare", ".pairs", 7)]
)
def test_the_change_of_every_cell_is_read_without_scrolling_sideways(
    page, table, moved, width, site, visit
):
    one = visit(width).open(site / f"{page}.html")
    boxes = one.page.locator(f".scroll:has({table})")
    assert boxes.evaluate_all(
        "boxes => boxes.every((box) => box.scrollWidth <= box.clientWidth + 1)"
    )
    fields = one.page.locator(f"{table} tbody tr:not(:has([colspan])) > :nth-child({moved})")
    spans = fields.evaluate_all(
        f"fields => fields.filter((field) => field.textContent.trim()).map({SPAN})"
    )
    assert spans
    assert all(0 <= left < right <= width for left, right in spans)


@pytest.mark.parametrize("width", [NARROW, 768])
def test_a_value_stays_within_its_field_of_the_matrix(width, site, visit):
    one = visit(width).open(site / "index.html")
    fields = f"values => values.map((value) => [({SPAN})(value), ({SPAN})(value.closest('td'))])"
    for value, field in one.page.locator(".m b").evaluate_all(fields):
        assert field[0] <= value[0] <= value[1] <= field[1]


def test_the_first_key_leads_past_the_links(site, visit):
    one = visit().open(site / "index.html")
    one.page.keyboard.press("Tab")
    assert one.js("document.activeElement.textContent") == "Skip to the report"
    assert one.js("document.activeElement.getBoundingClientRect().left") >= 0
    assert one.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    one.page.keyboard.press("Enter")
    assert one.js("document.activeElement.id") == "main"


def test_a_link_of_the_matrix_leads_to_the_charts_of_the_model(site, visit):
    one = visit().open(site / "index.html")
    one.page.locator(".matrix").nth(1).get_by_role("link", name="mobilenet_v2").click()
    one.page.wait_for_url("**/models/mobilenet_v2.html#ort-cpu")
    chart = one.page.get_by_role("img", name="mobilenet_v2::ort-cpu+w8a8_sym_pc, top1", exact=True)
    chart.hover()
    assert one.page.locator("#tip").is_visible()
    assert "UTC" in one.page.locator("#tip").text_content()
    one.page.get_by_role("link", name="Overview").click()
    one.page.wait_for_url("**/index.html")
    assert one.said == []


@pytest.fixture(scope="module")
def linked(tmp_path_factory) -> Path:
    folder, runs = tmp_path_factory.mktemp("linked"), nightly_history(34)
    memory = replace(remember(runs, accepted={}), repository="https://example.com/o/n")
    write_reports(runs, folder, ["html"], memory=memory)
    return folder


@pytest.mark.parametrize("width", [NARROW, 1280])
def test_a_click_on_a_chart_opens_a_large_one_whose_points_lead_to_commits(width, linked, visit):
    one = visit(width).open(linked / "models" / "mobilenet_v2.html")
    card = one.page.locator(".card:has(svg.trend)").first
    chart = card.locator("svg.trend")
    small = chart.bounding_box()["width"]
    assert not card.locator(".scale").is_visible()
    chart.click(position={"x": 20, "y": 60})
    assert chart.bounding_box()["width"] > 1.8 * small
    assert card.locator(".scale").is_visible()
    assert card.locator(".ticks tspan").count() >= 2
    points, rows = card.locator("a:has(.point)"), card.locator(".values tbody tr")
    assert points.count() == rows.count() > 10
    assert re.fullmatch(
        r"https://example.com/o/n/commit/[0-9a-f]{9}", points.last.get_attribute("href")
    )
    assert rows.first.locator("a").get_attribute("href") == points.last.get_attribute("href")
    chart.hover(position={"x": 60, "y": 60})
    assert re.search(
        r"[0-9.]+ %95 %: [0-9.]+ … [0-9.]+ %.*UTC · [0-9a-f]{9}",
        one.page.locator("#tip").text_content(),
    )
    card.locator("summary").first.press("Escape")
    assert not card.locator(".scale").is_visible()
    assert one.js("document.documentElement.scrollWidth") <= width
    assert one.said == []


def test_without_scripts_a_click_still_opens_a_large_chart_with_its_scale(linked, visit):
    one = visit(1280, java_script_enabled=False).open(linked / "models" / "mobilenet_v2.html")
    chart = one.page.locator("svg.trend").first
    small = chart.bounding_box()["width"]
    chart.click(position={"x": 20, "y": 60})
    assert chart.bounding_box()["width"] > 1.8 * small
    assert chart.locator(".scale").is_visible()


ROWS = """rows => rows.map((row) => [
  row.cells[0].firstChild.textContent + " " + row.cells[0].querySelector("small").textContent,
  row.cells[1].textContent,
  [...row.cells[6].childNodes].map((line) => line.textContent).filter(Boolean),
])"""


@pytest.mark.parametrize(("first", "second"), [(14, 28), (14, 15), (26, 33), (30, 29), (20, 20)])
def test_two_runs_chosen_on_the_page_differ_as_the_comparison_finds(first, second, linked, visit):
    runs = nightly_history(34)
    one = visit(1280).open(linked / "run.html")
    for name, run in (("Before", first), ("Now", second)):
        one.page.get_by_role("radio", name=f"{name}: {one_started(runs[run])}", exact=True).check()
    one.page.get_by_role("link", name="Compare the two runs").click()
    one.page.wait_for_url(f"**/compare.html#{runs[first].id}..{runs[second].id}")
    expected = compare(runs[first], runs[second], across=True).news
    one.page.locator("#chosen").wait_for()  # its script runs after the address has changed
    if expected:
        one.page.locator("#chosen tbody tr").first.wait_for()
    rows = one.page.locator("#chosen tbody tr").evaluate_all(ROWS)
    assert sorted((name, relation) for name, relation, _ in rows) == sorted(
        (f"{cell.key.model} {cell.key.backend} · {cell.key.column}", cell.relation.value)
        for cell in expected
    )
    moved = {name: change for name, _, change in rows}
    for cell in expected:
        lead = cell.shown[0].moved
        name = f"{cell.key.model} {cell.key.backend} · {cell.key.column}"
        assert moved[name][:1] == ([lead] if lead else []), name
    assert one.page.locator(".pair dl").first.locator("dd").last.text_content() == runs[first].id
    assert not one.page.locator("#news").is_visible()
    assert one.said == []


def test_the_list_offers_the_runs_that_the_page_of_comparisons_holds(linked, visit):
    listed = visit(1280).open(linked / "run.html")
    offered = listed.page.locator("[data-run]").evaluate_all(
        "rows => rows.map((row) => row.dataset.run)"
    )
    other = visit(1280).open(linked / "compare.html")
    held = (
        other.page.get_by_label("Before")
        .locator("option")
        .evaluate_all("all => all.map((one) => one.value)")
    )
    assert 2 < len(offered) < 34
    assert sorted(offered) == sorted(held)


def one_started(run) -> str:
    return read_run(run).started


@pytest.mark.parametrize("width", [NARROW, 1280])
def test_another_choice_draws_the_table_anew_and_fits(width, linked, visit):
    one = visit(width).open(linked / "compare.html")
    assert not one.page.locator("#chosen").is_visible()
    one.page.get_by_label("Before").select_option(index=10)
    one.page.locator("#chosen tbody tr").first.wait_for()
    assert one.js("document.documentElement.scrollWidth") <= width
    box = one.page.locator("#chosen .scroll")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth + 1")
    assert one.said == []


def test_names_are_explained_by_a_title_wherever_they_stand(tmp_path, visit):
    runs = nightly_history(4)
    write_reports(
        runs, tmp_path, ["html"], memory=Memory(meanings={"w8a8_sym_pc": "int8", "top1": "Top-1"})
    )
    one = visit().open(tmp_path / "index.html")
    titles = one.page.locator("thead th").evaluate_all("heads => heads.map((head) => head.title)")
    assert "w8a8_sym_pc: int8" in titles
    assert one.page.locator("small[title='top1: Top-1']").count() > 0


def test_without_scripts_everything_is_there(site, visit):
    one = visit(java_script_enabled=False).open(site / "index.html")
    assert one.page.locator(".matrix td.m").count() == 120
    assert not one.page.locator(".filter").is_visible()
    assert one.page.locator(".matrix td.m").first.is_visible()


def test_hostile_names_are_shown_and_do_nothing(tmp_path, visit):
    write_reports(edge_histories()["hostile"], tmp_path, ["html"])
    one = visit()
    for path in sorted(tmp_path.rglob("*.html")):
        one.open(path)
        assert one.page.locator("img").count() == 0
    assert one.said == []
    assert (
        "<script>alert(1)</script>"
        in one.open(tmp_path / "index.html").page.locator(".matrix").inner_text()
    )


def test_on_paper_nothing_is_cut_off_or_folded(site, visit):
    one = visit(width=1000).open(site / "cells.html")
    one.page.emulate_media(media="print")
    assert not one.page.locator(".bar").is_visible()
    one.open(site / "models" / "mobilenet_v2.html")
    one.js("dispatchEvent(new Event('beforeprint'))")
    assert (
        one.page.locator("details:not([open]):not(.chart)").count() == 0
    )  # small charts are printed small
    pdf = one.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert one.said == []


@pytest.mark.parametrize(("width", "wide"), [(480, True), (1280, False)])
def test_a_table_wider_than_the_window_says_that_it_scrolls(width, wide, tmp_path, visit):
    line = make_cell("magika", "ort-cpu", "fp32", 0.0)
    score = line["metrics"]["top1"] | {"hits": 3120, "reference_hits": 3120}
    cells = [
        line | {"metrics": {"top1": score}},
        *(make_cell("magika", "ort-cpu", f"s{n}", 0.001) for n in range(5)),
    ]
    write_reports([make_run(cells)], tmp_path, ["html"])
    one = visit(width).open(tmp_path / "index.html")
    box = one.page.locator(".scroll:has(.matrix)")
    hint = box.locator("xpath=preceding-sibling::p[1]")
    hint.wait_for(state="visible" if wide else "hidden")
    assert ("more" in (box.get_attribute("class") or "").split()) is wide
    mark, value = (box.locator(f".m {name}").first.bounding_box() for name in ("i", "b"))
    assert abs(mark["y"] + mark["height"] - value["y"] - value["height"]) < 8


WORDS = (
    "The new kernel rounds half away from zero; it is kept until the table of multipliers is mended"
)


@pytest.fixture(scope="module")
def annotated(tmp_path_factory) -> Path:
    folder, runs = tmp_path_factory.mktemp("annotated"), nightly_history(34)
    said = Annotation(
        commit=runs[27].commit[:9], state=Ruling.ACKNOWLEDGED, author="ann", reason=WORDS
    )
    write_reports(runs, folder, ["html"], memory=remember(runs, accepted={}, annotations=(said,)))
    return folder


@pytest.mark.parametrize("width", [390, *(w for w in (500, 768))])
def test_what_is_said_of_alerts_and_known_cells_is_read_without_scrolling(width, annotated, visit):
    one = visit(width)
    for path, table in (
        ("index.html", ".alerts"),
        ("index.html", ".attention"),
        ("known.html", ".reasons"),
    ):
        one.open(annotated / path)
        boxes = one.page.locator(f".scroll:has({table})")
        assert boxes.count() > 0
        assert boxes.evaluate_all(
            "boxes => boxes.every((box) => box.scrollWidth <= box.clientWidth + 1)"
        ), table
    one.open(annotated / "index.html")
    why = one.page.locator(".alerts .words").filter(has_text=WORDS).first.bounding_box()
    assert why["width"] > 0.85 * width
    assert why["x"] + why["width"] <= width
    assert one.said == []


def test_the_values_of_a_card_stay_within_it(tmp_path, visit):
    cell = make_cell("words", "ort-cpu", "w8a8_sym_pc", 0.05)
    nature = {
        "direction": "lower",
        "against": "labels",
        "unit": "nats",
        "proportion": False,
        "least_margin": 0.005,
    }
    counts = {
        "n": 10,
        "hits": 1_834_567,
        "out_of": 10**6,
        "reference_hits": 1_800_000,
        "losses": 0,
        "gains": 0,
    }
    cell["metrics"] |= {"perplexity": nature | counts}
    write_reports([make_run([cell])], tmp_path, ["html"])
    one = visit(NARROW).open(tmp_path / "models" / "words.html")
    card = one.page.locator(".card").bounding_box()
    for box in one.page.locator(".card .others span").evaluate_all(
        "spans => spans.map((span) => { const box = span.getBoundingClientRect(); return "
        "[box.left, box.right]; })"
    ):
        assert card["x"] < box[0] <= box[1] < card["x"] + card["width"] - 8

"""Pages of findings in a real browser: silent, never too wide, readable,
sorted and filtered, whole on paper.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from reporting_findings import hostile_finding, make_finding, red_run

from qbench.judging import Cell
from qbench.reporting import Found, finding_page, write_reports

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
KEY = Cell("nightly", "mobilenet_v2", "ort-cpu", "w8a8_sym_pc")


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
def folder(tmp_path_factory) -> Path:
    """A site with a finding, and pages that stand alone: of a large network,
    and of hostile names.
    """
    folder = tmp_path_factory.mktemp("findings")
    write_reports([red_run(make_finding(suspects=(9, 10, 40)))], folder, ["html"])
    alone = {
        "large": Found(key=KEY, finding=make_finding(300, (5, 6, 150, 299)), is_red=True),
        "hostile": Found(
            key=Cell.as_written("nightly", "<b>net</b>", "b", "s"),
            finding=hostile_finding(),
            is_red=True,
        ),
    }
    for name, found in alone.items():
        (folder / f"{name}.html").write_text(finding_page(found), encoding="utf-8")
    return folder


@pytest.fixture
def opened(browser, folder):
    """Opens a page: (the page, what it said or asked for beside itself)."""
    contexts = []

    def begin(path: str, width: int = 1400, **settings):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        uri = (folder / path).as_uri()
        page.on(
            "request",
            lambda request: None if request.url.startswith(uri) else said.append(request.url),
        )
        page.goto(uri)
        return page, said

    yield begin
    for one in contexts:
        one.close()


SITE = "findings/mobilenet_v2--ort-cpu--w8a8_sym_pc.html"


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("path", [SITE, "findings.html", "large.html", "hostile.html"])
def test_pages_open_in_silence_and_fit(opened, path):
    page, said = opened(path)
    for width in (390, 768, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
    assert said == []


@pytest.mark.slow
def test_the_heat_map_of_a_usual_network_needs_no_scrolling_and_its_head_stays(opened):
    page, _ = opened(SITE)
    box = page.locator(".tall")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth + 1")
    head = page.locator(".heat thead")
    box.scroll_into_view_if_needed()
    box.evaluate("box => { box.scrollTop = 400; }")
    assert box.evaluate("box => box.scrollTop") == 400
    assert abs(head.bounding_box()["y"] - box.bounding_box()["y"]) < 2
    assert page.locator(".heat .worst").count() == 1
    assert page.locator(".heat .worst th").inner_text().split() == [
        "suspect",
        "1",
        "features.3.expand.conv",
    ]


@pytest.mark.slow
def test_on_a_narrow_window_names_stay_beside_their_numbers(opened):
    page, _ = opened(SITE, 390)
    box = page.locator(".tall")
    box.evaluate("box => { box.scrollLeft = 300; }")
    name = page.locator(".heat tbody th").first.bounding_box()
    assert abs(name["x"] - box.bounding_box()["x"]) < 2
    assert name["width"] > 100


@pytest.mark.slow
def test_nodes_sort_and_filter(opened):
    page, said = opened(SITE)
    head = page.locator(".heat").get_by_role("columnheader", name="Alone")
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    places = "rows => rows.map((row) => row.cells[1].textContent)"
    rows = page.locator(".heat tbody tr")
    assert rows.evaluate_all(places)[:3] == ["10", "11", "41"]
    page.locator(".heat").get_by_role("columnheader", name="Place").get_by_role("button").click()
    assert rows.evaluate_all(places) == [str(place) for place in range(1, 67)]
    page.get_by_label("Filter nodes by name").fill("features.3 depthwise")
    visible = "rows => rows.filter((row) => row.checkVisibility()).length"
    assert rows.evaluate_all(visible) == 1
    page.get_by_label("Filter nodes by name").fill("")
    page.get_by_label("Filter nodes by operator").select_option("red")
    assert rows.evaluate_all(visible) == 3
    assert page.locator(".filter output").text_content() == "3 of 66"
    page.get_by_label("Filter nodes by operator").select_option("Add")
    assert rows.evaluate_all(visible) == 14
    assert said == []


@pytest.mark.slow
def test_the_chart_tells_the_node_under_the_pointer(opened):
    page, said = opened("large.html")
    chart = page.get_by_role("img", name="SQNR of the nodes")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + box["height"] / 2)
    tip = page.locator("#tip")
    assert tip.is_visible()
    assert "features.99.project.conv" in tip.inner_text()
    assert "Alone 12.8" in tip.inner_text()
    page.mouse.move(0, 0)
    assert not tip.is_visible()
    assert said == []


@pytest.mark.slow
@pytest.mark.parametrize("path", [SITE, "large.html"])
def test_labels_of_the_chart_lie_apart_as_they_are_drawn(opened, path):
    page, _ = opened(path)
    boxes = page.locator("svg .suspect text").evaluate_all(
        "texts => texts.map((text) => { const b = text.getBBox(); return [b.x, b.y, b.x + b.width, "
        "b.y + b.height]; })"
    )
    assert len(boxes) == page.locator(".ring").count() - 1 > 2  # the legend has a ring, too
    for place, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0
        assert right <= 1000
        for other in boxes[place + 1 :]:
            apart = right < other[0] or other[2] < left
            assert apart or bottom - 3 <= other[1] or other[3] - 3 <= top


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_told_from_their_ground(opened, scheme):
    """WCAG 2.2, 1.4.3: contrast of at least 4.5, whatever the shade of a number."""
    page, _ = opened(SITE, color_scheme=scheme)
    contrasts = page.evaluate("""() => {
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
      const seen = ".heat :is(td, th, span), .suspects :is(p, b, a, .rank), .judged, pre";
      return [...document.querySelectorAll(seen)]
        .map((element) => {
          const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
          const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          return [ratio, element.className + ": " + element.textContent];
        });
    }""")
    assert len(contrasts) > 800
    assert min(contrasts)[0] >= 4.5, min(contrasts)


@pytest.mark.slow
def test_without_scripts_and_on_paper_everything_is_there(opened):
    page, _ = opened(SITE, java_script_enabled=False)
    assert page.locator(".heat tbody tr").count() == 66
    assert not page.locator(".filter").is_visible()
    page, _ = opened(SITE, 794)
    page.emulate_media(media="print")
    box = page.locator(".tall")
    assert box.evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth + 1")
    assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.slow
def test_hostile_names_are_shown_and_do_nothing(opened):
    page, said = opened("hostile.html")
    assert page.locator("h1").inner_text() == "<b>net</b>"
    assert "</script><script>alert(5)</script>3" in page.locator(".suspects").inner_text()
    page.get_by_label("Filter nodes by name").fill("alert")
    assert page.locator(".filter output").text_content() == "12 of 12"
    assert said == []


@pytest.mark.slow
def test_a_red_cell_leads_to_its_finding(opened):
    page, _ = opened("index.html")
    page.locator(".matrix td.red a").click()
    page.wait_for_url(f"**/{SITE}")
    page.get_by_role("link", name="features.3.depthwise.conv").click()
    assert page.locator("tr:target th").is_visible()
    assert page.locator("tr:target th").inner_text().split()[-1] == "features.3.depthwise.conv"

"""The pages: whole, escaped, offline, within their size; and what each of them must name."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reporting_histories import edge_histories, make_cell, make_run, nightly_history

from qbench.errors import InputError, StoreError
from qbench.reporting import build_report, build_reports, html_page, markdown_text, write_reports
from qbench.reporting.html import BUDGET, anchor_of
from qbench.reporting.markdown import code, escaped
from qbench.reporting.png import charted_models, matrix_png, model_png, trend_frame
from qbench.reporting.writing import file_name


@pytest.fixture(scope="module")
def history():
    return nightly_history()


@pytest.fixture(scope="module")
def report(history):
    return build_report(history)


VOID = {"meta", "link", "input", "br", "wbr", "path", "circle", "rect"}
PNG = b"\x89PNG\r\n\x1a\n"


class Page(HTMLParser):
    """The elements of a page; complains about tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page_text(history) -> str:
    return html_page(build_reports(history))


def test_the_page_is_well_formed_and_every_table_can_be_heard(page_text):
    page = Page(page_text)
    tables = page.all("table")
    assert len(tables) == len(page.all("caption")) > 8
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    trends = [svg for svg in page.all("svg") if svg.get("class") == "trend"]
    assert (
        len(re.findall(r'<svg class="trend"[^>]*><title>[^<]+</title><desc>[^<]+</desc>', page_text))
        == len(trends)
        > 90
    )
    assert len(page.all("desc")) == len(trends)
    assert all(svg.get("role") == "img" or svg.get("aria-hidden") == "true" for svg in page.all("svg"))
    assert page.all("html")[0]["lang"] == "en"


def test_ids_are_unique_and_every_link_has_its_target(page_text):
    page = Page(page_text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {str(link["href"])[1:] for link in page.all("a")}
    assert targets <= set(ids)


def assert_offline(text: str) -> None:
    page = Page(text)
    for tag, attributes in page.elements:
        assert tag not in ("img", "iframe", "object", "embed", "base", "audio", "video")
        assert "src" not in attributes
        for name in ("href", "action", "xlink:href", "srcset", "background"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
        assert not any(name.startswith("on") for name in attributes)
    style = "".join(re.findall(r"<style>(.*?)</style>", text, re.S))
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in text


def test_nothing_is_requested_from_anywhere(page_text):
    assert_offline(page_text)


def test_the_page_says_what_matters(page_text, report):
    text = " ".join(" ".join(Page(page_text).text).split())
    assert report.headline in text
    for words in (
        "72.60 %",
        "726 / 1,000",
        "−1.50 pp",
        "may lose 0.37 pp",
        "x64-avx512-vnni",
        report.run.commit,
        "1.31.1",
    ):
        assert words in text
    assert "dark" in page_text
    assert "@media print" in page_text


def test_a_chart_marks_the_step_and_the_change_of_machine(page_text):
    start = page_text.index("<title>mobilenet_v2::ort-cpu+w8a8_sym_pc, top1</title>")
    chart = page_text[start : page_text.index("</svg>", start)]
    assert 'class="step worse"' in chart
    assert ">−1.18 commit " in chart
    assert 'class="switch"' in chart
    assert 'class="now red"' in chart
    assert 'class="margin"' in chart
    assert "Step of −1.18 pp at" in chart


@pytest.mark.parametrize("name", list(edge_histories()))
def test_every_edge_case_is_drawn(name, tmp_path):
    runs = edge_histories()[name]
    written = write_reports(runs, tmp_path)
    assert {tmp_path / "index.html", tmp_path / "report.md"} <= set(written)
    assert all(path.stat().st_size > 0 for path in written)
    assert_offline((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == set(written)


def test_an_interrupted_run_carries_a_banner():
    page = html_page(build_reports(edge_histories()["incomplete"]))
    assert 'class="banner" role="status"><b>Incomplete.' in page
    assert 'class="banner" role="status"><b>Damaged.' in html_page(build_reports(edge_histories()["damaged"]))


def test_hostile_names_stay_text():
    reports = build_reports(edge_histories()["hostile"])
    page = html_page(reports)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert len(Page(page).all("script")) == 2
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 3
    markdown = markdown_text(reports)
    outside = re.sub(r"(`+).+?\1", "", markdown)
    assert "<script" not in outside
    assert "[link](" not in outside


def test_markdown_escapes_what_has_a_meaning():
    assert escaped("a|b *c* _d_ `e` <f> [g](h) @i # j") == r"a&#124;b \*c\* \_d\_ \`e\` &lt;f&gt; \[g\](h) &#64;i # j"
    assert escaped("# no heading\n- nor list") == r"\# no heading - nor list"
    assert "://" not in escaped("see https://example.invalid")
    assert code("a`b|c") == "``a`b\\|c``"
    assert code("`") == "`` ` ``"


def test_markdown_tables_have_equal_rows(history):
    width = None
    for line in markdown_text(build_reports(history)).splitlines():
        columns = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert None in (columns, width) or columns == width
        width = columns


def test_sixty_models_stay_within_the_budget():
    backends, schemas = ("ort-cpu", "ort-cpu-noopt"), ("fp32", "w8a8_asym_pc", "w8a8_asym_pt")
    loss = {"fp32": 0.0, "w8a8_asym_pc": 0.001, "w8a8_asym_pt": 0.002}
    runs = []
    for index in range(24):
        cells = [
            make_cell(f"network_{m:02}", b, s, loss[s] + 0.001 * ((index * 7 + m) % 3 == 0))
            for m in range(60)
            for b in backends
            for s in schemas
        ]
        runs.append(make_run(cells, index))
    page = html_page(build_reports(runs))
    assert len(page.encode()) <= BUDGET
    assert page.count('data-cell="network_59') > 0


def test_detail_goes_before_the_budget_does(monkeypatch, history):
    monkeypatch.setattr("qbench.reporting.html.BUDGET", 250_000)
    page = html_page(build_reports(history))
    assert len(page.encode()) <= 250_000
    assert "mobilenet_v2::ort-cpu+w8a8_sym_pc, top1" in page  # a red one keeps its chart


def test_png_files_are_pictures_and_equal_for_equal_reports(report):
    assert matrix_png(report).startswith(PNG)
    once = model_png(report, "mobilenet_v2")
    assert once.startswith(PNG)
    assert once == model_png(report, "mobilenet_v2")
    assert charted_models(report) == list(report.models)


def test_the_frame_of_a_model_holds_every_run(report):
    frame = trend_frame(report, "mobilenet_v2")
    one = frame[(frame["backend"] == "ort-cpu") & (frame["column"] == "w8a8_sym_pc")]
    assert list(one["run"]) == list(range(len(report.runs)))
    assert one["value"].iloc[-1] == pytest.approx(0.729)
    assert one["environment_class"].nunique() == 2


def test_kinds_can_be_chosen_and_unknown_ones_are_named(history, tmp_path):
    assert write_reports(history[-1:], tmp_path, ["md"]) == [tmp_path / "report.md"]
    with pytest.raises(InputError, match="Did you mean 'html'"):
        write_reports(history[-1:], tmp_path, ["htlm"])


def test_problems_of_the_history_are_shown(tmp_path):
    write_reports([], tmp_path, ["md"], problems=["'x.jsonl' could not be read"])
    write_reports(edge_histories()["one run"], tmp_path / "b", ["html", "md"], problems=["'x.jsonl' could not be read"])
    assert "x.jsonl" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "x.jsonl" in (tmp_path / "b" / "report.md").read_text(encoding="utf-8")
    assert "x.jsonl" in (tmp_path / "b" / "index.html").read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_one_sentence(history, tmp_path):
    (tmp_path / "reports").write_text("a file stands where the folder should be")
    with pytest.raises(StoreError, match=r"Writing '.*index\.html'"):
        write_reports(history[-1:], tmp_path / "reports")


def test_file_names_and_anchors_never_leave_their_place():
    for hostile in ("../../etc/passwd", "<script>", "a/b", ".hidden", "", "x" * 300, "ä"):
        name = file_name(hostile)
        assert re.fullmatch(r"[a-z0-9_-][a-z0-9_.-]*", name)
        assert re.fullmatch(r"[A-Za-z0-9_-]+", anchor_of("s", hostile))
    assert file_name("mobilenet_v2") == "mobilenet_v2"
    assert len({file_name("<a>"), file_name("(a)")}) == 2


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
def test_a_real_browser_runs_the_page_without_a_complaint(page_text, tmp_path: Path):
    probe = """<script>addEventListener("load", () => {
      const form = document.querySelector(".filter");
      form.elements.text.value = "mobilenet ort-cpu-noopt sym_pc";
      form.dispatchEvent(new Event("input"));
      document.querySelectorAll(".sortable button")[8].click();
      const rows = [...document.querySelectorAll(".sortable tbody tr:not(.dimmed)")];
      document.title = "FOUND " + form.querySelector("output").textContent + " " + rows[0].cells[2].textContent;
    });</script></body>"""
    path = tmp_path / "page.html"
    path.write_text(page_text.replace("</body>", probe), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += [
        "--disable-component-update",
        "--disable-sync",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    done = subprocess.run(
        ["chromium", *flags, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=60, check=False
    )
    assert "<title>FOUND 3 of 120 w8a8_sym_pc_pow2</title>" in done.stdout
    assert "CONSOLE" not in done.stderr


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
@pytest.mark.parametrize(("width", "wide"), [(480, True), (1280, False)])
def test_a_table_wider_than_the_window_says_that_it_scrolls(width, wide, tmp_path: Path):
    line = make_cell("magika", "ort-cpu", "fp32", 0.0)
    score = line["metrics"]["top1"] | {"hits": 3120, "reference_hits": 3120}
    cells = [line | {"metrics": {"top1": score}}, *(make_cell("magika", "ort-cpu", f"s{n}", 0.001) for n in range(5))]
    probe = """<script>addEventListener("load", () => {
      const box = document.querySelector(".matrix").parentElement;
      const [mark, value] = document.querySelector(".m").querySelectorAll(".mark, .value");
      const apart = Math.abs(mark.getBoundingClientRect().bottom - value.getBoundingClientRect().bottom);
      document.title = `${value.textContent} ${apart < 8} ${box.classList.contains("more")}`
        + ` ${box.previousElementSibling.checkVisibility()}`;
    });</script></body>"""
    path = tmp_path / "page.html"
    path.write_text(html_page(build_reports([make_run(cells)])).replace("</body>", probe), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--window-size={width},900"]
    done = subprocess.run(
        ["chromium", *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    shown = str(wide).lower()
    assert f"<title>100.00 % true {shown} {shown}</title>" in done.stdout

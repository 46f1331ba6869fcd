"""The pages: whole, escaped, offline, within their size; and what each of them must name."""

import posixpath
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from reporting_histories import edge_histories, make_cell, make_run, nightly_history

from qbench.errors import InputError, StoreError
from qbench.reporting import (
    Memory,
    build_report,
    build_reports,
    html_pages,
    markdown_text,
    newest_comparison,
    read_repository,
    remember,
    write_reports,
)
from qbench.reporting.html import is_unchanged
from qbench.reporting.markdown import code, escaped
from qbench.reporting.places import anchor_of, commit_address, file_name, link
from qbench.reporting.png import charted_models, matrix_png, model_png, trend_frame


@pytest.fixture(scope="module")
def history():
    return nightly_history()


@pytest.fixture(scope="module")
def report(history):
    return build_report(history)


VOID = {"meta", "img", "link", "input", "br", "wbr", "path", "circle", "rect"}
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
def pages(history) -> dict[str, str]:
    return html_pages(build_reports(history), {"nightly": newest_comparison(history)})


@pytest.mark.slow
def test_there_is_a_page_for_everything(pages, report):
    models = {f"models/{model}.html" for model in report.models}
    assert set(pages) == {
        "index.html",
        "cells.html",
        "known.html",
        "compare.html",
        "run.html",
        *models,
    }


@pytest.mark.slow
def test_every_page_is_well_formed_and_every_table_can_be_heard(pages):
    for text in pages.values():
        page = Page(text)
        assert len(page.all("table")) == len(page.all("caption"))
        assert all(head.get("scope") in ("col", "row", "rowgroup") for head in page.all("th"))
        assert all(
            svg.get("role") == "img" or svg.get("aria-hidden") == "true" for svg in page.all("svg")
        )
        assert page.all("html")[0]["lang"] == "en"
        assert len(page.all("h1")) == len(page.all("main")) == 1
        assert [a for a in page.all("a") if a.get("class") == "skip"] == [
            {"class": "skip", "href": "#main"}
        ]
    assert len(Page(pages["index.html"]).all("table")) > 8


@pytest.mark.slow
def test_what_moved_has_a_chart_that_is_described_and_what_stood_still_a_row(pages, report):
    still = [
        is_unchanged(cell, report.trends[cell.key])
        for cell in report.cells
        if cell.key in report.trends
    ]
    described = re.compile(r'<svg class="trend"[^>]*><title>[^<]+</title><desc>[^<]+</desc>')
    drawn = [len(Page(text).all("desc")) for text in pages.values()]
    assert [len(described.findall(text)) for text in pages.values()] == drawn
    assert sum(drawn) == still.count(False) > 80
    rows = [
        line
        for text in pages.values()
        for line in text.splitlines()
        if re.match(r'<tr id="[^"]+"><th', line)
    ]
    # cells that are equal to the digit on several backends share a row, and each has its anchor
    assert sum(row.count('id="') for row in rows) == still.count(True) > 15 > len(rows)
    assert any(
        ">74.10 %</td><td>86.10 %</td><td>100.00 %</td>" in row and "<td>40</td>" in row
        for row in rows
    )


@pytest.mark.slow
def test_ids_are_unique_and_every_link_has_its_target(pages):
    ids = {}
    for path, text in pages.items():
        found = [attributes["id"] for _, attributes in Page(text).elements if "id" in attributes]
        assert len(found) == len(set(found))
        ids[path] = set(found)
    for path, text in pages.items():
        for target in {str(a["href"]) for a in Page(text).all("a")}:
            file, _, anchor = target.partition("#")
            there = (
                posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
            )
            assert not anchor or anchor in ids[there]
            assert there in ids


def assert_offline(text: str) -> None:
    page = Page(text)
    for tag, attributes in page.elements:
        assert tag not in ("iframe", "object", "embed", "base", "audio", "video")
        address = r"data:image/(png|jpeg);base64,[A-Za-z0-9+/]+=*"
        assert "src" not in attributes or (
            tag == "img" and re.fullmatch(address, attributes["src"])
        )
        for name in ("href", "action", "xlink:href", "srcset", "background"):
            assert re.match(r"#|data:,$|[a-z0-9_./-]+\.html(#|$)", attributes.get(name) or "#")
        assert not any(name.startswith("on") for name in attributes)
    style = "".join(re.findall(r"<style>(.*?)</style>", text, re.S))
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in text


def test_nothing_is_requested_from_anywhere(pages):
    for text in pages.values():
        assert_offline(text)


def test_the_overview_says_what_matters(pages, report):
    text = " ".join(" ".join(Page(pages["index.html"]).text).split())
    assert report.headline in text
    for words in (
        "72.60 %",
        "726 / 1,000",
        "−1.50 pp",
        "may lose 0.37 pp",
        "x64-avx512-vnni",
        report.run.commit,
    ):
        assert words in text
    assert "dark" in pages["index.html"]
    assert "@media print" in pages["index.html"]


def test_the_page_of_the_run_names_machine_versions_and_what_took_longest(pages, report):
    text = " ".join(" ".join(Page(pages["run.html"]).text).split())
    for words in (
        "1.31.1",
        "avx512_vnni",
        report.run.id,
        "Slowest cells",
        "5.00",
        report.runs[0].started,
    ):
        assert words in text


def test_what_is_known_stands_under_its_kind(pages, report):
    text = pages["known.html"]
    quarantine = text[text.index('id="quarantined"') : text.index('id="absent"')]
    assert quarantine.count("<tr><th") == 1 + len(report.quarantined) == 4
    assert "under 50 million multiply-accumulates" in text[text.index('id="unsupported"') :]


def test_a_chart_marks_the_step_the_change_of_machine_and_the_confidence(pages):
    page = pages["models/mobilenet_v2.html"]
    start = page.index("<title>mobilenet_v2::ort-cpu+w8a8_sym_pc, top1</title>")
    chart = page[start : page.index("</svg>", start)]
    for mark in ("step worse", "switch", "environment", "now red", "margin", "confidence"):
        assert f'class="{mark}"' in chart
    assert ">−1.20 commit " in chart
    assert "Step of −1.20 pp at" in chart
    flips = page[page.index('<svg class="flips"', start) :]
    assert flips.startswith(
        '<svg class="flips" viewBox="0 0 280 30" role="img"><title>Losses and gains over 40 runs'
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", list(edge_histories()))
def test_every_edge_case_is_drawn(name, tmp_path):
    runs = edge_histories()[name]
    written = write_reports(runs, tmp_path)
    assert {tmp_path / "index.html", tmp_path / "report.md"} <= set(written)
    assert all(path.stat().st_size > 0 for path in written)
    for page in tmp_path.rglob("*.html"):
        assert_offline(page.read_text(encoding="utf-8"))
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == set(written)


@pytest.mark.slow
def test_an_interrupted_run_carries_a_banner():
    page = html_pages(build_reports(edge_histories()["incomplete"]))["index.html"]
    assert 'class="banner" role="status"><b>Incomplete.' in page
    damaged = html_pages(build_reports(edge_histories()["damaged"]))["index.html"]
    assert 'class="banner" role="status"><b>Damaged.' in damaged


def test_hostile_names_stay_text():
    reports = build_reports(edge_histories()["hostile"])
    pages = html_pages(reports)
    for path, page in pages.items():
        assert re.fullmatch(r"[a-z0-9_./-]+", path)
        assert "<script>alert" not in page
        assert "<img" not in page
        assert len(Page(page).all("script")) == 1
    assert pages["index.html"].count("&lt;script&gt;alert(1)&lt;/script&gt;") > 2
    markdown = markdown_text(reports)
    outside = re.sub(r"(`+).+?\1", "", markdown)
    assert "<script" not in outside
    assert "[link](" not in outside


def test_markdown_escapes_what_has_a_meaning():
    assert (
        escaped("a|b *c* _d_ `e` <f> [g](h) @i # j")
        == r"a&#124;b \*c\* \_d\_ \`e\` &lt;f&gt; \[g\](h) &#64;i # j"
    )
    assert escaped("# no heading\n- nor list") == r"\# no heading - nor list"
    assert "://" not in escaped("see https://example.invalid")
    assert code("a`b|c") == "``a`b\\|c``"
    assert code("`") == "`` ` ``"


@pytest.mark.slow
def test_markdown_tables_have_equal_rows(history):
    width = None
    for line in markdown_text(build_reports(history)).splitlines():
        columns = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        assert None in (columns, width) or columns == width
        width = columns


@pytest.mark.slow
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


@pytest.mark.slow
def test_problems_of_the_history_are_shown(tmp_path):
    write_reports([], tmp_path, ["md"], problems=["'x.jsonl' could not be read"])
    write_reports(
        edge_histories()["one run"],
        tmp_path / "b",
        ["html", "md"],
        problems=["'x.jsonl' could not be read"],
    )
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


def test_a_page_names_another_by_a_relative_path():
    assert link("index.html", "models/a.html") == "../index.html"
    assert link("models/a.html", "index.html") == "models/a.html"
    assert link("index.html", "suites/smoke/models/a.html") == "../../../index.html"


@pytest.mark.slow
def test_other_suites_have_a_folder_of_their_own_and_are_linked():
    pages = html_pages(build_reports(edge_histories()["two suites"]))
    assert {
        "index.html",
        "suites/nightly/index.html",
        "suites/nightly/models/digits_cnn.html",
    } <= set(pages)
    assert 'href="suites/nightly/index.html"' in pages["index.html"]
    assert 'href="../../index.html"' in pages["suites/nightly/index.html"]


HOUSE = "https://example.com/owner/name"


@pytest.mark.parametrize(
    ("written", "address"),
    [
        (HOUSE, f"{HOUSE}/commit/{'ab' * 20}"),
        (f"{HOUSE}.git/", f"{HOUSE}/commit/{'ab' * 20}"),
        ("https://bitbucket.org/o/n", f"https://bitbucket.org/o/n/commits/{'ab' * 20}"),
        ("http://git.example.com/?p=n&h={commit}", f"http://git.example.com/?p=n&h={'ab' * 20}"),
        ("", ""),
    ],
)
def test_a_commit_leads_to_the_repository_that_the_project_names(written, address, tmp_path):
    (tmp_path / "pyproject.toml").write_text(f"[tool.qbench]\nrepository = {written!r}\n")
    assert commit_address(read_repository(tmp_path), "ab" * 20) == address
    assert commit_address(read_repository(tmp_path), "no commit") == ""


@pytest.mark.parametrize(
    "written",
    [
        *(
            '"javascript:alert(1)"',
            '"ftp://example.com/n"',
            '"https://"',
            "7",
            "'https://a/b\">'",
            '"//example.com/n"',
        ),
        *(
            '"https://ann:pw@a.com/n"',
            '"https://[::1/n"',
            '"https://a.com/{commit}/{commit}"',
            '"https://a.com/{x}"',
        ),
    ],
)
def test_what_is_no_public_address_is_refused_by_name(written, tmp_path):
    (tmp_path / "pyproject.toml").write_text(f"[tool.qbench]\nrepository = {written}\n")
    with pytest.raises(InputError) as refused:
        read_repository(tmp_path)
    assert "repository" in str(refused.value)
    assert "pw" not in str(refused.value)


@pytest.mark.slow
def test_commits_of_runs_are_links_on_every_page_that_names_them_and_nothing_else_is():
    runs = nightly_history(34)
    reports = build_reports(runs, memory=replace(remember(runs, accepted={}), repository=HOUSE))
    pages = html_pages(reports, {"nightly": newest_comparison(runs)})
    known = {run.commit for run in runs}
    for path in ("index.html", "run.html", "compare.html", "models/mobilenet_v2.html"):
        found = re.findall(rf'href="{HOUSE}/commit/([0-9a-f]+)"', pages[path])
        assert found, path
        assert {commit for commit in found if len(commit) == 40} <= known, path
    assert pages["run.html"].count(f'href="{HOUSE}/commit/') >= len(runs)
    plain = html_pages(build_reports(runs))
    assert all(
        "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
        for page in plain.values()
    )


def test_schemas_and_metrics_are_explained_where_they_are_known():
    cells = [
        make_cell("m", "ort-cpu", "w8a8_sym_pc", 0.001),
        make_cell("m", "ort-cpu", "mine", 0.001, variant="half"),
    ]
    memory = Memory(
        meanings={"w8a8_sym_pc": "weights <int8>", "top1": "Top-1 accuracy", "other": "elsewhere"}
    )
    pages = html_pages(build_reports([make_run(cells)], memory=memory))
    for path in ("index.html", "cells.html", "models/m.html"):
        words = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", pages[path]))
        assert words["w8a8_sym_pc"] == "weights &lt;int8&gt;", path
        assert words["top1"] == "Top-1 accuracy"
        assert "half" in words
        assert "other" not in words

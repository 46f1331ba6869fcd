"""The page of lost and gained samples: backends and runs next to each other, nothing unescaped,
nothing that is not known.
"""

import re
from dataclasses import replace

import pytest
from reporting_histories import make_cell, make_run
from test_reporting_pages import Page, assert_offline

from qbench.judging import Cell, ChangedSample, SampleChanges
from qbench.metrics import AnswerPart
from qbench.reporting import build_report, build_reports, html_pages
from qbench.reporting.html import BUDGET
from qbench.reporting.samples_view import AS_FP32, LEFT_OUT, SAME
from qbench.storage import MOST_ON_PAGE, Preview, json_line, keep_preview
from qbench.tracking import samples_line

HOSTILE = "</script><script>alert(7)</script>\"onerror=alert(8) x='"
PATH = "samples/net--w4.html"
AXES = ("net", "w4")
PNG = b"\x89PNG\r\n\x1a\n"


def sample(name="s1", change=-0.5, best="dog", effect="lost", label="cat"):
    return ChangedSample(
        id=name,
        effect=effect,
        label=label,
        change=change,
        fp32=(AnswerPart("cat", 0.9), AnswerPart("dog", 0.1)),
        quantized=(AnswerPart(best, 0.6), AnswerPart("cat", 0.4)),
    )


def changes(*samples, **more):
    lost = sum(one.effect == "lost" for one in samples)
    given = {"lost": lost, "gained": len(samples) - lost, "changed": len(samples) + 2}
    kept = {"metric": "top1", "digest": "1f0c" * 16, "is_probability": True}
    return SampleChanges(**{**kept, **given, **more}, samples=samples)


def night(index, told, *, without=()):
    """Night ``index``; ``told``: backend → its samples; ``without``: backends without a line."""
    cells = [make_cell("net", backend, "w4", 0.01) for backend in told]
    cells += [make_cell("net", backend, "w4", 0.01) for backend in without]
    for cell in cells:
        cell["changed_count"] = {"val": 3}
    lines = [
        samples_line(Cell("nightly", "net", backend, "w4"), {"val": each})
        for backend, each in told.items()
    ]
    return replace(make_run(cells, index), samples=tuple(json_line(one).encode() for one in lines))


def shown(*runs):
    (data,) = build_report(runs).samples[AXES].data
    return data


def words(text):
    plain = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL)
    return " ".join("".join(Page(plain).text).split())


def test_backends_that_answer_alike_are_one_row():
    told = {"a": changes(sample()), "b": changes(sample()), "c": changes(sample(best="cow"))}
    (one,) = shown(night(0, told)).samples
    assert [each.sources for each in one.answers] == [("fp32",), ("a", "b"), ("c",)]


def test_the_largest_change_on_any_backend_comes_first():
    small = changes(sample("s1", -0.1), sample("s2", -0.2))
    large = changes(sample("s1", -0.9), sample("s3", 0.5, effect="gained"))
    found = shown(night(0, {"a": small, "b": large})).samples
    assert [one.id for one in found] == ["s1", "s3", "s2"]


def test_without_a_known_change_the_page_names_the_order_of_the_data():
    run = night(1, {"ort-cpu": changes(sample("s2", None), sample("s1", None))})
    data = shown(run)
    assert (data.has_changes, [one.id for one in data.samples]) == (False, ["s2", "s1"])
    text = html_pages(build_reports([run]))[PATH]
    assert "the largest change first" not in text
    assert "in the order of the data" in text


def test_what_another_backend_did_not_list_is_said_as_far_as_it_is_known():
    whole, cut = changes(sample("s2")), changes(sample("s2"), lost=30)
    told = {"a": changes(sample("s1", -0.9)), "b": whole, "c": cut}
    first = shown(night(0, told, without=("d",))).samples[0]
    assert {one.sources: one.words for one in first.answers if one.words} == {
        ("b",): AS_FP32,
        ("c", "d"): LEFT_OUT,
    }


def test_two_runs_are_next_to_each_other():
    before = night(0, {"a": changes(sample()), "b": changes(sample(best="cow"))})
    (one,) = shown(before, night(1, {"a": changes(sample()), "b": changes(sample())})).samples
    rows = [(each.sources, bool(each.run), each.words) for each in one.answers[1:]]
    assert rows == [(("a", "b"), False, ""), (("a",), True, SAME), (("b",), True, "")]
    assert one.answers[-1].parts[0].text == "cow"


def test_a_run_that_listed_nothing_says_nothing():
    (one,) = shown(night(0, {}, without=("a",)), night(1, {"a": changes(sample())})).samples
    assert [each.run for each in one.answers] == ["", ""]


def test_a_cell_that_lost_nothing_in_the_newest_run_has_no_page():
    report = build_report([night(0, {"a": changes(sample())}), night(1, {}, without=("a",))])
    assert report.samples == {}


def test_other_answers_that_count_the_same_make_no_page():
    assert build_report([night(0, {"a": changes()})]).samples == {}
    both = build_report([night(0, {"a": changes(), "b": changes(sample())})]).samples[AXES]
    assert [len(one.samples) for one in both.data] == [1]
    assert both.data[0].samples[0].answers[1].words == AS_FP32


def test_lines_that_cannot_be_read_are_a_notice():
    run = replace(night(0, {"a": changes(sample())}), samples=(b'{"type":"samples",',))
    report = build_report([run])
    assert "1 line of samples in run files could not be read." in report.notices


def test_the_page_has_all_of_it_and_is_linked(tmp_path):
    picture = Preview(text="8 × 8 pixels", picture=PNG, is_enlarged=True)
    keep_preview(tmp_path, "1f0c" * 16, "s1", picture)
    pages = html_pages(build_reports([night(0, {"a": changes(sample())})]), previews=tmp_path)
    text = words(pages[PATH])
    for part in ("s1 lost", "Label: cat", "cat 90.0 %", "dog 60.0 %", "−50.0 pp", "8 × 8 pixels"):
        assert part in text
    assert picture.address in pages[PATH]
    assert "../samples/net--w4.html" in pages["models/net.html"]


def test_private_data_shows_ids(tmp_path):
    keep_preview(tmp_path, "1f0c" * 16, "s1", Preview(text="secret words"))
    hidden = changes(ChangedSample(id="s1", effect="lost"), private=True)
    page = html_pages(build_reports([night(0, {"a": hidden})]), previews=tmp_path)[PATH]
    assert "This data is private" in page
    assert "s1" in words(page)
    assert "secret" not in page


def test_nothing_in_a_line_or_a_preview_is_markup(tmp_path):
    keep_preview(tmp_path, "1f0c" * 16, HOSTILE, Preview(text=HOSTILE, picture=HOSTILE.encode()))
    one = replace(
        sample(HOSTILE, label=HOSTILE, best=HOSTILE),
        effect=HOSTILE,
        fp32=(AnswerPart(HOSTILE, 0.5),),
    )
    run = night(0, {"a": changes(one, metric=HOSTILE)})
    run = replace(
        run, samples=(run.samples[0].replace(b'"val"', b'"<img src=x onerror=alert(1)>"'),)
    )
    pages = html_pages(build_reports([run]), previews=tmp_path)
    assert_offline(pages[PATH])
    assert HOSTILE not in pages[PATH]
    assert "<script>alert" not in pages[PATH]
    assert "alert(7)" in words(pages[PATH])


@pytest.mark.parametrize("size", [MOST_ON_PAGE, MOST_ON_PAGE + 5])
def test_a_page_is_bounded(tmp_path, size):
    samples = [sample(f"s{number}", -0.5) for number in range(size)]
    for one in samples:
        keep_preview(tmp_path, "1f0c" * 16, one.id, Preview(text="", picture=PNG + b"x" * 11_900))
    page = html_pages(build_reports([night(0, {"a": changes(*samples)})]), previews=tmp_path)[PATH]
    assert page.count("<article") == MOST_ON_PAGE
    assert ("and 5 more" in words(page)) is (size > MOST_ON_PAGE)
    assert len(page) < BUDGET / 4

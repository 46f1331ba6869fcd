"""Two runs side by side: what is news comes first, what neither measured is none,
and the page says why.
"""

import json
import re
from dataclasses import replace

import pytest
from reporting_histories import NEW, OLD, edge_histories, make_cell, make_run, skipped_cell

from qbench.errors import IncomparableError
from qbench.judging import Outcome
from qbench.reporting import (
    build_report,
    build_reports,
    compare,
    compare_page,
    html_pages,
    newest_comparison,
    write_comparison,
    write_reports,
)
from qbench.reporting.run_comparison import CHOICE_BYTES, run_choice
from qbench.reporting.view import read_cell
from qbench.tracking import Relation, compare_runs


def line(model: str, loss: float, answers: str, **more):
    cell = make_cell(model, "ort-cpu", "w8a8_sym_pc", loss, **more)
    return cell | {"digests": {"predictions:photos": answers}}


def both():
    old = [
        line("a", 0.001, "x"),
        line("b", 0.001, "x"),
        line("c", 0.001, "x", environment=OLD),
        line("gone", 0.0, "x"),
    ]
    new = [
        line("a", 0.001, "x"),
        line("b", 0.02, "y"),
        line("c", 0.001, "y", environment=NEW),
        line("here", 0.0, "x"),
    ]
    skipped = skipped_cell("d", "ort-cpu", "w8a8_sym_pc", "no engine")
    return make_run([*old, skipped], 0), make_run([*new, skipped], 1)


def test_a_cell_with_equal_records_has_the_row_that_their_parts_give(monkeypatch):
    old, new = both()
    shared = [
        cell | {"digests": {"predictions:photos": "x", "data:photos": "d", "reference:photos": "r"}}
        for cell in (make_cell(name, "b", "s", loss) for name, loss in (("e", 0.001), ("f", 0.05)))
    ]
    pairs = [(old, new), (new, new), (make_run(shared, 0), make_run(shared, 1))]
    rows = [compare_runs(*pair) for pair in pairs]
    assert any(one.pairs for row in rows[2] for one in row.metrics)
    monkeypatch.setattr("qbench.tracking.comparison._compared", lambda _: object())
    assert [compare_runs(*pair) for pair in pairs] == rows


def test_a_view_is_taken_from_those_known_where_its_record_is_equal():
    old, new = both()
    known = {old.id: {view.key: view for view in map(read_cell, old.cells)}}
    views = known[old.id].values()
    for cell in compare(old, new, known=known).cells:
        assert cell.old is None or any(cell.old is view for view in views)
        assert cell.new is None or cell.new.record.environment_class == cell_of(new, cell.key)
    assert compare(old, new, known=known) == compare(old, new)


def cell_of(run, key):
    """The environment class of a cell of ``run``."""
    return next(record.environment_class for record in run.cells if record.cell == key)


def test_what_is_news_comes_first_and_what_neither_measured_is_none():
    found = compare(*both())
    assert [(cell.key.model, cell.relation) for cell in found.cells] == [
        ("b", Relation.CHANGED),
        ("here", Relation.ONLY_NEW),
        ("gone", Relation.ONLY_OLD),
        ("c", Relation.INCOMPARABLE),
        ("d", Relation.INCOMPARABLE),
        ("a", Relation.SAME),
    ]
    assert [cell.key.model for cell in found.news] == ["b", "here", "gone", "c"]
    assert dict(found.tallies)["incomparable"] == 2


def test_only_what_may_be_compared_has_moved():
    moved = {cell.key.model: cell.moved for cell in compare(*both()).cells}
    assert moved == {
        "a": 0,
        "b": pytest.approx(-0.019),
        "c": None,
        "d": None,
        "here": None,
        "gone": None,
    }


def test_the_page_stands_alone_and_says_why():
    page = compare_page(compare(*both()))
    assert (
        "environment class x64-avx2+onnxruntime-1.30.2 against x64-avx512-vnni+onnxruntime-1.31.1"
        in page
    )
    assert "−1.90 pp" in page
    assert "<a href" not in page.replace('<a class="skip" href', "")
    assert (
        page.count('<tr><th scope="row">')
        == len(compare(*both()).news) + len(compare(*both()).same)
        == 6
    )


def test_nothing_comparable_is_an_error_of_the_command_and_a_sentence_in_the_report():
    runs = [
        make_run([line("a", 0.001, "x") | {"digests": {"data:photos": f"{n}"}}], n)
        for n in range(2)
    ]
    with pytest.raises(IncomparableError):
        compare(*runs)
    assert "other samples" in newest_comparison(runs).problem
    assert "Incomparable." in compare_page(newest_comparison(runs))


def test_the_page_after_an_upgrade_shows_both_classes_next_to_each_other():
    runs = [
        make_run([line("a", loss, answers, environment=where)], n)
        for n, (where, loss, answers) in enumerate(((OLD, 0.001, "x"), (NEW, 0.02, "y")))
    ]
    with pytest.raises(IncomparableError, match="--across"):
        compare(*runs)
    found = newest_comparison(runs)
    assert (found.across, found.problem) == (True, "")
    assert found.differs == (("x64-avx2 → x64-avx512-vnni, onnxruntime 1.30.2 → 1.31.1", 1),)
    assert [(cell.relation, cell.moved) for cell in found.cells] == [
        (Relation.CHANGED, pytest.approx(-0.019))
    ]
    page = compare_page(found)
    assert "Across environment classes." in page
    assert "onnxruntime 1.30.2 → 1.31.1 (1 cell)" in page
    assert "Incomparable." not in page


def night(number: int, outcome: Outcome, answers: str, **more):
    return make_run(
        [line("a", 0.001, answers, outcome=outcome), *more.pop("others", ())], number, **more
    )


def test_a_red_run_is_compared_with_the_last_green_one_and_a_green_one_with_the_one_before():
    runs = [
        night(0, Outcome.PASSED, "x"),
        night(1, Outcome.PASSED, "x"),
        *(night(n, Outcome.DRIFTED, "y") for n in (2, 3)),
    ]
    found = newest_comparison(runs)
    assert (found.old.id, found.old_name, len(found.news)) == (runs[1].id, "Last green", 1)
    assert "<dt>Last green</dt>" in compare_page(found)
    assert newest_comparison([*runs, night(4, Outcome.PASSED, "x")]).old.id == runs[3].id
    assert newest_comparison(runs[2:]).old.id == runs[2].id  # none was ever green


def test_a_run_of_selected_cells_or_one_cut_short_is_no_last_green_run_where_there_is_a_whole_one():
    chosen = night(1, Outcome.PASSED, "x")
    chosen = replace(chosen, header={**chosen.header, "complete_selection": False})
    cut, few = night(2, Outcome.PASSED, "x", complete=False), night(3, Outcome.PASSED, "x")
    few = replace(few, header={**few.header, "limited": 20})
    red = night(4, Outcome.FAILED, "y")
    whole = night(0, Outcome.PASSED, "x")
    assert newest_comparison([whole, chosen, cut, few, red]).old.id == whole.id
    assert newest_comparison([chosen, cut, few, red]).old.id == chosen.id
    assert newest_comparison([cut, few, red]).old.id == few.id  # none was green: the run before


def test_the_newest_run_is_compared_with_the_last_complete_one():
    runs = [make_run([line("a", 0.001, "x")], n, complete=n != 1) for n in range(3)]
    assert newest_comparison(runs).old.id == runs[0].id
    assert newest_comparison(runs[:1]) is None
    assert newest_comparison([replace(runs[0], complete=False), runs[2]]) is None


def with_kl(model: str, kl: int, loss: float = 0.001):
    cell = line(model, loss, "x")
    nature = {
        "direction": "lower",
        "against": "reference",
        "unit": "nats",
        "proportion": False,
        "least_margin": 0.0,
    }
    counts = {
        "n": 1000,
        "hits": kl,
        "out_of": 10**6,
        "reference_hits": 10**6,
        "losses": 0,
        "gains": 0,
    }
    return cell | {"metrics": {**cell["metrics"], "kl": {**nature, **counts}}}


def test_a_distance_that_moved_alone_is_news_and_says_which_way():
    old, new = (
        make_run([with_kl("a", 12_000), with_kl("b", 9_000)], 0),
        make_run([with_kl("a", 15_000), with_kl("b", 9_000)], 1),
    )
    found = compare(old, new)
    assert [cell.key.model for cell in found.news] == ["a"]
    lead, kl = found.news[0].shown
    assert (lead.name, lead.moved) == ("top1", "0.00 pp")
    assert tuple(kl) == ("kl", "0.012 nats", "0.015 nats", "+0.003 nats worse")
    page = compare_page(found)
    assert "<small>+0.003 nats worse</small>" in page
    assert found.news[0].why in page


@pytest.mark.slow
def test_the_page_links_to_the_pages_of_the_site_it_lies_in(tmp_path):
    runs = [make_run([line("a", 0.001, answers)], night) for night, answers in enumerate("xyz")]
    write_reports(runs, tmp_path, ["html"])
    links = re.findall(
        r'<a href="([a-z]+\.html)"', (tmp_path / "compare.html").read_text(encoding="utf-8")
    )
    assert {"index.html", "cells.html", "known.html", "run.html"} <= set(links)
    path = write_comparison(compare(runs[0], runs[2]), tmp_path, first="nightly")
    assert path == tmp_path / "compare.html"
    page = path.read_text(encoding="utf-8")
    assert runs[0].id in page
    assert re.findall(r'<a href="([a-z]+\.html)"', page) == links
    assert '<a href="compare.html" aria-current="page">Compare</a>' in page


@pytest.mark.slow
def test_the_page_of_another_suite_lies_with_its_suite_and_alone_it_links_nowhere(tmp_path):
    smoke = [
        make_run([line("a", 0.001, answers)], night, suite="smoke")
        for night, answers in enumerate("xy")
    ]
    alone = write_comparison(compare(*smoke), tmp_path / "alone", first="nightly")
    assert alone == tmp_path / "alone" / "compare.html"
    assert "<a href=" not in alone.read_text(encoding="utf-8").replace('<a class="skip" href=', "")
    write_reports([*smoke, make_run([line("a", 0.0, "z")], 2)], tmp_path, ["html"])
    path = write_comparison(compare(*smoke), tmp_path, first="nightly")
    assert path == tmp_path / "suites" / "smoke" / "compare.html"
    assert '<a href="index.html">Overview</a>' in path.read_text(encoding="utf-8")
    assert not (tmp_path / "compare.html").exists()


def test_an_interrupted_run_is_told():
    old, new = both()
    assert "was interrupted" in compare_page(compare(old, replace(new, complete=False)))
    assert "was interrupted" not in compare_page(compare(old, new))


def test_among_several_computers_a_run_is_compared_with_one_of_its_own_class():
    def on(number, where, outcome=Outcome.PASSED, answers="x"):
        return make_run([line("a", 0.001, answers, environment=where, outcome=outcome)], number)

    runs = [on(0, OLD), on(1, NEW), on(2, NEW)]
    assert newest_comparison([*runs, on(3, OLD, answers="y")]).old.id == runs[0].id
    red = newest_comparison([*runs, on(3, OLD, Outcome.DRIFTED, "y")])
    assert (red.old.id, red.old_name, red.across) == (runs[0].id, "Last green", False)
    first = newest_comparison([*runs[1:], on(3, OLD, Outcome.DRIFTED, "y")])
    assert (first.old.id, first.across) == (runs[2].id, True)


def test_the_data_of_the_choice_fit_and_hold_each_state_once():
    runs = [
        make_run(
            [make_cell("m", "a", "s", 0.001 * (night % 3)), make_cell("m", "a", "t", 0.0)], night
        )
        for night in range(9)
    ]
    found = json.loads(run_choice(build_report(runs)))
    assert [run[0] for run in found["runs"]] == [run.id for run in runs]
    (moving, still) = found["cells"]
    assert moving[:3] == ["m", "a", "s"]
    assert len(moving[4]) == 3
    assert moving[3] == [number for night in range(9) for number in (night, night % 3)]
    assert still[3] == [0, 0]
    assert still[4][0][-1] == []
    assert run_choice(build_report(runs[:1])) == ""


@pytest.mark.slow
def test_of_too_much_the_newest_runs_are_kept():
    cells = [f"s{number}" for number in range(400)]
    runs = [
        make_run([make_cell("m", "a", s, 0.0001 * (night % 9)) for s in cells], night)
        for night in range(40)
    ]
    text = run_choice(build_report(runs))
    assert len(text) <= CHOICE_BYTES
    kept = [run[0] for run in json.loads(text)["runs"]]
    assert 1 < len(kept) < 40
    assert kept == [run.id for run in runs[-len(kept) :]]


@pytest.mark.slow
def test_no_name_ends_the_script_of_the_choice():
    hostile = edge_histories()["hostile"]
    runs = [
        *hostile,
        *(replace(run, header=run.header | {"id": "</script><b>"}) for run in hostile),
    ]
    page = html_pages(
        build_reports(runs), {r.suite: newest_comparison(runs) for r in build_reports(runs)}
    )["compare.html"]
    assert page.count("</script>") == 1
    assert "\\u003c/script" in page

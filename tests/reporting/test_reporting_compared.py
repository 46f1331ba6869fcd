"""Two runs side by side: what is news comes first, what neither measured is none, and the page says why."""

from dataclasses import replace

import pytest
from reporting_histories import NEW, OLD, make_cell, make_run, skipped_cell

from qbench.errors import IncomparableError
from qbench.reporting import compare, compare_page, newest_comparison
from qbench.tracking import Relation


def line(model: str, loss: float, answers: str, **more):
    cell = make_cell(model, "ort-cpu", "w8a8_sym_pc", loss, **more)
    return cell | {"digests": {"predictions:photos": answers}}


def both():
    old = [line("a", 0.001, "x"), line("b", 0.001, "x"), line("c", 0.001, "x", environment=OLD), line("gone", 0.0, "x")]
    new = [line("a", 0.001, "x"), line("b", 0.02, "y"), line("c", 0.001, "y", environment=NEW), line("here", 0.0, "x")]
    skipped = skipped_cell("d", "ort-cpu", "w8a8_sym_pc", "no engine")
    return make_run([*old, skipped], 0), make_run([*new, skipped], 1)


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
    assert moved == {"a": 0, "b": pytest.approx(-0.019), "c": None, "d": None, "here": None, "gone": None}


def test_the_page_stands_alone_and_says_why():
    page = compare_page(compare(*both()))
    assert "environment class x64-avx2+onnxruntime-1.30.2 against x64-avx512-vnni+onnxruntime-1.31.1" in page
    assert "−1.90 pp" in page
    assert "<a href" not in page.replace('<a class="skip" href', "")
    assert page.count('<tr><th scope="row">') == len(compare(*both()).news) + len(compare(*both()).same) == 6


def test_nothing_comparable_is_an_error_of_the_command_and_a_sentence_in_the_report():
    runs = [make_run([line("a", 0.001, "x", environment=where)], n) for n, where in enumerate((OLD, NEW))]
    with pytest.raises(IncomparableError):
        compare(*runs)
    assert "environment class" in newest_comparison(runs).problem
    assert "Incomparable." in compare_page(newest_comparison(runs))


def test_the_newest_run_is_compared_with_the_last_complete_one():
    runs = [make_run([line("a", 0.001, "x")], n, complete=n != 1) for n in range(3)]
    assert newest_comparison(runs).old.id == runs[0].id
    assert newest_comparison(runs[:1]) is None
    assert newest_comparison([replace(runs[0], complete=False), runs[2]]) is None

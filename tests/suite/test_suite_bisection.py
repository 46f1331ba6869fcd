"""Halving commits: the answer is right whatever is skipped, and no commit is tried without need."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import IncomparableError, InputError, StoreError
from qbench.suite import (
    Mark,
    Notes,
    Task,
    Trial,
    ask,
    next_commit,
    open_notes,
    save_notes,
    suspects,
)

TASK = Task(good="a" * 40, bad="b" * 40, build="make", suite="suites/s.qbench.toml")


def line(hits, *, metric="top1", direction="higher", backend="ort-cpu"):
    counts = {"hits": hits, "out_of": 100, "direction": direction}
    axes = {"suite": "s", "model": "m", "backend": backend, "schema": "w8a8_asym_pc"}
    return {**axes, "metrics": {metric: counts}, "seconds": {"inference": 1.0}}


def hunt(commits, first_bad, skipped):
    """(suspects, commits tried) of a hunt in which
    ``commits[first_bad:]`` are bad and some cannot be built.
    """
    marks = {commits[-1]: Mark.BAD}
    while (commit := next_commit(commits, marks)) is not None:
        assert commit not in marks
        bad = commits.index(commit) >= first_bad
        marks[commit] = Mark.SKIPPED if commit in skipped else Mark.BAD if bad else Mark.GOOD
    return suspects(commits, marks), len(marks)


@given(st.integers(1, 60), st.data())
def test_the_first_bad_commit_is_found_in_few_trials(count, data):
    commits = [f"c{n}" for n in range(count)]
    first_bad = data.draw(st.integers(0, count - 1))
    found, tried = hunt(commits, first_bad, ())
    assert found == (commits[first_bad],)
    assert tried <= 2 + math.ceil(math.log2(count))


@given(st.integers(1, 30), st.data())
def test_skipped_commits_leave_a_stretch_that_holds_the_first_bad_one(count, data):
    commits = [f"c{n}" for n in range(count)]
    first_bad = data.draw(st.integers(0, count - 1))
    skipped = data.draw(st.sets(st.sampled_from(commits))) - {commits[-1]}
    found, _ = hunt(commits, first_bad, skipped)
    assert commits[first_bad] in found
    assert set(found[:-1]) <= skipped  # whatever could be measured was told apart


def test_the_question_is_what_got_worse_the_most():
    question = ask([line(90), line(80, backend="b")], [line(85), line(60, backend="b")])
    assert (question.cell, question.metric, question.good, question.bad) == (
        "m::b+w8a8_asym_pc",
        "top1",
        0.8,
        0.6,
    )
    assert [question.mark(v) for v in (0.79, 0.71, 0.7, 0.5, None)] == [
        Mark.GOOD, Mark.GOOD, Mark.BAD, Mark.BAD, Mark.SKIPPED,
    ]  # fmt: skip
    assert question.value([line(70, backend="b")]) == 0.7
    assert question.value([line(70)]) is None


def test_an_error_rate_is_worse_when_it_rises():
    question = ask(
        [line(5, metric="per", direction="lower")], [line(9, metric="per", direction="lower")]
    )
    assert question.mark(0.08) is Mark.BAD
    with pytest.raises(IncomparableError):
        ask([line(9, metric="per", direction="lower")], [line(5, metric="per", direction="lower")])


@pytest.mark.parametrize(
    ("good", "bad", "metric", "words"),
    [
        ([line(90)], [line(90)], "", "nothing that is worse"),
        ([line(90)], [line(80)], "top5", "no metric that both ends measured"),
        ([line(90)], [line(80, backend="b")], "", "no metric that both ends measured"),
    ],
)
def test_ends_that_do_not_differ_are_told(good, bad, metric, words):
    with pytest.raises(IncomparableError, match=words):
        ask(good, bad, metric=metric)


def test_notes_come_back(tmp_path):
    path = tmp_path / "bisect/notes.json"
    notes = open_notes(path, TASK).with_trial("c1", Trial(artifact="d1"), [line(90)])
    notes = notes.with_trial("c2", Trial(problem="the build failed")).with_trial(
        "c3", Trial(artifact="d1"), [line(1)]
    )
    save_notes(path, notes)
    again = open_notes(path, TASK)
    assert again == notes
    assert again.lines("c3") == again.lines("c1")  # an equal artifact is not measured again
    assert again.lines("c1")[0]["metrics"]["top1"]["hits"] == 90
    assert again.lines("c2") is again.lines("c9") is None


def test_notes_of_another_task_are_refused(tmp_path):
    path = tmp_path / "notes.json"
    save_notes(path, Notes(format="qbench-bisect/1", task=TASK))
    with pytest.raises(InputError, match="another task"):
        open_notes(path, Task(good=TASK.good, bad=TASK.bad, build="make all", suite=TASK.suite))
    path.write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        open_notes(path, TASK)


def with_calibration(one, ranges="r1", answers="p1"):
    return {
        **one,
        "calibrated": {"key": "default", "ranges": ranges},
        "digests": {"predictions:d": answers},
    }


@pytest.mark.parametrize(
    ("ranges", "answers", "metric"),
    [("r2", "p2", "ranges"), ("r1", "p2", "answers"), ("r2", "p1", "ranges")],
)
def test_where_no_metric_is_worse_ranges_or_answers_that_changed_are_hunted(
    ranges, answers, metric
):
    good, bad = with_calibration(line(90)), with_calibration(line(90), ranges, answers)
    question = ask([good], [bad])
    assert question.metric == metric
    assert [question.mark(question.value([one])) for one in (good, bad)] == [Mark.GOOD, Mark.BAD]
    assert question.mark(question.value([])) is Mark.SKIPPED
    assert question.text(question.bad) == "changed"
    assert ask([good], [with_calibration(line(80), ranges, answers)]).metric == "top1", (
        "a loss comes first"
    )
    assert ask([good], [bad], metric=metric).metric == metric


def test_ends_with_the_same_ranges_and_answers_are_incomparable():
    one = with_calibration(line(90))
    with pytest.raises(IncomparableError, match="the same calibrated ranges and answers"):
        ask([one], [one])
    with pytest.raises(IncomparableError):
        ask([one], [with_calibration(line(90), "r2")], metric="answers")


def test_a_value_in_decibels_is_written_in_decibels():
    counts = {"unit": "dB", "out_of": 1000, "direction": "higher"}
    ends = [{**line(0), "metrics": {"sqnr": {**counts, "hits": hits}}} for hits in (42_700, 14_000)]
    question = ask(ends[:1], ends[1:])
    assert (question.text(question.good), question.text(question.bad)) == ("42.7 dB", "14 dB")

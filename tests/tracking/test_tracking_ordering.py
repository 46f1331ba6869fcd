"""Which run is later: by what it found in the folder,
and by clocks only where that does not decide.
"""

import datetime
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracked_results import line, measured

from qbench.tracking import History, HistoryIndex, RunWriter
from qbench.tracking.shards import clock_notices, next_start, start_order

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


def day(number):
    return (NOW + datetime.timedelta(days=number)).isoformat()


def head(name, started, *, committed=None, **place):
    commit = {"commit": {"sha": "a" * 40, "committed": committed}} if committed else {}
    return {"id": name, "suite": "smoke", "started": started, **commit, **place}


def names(headers, now=NOW):
    return [headers[place]["id"] for place in start_order(headers, now)]


def begun(headers, name, started, **facts):
    """``headers`` and a run that began in their folder."""
    return [*headers, head(name, started, **next_start(headers), **facts)]


def test_a_run_stamped_in_the_future_is_before_those_that_found_it():
    headers = [head("old", day(-9))]
    for name, started in (("a", day(-4)), ("future", day(3650)), ("b", day(-3)), ("c", day(-2))):
        headers = begun(headers, name, started)
    assert names(headers) == ["old", "a", "future", "b", "c"]
    assert (
        names(headers, None)
        == names(headers, NOW + datetime.timedelta(days=9000))
        == names(headers)
    )
    (notice,) = clock_notices(headers, NOW)
    assert "1 of 5 runs are" in notice
    assert "(future)" in notice
    assert "commit" in notice
    assert clock_notices(headers, None) == clock_notices(headers[:2], NOW) == ()


def test_without_a_word_of_what_they_found_a_future_run_has_the_place_of_its_commit():
    headers = [
        head("a", day(-4)),
        head("future", day(3650), committed=day(-3)),
        head("b", day(-2)),
        head("unknown", day(99)),
        head("c", day(-1)),
    ]
    assert names(headers) == ["unknown", "a", "future", "b", "c"]
    assert names(headers, None) == ["a", "b", "c", "unknown", "future"]


def test_a_reader_whose_own_clock_is_behind_believes_the_runs():
    headers = [head(f"r{number}", day(number), committed=day(-number)) for number in range(5)]
    assert names(headers, NOW - datetime.timedelta(days=20_000)) == ["r0", "r1", "r2", "r3", "r4"]
    (notice,) = clock_notices(headers, NOW - datetime.timedelta(days=20_000))
    assert "5 of 5" in notice
    assert "commit" not in notice  # the stamps were used, and not the commits


def test_a_clock_set_back_changes_nothing():
    headers = [head(f"old{number}", day(-50 + number)) for number in range(9)]
    headers = begun(headers, "back", "1970-01-01T00:00:07+00:00")
    headers = begun(headers, "still", "1970-01-02T00:00:07+00:00")
    headers = begun(headers, "right", day(-3))
    assert names(headers)[-4:] == ["old8", "back", "still", "right"]
    assert (
        names([head("back", "1970-01-01T00:00:00Z", committed=day(-4)), *headers[:9]])[-1] == "back"
    )


def test_histories_that_never_met_are_put_together_by_time():
    one = two = []
    for number in range(4):
        one = begun(one, f"one{number}", day(-20 + 2 * number))
        two = begun(two, f"two{number}", day(-19 + 2 * number))
    merged = [*one, *two]
    assert names(merged) == [f"{side}{number}" for number in range(4) for side in ("one", "two")]
    assert names(begun(merged, "next", day(-40)))[-1] == "next"
    assert [header["sequence"] for header in one] == [1, 2, 3, 4]


@given(st.lists(st.tuples(st.datetimes(), st.sampled_from("abc")), max_size=8), st.randoms())
def test_files_without_a_word_of_their_place_keep_their_order(starts, noise):
    headers = [
        head(f"{name}{number}", start.isoformat() + "Z")
        for number, (start, name) in enumerate(starts)
    ]
    noise.shuffle(headers)
    expected = sorted(
        headers, key=lambda one: (datetime.datetime.fromisoformat(one["started"]), one["id"])
    )
    assert names(headers, None) == [one["id"] for one in expected]


def test_evidence_without_sense_is_none():
    odd = [
        head("circle", day(-3), sequence=2, after="elcric"),
        head("elcric", day(-2), sequence=2, after="circle"),
        head("self", day(-1), sequence=1, after="self"),
        head("text", "some day", sequence="9", after=["x"]),
        head("huge", day(0), sequence=10**30, after="gone"),
    ]
    for _ in range(5):
        random.Random(7).shuffle(odd)
        assert names(odd) == ["text", "circle", "elcric", "self", "huge"]
    assert next_start(odd) == {"sequence": 3, "after": "huge"}
    assert next_start([]) == {"sequence": 1}


@pytest.mark.parametrize("number", [2**53, 2**53 - 1, 10**18, 1_000_003, 1_000_002])
def test_a_number_that_no_history_has_takes_no_later_run_its_place(number):
    headers = [head("old", day(-9), sequence=1), head("damaged", day(-8), sequence=number)]
    for name in ("a", "b", "c", "d"):  # by clocks that were set back
        headers = begun(headers, name, day(-1000))
    assert names(headers)[-3:] == ["b", "c", "d"]
    if (
        number != 1_000_003
    ):  # that is plausible from the third run on: what came before it has only its clock
        assert names(headers) == ["old", "damaged", "a", "b", "c", "d"]


def test_every_reader_of_a_history_has_the_same_order(tmp_path):
    folder = tmp_path / "h"
    for number, year in enumerate((2025, 2036, 2026, 1999, 2026)):
        started = datetime.datetime(year, 1, 1 + number, tzinfo=datetime.UTC)
        with RunWriter.open(
            folder, {"suite": "smoke"}, started=started, commit="ab", token=f"t{number}"
        ) as writer:
            writer.write(line(measured()))
            writer.close(exit_code=0)
    history = History(folder, now=NOW)
    order = ["t0", "t1", "t2", "t3", "t4"]
    assert (
        [run.id[-2:] for run in history.runs()]
        == [run.id[-2:] for run in history.nights()]
        == order
    )
    assert history.latest().id.endswith("t4")
    assert [run.header["sequence"] for run in history.heads] == [1, 2, 3, 4, 5]
    assert len(history.clock_notices) == 1
    with HistoryIndex(str(tmp_path / "index.sqlite"), now=NOW) as index:
        index.update(folder)
        assert (
            [run.id[-2:] for run in index.starts()]
            == [run.id[-2:] for run in index.runs()]
            == order
        )
        assert list(dict.fromkeys(row.run[-2:] for row in index.rows())) == order
        (series, *_) = index.series()
        assert [point.run[-2:] for point in series.points] == order

"""Series: the order of commits, several runs of one commit, classes and versions apart."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracked_results import ELSEWHERE, HERE, line, measured, run, top1

from qbench.judging import EnvironmentClass
from qbench.tracking import in_commit_order, main_line, measured_commit, trend_series

METRIC = "top1@photos"


def sha(number):
    return f"{number:040x}"


def at(number, hits, *, day, dirty=False, environment=HERE):
    commit = {"sha": sha(number), "dirty": dirty}
    return run(line(measured(top1(hits), environment=environment)), number=day, commit=commit)


def the_series(runs, commits=()):
    (series,) = trend_series(runs, commits=commits)
    return series


def test_points_are_in_the_order_of_commits_not_of_nights():
    late = [at(0, 760, day=0), at(2, 750, day=1), at(1, 760, day=2)]
    assert [p.value for p in the_series(late).points] == [0.76, 0.75, 0.76]
    assert [p.value for p in the_series(late, [sha(n) for n in range(3)]).points] == [
        0.76,
        0.76,
        0.75,
    ]


def test_several_runs_of_one_commit_are_their_median():
    runs = [at(0, 760, day=0), at(1, 700, day=1), at(1, 752, day=2), at(1, 751, day=3)]
    first, second = the_series(runs).points
    assert (second.value, second.runs, second.commit) == (0.751, 3, sha(1))
    assert (first.runs, second.run) == (1, runs[1].id)


def test_a_commit_measured_again_later_is_one_point_on_the_main_line():
    runs = [at(0, 760, day=0), at(1, 750, day=1), at(0, 758, day=2)]
    assert [p.runs for p in the_series(runs, [sha(0), sha(1)]).points] == [2, 1]


def test_files_that_were_not_committed_are_points_of_their_own():
    runs = [at(0, 760, day=0), at(0, 700, day=1, dirty=True), at(0, 690, day=2, dirty=True)]
    points = the_series(runs).points
    assert [p.commit for p in points] == [sha(0), "", ""]
    assert measured_commit(runs[1]) == ""


def test_a_commit_beside_the_main_line_stays_where_its_time_puts_it():
    runs = [at(0, 760, day=0), at(7, 755, day=1), at(1, 750, day=2)]
    assert [p.commit for p in the_series(runs, [sha(0), sha(1)]).points] == [sha(0), sha(7), sha(1)]


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_every_run_is_kept_once_and_known_commits_never_go_back(line_of, measured_at):
    commits = [sha(n) for n in line_of]
    runs = [at(n, 760, day=day) for day, n in enumerate(measured_at)]
    ordered = in_commit_order(runs, commits[:4])
    assert sorted(r.id for r in ordered) == sorted(r.id for r in runs)
    places = [commits.index(r.commit) for r in ordered if r.commit in commits[:4]]
    assert places == sorted(places)


def test_a_new_version_of_an_engine_begins_a_series():
    newer = EnvironmentClass(HERE.processor, (("onnxruntime", "1.31.0"),))
    runs = [
        at(n, 760 if n < 5 else 740, day=n, environment=HERE if n < 5 else newer) for n in range(10)
    ]
    found = trend_series(runs)
    assert {s.environment_class for s in found} == {str(HERE), str(newer)}
    assert all(s.steps == () for s in found)


def test_the_main_line_is_that_of_the_runs_where_git_knows_none_of_them():
    runs = [at(0, 760, day=0), at(1, 760, day=1), at(1, 760, day=2, environment=ELSEWHERE)]
    assert main_line(runs, [sha(8), sha(9)]) == (sha(0), sha(1))
    assert main_line(runs, [sha(8), sha(1)]) == (sha(8), sha(1))


@pytest.mark.parametrize(("lower", "worse"), [(False, 0.01), (True, -0.01)])
def test_worse_is_up_in_an_error_rate(lower, worse):
    series = dataclasses.replace(the_series([at(0, 760, day=0)]), lower_is_better=lower)
    assert series.worsening(0.76, 0.75) == pytest.approx(worse)

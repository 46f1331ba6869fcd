"""The shards of one night are one run; what may be of another night, commit or code stays alone."""

import pytest
from tracked_results import line, measured

from qbench.judging import EnvironmentClass
from qbench.tracking import (
    Run,
    joined_shards,
    lacking_shares,
    record_of_line,
    shard_groups,
    trend_series,
)

SHA = "a" * 40


def header(index, start="2026-11-21T02:00:00Z", *, count=3, sha=SHA, dirty=False, **more):
    values = {
        "id": f"{start}-{index}",
        "suite": "nightly",
        "started": start,
        "commit": {"sha": sha, "dirty": dirty},
        "complete_selection": False,
        "planned": 10,
        "selected": 5,
        "limited": None,
        "select": "",
    }
    return values | ({"shard": f"{index}/{count}"} if index else {}) | more


def shard(index, processor="x64-avx2", *, complete=True, **more):
    environment = EnvironmentClass(processor)
    cells = (record_of_line(line(measured(environment=environment, slug=f"ort-cpu+s{index}"))),)
    notes = ("one note", f"note {index}")
    return Run(
        header=header(index, **more),
        environment={"processor": processor},
        cells=cells,
        notes=notes,
        complete=complete,
    )


def test_two_shares_that_hold_every_cell_are_one_whole_run():
    (run,) = joined_shards([shard(1), shard(3, start="2026-11-21T03:00:00Z", processor="arm64")])
    assert run.id == "2026-11-21T02:00:00Z-1 2026-11-21T03:00:00Z-3"
    assert [cell.schema for cell in run.cells] == ["s1", "s3"]
    assert run.header["complete_selection"] is True
    assert (run.header["selected"], run.header["started"]) == (10, "2026-11-21T02:00:00Z")
    assert "shard" not in run.header
    assert run.environment["processor"] == "arm64, x64-avx2"
    assert run.notes == ("one note", "note 1", "note 3")
    assert run.complete
    assert not joined_shards([shard(1), shard(3, complete=False)])[0].complete


def test_without_all_cells_it_stays_a_part():
    (run,) = joined_shards([shard(1), shard(2, selected=4)])
    assert run.header["complete_selection"] is False
    (alone,) = joined_shards([shard(1)])
    assert alone.header["shard"] == "1/3"
    few = joined_shards([shard(1, limited=20), shard(2, limited=20)])
    assert [run.header["complete_selection"] for run in few] == [False]


@pytest.mark.parametrize(
    "other",
    [
        header(1, "2026-11-21T04:00:00Z"),
        header(2, "2026-11-21T14:00:01Z"),
        header(2, count=4),
        header(2, sha="b" * 40),
        header(2, dirty=True),
        header(2, suite="smoke"),
        header(2, limited=20),
        header(2, "some day"),
        header(0),
    ],
)
def test_what_is_not_of_that_night(other):
    assert len(shard_groups([header(1), other])) == 2


def test_two_nights_at_one_commit_and_runs_without_one():
    nights = [
        header(index, f"2026-11-{day}T0{index}:00:00Z") for day in (21, 22) for index in (1, 2)
    ]
    assert shard_groups(nights) == ((0, 1), (2, 3))
    assert shard_groups([header(1, commit=None), header(2, commit=None)]) == ((0,), (1,))
    assert shard_groups([]) == ()


def test_what_a_night_lacks_is_told_by_its_shares():
    (night,) = joined_shards([shard(1, selected=3), shard(3, selected=3)])
    assert lacking_shares(night.header) == ("2/3",)
    assert lacking_shares(header(2)) == ("1/3", "3/3")
    assert (
        lacking_shares(header(2, selected=10)) == ()
    )  # the other shares hold no model, and wrote nothing
    (whole,) = joined_shards([shard(1), shard(2)])
    assert lacking_shares(whole.header) == ()
    assert lacking_shares(header(0)) == lacking_shares({"shard": "some"}) == ()


def test_trends_take_the_shards_of_a_night_for_one_run():
    night = [shard(1), shard(2, start="2026-11-21T03:00:00Z")]
    assert trend_series(night) == trend_series(joined_shards(night))

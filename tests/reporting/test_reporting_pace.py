"""How long a run will still take: weights of the last run, the speed of this one, and words."""

import pytest
from reporting_histories import make_cell, make_run

from qbench.reporting import Pace, last_seconds
from qbench.working import left_text

BEFORE = {"s::a": 30.0, "s::b": 10.0}


def test_before_the_first_cell_the_last_run_tells():
    assert Pace(["s::a", "s::b"], BEFORE, started=5.0).left(5.0) == 40.0
    assert Pace(["s::a", "s::b"], {}, started=5.0).left(9.0) is None


def test_then_this_run_does_at_its_own_speed():
    pace = Pace(["s::a", "s::b"], BEFORE, started=100.0)
    pace.finish("s::b")
    assert pace.left(105.0) == 15.0  # twice as fast as before: 5 s for 10, so 15 for 30
    assert (pace.count, pace.total) == (1, 2)
    pace.finish("s::a")
    assert pace.left(120.0) == 0.0


def test_new_cells_weigh_as_the_others_do_and_strangers_count_for_nothing():
    pace = Pace(["s::a", "s::b", "s::new"], BEFORE, started=0.0)
    assert pace.left(0.0) == 60.0
    pace.finish("s::stranger")
    pace.finish("s::new")
    pace.finish("s::new")
    assert pace.left(10.0) == 20.0
    assert pace.count == 1


def test_without_a_history_cells_count_alike():
    pace = Pace(["a", "b", "c", "d"], {}, started=0.0)
    pace.finish("a")
    assert pace.left(7.0) == 21.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (39.6, "about 40 s left"),
        (700, "about 12 min left"),
        (4800, "about 1 h 20 min left"),
    ],
)
def test_words(seconds, text):
    assert left_text(seconds) == text


def test_the_last_seconds_of_a_cell_are_those_of_its_newest_run(tmp_path):
    import json

    for number, seconds in enumerate((8.0, 2.0)):
        cell = make_cell("m", "ort-cpu", "fp32", 0.0) | {
            "seconds": {"prepare": 1.0, "inference": seconds}
        }
        run = make_run([cell], number)
        lines = [
            {**run.header, "type": "run"},
            *(record.line() for record in run.cells),
            {"type": "cell", "suite": "s"},
        ]
        (tmp_path / f"{number}.jsonl").write_text(
            "".join(json.dumps(dict(line)) + "\n" for line in lines)
        )
    assert list(last_seconds(tmp_path).values()) == [3.0]
    assert last_seconds(tmp_path / "none") == {}

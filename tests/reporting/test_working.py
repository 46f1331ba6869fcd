"""Lines about long work in a log: what is done, how much of it, and the rest;
by an injected clock.
"""

import threading

import pytest

from qbench.working import INTERVAL, each_told, steps_line, tell_steps, telling, working


class Clock:
    """Time that only ``wait`` moves; ``acts`` are done one after another,
    each within an interval.
    """

    def __init__(self, *acts):
        self.now = 0.0
        self.acts = list(acts)

    def __call__(self):
        return self.now

    def wait(self, seconds):
        if not self.acts:
            return True
        self.now += seconds
        self.acts.pop(0)()
        return False


def told(clock):
    lines = []
    tell_steps(lines.append, clock.wait, clock)
    return lines


def nothing():
    pass


def test_a_line_every_interval_with_what_is_done_and_left(words):
    clock = Clock()
    with (
        working("qbench eval", clock=clock),
        working("batches", 225, "samples", clock=clock) as step,
    ):
        clock.acts = [
            nothing,
            lambda: setattr(step, "done", 75),
            lambda: setattr(step, "done", 150),
        ]
        lines = told(clock)
    words(lines)


def test_short_work_and_no_work_say_nothing():
    with working("short"):
        assert told(Clock()) == []
    assert told(Clock(nothing, nothing)) == []


def test_a_step_ends_with_its_block_however_it_ends():
    with pytest.raises(ZeroDivisionError), working("outer"), working("inner"):
        _ = 1 / 0
    values = each_told("reading", ["a", "b", "c"], "files")
    assert next(values) == "a"
    values.close()
    assert told(Clock(nothing)) == []


def test_the_outermost_estimate_counts():
    clock = Clock()
    with (
        working("cells", 4, "cells", clock=clock) as cells,
        working("batches", 10, "samples", clock=clock) as batches,
    ):
        cells.done, batches.done = 1, 5
        assert steps_line([cells, batches], 100.0).endswith("; 100 s so far, about 5 min left")
        assert steps_line([batches], 100.0).endswith("; 100 s so far, about 2 min left")


def test_a_closed_stream_ends_nothing():
    def write(_):
        raise ValueError("I/O operation on closed file")

    with working("long"):
        tell_steps(write, Clock(nothing, nothing).wait)


def test_one_thread_tells_and_it_ends():
    def tellers():
        return [one for one in threading.enumerate() if one.name == "qbench-steps"]

    with telling(print), telling(print):
        assert len(tellers()) == 1
    assert tellers() == []


def test_the_interval_is_that_of_the_documentation():
    assert INTERVAL == 30


@pytest.mark.slow
def test_a_slow_backend_counts_its_samples(monkeypatch):
    from qbench import measure_cell
    from qbench.evaluation import build_subject

    seen = []

    class Watched(list):
        def append(self, step):
            super().append(step)
            seen.append(([one.what for one in self], step.total))

    monkeypatch.setattr("qbench.working._STEPS", Watched())
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["top1"], 64)
    measure_cell(subject, "integer-ideal", "w8a8_asym_pc")
    outer = next(names for names, total in seen if total == 360 and "integer-ideal" in names[0])
    assert outer[-1] == "batches"

"""The time of a sample that is taken while a cell answers: by a clock of ours, on runs of ours."""

import numpy as np
import pytest

from qbench.evaluation.engine_time import timed_answers

SIZE = 8


class Clock:
    """Seconds that only engines make pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Engine:
    """Takes so many seconds a run, in turn."""

    def __init__(self, clock, seconds) -> None:
        self.clock, self.seconds, self.runs = clock, seconds, 0

    def run(self, feeds):
        self.clock.now += self.seconds[min(self.runs, len(self.seconds) - 1)]
        self.runs += 1
        return {"y": feeds["x"]}


class Rows:
    """So many samples."""

    def __init__(self, count) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


class Once:
    """Feeds every sample to each graph once, and takes a second of its own for it."""

    def __init__(self, clock) -> None:
        self.clock = clock

    def answer(self, runners, samples):
        for runner in runners.values():
            for start in range(0, len(samples), SIZE):
                runner.run({"x": np.zeros((min(SIZE, len(samples) - start), 2))})
                self.clock.now += 1.0
        return "answers"


def timed(seconds, count, graphs=1):
    clock = Clock()
    engines = {f"g{place}": Engine(clock, seconds) for place in range(graphs)}
    answers, found = timed_answers(Once(clock), engines, Rows(count), clock)
    assert answers == "answers"
    return found, [one.runs for one in engines.values()]


def test_the_first_run_is_left_out_and_of_three_the_fastest_counts():
    found, runs = timed([9.0, *([0.8, 0.4, 1.6] * 10)], 31 * SIZE)
    assert runs == [31]
    assert found == pytest.approx([0.05] * 10)


def test_a_smaller_batch_counts_by_its_samples():
    found, _ = timed([0.8] * 22 + [0.1], 22 * SIZE + 1)
    assert found == pytest.approx([0.1] * 8)


def test_too_few_runs_are_topped_up_within_a_quarter_of_a_second():
    found, runs = timed([0.01], SIZE)
    assert runs == [22]
    assert len(found) == 7
    found, runs = timed([0.1], SIZE)
    assert runs == [3]  # 0.1 + 0.1 of 0.25 s, and no third
    assert found == pytest.approx([0.0125] * 2)
    assert timed([2.0], SIZE) == ((0.25,), [1])


def test_several_graphs_have_one_time():
    found, runs = timed([0.5], 2 * SIZE, graphs=2)
    assert runs == [2, 2]
    assert found == pytest.approx([4 * 0.5 / (2 * SIZE)])

"""Samples whose making no key can follow are made by each process anew, with a notice;
others are made once.
"""

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from qbench.storage import Cache
from qbench.subjects import Dataset, prepare_samples

X = np.arange(12, dtype=np.float32).reshape(6, 2)


@dataclass
class Step:
    name: str = "step"
    kinds: tuple[str, ...] = ("array",)
    held: Any = None
    made: list[int] = field(default_factory=list)

    def prepare(self, sample):
        return {"x": sample * (self.held if isinstance(self.held, int) else 1)}

    def finish(self, batch):
        return batch


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def entries(cache):
    return {path.name for path in (cache.folder / "samples").iterdir() if len(path.name) == 64}


DATA = Dataset.from_arrays("points", X)


def test_a_setting_that_no_name_states_makes_samples_anew(cache):
    first, again, other = (prepare_samples(DATA, Step(held=by), cache) for by in (1, 1, 2))
    assert first.folder == again.folder != other.folder
    assert len(entries(cache)) == 2
    assert cache.take_notices() == ()
    assert np.array_equal(next(iter(other.batches()))["x"], 2 * X)


def test_what_no_key_can_follow_is_made_by_every_process(cache):
    step = Step(held=sys.__stdout__)
    first, again = prepare_samples(DATA, step, cache), prepare_samples(DATA, step, cache)
    assert first.folder == again.folder
    assert first.key == again.key
    assert entries(cache) == set()
    (notice,) = cache.take_notices()
    assert "TextIOWrapper" in notice
    assert first.unknown
    other = prepare_samples(DATA, Step(held=sys.__stdout__), cache)
    assert other.key != first.key
    assert cache.take_notices() == ()
    assert np.array_equal(next(iter(first.batches()))["x"], X)


@pytest.mark.slow
def test_nothing_of_it_outlives_the_process(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from test_evaluation_unfollowed import DATA, Step, Cache, prepare_samples\n"
        "samples = prepare_samples(DATA, Step(held=sys.__stdout__), Cache(Path(sys.argv[2])))\n"
        "print(samples.folder.is_dir())\n"
    )
    command = [sys.executable, "-B", "-c", code, __file__.rpartition("/")[0], str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert list((tmp_path / "samples").iterdir()) == []

"""Files that code opens under names that it computes: what was made from them is made anew when
they change.

A stranger adds a row: the text of ``step``, which gives the numbers of a file, and the file.
"""

import functools
import importlib
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from qbench.storage import Cache
from qbench.subjects import Dataset, prepare_samples

DATA = Dataset.from_arrays("points", np.ones((3, 2), np.float32))
HEAD = (
    "import functools, os\nimport numpy as np\nfrom pathlib import Path\n"
    "HERE = Path(__file__).parent\nNAME = 'mean'\n"
)

READS = {
    "joined constants": "return np.load(HERE / 'stats' / 'mean.npy')",
    "os.path.join": "return np.load(os.path.join(os.path.dirname(__file__), 'stats', 'mean.npy'))",
    "f-string": "return np.load(HERE / 'stats' / f'{NAME}.npy')",
    "loop over constants": "return sum(np.load(HERE / 'stats' / f'{n}.npy') for n in ('mean',))",
    "glob": "return sum(np.load(one) for one in sorted(HERE.glob('stats/*.npy')))",
    "listed": "return sum(np.load(one) for one in sorted((HERE / 'stats').iterdir()))",
    "os.open": (
        "handle = os.open(str(HERE) + '/stats/mean.npy', os.O_RDONLY)\n"
        "    try:\n        return np.frombuffer(os.read(handle, 1000)[-4:], np.float32)\n"
        "    finally:\n        os.close(handle)"
    ),
    "kept by a function": "return kept(NAME)",
}
KEPT = "@functools.cache\ndef kept(name):\n    return np.load(HERE / 'stats' / f'{name}.npy')\n"


class Step:
    """A preprocessing that multiplies by what ``by`` reads."""

    name, kinds = "step", ("array",)

    def __init__(self, by):
        self.by = by

    def prepare(self, sample):
        return {"x": sample * self.by()}

    def finish(self, batch):
        return batch


@pytest.fixture
def project(tmp_path, monkeypatch):
    """``write(number)`` writes the file, ``prepared(text)`` prepares the data with the step."""
    (tmp_path / "stats").mkdir()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cache = Cache(tmp_path / "cache")

    def write(number):
        np.save(tmp_path / "stats" / "mean.npy", np.float32(number))

    def prepared(text, data=DATA):
        (tmp_path / "steps.py").write_text(f"{HEAD}{KEPT}def step():\n    {text}\n")
        importlib.invalidate_caches()
        sys.modules.pop("steps", None)
        samples = prepare_samples(data, Step(importlib.import_module("steps").step), cache)
        return samples.key, float(next(iter(samples.batches()))["x"][0, 0])

    yield SimpleNamespace(write=write, prepared=prepared, folder=tmp_path, cache=cache)
    sys.modules.pop("steps", None)


@pytest.mark.parametrize("what", READS)
def test_a_file_that_was_read_and_has_changed_is_read_again(what, project):
    project.write(2)
    first = project.prepared(READS[what])
    assert first[1] == 2.0
    assert project.prepared(READS[what]) == first
    project.write(3)
    changed = project.prepared(READS[what])
    assert changed[1] == 3.0
    assert changed[0] != first[0]
    assert project.prepared(READS[what]) == changed
    assert project.cache.take_notices() == ()


def test_what_a_function_keeps_counts_for_all_that_is_made_with_it(project):
    other = Dataset.from_arrays("others", np.ones((1, 2), np.float32))
    project.write(2)
    kept = functools.cache(lambda: float(np.load("stats/" + "mean.npy")))
    for data in (DATA, other):
        prepare_samples(data, Step(kept), project.cache)
    project.write(3)
    kept.cache_clear()
    for data in (DATA, other):
        samples = prepare_samples(data, Step(kept), project.cache)
        assert float(next(iter(samples.batches()))["x"][0, 0]) == 3.0


def test_a_file_that_was_missing_and_is_there_now_is_read(project):
    text = (
        "try:\n        return np.load(HERE / 'stats' / f'{NAME}.npy')\n"
        "    except FileNotFoundError:\n        return 1"
    )
    assert project.prepared(text)[1] == 1.0
    project.write(3)
    assert project.prepared(text)[1] == 3.0


def test_what_code_only_writes_is_no_part_of_it(project):
    project.write(2)
    text = "with open(HERE / f'{NAME}.log', 'a') as log:\n        log.write('ran')\n    return 2"
    first = project.prepared(text)
    size = (project.folder / "mean.log").stat().st_size
    assert project.prepared(text) == first
    assert (project.folder / "mean.log").stat().st_size == size


def test_a_copy_of_a_project_is_known_by_its_own_files(project, monkeypatch, tmp_path):
    text = "return np.load(os.path.join(os.getcwd(), 'stats', f'{NAME}.npy'))"
    project.write(2)
    assert project.prepared(text)[1] == 2.0
    (tmp_path / "copy" / "stats").mkdir(parents=True)
    np.save(tmp_path / "copy" / "stats" / "mean.npy", np.float32(5))
    monkeypatch.chdir(tmp_path / "copy")
    assert project.prepared(text)[1] == 5.0


def test_the_working_folder_is_not_a_file_that_was_read(project):
    project.write(2)
    first = project.prepared("return len(os.listdir(HERE)) * 0 + 2")
    (project.folder / os.urandom(4).hex()).write_text("a result")
    assert project.prepared("return len(os.listdir(HERE)) * 0 + 2") == first


def test_a_damaged_list_of_what_was_read_is_damage(project):
    project.write(2)
    text = READS["f-string"]
    first = project.prepared(text)
    (seal,) = (project.cache.folder / "samples").glob("*.sha256")
    assert "mean.npy" in seal.read_text()
    seal.write_text(seal.read_text().replace("mean.npy", "meen.npy"))
    assert project.prepared(text) == first
    (notice,) = project.cache.take_notices()
    assert "was damaged (.sha256 is not as it was written)" in notice
    assert project.prepared(text) == first
    assert project.cache.take_notices() == ()

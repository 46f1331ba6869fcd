"""A task that keeps its last answers has those of an engine in another process, too."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench.evaluation import RecordingTask, artifacts
from qbench.storage import Cache
from qbench.subjects import Dataset, ReadyArray, WholeOutput, prepare_samples


class Doubles:
    """A graph of one output."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {"y": 2 * feeds["x"]}


def test_the_answers_of_another_process_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = Dataset(
        id="two",
        kind="array",
        sample_ids=("a", "b"),
        sources=("a", "b"),
        labels=None,
        content="two",
        load=lambda place: {"x": np.full(3, place, np.float32)},
    )
    samples = prepare_samples(data, ReadyArray(), Cache(tmp_path))

    def elsewhere(work: Callable[[Any], Any], runners: Any) -> Any:
        function, arguments = work.func, work.args  # type: ignore[attr-defined]
        task = pickle.loads(pickle.dumps(arguments[0]))
        return function(task, *arguments[1:], runners)

    monkeypatch.setattr(artifacts, "run_where_prepared", elsewhere)
    task = RecordingTask(WholeOutput())
    found = artifacts.answered(task, {"model": Doubles()}, samples)  # type: ignore[dict-item]
    assert task.last is found

"""What a task's loop feeds its graphs: noted as it was, and once where it is fed again."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from qbench.evaluation.watched_executor import recorded_feeds


class Echo:
    """An executor without a graph."""

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return dict(feeds)


class Loop:
    """Three steps over one sound, in arrays that it uses again."""

    def answer(self, runners: Mapping[str, Any], samples: Any) -> None:
        sound, token = np.arange(6.0), np.zeros(1)
        for step in range(3):
            token += 1
            if step == 2:
                sound[0] = 9
            runners["step"].run({"sound": sound, "token": token})


def test_every_batch_is_noted_as_it_was_fed() -> None:
    batches = recorded_feeds(Loop(), {"step": Echo()}, None)["step"]  # type: ignore[arg-type]
    assert [batch["token"].tolist() for batch in batches] == [[1], [2], [3]]
    assert [batch["sound"][0] for batch in batches] == [0, 0, 9]
    assert batches[0]["sound"] is batches[1]["sound"]

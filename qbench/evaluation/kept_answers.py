"""A task that keeps what it answered last, for work that counts the same answers beside others."""

from collections.abc import Mapping

from qbench.metrics import Answers
from qbench.zoo import Runner, Samples, Task


class KeptAnswers:
    """``task``, with ``last``: its answers of the last run; None before the first."""

    def __init__(self, task: Task) -> None:
        self.last: Answers | None = None
        self._task = task

    @property
    def name(self) -> str:
        """The task's own: it reads outputs alike."""
        return self._task.name

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs it runs."""
        return self._task.graphs

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The answers to all samples, kept.

        Raises:
            InputError: what the task raises.
        """
        self.last = self._task.answer(runners, samples)
        return self.last

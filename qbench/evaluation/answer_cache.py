"""A task that keeps its last answers for further counting."""

from collections.abc import Mapping

from qbench.metrics import Answers, Likelihoods
from qbench.subjects import Runner, Samples, Task, forced_likelihoods


class KeptAnswers:
    """``task``, with ``last``: its answers of the last run; None before the first."""

    def __init__(self, task: Task) -> None:
        self.last: Answers | None = None
        self._task = self.__wrapped__ = task  # its code is the task's: what is cached for one is for both

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

    def likelihoods(self, runners: Mapping[str, Runner], samples: Samples) -> Likelihoods:
        """How likely the labels are, kept with the answers.

        Raises:
            InputError: the task cannot compute it, or what it raises.
        """
        found = forced_likelihoods(self._task, runners, samples)
        self.last = None if self.last is None else self.last.with_run(likelihoods=found)
        return found

"""Asking a sequence model how likely the right sequences are: apart from answering, so that calibration sees no label.

Tasks that can are ``TeacherForced``; for others a metric of likelihoods is refused.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from qbench.errors import InputError
from qbench.metrics import Likelihoods
from qbench.zoo.samples import Samples
from qbench.zoo.tasks.task import Runner, Task


@runtime_checkable
class TeacherForced(Protocol):
    """A task that also tells how likely labels are."""

    def likelihoods(self, runners: Mapping[str, Runner], samples: Samples) -> Likelihoods:
        """Of the label of every sample, in their order.

        Raises:
            InputError: what answering raises; or a label holds a token that the model does not have.
        """
        ...


def forced_likelihoods(task: Task, runners: Mapping[str, Runner], samples: Samples) -> Likelihoods:
    """How likely ``task``'s model takes the labels of ``samples`` to be.

    Raises:
        InputError: the task is not teacher-forced, or what it raises.
    """
    if not isinstance(task, TeacherForced):
        raise InputError(
            f"Asking how likely the labels of '{samples.data}' are",
            found=f"task '{task.name}', which does not tell",
            expected="a sequence model whose task is teacher-forced, for a metric of likelihoods",
            remedy="Choose another metric instead of perplexity.",
        )
    return task.likelihoods(runners, samples)

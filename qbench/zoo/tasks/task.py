"""A task turns samples into answers; it owns the loop, so that an encoder and a decoder step are one model.

It takes executors by the names of the model's graphs, and never knows what they are: driven by fp32 executors it makes
a reference, driven by watching ones it calibrates.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy.typing as npt

from qbench.metrics import Answers
from qbench.zoo.samples import Samples


class Runner(Protocol):
    """All that a task asks of an executor."""

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """One batch: input name → array, to output name → array."""
        ...


class Task(Protocol):
    """A frozen value. ``graphs`` are the names it expects, ``("model",)`` for most."""

    @property
    def name(self) -> str:
        """Every setting in one line: two of the same name read outputs alike."""
        ...

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs it runs."""
        ...

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The answers to all samples, in their order.

        Raises:
            InputError: an output is not finite (the sample is named), or an executor lacks an expected output.
        """
        ...

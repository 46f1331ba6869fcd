"""A subject: raw samples, how a sample becomes a feed, the network, and the task that turns
outputs into answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError, require_type
from qbench.metrics import Answers, StoredAnswers
from qbench.number_text import counted
from qbench.subjects.dataset import Array, Preprocess
from qbench.subjects.samples import Samples

# A task turns samples into answers. It owns the loop, so that an encoder and a decoder step can be
# one model.
#
# It takes executors by the names of the model's graphs and does not know their kind: run with fp32
# executors it gives a reference, run with observing executors it calibrates.


class Runner(Protocol):
    """What a task needs of an executor."""

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """One batch: input name → array, to output name → array."""
        ...


class Task(Protocol):
    """A frozen value. ``graphs`` are the names that it expects, ``("model",)`` for most.

    A task may have ``usual_metrics``, the names of the metrics that count its answers against
    labels where a user names none; of other tasks equal answers are counted (``exact``). It may
    have ``usual_comparisons``, those against the fp32 run (else ``agreement``). A task whose answer
    to a sample depends on the others has a true ``is_joint``: its samples keep their order when a
    cell is repeated.
    """

    @property
    def name(self) -> str:
        """Every setting in one line: two tasks of the same name read outputs alike."""
        ...

    @property
    def graphs(self) -> tuple[str, ...]:
        """The names of the graphs it runs."""
        ...

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The answers to all samples, in their order.

        Raises:
            InputError: an output is not finite (the sample is named), or an executor lacks an
                expected output.
        """
        ...


def require_answers(task: Task, found: object, samples: Samples) -> None:
    """Check what ``task`` gave for ``samples``: one answer to each.

    Raises:
        InputError: it is something else.
    """
    expected = "qbench.metrics.Answers with one answer to each sample"
    remedy = "Correct what the method 'answer' of the task returns (docs/own-models.md)."
    doing = f"Answering the samples of '{samples.data}' by the task '{task.name}'"
    require_type(doing, found, Answers, expected=expected, remedy=remedy)
    if len(cast(Answers, found)) != len(samples):
        count = counted(len(cast(Answers, found)), "answer")
        text = f"{count} to {counted(len(samples), 'sample')}"
        raise InputError(doing, found=text, expected=expected, remedy=remedy)


@runtime_checkable
class RestoresAnswers(Protocol):
    """A task whose answers are of a form of its own, which it restores from stored arrays."""

    def restored(self, arrays: Mapping[str, Array]) -> Answers:
        """The answers whose ``arrays()`` these are."""
        ...


def task_answers(task: Task, answers: Answers) -> Answers:
    """``answers``; where they were read from a file, in the form that ``task`` gives.

    Raises:
        InputError: the task does not restore answers of their form.
    """
    if not isinstance(answers, StoredAnswers):
        return answers
    task = getattr(task, "__wrapped__", task)  # the task itself, without a wrapper around it
    if not isinstance(task, RestoresAnswers):
        raise InputError(
            f"Reading stored answers of task '{task.name}'",
            found=f"answers of the form '{answers.form}'",
            expected="a form that qbench has, or a task that restores its own form",
            remedy=(
                "Give the task a method restored(arrays), or accept the fp32 reference anew "
                "(--qbench-accept-fp32)."
            ),
        )
    found = task.restored(answers.arrays())
    return found.with_run(
        outputs=answers.outputs, tied=answers.tied, likelihoods=answers.likelihoods
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZooModel:
    """A trained network, loaded when it is used, with its preprocessing and its task.

    Args:
        id: name in suites.
        graphs: name → loader of an ONNX graph, float unless a suite names its ``fp32`` partner;
            names as ``task.graphs`` has them.
        preprocess, task: how a raw sample becomes a feed, and outputs become an answer.
        origin: where the weights come from and under which licence, for lists.

    Raises:
        InputError: the id is not text, a loader is not a function, or the preprocessing or the task
            is none.
    """

    id: str
    graphs: Mapping[str, Callable[[], ir.Model]]
    preprocess: Preprocess
    task: Task
    origin: str

    def loaded(self) -> dict[str, ir.Model]:
        """The graphs by name, each loaded now.

        Raises:
            InputError: a loader gives something else than a graph.
        """
        found = {name: load() for name, load in self.graphs.items()}
        for name, graph in found.items():
            require_type(
                f"Loading the graph '{name}' of '{self.id}'",
                graph,
                ir.Model,
                expected="an onnx_ir.Model",
                remedy="Return qbench.load_model(path) from its function in 'graphs'.",
            )
        return found

    def __post_init__(self) -> None:
        doing = f"Making the model '{self.id}'"
        require_type(doing, self.id, str, expected="its id as a text", remedy="Give another name.")
        loaders = (
            "a table of names and functions without arguments, each of which loads a graph, as "
            "graphs"
        )
        remedy = (
            "Write graphs={'model': lambda: qbench.load_model(path)}, or call "
            "model_from_file(path)."
        )
        require_type(doing, self.graphs, Mapping, expected=loaders, remedy=remedy)
        for load in self.graphs.values():
            require_type(doing, load, Callable, expected=loaders, remedy=remedy)  # type: ignore[arg-type]
        _require_parts(
            doing, "task", self.task, ("name", "graphs", "answer"), "Classification(k=5)"
        )
        _require_parts(
            doing,
            "preprocess",
            self.preprocess,
            ("name", "kinds", "prepare", "finish"),
            "Picture(resize=256)",
        )


def _require_parts(
    doing: str, name: str, value: object, parts: tuple[str, ...], example: str
) -> None:
    """Check that ``value``, given as ``name``, has the attributes ``parts`` and is not a class
    that has them.

    Raises:
        InputError: it lacks one.
    """
    if isinstance(value, type) or not all(hasattr(value, part) for part in parts):
        found = (
            f"the class {value.__name__}"
            if isinstance(value, type)
            else f"a {type(value).__name__}"
        )
        raise InputError(
            f"{doing} with {name}={repr(value)[:60]}",
            found=found,
            expected=f"a value with {', '.join(parts)}",
            remedy=(
                f"Write {name}={example} or the like, from qbench.subjects, or leave {name} out of "
                "model_from_file."
            ),
        )

"""General tasks, samples → answers: the best classes, and an output as it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from qbench.errors import InputError
from qbench.metrics import AnswerKind, Answers, FirstOutputs, IntegerAnswers, Likelihoods, OutputKind, held_outputs
from qbench.subjects.subject import Array, Runner, Samples, Task

# A task checks outputs: they exist, have a row for every sample, and are finite. argmax would make a class of NaN.


def runner_named(runners: Mapping[str, Runner], name: str, task: str) -> Runner:
    """The runner of graph ``name``.

    Raises:
        InputError: the model has no such graph.
    """
    if name not in runners:
        raise InputError(
            f"Answering with task '{task}'",
            found=f"the graphs {sorted(runners)}",
            expected=f"one called '{name}'",
            remedy="Give the model the graphs that its task names.",
        )
    return runners[name]


def finite_rows(outputs: Mapping[str, Array], name: str | None, sample_ids: Sequence[str], doing: str) -> Array:
    """Output ``name`` (None: the first one) as (n, c) float32, one row for each of ``sample_ids``.

    Raises:
        InputError: no such output, another shape than (n, c), or a number that is not finite (the sample is named).
    """
    if name is None:
        name = next(iter(outputs), "")
    if name not in outputs:
        raise InputError(
            doing,
            found=f"the outputs {sorted(outputs)}",
            expected=f"one called '{name}'" if name else "at least one",
            remedy="Name an output that the graph has.",
        )
    rows = np.asarray(outputs[name])
    if rows.ndim != 2 or len(rows) != len(sample_ids) or not rows.shape[1]:
        raise InputError(
            doing,
            found=f"output '{name}' of shape {rows.shape}",
            expected=f"({len(sample_ids)}, numbers a sample)",
            remedy="Choose a model whose output has one row a sample.",
        )
    # integers and wider floats become the nearest float32; half precision is exact
    rows = rows.astype(np.float32, copy=False)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{doing}, sample '{sample_ids[int(np.argmin(finite))]}'",
            found=f"NaN or Inf in output '{name}' ({int((~finite).sum())} of {len(rows)} samples of the batch)",
            expected="finite numbers",
            remedy="Look for a kernel or a scale that overflows; the sample is not counted as right or wrong.",
        )
    return rows


# Scores of classes → the k best classes of every sample, with their probabilities.
#
# Order: by falling score, equal scores by rising class id. Scores of a quantized network lie on a quantization grid,
# so equal scores are common; without this rule equal numbers could rank differently on two computers.
#
# Probabilities: where all scores of the data set lie in [0, 1], as those of a network that ends in a softmax do, the
# scores themselves (quantized, they need not add up to 1); else softmax(scores) over all classes.

GRAPH = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """One graph, one run a batch.

    Args:
        output: the output that holds the scores, (n, classes); None: the graph's first.
        k: how many classes an answer names; a model of fewer classes answers with all of them.
    """

    output: str | None = None
    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"an answer of {self.k} classes")

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Shares of right samples."""
        return ("top1", "top5")

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"classification({self.output or 'first output'}, k={self.k})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The k best class ids of every sample (int32) with their probabilities (float32), best first.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is named); or a sample has
                a label that is no class of the model.
        """
        run = runner_named(runners, GRAPH, self.name).run
        doing = f"Classifying '{samples.data}'"
        ranked: list[tuple[Array, Array, Array]] = []
        tied: list[Array] = []
        first = FirstOutputs(OutputKind.CLASSES)
        start = 0
        are_shares = True
        for feeds in samples.batches():
            count = len(next(iter(feeds.values())))
            scores = finite_rows(run(feeds), self.output, samples.ids[start : start + count], doing)
            _refuse_other_labels(samples, start, count, scores.shape[1], doing)
            ids, best = best_classes(scores, self.k)
            ranked.append((ids, best, shares_of(scores, best)))
            are_shares = are_shares and bool((scores >= 0).all() and (scores <= 1).all())
            tied.append(tied_rows(scores))
            first.add(scores)
            start += count
        ids, best, shares = (np.concatenate(parts) for parts in zip(*ranked, strict=True))
        return IntegerAnswers(ids, best if are_shares else shares, np.concatenate(tied), outputs=first.held)


def _refuse_other_labels(samples: Samples, start: int, count: int, classes: int, doing: str) -> None:
    """Refuse a label that is not a class, among ``count`` samples from ``start`` on: it could never be right."""
    labels = () if samples.labels is None else samples.labels[start : start + count]
    for sample, right in zip(samples.ids[start : start + count], labels, strict=False):
        if other := [label for label in right if not 0 <= label < classes]:
            raise InputError(
                f"{doing}, sample '{sample}'",
                found=f"label {other[0]}",
                expected=f"labels from 0 to {classes - 1}, as the model has {classes} classes",
                remedy="Number the labels in the order of the model's outputs; they start at 0, not at 1.",
            )


def best_classes(scores: Array, k: int) -> tuple[Array, Array]:
    """Per row of ``scores`` (n, classes) the ids (n, min(k, classes)) int32 of the best classes, and their scores."""
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # stable: equal scores stay in the order of class ids
    return ids.astype(np.int32), np.take_along_axis(scores, ids, axis=1)


def tied_rows(scores: Array) -> Array:
    """Per row of ``scores`` (n, classes) whether several classes have the best score: (n,) bool."""
    return np.asarray((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1)


def shares_of(scores: Array, best: Array) -> Array:
    """Per row the softmax over all ``scores`` (n, classes) of its ``best`` (n, k), the first of which is greatest."""
    most = best[:, :1].astype(np.float64)
    whole = np.exp(scores - most).sum(axis=1, keepdims=True)
    shares: Array = (np.exp(best - most) / whole).astype(np.float32)
    return shares


# The likelihood of the right sequences under a sequence model. It is not part of answering, so that calibration sees
# no label.


@runtime_checkable
class TeacherForced(Protocol):
    """A task that can compute the likelihoods of labels; for others a metric of likelihoods is refused."""

    def likelihoods(self, runners: Mapping[str, Runner], samples: Samples) -> Likelihoods:
        """Of the label of every sample, in their order.

        Raises:
            InputError: what answering raises; or a label holds a token that the model does not have.
        """
        ...


def forced_likelihoods(task: Task, runners: Mapping[str, Runner], samples: Samples) -> Likelihoods:
    """The likelihoods of the labels of ``samples`` under the model of ``task``.

    Raises:
        InputError: the task is not teacher-forced, or what it raises.
    """
    if not isinstance(task, TeacherForced):
        raise InputError(
            f"Computing the likelihoods of the labels of '{samples.data}'",
            found=f"task '{task.name}', which does not compute them",
            expected="a sequence model whose task is teacher-forced, for a metric of likelihoods",
            remedy="Choose another metric instead of perplexity.",
        )
    return task.likelihoods(runners, samples)


# The whole output as the answer: each number by its bits, so that answers are equal exactly where outputs are.
#
# ids(i) = the float32 numbers of sample i, flat, read as int32


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeOutput:
    """One graph, one run a batch.

    Args:
        output: its name; None: the graph's first.
    """

    output: str | None = None

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"whole output({self.output or 'first output'})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The bits of every sample's output, (n, numbers) int32, as a sequence.

        Raises:
            InputError: no such output, not one entry per sample, or a number that is not finite.
        """
        run = runner_named(runners, GRAPH, self.name).run
        rows = []
        for feeds in samples.batches():
            outputs = run(feeds)
            name = next(iter(outputs), "") if self.output is None else self.output
            found = np.asarray(outputs.get(name, ()), np.float32)
            count = len(next(iter(feeds.values())))
            if found.ndim == 0 or len(found) != count or not np.isfinite(found).all():
                raise InputError(
                    f"Taking the outputs of '{samples.data}' for answers",
                    found=f"output '{name}' of shape {found.shape}"
                    + ("" if np.isfinite(found).all() else " with NaN or Inf"),
                    expected=f"finite numbers, with {count} samples along the first axis",
                    remedy="Name an output that the graph has; look for a kernel that overflows.",
                )
            # + 0: a negative zero is the same number as a positive one
            rows.append(np.ascontiguousarray(found + np.float32(0)).reshape(count, -1))
        whole = np.concatenate(rows)
        held = held_outputs(whole, OutputKind.VALUES)
        return IntegerAnswers(whole.view(np.int32), kind=AnswerKind.SEQUENCE, outputs=held)

"""General tasks, samples → answers: best classes, outputs as they are, nearest neighbours,
likeness of pairs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.metrics import (
    MILLION,
    AnswerKind,
    Answers,
    FirstOutputs,
    IntegerAnswers,
    Likelihoods,
    OutputKind,
    held_outputs,
)
from qbench.storage import digest_arrays
from qbench.subjects.dataset import Array
from qbench.subjects.samples import BATCH, Samples
from qbench.subjects.subject import Runner, Task

# A task checks outputs: they exist, have a row for every sample, and are finite. argmax would make
# a class of NaN.


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


def finite_rows(
    outputs: Mapping[str, Array], name: str | None, sample_ids: Sequence[str], doing: str
) -> Array:
    """Output ``name`` (None: the first one) as (n, c) float32, one row for each of ``sample_ids``.

    Raises:
        InputError: no such output, another shape than (n, c), or a number that is not finite (the
            sample is named).
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
            remedy="Choose a model whose output has one row per sample.",
        )
    # integers and wider floats become the nearest float32; half precision is exact
    rows = rows.astype(np.float32, copy=False)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{doing}, sample '{sample_ids[int(np.argmin(finite))]}'",
            found=(
                f"NaN or Inf in output '{name}' ({int((~finite).sum())} of {len(rows)} samples of "
                "the batch)"
            ),
            expected="finite numbers",
            remedy=(
                "Look for a kernel or a scale that overflows; the sample is not counted as right "
                "or wrong."
            ),
        )
    return rows


def batch_rows(
    runner: Runner, samples: Samples, output: str | None, doing: str
) -> Iterator[tuple[int, Array]]:
    """Of every batch of ``samples`` the index of its first sample, and ``finite_rows`` of the
    run.
    """
    start = 0
    for feeds in samples.batches():
        count = len(next(iter(feeds.values())))
        yield (
            start,
            finite_rows(runner.run(feeds), output, samples.ids[start : start + count], doing),
        )
        start += count


# Scores of classes → the k best classes of every sample, with their probabilities.
#
# Order: by falling score, equal scores by rising class id. Scores of a quantized network take few
# values, so equal scores are common; without this rule equal numbers could rank
# differently on two computers.
#
# Probabilities: where all scores of the data set lie in [0, 1], as those of a network that ends in
# a softmax do, the scores themselves (quantized, they need not add up to 1); else softmax(scores)
# over all classes.

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
        """The k best class ids of every sample (int32) with their probabilities (float32), best
        first.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is
                named); or a sample has a label that is not a class of the model.
        """
        runner = runner_named(runners, GRAPH, self.name)
        doing = f"Classifying '{samples.data}'"
        ranked: list[tuple[Array, Array, Array]] = []
        tied: list[Array] = []
        first = FirstOutputs(OutputKind.CLASSES)
        are_shares = True
        for start, scores in batch_rows(runner, samples, self.output, doing):
            _refuse_other_labels(samples, start, len(scores), scores.shape[1], doing)
            ids, best = best_classes(scores, self.k)
            ranked.append((ids, best, shares_of(scores, best)))
            are_shares = are_shares and bool((scores >= 0).all() and (scores <= 1).all())
            tied.append(tied_rows(scores))
            first.add(scores)
        ids, best, shares = (np.concatenate(parts) for parts in zip(*ranked, strict=True))
        return IntegerAnswers(
            ids, best if are_shares else shares, np.concatenate(tied), outputs=first.held
        )


def _refuse_other_labels(
    samples: Samples, start: int, count: int, classes: int, doing: str
) -> None:
    """Refuse a label that is not a class, among ``count`` samples from ``start`` on: it could
    never be right.
    """
    if samples.classes is not None:
        samples.classes.require(classes, doing)
    labels = (samples.whole_labels or ())[start : start + count]
    for sample, right in zip(samples.ids[start : start + count], labels, strict=False):
        if other := [label for label in right if not 0 <= label < classes]:
            raise InputError(
                f"{doing}, sample '{sample}'",
                found=f"label {other[0]}",
                expected=f"labels from 0 to {classes - 1}, as the model has {classes} classes",
                remedy=(
                    "Number the labels in the order of the model's outputs; they start at 0, not "
                    "at 1."
                ),
            )


def best_classes(scores: Array, k: int) -> tuple[Array, Array]:
    """Per row of ``scores`` (n, classes) the ids (n, min(k, classes)) int32 of the best
    classes, and their scores.
    """
    # stable: equal scores stay in the order of class ids
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return ids.astype(np.int32), np.take_along_axis(scores, ids, axis=1)


def tied_rows(scores: Array) -> Array:
    """Per row of ``scores`` (n, classes) whether several classes have the best score: (n,) bool."""
    return np.asarray((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1)


def shares_of(scores: Array, best: Array) -> Array:
    """Per row the softmax over all ``scores`` (n, classes) of its ``best`` (n, k), the first of
    which is greatest.
    """
    most = best[:, :1].astype(np.float64)
    whole = np.exp(scores - most).sum(axis=1, keepdims=True)
    shares: Array = (np.exp(best - most) / whole).astype(np.float32)
    return shares


# The likelihood of the right sequences under a sequence model. It is not part of answering, so that
# calibration sees no label.


@runtime_checkable
class TeacherForced(Protocol):
    """A task that can compute the likelihoods of labels; for others a metric of likelihoods is
    refused.
    """

    def likelihoods(self, runners: Mapping[str, Runner], samples: Samples) -> Likelihoods:
        """Of the label of every sample, in their order.

        Raises:
            InputError: what answering raises; or a label holds a token that the model does not
                have.
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


# The whole output as the answer: each number by its bits, so that answers are equal exactly where
# outputs are.
#
# ids(i) = the float32 numbers of sample i, flat, read as int32


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeOutput:
    """One graph, one run a batch.

    Args:
        output: its name; None: the graph's first.
        batch: samples of a run; 1 where the output has no axis of samples, as of the boxes of one
            picture.
    """

    output: str | None = None
    batch: int = BATCH

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """None: labels say nothing about numbers."""
        return ()

    @property
    def usual_comparisons(self) -> tuple[str, ...]:
        """Distances from the fp32 outputs: after quantization no output is equal bit for bit."""
        return ("sqnr", "cosine", "max_error")

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
        for feeds in samples.batches(self.batch):
            outputs = run(feeds)
            name = next(iter(outputs), "") if self.output is None else self.output
            found = np.asarray(outputs.get(name, ()), np.float32)
            count = len(next(iter(feeds.values())))
            if self.batch == 1 and found.ndim and name in outputs:
                found = found[None]
            if found.ndim == 0 or len(found) != count or not np.isfinite(found).all():
                raise _no_rows(samples.data, name, found, count, is_known=name in outputs)
            # + 0: a negative zero is the same number as a positive one
            rows.append(np.ascontiguousarray(found + np.float32(0)).reshape(count, -1))
        whole = np.concatenate(rows)
        held = held_outputs(whole, OutputKind.VALUES)
        return IntegerAnswers(whole.view(np.int32), kind=AnswerKind.SEQUENCE, outputs=held)


def _no_rows(data: str, name: str, found: Array, count: int, *, is_known: bool) -> InputError:
    """Output ``name`` holds no finite numbers with a row for each of ``count`` samples."""
    doing = f"Taking the outputs of '{data}' for answers"
    expected = f"{count} samples along the first axis"
    if not is_known:
        return InputError(
            doing,
            found=f"no output '{name}'",
            expected=expected,
            remedy="Name an output that the graph has.",
        )
    shown = f"output '{name}' of shape {found.shape}"
    if found.ndim == 0 or len(found) != count:
        remedy = (
            "Name another output with --output, or export the model with the samples along the "
            "first axis."
        )
        return InputError(doing, found=shown, expected=expected, remedy=remedy)
    return InputError(
        doing,
        found=f"{shown} with NaN or Inf",
        expected="finite numbers",
        remedy="Look for a kernel that overflows.",
    )


# Embeddings → the class of the nearest other sample, leave-one-out.
#
#     s(i, j)     = ⟨eᵢ, eⱼ⟩ / (‖eᵢ‖·‖eⱼ‖), 0 where an embedding is 0
#     score(i, c) = max s(i, j) over j ≠ i of class c
#
# Classes by falling score, equal ones by rising id: the first is the class of the nearest
# neighbour. Without labels every sample is a class of its own.

_NO_SAMPLE = -2.0
"""Below every cosine: the score of a class that has no other sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestNeighbour:
    """One graph, one run per batch, then every sample against all others.

    Args:
        output: the output that holds the embeddings, (n, numbers); None: the graph's first.
        k: how many classes an answer names; data of fewer classes is answered with all of them.
    """

    output: str | None = None
    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"an answer of {self.k} classes")

    @property
    def is_joint(self) -> bool:
        """Every sample is compared with all others."""
        return True

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Shares of right samples."""
        return ("top1",)

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"nearest neighbour({self.output or 'first output'}, cosine, k={self.k})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The k classes of the nearest other samples (int32) with their similarity (float32),
        best first.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is
                named); or a sample has not exactly one label.
        """
        runner = runner_named(runners, GRAPH, self.name)
        doing = f"Embedding '{samples.data}'"
        embeddings = np.concatenate(
            [rows for _, rows in batch_rows(runner, samples, self.output, doing)]
        )
        scores = class_scores(similarities(embeddings), _classes(samples, doing))
        ids, best = best_classes(scores, self.k)
        held = held_outputs(embeddings, OutputKind.VALUES)
        return IntegerAnswers(ids, best.astype(np.float32), tied_rows(scores), outputs=held)


def similarities(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The cosine of every two rows of ``embeddings`` (n, d): (n, n); 0 for a row of zeros."""
    unit = unit_rows(embeddings)
    return np.asarray(unit @ unit.T)


def unit_rows(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """``embeddings`` (n, d), each row over its length; a row of zeros stays."""
    wide = embeddings.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0))


def class_scores(
    similar: npt.NDArray[np.float64], classes: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Each sample's similarity to the nearest other sample of every class.

    Args:
        similar: (n, n), of every two samples.
        classes: (n,), of each sample.

    Returns:
        (n, highest class + 1); -2 where a class has no other sample.
    """
    others = similar.copy()
    np.fill_diagonal(others, _NO_SAMPLE)
    scores = np.full((len(similar), int(classes.max()) + 1), _NO_SAMPLE)
    for one in np.unique(classes):
        scores[:, one] = others[:, classes == one].max(axis=1)
    return scores


def _classes(samples: Samples, doing: str) -> npt.NDArray[np.int64]:
    if samples.whole_labels is None:
        return np.arange(len(samples), dtype=np.int64)
    for sample, right in zip(samples.ids, samples.whole_labels, strict=True):
        if len(right) != 1 or right[0] < 0:
            raise InputError(
                f"{doing}, sample '{sample}'",
                found=f"the labels {list(right)}",
                expected="one label, from 0 on: the class of the sample",
                remedy="Give every sample exactly one label.",
            )
    return np.array(samples.whole_labels, dtype=np.int64)[:, 0]


# Pairs → the similarity of the two halves, for networks that decide whether both are of one origin.
#
#     e = graph(x) once for every distinct x
#     similarity(a, b) = round(10⁶ · (1 + ⟨eₐ, e_b⟩ / (‖eₐ‖·‖e_b‖)) / 2)
#
# The cosine is computed in float64, 0 where an embedding is 0; ties round to even. Two feeds are
# the same x when their bytes are equal: an x that is in many pairs runs once, in a batch with the
# other new ones.


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One graph, run on every distinct half of a pair.

    Args:
        input: of the graph.
        output: which holds the embeddings, (n, numbers); None: the graph's first.
        first, second: names of the samples' feeds; each of them becomes ``input``.
    """

    input: str
    output: str | None = None
    first: str = "first"
    second: str = "second"

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Pairs misjudged at the balanced threshold."""
        return ("eer",)

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return (
            f"verification({self.first} and {self.second} as {self.input}, "
            f"{self.output or 'first output'}, cosine, batch={BATCH})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The similarity of the halves of every sample, in millionths, (n, 1) int32.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (a sample with
                that half is named).
        """
        embedder = _Embedder(
            self, runner_named(runners, GRAPH, self.name), f"Embedding '{samples.data}'"
        )
        pairs: list[tuple[int, int]] = []
        for feeds in samples.batches():
            for first, second in zip(feeds[self.first], feeds[self.second], strict=True):
                sample = samples.ids[len(pairs)]
                pairs.append((embedder.place(first, sample), embedder.place(second, sample)))
        embeddings = embedder.embeddings()
        unit = unit_rows(embeddings)
        left, right = np.array(pairs, np.intp).T
        held = held_outputs(embeddings[left], OutputKind.VALUES)
        return IntegerAnswers(
            scaled_similarities(unit[left], unit[right])[:, None],
            kind=AnswerKind.LIKENESS,
            outputs=held,
        )


@dataclass(slots=True)
class _Embedder:
    """Runs a graph once on every distinct array, a whole batch at a time."""

    task: Verification
    runner: Runner
    doing: str
    _places: dict[str, int] = field(default_factory=dict)
    _waiting: list[tuple[str, Array]] = field(default_factory=list)
    _rows: list[Array] = field(default_factory=list)

    def place(self, array: Array, sample: str) -> int:
        """The row of ``embeddings`` that will be ``array``'s; ``sample`` is named if the row is
        not finite.
        """
        key = digest_arrays({self.task.input: array})
        if key not in self._places:
            self._places[key] = len(self._places)
            self._waiting.append((sample, array))
            if len(self._waiting) == BATCH:
                self._run()
        return self._places[key]

    def embeddings(self) -> Array:
        """One row for each distinct array, in the order of their first use: (n, numbers)."""
        if self._waiting:
            self._run()
        return np.concatenate(self._rows)

    def _run(self) -> None:
        names, arrays = zip(*self._waiting, strict=True)
        outputs = self.runner.run({self.task.input: np.stack(arrays)})
        self._rows.append(finite_rows(outputs, self.task.output, names, self.doing))
        self._waiting.clear()


def scaled_similarities(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> npt.NDArray[np.int32]:
    """The similarity of each pair of rows of length 1 or 0, (n, d) each: (n,), from 0 to
    1,000,000.
    """
    cosines = np.clip((left * right).sum(axis=1), -1.0, 1.0)
    return np.asarray(np.rint(MILLION * (1 + cosines) / 2), np.int32)

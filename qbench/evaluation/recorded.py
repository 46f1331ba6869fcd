"""Answers that were recorded elsewhere, as the answers of a task to its samples.

Records become answers of the kind that the fp32 reference has. Raw outputs go through the task
itself, which decodes them as it decodes those of an engine: an executor gives, batch by batch, the
rows of the samples that are fed.

Nothing is half judged: every sample of the data must be there, once, and no other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from qbench.backends import (
    Array,
    Backend,
    Closing,
    Feeds,
    Recorded,
    device_of,
    kernels_of,
    versions_of,
)
from qbench.errors import InputError, UnsupportedError
from qbench.evaluation.request import Request
from qbench.evaluation.subject import MetricUse
from qbench.evaluation.versus_backend import NotedSamples
from qbench.host import unusual_blas_kernels
from qbench.judging import EnvironmentClass, recorded_class
from qbench.metrics import (
    MILLION,
    PADDING,
    UNNAMED_OUTPUT,
    AnswerFile,
    AnswerKind,
    AnswerRecord,
    Answers,
    IntegerAnswers,
    OutputKind,
    listed_ids,
    points_of,
)
from qbench.number_text import counted
from qbench.subjects import Dataset, best_classes


def recorded_answers(request: Request, reference: Mapping[str, Answers]) -> dict[str, Answers]:
    """Data set → the answers in the file of the request's backend, in the order of its samples.

    Raises:
        InputError: the metrics need several data sets, the file is of another revision of the data,
            lacks a sample, has one twice or one that does not exist, or has answers of another kind
            than the model gives.
        UnsupportedError: the task does not run one graph once per batch, so that raw outputs cannot
            take its place.
    """
    assert isinstance(request.backend, Recorded)
    file = request.backend.recorded()
    _refuse_comparison(request, file)
    if len(request.subject.data) != 1:
        raise InputError(
            file.doing,
            found=f"metrics on the data sets {', '.join(request.subject.data)}",
            expected="metrics on one data set, since a file answers one",
            remedy="Leave the metrics on other data (NAME@DATA) out for this model.",
        )
    model = request.subject.model.id
    if file.header.model not in ("", model):
        raise InputError(
            file.doing,
            found=f"answers of the model '{file.header.model}'",
            expected=f"answers of '{model}'",
            remedy="Name this backend in the table of its own model: backends = [...].",
        )
    ((name, dataset),) = request.subject.data.items()
    _require_revision(file, dataset)
    if file.has_outputs:
        return {name: _replayed(request, file, dataset)}
    answers = _Reading(file, dataset, reference[name]).answers()
    for use in request.subject.metrics:
        _require_depth(file, use, answers, reference[name])
    return {name: answers}


def environment_of(backend: Backend, processor: str, *, threads: int = 1) -> EnvironmentClass:
    """The class of results of ``backend``: of ``processor``, its packages, the kernels that it
    names and its device, or of where its answers were recorded.

    A backend that names numpy among its packages sums with numpy's BLAS: unusual kernels are part
    of the class.

    Raises:
        InputError: its device is not a short word.
    """
    if isinstance(backend, Recorded):
        provenance = backend.recorded().header.provenance
        return recorded_class(provenance.device, provenance.packages)
    versions = {**versions_of(backend), **kernels_of(backend)}
    if "numpy" in versions:
        versions |= unusual_blas_kernels(processor)
    return EnvironmentClass.of(processor, versions, threads=threads, device=device_of(backend))


def _refuse_comparison(request: Request, file: AnswerFile) -> None:
    asked = ""
    if request.rewriting is not None or request.schema is not None:
        asked = "a schema or passes"
    if any(isinstance(by, Backend) for by in request.asked.values()):
        asked = "no_worse_than"
    if request.comparator is not None:
        asked = "equal_to or close_to"
    if asked:
        raise InputError(
            f"Measuring '{request.cell}'",
            found=f"{asked} for answers that were recorded elsewhere ('{file.path}')",
            expected="nothing that runs a quantized graph here",
            remedy="Leave it out for this backend.",
        )


def _require_revision(file: AnswerFile, dataset: Dataset) -> None:
    """Refuse answers to data with another digest; those to a whole data set are also of a part
    of it.
    """
    mark, whole = file.header.data, _whole(dataset)
    if mark.digest and mark.digest not in (dataset.digest, whole.digest):
        raise InputError(
            file.doing,
            found=(
                f"answers to the data {mark.id or ''} with the digest {mark.digest[:12]}…"
            ).replace("  ", " "),
            expected=(
                f"'{dataset.id}' with the digest {whole.digest[:12]}…: samples or labels have "
                "changed"
            ),
            remedy="Record the answers again with this revision of the data.",
        )


def _whole(dataset: Dataset) -> Dataset:
    return dataset if dataset.whole is None else dataset.whole


def _require_ids(file: AnswerFile, dataset: Dataset, have: Mapping[str, object]) -> None:
    """Refuse samples that are missing or unknown, each by its name.

    Raises:
        InputError: there are some. Samples of a data set of which only a part is measured are
            known.
    """
    known = set(_whole(dataset).sample_ids)
    unknown = [one for one in have if one not in known]
    missing = [one for one in dataset.sample_ids if one not in have]
    if unknown or missing:
        parts = (
            f"{counted(len(missing), 'sample')} without an answer ({listed_ids(missing)})"
            if missing
            else "",
            f"answers to {counted(len(unknown), 'unknown sample')} ({listed_ids(unknown)})"
            if unknown
            else "",
        )
        raise InputError(
            file.doing,
            found=" and ".join(filter(None, parts)),
            expected=(
                f"one answer to each of the {counted(len(dataset), 'sample')} of '{dataset.id}'"
            ),
            remedy=(
                "Record what is missing, or name the data that was answered; ids are as the data "
                "set has them."
            ),
        )


# Raw outputs.


@dataclass(slots=True)
class _Replay(Closing):
    """An executor that gives the recorded outputs of the samples that it was told of, once.

    ``lone``: the name of an output that was recorded without one.
    """

    file: AnswerFile
    task: str
    lone: str
    _ids: Sequence[str] = field(default=())

    def note(self, ids: Sequence[str]) -> None:
        """The samples of the next batch."""
        self._ids = tuple(ids)

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """The outputs of the samples in ``feeds``.

        Raises:
            UnsupportedError: it is not the batch that was noted, or not the first time.
        """
        ids, self._ids = self._ids, ()
        if not ids or any(len(feed) != len(ids) for feed in feeds.values()):
            raise UnsupportedError(
                self.file.doing,
                found=(
                    f"the task '{self.task}', which runs its graph several times or on parts of a "
                    "batch"
                ),
                expected=(
                    "a task that runs one graph once per batch, for raw outputs to take its place"
                ),
                remedy="Record answers instead of raw outputs (docs/answers.md).",
            )
        found = self.file.outputs(ids)
        return {self.lone: found[UNNAMED_OUTPUT]} if found.keys() == {UNNAMED_OUTPUT} else found

    def close(self) -> None:
        """Nothing is held."""


def _replayed(request: Request, file: AnswerFile, dataset: Dataset) -> Answers:
    ids: dict[str, object] = {}
    for one in file.output_ids:
        if one in ids:
            _refuse_twice(file, one)
        ids[one] = None
    _require_ids(file, dataset, ids)
    task = request.subject.model.task
    if len(task.graphs) != 1:
        raise UnsupportedError(
            file.doing,
            found=f"the task '{task.name}', which runs the graphs {', '.join(task.graphs)}",
            expected="a task that runs one graph, for raw outputs to take its place",
            remedy="Record answers instead of raw outputs (docs/answers.md).",
        )
    (graph,) = (request.shared.graphs[name].graph for name in task.graphs)
    lone = getattr(task, "output", None) or str(graph.outputs[0].name)
    _require_outputs(file, {str(one.name): tuple(one.shape or ()) for one in graph.outputs}, lone)
    replay = _Replay(file, task.name, lone)
    samples = NotedSamples.of(request.shared.samples(dataset), replay.note)
    return task.answer({task.graphs[0]: replay}, samples)


def _require_outputs(
    file: AnswerFile, outputs: Mapping[str, tuple[object, ...]], lone: str
) -> None:
    """Refuse raw outputs that the graph does not have: of another name, or of another size
    along a fixed axis.

    Args:
        file: of raw outputs.
        outputs: name → shape of the graph's, an empty one where it is not known.
        lone: the output that is recorded without a name.
    """
    for name, array in file.outputs(file.output_ids[:1]).items():
        shape = outputs.get(name or lone)
        if shape is None:
            raise InputError(
                file.doing,
                found=f"the output '{name or lone}'",
                expected=f"outputs of the model: {', '.join(outputs)}",
                remedy="Save each array by the name that the model gives its output.",
            )
        sizes = shape[1:]
        is_other = len(sizes) != array.ndim - 1 or any(
            isinstance(size, int) and size != real
            for size, real in zip(sizes, array.shape[1:], strict=True)
        )
        if shape and is_other:
            raise InputError(
                f"{file.doing}, output '{name or lone}'",
                found=f"{_axes(array.shape[1:])} for each sample",
                expected=f"{_axes(sizes)}, as the model gives",
                remedy="Record the outputs of this model, of its classes and its size of input.",
            )


def _axes(sizes: Sequence[object]) -> str:
    shown = ["?" if not isinstance(size, int) else str(size) for size in sizes]
    return f"an array of {' × '.join(shown)}" if shown else "one number"


def _refuse_twice(file: AnswerFile, sample: str) -> NoReturn:
    raise InputError(
        file.doing,
        found=f"the sample '{sample}' twice",
        expected="every sample once",
        remedy="Keep one answer of each sample; keep repeated runs in files of their own.",
    )


# Records.


@dataclass(slots=True)
class _Reading:
    """Reads the records of ``file`` into answers to ``dataset`` of the kind of ``reference``."""

    file: AnswerFile
    dataset: Dataset
    reference: Answers

    def answers(self) -> Answers:
        """The answers in the order of the samples.

        Raises:
            InputError: a sample is missing, unknown or there twice, or an answer is of another
                kind.
        """
        if not isinstance(self.reference, IntegerAnswers):
            raise InputError(
                self.file.doing,
                found=f"a model whose answers are {self.reference.form}",
                expected="classes, sequences, texts or similarities, which records can hold",
                remedy=(
                    "Record the raw outputs of each sample, which the task decodes "
                    "(docs/answers.md)."
                ),
            )
        kind, wanted = self.reference.kind, frozenset(self.dataset.sample_ids)
        rows: dict[str, tuple[Sequence[int], Sequence[float] | None] | None] = {}
        for record in self.file.records():
            sample = str(record.id)
            if sample in rows:
                _refuse_twice(self.file, sample)
            rows[sample] = self._row(kind, record, sample) if sample in wanted else None
        _require_ids(self.file, self.dataset, rows)
        ordered = [
            found for sample in self.dataset.sample_ids if (found := rows[sample]) is not None
        ]
        ids = self._table(kind, [row for row, _ in ordered])
        scores = (
            None if ordered[0][1] is None else np.array([one for _, one in ordered], np.float32)
        )
        return IntegerAnswers(ids, scores, kind=kind)

    def _table(self, kind: AnswerKind, rows: Sequence[Sequence[int]]) -> Array:
        widest = max(map(len, rows))
        if (
            kind is AnswerKind.RANKING
            and (short := next((i for i, row in enumerate(rows) if len(row) != widest), -1)) >= 0
        ):
            raise self._refused(
                self.dataset.sample_ids[short],
                f"{len(rows[short])} classes",
                f"{widest}, as of other samples",
            )
        table = np.full((len(rows), max(1, widest)), PADDING, np.int32)
        for row, values in zip(table, rows, strict=True):
            row[: len(values)] = values
        return table

    def _row(
        self, kind: AnswerKind, record: AnswerRecord, sample: str
    ) -> tuple[Sequence[int], Sequence[float] | None]:
        """The whole numbers of one answer, and the scores of its classes."""
        answer = record.answer
        if kind is AnswerKind.RANKING:
            return self._ranked(record, sample)
        if kind is AnswerKind.TEXT and isinstance(answer, str):
            return points_of(answer), None
        if (
            kind is AnswerKind.SEQUENCE
            and isinstance(answer, list)
            and all(0 <= one < 2**31 for one in answer)
        ):
            return answer, None
        if kind is AnswerKind.LIKENESS and isinstance(answer, int | float) and 0 <= answer <= 1:
            return (round(MILLION * answer),), None
        expected = {
            AnswerKind.TEXT: "a text",
            AnswerKind.SEQUENCE: "a list of tokens from 0",
            AnswerKind.LIKENESS: "a similarity from 0 to 1",
        }
        raise self._refused(
            sample, f"the answer {_shown(answer)}", f"{expected[kind]}, as the model answers"
        )

    def _ranked(
        self, record: AnswerRecord, sample: str
    ) -> tuple[Sequence[int], Sequence[float] | None]:
        assert isinstance(self.reference, IntegerAnswers)
        answer, scores = record.answer, record.scores
        outputs = self.reference.outputs
        count = (
            outputs.values.shape[1]
            if outputs is not None and outputs.kind is OutputKind.CLASSES
            else None
        )
        if answer is None and scores:
            if count is not None and len(scores) != count:
                raise self._refused(
                    sample,
                    counted(len(scores), "score"),
                    f"{count}, one for each class of the model",
                )
            ids, best = best_classes(np.array([scores], np.float32), self.reference.ids.shape[1])
            return ids[0].tolist(), best[0].tolist()
        classes = self.dataset.classes
        if isinstance(answer, str) and classes is not None and answer in classes.numbers:
            answer = classes.numbers[answer]
        ranked = [answer] if isinstance(answer, int) else answer
        if (
            not isinstance(ranked, list)
            or not ranked
            or not all(0 <= one < 2**31 for one in ranked)
        ):
            raise self._refused(
                sample,
                f"the answer {_shown(answer)}",
                "a class from 0, its name, or a list of classes",
            )
        if count is not None and max(ranked) >= count:
            raise self._refused(
                sample,
                f"the class {max(ranked)}",
                f"classes from 0 to {count - 1}, as the model has",
            )
        if len(set(ranked)) != len(ranked):
            raise self._refused(
                sample, f"the answer {_shown(answer)}", "every class once, the best first"
            )
        if scores is not None and (
            len(scores) != len(ranked) or scores != sorted(scores, reverse=True)
        ):
            found = f"{counted(len(scores), 'score')} of {counted(len(ranked), 'class', 'classes')}"
            raise self._refused(
                sample,
                found if len(scores) != len(ranked) else "scores that rise",
                "a score of each class in 'answer', the best first",
            )
        return ranked, scores

    def _refused(self, sample: str, found: str, expected: str) -> InputError:
        return InputError(
            f"{self.file.doing}, sample '{sample}'",
            found=found,
            expected=expected,
            remedy="Write answers of the kind that this model gives (docs/answers.md).",
        )


def _shown(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _require_depth(file: AnswerFile, use: MetricUse, answers: Answers, reference: Answers) -> None:
    """Refuse a metric that looks at more classes than the answers name, where the model names
    more.
    """
    if not (isinstance(answers, IntegerAnswers) and isinstance(reference, IntegerAnswers)):
        return
    have, usual = answers.ids.shape[1], reference.ids.shape[1]
    if answers.kind is AnswerKind.RANKING and have < min(use.metric.depth, usual):
        raise InputError(
            file.doing,
            found=f"answers of {counted(have, 'class', 'classes')}",
            expected=f"{min(use.metric.depth, usual)} for the metric '{use.name}'",
            remedy=(
                f"Record the {min(use.metric.depth, usual)} best classes, or leave the metric out."
            ),
        )

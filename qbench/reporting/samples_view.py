"""Lost and gained samples as pages and terminals show them: of a model under a schema, each sample
with the answers of fp32 and of every backend, and those of the run before.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qbench.judging import Cell, ChangedSample, SampleChanges
from qbench.metrics import AnswerPart
from qbench.number_text import counted
from qbench.reporting.view import CellView, RunView
from qbench.storage import MOST_RUNS
from qbench.tracking import Run, read_samples

FP32 = "fp32"
LEFT_OUT = "not listed"
AS_FP32 = "neither lost nor gained"
SAME = "the same answer"
_RUNS = 2
"""Runs of a cell whose answers are shown next to each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSamples:
    """The samples of one cell in one run, by data set.

    ``is_known``: whether ``data`` is all that was lost and gained; a run may have listed none.
    """

    key: Cell
    run: RunView
    data: Mapping[str, SampleChanges]
    is_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldAnswer:
    """A row of the table of one sample.

    Args:
        sources: whose answer it is: ``fp32``, or backends that answer alike.
        run: of which run; empty: of the newest.
        parts: the answer; empty where ``words`` say why there is none.
        change: as of ``ChangedSample``; None: not known.
        values: what the metric counts, in fp32 and here; None: it counts 0 or 1.
    """

    sources: tuple[str, ...]
    run: str = ""
    effect: str = ""
    parts: tuple[AnswerPart, ...] = ()
    change: float | None = None
    values: tuple[float, float] | None = None
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSample:
    """One sample with all answers to it; ``largest`` is the largest change, without its sign."""

    id: str
    label: str
    effects: tuple[str, ...]
    answers: tuple[ToldAnswer, ...]
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSamples:
    """The samples of one data set, the largest change first.

    Args:
        private: they have ids alone.
        metric: by which they are lost and gained.
        is_probability: whether changes are those of a probability.
        has_changes: whether one is known; where none is, samples have the order of the data.
    """

    name: str
    digest: str
    metric: str
    private: bool
    is_probability: bool
    has_changes: bool
    samples: tuple[ShownSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSamples:
    """The samples of a model under a schema (and variant).

    Args:
        cells: of each backend, in the order of the suite, in the newest run that measured it.
        before: Cell → the same of the run before that, where there is one.
    """

    model: str
    column: str
    cells: tuple[CellSamples, ...]
    before: Mapping[Cell, CellSamples] = field(default_factory=dict)

    @property
    def data(self) -> tuple[DataSamples, ...]:
        """Each data set of which samples are listed."""
        names = dict.fromkeys(
            name for cell in self.cells for name, each in cell.data.items() if each.samples
        )
        return tuple(self._of(name) for name in names)

    def _of(self, name: str) -> DataSamples:
        listed = [cell for cell in self.cells if name in cell.data and cell.data[name].samples]
        first = listed[0].data[name]
        ids = dict.fromkeys(one.id for cell in listed for one in cell.data[name].samples)
        samples = [self._sample(name, sample, listed) for sample in ids]
        return DataSamples(
            name=name,
            digest=first.digest,
            metric=first.metric,
            private=any(cell.data[name].private for cell in listed),
            is_probability=first.is_probability,
            has_changes=any(
                one.change is not None for cell in listed for one in cell.data[name].samples
            ),
            samples=tuple(sorted(samples, key=lambda one: -one.largest)),
        )

    def _sample(self, name: str, sample: str, listed: Sequence[CellSamples]) -> ShownSample:
        found = {cell.key: _listed(cell, name, sample) for cell in listed}
        known = [one for one in found.values() if one is not None]
        floats = next((one.fp32 for one in known if one.fp32), ())
        answers = [ToldAnswer(sources=(FP32,), parts=floats)] if floats else []
        answers += _folded(_told(cell, name, sample) for cell in self.cells)
        answers += _folded(
            _told_before(cell, self.before[cell.key], name, sample)
            for cell in self.cells
            if cell.key in self.before
        )
        return ShownSample(
            id=sample,
            label=known[0].label,
            effects=tuple(dict.fromkeys(one.effect for one in known)),
            answers=tuple(answers),
            largest=max(abs(one.change or 0.0) for one in known),
        )


def _listed(cell: CellSamples, name: str, sample: str) -> ChangedSample | None:
    changes = cell.data.get(name)
    return next((one for one in changes.samples if one.id == sample), None) if changes else None


def _told(cell: CellSamples, name: str, sample: str, run: RunView | None = None) -> ToldAnswer:
    """The answer of ``cell`` to ``sample``; ``run``: where it is not the newest."""
    row, when = _listed(cell, name, sample), "" if run is None else run_words(run)
    if row is None:
        changes = cell.data.get(name)
        is_whole = cell.is_known and (changes is None or changes.is_whole)
        words = AS_FP32 if is_whole else LEFT_OUT
        return ToldAnswer(sources=(cell.key.backend,), run=when, words=words)
    return ToldAnswer(
        sources=(cell.key.backend,),
        run=when,
        effect=row.effect,
        parts=row.quantized,
        change=row.change,
        values=row.values,
    )


def _told_before(cell: CellSamples, before: CellSamples, name: str, sample: str) -> ToldAnswer:
    """The answer of ``before``, or that it is the same as that of ``cell``."""
    now, then = _told(cell, name, sample), _told(before, name, sample, run=before.run)
    if now.parts and now == replace(then, run=""):
        return ToldAnswer(sources=now.sources, run=then.run, words=SAME)
    return then


def run_words(run: RunView) -> str:
    """``2026-11-23 02:00 · 1a2b3c4d5``."""
    return f"{run.started} · {run.commit}" if run.commit else run.started or run.id


def _folded(answers: Iterable[ToldAnswer]) -> list[ToldAnswer]:
    """``answers``, equal ones of several backends as one."""
    found: dict[ToldAnswer, list[ToldAnswer]] = {}
    for one in answers:
        found.setdefault(replace(one, sources=()), []).append(one)
    return [
        replace(alike[0], sources=tuple(source for one in alike for source in one.sources))
        for alike in found.values()
    ]


def samples_of(
    cells: Iterable[CellView],
    runs: Sequence[Run],
    views: Sequence[RunView],
    past: Sequence[Mapping[Cell, CellView]],
) -> tuple[dict[tuple[str, str], SchemaSamples], tuple[str, ...]]:
    """(model, schema with variant) → its samples, where a cell lists any; and a notice for what
    could not be read.

    Args:
        cells: of the report, in its order.
        runs, views, past: the runs of one suite, the earliest first, the facts of each and its
            cells.
    """
    found: dict[Cell, list[CellSamples]] = {cell.key: [] for cell in cells}
    unread = 0
    newest = zip(runs[::-1], views[::-1], past[::-1], strict=True)
    for run, view, measured in itertools.islice(newest, MOST_RUNS):
        lines, damaged = read_samples(run.samples)
        unread += damaged
        for key, told in found.items():
            if len(told) == _RUNS or key not in measured or measured[key].lead is None:
                continue
            is_known = key in lines or not sum(measured[key].record.changed_count.values())
            if is_known or not told:
                data = lines.get(key, {})
                told.append(CellSamples(key=key, run=view, data=data, is_known=is_known))
    named: dict[tuple[str, str], list[list[CellSamples]]] = {}
    for key, told in found.items():
        if told and not key.is_fp32:
            named.setdefault((key.model, key.column), []).append(told)
    shown = {
        (model, column): SchemaSamples(
            model=model,
            column=column,
            cells=tuple(told[0] for told in several),
            before={told[1].key: told[1] for told in several if len(told) > 1},
        )
        for (model, column), several in named.items()
        if any(changes.samples for told in several for changes in told[0].data.values())
    }
    notice = f"{counted(unread, 'line')} of samples in run files could not be read."
    return shown, (notice,) if unread else ()

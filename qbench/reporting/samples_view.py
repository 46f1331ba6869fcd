"""Lost and gained samples as pages and terminals show them: of a model under a schema, each sample
with the answers of fp32 and of every backend, and those of the run before.
"""

import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qbench.judging import Cell, ChangedSample
from qbench.metrics import AnswerPart
from qbench.number_text import counted
from qbench.reporting.view import CellView, RunView
from qbench.storage import MOST_RUNS
from qbench.tracking import NO_SAMPLES, LaterSamples, Run, SampleLines

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
    data: LaterSamples
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


_Rows = Mapping[str, ChangedSample]
"""Id → the sample of one cell."""


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
        rows = {cell.key: _rows(cell, name) for cell in self.cells}
        rows_before = {
            # most nights repeat the lines of the one before
            cell.key: rows[cell.key] if cell.data is before.data else _rows(before, name)
            for cell in self.cells
            if (before := self.before.get(cell.key)) is not None
        }
        samples = [self._sample(name, sample, rows, rows_before) for sample in ids]
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

    def _sample(
        self, name: str, sample: str, rows: Mapping[Cell, _Rows], rows_before: Mapping[Cell, _Rows]
    ) -> ShownSample:
        known = [own[sample] for own in rows.values() if sample in own]
        floats = next((one.fp32 for one in known if one.fp32), ())
        answers = [ToldAnswer(sources=(FP32,), parts=floats)] if floats else []
        now = {cell.key: _told(cell, name, rows[cell.key].get(sample)) for cell in self.cells}
        answers += _folded(now.values())
        answers += _folded(
            _told_before(
                self.before[key],
                name,
                rows_before[key].get(sample),
                now=told,
            )
            for key, told in now.items()
            if key in self.before
        )
        return ShownSample(
            id=sample,
            label=known[0].label,
            effects=tuple(dict.fromkeys(one.effect for one in known)),
            answers=tuple(answers),
            largest=max(abs(one.change or 0.0) for one in known),
        )


def _rows(cell: CellSamples, name: str) -> _Rows:
    """The samples of ``cell`` of the data set ``name``, by their ids; of equal ids the first."""
    changes = cell.data.get(name)
    return {} if changes is None else {one.id: one for one in reversed(changes.samples)}


def _told(
    cell: CellSamples, name: str, row: ChangedSample | None, run: RunView | None = None
) -> ToldAnswer:
    """The answer of ``cell`` to the sample of ``row`` (None: it does not list it); ``run``: where
    it is not the newest.
    """
    when = "" if run is None else run_words(run)
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


def _told_before(
    before: CellSamples, name: str, row: ChangedSample | None, *, now: ToldAnswer
) -> ToldAnswer:
    """The answer of ``before``, or that it is the same as the one of ``now``."""
    if now.parts and now.sources == (before.key.backend,) and _repeats(now, row):
        return ToldAnswer(sources=now.sources, run=run_words(before.run), words=SAME)
    return _told(before, name, row, run=before.run)


def _repeats(now: ToldAnswer, row: ChangedSample | None) -> bool:
    """Whether ``row``, of an earlier run, has the same as ``now``, which has an answer."""
    if row is None:
        return False
    return (now.effect, now.parts, now.change, now.values) == (
        row.effect,
        row.quantized,
        row.change,
        row.values,
    )


_shown: Callable[[ToldAnswer], tuple[Hashable, ...]] = operator.attrgetter(
    "effect", "parts", "change", "values", "words"
)
"""What a row has besides its sources and its run."""


def run_words(run: RunView) -> str:
    """``2026-11-23 02:00 · 1a2b3c4d5``."""
    return f"{run.started} · {run.commit}" if run.commit else run.started or run.id


def _folded(answers: Iterable[ToldAnswer]) -> list[ToldAnswer]:
    """``answers``, equal ones of several backends as one."""
    found: dict[Hashable, list[ToldAnswer]] = {}
    for one in answers:
        found.setdefault((one.run, *_shown(one)), []).append(one)
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
    reader, unread = SampleLines(), 0
    newest = zip(runs[::-1], views[::-1], past[::-1], strict=True)
    for run, view, measured in itertools.islice(newest, MOST_RUNS):
        lines, damaged = reader.read(run.samples)
        unread += damaged
        for key, told in found.items():
            if len(told) == _RUNS or key not in measured or measured[key].lead is None:
                continue
            is_known = key in lines or not sum(measured[key].record.changed_count.values())
            if is_known or not told:
                data = lines.get(key, NO_SAMPLES)
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
        if any(told[0].data.has_samples for told in several)
    }
    notice = f"{counted(unread, 'line')} of samples in run files could not be read."
    return shown, (notice,) if unread else ()

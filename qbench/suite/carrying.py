"""Green results carried over from earlier runs: a cell whose whole key was measured a short
time ago is not measured again.

A random share is measured all the same, chosen by the day and the name of the cell, and must give
the same answers bit for bit: where it does not, the key lacks something.
"""

import datetime
import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import msgspec

from qbench.errors import QbenchError
from qbench.judging import Outcome, Verdict
from qbench.suite.cell_parts import CellParts, NoKeyError
from qbench.suite.expansion import PlannedCell
from qbench.suite.judged_cell import JudgedCell
from qbench.suite.session import Bench
from qbench.tracking import (
    CarryRule,
    CellKey,
    CellRecord,
    EarlierResult,
    EarlierResults,
    HistoryStore,
    answer_digests,
)

DOES_NOT_HOLD = "carried result does not hold"
"""Begins the headline of a cell whose key is that of an earlier result, and that gave other answers
when it was measured.
"""


def is_in_share(share: float, day: datetime.date, cell: str) -> bool:
    """Whether ``cell`` is measured on ``day`` although it could be carried: so is a ``share`` of
    all cells, others every day, and the same ones in every process of one day.
    """
    drawn = hashlib.sha256(f"{day.isoformat()} {cell}".encode()).digest()[:8]
    return int.from_bytes(drawn, "big") < share * 2**64


class Carrying:
    """Runs the cells of one suite in one process, or carries their results.

    Args:
        bench: measures and judges.
        rule: which results are carried.
        history: where the runs before this one are.
        models: of the cells that this process may run; the results of others are not read.
        clock: the time, with a time zone.
    """

    def __init__(
        self,
        bench: Bench,
        rule: CarryRule,
        history: HistoryStore | Path,
        models: Collection[str],
        clock: Callable[[], datetime.datetime],
    ) -> None:
        self._bench = bench
        self._rule = rule
        self._history = history
        self._models = models
        self._clock = clock
        self._day = clock().date()
        self._parts = CellParts(bench.catalogues, bench.limit)
        self._earlier: EarlierResults | None = None
        self.notes: tuple[str, ...] = ()
        """Sentences about the history, once it was read."""

    def run(self, planned: PlannedCell) -> JudgedCell:
        """``planned`` as an earlier run measured it, or measured now; its record has its key, and
        why it was measured.
        """
        try:
            key = self._key(planned)
        except NoKeyError as error:
            return replace(self._bench.run(planned), key=CellKey(why=str(error)))
        except (QbenchError, ModuleNotFoundError):  # measuring it meets the same error
            return self._bench.run(planned)
        earlier, why = self._found(planned, key)
        if earlier is None:
            return self._measured(planned, key, why)
        record = earlier.record()
        if _is_noisy(record):
            return self._measured(planned, key, "its engine does not repeat its answers")
        if record.left_out or not record.metrics:
            return self._measured(planned, key, "its last result cannot be read whole")
        drawn = f"{planned.cell.suite}::{planned.cell}"
        if is_in_share(self._rule.share, self._day, drawn):
            return self._checked(planned, key, earlier, record)
        return _carried(planned, key, earlier, record)

    def _key(self, planned: PlannedCell) -> CellKey:
        request = self._bench.request_without_reference(planned)
        return CellKey(parts=self._parts.of(planned, request, self._bench.baseline_of(planned)))

    def _measured(self, planned: PlannedCell, key: CellKey, why: str) -> JudgedCell:
        return replace(self._bench.run(planned), key=msgspec.structs.replace(key, why=why))

    def _found(self, planned: PlannedCell, key: CellKey) -> tuple[EarlierResult | None, str]:
        """The earlier result to carry, or None and why there is none."""
        if not self._rule.age:
            return None, "nothing is carried in this run"
        results = self._results().of(planned.cell)
        same = next((one for one in results if not one.key.parts or one.key.equals(key)), None)
        if same is not None:
            return (None, same.why_not) if same.why_not else (same, "")
        if not results:
            return None, f"no result of it with a key in the last {self._rule.age_text}"
        return None, key.changed_from(results[0].key)

    def _results(self) -> EarlierResults:
        if self._earlier is None:
            suite = self._bench.suite.name
            try:
                self._earlier = EarlierResults.read(
                    self._history, suite, self._models, now=self._clock(), age=self._rule.age
                )
                notes = list(self._earlier.problems)
                if not len(self._earlier):
                    notes.append(
                        f"Nothing is carried: found no run of '{suite}' with keys in the last "
                        f"{self._rule.age_text}; this run notes them for the next."
                    )
            except QbenchError as error:
                self._earlier = EarlierResults()
                notes = [f"Nothing is carried: {error}"]
            self.notes = tuple(notes)
        return self._earlier

    def _checked(
        self, planned: PlannedCell, key: CellKey, earlier: EarlierResult, record: CellRecord
    ) -> JudgedCell:
        """``planned`` measured, and compared with the ``record`` that would have been carried."""
        run = earlier.source.run
        why = f"random share of {self._rule.share_text} on {self._day}"
        judged = self._measured(planned, key, why)
        if judged.measurement is None:
            return judged
        other = _differences(judged.record, record)
        if not other:
            return judged
        found = f"{DOES_NOT_HOLD}: other {other} than run {run}, with an equal key"
        return replace(judged, verdict=_not_held(judged.verdict, found))


def _differences(now: CellRecord, then: CellRecord) -> str:
    """What differs in two results that should be equal bit for bit: ``answers on photos``, or where
    all answers are the same ``counts of sqnr``; empty: nothing.
    """
    ours, theirs = answer_digests(now.digests), answer_digests(then.digests)
    data = {one.partition(":")[2] for one in ours | theirs if ours.get(one) != theirs.get(one)}
    if data:
        return f"answers on {', '.join(sorted(data))}"
    counts = [
        name
        for name in dict.fromkeys((*now.metrics, *then.metrics))
        if _counts(now, name) != _counts(then, name)
    ]
    return f"counts of {', '.join(counts)}" if counts else ""


def _counts(record: CellRecord, name: str) -> tuple[int, ...] | None:
    one = record.metrics.get(name)
    return None if one is None else (one.hits, one.out_of, one.losses, one.gains)


def _not_held(verdict: Verdict, found: str) -> Verdict:
    """``verdict`` after the cell gave other answers than its key promises: red in any case, since
    every carried result of the night is in doubt.
    """
    if verdict.outcome.is_red:
        return replace(verdict, notices=(*verdict.notices, found))
    return replace(
        verdict,
        outcome=Outcome.DRIFTED,
        headline=found,
        rule="option --qbench-carry",
        notices=(*verdict.notices, f"it would be {verdict.outcome.value}: {verdict.headline}"),
        remedy=(
            "Run the suite with --qbench-carry=0d, and find what changed without a part of the key "
            "(docs/many-machines.md), or whether the engine repeats its answers: qbench stability."
        ),
    )


def _is_noisy(record: CellRecord) -> bool:
    """Whether runs of the same code gave it different answers."""
    is_noisy = record.repeats is not None and record.repeats.is_noisy
    return is_noisy or any(metric.noise is not None for metric in record.metrics.values())


def _carried(
    planned: PlannedCell, key: CellKey, earlier: EarlierResult, record: CellRecord
) -> JudgedCell:
    taken = msgspec.structs.replace(record, key=key, carried=earlier.source, resumed_from="")
    verdict = Verdict(
        outcome=Outcome(record.outcome),
        headline=record.headline,
        rule=record.rule,
        ungated=record.ungated,
    )
    return JudgedCell(planned=planned, verdict=verdict, measurement=None, carried=taken)

"""A cell that was run: what became of it, in the words of its verdict and as the line of a run file."""

from dataclasses import dataclass
from typing import Any

import msgspec

from qbench.errors import NotFetchedError, QbenchError, UnsupportedError
from qbench.judging import Measurement, Outcome, Verdict
from qbench.suite.expansion import PlannedCell
from qbench.tracking import CellRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCell:
    """One finished cell: its verdict, its numbers (None when skipped or broken) and its line for the run file.

    ``unfetched``: a package that it needs could not be had.
    """

    planned: PlannedCell
    verdict: Verdict
    measurement: Measurement | None
    unfetched: bool = False

    @classmethod
    def unmeasured(cls, planned: PlannedCell, error: Exception) -> "JudgedCell":
        """The cell that ``error`` kept from being measured.

        It is unsupported where that is what it says, or where a package could not be had; else an error. What has a
        sentence says it; a fault of ours is told by its type and its first line.
        """
        outcome = Outcome.UNSUPPORTED if isinstance(error, UnsupportedError | NotFetchedError) else Outcome.ERROR
        if isinstance(error, QbenchError):
            verdict = Verdict(outcome=outcome, headline=str(error), rule="", remedy=error.remedy)
        else:
            first = (str(error).strip() or "no message").splitlines()[0]
            verdict = Verdict(outcome=outcome, headline=f"{type(error).__name__}: {first}", rule="")
        unfetched = isinstance(error, NotFetchedError)
        return cls(planned=planned, verdict=verdict, measurement=None, unfetched=unfetched)

    @property
    def record(self) -> CellRecord:
        """What is stored of it."""
        record = CellRecord.of(self.planned.cell, self.verdict, self.measurement)
        return msgspec.structs.replace(record, unfetched=self.unfetched)

    @property
    def line(self) -> dict[str, Any]:
        """The record as a plain line of a run file."""
        return self.record.line()

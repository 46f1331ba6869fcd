"""One finished cell of a suite, and a cell that could not be measured."""

from dataclasses import dataclass

import msgspec

from qbench.errors import NotFetchedError, QbenchError, UnsupportedError
from qbench.judging import (
    Cell,
    Measurement,
    Outcome,
    Verdict,
)
from qbench.suite.expansion import PlannedCell
from qbench.tracking import (
    CellKey,
    CellRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCell:
    """One finished cell: its verdict, its numbers (None when skipped or broken) and its line
    for the run file.

    ``unfetched``: a package that it needs could not be downloaded. ``key``: what its result depends
    on, where that is noted. ``carried``: the record of an earlier run that is its result; it was
    not measured then.
    """

    planned: PlannedCell
    verdict: Verdict
    measurement: Measurement | None
    unfetched: bool = False
    key: CellKey | None = None
    carried: CellRecord | None = None

    @classmethod
    def unmeasured(cls, planned: PlannedCell, error: BaseException) -> "JudgedCell":
        """The cell that was not measured because of ``error``.

        It is unsupported if the backend does not support it or a package could not be downloaded;
        otherwise it is an error. The headline is the sentence of a ``QbenchError``, or the type and
        the first line of any other.
        """
        outcome = (
            Outcome.UNSUPPORTED
            if isinstance(error, UnsupportedError | NotFetchedError)
            else Outcome.ERROR
        )
        if isinstance(error, QbenchError):
            verdict = Verdict(outcome=outcome, headline=str(error), rule="", remedy=error.remedy)
        else:
            first = (str(error).strip() or "no message").splitlines()[0]
            verdict = Verdict(outcome=outcome, headline=f"{type(error).__name__}: {first}", rule="")
        unfetched = isinstance(error, NotFetchedError)
        return cls(planned=planned, verdict=verdict, measurement=None, unfetched=unfetched)

    @property
    def record(self) -> CellRecord:
        """The cell as it is stored."""
        if self.carried is not None:
            return self.carried
        record = CellRecord.of(self.planned.cell, self.verdict, self.measurement)
        return msgspec.structs.replace(
            record, unfetched=self.unfetched, test=self.planned.test, key=self.key
        )


def lacking_package(cell: Cell, error: ModuleNotFoundError) -> UnsupportedError | None:
    """``error`` in a sentence about ``cell``; None: a module of qbench itself is not there."""
    if (error.name or "qbench").partition(".")[0] == "qbench":
        return None
    return UnsupportedError(
        f"Running '{cell}'",
        found=f"no package that provides '{error.name}'",
        expected="it to be installed",
        remedy=f"Install what provides '{error.name}'.",
    )

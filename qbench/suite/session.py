"""Many cells up to a run: the bench of one suite in one process, which measures, judges and writes down each cell.

Whoever drives it (pytest, the command line) decides the order, draws progress, and owns the run file; this page never
prints and never writes one.
"""

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from qbench.backends import versions_of
from qbench.errors import QbenchError, StoreError, UnsupportedError
from qbench.evaluation import Beside, Request, SharedWork, measure_request
from qbench.host import processor_class
from qbench.judging import (
    APPROVABLE,
    EnvironmentClass,
    Expectation,
    Measurement,
    Outcome,
    State,
    Verdict,
    accepted_on,
    approved,
    judge,
    support_lost,
)
from qbench.metrics import Answers
from qbench.storage import Cache
from qbench.suite.catalogues import Catalogues
from qbench.suite.expansion import PlannedCell
from qbench.suite.judged_cell import JudgedCell
from qbench.suite.passes import rewriting_of
from qbench.suite.stored_baselines import StoredBaselines
from qbench.suite.subjects import make_subject
from qbench.suite.suite import CalibrationChoice, Suite
from qbench.tracking import Acceptance, Accepting, Baseline, accept_measurements, accept_reference, is_taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a door decides for a session.

    Args:
        baselines: folder of baseline files. cache: what outlives the process.
        suite_path: the suite file as a user would type it, for commands in messages.
        accepting: what this run accepts into baselines at its end; None: nothing.
        limit: at most that many samples of each scored data set, judged against today's fp32 run; None: all.
        today: for expiry dates. processor: the machine's class; None: ask the machine.
        timer: seconds on a monotonic clock.
    """

    baselines: Path
    suite_path: str
    today: datetime.date
    cache: Cache = field(default_factory=Cache.default)
    accepting: Accepting | None = None
    limit: int | None = None
    processor: str | None = None
    timer: Callable[[], float] = time.perf_counter


class Bench:
    """The cells of one suite in this process; keeps the shared work of one model at a time."""

    def __init__(self, suite: Suite, catalogues: Catalogues, settings: Settings) -> None:
        self.suite = suite
        self._catalogues = catalogues
        self._settings = settings
        self._at_work: tuple[tuple[str, CalibrationChoice], SharedWork] | None = None
        self._baselines = StoredBaselines(settings.baselines, suite, replacing=self._accepts_reference)

    @cached_property
    def processor(self) -> str:
        """The class of this machine's processor, by probe unless the settings name one."""
        return self._settings.processor or processor_class()

    def environment(self, backend: str) -> EnvironmentClass:
        """The environment class of results of ``backend`` on this machine."""
        packages = versions_of(self._catalogues.backends.get(backend))
        return EnvironmentClass.of(self.processor, packages, threads=self.suite.table.threads)

    def run(self, planned: PlannedCell) -> JudgedCell:
        """Measure and judge one cell; what has a sentence becomes its outcome, anything else passes through."""
        try:
            measurement = self.measure(planned)
            verdict = self._accepted(planned, measurement, self.judge(planned, measurement))
        except QbenchError as error:
            judged = JudgedCell.unmeasured(planned, error)
            unsupported = judged.verdict.outcome is Outcome.UNSUPPORTED and not judged.unfetched
            lost = unsupported and self._was_accepted(planned)
            return replace(judged, verdict=support_lost(judged.verdict, planned.cell)) if lost else judged
        return JudgedCell(planned=planned, verdict=verdict, measurement=measurement)

    def measure(self, planned: PlannedCell) -> Measurement:
        """The numbers of one cell, counted against the stored reference when it is of this very model and data.

        Raises:
            UnsupportedError: the backend does not run it, or needs a package that is not installed.
            QbenchError: whatever else keeps the cell from being measured.
        """
        try:
            return measure_request(self.request(planned))
        except ModuleNotFoundError as error:
            if (error.name or "qbench").partition(".")[0] == "qbench":
                raise
            raise UnsupportedError(
                f"Running '{planned.cell}'",
                found=f"no package that provides '{error.name}'",
                expected="it to be installed",
                remedy=f"Install what provides '{error.name}'.",
            ) from error

    def request(self, planned: PlannedCell) -> Request:
        """All that measuring one cell takes."""
        cell = planned.cell
        return Request(
            cell=cell,
            shared=self.shared(planned),
            backend=self._catalogues.backends.get(cell.backend),
            schema=None if cell.is_fp32 or cell.is_given else self._catalogues.schemas.get(cell.schema),
            reference=self.reference(planned),
            environment=self.environment(cell.backend),
            rewriting=rewriting_of(planned.passes, self._catalogues.passes, f"Running '{cell}'"),
            threads=self.suite.table.threads,
            beside=self._beside(planned),
            keeps_answers=planned.rules.allowance.keeps_answers,
            recalibrated=planned.recalibrated,
            timer=self._settings.timer,
        )

    def _beside(self, planned: PlannedCell) -> Beside | None:
        """The backend that the cell is compared with."""
        if planned.criterion is None:
            return None
        other = planned.criterion.backend
        return Beside(
            backend=self._catalogues.backends.get(other),
            criterion=planned.criterion,
            environment=self.environment(other),
        )

    def judge(self, planned: PlannedCell, measurement: Measurement) -> Verdict:
        """The verdict on ``measurement`` under this suite's rules."""
        expectation = self.expectation(planned, measurement)
        # What is missing then is the partner's reference: the remedy names the node that makes it.
        borrows = expectation.state is not State.KNOWN and planned.partner is not None
        cell = replace(planned.cell, model=planned.partner.id) if borrows and planned.partner else planned.cell
        verdict = judge(
            measurement,
            expectation,
            tolerance=planned.tolerance(measurement.environment),
            criterion=planned.criterion,
            rules=planned.rules,
            quarantine=planned.quarantine_entry(measurement.environment),
            today=self._settings.today,
            node_id=f"{self._settings.suite_path}::{cell}",
        )
        return replace(verdict, notices=(*verdict.notices, *self._settings.cache.take_notices()))

    def expectation(self, planned: PlannedCell, measurement: Measurement) -> Expectation:
        """What the baseline expects of this cell; a reference this run accepts counts as known."""
        if planned.model.is_alone:
            return Expectation(whole=self._settings.limit is None, stored=False)
        if self._settings.limit is not None:
            return Expectation(whole=False)
        model = planned.model.id
        baseline = self.baseline(model)
        if baseline is not None:
            counts = {name: len(dataset) for name, dataset in self.shared(planned).subject.data.items()}
            expected = baseline.expectation(
                planned.cell, measurement.digests, trusted=self._accepts_reference, samples=counts
            )
            # A cell that is bad on some machines only is never accepted there, so it has no past on the others.
            return replace(expected, cell_known=expected.cell_known or bool(planned.quarantine))
        if self._accepts_reference:
            return Expectation(cell_known=False)
        reference = model if planned.partner is None else planned.partner.id
        return Expectation.missing(f"no baseline of '{reference}' in suite '{self.suite.name}'")

    def baseline(self, model: str) -> Baseline | None:
        """The stored baseline of ``model``, or None when there is none.

        Raises:
            StoreError: its file is damaged, and this run does not accept a new one.
        """
        return self._baselines.get(model)

    def acceptance(self, planned: PlannedCell, measurements: Sequence[Measurement]) -> Acceptance | None:
        """What this run's accepting would make of the baseline of ``planned``'s model; None: it cannot have any.

        Args:
            planned: any cell of the model. measurements: of cells of that model.

        Raises:
            InputError: something would be replaced without a reason.
        """
        accepting, baseline = self._settings.accepting, self.baseline(planned.model.id)
        if accepting is None or not measurements or planned.model.is_alone:
            return None
        replaced = self._replaced(planned, measurements[0], accepting, baseline) if accepting.fp32 else None
        baseline = baseline if replaced is None else replaced.baseline
        if baseline is None:
            return None
        taken = accept_measurements(
            baseline,
            measurements,
            accepting=accepting,
            rules=planned.rules,
            quarantine=self.suite.quarantine,
            today=self._settings.today,
            criterion=self.suite.criterion,
        )
        return taken if replaced is None else replace(taken, rows=replaced.rows + taken.rows)

    def _replaced(
        self, planned: PlannedCell, measurement: Measurement, accepting: Accepting, baseline: Baseline | None
    ) -> Acceptance:
        """Today's fp32 run as the reference; that of a partner is accepted with the partner, and borrowed here."""
        backend = self.suite.table.reference
        replaced = accept_reference(
            baseline if planned.partner is None else None,
            measurement,
            self.shared(planned).reference(),
            backend=backend,
            environment_class=str(self.environment(backend)),
            reason=accepting.reason,
        )
        if planned.partner is None:
            return replaced
        model = planned.model.id
        return Acceptance(baseline=replaced.baseline.lent(model, self._baselines.own(model)))

    def accept(self, planned: PlannedCell, measurements: Sequence[Measurement]) -> Acceptance | None:
        """Write what this run's accepting makes of the baseline of ``planned``'s model; None: it cannot have any.

        It is worked out twice: by the baseline that the run was judged by, since a run that accepts nothing writes
        nothing and takes no lock; then under the lock by what is there now, since others may have accepted meanwhile.

        Args:
            planned, measurements: as ``acceptance``.

        Raises:
            InputError: something would be replaced without a reason. StoreError: the baseline cannot be written.
        """
        model = planned.model.id
        expected, lost = self.acceptance(planned, measurements), self._baselines.lost(model)
        if expected is None or not (expected.rows or lost):
            return expected
        with self._baselines.changing(model) as change:
            done = self.acceptance(planned, measurements)
            lost = self._baselines.lost(model)
            if done is not None and (done.rows or lost):
                change.save(done.baseline)
        if done is None:
            return None
        missed = sorted({row.cell for row in expected.rows} - {row.cell for row in done.rows})
        notices = [
            f"A damaged part of the baseline of '{model}' was made anew; what could be read was kept: {sentence}"
            for sentence in lost
        ]
        if missed:
            notices.append(f"Not taken into '{model}', which another process changed meanwhile: {', '.join(missed)}")
        return replace(done, notices=(*done.notices, *notices))

    def reference(self, planned: PlannedCell) -> Mapping[str, Answers]:
        """The stored fp32 answers when they are of this model, data and preprocessing; else today's fp32 run.

        Of a model that has no float one: what the backend that the cell is compared with answers.
        """
        shared = self.shared(planned)
        if planned.model.is_alone and planned.criterion is not None:
            other = self._catalogues.backends.get(planned.criterion.backend)
            return shared.given_answers(other, threads=self.suite.table.threads)
        baseline = None if self._settings.limit is not None else self.baseline(planned.model.id)
        if baseline is not None and not self._accepts_reference and not baseline.stale(shared.identity()):
            return baseline.answers()
        return shared.reference()

    def shared(self, planned: PlannedCell) -> SharedWork:
        """What the cells of this model (and calibration) share; the former model's is let go."""
        key = (planned.model.id, planned.calibration)
        if self._at_work is None or self._at_work[0] != key:
            self._at_work = None  # free before making: two large models need not fit at once
            backend = self.suite.table.reference
            shared = SharedWork(
                make_subject(
                    planned.model,
                    planned.calibration,
                    self._catalogues,
                    limit=self._settings.limit,
                    partner=planned.partner,
                ),
                self._settings.cache,
                self._catalogues.backends.get(backend),
                str(self.environment(backend)),
            )
            if not planned.model.is_alone:
                shared.require_float()
            self._at_work = (key, shared)
        return self._at_work[1]

    @property
    def _accepts_reference(self) -> bool:
        return self._settings.accepting is not None and self._settings.accepting.fp32

    def _was_accepted(self, planned: PlannedCell) -> bool:
        """Whether a result of this cell was ever accepted on this class of processor; no in a run over few samples."""
        try:
            baseline = None if self._settings.limit is not None else self.baseline(planned.model.id)
        except StoreError:  # damaged: the cells that can be measured say so
            return False
        known = None if baseline is None else baseline.cells.get(planned.cell.slug)
        return known is not None and accepted_on(known.accepted, self.processor)

    def _accepted(self, planned: PlannedCell, measurement: Measurement, verdict: Verdict) -> Verdict:
        """ACCEPTED where this run takes over what was new or had changed; a loss beyond its rule stays red."""
        if self._settings.accepting is None or verdict.outcome not in APPROVABLE:
            return verdict
        acceptance = self.acceptance(planned, [measurement])
        return verdict if acceptance is None or not is_taken(acceptance, measurement, verdict) else approved(verdict)

"""The bench of one suite in one process: it measures and judges cells, and accepts their results.

The caller (pytest, the command line) decides the order, shows progress and writes the run file;
this module does not print.
"""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.backends import Backend, take_unprotected
from qbench.errors import QbenchError, StoreError
from qbench.evaluation import (
    Comparator,
    Request,
    SamplePreviews,
    Subject,
    SubjectArtifacts,
    environment_of,
    measure_request,
    previews_of,
)
from qbench.host import processor_class
from qbench.judging import (
    APPROVABLE,
    FP32,
    AcceptedHere,
    BackendName,
    Cell,
    Decision,
    EnvironmentClass,
    Expectation,
    Gate,
    GateKind,
    Measurement,
    Outcome,
    SamplesByData,
    State,
    Stop,
    StopRule,
    Verdict,
    accepted_on,
    approved,
    asked_evidence,
    judge,
    judged_alone,
    needs_all_samples,
    retrained_gate,
    support_lost,
)
from qbench.metrics import Answers, Score, score
from qbench.storage import Cache
from qbench.subjects import data_notes, task_answers
from qbench.suite.catalogues import Catalogues
from qbench.suite.expansion import PlannedCell, tolerances_of
from qbench.suite.judged_cell import JudgedCell, lacking_package
from qbench.suite.settings import ranges_file_of, rewriting_of
from qbench.suite.stored_baselines import StoredBaselines, refuse_unread
from qbench.suite.subject_making import make_subject
from qbench.suite.suite_file import CalibrationChoice, Suite
from qbench.tracking import (
    Acceptance,
    Accepting,
    Baseline,
    accept_measurements,
    accept_reference,
    is_taken,
)

if TYPE_CHECKING:
    from qbench.quantization import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a session.

    Args:
        baselines: folder of baseline files.
        cache: of prepared samples, profiles and fp32 runs.
        suite_path: the suite file as a user would type it, for commands in messages.
        accepting: which results the run accepts into baselines at its end; None: none.
        uses_floors: whether a cell whose noise is in its baseline runs once; else it runs as often
            as the suite says.
        limit: at most that many samples of each scored data set, judged against today's fp32 run;
            None: all.
        today: for expiry dates.
        processor: the machine's class; None: ask the machine.
        most_samples: how many lost and gained samples of each data set a cell lists; 0: none.
        quantizes_twice: whether quantizers of other people run twice.
        timer: seconds on a monotonic clock.
    """

    baselines: Path
    suite_path: str
    today: datetime.date
    cache: Cache = field(default_factory=Cache.default)
    accepting: Accepting | None = None
    limit: int | None = None
    uses_floors: bool = True
    processor: str | None = None
    most_samples: int = 0
    quantizes_twice: bool = False
    timer: Callable[[], float] = time.perf_counter


class Bench:
    """The cells of one suite in this process; holds the shared artifacts of one model at a time."""

    def __init__(
        self,
        suite: Suite,
        catalogues: Catalogues,
        settings: Settings,
        *,
        subject: Subject | None = None,
    ) -> None:
        """``subject``: of every cell, as it was built from files; None: as the suite names it."""
        self.suite = suite
        self.catalogues = catalogues
        self._subject = subject
        self._catalogues = catalogues
        self._settings = settings
        self._current: tuple[tuple[str, CalibrationChoice], SubjectArtifacts] | None = None
        self._noted: tuple[tuple[str, CalibrationChoice], int] | None = None
        self._moved_references: dict[tuple[str, Decision], tuple[tuple[Score, Gate], ...]] = {}
        """What retrained models lost, by model and decision: the same for each of its cells."""
        self._devices: dict[str, str] = {}
        """Backend → device, of the backends that were made."""
        self._classes: dict[str, tuple[Backend, EnvironmentClass]] = {}
        """Name → backend and the class of its results: finding it reads versions from the disk."""
        self._baselines = StoredBaselines(
            settings.baselines, suite, replacing=self._accepts_reference
        )

    @cached_property
    def processor(self) -> str:
        """The class of this machine's processor, by probe unless the settings name one."""
        return self._settings.processor or processor_class()

    def environment(self, backend: str) -> EnvironmentClass:
        """The environment class of results of ``backend`` on this machine."""
        return self._class_of(self._catalogues.backends.get(backend))

    def _class_of(self, backend: Backend) -> EnvironmentClass:
        known = self._classes.get(backend.name)
        if known is not None and known[0] is backend:
            return known[1]
        threads = self.suite.table.threads
        environment = environment_of(backend, self.processor, threads=threads)
        self._classes[backend.name] = backend, environment
        self._devices[backend.name] = environment.device
        return environment

    def run(self, planned: PlannedCell) -> JudgedCell:
        """Measure and judge one cell; a ``QbenchError`` becomes its outcome, any other error is
        raised.
        """
        try:
            measurement = self.measure(planned)
            verdict = self.judge(planned, measurement)
        except QbenchError as error:
            return self.unmeasured(planned, error)
        return JudgedCell(planned=planned, verdict=verdict, measurement=measurement)

    def unmeasured(self, planned: PlannedCell, error: BaseException) -> JudgedCell:
        """The cell that was not measured because of ``error``.

        What is skipped or could not be downloaded is DRIFTED, which is red, where a result was
        accepted here. Where the baseline cannot be read, so that this is not known, the cell is an
        error.
        """
        judged = JudgedCell.unmeasured(planned, error)
        if judged.verdict.outcome is not Outcome.UNSUPPORTED:
            return judged
        try:
            lost = self._was_accepted(planned)
        except StoreError as unreadable:
            return JudgedCell.unmeasured(planned, unreadable)
        return (
            replace(judged, verdict=support_lost(judged.verdict, planned.cell, planned.test))
            if lost
            else judged
        )

    def measure(self, planned: PlannedCell) -> Measurement:
        """The numbers of one cell, counted against the stored reference when it is of this very
        model and data.

        Raises:
            UnsupportedError: the backend does not run it, or needs a package that is not installed.
            QbenchError: the cell cannot be measured for another reason.
        """
        try:
            return measure_request(self.request(planned))
        except ModuleNotFoundError as error:
            if (lacking := lacking_package(planned.cell, error)) is None:
                raise
            raise lacking from error

    @property
    def limit(self) -> int | None:
        """At most that many samples of each scored data set; None: all."""
        return self._settings.limit

    def baseline_of(self, planned: PlannedCell) -> Baseline | None:
        """The baseline that ``planned`` is judged by; None: there is none, or it is not read.

        Raises:
            StoreError: it cannot be read.
        """
        if self._settings.limit is not None or planned.model.is_alone:
            return None
        return self._baselines.get(planned.model.id)

    def request(self, planned: PlannedCell) -> Request:
        """The arguments for measuring one cell."""
        request = self.request_without_reference(planned)
        return replace(request, reference=self._reference(planned, request.shared))

    def request_without_reference(self, planned: PlannedCell) -> Request:
        """``request`` before the fp32 answers are read, or made: all that a key is made of."""
        cell, criterion, known = planned.cell, planned.criterion, self._catalogues
        shared = self.shared(planned)
        comparator = None
        if criterion is not None:
            other = known.backends.get(criterion.backend)
            comparator = Comparator(
                backend=other, criterion=criterion, environment=self.environment(criterion.backend)
            )
        environment = self.environment(cell.backend)
        here = self._accepted_here(planned, environment)
        is_measured = self._settings.uses_floors and here.noise is not None
        return Request(
            cell=cell,
            shared=shared,
            backend=known.backends.get(cell.backend),
            schema=self._schema(planned),
            reference={},
            environment=environment,
            rewriting=rewriting_of(planned.passes, known.passes, f"Running '{cell}'"),
            threads=self.suite.table.threads,
            comparator=comparator,
            asked=self._asked(planned),
            keeps_answers=planned.rules.allowance.keeps_answers
            or planned.rules.stop is Stop.DECIDED
            or (is_measured and here.is_noisy),
            repeats=1 if is_measured else planned.rules.repeats,
            repeat_threads=self.suite.table.repeat_threads,
            stop=self._stop(planned, here),
            recalibrated=planned.recalibrated,
            most_samples=self._settings.most_samples,
            private=self.suite.table.private or planned.model.private,
            timer=self._settings.timer,
        )

    def _schema(self, planned: PlannedCell) -> "Schema | None":
        """The schema of ``planned`` with the ranges by hand that the suite sets for it; None: the
        cell is not quantized here.

        Raises:
            InputError: its ranges file cannot be read.
        """
        cell = planned.cell
        if cell.is_fp32 or cell.is_given or cell.is_recorded:
            return None
        schema = self._catalogues.schemas.get(cell.schema)
        path = ranges_file_of(self.suite.path.parent, planned.rules)
        if path is None:
            return schema
        from qbench.quantization import load_ranges  # few suites have such a file

        return schema.with_ranges(load_ranges(path))

    def _asked(self, planned: PlannedCell) -> dict[GateKind, object]:
        """The evidence that the gates of ``planned`` ask for, with backends in place of their
        names.
        """
        asked = asked_evidence(planned.rules)
        for kind, by in asked.items():
            if isinstance(by, BackendName):
                asked[kind] = self._catalogues.backends.get(by)
        return asked

    def _accepted_here(self, planned: PlannedCell, environment: EnvironmentClass) -> AcceptedHere:
        """What results of ``planned`` in ``environment`` are compared with; nothing in a run
        over few samples.

        Raises:
            StoreError: the baseline cannot be read.
        """
        baseline = self.baseline_of(planned)
        if baseline is None:
            return AcceptedHere(environment=environment)
        return baseline.here(planned.cell, environment, planned.rules.equivalents)

    def _stop(self, planned: PlannedCell, here: AcceptedHere) -> StopRule | None:
        """What ends this cell early; None where it is to be run whole.

        That is where results are to be accepted, where the engine is known to be noisy, for slices
        and recovery, which are judged on the whole of the data, where the answers of the accepted
        result are not kept, and for a cell that is listed as known bad with its values: a part of
        the samples could not be compared with them.
        """
        if planned.rules.stop is Stop.ALL or self._settings.accepting is not None:
            return None
        if needs_all_samples(planned.rules):
            return None
        if self._settings.uses_floors and here.is_noisy:
            return None
        listed = planned.quarantine_entry(here.environment)
        if listed is not None and listed.values:
            return None
        if here.result is not None and not here.result.kept:
            return None
        return StopRule(
            tolerance=planned.tolerance(here.environment), rules=planned.rules, floors=here.floors
        )

    def _reference(self, planned: PlannedCell, shared: SubjectArtifacts) -> Mapping[str, Answers]:
        """The stored fp32 answers when they are of this model, data and preprocessing; else
        today's fp32 run.

        For a model without a float model: the answers of the backend that the cell is compared
            with.
        """
        if planned.model.is_alone and planned.criterion is not None:
            other = self._catalogues.backends.get(planned.criterion.backend)
            return shared.given_answers(other, threads=self.suite.table.threads)
        # Read even if it will be replaced: a baseline that cannot be read is an error before
        # anything is measured.
        baseline = (
            None if self._settings.limit is not None else self._baselines.get(planned.model.id)
        )
        if (
            baseline is not None
            and not self._accepts_reference
            and not baseline.stale(shared.identity())
        ):
            return baseline.stored
        return shared.reference()

    def judge(self, planned: PlannedCell, measurement: Measurement) -> Verdict:
        """The verdict on ``measurement`` by the settings of its cell, the baseline, and what
        this run accepts.

        ACCEPTED if this run accepts a new or changed result; a loss beyond its rule stays red.
        """
        expectation = self.expectation(planned, measurement)
        verdict = self._approved(
            planned, measurement, self._judged(planned, measurement, expectation)
        )
        if planned.test and verdict.outcome is Outcome.MISSING:
            known = replace(expectation, cell_known=True)
            verdict = judged_alone(self._judged(planned, measurement, known))
        notices = (*verdict.notices, *self._settings.cache.take_notices(), *take_unprotected())
        return replace(verdict, notices=notices)

    def _judged(
        self, planned: PlannedCell, measurement: Measurement, expectation: Expectation
    ) -> Verdict:
        return judge(
            measurement,
            expectation,
            tolerance=planned.tolerance(measurement.environment),
            criterion=planned.criterion,
            rules=planned.rules,
            quarantine=planned.quarantine_entry(measurement.environment),
            today=self._settings.today,
            node_id=self._node_id(planned, expectation),
        )

    def _node_id(self, planned: PlannedCell, expectation: Expectation) -> str:
        """What pytest calls ``planned``, for the commands of its verdict."""
        if planned.test:
            return planned.test
        cell = planned.cell
        if expectation.state is not State.KNOWN and planned.partner is not None:
            # the missing reference is that of the partner: the remedy names the node that makes it
            cell = replace(cell, model=planned.partner.id)
        return f"{self._settings.suite_path}::{cell}"

    def _approved(
        self, planned: PlannedCell, measurement: Measurement, verdict: Verdict
    ) -> Verdict:
        """``verdict`` after what this run accepts."""
        if self._settings.accepting is None or verdict.outcome not in APPROVABLE:
            return verdict
        acceptance = self.acceptance(planned, [measurement])
        if acceptance is None or not is_taken(acceptance, measurement, verdict):
            return verdict
        return approved(verdict, planned.test)

    def expectation(self, planned: PlannedCell, measurement: Measurement) -> Expectation:
        """What the baseline expects of this cell; a reference this run accepts counts as known."""
        if planned.model.is_alone:
            return Expectation(whole=self._settings.limit is None, stored=False)
        if self._settings.limit is not None:
            return Expectation(whole=False)
        model = planned.model.id
        baseline = self._baselines.get(model)
        if baseline is not None:
            counts = {
                name: len(dataset) for name, dataset in self.shared(planned).subject.data.items()
            }
            expected = baseline.expectation(
                planned.cell, measurement.digests, trusted=self._accepts_reference, samples=counts
            )
            if expected.state is State.STALE:
                expected = replace(expected, retrained=self._retrained(planned, baseline))
            # A cell in quarantine on some machines is not accepted there, so it may be missing from
            # the baseline.
            return replace(expected, cell_known=expected.cell_known or bool(planned.quarantine))
        if self._accepts_reference or planned.test:  # a test is judged against today's fp32 run
            return Expectation(cell_known=False)
        reference = model if planned.partner is None else planned.partner.id
        return Expectation.missing(f"no baseline of '{reference}' in suite '{self.suite.name}'")

    def _retrained(
        self, planned: PlannedCell, baseline: Baseline
    ) -> tuple[tuple[Score, Gate], ...]:
        """What today's fp32 model lost and gained against the one of ``baseline``, by the
        tolerance of an fp32 cell.

        On the data sets whose samples and labels are the same; nothing where the model and its
        preprocessing are.
        """
        key = planned.model.id, planned.rules.decision
        if key not in self._moved_references:
            self._moved_references[key] = tuple(self._each_retrained(planned, baseline))
        return self._moved_references[key]

    def _each_retrained(
        self, planned: PlannedCell, baseline: Baseline
    ) -> Iterator[tuple[Score, Gate]]:
        shared = self.shared(planned)
        identity = shared.identity()
        if not baseline.is_of_another_model(identity):
            return
        table, backend = planned.partner or planned.model, self.suite.table.reference
        cell, environment = (
            Cell(self.suite.name, table.id, backend, FP32),
            self._class_of(self._catalogues.reference(backend)),
        )
        tolerances = tolerances_of(self.suite, table, cell)
        tolerance = next(one for when, one in tolerances if environment.matches(when))
        today = shared.reference()
        for use in shared.subject.metrics:
            stored, known = baseline.stored.get(use.data), baseline.data.get(use.data)
            if use.metric.of_run or use.metric.is_distance or stored is None or known is None:
                continue
            if known.digest != identity.get(f"data:{use.data}"):
                continue
            before, data = (
                task_answers(shared.subject.model.task, stored),
                shared.subject.data[use.data],
            )
            with contextlib.suppress(ValueError):
                # the metric counts more than the stored answers, or another form
                lost = score(
                    use.metric,
                    today[use.data],
                    labels=data.labels,
                    reference=before,
                    name=use.name,
                    sources=data.drawn_from,
                )
                yield lost, retrained_gate(lost, tolerance, planned.rules.decision)

    def acceptance(
        self, planned: PlannedCell, measurements: Sequence[Measurement]
    ) -> Acceptance | None:
        """The baseline of ``planned``'s model after this run's accepting; None: the model
        cannot have one.

        Args:
            planned: any cell of the model.
            measurements: of cells of that model.

        Raises:
            InputError: a result would be replaced without a reason.
        """
        accepting, baseline = self._settings.accepting, self._baselines.get(planned.model.id)
        if accepting is None or not measurements or planned.model.is_alone:
            return None
        # the first result of a test brings its reference along
        replaces = accepting.fp32 or (bool(planned.test) and baseline is None)
        replaced = (
            self._replaced(planned, measurements[0], accepting, baseline) if replaces else None
        )
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
        self,
        planned: PlannedCell,
        measurement: Measurement,
        accepting: Accepting,
        baseline: Baseline | None,
    ) -> Acceptance:
        """Today's fp32 run as the reference; that of a partner is accepted with the partner and
        copied here.
        """
        backend = self.suite.table.reference
        borrows = planned.model.id in self.suite.partners
        replaced = accept_reference(
            None if borrows else baseline,
            measurement,
            self.shared(planned).reference(),
            backend=backend,
            environment_class=str(self.environment(backend)),
            reason=accepting.reason,
        )
        if not borrows:
            return replace(replaced, baseline=replace(replaced.baseline, test=planned.test))
        model = planned.model.id
        return Acceptance(
            baseline=replaced.baseline.as_reference_of(model, self._baselines.own(model))
        )

    def accept(
        self, planned: PlannedCell, measurements: Sequence[Measurement]
    ) -> Acceptance | None:
        """Accept this run's results into the baseline of ``planned``'s model; None: the model
        cannot have one.

        The acceptance is computed twice: first from the baseline that the run was judged by,
        because a run that accepts nothing takes no lock; then under the lock from the current file,
        because another process may have changed it.

        Args:
            planned, measurements: as ``acceptance``.

        Raises:
                InputError: a result would be replaced without a reason. StoreError: the baseline
                cannot be written, or holds something that cannot be read and that this run does not
                make again.
        """
        model = planned.model.id
        expected, lost = self.acceptance(planned, measurements), self._baselines.lost(model)
        if expected is None or not (expected.rows or lost):
            return expected
        with self._baselines.changing(model) as change:
            done = self.acceptance(planned, measurements)
            lost = self._baselines.lost(model)
            if done is not None and (done.rows or lost):
                refuse_unread(model, done)
                change.save(done.baseline)
        if done is None:
            return None
        missed = sorted({row.cell for row in expected.rows} - {row.cell for row in done.rows})
        notices = [
            f"A damaged part of the baseline of '{model}' was replaced; the readable rest was "
            f"kept: {sentence}"
            for sentence in lost
        ]
        if missed:
            notices.append(
                f"Not taken into '{model}', which another process changed meanwhile: "
                f"{', '.join(missed)}"
            )
        return replace(done, notices=(*done.notices, *notices))

    def shared(self, planned: PlannedCell) -> SubjectArtifacts:
        """The artifacts that the cells of this model and calibration share; those of the former
        model are released.
        """
        key = (planned.model.id, planned.calibration)
        if self._current is None or self._current[0] != key:
            self._current = None  # free it first: two large models may not fit into memory
            reference = self._catalogues.reference(self.suite.table.reference)
            shared = SubjectArtifacts(
                self._subject
                or make_subject(
                    planned.model,
                    planned.calibration,
                    self._catalogues,
                    limit=self._settings.limit,
                    partner=planned.partner,
                ),
                self._settings.cache,
                reference,
                str(self._class_of(reference)),
                quantizes_twice=self._settings.quantizes_twice,
            )
            if not planned.model.is_alone:
                shared.require_float()
            self._current = (key, shared)
        return self._current[1]

    def previews(
        self, planned: PlannedCell, samples: SamplesByData, is_known: Callable[[str, str], bool]
    ) -> SamplePreviews:
        """What the listed ``samples`` of a cell look like.

        Args:
            is_known: whether the data with this digest has a preview of this sample already.
        """
        return previews_of(self.shared(planned).subject, samples, is_known)

    def data_notes(self, planned: PlannedCell) -> tuple[str, ...]:
        """What a user should know of the scored data: empty before a cell of the model has run,
        and of the same data.

        The first cell in integers prepares calibration data; then the sentences are more.
        """
        key = (planned.model.id, planned.calibration)
        if self._current is None or self._current[0] != key:
            return ()
        shared = self._current[1]
        if self._noted == (key, shared.prepared):
            return ()
        self._noted = (key, shared.prepared)  # it reads every name
        of_names = (
            note
            for data in shared.subject.data.values()
            for note in data_notes(shared.subject.model, data)
        )
        return (*of_names, *shared.content_notes())

    @property
    def _accepts_reference(self) -> bool:
        return self._settings.accepting is not None and self._settings.accepting.fp32

    def _was_accepted(self, planned: PlannedCell) -> bool:
        """Whether a result of this cell was accepted on this class of processor and the device of
        its backend; False in a run over few samples.

        Where the cell ended before its backend was made, the device is not known: a result of any
        device counts.

        Raises:
            StoreError: the baseline cannot be read.
        """
        baseline = (
            None if self._settings.limit is not None else self._baselines.get(planned.model.id)
        )
        known = None if baseline is None else baseline.cells.get(planned.cell.slug)
        if known is None:
            return False
        device = self._devices.get(planned.cell.backend)
        return accepted_on(known.accepted, self.processor, device=device)


def approve_run(
    bench: Bench, cells: Sequence[tuple[PlannedCell, Measurement]]
) -> tuple[tuple[str, Acceptance], ...]:
    """Accept the results ``cells`` into their baselines; (model, what changed) for each.

    Args:
        bench: of the suite, with ``Settings.accepting``.
        cells: with their measurements, in any order.

    Raises:
        QbenchError: the results of a model cannot be accepted, or its baseline cannot be written;
            the models before it, in the order of ``cells``, are accepted.
    """
    models: dict[str, list[tuple[PlannedCell, Measurement]]] = {}
    for planned, measurement in cells:
        models.setdefault(planned.model.id, []).append((planned, measurement))
    done = []
    for model, measured in models.items():
        acceptance = bench.accept(measured[0][0], [measurement for _, measurement in measured])
        if acceptance is not None:
            done.append((model, acceptance))
    return tuple(done)

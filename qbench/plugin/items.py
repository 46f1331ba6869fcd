"""One cell as a pytest item: measure and judge it, keep its line for the run file, localize it
when red.
"""

import enum
import functools
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench import number_text
from qbench.errors import InputError, StoreError, UnsupportedError, refused_by_system
from qbench.extension import named_also, with_known
from qbench.plugin.item_state import ITEM_STATE, ItemState, SuiteFacts
from qbench.plugin.opening import OpenSuite
from qbench.plugin.options import OPTIONS
from qbench.plugin.skips import ENDS_SESSION, is_skip, skip_reason

if TYPE_CHECKING:
    from qbench.diagnosis import Budget
    from qbench.judging import Finding, SamplesByData, Verdict
    from qbench.plugin.resuming import Taken
    from qbench.suite import JudgedCell, PlannedCell


_PACKAGE = Path(__file__).parents[1]


class RedCell(Exception):  # noqa: N818 - it is a result, not an error
    """The verdict of a cell is red; the text is the whole message."""


class CellItem(pytest.Item):
    """A cell of a suite file."""

    def __init__(
        self,
        *,
        planned: "PlannedCell",
        opened: OpenSuite,
        facts: SuiteFacts,
        marker: pytest.MarkDecorator,
        name: str,
        parent: pytest.Collector,
    ) -> None:
        super().__init__(name, parent)
        self.planned = planned
        self.facts = facts
        self.opened = opened
        self.stash[ITEM_STATE] = ItemState(
            facts, is_cell=True, location=(str(facts.file), planned.line + 1)
        )
        self.add_marker(marker)
        self._taken: Taken | None = None

    def setup(self) -> None:
        """Find out whether the cell is taken over from an unfinished run."""
        super().setup()
        if self.config.stash[OPTIONS].resume:
            from qbench.plugin.resuming import taken_over

            self._taken = taken_over(self.config, self.facts, self.planned)
        cell = self.planned.cell
        self.stash[ITEM_STATE].begins = (
            {axis: getattr(cell, axis) for axis in _AXES} if self._taken is None else None
        )

    def runtest(self) -> None:
        """Measure, judge, and raise the pytest outcome."""
        if self._taken is not None:
            keep_taken(self, self._taken)
            conclude_taken(self, self._taken)
            return
        missing = self.config.stash[OPTIONS].missing
        judged = judged_cell(self, self.opened, self.planned, missing=missing, carries=True)
        if judged.verdict.outcome.is_red:
            self.stash[ITEM_STATE].finding = finding_of(self.opened, judged, self.config)
        search = ""
        if _is_wrong(judged.verdict) and judged.measurement:
            search = localize_command(
                self.planned, self._moved_baseline(judged.verdict), ranges=self._ranges_file()
            )
        conclude(judged.verdict, str(self.planned.cell), missing, detail_of(self.config), search)

    def _moved_baseline(self, verdict: "Verdict") -> Path | None:
        """The baseline whose calibrated ranges are not those of the cell; None: they are."""
        from qbench.tracking import baseline_path

        if not verdict.moved:
            return None
        cell = self.planned.cell
        return self._as_typed(
            baseline_path(self.config.stash[OPTIONS].baselines, cell.suite, cell.model)
        )

    def _ranges_file(self) -> Path | None:
        """The file of ranges by hand of the cell; None: it has none."""
        from qbench.suite import ranges_file_of

        path = ranges_file_of(self.path.parent, self.planned.rules)
        return None if path is None else self._as_typed(path)

    def _as_typed(self, path: Path) -> Path:
        """``path`` as a command takes it that is typed where pytest was started."""
        here = self.config.invocation_params.dir
        return path.relative_to(here) if path.is_relative_to(here) else path

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401, ARG002
        """The message of a red verdict or of a disk that cannot be written; for any other error the
        traceback from here on.
        """
        if isinstance(excinfo.value, RedCell | StoreError):
            return str(excinfo.value)
        if isinstance(excinfo.value, OSError | MemoryError):
            return str(refused_by_system(f"Measuring {self.planned.cell}", excinfo.value))
        excinfo.traceback = excinfo.traceback.cut(path=__file__)
        if detail_of(self.config) is not Detail.NUMBERS:
            # For an error in a user's file only the frames of that file are shown: the frames of
            # qbench before it say nothing.
            excinfo.traceback = excinfo.traceback.filter(_is_outside) or excinfo.traceback
        chosen = self.config.getoption("tbstyle", "auto")
        return excinfo.getrepr(style="short" if chosen == "auto" else chosen)

    def reportinfo(self) -> tuple[str, int, str]:
        """The line of the model in the suite file."""
        return str(self.facts.file), self.planned.line, str(self.planned.cell)


_AXES = ("suite", "model", "backend", "schema", "variant")


def keep_taken(item: CellItem, taken: "Taken") -> None:
    """Keep the lines of a cell that another run measured, as they are."""
    state = item.stash[ITEM_STATE]
    state.line, state.finding, state.samples = taken.line, taken.finding, taken.samples
    _add_properties(item, taken.line)


def conclude_taken(item: CellItem, taken: "Taken") -> None:
    """Nothing when the taken over cell is green, a skip when it is unsupported.

    Raises:
        RedCell: it is red.
    """
    from qbench.judging import Outcome
    from qbench.tracking import record_of_line

    record, missing = record_of_line(taken.line), item.config.stash[OPTIONS].missing
    if record.outcome == Outcome.UNSUPPORTED.value or (
        record.outcome == Outcome.MISSING.value and missing == "skip"
    ):
        pytest.skip(record.headline)
    if not record.is_red:
        return
    lines = [record.headline]
    if detail_of(item.config) is not Detail.HEADLINE:
        lines.append(f"  cell: {item.planned.cell} is {record.outcome}")
        marks = {"holds": "✓", "broken": "✗"}
        lines += [
            f"  {marks.get(gate.state, '·')} {gate.kind}: {gate.detail}" for gate in record.gates
        ]
        lines += [f"  rule: {record.rule}"] if record.rule else []
        lines += [f"  taken over: measured by run '{taken.run}'"] if taken.run else []
        lines += [f"  next: {record.remedy}"] if record.remedy else []
    raise RedCell("\n".join(lines))


def _is_outside(entry: Any) -> bool:  # noqa: ANN401 - a private type of pytest
    """Whether the frame belongs neither to qbench nor to ``functools``, whose cached properties lie
    between qbench's frames.
    """
    path = Path(entry.path)
    return _PACKAGE not in path.parents and path != Path(functools.__file__)


def cell_marker(planned: "PlannedCell", base: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """The marker by which ``-m 'qbench(backend="ort-cpu")'`` selects exactly.

    ``base`` is ``pytest.mark.qbench``, looked up once: that lookup is slower than making the marker
    of one cell.
    """
    cell = planned.cell
    return base.with_args(
        model=cell.model, backend=cell.backend, schema=cell.schema, variant=cell.variant
    )


def judged_cell(
    item: pytest.Item,
    opened: OpenSuite,
    planned: "PlannedCell",
    *,
    missing: str = "fail",
    carries: bool = False,
) -> "JudgedCell":
    """``planned`` measured and judged; ``item`` keeps its line, also where measuring ends in an
    error or in a skip.

    Args:
        missing: the option of that name.
        carries: whether an earlier result will do; a Python test wants the measurement itself.
    """
    from qbench.judging import Outcome

    known = with_known(opened.added)
    try:
        # a loader may look names up: what exports a module, what reads a format
        with named_also(lambda: known):
            judged = opened.run(planned) if carries else opened.bench.run(planned)
    except ENDS_SESSION:
        raise
    except BaseException as error:
        judged = unmeasured_cell(opened, planned, error)
        _keep_line(item, judged.record.line())
        if not is_skip(error):
            raise
        return judged
    line = judged.record.line()
    if judged.verdict.outcome is Outcome.MISSING and missing != "fail":
        line["excused"] = f"--qbench-missing={missing}"
    _keep_line(item, line)
    told = opened.told if carries else opened.notes
    item.stash[ITEM_STATE].notes = (*told, *opened.bench.data_notes(planned))
    if judged.measurement is not None and judged.measurement.samples:
        _keep_samples(item, opened, planned, judged.measurement.samples)
    return judged


def _keep_samples(
    item: pytest.Item, opened: OpenSuite, planned: "PlannedCell", samples: "SamplesByData"
) -> None:
    """Keep the line of ``samples``, and their previews that are neither next to the reports nor
    on their way there.
    """
    from qbench.storage import has_preview
    from qbench.tracking import samples_line

    state, reports = item.stash[ITEM_STATE], item.config.stash[OPTIONS].reports
    state.samples = samples_line(planned.cell, samples)
    sent = item.config.stash.setdefault(_PREVIEWED, set())
    made = opened.bench.previews(
        planned, samples, lambda *one: one in sent or has_preview(reports, *one)
    )
    sent |= {(one.digest, sample.id) for one in samples.values() for sample in one.samples}
    state.previews = tuple(
        (digest, sample, asdict(preview)) for digest, sample, preview in made.found
    )
    state.notes = (*state.notes, *made.problems)


_PREVIEWED = pytest.StashKey[set[tuple[str, str]]]()
"""(data, sample) whose previews this process has made, or could not make."""


def unmeasured_cell(
    opened: OpenSuite, planned: "PlannedCell", error: BaseException
) -> "JudgedCell":
    """The cell that ended with ``error`` instead of numbers; a skip is an outcome like that of
    a missing engine.
    """
    from qbench.suite import JudgedCell

    cause = error
    if is_skip(error):
        cause = UnsupportedError(
            f"Running '{planned.cell}'",
            found=f"a skip ({skip_reason(error)})",
            expected="a measurement",
            remedy="Install or repair what it needs, or leave the cell out of the suite.",
        )
    try:
        return opened.bench.unmeasured(planned, cause)
    except ENDS_SESSION:
        raise
    except BaseException as other:  # without a bench it is not known whether a result was accepted
        return JudgedCell.unmeasured(planned, other)


def complete_report(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Make the line of a cell that ended before it was measured, and ``report`` red where its
    line is.

    Marks, fixtures and hooks can skip an item, or report a red one as an expected failure. A Python
    test that measured its cell decides by itself what its result means.
    """
    found = _cell_behind(item)
    if found is None or item.config.getoption("setuponly", False):
        return
    opened, facts, planned = found
    state = item.stash.setdefault(
        ITEM_STATE, ItemState(facts, is_cell=False, location=item_location(item))
    )
    if report.when == "teardown":
        state.forget()  # an item can be run again
    if report.when == "teardown" or (report.when == "setup" and report.passed):
        return
    if state.line is None and (state.is_cell or report.skipped):
        error = None if call.excinfo is None else call.excinfo.value
        keep_unmeasured(item, unmeasured_cell(opened, planned, _what_ended(error, report)))
    elif not state.is_cell:
        return
    line = state.line
    if line is not None and is_red_line(line) and not report.failed:
        report.outcome = "failed"
        report.longrepr = f"{line['headline']}\n  cell: {planned.cell} is {line['outcome']}"
        if hasattr(report, "wasxfail"):
            del report.wasxfail


def is_red_line(line: Mapping[str, Any]) -> bool:
    """Whether the ``cell`` line fails the run."""
    from qbench.tracking import record_of_line

    return record_of_line(line).is_red


def keep_unmeasured(item: pytest.Item, judged: "JudgedCell") -> None:
    """Keep the line of ``judged``; a hook that fails here, where pytest makes the report, would
    end the session.
    """
    try:
        _keep_line(item, judged.record.line())
    except ENDS_SESSION:
        raise
    except BaseException as error:
        item.stash[ITEM_STATE].notes = (
            f"a hook pytest_qbench_update_record failed: {type(error).__name__}: {error}",
        )


def _what_ended(error: BaseException | None, report: pytest.TestReport) -> BaseException:
    """``error``, or where there is none an error that says how the item ended."""
    if error is not None and (report.failed or is_skip(error)):
        return error
    if report.skipped:
        return pytest.skip.Exception(
            str(getattr(report, "wasxfail", "") or report.longrepr or "no reason")
        )
    return RuntimeError("the item ended without measuring its cell")


def _cell_behind(item: pytest.Item) -> "tuple[OpenSuite, SuiteFacts, PlannedCell] | None":
    """The suite and the cell of ``item``: of a suite file, or of a Python test with the fixture
    ``qbench_cell``.
    """
    if isinstance(item, CellItem):
        return item.opened, item.facts, item.planned
    call = getattr(item, "callspec", None)
    return None if call is None else call.params.get("qbench_cell")


def item_location(item: pytest.Item) -> tuple[str, int]:
    """File and line of a Python test."""
    return str(item.path), (item.location[1] or 0) + 1


def _keep_line(item: pytest.Item, line: dict[str, Any]) -> None:
    """Keep ``line`` after the hooks ``pytest_qbench_update_record``, in plain values; where a hook
    fails, as it was before.

    Raises:
        TypeError, ValueError: a hook added a value that JSON cannot hold.
        InputError: a hook skips the item, whose cell is judged by now.
    """
    from qbench.storage import plain

    item.stash[ITEM_STATE].line = plain(line)
    try:
        item.ihook.pytest_qbench_update_record(config=item.config, record=line)
    except BaseException as error:
        if not is_skip(error):
            raise
        raise InputError(
            f"Running the hook pytest_qbench_update_record for '{item.name}'",
            found=f"a skip ({skip_reason(error)})",
            expected="a hook that changes the record",
            remedy="Return from the hook instead.",
        ) from error
    line = plain(line)
    _add_properties(item, line)
    item.stash[ITEM_STATE].line = line


def _add_properties(item: pytest.Item, line: dict[str, Any]) -> None:
    """Give pytest's ``--junitxml`` what ``line`` says."""
    if item.config.getoption("xmlpath", None):
        from qbench.reporting import cell_facts
        from qbench.tracking import record_of_line

        item.user_properties.extend(cell_facts(record_of_line(line)).items())


class Detail(enum.IntEnum):
    """How much the message of a red cell says."""

    HEADLINE = 0
    BROKEN = 1  # only gates that are not met, and the next step
    SENTENCES = 2  # each gate in one sentence
    NUMBERS = 3  # and all statistics


def detail_of(config: pytest.Config) -> Detail:
    """The detail that ``--tb`` and ``-v`` or ``-q`` request, as for the traceback of any test."""
    style, verbose = config.getoption("tbstyle", "auto"), config.getoption("verbose", 0)
    if style == "line":
        return Detail.HEADLINE
    if style in ("short", "native") or verbose < 0:
        return Detail.BROKEN
    return Detail.NUMBERS if style == "long" or verbose > 0 else Detail.SENTENCES


def localize_command(
    planned: "PlannedCell", baseline: Path | None = None, *, ranges: Path | None = None
) -> str:
    """What to type for the whole finding of a cell, by the names of its suite; empty where the
    verb cannot.

    Args:
        baseline: whose calibrated ranges are not those of the cell; None: its ranges are accepted.
        ranges: the file of ranges by hand; None: the schema chooses them all.
    """
    cell, calibration = planned.cell, planned.calibration
    if cell.is_fp32 or cell.is_given or cell.is_recorded or planned.passes != "none":
        return ""
    model = planned.model.subject or cell.model
    command = (
        f"qbench localize {model} --backend {cell.backend} --schema {cell.schema} --data "
        f"{planned.model.data} --calib {calibration.data} --calib-count {calibration.count}"
    )
    if ranges is not None:
        command += f" --ranges {shlex.quote(str(ranges))}"
    if baseline is None:
        return command
    variant = f" --variant {planned.recalibrated}" if planned.recalibrated else ""
    return f"{command} --baseline {shlex.quote(str(baseline))}{variant}"


def conclude(
    verdict: "Verdict", cell: str, missing: str, detail: Detail = Detail.SENTENCES, search: str = ""
) -> None:
    """Nothing when green, a skip when unsupported, else the red verdict.

    Args:
        missing: the option of that name.
        search: the command that looks for the cause; empty: there is none.

    Raises:
        RedCell: the verdict is red.
    """
    from qbench.judging import Outcome

    if verdict.outcome is Outcome.UNSUPPORTED or (
        verdict.outcome is Outcome.MISSING and missing == "skip"
    ):
        pytest.skip(verdict.headline)
    if verdict.outcome.is_red and not (verdict.outcome is Outcome.MISSING and missing == "warn"):
        raise RedCell(red_text(verdict, cell, detail, search))


def red_text(
    verdict: "Verdict", cell: str, detail: Detail = Detail.SENTENCES, search: str = ""
) -> str:
    """Headline, gates, rule, ``search`` for the cause and remedy; as much of them as ``detail``
    says.

    The headline comes first: pytest's short summary shows as much of the first line as fits after
    the cell's name.
    """
    from qbench.judging import NO_LONGER_FAILS, THEN, GateState

    if detail is Detail.HEADLINE:
        return verdict.headline
    outcome = (
        NO_LONGER_FAILS
        if verdict.headline.startswith(NO_LONGER_FAILS)
        else f"is {verdict.outcome.value}"
    )
    lines = [verdict.headline, f"  cell: {cell} {outcome}"]
    for gate in verdict.gates:
        if detail is Detail.BROKEN and gate.state not in (GateState.BROKEN, GateState.INCONCLUSIVE):
            continue
        mark = {GateState.HOLDS: "✓", GateState.BROKEN: "✗"}.get(gate.state, "·")
        lines.append(
            f"  {mark} {gate.kind}: {gate.detail if detail is Detail.NUMBERS else gate.sentence}"
        )
    if verdict.rule:
        lines.append(f"  rule: {verdict.rule}")
    text = "\n".join(lines)
    if detail > Detail.BROKEN:
        lines += [
            f"  note: {notice}"
            for notice in verdict.notices
            if (notice.partition(": ")[2] or notice) not in text
        ]
    if search:
        lines.append(f"  cause: {search}")
    if verdict.remedy and verdict.remedy not in verdict.headline:
        first, *later = verdict.remedy.split(THEN)
        lines += [f"  next: {first}", *(f"  then: {step}" for step in later)]
    return "\n".join(lines)


# Red cells are localized in the process that measured them, within a time budget; the report
# carries the finding.
#
# If localizing fails, the finding holds one sentence about it: the cell stays red for its own
# reason.

LOCALIZED_CELLS = 6
"""A process localizes for at most this many times the budget of one cell, because many red cells
have few causes.
"""
_SPENT = pytest.StashKey[list[float]]()


def finding_of(
    opened: OpenSuite, judged: "JudgedCell", config: pytest.Config
) -> dict[str, Any] | None:
    """The ``finding`` line of the red cell ``judged``; None where nothing can be localized or
    no time is left.
    """
    seconds, spent = config.stash[OPTIONS].localize, config.stash.setdefault(_SPENT, [])
    left = min(seconds, LOCALIZED_CELLS * seconds - sum(spent))
    cell = judged.planned.cell
    if judged.measurement is None or left <= 0 or cell.is_fp32 or not _is_wrong(judged.verdict):
        return None
    from qbench.diagnosis import Budget
    from qbench.judging import Finding
    from qbench.tracking import finding_line

    budget = Budget.begin(left, time.perf_counter)
    try:
        line = finding_line(cell, _localized(opened, judged, budget))
    except ENDS_SESSION:
        raise
    except BaseException as error:  # also a skip: it must not replace the verdict of the cell
        problem = " ".join(str(error).split()) or type(error).__name__
        finding = Finding(
            model=cell.model,
            backend=cell.backend,
            schema=cell.schema,
            samples=0,
            notes=(f"could not be localised: {problem}",),
            complete=False,
        )
        line = finding_line(cell, finding)
    spent.append(budget.spent)
    return line


def _is_wrong(verdict: "Verdict") -> bool:
    """Whether the numbers are wrong: the cell fails, drifts, or would fail if it had been
    accepted before.
    """
    from qbench.judging import CULPRITS, FAILING, GateState, Outcome

    broken = [gate for gate in verdict.gates if gate.state is GateState.BROKEN]
    if broken and all(gate.kind not in CULPRITS for gate in broken):
        return False  # such a gate is not about numbers, so they lead to no node
    if verdict.outcome is not Outcome.MISSING:
        return verdict.outcome in (Outcome.FAILED, Outcome.DRIFTED)
    return any(gate.kind in FAILING for gate in broken)


def _localized(opened: OpenSuite, judged: "JudgedCell", budget: "Budget") -> "Finding":
    from qbench.diagnosis import LocalizeOptions, localize_verdict, samples_that_moved
    from qbench.suite import repeatable_cell

    cell = repeatable_cell(opened.bench, judged.planned)
    moved = () if judged.measurement is None else samples_that_moved(judged.measurement)
    named = judged.planned.cell
    axes = {
        "model": named.model,
        "backend": named.backend,
        "schema": named.schema,
        "variant": named.variant,
    }
    in_float = () if judged.measurement is None else judged.measurement.executed_in_float
    options = LocalizeOptions(first=moved, suspects=3, override=_name(axes), in_float=in_float)
    return localize_verdict(cell, judged.verdict, budget, options=options)


def keep_overrides(finding: Mapping[str, Any], reports: Path) -> Path | None:
    """Write the schema file that repairs the cell of a ``finding`` line below ``reports``;
    None: it has none.

    ``reports/overrides/<suite>/<model>.<backend>.<schema>[.<variant>].toml``

    Raises:
        StoreError: the folder cannot be written.
    """
    from qbench.storage import write_text

    text = finding["finding"].get("repair", {}).get("overrides", "")
    if not text:
        return None
    path = reports / "overrides" / str(finding["suite"]) / f"{_name(finding)}.toml"
    write_text(path, text)
    return path


def _name(axes: Mapping[str, Any]) -> str:
    """The name of the repaired schema and of its file."""
    return ".".join(
        str(axes[name]) for name in ("model", "backend", "schema", "variant") if axes[name]
    )


Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]

_OWN = {
    "quarantined": ("q", "yellow"),
    "inconclusive": ("i", "yellow"),
    "accepted": ("A", "green"),
    "missing": ("m", "yellow"),
}


def status_of(report: pytest.TestReport, *, verbose: bool) -> Status | None:
    """Category, letter and word of the report of a cell; None where pytest's own fit.

    With ``verbose`` the change of the first score follows the word, and the number of samples after
    which the cell stopped.
    """
    line: Mapping[str, Any] = report.qbench
    outcome = line["outcome"]
    change = f" {change_text(line)}" if verbose and change_text(line) else ""
    if change and line.get("stopped"):
        ran, of = (sum(line["stopped"][which].values()) for which in ("samples", "of"))
        change += f", stopped after {ran} of {of} samples: decided"
    if verbose and line.get("resumed_from"):
        change += ", taken over"
    if report.passed and line.get("carried"):
        return "passed", "c", (f"PASSED (carried){change}", {"green": True})
    if report.passed and line.get("ungated") and outcome in ("passed", "accepted"):
        return "unjudged", "u", (f"UNJUDGED{change}", {"yellow": True})
    if report.passed and outcome in _OWN:
        letter, colour = _OWN[outcome]
        return outcome, letter, (outcome.upper() + change, {colour: True})
    if report.passed and outcome == "passed" and change:
        return "passed", ".", (f"PASSED{change}", {"green": True})
    if report.failed and outcome not in ("passed", "inconclusive", "accepted", "quarantined"):
        return "failed", "F", (outcome_word(line).upper() + change, {"red": True})
    return None


def outcome_word(line: Mapping[str, Any]) -> str:
    """The word for the outcome: files say ``expired`` also for a quarantine entry whose cell no
    longer fails.
    """
    from qbench.judging import NO_LONGER_FAILS

    is_fixed = line["outcome"] == "expired" and str(line.get("headline", "")).startswith(
        NO_LONGER_FAILS
    )
    return NO_LONGER_FAILS if is_fixed else str(line["outcome"])


def change_text(line: Mapping[str, Any]) -> str:
    """``top1 −0.42 pp`` for the first metric of ``line``, of several runs their mean; empty
    when there is none.
    """
    repeated = (line.get("repeats") or {}).get("metrics", {})
    for name, score in line.get("metrics", {}).items():
        hits = repeated.get(name, {}).get("hits") or [score["hits"]]
        change = (sum(hits) / len(hits) - score["reference_hits"]) / score["out_of"]
        return f"{name} {number_text.change_text(change, score.get('unit', '%'))}"
    return ""

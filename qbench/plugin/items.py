"""One cell as a pytest item: run the bench, keep the record, and be green, skipped or red with a few plain lines."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import StoreError, refused_by_system
from qbench.plugin.opening import OpenSuite
from qbench.plugin.options import OPTIONS
from qbench.plugin.tags import TAGGED, Tag, Tagged

if TYPE_CHECKING:
    from qbench.diagnosis import Budget
    from qbench.judging import Finding, Verdict
    from qbench.suite import JudgedCell, PlannedCell


class RedCell(Exception):  # noqa: N818 - it is a result, not an error
    """A cell whose verdict is red; its text is the whole message."""


class CellItem(pytest.Item):
    """A cell of a suite file."""

    def __init__(
        self,
        *,
        planned: "PlannedCell",
        opened: OpenSuite,
        tag: Tag,
        marker: pytest.MarkDecorator,
        name: str,
        parent: pytest.Collector,
    ) -> None:
        super().__init__(name, parent)
        self.planned = planned
        self.tag = tag
        self._opened = opened
        self.stash[TAGGED] = Tagged(tag, is_cell=True, location=(str(tag.file), planned.line + 1))
        self.add_marker(marker)

    def runtest(self) -> None:
        """Measure, judge, and raise what pytest should make of it."""
        from qbench.judging import Outcome
        from qbench.suite import JudgedCell

        tagged = self.stash[TAGGED]
        try:
            judged = self._opened.bench.run(self.planned)
        except Exception as error:
            tagged.record = finished_record(self, JudgedCell.unmeasured(self.planned, error).record.line())
            raise
        missing = self.config.stash[OPTIONS].missing
        line = judged.record.line()
        if judged.verdict.outcome is Outcome.MISSING and missing != "fail":
            line["excused"] = f"--qbench-missing={missing}"
        tagged.record = finished_record(self, line)
        if judged.verdict.outcome.is_red:
            tagged.finding = finding_of(self._opened, judged, self.config)
        conclude(judged.verdict, str(self.planned.cell), missing)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401, ARG002
        """A red verdict, and a disk that refuses, in its own words; anything else with its traceback, from here on."""
        if isinstance(excinfo.value, RedCell | StoreError):
            return str(excinfo.value)
        if isinstance(excinfo.value, OSError | MemoryError):
            return str(refused_by_system(f"Measuring {self.planned.cell}", excinfo.value))
        excinfo.traceback = excinfo.traceback.cut(path=__file__)
        chosen = self.config.getoption("tbstyle", "auto")
        return excinfo.getrepr(style="short" if chosen == "auto" else chosen)

    def reportinfo(self) -> tuple[str, int, str]:
        """The line of the model in the suite file."""
        return str(self.tag.file), self.planned.line, str(self.planned.cell)


def cell_marker(planned: "PlannedCell", base: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """The marker by which ``-m 'qbench(backend="ort-cpu")'`` selects exactly.

    ``base`` is ``pytest.mark.qbench``, looked up once: with thousands of cells its lookup would cost more than they.
    """
    cell = planned.cell
    return base.with_args(model=cell.model, backend=cell.backend, schema=cell.schema, variant=cell.variant)


def finished_record(item: pytest.Item, line: dict[str, Any]) -> dict[str, Any]:
    """``line`` after everybody who wanted to change it did, in plain values.

    Raises:
        TypeError, ValueError: a hook put in what JSON cannot hold.
    """
    from qbench.storage import plain

    item.ihook.pytest_qbench_update_record(config=item.config, record=line)
    record: dict[str, Any] = plain(line)
    if item.config.getoption("xmlpath", None):  # pytest's --junitxml
        from qbench.reporting import cell_facts
        from qbench.tracking import record_of_line

        item.user_properties.extend(cell_facts(record_of_line(record)).items())
    return record


def conclude(verdict: "Verdict", cell: str, missing: str) -> None:
    """Nothing when green, a skip when unsupported, else the red verdict; ``missing`` is the option of that name.

    Raises:
        RedCell: the verdict is red.
    """
    from qbench.judging import Outcome

    if verdict.outcome is Outcome.UNSUPPORTED or (verdict.outcome is Outcome.MISSING and missing == "skip"):
        pytest.skip(verdict.headline)
    if verdict.outcome.is_red and not (verdict.outcome is Outcome.MISSING and missing == "warn"):
        raise RedCell(red_text(verdict, cell))


def red_text(verdict: "Verdict", cell: str) -> str:
    """What, with which numbers against what, by which rule, and what to do next.

    The news comes first: pytest's short summary puts what fits of the first line behind the cell's name.
    """
    from qbench.judging import NO_LONGER_FAILS, GateState

    is_mended = verdict.headline.startswith(NO_LONGER_FAILS)
    lines = [verdict.headline, f"  cell: {cell} {NO_LONGER_FAILS if is_mended else f'is {verdict.outcome.value}'}"]
    for gate in verdict.gates:
        mark = {GateState.HOLDS: "✓", GateState.BROKEN: "✗"}.get(gate.state, "·")
        lines.append(f"  {mark} {gate.kind}: {gate.detail}")
    if verdict.rule:
        lines.append(f"  rule: {verdict.rule}")
    said = "\n".join(lines)
    lines += [f"  note: {notice}" for notice in verdict.notices if notice not in said]
    if verdict.remedy and verdict.remedy not in verdict.headline:
        lines.append(f"  next: {verdict.remedy}")
    return "\n".join(lines)


# Red cells are localised where they were measured, within a budget of time; the finding travels on the report.
#
# A failure to do so is one sentence of the finding: it never turns a red cell into an error of its own.

CELLS = 6
"""Times the seconds of one cell that a process spends on all of them: many red cells have few causes."""
FOLDER = "overrides"
_SPENT = pytest.StashKey[list[float]]()


def finding_of(opened: OpenSuite, judged: "JudgedCell", config: pytest.Config) -> dict[str, Any] | None:
    """The ``finding`` line of a red cell; None where there is nothing to localise, or no time left in this process.

    Args:
        opened: the suite. judged: a red cell of it.
    """
    seconds, spent = config.stash[OPTIONS].localize, config.stash.setdefault(_SPENT, [])
    left = min(seconds, CELLS * seconds - sum(spent))
    cell = judged.planned.cell
    if judged.measurement is None or not _is_wrong(judged.verdict):
        return None
    if left <= 0 or cell.is_fp32:
        return None
    from qbench.diagnosis import Budget
    from qbench.judging import Finding
    from qbench.tracking import finding_line

    budget = Budget.begin(left, time.perf_counter)
    try:
        line = finding_line(cell, _localized(opened, judged, budget))
    except Exception as error:  # the cell is red for its own reason: this must not take its place
        said = " ".join(str(error).split()) or type(error).__name__
        finding = Finding(
            model=cell.model,
            backend=cell.backend,
            schema=cell.schema,
            samples=0,
            notes=(f"could not be localised: {said}",),
            complete=False,
        )
        line = finding_line(cell, finding)
    spent.append(budget.spent)
    return line


def _is_wrong(verdict: "Verdict") -> bool:
    """Whether something is to be found: the cell fails, drifts, or would fail if it had been accepted before."""
    from qbench.judging import FAILING, GateState, Outcome

    if verdict.outcome is not Outcome.MISSING:
        return verdict.outcome in (Outcome.FAILED, Outcome.DRIFTED)
    return any(gate.kind in FAILING and gate.state is GateState.BROKEN for gate in verdict.gates)


def _localized(opened: OpenSuite, judged: "JudgedCell", budget: "Budget") -> "Finding":
    from qbench.diagnosis import LocalizeOptions, localize_verdict, samples_that_moved
    from qbench.suite import repeatable_cell

    cell = repeatable_cell(opened.bench, judged.planned)
    moved = () if judged.measurement is None else samples_that_moved(judged.measurement)
    options = LocalizeOptions(first=moved, suspects=3, override=_name(_axes(judged)))
    return localize_verdict(cell, judged.verdict, budget, options=options)


def _axes(judged: "JudgedCell") -> Mapping[str, str]:
    """The axes of the cell."""
    cell = judged.planned.cell
    return {"model": cell.model, "backend": cell.backend, "schema": cell.schema, "variant": cell.variant}


def keep_overrides(finding: Mapping[str, Any], reports: Path) -> Path | None:
    """Write the schema file of a ``finding`` line that repairs its cell under ``reports``; None: it has none.

    Raises:
        StoreError: the folder cannot be written.
    """
    from qbench.storage import write_text

    text = finding["finding"].get("repair", {}).get("overrides", "")
    if not text:
        return None
    path = overrides_path(finding, reports)
    write_text(path, text)
    return path


def overrides_path(finding: Mapping[str, Any], reports: Path) -> Path:
    """``reports/overrides/<suite>/<model>.<backend>.<schema>[.<variant>].toml``."""
    return reports / FOLDER / str(finding["suite"]) / f"{_name(finding)}.toml"


def _name(axes: Mapping[str, Any]) -> str:
    """What the repaired schema is called, and its file."""
    return ".".join(str(axes[name]) for name in ("model", "backend", "schema", "variant") if axes[name])


# Outcome of a cell → pytest's category, letter and word; ``-v`` shows how far the score moved.

Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]

_OWN = {
    "quarantined": ("q", "yellow"),
    "inconclusive": ("i", "yellow"),
    "accepted": ("A", "green"),
    "missing": ("m", "yellow"),
}


def status_of(report: pytest.TestReport, *, verbose: bool) -> Status | None:
    """The status of a report that carries a record; None where pytest's own is right."""
    record: Mapping[str, Any] = report.qbench
    outcome = record["outcome"]
    change = f" {change_text(record)}" if verbose and change_text(record) else ""
    if report.passed and outcome in _OWN:
        letter, colour = _OWN[outcome]
        return outcome, letter, (outcome.upper() + change, {colour: True})
    if report.passed and outcome == "passed" and change:
        return "passed", ".", (f"PASSED{change}", {"green": True})
    if report.failed and outcome not in ("passed", "inconclusive", "accepted", "quarantined"):
        return "failed", "F", (outcome_word(record).upper() + change, {"red": True})
    return None


def outcome_word(record: Mapping[str, Any]) -> str:
    """What the outcome is called: an entry that is not needed has not run out, though both are ``expired`` in files."""
    from qbench.judging import NO_LONGER_FAILS

    mended = record["outcome"] == "expired" and str(record.get("headline", "")).startswith(NO_LONGER_FAILS)
    return NO_LONGER_FAILS if mended else str(record["outcome"])


def change_text(record: Mapping[str, Any]) -> str:
    """``top1 −0.42 pp`` for the first metric of ``record``; empty when there is none."""
    for name, score in record.get("metrics", {}).items():
        change = (score["hits"] - score["reference_hits"]) / score["out_of"]
        unit = score.get("unit", "%")
        text = f"{100 * change:+.2f} pp" if unit == "%" else f"{change:+.5g} {unit}".rstrip()
        return f"{name} {text}".replace("-", "−")
    return ""

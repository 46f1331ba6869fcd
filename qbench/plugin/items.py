"""One cell as a pytest item: run the bench, keep the record, and be green, skipped or red with a few plain lines."""

from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import StoreError, refused_by_system
from qbench.plugin.opening import OpenSuite
from qbench.plugin.options import OPTIONS
from qbench.plugin.tags import TAGGED, Tag, Tagged

if TYPE_CHECKING:
    from qbench.judging import Verdict
    from qbench.suite import PlannedCell


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
        from qbench.suite import JudgedCell

        tagged = self.stash[TAGGED]
        try:
            judged = self._opened.bench.run(self.planned)
        except Exception as error:
            tagged.record = finished_record(self, JudgedCell.unmeasured(self.planned, error).line)
            raise
        missing = self.config.stash[OPTIONS].missing
        tagged.record = finished_record(self, judged.line | excused(judged.verdict, missing))
        if judged.verdict.outcome.is_red:
            from qbench.plugin.localizing import finding_of

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


def excused(verdict: "Verdict", missing: str) -> dict[str, Any]:
    """What a record says of a cell without anything accepted where the option ``missing`` lets that be green."""
    from qbench.judging import Outcome

    is_green = verdict.outcome is Outcome.MISSING and missing != "fail"
    return {"excused": f"--qbench-missing={missing}"} if is_green else {}


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

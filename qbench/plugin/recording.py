"""The run files of a session: one per suite, written line by line by the controller."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import QbenchError, StoreError
from qbench.plugin.item_state import is_of_dead_worker
from qbench.plugin.jobs import JOB
from qbench.plugin.options import SUITE_SUFFIX, Options

if TYPE_CHECKING:
    from qbench.tracking import CellRecord, HistoryStore, Run, RunWriter


_NAMED = 3
"""Red cells that one sentence names."""


@dataclass(slots=True)
class OpenRun:
    """One suite's run of this session, as it grows.

    Args:
        facts: of the suite, from its reports. header, environment: the first lines of the file.
        writer: None when the file could not be opened or written.
        is_kept: whether other sessions will find it.
        cells, findings, samples, notes: its lines, also without file.
        finished: node ids of its items that ended with a record.
        has_red: whether one of their cells is red.
        hidden: node ids of red cells that pytest does not count as failures, because a hook
            changed their reports.
        begun: node ids of the cells that began and have no record yet, with their lines.
        checks: name → the arguments of the ``qbench_check`` behind a cell, and its folder.
    """

    facts: Mapping[str, Any]
    header: dict[str, Any]
    environment: dict[str, Any]
    writer: "RunWriter | None"
    is_kept: bool = True
    cells: list["CellRecord"] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    samples: list[bytes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    has_red: bool = False
    hidden: list[str] = field(default_factory=list)
    begun: dict[str, dict[str, Any]] = field(default_factory=dict)
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    complete: bool = False

    @property
    def run(self) -> "Run":
        """The run as it is read from its file."""
        from qbench.tracking import Run

        return Run(
            header=self.header,
            environment=self.environment,
            cells=tuple(self.cells),
            findings=tuple(self.findings),
            samples=tuple(self.samples),
            notes=tuple(self.notes),
            complete=self.complete,
            path=self.writer.name if self.writer is not None and self.is_kept else "",
        )


class Recorder:
    """All run files of this session.

    ``problems`` are sentences about failed writing and idle rules. ``commands`` are lines for the
    log of GitHub. ``overrides`` are the files of schemas that repair red cells.
    """

    def __init__(
        self, config: pytest.Config, options: Options, history: "HistoryStore | Path"
    ) -> None:
        self.config = config
        self.options = options
        self.history = history
        self.runs: dict[str, OpenRun] = {}
        self.problems: list[str] = []
        self.commands: list[str] = []
        self.overrides: list[Path] = []

    def receive(self, report: pytest.TestReport) -> None:
        """Store the line and the finding that ``report`` carries, if any."""
        facts = getattr(report, "qbench_suite", None)
        if facts is None:
            if is_of_dead_worker(report):
                self._add_lost(report)
            return
        if facts["file"] not in self.runs:
            self.runs[facts["file"]] = self._opened(facts)
        run = self.runs[facts["file"]]
        self._note_start(run, report)
        line = getattr(report, "qbench", None)
        if facts["is_cell"] and line is not None:
            run.finished.add(report.nodeid)  # before writing: an interrupt may come at any line
        if line is not None:
            run.begun.pop(report.nodeid, None)
            self._add_cell(run, line)
            if check := getattr(report, "qbench_check", None):
                run.checks[run.cells[-1].model] = check
            if facts["is_cell"] and run.cells[-1].is_red:
                run.has_red = True
        self._add_samples(run, report)
        self._add_finding(run, getattr(report, "qbench_finding", None))
        for text in getattr(report, "qbench_notes", ()):
            if text not in run.notes:
                self.note(run, text)

    def notice_hidden(self, report: pytest.TestReport) -> None:
        """Remember the cell of ``report`` where it is red and pytest does not count it as a
        failure, after all hooks have had the report.
        """
        facts = getattr(report, "qbench_suite", None)
        if facts is None or not facts["is_cell"] or not hasattr(report, "qbench"):
            return
        run = self.runs[facts["file"]]
        if run.cells[-1].is_red and not report.failed:
            run.hidden.append(report.nodeid)

    def _note_start(self, run: OpenRun, report: pytest.TestReport) -> None:
        """Write which cell begins, where another attempt may have to know that this process died
        with it.
        """
        begins = getattr(report, "qbench_begins", None)
        if begins is not None and (self.options.resume or "job" in run.header):
            run.begun[report.nodeid] = {"type": "started", **begins}
            self._write(run, run.begun[report.nodeid])

    def _add_cell(self, run: OpenRun, line: dict[str, Any]) -> None:
        """Write the line of a cell unchanged: a hook may have added keys to it."""
        from qbench.tracking import record_of_line

        run.cells.append(record_of_line(line))
        self._write(run, line)

    def _add_samples(self, run: OpenRun, report: pytest.TestReport) -> None:
        """Write the samples that a cell lost and gained to the run file, and what they look like
        to the folder of reports, if ``report`` carries any.
        """
        line = getattr(report, "qbench_samples", None)
        if line is None:
            return
        from qbench.storage import Preview, json_line, keep_preview

        run.samples.append(json_line(line).encode())
        self._write(run, line)
        try:
            for digest, sample, preview in getattr(report, "qbench_previews", ()):
                keep_preview(self.options.reports, digest, sample, Preview(**preview))
        except StoreError as error:
            self.note(run, str(error))

    def _add_finding(self, run: OpenRun, finding: dict[str, Any] | None) -> None:
        """Write a finding to the run file, and the schema that repairs its cell to the folder
        of reports.
        """
        if finding is None:
            return
        from qbench.plugin.items import keep_overrides

        run.findings.append(finding)
        self._write(run, finding)
        try:
            path = keep_overrides(finding, self.options.reports)
            self.overrides += [] if path is None else [path]
        except StoreError as error:
            self.note(run, str(error))

    @property
    def lacks_cells(self) -> bool:
        """Whether a selected cell was not run, or may not have been: it is not known which tests
        would have made a check.
        """
        return any(
            run.facts["selected"] > len(run.finished) or run.checks for run in self.runs.values()
        )

    @property
    def is_whole(self) -> bool:
        """Whether every run has the lines of all its cells, once it is finished."""
        return all(run.complete for run in self.runs.values())

    def finish(self, exit_code: int, crashes: list[str], *, stopped: bool) -> None:
        """Close every run file: with an ``end`` line, or without one when the run is not complete.

        Args:
            exit_code: pytest's.
            crashes: a sentence per worker that died.
            stopped: whether the session ended early.
        """
        for run in self.runs.values():
            missing = run.facts["selected"] - len(run.finished)
            run.complete = not (stopped or crashes or missing > 0)
            if not run.complete:
                for line in run.begun.values():  # stopped in order: the cell killed nothing
                    self._write(run, {**line, "stopped": True})
                for crash in crashes:
                    self.note(run, crash)
                if missing > 0:
                    self.note(
                        run,
                        f"ended early: {missing} of {run.facts['selected']} selected cells were "
                        "not run",
                    )
            else:
                exit_code = self._note_unmeasured(run) or exit_code
                exit_code = self._note_hidden(run) or exit_code
                if run.facts["selected"] == run.facts["planned"]:
                    exit_code = self._note_idle_rules(run) or exit_code
            if run.writer is None:
                continue
            try:
                if run.complete:
                    run.writer.close(exit_code=exit_code)
                else:
                    run.writer.abandon()
            except StoreError as error:
                self._give_up_file(run, error)

    def _note_unmeasured(self, run: OpenRun) -> int:
        """Note a run in which no cell was measured; its exit code, 0 for any other run.

        Otherwise a machine without a package index, or without an engine, would skip every cell and
        pass. Of a run without cells, such as one of Python tests alone that ended before they
        measured, pytest says enough.
        """
        from qbench.judging import Outcome

        if not run.cells or any(cell.outcome != Outcome.UNSUPPORTED.value for cell in run.cells):
            return 0
        if run.checks:  # pytest shows that these tests were skipped, and why
            return 0
        could = (
            "could get its packages"
            if all(cell.unfetched for cell in run.cells)
            else "was measured"
        )
        return self._fail(
            run, f"not one of the {len(run.cells)} cells of '{run.facts['suite']}' {could}"
        )

    def _note_hidden(self, run: OpenRun) -> int:
        """Note the red cells that pytest did not count as failed; the exit code for that, 0
        where there are none.
        """
        if not run.hidden:
            return 0
        named = ", ".join(one.partition("::")[2] for one in run.hidden[:_NAMED])
        more = f" and {len(run.hidden) - _NAMED} more" if len(run.hidden) > _NAMED else ""
        return self._fail(run, f"red, though a hook of pytest reported no failure: {named}{more}")

    def _fail(self, run: OpenRun, sentence: str) -> int:
        """Note the reason why ``run`` fails although none of its cells was reported as failed;
        the exit code.
        """
        self.note(run, sentence)
        self.problems.append(sentence)
        return int(pytest.ExitCode.TESTS_FAILED)

    def _note_idle_rules(self, run: OpenRun) -> int:
        """Note the rules that matched nothing in the whole suite; the exit code for that, 0
        when all matched.
        """
        from qbench.suite import idle_rule_errors

        sentences = idle_rule_errors(run.cells)
        for sentence in sentences:
            self.note(run, sentence)
        self.problems += sentences
        return int(pytest.ExitCode.TESTS_FAILED) if sentences else 0

    def _opened(self, facts: Mapping[str, Any]) -> OpenRun:
        from qbench.host import utc_now
        from qbench.suite import describe_start

        release, choice = self.options.release, self.config.stash.get(JOB, None)
        start = describe_start(
            self.config.rootpath,
            suite=facts["suite"],
            planned=facts["planned"],
            selected=facts["selected"],
            backends=facts["backends"],
            select=self.options.select,
            limit=self.options.limit,
            shard=self.options.shard,
            job=None if choice is None else choice.header,
            release=None if release is None else (release.package, release.python),
            started=utc_now(),
            token=secrets.token_hex(3),
            processor=self.config.hook.pytest_qbench_processor(config=self.config),
        )
        start = replace(start, header={**start.header, **self._sameness(facts)})
        writer = None
        try:
            writer = start.open(self.history)
        except StoreError as error:
            self.problems.append(str(error))
        name = {"id": start.token, "started": start.started.isoformat(timespec="milliseconds")}
        header = {**start.header, **name} if writer is None else writer.header
        return OpenRun(facts, header, start.environment, writer, self.options.keeps_history)

    def _sameness(self, facts: Mapping[str, Any]) -> dict[str, str]:
        """What a session that resumes this run compares with its own, and which run this one
        resumes.
        """
        from qbench.judging import CHECKS
        from qbench.plugin.resuming import code_digest

        code = "" if facts["suite"] == CHECKS else code_digest(self.config, Path(facts["file"]))
        known = {"code": code, "selection": facts["selection"], "resumes": facts["resumes"]}
        return {name: text for name, text in known.items() if text}

    def _add_lost(self, report: pytest.TestReport) -> None:
        """Record a cell whose worker died: only its node id is known."""
        axes = _axes_of(report.nodeid)
        if axes is None:
            return
        node, line = axes
        run = next((r for r in self.runs.values() if r.facts["node"] == node), None)
        if run is None:
            return  # no cell of the suite was finished before: there is no run file
        run.finished.add(report.nodeid)
        run.begun.pop(report.nodeid, None)
        said = " ".join(str(report.longrepr).split())
        died = "the worker process died while running it" + (f": {said}" if said else "")
        self._add_cell(run, {**line, "suite": run.facts["suite"], "headline": died})

    def note(self, run: OpenRun, text: str) -> None:
        """Write a sentence about ``run`` into its file."""
        run.notes.append(text)
        self._write(run, {"type": "note", "text": text})

    def _write(self, run: OpenRun, line: Mapping[str, Any]) -> None:
        if run.writer is None:
            return
        try:
            run.writer.write(line)
        except StoreError as error:
            self._give_up_file(run, error)

    def _give_up_file(self, run: OpenRun, error: QbenchError) -> None:
        self.problems.append(str(error))
        writer, run.writer = run.writer, None
        if writer is not None:
            try:
                writer.abandon()
            except StoreError as again:  # a store that is away as well
                self.problems.append(str(again))


def _axes_of(node_id: str) -> tuple[str, dict[str, Any]] | None:
    """(suite path, axes) of the node id of a cell; None for other items."""
    path, _, rest = node_id.partition("::")
    model, _, slug = rest.partition("::")
    backend, _, tail = slug.partition("+")
    schema, _, variant = tail.partition("+")
    if not path.endswith(SUITE_SUFFIX) or not schema:
        return None
    axes = {"model": model, "backend": backend, "schema": schema, "variant": variant}
    return path, {"type": "cell", **axes, "outcome": "infra"}

"""``--qbench-cluster`` and ``--qbench-executor``: the cells of suites run as jobs elsewhere, and
read back as one run.

No cell is collected here. The suites are divided into jobs, each is a process of its own that runs
this command with ``--qbench-job``, and what the history then holds is reported like any run.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from qbench.errors import QbenchError
from qbench.extension import named_also, with_known
from qbench.host import utc_now
from qbench.judging import Outcome
from qbench.number_text import counted
from qbench.plugin.item_state import SuiteFacts, collected_suites
from qbench.plugin.opening import OpenSuite, open_suite
from qbench.plugin.options import (
    ERRORS,
    JOB_COMMAND,
    OPTIONS,
    ClusterOptions,
    JobCommand,
    Options,
)
from qbench.plugin.recording import OpenRun, Recorder
from qbench.plugin.session_end import write_line
from qbench.reporting import cell_facts
from qbench.storage import neutral_line, neutral_text
from qbench.suite import (
    DIED,
    MEASURED,
    MOST_JOBS,
    REFUSED,
    Job,
    JobEnd,
    JobPlan,
    Night,
    is_night_of,
    load_job_plan,
    own_source,
    own_version,
    plan_jobs,
    refuse_other_code,
    refuse_other_suite,
    save_job_plan,
    workers_at,
)
from qbench.tracking import CellRecord, History, Run, job_of

if TYPE_CHECKING:
    from qbench.judging import Cell
    from qbench.tracking import HistoryStore

_PLANS = "plans"
"""The folder below that of reports with the plans that were made here."""
_JOBS_OF_A_SLOT = 4
"""Jobs of a new plan for each that workers run at a time, where ``--qbench-jobs`` does not say how
many and there are models enough: so that all workers end at about the same time.
"""
_NAMED = 3
"""Missing cells of a job that are named."""
_OWN = ("cluster", "executor", "plan", "jobs", "worker-folder", "report")
"""Options of qbench that a job does not get."""
_OF_PYTEST = (
    *("--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--sw"),
    *("--junitxml", "--junit-xml"),
)
"""Those of pytest: they read or write one file."""


_PYTEST_CODES = {
    **{str(int(code)): MEASURED for code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)},
    **{
        str(int(code)): DIED
        for code in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
    },
    **{
        str(int(code)): REFUSED
        for code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
    },
}


@dataclass(slots=True)
class ClusterRun:
    """What became of a night: messages for the end of the session, and the missing cells."""

    messages: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def refuse_with_cluster(config: pytest.Config, options: Options) -> None:
    """Check that the other options agree with jobs that run elsewhere.

    Raises:
        pytest.UsageError: one does not.
    """
    found = {
        "--qbench-select": bool(options.select),
        "--qbench-shard": bool(options.shard),
        "--qbench-job": bool(config.getoption("qbench_job")),
        "--qbench-accept or --qbench-prune": options.writes_baselines,
        "--qbench-history=off": not options.keeps_history,
        "-n": getattr(config.option, "dist", "no") != "no",
    }
    wrong = next((name for name, is_given in found.items() if is_given), "")
    if wrong:
        remedies = {
            "--qbench-history=off": "Name a history that every worker reaches.",
            "--qbench-accept or --qbench-prune": (
                "Accept the run afterwards: qbench accept RUN; prune without workers."
            ),
        }
        raise pytest.UsageError(
            f"Running jobs on workers: found {wrong}; expected whole suites, whose results come "
            f"back through the history. {remedies.get(wrong, 'Leave it out.')}"
        )


def run_on_cluster(
    session: pytest.Session, history: "HistoryStore | Path"
) -> tuple[Recorder, ClusterRun]:
    """Run all cells of the collected suites as jobs; the recorder holds them as if they had run
    here.

    Raises:
        pytest.UsageError: the plan is of other suites, or there are no workers.
    """
    config = session.config
    options = config.stash[OPTIONS]
    cluster = options.cluster
    assert cluster is not None
    facts = collected_suites(config)
    opened = {
        one.suite: open_suite(one.file, config, session.gethookproxy(one.file)) for one in facts
    }
    try:
        with workers_at(cluster.address, cluster.executor) as workers:
            plan, path = _plan(config, opened, history, workers.slots)
            night = Night(
                plan,
                workers,
                history,
                _order(config, cluster, path, plan),
                partial(_Needs(opened.values()).of, plan),
                lambda line: _tell(config, line),
                suites=frozenset(one.suite for one in facts),
                limit=options.limit,
            )
            _tell(config, f"plan {plan.short}: {_shown(path, config)}, {workers.name}")
            ends = night.run()
    except QbenchError as error:
        raise pytest.UsageError(str(error)) from error
    done = ClusterRun()
    recorder = Recorder(config, options, history)
    runs = _runs_of(plan, history, options.limit)
    for one in facts:
        run = runs.get(one.suite)
        selected = len(opened[one.suite].planned)
        session.testscollected += selected
        one.selected = selected
        for record in () if run is None else run.cells:
            _show(record, one, config)
        recorder.runs[str(one.file)] = _open_run(one, run, plan, options.limit)
        lines = _missing(plan, ends, opened[one.suite], run)
        for line, cells in lines:
            recorder.note(recorder.runs[str(one.file)], line)
            done.missing += cells
    done.messages.append(
        f"plan: {_shown(path, config)}; run files: {plan.short}-j*.jsonl in the history"
    )
    if done.missing or night.is_interrupted:
        done.messages.append(f"the same command with {_continued(path, config)} measures the rest")
    return recorder, done


def _continued(path: Path, config: pytest.Config) -> str:
    return f"--qbench-plan={_shown(path, config)}"


def _plan(
    config: pytest.Config,
    opened: Mapping[str, OpenSuite],
    history: "HistoryStore | Path",
    slots: int,
) -> tuple[JobPlan, Path]:
    """The plan, and where its file is: the one that is named, or a new one of all suites, for
    workers that run ``slots`` jobs at a time.

    Raises:
        QbenchError: it cannot be read, made or written.
    """
    cluster = config.stash[OPTIONS].cluster
    assert cluster is not None
    if cluster.plan is not None:
        plan = load_job_plan(cluster.plan)
        # here, in one sentence: on the workers each job would say it
        refuse_other_code(plan, config.invocation_params.dir / Path(plan.suites[0].path).parent)
        for one in opened.values():
            refuse_other_suite(plan, one.suite.path)
        return plan, cluster.plan
    # with what the verb knows already: inside the block nothing else is
    known = with_known(extension for one in opened.values() for extension in one.added)
    jobs = cluster.jobs or _usual_jobs(opened.values(), slots)
    with named_also(lambda: known):
        done = plan_jobs(
            [one.suite.path for one in opened.values()],
            History(history),
            jobs=jobs,
            night=utc_now().isoformat(timespec="milliseconds"),
        )
    path = config.stash[OPTIONS].reports / _PLANS / f"{done.plan.short}.json"
    save_job_plan(done.plan, path)
    return done.plan, path


def _usual_jobs(opened: Iterable[OpenSuite], slots: int) -> int:
    """How many jobs a new plan has: models are divided only where there are fewer of them than
    ``slots``.
    """
    cells = [planned.cell for one in opened for planned in one.planned]
    models = len({(cell.suite, cell.model) for cell in cells})
    return max(min(max(slots, min(models, _JOBS_OF_A_SLOT * slots)), len(cells), MOST_JOBS), 1)


def _order(
    config: pytest.Config, cluster: ClusterOptions, path: Path, plan: JobPlan
) -> dict[str, Any]:
    """What ``run_job`` takes, for all jobs."""
    command = config.stash.get(JOB_COMMAND, None) or _pytest_command(config)
    folder = config.invocation_params.dir
    return {
        "plan": path.read_text(encoding="utf-8"),
        "short": plan.short,
        "folder": cluster.worker_folder or str(folder),
        "words": list(command.words),
        "of": f"plan {plan.short}",
        "options": [f"{command.option}{{plan}}#{{job}}"],
        "codes": dict(command.codes),
        "variables": {name: os.environ[name] for name in ("PYTEST_ADDOPTS",) if name in os.environ},
        "version": own_version(),
        "source": own_source(),
    }


def _pytest_command(config: pytest.Config) -> JobCommand:
    """This command line without its paths and without what is for the whole night alone."""
    folder = config.invocation_params.dir
    given = {*map(str, config.option.file_or_dir or ())}
    kept: list[str] = []
    words = iter(map(str, config.invocation_params.args))
    for word in words:
        name, sign, _ = word.partition("=")
        if name in _OF_PYTEST or name in {f"--qbench-{one}" for one in _OWN}:
            if not sign and name in _WITH_VALUE:
                next(words, None)
        elif word not in given:
            kept.append(word)
    place = [f"--rootdir={os.path.relpath(config.rootpath, folder)}"]
    if config.inipath is not None:
        place.append(f"--config-file={os.path.relpath(config.inipath, folder)}")
    # what an ini file adds to every command line would begin the night again
    inner = ["--qbench-cluster=", "--qbench-executor=", "-o", "qbench_report=", "--qbench-resume"]
    path_of_python = [] if {"", str(folder)} & set(sys.path) else ["-P"]
    return JobCommand(
        words=(
            *path_of_python,
            "-m",
            "pytest",
            *kept,
            *place,
            *inner,
            # what an engine says before it ends its process is the last output, unless captured
            *("-p", "no:cacheprovider", "--capture=no", "-q", "--no-header"),
        ),
        option="--qbench-job=",
        codes=_PYTEST_CODES,
    )


_WITH_VALUE = frozenset((*(f"--qbench-{one}" for one in _OWN), "--junitxml", "--junit-xml"))
"""Those whose value may stand alone after them."""


class _Needs:
    """What workers must offer for the jobs of suites, by what their backends declare."""

    def __init__(self, opened: Iterable[OpenSuite]) -> None:
        self._backends: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._declared: dict[str, frozenset[str]] = {}
        for one in opened:
            for planned in one.planned:
                cell = planned.cell
                self._backends[cell.suite, cell.model].add(cell.backend)
                if cell.backend not in self._declared:
                    factory = one.catalogues.backends.factory(cell.backend)
                    self._declared[cell.backend] = frozenset(getattr(factory, "resources", ()))

    def of(self, plan: JobPlan, job: Job) -> Collection[str]:
        """Words such as ``gpu`` and ``vnni``."""
        needs = {"vnni"} if (plan.environment_class or "").endswith("-vnni") else set()
        for unit in job.units:
            of_model = self._backends.get((unit.suite, unit.model), set())
            for name in of_model if unit.backends is None else of_model & set(unit.backends):
                needs |= self._declared.get(name, frozenset())
        return needs


def _tell(config: pytest.Config, line: str) -> None:
    """Write ``line`` where a user looks while the night runs."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        os.write(config.stash.get(ERRORS, 2), f"{neutral_line(line)}\n".encode())
    else:
        terminal.ensure_newline()
        write_line(terminal, line)


def _runs_of(plan: JobPlan, history: "HistoryStore | Path", limit: int | None) -> dict[str, Run]:
    """Suite → all jobs of ``plan`` in ``history`` as one run, of attempts with the option
    ``--qbench-limit`` of that number.
    """
    read = History(history)
    heads = [
        head
        for head in read.nights()
        if (job := job_of(head.header)) is not None
        and job.plan == plan.short
        and is_night_of(head.header, limit)
    ]
    ids = [head.id for head in heads]
    return {run.suite: run for run in read.each(heads, samples=ids)}


def _open_run(facts: SuiteFacts, run: Run | None, plan: JobPlan, limit: int | None) -> OpenRun:
    """``run`` as if its cells had been measured by this session."""
    if run is None:
        header = {
            "type": "run",
            "id": f"{plan.short}-{facts.suite}",
            "suite": facts.suite,
            "planned": facts.planned,
            "selected": facts.planned,
            "limited": limit,
            "complete_selection": limit is None,
        }
        return OpenRun(facts.plain, header, {}, None)
    plain = facts.plain
    return OpenRun(
        plain,
        dict(run.header),
        dict(run.environment),
        None,
        cells=list(run.cells),
        findings=[dict(one) for one in run.findings],
        samples=list(run.samples),
        notes=list(run.notes),
        finished={f"{facts.node}::{record.cell}" for record in run.cells},
        has_red=any(record.is_red for record in run.cells),
    )


def _show(record: CellRecord, facts: SuiteFacts, config: pytest.Config) -> None:
    """Report a cell as if its item had run here: pytest counts it, and names it where it is red."""
    node, location = f"{facts.node}::{record.cell}", (facts.node, None, str(record.cell))
    outcome: Literal["passed", "failed", "skipped"] = "failed" if record.is_red else "passed"
    longrepr: Any = _red_text(record) if record.is_red else None
    if record.outcome == Outcome.UNSUPPORTED.value:
        outcome, longrepr = "skipped", (str(facts.file), 1, record.headline)
    report = pytest.TestReport(
        node,
        location,
        {},
        outcome,
        longrepr,
        "call",
        duration=sum(record.seconds.values()),
        user_properties=list(cell_facts(record).items()),
    )
    setattr(report, "qbench", record.line())  # noqa: B010 - reports are open to attributes
    config.hook.pytest_runtest_logstart(nodeid=node, location=location)
    config.hook.pytest_runtest_logreport(report=report)
    # for the section FAILURES; before, it would be recorded again
    setattr(report, "qbench_suite", {**facts.plain, "is_cell": True})  # noqa: B010
    end = pytest.TestReport(node, location, {}, "passed", None, "teardown")
    config.hook.pytest_runtest_logreport(report=end)
    config.hook.pytest_runtest_logfinish(nodeid=node, location=location)


def _red_text(record: CellRecord) -> str:
    """What pytest prints of a red cell: headline, the gates that are broken, rule, next step."""
    broken = (f"  ✗ {gate.kind}: {gate.detail}" for gate in record.gates if gate.state == "broken")
    rule = f"  rule: {record.rule}" if record.rule else ""
    remedy = f"  next: {record.remedy}" if record.remedy else ""
    lines = (record.headline, f"  cell: {record.cell} is {record.outcome}", *broken, rule, remedy)
    return neutral_text("\n".join(filter(None, lines)))


def _missing(
    plan: JobPlan, ends: Sequence[JobEnd], opened: OpenSuite, run: Run | None
) -> list[tuple[str, list[str]]]:
    """A sentence for each job that lacks cells of a suite, and these cells."""
    there = set() if run is None else {record.cell for record in run.cells}
    lacking: dict[int, list[Cell]] = defaultdict(list)
    for planned in opened.planned:
        if planned.cell not in there:
            job = plan.holder(planned.cell)
            lacking[0 if job is None else job.index].append(planned.cell)
    states = {end.index: end for end in ends}
    found = []
    for index, cells in sorted(lacking.items()):
        what = f"job {index}" if index else "no job of the plan"
        end = states.get(index)
        why = "" if end is None else f" ({': '.join(filter(None, (end.state, end.reason)))})"
        found.append(
            (
                f"{counted(len(cells), 'cell')} of {what}{why} missing: {_some_of(cells)}",
                [f"{opened.suite.name}::{cell}" for cell in cells],
            )
        )
    return found


def _some_of(cells: "Sequence[Cell]") -> str:
    """The first of ``cells``, and how many more there are."""
    more = len(cells) - _NAMED
    return ", ".join(map(str, cells[:_NAMED])) + (f" and {more} more" if more > 0 else "")


def _shown(path: Path, config: pytest.Config) -> str:
    return os.path.relpath(path, config.invocation_params.dir)

"""Command line and ini → one frozen record."""

import argparse
import math
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import InputError, UnavailableError
from qbench.reporting import ALL_KINDS
from qbench.storage import MOST_LISTED, MOST_SAMPLES, ObjectFolder, place_of

if TYPE_CHECKING:
    from qbench.tracking import CarryRule, HistoryStore

if TYPE_CHECKING:
    from qbench.tracking import HistoryStore

SCOPES = ("new", "improved", "changed", "all")
MISSING = ("fail", "warn", "skip")
LOCALIZE = 20.0
OFF = "off"
"""The value of --qbench-history with which runs are reported and not kept; a folder of that
name is ./off.
"""
SUITE_SUFFIX = ".qbench.toml"
"""Of suite files; here too, because ``qbench.suite`` is not loaded before the first suite."""
_REASONED = ("changed", "all")
_SETTINGS = (
    (
        "tolerance",
        "R",
        "allowed loss relative to the stored fp32 score, instead of every tolerance of a suite",
    ),
    ("baselines", "DIR", "folder of baselines (default: baselines)"),
    (
        "history",
        "DIR",
        "folder, or s3://, gs:// or file://, that each run adds one file to (default: "
        "reports/history); off: keep no run file",
    ),
    ("reports", "DIR", "folder of rendered reports (default: reports)"),
    ("missing", "WHAT", "a cell without an accepted result: fail (default), warn or skip"),
    ("threads", "N", "threads of one engine, instead of each suite's number"),
    (
        "localize",
        "SECONDS",
        "seconds to localize one red cell, at most six times that per process; 0: off",
    ),
    (
        "samples",
        "N",
        f"lost and gained samples of a cell to list with their answers (default {MOST_SAMPLES}); "
        "0: none",
    ),
    (
        "size-limits",
        "N",
        "open model and data files up to N times as large as by default (docs/security.md)",
    ),
    (
        "carry",
        "AGE",
        "carry over green cells whose whole key was measured within AGE: 7d, 12h; 0d: only note "
        "the keys; off",
    ),
    (
        "cache",
        "DIR",
        "folder that keeps prepared samples, profiles and fp32 runs between runs, or s3://, gs:// "
        "or file:// to share them",
    ),
)
_CLUSTER = (
    (
        "cluster",
        "WHERE",
        "run the suites as jobs, local:N at a time here, or on the cluster of Dask at tcp://…",
    ),
    (
        "executor",
        "MODULE:FACTORY",
        "run the suites as jobs on the concurrent.futures.Executor that the factory makes",
    ),
    ("plan", "PLAN.json", "the jobs of this plan; what is measured of them is not measured again"),
    (
        "jobs",
        "N",
        "divide into N jobs without a plan (default: up to 4 for each worker)",
    ),
    ("worker-folder", "DIR", "the checkout on the workers (default: the path of this folder)"),
)


@dataclass(frozen=True, slots=True)
class Release:
    """The Python whose ONNX Runtime runs the backends, and the package there whose version the
    run is about.
    """

    package: str
    python: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What runs the cells elsewhere: the ``address`` of a cluster or the factory of an
    ``executor``, one of which is empty.

    Args:
        plan: the jobs; None: a new plan, of ``jobs`` jobs (None: as many as usual).
        worker_folder: of the checkout on the workers; empty: the same path as here.
    """

    address: str
    executor: str
    plan: Path | None
    jobs: int | None
    worker_folder: str


@dataclass(frozen=True, slots=True)
class JobCommand:
    """How a job is started: ``words`` after ``python``, then ``option`` and ``PLAN#N``; ``codes``:
    exit code → how it ended.
    """

    words: tuple[str, ...]
    option: str
    codes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options, checked; folders are absolute.

    Args:
        select: axis expression; empty: everything.
        suite: the suite of Python tests that name none.
        tolerance, threads: instead of the suites' numbers; None: those of the suites.
        limit: samples of each data set; None: all.
        history: folder or URL of the runs before this one;
        keeps_history: whether this one is added.
        accept: one of ``SCOPES`` or None.
        accept_fp32: store the fp32 references again.
        reason: of accepting.
        missing: the result of a cell without anything accepted.
        prune: remove baselines that nothing uses.
        shard: ``i/N``, only the models of that share; empty: all.
        localize: seconds for localizing one red cell; 0: do not localize.
        samples: how many lost and gained samples of a cell are listed; 0: none.
        repeats: how often every cell is run, whatever suites and baselines say; None: as they say.
        quantize_twice: run quantizers of other people twice.
        size_limits: factor on the size limits of opened files; None: the defaults.
        resume: take over what an unfinished run measured.
        release: measure another release of a package; None: what is installed.
        carry: which earlier results are carried over; None: none, and no key is noted.
        cluster: run the cells as jobs elsewhere; None: in this session.
    """

    select: str
    suite: str
    tolerance: float | None
    threads: int | None
    limit: int | None
    baselines: Path
    history: Path | ObjectFolder
    keeps_history: bool
    reports: Path
    report: tuple[str, ...]
    cache: Path | ObjectFolder | None
    missing: str
    accept: str | None
    accept_fp32: bool
    reason: str
    accept_in_ci: bool
    prune: bool
    shard: str
    localize: float
    samples: int
    repeats: int | None
    quantize_twice: bool
    size_limits: int | None
    resume: bool
    release: Release | None
    carry: "CarryRule | None"
    cluster: ClusterOptions | None

    @property
    def accepts(self) -> bool:
        """Whether this run may write baselines."""
        return self.accept is not None or self.accept_fp32

    @property
    def writes_baselines(self) -> bool:
        """Whether this run may write or remove baselines."""
        return self.accepts or self.prune


OPTIONS = pytest.StashKey[Options]()
GUARDS = pytest.StashKey[ExitStack]()
RESULT = pytest.StashKey[int]()
"""The exit code of the session, once it is known."""
"""Closed when the session has its exit code."""
ERRORS = pytest.StashKey[int]()
"""The standard error of pytest itself, before it captures that of tests: a file descriptor."""
DESELECTED = pytest.StashKey[set[str]]()
"""The node ids of all tests that were reported as deselected."""
LEFT_OUT = pytest.StashKey[set[str]]()
"""Node ids of tests with a check that were collected and not selected."""
JOB_COMMAND = pytest.StashKey[JobCommand]()
"""Set by a program that calls pytest and starts jobs by a command of its own."""
ANY_NAME = pytest.StashKey[bool]()
"""Set where a suite is collected whatever its file is called."""


_QUESTIONS = (
    *("help", "version", "markers", "showfixtures", "show_fixtures_per_test", "cacheshow"),
    *("collectonly", "setuponly", "setupplan"),
)
"""Options of pytest with which it runs no item."""


def asks_only(config: pytest.Config) -> bool:
    """Whether the options ask pytest for information instead of a run."""
    return any(getattr(config.option, name, None) for name in _QUESTIONS)


def history_place(config: pytest.Config) -> "HistoryStore | Path":
    """Where the runs before this session are: the store that a conftest gives, or the history
    folder or URL. A store behind a URL may be away: the night goes on.
    """
    store: HistoryStore | None = config.hook.pytest_qbench_history_store(config=config)
    if store is not None:
        return store
    place = config.stash[OPTIONS].history
    if isinstance(place, Path):
        return place
    from qbench.tracking import ObjectStore

    return ObjectStore(place, goes_on=True)


def names_suite(config: pytest.Config) -> bool:
    """Whether the command line names a suite file."""
    return any(SUITE_SUFFIX in str(argument) for argument in config.args)


def add_options(parser: pytest.Parser) -> None:
    """Declare every option with its ini twin."""
    group = parser.getgroup("qbench", "quantized models: models × backends × schemas as cells")
    for name, metavar, text in _SETTINGS:
        group.addoption(f"--qbench-{name}", metavar=metavar, help=text)
        parser.addini(f"qbench_{name.replace('-', '_')}", text)
    group.addoption(
        "--qbench-select",
        metavar="EXPR",
        default="",
        help="cells by axis: 'model=mobilenet_v2 backend=ort-*,x schema=…'",
    )
    group.addoption(
        "--qbench-report",
        metavar="KIND",
        action="append",
        help=f"write a report: {', '.join(ALL_KINDS)}; repeatable",
    )
    parser.addini("qbench_select", "cells by axis, as --qbench-select")
    parser.addini("qbench_report", "kinds of report to write", type="args")
    parser.addini("qbench_suite", "the suite of tests that use qbench_cell and name none")
    group.addoption(
        "--qbench-shard",
        metavar="I/N",
        default="",
        help="the models of the I-th of N equal machines only",
    )
    for name, metavar, text in _CLUSTER:
        group.addoption(f"--qbench-{name}", metavar=metavar, default="", help=text)
    group.addoption(
        "--qbench-job",
        metavar="PLAN#N",
        action="append",
        default=[],
        help="the cells of job N of a plan that 'qbench plan' wrote; without #N the scheduler says",
    )
    group.addoption(
        "--qbench-resume",
        action="store_true",
        help="go on with the newest unfinished run: what it measured is taken over",
    )
    parser.addini("qbench_resume", "go on with unfinished runs, as --qbench-resume", type="bool")
    group.addoption(
        "--qbench-release",
        metavar="NAME=PYTHON",
        default="",
        help=(
            "run ONNX Runtime under another Python, and mark the run file with the release of NAME "
            "there"
        ),
    )
    group.addoption(
        "--qbench-repeats",
        metavar="N",
        help="run every cell N times, whatever suites and baselines say of its noise",
    )
    twice = "run quantizers of other people twice, to see whether they write the same bytes"
    group.addoption("--qbench-quantize-twice", action="store_true", help=twice)
    parser.addini("qbench_quantize_twice", twice, type="bool")
    group.addoption(
        "--qbench-limit", metavar="N", help="at most N samples of each data set; never accepted"
    )
    group.addoption(
        "--qbench-accept",
        metavar="WHAT",
        nargs="?",
        const="changed",
        type=_scope,
        help="accept results into baselines: new, improved, changed (when nothing is named) or all",
    )
    group.addoption(
        "--qbench-accept-fp32", action="store_true", help="store the fp32 references again"
    )
    group.addoption(
        "--qbench-reason",
        metavar="TEXT",
        default="",
        help="reason for accepting; 'changed' and 'all' need one",
    )
    group.addoption(
        "--qbench-accept-in-ci", action="store_true", help="accept or prune although CI is set"
    )
    group.addoption(
        "--qbench-prune",
        action="store_true",
        help="remove baselines of what the collected suites lack",
    )


def parse_options(config: pytest.Config, environment: Mapping[str, str] = os.environ) -> Options:
    """The options of ``config``; ``environment`` shows whether this is CI.

    Raises:
        pytest.UsageError: an invalid value, or accepting where that is refused.
    """

    def folder(name: str, default: str) -> Path:
        return config.rootpath / (_text(config, name) or default)

    cache = _text(config, "cache")
    written = str(config.getini("qbench_history") or "").strip()
    history = _text(config, "history")
    earlier = next((one for one in (history, written) if one != OFF), "")
    release = _release(str(config.getoption("qbench_release")), config.invocation_params.dir)
    unaccepted = "fail" if release is None else "warn"  # of another release nothing is accepted
    localize = _number(config, "localize", float, "seconds, or 0", lambda v: 0 <= v < math.inf)
    samples = _number(
        config,
        "samples",
        int,
        f"a whole number from 0 to {MOST_LISTED}",
        lambda v: 0 <= v <= MOST_LISTED,
    )
    options = Options(
        select=_text(config, "select"),
        suite=str(config.getini("qbench_suite") or ""),
        tolerance=_number(
            config, "tolerance", float, "a number from 0 to below 1", lambda v: 0 <= v < 1
        ),
        threads=_number(config, "threads", int, "a whole number from 1", lambda v: v >= 1),
        limit=_number(config, "limit", int, "a whole number from 1", lambda v: v >= 1),
        baselines=folder("baselines", "baselines"),
        history=_place(config, "history", earlier or "reports/history"),
        keeps_history=history != OFF,
        reports=folder("reports", "reports"),
        report=_kinds(config),
        cache=_place(config, "cache", cache) if cache else None,
        missing=_one_of("missing", _text(config, "missing") or unaccepted, MISSING),
        accept=config.getoption("qbench_accept"),
        accept_fp32=config.getoption("qbench_accept_fp32"),
        reason=str(config.getoption("qbench_reason")).strip(),
        accept_in_ci=config.getoption("qbench_accept_in_ci"),
        prune=config.getoption("qbench_prune"),
        shard=str(config.getoption("qbench_shard")).strip(),
        localize=LOCALIZE if localize is None else localize,
        samples=MOST_SAMPLES if samples is None else samples,
        repeats=_number(config, "repeats", int, "a whole number from 1", lambda v: v >= 1),
        quantize_twice=bool(
            config.getoption("qbench_quantize_twice") or config.getini("qbench_quantize_twice")
        ),
        size_limits=_number(config, "size-limits", int, "a whole number from 1", lambda v: v >= 1),
        resume=bool(config.getoption("qbench_resume") or config.getini("qbench_resume")),
        release=release,
        carry=_carry(_text(config, "carry")),
        cluster=_cluster(config),
    )
    _refuse_accepting(options, environment)
    if "html" in options.report:
        from qbench.reporting import read_repository

        try:  # before hours of measuring, not after them
            read_repository(config.rootpath)
        except InputError as error:
            raise pytest.UsageError(str(error)) from error
    return options


def _cluster(config: pytest.Config) -> ClusterOptions | None:
    """What runs the cells elsewhere.

    Raises:
        pytest.UsageError: an option about it without one that names it.
    """

    def text(name: str) -> str:
        return str(config.getoption(f"qbench_{name}") or "").strip()

    if not (text("cluster") or text("executor")):
        for name in ("plan", "jobs", "worker_folder"):
            if text(name):
                option = name.replace("_", "-")
                raise pytest.UsageError(
                    f"Reading --qbench-{option}: found neither --qbench-cluster nor "
                    "--qbench-executor; expected one of them, as it is about their jobs. Name "
                    "it, or leave this option out."
                )
        return None
    return ClusterOptions(
        address=text("cluster"),
        executor=text("executor"),
        plan=config.invocation_params.dir / text("plan") if text("plan") else None,
        jobs=_number(config, "jobs", int, "a whole number from 1", lambda v: v >= 1),
        worker_folder=text("worker_folder"),
    )


def is_misnamed_suite(path: Path, config: pytest.Config) -> bool:
    """Whether the file at ``path`` is a suite by what is in it, and not by its name."""
    if path.suffix != ".toml" or config.stash.get(ANY_NAME, False):
        return False
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return False
    return {"[suite]", "[[model]]"} <= {line.partition("#")[0].strip() for line in lines}


def origin_of(config: pytest.Config, name: str) -> str:
    """Where the option ``name`` was set, for rules: ``option --qbench-x``, or ``option
    qbench_x`` of the ini.
    """
    return (
        f"option --qbench-{name}" if config.getoption(f"qbench_{name}") else f"option qbench_{name}"
    )


def _refuse_accepting(options: Options, environment: Mapping[str, str]) -> None:
    if not options.writes_baselines:
        return
    doing = "Accepting results" if options.accepts else "Pruning baselines"
    if environment.get("CI", "").lower() not in ("", "0", "false") and not options.accept_in_ci:
        raise _refusal(
            "the environment variable CI",
            "a person at the keyboard",
            "Add --qbench-accept-in-ci if it is intended.",
            doing=doing,
        )
    if options.limit is not None:
        raise _refusal(
            "--qbench-limit",
            "a run over all samples",
            "Leave --qbench-limit out.",
            doing=doing,
        )
    if options.accepts and options.resume:
        raise _refusal(
            "--qbench-resume",
            "results that this run measures",
            "Leave it out, or let the resumed run end and accept it with 'qbench accept latest'.",
        )
    if options.release is not None:
        raise _refusal(
            "--qbench-release",
            "results of the installed packages",
            "Leave --qbench-release out.",
            doing=doing,
        )
    if options.accept in _REASONED and not options.reason:
        raise _refusal(
            f"--qbench-accept={options.accept} without a reason",
            "a reason",
            'Add --qbench-reason "…".',
        )


def _carry(text: str) -> "CarryRule | None":
    if not text:
        return None
    from qbench.tracking import CarryRule  # few sessions have such an option

    try:
        return CarryRule.parse(text)
    except InputError as error:
        raise pytest.UsageError(str(error)) from error


def _release(text: str, folder: Path) -> Release | None:
    package, sign, python = (part.strip() for part in text.partition("="))
    if text and not (package and sign and python):
        raise _bad("release", text, "NAME=PYTHON, such as onnxruntime=envs/ort-1.17.3")
    return Release(package, folder / python) if text else None


def _refusal(
    found: str, expected: str, remedy: str, *, doing: str = "Accepting results"
) -> pytest.UsageError:
    return pytest.UsageError(f"{doing}: found {found}; expected {expected}. {remedy}")


def _scope(text: str) -> str:
    if text not in SCOPES:
        raise argparse.ArgumentTypeError(
            f"found '{text}'; expected one of {', '.join(SCOPES)}; write --qbench-accept=changed "
            "when a path follows"
        )
    return text


def _text(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"qbench_{name.replace('-', '_')}")
    return str(given if given else config.getini(f"qbench_{name.replace('-', '_')}") or "").strip()


def _place(config: pytest.Config, name: str, text: str) -> Path | ObjectFolder:
    """The folder or the URL of option ``name``."""
    try:
        place = place_of(text, config.rootpath)
        if isinstance(place, ObjectFolder):
            place.require_client()
    except (InputError, UnavailableError) as error:
        raise pytest.UsageError(f"--qbench-{name}: {error}") from error
    return place


def _kinds(config: pytest.Config) -> tuple[str, ...]:
    given = config.getoption("qbench_report") or config.getini("qbench_report")
    kinds = (kind.strip() for text in given for kind in str(text).split(","))
    return tuple(dict.fromkeys(_one_of("report", kind, ALL_KINDS) for kind in kinds))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise _bad(name, value, f"one of {', '.join(known)}")
    return value


def _number(config: pytest.Config, name: str, kind: Any, expected: str, fits: Any) -> Any:  # noqa: ANN401
    """The number of option ``name``; some have no ini twin, since such a run is an exception."""
    is_exception = name in ("limit", "repeats", "jobs")
    text = str(config.getoption(f"qbench_{name}") or "") if is_exception else _text(config, name)
    if not text:
        return None
    try:
        value = kind(text)
    except ValueError:
        raise _bad(name, text, expected) from None
    if not fits(value):
        raise _bad(name, text, expected)
    return value


def _bad(name: str, value: str, expected: str) -> pytest.UsageError:
    return pytest.UsageError(
        f"Reading --qbench-{name}: found '{value}'; expected {expected}. Correct the option."
    )

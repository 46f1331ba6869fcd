"""qbench backfill: a suite measured over the releases of a package, each in an environment of
its own.
"""

import argparse
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.bisect_package import (
    ENGINE,
    check_environments,
    declare_environments,
    environments,
    known_versions,
    programs,
)
from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.history_files import find_history
from qbench.cli.options import declare_baselines, declare_cache, declare_json
from qbench.cli.printing import complain, print_columns, print_json, put, say
from qbench.errors import QbenchError, UnavailableError
from qbench.number_text import counted
from qbench.storage import current_factor, is_url
from qbench.working import working

if TYPE_CHECKING:
    from qbench.tracking import Run

# Each release is one 'qbench run --release' in a process of its own: several run at once, and a
# crash is that of one release. The quantized models and the fp32 references are made by the
# installed packages: all releases get the same file, and what changes is the engine alone. A
# release whose whole run file is in the folder is not measured again.

_MEASURED = (ExitCode.FINE, ExitCode.GATE_FAILED)
"""Exit codes of ``qbench run`` after which every cell was run; red cells are expected of old
releases.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release: its run, or why it has none or none with numbers; ``seconds`` it took, 0:
    measured before.
    """

    version: str
    run: "Run | None" = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def measured(self) -> int:
        """Cells with numbers."""
        return 0 if self.run is None else sum(record.is_measured for record in self.run.cells)

    @property
    def state(self) -> str:
        """``measured``, ``kept`` (from before), ``skipped`` or ``interrupted``."""
        if self.run is not None and not self.run.complete:
            return "interrupted"
        if self.reason:
            return "skipped"
        return "measured" if self.seconds else "kept"

    @property
    def line(self) -> str:
        """What is to be known of it, in one line."""
        if self.reason or self.run is None:
            return self.reason
        others = Counter(record.outcome for record in self.run.cells if not record.is_measured)
        words = [
            counted(self.measured, "cell"),
            *(f"{count} {outcome}" for outcome, count in sorted(others.items())),
        ]
        return ", ".join(words) + (f" in {self.seconds:.0f} s" if self.seconds else "")


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench backfill``."""
    parser.add_argument("suite", metavar="SUITE", help="a suite file, suites/<name>.qbench.toml")
    parser.add_argument(
        "--package", metavar="NAME", default=ENGINE, help=f"name of the package (default: {ENGINE})"
    )
    parser.add_argument(
        "--from", dest="first", metavar="A", help="the first release (default: the earliest known)"
    )
    parser.add_argument(
        "--to",
        dest="last",
        metavar="B",
        help="the last release; 1.31 includes 1.31.1 (default: the latest known)",
    )
    declare_environments(parser)
    parser.add_argument(
        "--select",
        metavar="E",
        default="",
        help="cells by axis: 'model=mobilenet_v2 backend=ort-*,onnx-reference'",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=count_from_one,
        help="measure N releases at a time (default: one per core)",
    )
    declare_baselines(parser)
    declare_cache(parser)
    parser.add_argument(
        "--history",
        metavar="DIR",
        help="folder of run files, one per release, or s3://, gs:// or file:// (default: "
        "reports/backfill/NAME)",
    )
    declare_json(parser)
    parser.set_defaults(command=())


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Measure what is missing and print a line for each release; INCOMPLETE when a run was
    interrupted.

    Raises:
        InputError: the suite is wrong, or no release is between the two.
        NotFetchedError: pip lists no releases.
        UnavailableError: not one release could be measured.
    """
    from qbench.suite import Selection, load_suite

    Selection.parse(arguments.select)
    suite = load_suite(Path(arguments.suite)).name
    check_environments(arguments, f"Measuring {arguments.package} over its releases")
    line, python = _line(arguments)
    place = arguments.history or f"reports/backfill/{arguments.package}"
    kept = _kept(place, suite, arguments)
    found = {
        version: Release(version=version, run=kept[version]) for version in line if version in kept
    }
    todo = [version for version in line if version not in kept]
    say(
        f"{counted(len(line), 'release')} of {arguments.package}, {line[0]} … {line[-1]}: "
        f"{len(todo)} to measure"
    )
    measuring = working(f"measuring {arguments.package}", len(todo), "releases")
    with measuring as step, _pool(arguments.jobs or os.cpu_count() or 1) as pool:
        running = [pool.submit(_measured, version, python, place, arguments) for version in todo]
        for number, one in enumerate(as_completed(running), 1):
            release = one.result()
            found[release.version] = release
            step.done = number
            complain(
                f"[{number}/{len(todo)}] {arguments.package} {release.version} {release.state}: "
                f"{release.line}"
            )
    return _finished(arguments, place, [found[version] for version in line])


def _line(arguments: argparse.Namespace) -> tuple[tuple[str, ...], Callable[[str], Path]]:
    """The versions in order, and what finds or makes the Python of one."""
    from qbench.suite import versions_from

    there = environments(arguments)
    known = known_versions(arguments, there)
    first, last = (end or "" for end in (arguments.first, arguments.last))
    return versions_from(arguments.package, known, first, last), programs(arguments, there)


@contextmanager
def _pool(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that each wait for a process; after Ctrl-C, which all of these receive, no
    further one is started.
    """
    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _kept(place: str, suite: str, arguments: argparse.Namespace) -> "dict[str, Run]":
    """Version → its whole run of these cells in the history at ``place``. A run that broke off will
    be measured again: its file in a folder is removed; objects behind a URL are written once.
    """
    history = find_history(place)
    if history is None:
        return {}
    found: dict[str, Run] = {}
    for head in history.heads:
        same = head.releases == arguments.package and head.suite == suite
        if (
            not same
            or head.header.get("select") != arguments.select
            or head.header.get("limited") is not None
        ):
            continue
        for run in history.read_each([head]):
            if run.complete and not run.damaged:
                found[run.commit] = run
                continue
            what = "measured again" if is_url(place) else "replaced"
            say(f"the run of {arguments.package} {run.commit} broke off: {head.path} is {what}")
            if not is_url(place):
                Path(head.path).unlink()
    return found


def _measured(
    version: str, python: Callable[[str], Path], place: str, arguments: argparse.Namespace
) -> Release:
    """The run of one release, in a process of its own."""
    from qbench.backends import own_environment, own_python

    started = time.perf_counter()
    try:
        program = python(version)
    except QbenchError as error:
        return Release(version=version, reason=str(error))
    command = own_python("qbench")
    if current_factor() > 1:
        command += ["--size-limits", str(current_factor())]
    command += [
        "run",
        arguments.suite,
        "--release",
        f"{arguments.package}={program}",
        "--history",
        place,
    ]
    options = {
        "--select": arguments.select,
        "--baselines": arguments.baselines,
        "--cache": arguments.cache,
    }
    command += [word for name, value in options.items() if value for word in (name, str(value))]
    command += [word for name in arguments.extension for word in ("--extension", name)]
    done = subprocess.run(
        command,
        env=own_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.perf_counter() - started
    run = _run_of(version, place, arguments)
    if run is None or (done.returncode not in _MEASURED and run.complete):
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [
            "it printed nothing"
        ]
        reason = f"the run ended with {done.returncode}: {lines[-1]}"
        return Release(version=version, run=run, reason=reason, seconds=seconds)
    reason = "" if any(record.is_measured for record in run.cells) else _why_nothing(run)
    return Release(version=version, run=run, reason=reason, seconds=seconds)


def _run_of(version: str, place: str, arguments: argparse.Namespace) -> "Run | None":
    """The newest run of the release with these cells."""
    history = find_history(place)
    if history is None:
        return None
    wanted = (arguments.package, version)
    same = [head for head in history.heads if (head.releases, head.commit) == wanted]
    mine = [head for head in same if head.header.get("select") == arguments.select]
    return next(history.read_each(mine[-1:]), None)


def _why_nothing(run: "Run") -> str:
    return next((record.headline for record in run.cells if record.headline), "it has no cells")


def _finished(arguments: argparse.Namespace, place: str, releases: Sequence[Release]) -> ExitCode:
    """Print one line per release, and what to do next."""
    if arguments.json:
        facts = [
            {
                "version": one.version,
                "state": one.state,
                "cells": one.measured,
                "reason": one.reason,
                "seconds": round(one.seconds, 1),
                "path": "" if one.run is None else one.run.path,
            }
            for one in releases
        ]
        print_json({"package": arguments.package, "history": place, "releases": facts})
    else:
        print_columns(
            [(one.version, one.state, one.line) for one in releases], (arguments.package, "", "")
        )
    if any(one.state == "interrupted" for one in releases):
        say("interrupted: the same command measures what is missing")
        return ExitCode.INCOMPLETE
    if not any(one.measured for one in releases):
        raise UnavailableError(
            f"Measuring {arguments.package} over {counted(len(releases), 'release')}",
            found=f"nothing: {releases[-1].version} says “{releases[-1].line}”",
            expected="at least one release that runs a cell",
            remedy="Check the suite and the selection with 'qbench run'.",
        )
    if not arguments.json:
        pages = Path("reports/backfill") if is_url(place) else Path(place).parent
        put(f"qbench history check --history {place}")
        put(f"qbench report --history {place} -o {pages / 'pages'}")
    return ExitCode.FINE


COMMAND = Command(
    name="backfill",
    summary="measure a suite over the releases of a package, such as onnxruntime",
    example="qbench backfill suites/smoke.qbench.toml --from 1.17 --to 1.31 --jobs 2",
    declare=declare,
    execute=execute,
)

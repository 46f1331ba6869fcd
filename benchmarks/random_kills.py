"""SIGKILL at a random moment while qbench measures, accepts, caches, indexes, merges, stores or
reports.

    python benchmarks/random_kills.py --to 200 --results kills.jsonl --resume

Each trial is one of the seven, in a copy of a project of two small networks: the command runs in a
fork of this process, which has loaded everything, and is killed after a share of its usual time
that is drawn uniformly from [0, 1) by the number of the trial. Then a report is drawn from what is
there, and the same command runs to its end. It is wrong if

    a part that was accepted, stored, merged or drawn is neither as before nor as afterwards
    a run file that was there has changed, or a cell that was printed as finished is not recorded
    the report cannot be drawn, or the command does not end with 0 and with its result
    a verdict, a metric or a digest differs from that of a run without a kill
    a traceback is shown, or a command takes more than 20 s (``--longest``), without the time in
    which it was ready and had no processor: other programs of a busy computer are no hang
    a temporary file, a lock or a file of SQLite is left

*Old* and *new* count the trials that the kill left as before and as afterwards, *between* those
that left some parts so and others so. To try another activity, add a row to ``ACTIVITIES``.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from file_faults import State, baselines, hidden, index, pages, runs
from scratch_project import SUITE_FILE, write_project
from trials import Program, Result, parser, run

from qbench.errors import QbenchError
from qbench.storage import Cache
from qbench.tracking import read_run

HISTORY, ELSEWHERE, OUTPUT = "reports/history", "elsewhere", "output.txt"
STORE, USER = "bucket", "user"
LONGEST, _SETUP = 20.0, 600.0
_TIMED, _COPIES = 3, 4
_CLEAN = {"SCENARIO": "", "FAKE_PROCESSOR": "x64-test", "QBENCH_CACHE": USER}
_OTHER_CLASS = {"FAKE_PROCESSOR": "arm64-test"}
_OTHER_WEIGHTS = {"SCENARIO": "other weights:none"}
_ACCEPT = ("--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason=r")
_KINDS = ("samples", "fp32", "profiles")
_NOT_COMPARED = ("cache", USER, "__pycache__", ".pytest_cache", OUTPUT)
_STORED = (".jsonl", ".begun")


def complete_runs(folder: Path, places: tuple[str, ...] = (HISTORY,)) -> State:
    """How many runs of the accepted class are complete, and what the last of them says of each
    cell.
    """
    whole = []
    for path in (path for place in places for path in (folder / place).rglob("*.jsonl")):
        with contextlib.suppress(QbenchError):
            one = read_run(path)
            if one.complete and "x64" in str(one.environment.get("processor", "")):
                whole.append(one)
    if not whole:
        return {}
    last = max(whole, key=lambda one: (one.header["sequence"], one.id))
    facts = [
        (str(cell.cell), str(cell.outcome), repr(cell.metrics), repr(cell.digests))
        for cell in last.cells
    ]
    return {"complete runs": str(len(whole)), "cells": repr(sorted(facts))}


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What is killed.

    Args:
        arguments: of pytest, or of qbench if the first names no suite; ``{folder}``: its folder.
        state: what it is about.
        cold: whether it begins with an empty cache.
    """

    name: str
    arguments: tuple[str, ...]
    state: Callable[[Path], State]
    variables: Mapping[str, str] = field(default_factory=dict)
    cold: bool = False


ACTIVITIES = (
    Activity(name="measuring", arguments=(SUITE_FILE,), state=complete_runs),
    Activity(name="accepting", arguments=("accept", "latest"), state=baselines),
    Activity(name="caching", arguments=(SUITE_FILE,), state=complete_runs, cold=True),
    Activity(name="indexing", arguments=("history", "index"), state=index),
    Activity(name="merging", arguments=("merge", ELSEWHERE, "-o", HISTORY), state=runs),
    Activity(
        name="storing",
        arguments=(SUITE_FILE, *_ACCEPT),
        state=baselines,
        variables=_OTHER_WEIGHTS,
    ),
    Activity(
        name="storing at a URL",
        arguments=(SUITE_FILE, f"--qbench-history=file://{{folder}}/{STORE}"),
        state=partial(complete_runs, places=(STORE, f"{USER}/spool")),
    ),
    Activity(
        name="reporting",
        arguments=("report", "--report", "html", "--report", "md"),
        state=pages,
    ),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, negative for a signal; None: it was still running after
    the ``longest`` seconds that it was given. ``computed``: its seconds on a processor.
    """

    code: int | None
    output: str
    seconds: float
    computed: float


def forked(
    folder: Path,
    arguments: tuple[str, ...],
    variables: Mapping[str, str] | None = None,
    *,
    kill_after: float | None = None,
    longest: float = LONGEST,
    names: Path | None = None,
) -> Ended:
    """Run pytest or qbench in a fork in ``folder``, and kill it some seconds after it began; one
    that hangs, after ``longest``.

    ``names``: a file for the names of all modules that were loaded then.
    """
    (folder / OUTPUT).write_text("")
    arguments = tuple(one.format(folder=folder) for one in arguments)
    begins, tells = os.pipe()
    child = os.fork()
    if not child:
        # where it is, in time for the reader of its output
        faulthandler.dump_traceback_later(0.9 * longest)
        _perform(folder, arguments, {**_CLEAN, **(variables or {})}, names, tells)
    os.close(tells)
    os.read(begins, 1)
    os.close(begins)
    begun = time.monotonic()
    until = begun + (longest if kill_after is None else kill_after)
    code: int | None = None
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        left = until - time.monotonic()
        if left <= 0 and kill_after is None:
            left += queued(child)
        if left <= 0:
            os.kill(child, signal.SIGKILL)
            _, status, used = os.wait4(child, 0)
            code = None if kill_after is None else os.waitstatus_to_exitcode(status)
            break
        time.sleep(min(left, 0.001))
    seconds, output = time.monotonic() - begun, (folder / OUTPUT).read_text(errors="replace")
    return Ended(code, output, seconds, used.ru_utime + used.ru_stime)


def queued(process: int) -> float:
    """Seconds in which ``process`` was ready to run and had no processor (``/proc/*/schedstat``,
    the second number, in ns); 0 where the system does not say.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _perform(
    folder: Path,
    arguments: tuple[str, ...],
    variables: Mapping[str, str],
    names: Path | None,
    tells: int,
) -> None:
    """In the fork: the command, after a byte to ``tells``; ends the process."""
    code = 70
    try:
        for name in ("CI", "PYTEST_ADDOPTS"):
            os.environ.pop(name, None)
        os.environ.update(variables)
        os.chdir(folder)
        output = os.open(OUTPUT, os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
        os.write(tells, b"-")
        if arguments[0].endswith(".toml"):
            import pytest

            fixed = ("-v", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist")
            code = int(pytest.main([*fixed, *arguments]))
        else:
            from qbench.cli import main

            code = main(list(arguments))
        if names is not None:
            own = [name for name in sys.modules if name.partition(".")[0] not in _OWN]
            names.write_text(json.dumps(own))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        os.write(2, f"Traceback of {error!r}\n".encode())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


_OWN = ("conftest", "__main__", "test_cells")


def make_project(folder: Path) -> None:
    """The project: accepted results of one class, the last run of another one, twenty runs that
    are not merged yet; the modules that all commands need are loaded.
    """
    write_project(folder)
    (folder / ELSEWHERE).mkdir()
    names = folder / "names.json"
    orders = [
        ((SUITE_FILE, *_ACCEPT), {}),
        *[((SUITE_FILE,), {})] * 6,
        ((SUITE_FILE,), _OTHER_CLASS),
    ]
    for arguments, variables in orders:
        ended = forked(folder, arguments, variables, names=names, longest=_SETUP)
        if ended.code != 0:
            raise SystemExit(f"{' '.join(arguments)}: {ended.code}\n{ended.output}")
        for name in json.loads(names.read_text()):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    names.unlink()
    for path in sorted((folder / HISTORY).glob("*.jsonl"))[2:7]:
        for number in range(_COPIES):
            own = f"{path.stem}{number}"
            text = path.read_text().replace(path.stem, own)
            (folder / ELSEWHERE / f"{own}.jsonl").write_text(text)
        path.unlink()


@dataclass(frozen=True)
class Trials:
    """The trials of one activity, in copies of ``project`` below ``folder``."""

    activity: Activity
    project: Path
    folder: Path
    longest: float
    seconds: "deque[float]" = field(default_factory=lambda: deque(maxlen=_TIMED))
    """How long the last runs without a kill took."""

    @cached_property
    def clean(self) -> tuple[State, State, set[str]]:
        """What it is about before and after a run without a kill, and the names of all files
        then.
        """
        for number in range(_TIMED + 1):
            place = self.copy()
            old = self.activity.state(place)
            names = place.with_name("names.json") if not number else None
            arguments, variables = self.activity.arguments, self.activity.variables
            ended = forked(place, arguments, variables, names=names, longest=_SETUP)
            if ended.code != 0:
                raise SystemExit(f"{self.activity.name}: {ended.code}\n{ended.output}")
            if names is not None:  # the first loads what the others have
                for name in json.loads(names.read_text()):
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
                names.unlink()
                continue
            self.seconds.append(ended.seconds)
        return old, self.activity.state(place), files(place)

    def copy(self) -> Path:
        """A new copy of the project, instead of the last one."""
        place = self.folder / "p"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.project, place)
        if self.activity.cold:
            shutil.rmtree(place / "cache")
        return place

    def trial(self, number: int) -> Result:
        """Kill it at the moment that ``number`` draws, and run it again."""
        old, new, names = self.clean
        share, usual = random.Random(number).random(), statistics.median(self.seconds)
        place = self.copy()
        history = runs(place)
        arguments, variables = self.activity.arguments, self.activity.variables
        first = forked(place, arguments, variables, kill_after=share * usual)
        after = self.activity.state(place)
        wrong = [*_torn(old, new, after), *_history_wrong(place, history, first.output)]
        wrong += [f"while it was killed: {text}" for text in _shown_wrong(first)]
        wrong += _hidden(place)
        shutil.copytree(place, drawn := place.with_name("drawn"))
        report = forked(drawn, _drawn(drawn), longest=self.longest)
        wrong += [f"then a report: {text}" for text in (*_shown_wrong(report), *_code(report))]
        shutil.rmtree(drawn)
        again = forked(place, arguments, variables, longest=self.longest)
        wrong += [f"run again: {text}" for text in (*_shown_wrong(again), *_code(again))]
        last = self.activity.state(place)
        wrong += [f"run again: {one} is another" for one in sorted(_other(last, new, after))]
        wrong += [
            f"left: {one}" for one in sorted(files(place) - names - set(_new_runs(place, history)))
        ]
        wrong += [f"left in the cache: {one}" for one in left_in_cache(place)]
        killed = first.code == -signal.SIGKILL
        if "cells" in new or after == old:
            self.seconds.append(again.seconds)
        return Result(
            trial=number,
            group=self.activity.name,
            counts={"killed" if killed else "ended before": 1, _word(old, new, after): 1},
            wrong=tuple(wrong),
            about=f"killed after {share:.3f} of {usual:.2f} s",
            times={"command run again, seconds": round(again.seconds, 2)},
        )


def _torn(old: State, new: State, after: State) -> list[str]:
    parts = sorted({*old, *new, *after})
    return [
        f"{one} is neither as before nor as afterwards"
        for one in parts
        if after.get(one) not in (old.get(one), new.get(one))
    ]


def _other(last: State, new: State, after: State) -> Iterator[str]:
    """The parts that are not as after a run without a kill; a run that was complete when the kill
    came counts twice.
    """
    for one in {*last, *new}:
        wanted = {new.get(one)}
        if one == "complete runs" and after.get(one) == new.get(one):
            wanted = {str(int(new[one]) + 1)}
        if last.get(one) not in wanted:
            yield one


def _word(old: State, new: State, after: State) -> str:
    if after == new:
        return "new"
    return "old" if after == old else "between"


def _new_runs(folder: Path, history: State) -> Iterator[str]:
    for name in runs(folder):
        if name not in history:
            yield f"{HISTORY}/{name}"


def _history_wrong(folder: Path, before: State, output: str) -> Iterator[str]:
    """What is wrong with the run files: those that were there, and the one that the kill cut."""
    now = runs(folder)
    for name, text in before.items():
        if now.get(name) != text:
            yield f"the run file {name} has changed"
    passed = output.count(" PASSED ")
    own = [text for name, text in now.items() if name not in before]
    for place in (folder / STORE, folder / USER / "spool"):
        own += [path.read_text() for path in place.rglob("*.jsonl")]
    recorded = sum(text.count('"type":"cell"') for text in own)
    if recorded < passed:
        yield f"{passed} cells were printed as passed, {recorded} are recorded"


def _drawn(folder: Path) -> tuple[str, ...]:
    """The command that draws a report of what is there, also of the store where it has runs."""
    words = ("report", "--report", "md")
    return (
        (*words, f"--history=file://{folder}/{STORE}")
        if any((folder / STORE).glob("*.jsonl"))
        else words
    )


def _shown_wrong(ended: Ended) -> Iterator[str]:
    if "Traceback" in ended.output:
        yield f"a traceback: {ended.output[-300:]!r}"
    if ended.code is None:
        yield (
            f"it had not ended after {ended.seconds:.0f} s, of which it computed "
            f"{ended.computed:.1f}: {ended.output[-2000:]!r}"
        )


def _code(ended: Ended) -> Iterator[str]:
    if ended.code:
        yield f"exit code {ended.code}: {ended.output[-300:]!r}"


def _hidden(folder: Path) -> Iterator[str]:
    for one in hidden(folder):
        if any(path.is_file() for path in (folder / one, *(folder / one).rglob("*"))):
            yield f"git would see {one}"


def files(folder: Path) -> set[str]:
    """The names of all files but those of the caches, of the store and of Python, and the output;
    what waits to be stored is one.
    """
    every = [path.relative_to(folder) for path in folder.rglob("*")]
    stored = {one for one in every if one.parts[0] == STORE and one.suffix in _STORED}
    names = {one.as_posix() for one in every if not set(one.parts) & set(_NOT_COMPARED)}
    waiting = {path.name for path in (folder / USER / "spool").rglob("*") if path.is_file()}
    return (names | waiting) - {one.as_posix() for one in stored}


def left_in_cache(folder: Path) -> list[str]:
    """What a killed process left in the cache, after the next entry of each kind was made."""
    cache = Cache(folder / "cache")
    for kind in _KINDS:
        if (cache.folder / kind).is_dir():
            cache.entry(kind, "0" * 64, lambda path: path.write_bytes(b"trial"))
    every = (path.relative_to(cache.folder) for path in cache.folder.rglob("*"))
    return [path.as_posix() for path in every if path.suffix == ".lock" or ".making-" in str(path)]


def work(numbers: Iterable[int], longest: float = LONGEST) -> Iterator[Result]:
    """The trials of these numbers; a command may take ``longest`` seconds."""
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        top = Path(name).resolve()
        make_project(top / "project")
        every = []
        for place, activity in enumerate(ACTIVITIES):
            (top / str(place)).mkdir()
            every.append(Trials(activity, top / "project", top / str(place), longest))
        for number in numbers:
            yield every[number % len(every)].trial(number)


def main() -> int:
    """Run the trials, print the table."""
    made = parser(__doc__, count=200)
    made.add_argument("--longest", type=float, default=LONGEST, metavar="S", help="default: 20")
    options = made.parse_args()
    kinds = ("killed", "ended before", "old", "new", "between")
    trials = partial(work, longest=options.longest)
    return run(options, Program(work=trials, kinds=kinds, same=False))


if __name__ == "__main__":
    sys.exit(main())

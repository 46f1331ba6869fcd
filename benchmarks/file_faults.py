"""Kills and errors at every file operation of libc.

    python benchmarks/file_faults.py [--to N] [--results F --resume] [--shard I/N] [--only N]

Each row of ``ROWS`` is a command that writes: it accepts, merges, builds the index, writes the
report, joins annotations, lists a cell. A library that gcc compiles now is loaded into it
(LD_PRELOAD). It counts the operations in the folders that the command writes (open to write, write,
rename, unlink, mkdir, rmdir, fsync, chmod, link, truncate); at the k-th it kills the process,
writes half and kills it, or returns an error. After each trial every file that the command is about
is the old or the new one, as qbench reads it; the same command again, without faults, makes it the
new one; nothing hidden is left that git would see.

The row ``together`` starts all these commands at once, some of them twice, and kills one at a
random moment: what a command that ended with 0 wrote is there, and after each command again, the
whole is as if they had run one by one. What a command said that was not killed and did not end with
0 is kept.

Trial by trial it is the turn of the next row, so that ``--shard 9/9`` is ``together`` alone; the
trials of a row are spread over its operations. The options of numbers and files are those of all
trials (``benchmarks/trials.py``). To add a command, add a row.
"""

import contextlib
import errno
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scratch_project import SUITE_FILE, write_project
from trials import Program, Result, parser, run

from qbench.errors import QbenchError
from qbench.tracking import load_baseline

_SHIM = r"""
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int done = 0;
static int below(const char *path) {  /* FAULT_BELOW: absolute folders, with colons between */
    const char *folders = getenv("FAULT_BELOW");
    char whole[8192];
    if (!folders || !path) return 0;
    if (*path == '/') whole[0] = 0;
    else if (getcwd(whole, 4096)) strcat(whole, "/");
    else return 0;
    strncat(whole, path, 4000);
    while (*folders) {
        size_t n = strcspn(folders, ":");
        if (n && !strncmp(whole, folders, n)) return 1;
        folders += n + (folders[n] == ':');
    }
    return 0;
}
static int below_fd(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}
static int fault(void) {           /* 0: go on, 1: fail with errno, 2: torn */
    const char *at = getenv("FAULT_AT"), *what = getenv("FAULT_WHAT");
    done++;
    if (!at || done != atoi(at)) return 0;
    if (!strcmp(what, "kill")) raise(SIGKILL);
    if (!strcmp(what, "torn")) return 2;
    errno = atoi(what);
    return 1;
}
__attribute__((destructor)) static void tell(void) {
    const char *count = getenv("FAULT_COUNT");
    if (count && getenv("FAULT_BELOW")) { fprintf(stderr, "OPERATIONS %d\n", done); }
}
#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define ONE(name, path, args, list) int name list { REAL(name); \
    if (below(path)) { int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); } \
    return real args; }
#define OPENS (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
int open(const char *path, int flags, ...) {
    REAL(open); va_list l; va_start(l, flags); int mode = va_arg(l, int); va_end(l);
    if ((flags & OPENS) && below(path)) {
        int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); }
    return real(path, flags, mode); }
int open64(const char *path, int flags, ...) {
    REAL(open64); va_list l; va_start(l, flags); int mode = va_arg(l, int); va_end(l);
    if ((flags & OPENS) && below(path)) {
        int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); }
    return real(path, flags, mode); }
ssize_t write(int fd, const void *data, size_t n) { REAL(write);
    if (below_fd(fd)) { int f = fault(); if (f == 1) return -1;
        if (f == 2) { real(fd, data, n / 2); raise(SIGKILL); } }
    return real(fd, data, n); }
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) { REAL(pwrite64);
    if (below_fd(fd)) { int f = fault(); if (f == 1) return -1;
        if (f == 2) { real(fd, data, n / 2, at); raise(SIGKILL); } }
    return real(fd, data, n, at); }
int ftruncate64(int fd, off_t size) { REAL(ftruncate64);
    if (below_fd(fd)) { int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); }
    return real(fd, size); }
int fsync(int fd) { REAL(fsync);
    if (below_fd(fd)) { int f = fault(); if (f == 1) return -1; if (f == 2) raise(SIGKILL); }
    return real(fd); }
ONE(rename, from, (from, to), (const char *from, const char *to))
ONE(unlink, path, (path), (const char *path))
ONE(rmdir, path, (path), (const char *path))
ONE(mkdir, path, (path, mode), (const char *path, mode_t mode))
ONE(chmod, path, (path, mode), (const char *path, mode_t mode))
ONE(link, to, (from, to), (const char *from, const char *to))
ONE(linkat, to, (a, from, b, to, flags),
    (int a, const char *from, int b, const char *to, int flags))
"""
_KINDS = ("kill", "torn", "ENOSPC", "EIO", "EACCES", "EMFILE", "EROFS")
_ELSEWHERE = {"FAKE_PROCESSOR": "arm64-test"}
"""A class of which nothing is accepted."""
_QBENCH, _PYTEST = (
    (sys.executable, "-m", "qbench"),
    (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
)
_HISTORY, _NOTES = "reports/history", "reports/history/annotations.toml"
_QUARANTINE = "suites/nets.quarantine.toml"
_LISTED = ("--reason", "r", "--owner", "o", "--until", "2999-12-31", "--measured", "m")
_NOTE = """[[annotation]]
suite = "nets"
cell = "{cell}"
metric = "agreement"
commit = "{commit}"
state = "acknowledged"
reason = "r"
author = "o"
"""

State = Mapping[str, str]
"""What a command is about: part → its content as it is read;
a part that is not there is left out.
"""


def baselines(folder: Path) -> State:
    """The accepted results of each model, as qbench reads them."""
    found = {}
    for path in sorted((folder / "baselines" / "nets").glob("*.json")):
        try:
            read = load_baseline(path)
        except QbenchError as error:
            found[path.name] = f"unreadable: {error}"
        else:
            found[path.name] = repr(
                (read.model_digest, read.cells, read.calibrations, sorted(read.kept))
            )
    return found


def runs(folder: Path) -> State:
    """The run files."""
    return {path.name: path.read_text() for path in sorted((folder / _HISTORY).glob("*.jsonl"))}


def index(folder: Path) -> State:
    """The runs and cells of the index, where it is one."""
    path = folder / _HISTORY / "index.sqlite"
    if not path.exists() or not path.stat().st_size:
        return {}
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            names = [
                name
                for (name,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            ]
            if not names:
                return {}
            counts = {
                name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
                for name in sorted(names)
            }
            sound = database.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        return {"index": f"damaged: {error}"}
    return {"index": f"{sound} {counts}"} if any(counts.values()) else {}


def pages(folder: Path) -> State:
    """The pages of the report."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted((folder / "reports").rglob("*.html"))
    }


def entries(file: str, key: str) -> Callable[[Path], State]:
    """The entries of a TOML file, as one part: they are written together."""

    def read(folder: Path) -> State:
        path = folder / file
        if not path.exists():
            return {}
        try:
            return {file: repr(sorted(map(repr, tomllib.loads(path.read_text())[key])))}
        except (
            tomllib.TOMLDecodeError,
            KeyError,
        ):  # the markers of git, before both sides are joined
            return {file: path.read_text()}

    return read


@dataclass(frozen=True, kw_only=True)
class Row:
    """A command that writes.

    Args:
        below: the folders that it writes.
        state: what it is about.
        again: its exit codes when all is done already.
        needs_conflict: whether the project is in the middle of a merge of git.
    """

    name: str
    command: tuple[str, ...]
    below: tuple[str, ...]
    state: Callable[[Path], State]
    variables: Mapping[str, str] = field(default_factory=dict)
    again: tuple[int, ...] = (0,)
    needs_conflict: bool = False


ROWS = (
    Row(
        name="accept", command=(*_QBENCH, "accept", "latest"), below=("baselines",), state=baselines
    ),
    Row(
        name="--qbench-accept",
        command=(*_PYTEST, SUITE_FILE, "--qbench-accept=new"),
        below=("baselines", "reports"),
        state=baselines,
        variables=_ELSEWHERE,
    ),
    Row(
        name="--qbench-accept-fp32",
        command=(
            *_PYTEST,
            SUITE_FILE,
            "--qbench-accept-fp32",
            "--qbench-accept=all",
            "--qbench-reason=r",
        ),
        below=("baselines", "reports"),
        state=baselines,
        variables=_ELSEWHERE,
    ),
    Row(
        name="merge",
        command=(*_QBENCH, "merge", "elsewhere", "-o", _HISTORY),
        below=("reports",),
        state=runs,
    ),
    Row(
        name="history index",
        command=(*_QBENCH, "history", "index"),
        below=("reports",),
        state=index,
    ),
    Row(
        name="report",
        command=(*_QBENCH, "report", "--report", "html"),
        below=("reports",),
        state=pages,
    ),
    Row(
        name="annotations",
        command=(*_QBENCH, "merge", "--conflict", _NOTES),
        below=("reports",),
        state=entries(_NOTES, "annotation"),
        needs_conflict=True,
    ),
    Row(
        name="quarantine",
        command=(*_QBENCH, "quarantine", f"{SUITE_FILE}::two::*", *_LISTED),
        below=("suites",),
        state=entries(_QUARANTINE, "cell"),
        again=(2,),  # it is listed already
    ),
)
_CELLS = ("one::plain", "one::mine", "two::plain", "two::mine")
TOGETHER = (
    *((*_QBENCH, "accept", "latest", "--cell", f"{cell}+fp32") for cell in _CELLS),
    # Not those that are accepted: a cell that is listed never is.
    *((*_QBENCH, "quarantine", f"{SUITE_FILE}::{cell}+w8a8*", *_LISTED) for cell in _CELLS),
    *((*_QBENCH, "history", "index"), (*_QBENCH, "history", "index")),
    *(
        (*_QBENCH, "merge", "elsewhere", "-o", _HISTORY),
        (*_QBENCH, "merge", "elsewhere", "-o", _HISTORY),
    ),
    (*_QBENCH, "report", "--report", "html"),
)
"""Commands that are started at once."""


def ran(
    command: tuple[str, ...],
    folder: Path,
    variables: Mapping[str, str],
    shim: Path | None = None,
    **fault: str,
) -> subprocess.CompletedProcess[str]:
    """The command once; with ``shim`` and a fault."""
    loaded = {} if shim is None else {"LD_PRELOAD": str(shim), **fault}
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")
    }
    environment |= {**variables, **loaded}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def make_project(folder: Path) -> None:
    """The project, accepted on one class; the last run, of another class, and one from
    elsewhere are not.
    """
    write_project(folder)
    accept = (*_PYTEST, SUITE_FILE, "--qbench-accept-fp32", "--qbench-accept=new")
    for command, variables in (
        (accept, {}),
        ((*_PYTEST, SUITE_FILE), {}),
        ((*_PYTEST, SUITE_FILE), _ELSEWHERE),
    ):
        done = ran(command, folder, variables)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
    second = sorted((folder / _HISTORY).glob("*.jsonl"))[1]
    (folder / "elsewhere").mkdir()
    second.rename(folder / "elsewhere" / second.name)


def make_conflict(folder: Path) -> None:
    """Both sides of a merge annotated another cell."""

    def git(*words: str, check: bool = True) -> None:
        named = (
            "git",
            "-c",
            "user.name=o",
            "-c",
            "user.email=o@example.org",
            "-c",
            "init.defaultBranch=main",
        )
        subprocess.run([*named, *words], cwd=folder, capture_output=True, check=check)

    notes = folder / _NOTES
    notes.write_text(_NOTE.format(cell="one::plain+fp32", commit="a" * 7))
    first = notes.read_text()
    git("init")
    git("add", _NOTES)
    git("commit", "-m", "first")
    git("checkout", "-b", "other")
    for branch, cell in (("other", "one::mine+fp32"), ("main", "two::mine+fp32")):
        git("checkout", branch)
        notes.write_text(f"{first}\n{_NOTE.format(cell=cell, commit='b' * 7)}")
        git("commit", "-am", branch)
    git("merge", "other", check=False)


def hidden(folder: Path) -> list[str]:
    """Files and folders that a command left behind and git would see."""
    found = [path for path in folder.rglob(".qbench*") if ".git" not in path.parts]
    return [str(path.relative_to(folder)) for path in found if not _is_ignored(path)]


def _is_ignored(path: Path) -> bool:
    note = path / ".gitignore"
    return path.is_dir() and note.exists() and "*" in note.read_text().splitlines()


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The trials of one row: its project, what it is about before and after, and its operations."""

    row: Row
    shim: Path
    project: Path
    old: State
    new: State
    operations: int

    @classmethod
    def of(cls, row: Row, shim: Path, project: Path, folder: Path) -> "Trials":
        """Count the operations of ``row`` in copies of ``project`` below ``folder``."""
        own = folder / "own"
        shutil.copytree(project, own)
        if row.needs_conflict:
            make_conflict(own)
        old = row.state(own)
        counted = folder / "counted"
        shutil.copytree(own, counted)
        fault = {
            "FAULT_AT": "0",
            "FAULT_WHAT": "kill",
            "FAULT_COUNT": "1",
            "FAULT_BELOW": below(row, counted),
        }
        done = ran(row.command, counted, row.variables, shim, **fault)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        lines = [line.split() for line in done.stderr.splitlines() if line.startswith("OPERATIONS")]
        counts = max(int(words[1]) for words in lines)
        return cls(
            row=row, shim=shim, project=own, old=old, new=row.state(counted), operations=counts
        )

    def trial(self, number: int, turn: int) -> Result:
        """What the fault of this ``turn`` leaves: ``old``, ``new`` or ``between``, and what is
        wrong.
        """
        what, at = self._place(turn)
        with tempfile.TemporaryDirectory(prefix="faults-") as name:
            folder = Path(name).resolve() / "p"
            shutil.copytree(self.project, folder)
            fails = str(getattr(errno, what)) if what.startswith("E") else what
            fault = {
                "FAULT_AT": str(at),
                "FAULT_WHAT": fails,
                "FAULT_BELOW": below(self.row, folder),
            }
            first = ran(self.row.command, folder, self.row.variables, self.shim, **fault)
            after = self.row.state(folder)
            again = ran(self.row.command, folder, self.row.variables)
            return Result(
                trial=number,
                group=self.row.name,
                counts={self._word(after): 1},
                wrong=tuple(self._wrong(what, first, after, again, folder)),
                about=f"{what} at operation {at} of {self.operations}",
            )

    def _place(self, turn: int) -> tuple[str, int]:
        """Kind and operation of the fault of a turn: all of them in as many turns, and any few
        turns spread over all.
        """
        count = self.operations * len(_KINDS)
        step = next(
            one for one in range(int(0.618 * count), 2 * count) if math.gcd(one, count) == 1
        )
        place = turn * step % count
        return _KINDS[place % len(_KINDS)], place // len(_KINDS) + 1

    def _word(self, after: State) -> str:
        if after == self.new:
            return "new"
        return "old" if after == self.old else "between"

    def _wrong(
        self,
        what: str,
        first: subprocess.CompletedProcess[str],
        after: State,
        again: subprocess.CompletedProcess[str],
        folder: Path,
    ) -> list[str]:
        parts = sorted({*self.old, *self.new, *after})
        torn = [
            one for one in parts if after.get(one) not in (self.old.get(one), self.new.get(one))
        ]
        codes = (0, *self.row.again) if after == self.new else (0,)
        checks = {
            f"neither old nor new: {', '.join(torn)}": bool(torn),
            "a traceback": "Traceback" in first.stderr + again.stderr,
            "exit code 0 without the result": what.startswith("E")
            and not first.returncode
            and after != self.new,
            f"then exit code {again.returncode}: {again.stderr[-300:]!r}": (
                again.returncode not in codes
            ),
            "not the new state afterwards": self.row.state(folder) != self.new,
            "left over": bool(hidden(folder)),
        }
        return [text for text, is_so in checks.items() if is_so]


def below(row: Row, folder: Path) -> str:
    """The folders of ``row`` for the library."""
    return ":".join(f"{folder / one}" for one in row.below)


def together(project: Path, number: int) -> Result:
    """All commands at once, one of them killed at a moment that ``number`` gives; then each
    again.
    """
    chance = random.Random(number)
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name).resolve() / "p"
        shutil.copytree(project, folder)
        started = [_started(command, folder) for command in TOGETHER]
        victim = chance.randrange(len(started))
        timer = threading.Timer(chance.uniform(0.3, 4.0), started[victim].kill)
        timer.start()
        ended = [(process.communicate()[1], process.returncode) for process in started]
        timer.cancel()
        wrong = [
            f"{' '.join(TOGETHER[i][3:6])} ended with {code}: {text[-500:]!r}"
            for i, (text, code) in enumerate(ended)
            if "Traceback" in text or (code and i != victim)
        ]
        found = _effects(folder)
        for place, (_, code) in enumerate(ended):
            if code == 0 and not found[place]:
                wrong.append(f"{' '.join(TOGETHER[place][3:6])} ended with 0 without its result")
        again = [ran(command, folder, {}) for command in TOGETHER]
        wrong += ["a traceback of the second time" for one in again if "Traceback" in one.stderr]
        wrong += [
            f"then not the result of {' '.join(TOGETHER[i][3:6])}"
            for i, is_so in enumerate(_effects(folder))
            if not is_so
        ]
        wrong += [f"left over: {one}" for one in hidden(folder)]
        killed = ended[victim][1] == -signal.SIGKILL
        return Result(
            trial=number,
            group="together",
            counts={"killed" if killed else "whole": 1},
            wrong=tuple(wrong),
            about=f"{' '.join(TOGETHER[victim][3:6])} killed",
        )


def _started(command: tuple[str, ...], folder: Path) -> "subprocess.Popen[str]":
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _effects(folder: Path) -> list[bool]:
    """For each of the commands: whether what it writes is there."""
    read = baselines(folder)
    accepted = {
        (model, backend): load_baseline(folder / "baselines" / "nets" / f"{model}.json").cells[
            f"{backend}+fp32"
        ]
        for model in ("one", "two")
        for backend in ("plain", "mine")
        if not read[f"{model}.json"].startswith("unreadable")
    }
    is_accepted = [
        any(name.startswith("arm64-test") for name in held.accepted) for held in accepted.values()
    ]
    text = (folder / _QUARANTINE).read_text() if (folder / _QUARANTINE).exists() else ""
    listed = {one["cell"] for one in tomllib.loads(text).get("cell", [])}
    files = {path.name for path in (folder / "elsewhere").iterdir()}
    merged = files <= {path.name for path in (folder / _HISTORY).iterdir()}
    has_index = index(folder).get("index", "").startswith("ok")
    whole = pages(folder)
    is_drawn = bool(whole) and all(text.rstrip().endswith("</html>") for text in whole.values())
    return [
        *is_accepted,
        *(f"{cell}+w8a8*" in listed for cell in _CELLS),
        has_index,
        has_index,
        merged,
        merged,
        is_drawn,
    ]


def made_shim(folder: Path) -> Path:
    """The library that counts and fails."""
    shim = folder / "faults.so"
    shim.with_suffix(".c").write_text(_SHIM)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-w", "-O1", "-o", shim, shim.with_suffix(".c"), "-ldl"],
        check=True,
    )
    return shim


def work(numbers: Iterable[int]) -> Iterator[Result]:
    """The trials of these numbers."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        top = Path(name).resolve()
        make_project(top / "project")
        shim = made_shim(top)
        rows: dict[int, Trials] = {}
        for number in numbers:
            turn, place = divmod(number, len(ROWS) + 1)
            if place == len(ROWS):
                yield together(top / "project", number)
                continue
            if place not in rows:
                rows[place] = Trials.of(ROWS[place], shim, top / "project", top / str(place))
            yield rows[place].trial(number, turn)


def main() -> int:
    """Run the trials, print the table."""
    options = parser(__doc__, count=300).parse_args()
    kinds = ("old", "new", "between", "killed")
    return run(options, Program(work=work, kinds=kinds, same=False))


if __name__ == "__main__":
    sys.exit(main())

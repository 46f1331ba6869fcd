"""Can a run be green that should be red? One trial per change after acceptance, each a pytest
process of its own.

    python benchmarks/green_scenarios.py [--results F --resume] [--rows 'loader:*'] [--only N]

A project of two small networks is accepted once; every row copies it, makes one change and runs
pytest in a fork of this process, which has loaded the modules, so that a row takes a second. A row
that should be red and ends with 0 is *green wrongly*. The options of numbers and files are those of
all trials (``benchmarks/trials.py``); the number of a row is its place.

To add a scenario, add a place to ``PLACES``, an end to ``ENDS``, or a row to ``OTHERS``.
"""

import contextlib
import fnmatch
import importlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scratch_project import SUITE_FILE, TEST_FILE, write_project
from trials import Program, Result, parser, run

LOADED, OUTPUT = "loaded.json", "output.txt"
HANG_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scenario: what happens where, and whether the run has to be red."""

    name: str
    red: bool = True
    why: str = "a result was accepted, and now the cell has none"
    arguments: tuple[str, ...] = (SUITE_FILE,)
    variables: dict[str, str] = field(default_factory=dict)


ENDS = (
    *(
        "skip",
        "importorskip",
        "xfail",
        "SkipTest",
        "not fetched",
        "unsupported",
        "no module",
        "fail",
        "exception",
    ),
    *("SystemExit", "GeneratorExit", "KeyboardInterrupt", "pytest.exit", "os._exit", "exit of C"),
)
PLACES = (
    *(
        "loader",
        "graph",
        "data",
        "sample",
        "task",
        "backend",
        "run",
        "setup hook",
        "call hook",
        "record hook",
    ),
    *("extension", "collection"),
)
CACHED = ("sample",)
"""Places whose result is in the cache: the row clears it."""
OUTPUTS = (
    *(
        "name",
        "more",
        "nothing",
        "none",
        "list",
        "text",
        "objects",
        "complex",
        "integers",
        "rank",
        "rows",
        "columns",
    ),
    *("zeros", "nan", "negated"),
)
SEVERAL = ("skip", "not fetched", "SystemExit", "pytest.exit", "os._exit")

OTHERS = (
    Row(name="nothing", red=False, why="nothing changed"),
    Row(name="nothing, Python test", red=False, why="nothing changed", arguments=(TEST_FILE,)),
    Row(name="-k one", red=False, why="the command selects these cells",
        arguments=(SUITE_FILE, "-k", "one")),
    Row(name="loader:skip, other class", red=False, why="nothing was accepted on this processor",
        variables={"FAKE_PROCESSOR": "arm64-test"},
        arguments=(SUITE_FILE, "--qbench-missing=skip")),
    Row(name="loader:skip of all", why="nothing was measured",
        variables={"SCENARIO": "loader:skip", "FAKE_PROCESSOR": "arm64-test"},
        arguments=(SUITE_FILE, "-k", "two", "--qbench-missing=skip")),
    *(Row(name=f"mark:{mark}") for mark in ("skip", "skipif", "xfail not run")),
    Row(name="mark:xfail", why="the mark does not hide a cell that passes", red=False),
    Row(name="other weights:xfail", why="the cell is red, whatever a mark expects"),
    Row(name="other weights:exit status 0", why="a hook cannot make red cells green"),
    Row(name="protocol:none", why="a selected cell was not run"),
    *(Row(name=f"session start:{end}", why="no cell was run") for end in SEVERAL),
    *(Row(name=f"configure:{end}", why="no cell was run") for end in SEVERAL if end != "os._exit"),
    *(Row(name=f"conftest:{end}", why="no cell was run")
      for end in ("skip", "SystemExit", "exception")),
    *(Row(name=f"start hook:{end}", why="a selected cell was not run") for end in SEVERAL),
    *(Row(name=f"{place}:{end}", why="cells are red, whatever ends the session afterwards")
      for place in ("summary", "unconfigure", "session end") for end in ENDS),
    Row(name="removed:cells", why="a hook removed cells and did not say so"),
)  # fmt: skip


def rows() -> Iterator[Row]:
    """Every scenario, under a name of its own."""
    yield from OTHERS
    for place in PLACES:
        yield from (Row(name=f"{place}:{end}") for end in ENDS)
    yield from (
        Row(name=f"output:{kind}", why="the answers are others, or none") for kind in OUTPUTS
    )
    for end in SEVERAL:
        for place in ("loader", "fixture", "setup hook"):
            yield Row(name=f"{place}:{end}, Python test", arguments=(TEST_FILE,))
    for end in SEVERAL:  # the slowest last
        for place in ("loader", "setup hook"):
            yield Row(name=f"{place}:{end}, workers", arguments=(SUITE_FILE, "-n2"))


def make_project(folder: Path) -> None:
    """Write the project, accept its results, and load the modules that this takes:
    each row is then a fork.
    """
    write_project(folder)
    (folder / LOADED).write_text("[]")
    if _forked(
        folder, (SUITE_FILE, "--qbench-accept-fp32", "--qbench-accept=new"), {}, keeps_names=True
    ):
        raise SystemExit(f"the project could not be accepted: see {folder / OUTPUT}")
    for name in json.loads((folder / LOADED).read_text()):
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def exit_code(row: Row, project: Path, folder: Path) -> int:
    """The exit code of pytest for ``row`` in a copy of ``project`` at ``folder``."""
    shutil.copytree(project, folder)
    scenario = row.variables.get("SCENARIO", row.name.partition(",")[0])
    if scenario.partition(":")[0] in CACHED:
        shutil.rmtree(folder / "cache")
    return _forked(folder, row.arguments, {**row.variables, "SCENARIO": scenario})


def _waited(child: int) -> int:
    """The exit code of ``child``; one that hangs is killed: 137."""
    until = time.monotonic() + HANG_S
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            ended = os.waitstatus_to_exitcode(status)
            return ended if ended >= 0 else 128 - ended
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            until = math.inf
        time.sleep(0.05)


def _forked(
    folder: Path,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    *,
    keeps_names: bool = False,
) -> int:
    """The exit code of pytest in a fork of this process, which has loaded its modules;
    128 + a signal.
    """
    child = os.fork()
    if child:
        return _waited(child)
    code = 70
    try:
        for name in ("CI", "PYTEST_ADDOPTS"):
            os.environ.pop(name, None)
        os.environ.update(variables)
        os.chdir(folder)
        output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = int(pytest.main(["-q", "--assert=plain", "-p", "no:cacheprovider", *arguments]))
        if keeps_names:
            own = [
                name
                for name in sys.modules
                if name.partition(".")[0] not in ("conftest", "__main__", "test_cells")
            ]
            Path(LOADED).write_text(json.dumps(own))
    except SystemExit as end:  # as the interpreter would
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        os._exit(code)


def result(number: int, row: Row, code: int) -> Result:
    """What trial ``number``, of ``row``, gave."""
    wrong = "green wrongly" if row.red else "red wrongly"
    return Result(
        trial=number,
        counts={"should be red" if row.red else "should be green": 1, f"exit {code}": 1},
        wrong=(f"{wrong}: {row.name} (exit code {code}; {row.why})",)
        if row.red != (code != 0)
        else (),
        about=row.name,
    )


def work(numbers: Iterable[int]) -> Iterator[Result]:
    """The trials of these numbers."""
    every = list(rows())
    with tempfile.TemporaryDirectory(prefix="qbench-green-") as text:
        folder = Path(text)
        make_project(folder / "project")
        for number in numbers:
            code = exit_code(every[number], folder / "project", folder / str(number))
            shutil.rmtree(folder / str(number))
            yield result(number, every[number], code)


def main() -> int:
    """Run the rows, print the table of what is wrong."""
    names = [row.name for row in rows()]
    made = parser(__doc__, count=len(names))
    made.add_argument(
        "--rows", nargs="+", default=["*"], metavar="PATTERN", help="the rows whose names match one"
    )
    options = made.parse_args()

    def chosen(number: int) -> bool:
        found = names[number : number + 1]
        return any(fnmatch.filter(found, one) for one in options.rows)

    kinds = ("should be red", "should be green")
    return run(options, Program(work=work, kinds=kinds, chosen=chosen))


if __name__ == "__main__":
    sys.exit(main())

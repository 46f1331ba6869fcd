"""Which files and functions a cell goes through, from its suite file to the page; measured by
running one.

    python benchmarks/hops.py           prints both counts and the table of the path
    python benchmarks/hops.py --list    also names every function, in the order of their first calls
    python benchmarks/hops.py --write   writes the table into docs/architecture.md
    python benchmarks/hops.py --check   fails where the table of docs/architecture.md is another one

    hop = a function of qbench that is handed the cell in one of its FORMS, each counted once

A suite of one cell is accepted in a process of its own. Then it is run again and followed, in a new
folder and with a cache of its own: this is the way of a cell that is compared with an accepted
result and passes, and it is the same on every computer. Properties and class bodies count like
functions; comprehensions and lambdas do not.
"""

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
FIRST, LAST = "<!-- path of a cell -->", "<!-- end of path -->"
SUITE = """\
[suite]
backends = ["integer-ort-x64-avx2"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "digits_cnn"
data = "digits_test"
calibration = { data = "digits_train", count = 32 }
metrics = ["top1"]
"""
"""Its answers are the same on every processor; some are others than in float, which have a page."""
FORMS = (
    *(
        "SuiteText",
        "SuiteTable",
        "ModelTable",
        "Suite",
        "PlannedCell",
        "CellItem",
        "Request",
        "Measurement",
    ),
    *("Context", "Verdict", "JudgedCell", "line", "CellRecord", "CellView", "Report"),
)
"""The types of a cell on its way.

``Context`` is what gates are judged from (``judging/gates.py``); ``line`` is the line of the run
file as plain values.
"""

STAGES = (
    ("collect", "SuiteFile.collect"),
    ("plan", "expand"),
    ("run", "CellItem.runtest"),
    ("judge", "Bench.judge"),
    ("record", "JudgedCell.record"),
    ("report", "finish"),
)
"""Each stage with the function that begins it."""

INNER = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>", "<module>")
_NEWLOCALS = 0x2
"""The flag of code that is a function and not the body of a class."""


@dataclass(frozen=True, slots=True)
class Place:
    """A function of qbench: its file below ``qbench`` and its qualified name."""

    file: str
    name: str


@dataclass(slots=True)
class Stage:
    """What was entered in one part of the way:
    function → the forms of the cell that it was handed.
    """

    name: str
    entered: dict[Place, set[str]] = field(default_factory=dict)

    @property
    def hops(self) -> dict[Place, set[str]]:
        """The functions that were handed the cell."""
        return {place: forms for place, forms in self.entered.items() if forms}


class Follower:
    """A pytest plugin that notes the functions that are entered while
    a suite of one cell is run.
    """

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._root = f"{ROOT / 'qbench'}{os.sep}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Iterator[None]:
        """Follow what is collected."""
        with self._following():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Follow the cell, and not the fp32 run of its model."""
        if "fp32" in item.nodeid:
            return (yield)
        with self._following():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Follow the report."""
        with self._following():
            return (yield)

    @contextlib.contextmanager
    def _following(self) -> Iterator[None]:
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if (
            event != "call"
            or not code.co_filename.startswith(self._root)
            or not code.co_flags & _NEWLOCALS
        ):
            return
        if any(part in code.co_qualname for part in INNER):
            return
        place = Place(
            code.co_filename.removeprefix(self._root).replace(os.sep, "/"), code.co_qualname
        )
        self._begin(place.name)
        if not self.stages:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        forms = {_form(frame.f_locals.get(name)) for name in names} - {""}
        self.stages[-1].entered.setdefault(place, set()).update(forms)

    def _begin(self, function: str) -> None:
        """Begin the next stage where ``function`` is its first."""
        begun = len(self.stages)
        if begun < len(STAGES) and STAGES[begun][1] == function:
            self.stages.append(Stage(STAGES[begun][0]))


def _form(value: object) -> str:
    """The form in which ``value``, or the first of several values, is the cell; empty:
    it is not.
    """
    if isinstance(value, list | tuple) and value:
        value = value[0]
    if type(value) is dict and value.get("type") == "cell":
        return "line"
    name = type(value).__name__
    return name if name in FORMS else ""


def followed() -> list[Stage]:
    """The stages of a cell that is compared with an accepted result and passes."""
    follower = Follower()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one.qbench.toml").write_text(SUITE, encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        common = [
            f"--rootdir={folder}",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            str(folder / "one.qbench.toml"),
        ]
        common += [
            f"--qbench-{kind}={folder / kind}"
            for kind in ("baselines", "history", "reports", "cache")
        ]
        accepting = [
            sys.executable,
            "-m",
            "pytest",
            *common,
            "--qbench-accept-fp32",
            "--qbench-accept=new",
            "--qbench-accept-in-ci",
        ]
        subprocess.run(accepting, check=True, cwd=folder, capture_output=True)
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
            code = pytest.main([*common, "--qbench-report=html"], plugins=[follower])
    if code or len(follower.stages) != len(STAGES):
        raise SystemExit(
            "the cell did not pass, or a function that begins a stage has another name:\n"
            f"{out.getvalue()}"
        )
    return follower.stages


def table(stages: list[Stage]) -> str:
    """The path as Markdown: one row for each file of a stage,
    in the order in which it is first handed the cell.
    """
    lines = ["| stage | file | functions handed the cell | as |", "|---|---|---|---|"]
    for stage in stages:
        files: dict[str, list[set[str]]] = {}
        for place, forms in stage.hops.items():
            files.setdefault(place.file, []).append(forms)
        for file, handed in files.items():
            lines.append(
                f"| {stage.name} | `qbench/{file}` | {len(handed)} | "
                f"{_words(set().union(*handed))} |"
            )
    return "\n".join(lines)


def _words(forms: set[str]) -> str:
    return ", ".join(f"`{form}`" for form in FORMS if form in forms)


def summary(stages: list[Stage]) -> str:
    """The counts in two sentences."""
    named = {stage.name: stage for stage in stages}
    between = [named[name] for name in ("run", "judge", "record")]
    types = {form for stage in stages for forms in stage.hops.values() for form in forms}
    item = _counted({place for stage in between for place in stage.hops})
    whole = _counted({place for stage in stages for place in stage.hops})
    return (
        f"From its suite file to the page a cell has {len(types)} types and is handed to {whole}. "
        "Between "
        f"`CellItem.runtest` and the line in the run file these are {item}."
    )


def _counted(places: set[Place]) -> str:
    return f"{len(places)} functions in {len({place.file for place in places})} files"


def _parts(text: str) -> tuple[str, str, str]:
    """What the page has before, between and after the marks."""
    head, _, rest = text.partition(FIRST)
    inner, _, tail = rest.partition(LAST)
    return head, inner, tail


def main() -> None:
    """Print the path, write it into the page, or compare it with the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--list", action="store_true", help="every function, in the order in which it is entered"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/architecture.md"
    )
    parser.add_argument(
        "--check", action="store_true", help="fail where the page has another table"
    )
    arguments = parser.parse_args()
    stages = followed()
    made = f"\n\n{summary(stages)}\n\n{table(stages)}\n\n"
    head, kept, tail = _parts(PAGE.read_text(encoding="utf-8"))
    if arguments.write:
        PAGE.write_text(f"{head}{FIRST}{made}{LAST}{tail}", encoding="utf-8")
    elif arguments.check:
        if kept != made:
            sys.exit(
                "docs/architecture.md has another path of a cell: python benchmarks/hops.py --write"
            )
    else:
        print(made.strip())
        if arguments.list:
            print(
                "\n".join(
                    f"{stage.name}: {one.file} {one.name}" for stage in stages for one in stage.hops
                )
            )


if __name__ == "__main__":
    main()

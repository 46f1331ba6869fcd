"""What a killed or a concurrent process does to baselines: kill -9 before a file operation, and
parallel accepting.

    python benchmarks/accept_safety.py [--to N] [--results F --resume] [--only N]

Trial by trial the next row: ``qbench accept``, an accepting pytest session and ``qbench report``
are killed before an operation below ``baselines/`` (``reports/``): open to write, write, fsync,
chmod, rename, unlink, mkdir, rmdir; then 8 ``qbench accept`` or 3 sessions accept at once. The
number of the trial says before which operation; when each had its turn, one or two further kills of
the same command, before drawn operations, follow the first. A kill is wrong if

    unreadable  a baseline cannot be loaded after it
    lost        a baseline is neither the old nor the new one
    not redone  the same command, run again to its end, does not leave the new baselines
    git takes   ``git add`` would take a file that is not a baseline or a page
    not swept   the next writer leaves files of the killed process

and processes at once are if a result that one said it accepted, ended with 0, is not in the
baseline afterwards (lost), a baseline is torn, or one ends with an error; what those that ended
with an error said is kept.

Processes are forks of one that has imported everything, so that they meet more often than processes
that a person starts. The options of numbers and files are those of all trials
(``benchmarks/trials.py``).
"""

import contextlib
import importlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trials import Program, Result, parser, run

CONFTEST = """
import os

import numpy as np
import onnx_ir as ir
from onnx import helper, numpy_helper, TensorProto
from qbench.extension import Extension
from qbench.subjects import Dataset, ReadyArray, ZooModel
from qbench.subjects.tasks import Classification


def network(seed):
    rng = np.random.default_rng(seed)
    nodes, constants, value = [], [], "x"
    for i, (a, b) in enumerate([(16, 24), (24, 7)]):
        weight = rng.normal(0, 1 / np.sqrt(a), (a, b)).astype(np.float32)
        constants.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{i}"], [f"h{i}"], name=f"product{i}"))
        value = f"h{i}"
        if not i:
            nodes.append(helper.make_node("Relu", [value], ["r"], name="relu"))
            value = "r"
    sides = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s])
             for n, s in (("x", 16), (value, 7))]
    graph = helper.make_graph(nodes, "net", sides[:1], sides[1:], constants)
    opsets = [helper.make_opsetid("", 21)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def model(name, seed):
    return lambda: ZooModel(id=name, graphs={"model": lambda: network(seed)},
                            preprocess=ReadyArray(input="x"), task=Classification(k=3),
                            origin="random numbers")


def data(name, seed, count):
    x = np.random.default_rng(seed).normal(0, 1, (count, 16)).astype(np.float32)
    ids = tuple(f"{name}-{i}" for i in range(count))
    labels = tuple((int(one),) for one in np.random.default_rng(seed + 1).integers(0, 7, count))
    return lambda: Dataset(id=name, kind="array", sample_ids=ids, sources=ids, labels=labels,
                           content=f"{name}-{seed}-{count}", load=lambda index: x[index])


def pytest_qbench_extension(config):
    seed = int(os.environ.get("SEED", "1"))
    return Extension(name="trial",
                     models={"plain": model("plain", seed), "keeps": model("keeps", seed + 1)},
                     datasets={"points": data("points", 10, 200), "spare": data("spare", 20, 64)})


def pytest_qbench_processor(config):
    return os.environ.get("PROCESSOR", "x64-one")
"""

SUITE = """
[suite]
tolerance = 0.9
backends = ["ort-cpu", "ort-cpu-noopt"]
schemas = ["w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc"]

[[model]]
id = "plain"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]

[[model]]
id = "keeps"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]
flips = { "ort-cpu*" = 3 }
"""

FILE = "suites/trial.qbench.toml"
REFERENCE = ["--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason", "a trial"]
MODELS = ("plain", "keeps")
NEVER = 1 << 30
"""An operation that no command reaches."""
COUNT = "operations.txt"
SCHEMAS = ("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc")

Command = Callable[[], int]


def pytest_command(*options: str, processor: str = "x64-one", seed: int = 1) -> Command:
    """The suite in the working folder, by pytest."""

    def run() -> int:
        import pytest

        os.environ.update(PROCESSOR=processor, SEED=str(seed))
        return int(
            pytest.main(
                ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", FILE, *options]
            )
        )

    return run


def qbench_command(*arguments: str) -> Command:
    """The command line of qbench in the working folder."""

    def run() -> int:
        from qbench.cli import main

        return int(main(list(arguments)))

    return run


def forked(
    folder: Path, command: Command, *, kill_before: int | None = None, below: str = ""
) -> int:
    """Run ``command`` in a fork in ``folder``; its exit code, negative where it was killed
    before an operation. The number of operations of one that was not is in ``COUNT``.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    try:
        os.chdir(folder)
        with Path(folder, "output.txt").open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.path.insert(0, str(folder))
        seen = [0]
        if kill_before is not None:
            _count_operations(str((folder / below).resolve()), kill_before, seen)
        code = command()
        if kill_before is not None:
            Path(folder, COUNT).write_text(str(seen[0]))
        sys.stdout.flush()
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(code)


def _count_operations(below: str, last: int, seen: list[int]) -> None:
    """End this process by SIGKILL before file operation number ``last`` (from 0) on paths
    ``below``; ``seen``: how many there were so far.
    """

    def count(path: object) -> None:
        if _is_below(path, below):
            if seen[0] == last:
                os.kill(os.getpid(), signal.SIGKILL)
            seen[0] += 1

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                count(arguments[0])
        elif event in (
            "os.rename",
            "os.remove",
            "os.mkdir",
            "os.rmdir",
            "os.chmod",
            "os.link",
            "os.symlink",
        ):
            count(arguments[0])

    def before(act: Callable[..., int | None]) -> Callable[..., int | None]:
        def counted(*arguments: object) -> int | None:
            count(arguments[0])
            return act(*arguments)

        return counted

    make = os.fdopen

    def fdopen(handle: int, mode: str = "r", **more: int) -> io.IOBase:
        file = make(handle, mode, **more)
        if mode == "wb":
            count(handle)  # its writes go past ``os.write``: a kill here is one before the first
        return file

    os.fsync, os.write, os.fdopen = before(os.fsync), before(os.write), fdopen
    sys.addaudithook(audit)


def _is_below(path: object, folder: str) -> bool:
    """Whether ``path``, or an open file, is in ``folder`` and of no run."""
    if isinstance(path, int):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{path}")
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    name = os.path.abspath(os.fsdecode(path))
    return name.startswith(folder) and "/history" not in name


def content(folder: Path, model: str) -> dict[str, dict[str, str]] | None:
    """All that the baseline of ``model`` holds, as plain values; None where it cannot be read."""
    from qbench.errors import QbenchError
    from qbench.metrics import kept_digest
    from qbench.tracking import load_baseline

    try:
        stored = load_baseline(folder / "baselines/trial" / f"{model}.json")
    except QbenchError:
        return None
    return {
        "reference": {name: answers.digest for name, answers in stored.stored.items()},
        "cells": {slug: repr(cell) for slug, cell in sorted(stored.cells.items())},
        "kept": {
            f"{slug} {name} {data}": kept_digest(answers)
            for slug, classes in stored.kept.items()
            for name, several in classes.items()
            for data, answers in several.items()
        },
    }


def accepted(folder: Path, model: str) -> set[tuple[str, str]]:
    """(cell, environment class) of all accepted results of ``model``;
    empty where its file is damaged.
    """
    try:
        cells = json.loads((folder / "baselines/trial" / f"{model}.json").read_text())["cells"]
    except (OSError, ValueError):
        return set()
    return {(slug, name) for slug, cell in cells.items() for name in cell["accepted"]}


def git(folder: Path, *arguments: str) -> str:
    """What git says in ``folder``."""
    options = (
        "-c",
        "user.name=trial",
        "-c",
        "user.email=trial@example.org",
        "-c",
        "commit.gpgsign=false",
    )
    return subprocess.run(
        ["git", "-C", str(folder), *options, *arguments], check=True, capture_output=True, text=True
    ).stdout


def strangers(folder: Path) -> list[str]:
    """Files that ``git add`` would take, and that are neither baselines nor pages."""
    taken = git(
        folder, "status", "--porcelain", "--untracked-files=all", "--", "baselines", "reports"
    ).splitlines()
    names = [line[3:].strip('"') for line in taken]
    return [name for name in names if Path(name).name.startswith(".") or "/." in name]


def made_project(folder: Path) -> Path:
    """A project in git with two models accepted in two classes,
    and a run in which every result changed.
    """
    (folder / "suites").mkdir(parents=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / FILE).write_text(SUITE)
    (folder / "pytest.ini").write_text("[pytest]\nqbench_localize = 0\n")
    (folder / ".gitignore").write_text(
        "output*.txt\noperations.txt\n__pycache__/\nreports/history/\nreports/*.html\nreports/*.md\n"
        "reports/models/\n"
    )
    for options, more in (
        (REFERENCE, {}),
        (["--qbench-accept=new"], {"processor": "x64-two"}),
    ):
        must(folder, pytest_command(*options, **more))
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "accepted")
    text = (folder / FILE).read_text()
    (folder / FILE).write_text(text.replace("count = 64", "count = 5"))
    forked(folder, pytest_command())  # red, as it drifted
    (folder / FILE).write_text(text)
    return folder


def must(folder: Path, command: Command) -> None:
    """Run ``command`` to a good end."""
    if forked(folder, command) != 0:
        raise SystemExit((folder / "output.txt").read_text())


@dataclass(frozen=True)
class Kills:
    """The trials of one command, which writes below the folder ``below`` of its project."""

    name: str
    act: Command
    below: str
    whole: Path
    folder: Path

    @cached_property
    def clean(self) -> tuple[dict[str, Any], dict[str, Any], set[str], int]:
        """The baselines before and after the command, the names of the files then, and how many
        operations it has.
        """
        self._restore()
        old = {model: content(self.folder, model) for model in MODELS}
        if forked(self.folder, self.act, kill_before=NEVER, below=self.below):
            raise SystemExit((self.folder / "output.txt").read_text())
        count = int((self.folder / COUNT).read_text())
        new = {model: content(self.folder, model) for model in MODELS}
        return old, new, files(self.folder, self.below), count

    def _restore(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.whole, self.folder)

    def trial(self, number: int, turn: int) -> Result:
        """Kill the command before operation ``turn`` modulo their number; check what is left."""
        old, new, names, count = self.clean
        draw = random.Random(number)
        kills = [turn % count]
        if turn >= count:
            kills += [draw.randrange(count) for _ in range(draw.randint(1, 2))]
        self._restore()
        killed, wrong = 0, []
        for place in kills:
            code = forked(self.folder, self.act, kill_before=place, below=self.below)
            killed += code < 0
            now = {model: content(self.folder, model) for model in MODELS}
            wrong += ["unreadable"] if None in now.values() else []
            lost = [model for model in MODELS if now[model] not in (old[model], new[model])]
            wrong += [f"lost: {model}" for model in lost]
            wrong += [f"git takes: {one}" for one in strangers(self.folder)]
        code = forked(self.folder, self.act)
        if {model: content(self.folder, model) for model in MODELS} != new:
            wrong.append(f"not redone: exit code {code}, {_said(self.folder)}")
        forked(self.folder, save_again if self.below == "baselines" else self.act)
        wrong += [f"not swept: {one}" for one in files(self.folder, self.below) ^ names]
        return Result(
            trial=number,
            group=self.name,
            counts={"kills": killed, "operations": count if turn == 0 else 0},
            wrong=tuple(wrong),
            about=f"killed before {', '.join(map(str, kills))} of {count}",
        )


def _said(folder: Path, name: str = "output.txt") -> str:
    return repr((folder / name).read_text(errors="replace")[-300:])


def save_again() -> int:
    """Write every baseline again as it is."""
    from qbench.tracking import load_baseline, save_baseline

    for model in MODELS:
        path = Path("baselines/trial") / f"{model}.json"
        save_baseline(path, load_baseline(path))
    return 0


def files(folder: Path, below: str) -> set[str]:
    """Names of all files below a folder, without the runs."""
    every = (path.relative_to(folder).as_posix() for path in (folder / below).rglob("*"))
    return {name for name in every if not name.startswith("reports/history")}


def together(folder: Path, commands: list[Command]) -> list[int]:
    """Run all ``commands`` at the same time, in forks of ``folder``; their exit codes."""
    start, children = time.monotonic() + 0.5, []
    for number, command in enumerate(commands):
        child = os.fork()
        if not child:
            code = 99
            try:
                os.chdir(folder)
                with (folder / f"output{number}.txt").open("w") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                sys.path.insert(0, str(folder))
                time.sleep(max(0.0, start - time.monotonic()))
                code = command()
                sys.stdout.flush()
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@dataclass(frozen=True)
class AtOnce:
    """The trials of commands that accept at once in one project."""

    name: str
    whole: Path
    folder: Path

    def _restored(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        return Path(shutil.copytree(self.whole, self.folder))

    def cells(self, number: int, turn: int) -> Result:
        """One ``qbench accept`` for each of the 8 cells of a model."""
        trial, model = self._restored(), MODELS[turn % len(MODELS)]
        history = trial / "reports/history"
        newest = max(history.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        wanted = sorted({slug for slug, _ in accepted(trial, model)})
        _forget_cells(trial, model)
        cells = [f"{model}::{slug}" for slug in wanted]
        commands = [qbench_command("accept", str(newest), "--cell", one) for one in cells]
        codes = together(trial, commands)
        done = {slug for slug, _ in accepted(trial, model)}
        said = {slug for slug, code in zip(wanted, codes, strict=True) if code == 0}
        lost = [f"lost: {slug}" for slug in sorted(said - done)]
        return self._result(number, codes, len(said), [*lost, *_torn(trial, [model])])

    def sessions(self, number: int, _turn: int) -> Result:
        """Three accepting sessions, each of one schema."""
        trial = self._restored()
        for model in MODELS:
            _forget_cells(trial, model)
        selected = [f"--qbench-select=schema={one}" for one in SCHEMAS]
        codes = together(trial, [pytest_command("--qbench-accept=new", one) for one in selected])
        done = {model: len(accepted(trial, model)) for model in MODELS}
        lost = [f"lost: {6 - count} of {model}" for model, count in done.items() if count != 6]
        return self._result(number, codes, sum(done.values()), [*lost, *_torn(trial, MODELS)])

    def _result(self, number: int, codes: list[int], count: int, wrong: list[str]) -> Result:
        ended = [
            f"exit code {code}: {_said(self.folder, f'output{place}.txt')}"
            for place, code in enumerate(codes)
            if code
        ]
        return Result(
            trial=number,
            group=self.name,
            counts={"processes": len(codes), "accepted": count},
            wrong=(*wrong, *ended),
        )


def _torn(folder: Path, models: Iterable[str]) -> list[str]:
    return [f"torn: {model}" for model in models if content(folder, model) is None]


def _forget_cells(folder: Path, model: str) -> None:
    """Leave the reference of ``model`` alone in its baseline."""
    path = folder / "baselines/trial" / f"{model}.json"
    table = json.loads(path.read_text())
    path.write_text(json.dumps(table | {"cells": {}}))
    path.with_name(f"{model}.accepted.npz").unlink(missing_ok=True)


def load_modules() -> None:
    """Load all that the commands need, so that a fork begins at once."""
    for name in ("CI", "PYTEST_ADDOPTS"):
        os.environ.pop(name, None)
    for name in (
        *("qbench.suite", "qbench.plugin", "qbench.cli", "qbench.cli.accept_run"),
        *("qbench.metrics", "pytest", "onnxruntime", "onnx_ir", "qbench.subjects"),
        *("qbench.quantization", "qbench.backends"),
    ):
        importlib.import_module(name)


def work(numbers: Iterable[int]) -> Iterator[Result]:
    """The trials of these numbers."""
    load_modules()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name).resolve()
        os.environ["QBENCH_CACHE"] = str(place / "cache")
        whole = made_project(place / "whole")
        accept = qbench_command("accept", "latest", "--what", "all", "--reason", "a trial")
        session = pytest_command(*REFERENCE, seed=5)
        report = qbench_command("report", "--report", "html", "--report", "md")
        at_once = AtOnce("8 × qbench accept", whole, place / "cells")
        sessions = AtOnce("3 × pytest --qbench-accept=new", whole, place / "sessions")
        rows: list[Callable[[int, int], Result]] = [
            Kills("kill: qbench accept", accept, "baselines", whole, place / "accept").trial,
            Kills("kill: pytest --qbench-accept…", session, "baselines", whole, place / "py").trial,
            Kills("kill: qbench report", report, "reports", whole, place / "report").trial,
            at_once.cells,
            sessions.sessions,
        ]
        for number in numbers:
            yield rows[number % len(rows)](number, number // len(rows))


def main() -> int:
    """Run the trials, print the table."""
    options = parser(__doc__, count=200).parse_args()
    return run(options, Program(work=work, kinds=("kills", "processes"), same=False))


if __name__ == "__main__":
    sys.exit(main())

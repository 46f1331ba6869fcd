"""What a killed or a concurrent process does to baselines: kill -9 before each file operation,
and parallel accepting.

    points      = file operations below ``baselines/`` (``reports/``): open to write, write, fsync,
                  chmod, rename, unlink, mkdir, rmdir; a run of the same command is killed before
                  each
    unreadable  = kills after which a baseline cannot be loaded
    lost        = kills after which a baseline is neither the old nor the new one
    not redone  = kills after which the same command, run again to its end, does not leave the new
    baselines
    git takes   = kills after which ``git add`` would take a file that is not a baseline or a page
    not swept   = kills after which the next writer leaves files of the killed process
    lost cells  = results that a process said it accepted, ended with 0, and that are not in the
    baseline afterwards

Processes are forks of one that has imported everything, so that they meet more often than processes
that a person starts. The exit code is 1 where a count of what must not happen is not 0. With
``--package`` another checkout of qbench is tried, for numbers from before a change.

Run: python benchmarks/accept_safety.py [--package DIR] [--only kills|cells|sessions]
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from qbench.plugin.recording import OpenRun

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
TRIED = ("points", "rounds", "said accepted", "accepted cells")
"""Counts of what was tried; every other count has to be 0."""

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
    before an operation.
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
        if kill_before is not None:
            _count_operations(str((folder / below).resolve()), kill_before)
        code = command()
        sys.stdout.flush()
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(code)


def _count_operations(below: str, last: int) -> None:
    """End this process by SIGKILL before file operation number
    ``last`` (from 0) on paths ``below``.
    """
    seen = 0

    def count(path: object) -> None:
        nonlocal seen
        if _is_below(path, below):
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

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
        "output.txt\n__pycache__/\nreports/history/\nreports/*.html\nreports/*.md\n"
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


def kills(folder: Path, act: Command, below: str) -> dict[str, int]:
    """Kill ``act`` before each of its operations in ``folder``; the counts of the table."""
    saved = folder.with_name(f"{folder.name}-saved")
    shutil.copytree(folder / below, saved)
    old = {model: content(folder, model) for model in MODELS}
    must(folder, act)
    new, names = {model: content(folder, model) for model in MODELS}, files(folder, below)
    found = {
        "points": 0,
        "unreadable": 0,
        "lost": 0,
        "not redone": 0,
        "git takes": 0,
        "not swept": 0,
    }
    while True:
        shutil.rmtree(folder / below)
        shutil.copytree(saved, folder / below)
        if forked(folder, act, kill_before=found["points"], below=below) >= 0:
            return found
        found["points"] += 1
        now = {model: content(folder, model) for model in MODELS}
        found["unreadable"] += None in now.values()
        found["lost"] += any(now[model] not in (old[model], new[model]) for model in MODELS)
        found["git takes"] += bool(strangers(folder))
        forked(folder, act)
        found["not redone"] += {model: content(folder, model) for model in MODELS} != new
        forked(folder, save_again if below == "baselines" else act)
        found["not swept"] += files(folder, below) != names


def kills_of_session(folder: Path, *options: str, seed: int) -> dict[str, int]:
    """The same of the accepting at the end of a pytest session: it is measured once, and forked
    before it accepts.
    """
    result = folder.with_name(f"{folder.name}.json")

    def session() -> int:
        from qbench.plugin import session_end as ending

        accept = ending._accept  # noqa: SLF001 - the moment between measuring and accepting has no public name

        def every(run: "OpenRun", session: "pytest.Session") -> list[str]:
            def act() -> int:
                accept(run, session)
                return 0

            result.write_text(json.dumps(kills(folder, act, "baselines")))
            return []

        ending._accept = every  # noqa: SLF001
        return pytest_command(*options, seed=seed)()

    must(folder, session)
    return json.loads(result.read_text())


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


def parallel_cells(whole: Path, scratch: Path, model: str, rounds: int) -> dict[str, int]:
    """One ``qbench accept`` for each of the 8 cells of ``model``, all at once."""
    run = max((whole / "reports/history").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    found = {
        "rounds": rounds,
        "said accepted": 0,
        "lost cells": 0,
        "torn": 0,
        "ended with an error": 0,
    }
    wanted = sorted({slug for slug, _ in accepted(whole, model)})
    for number in range(rounds):
        trial = scratch / f"{number}"
        shutil.copytree(whole, trial)
        _forget_cells(trial, model)
        commands = [
            qbench_command(
                "accept", str(trial / "reports/history" / run.name), "--cell", f"{model}::{slug}"
            )
            for slug in wanted
        ]
        codes = together(trial, commands)
        done = (
            {slug for slug, _ in accepted(trial, model)}
            if content(trial, model) is not None
            else set()
        )
        said = {slug for slug, code in zip(wanted, codes, strict=True) if code == 0}
        found["said accepted"] += len(said)
        found["lost cells"] += len(said - done)
        found["torn"] += content(trial, model) is None
        found["ended with an error"] += sum(code != 0 for code in codes)
        shutil.rmtree(trial)
    return found


def parallel_sessions(whole: Path, scratch: Path, rounds: int) -> dict[str, int]:
    """Three accepting sessions at once, each of one schema."""
    schemas = ("w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc")
    found = {
        "rounds": rounds,
        "accepted cells": 0,
        "lost cells": 0,
        "torn": 0,
        "ended with an error": 0,
    }
    for number in range(rounds):
        trial = scratch / f"{number}"
        shutil.copytree(whole, trial)
        for model in MODELS:
            _forget_cells(trial, model)
        commands = [
            pytest_command("--qbench-accept=new", f"--qbench-select=schema={one}")
            for one in schemas
        ]
        codes = together(trial, commands)
        done = sum(len(accepted(trial, model)) for model in MODELS)
        found["accepted cells"] += 12
        found["lost cells"] += 12 - done
        found["torn"] += any(content(trial, model) is None for model in MODELS)
        found["ended with an error"] += sum(code != 0 for code in codes)
        shutil.rmtree(trial)
    return found


def _forget_cells(folder: Path, model: str) -> None:
    """Leave the reference of ``model`` alone in its baseline."""
    path = folder / "baselines/trial" / f"{model}.json"
    table = json.loads(path.read_text())
    path.write_text(json.dumps(table | {"cells": {}}))
    path.with_name(f"{model}.accepted.npz").unlink(missing_ok=True)


def show(title: str, found: dict[str, int]) -> bool:
    """A line of the table; whether something was tried and nothing went wrong."""
    print(
        f"{title:44} " + ", ".join(f"{name} {count}" for name, count in found.items()), flush=True
    )
    tried = {name: count for name, count in found.items() if name in TRIED}
    return all(tried.values()) and sum(found.values()) == sum(tried.values())


def main() -> None:
    """Print the table; the exit code is 1 where something was lost, torn or left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--package", type=Path, help="a checkout of qbench to try instead of the installed one"
    )
    parser.add_argument("--only", choices=("kills", "cells", "sessions"))
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    if arguments.package:
        sys.path.insert(0, str(arguments.package.resolve()))
        os.environ["PYTHONPATH"] = str(arguments.package.resolve())
    for name in ("CI", "PYTEST_ADDOPTS"):
        os.environ.pop(name, None)
    for name in (
        "qbench.suite",
        "qbench.plugin",
        "qbench.cli",
        "qbench.cli.accept_run",
        "qbench.metrics",
    ):
        importlib.import_module(name)
    for name in (
        "pytest",
        "onnxruntime",
        "onnx_ir",
        "qbench.subjects",
        "qbench.quantization",
        "qbench.backends",
    ):
        importlib.import_module(name)
    import qbench

    print(f"qbench in {Path(qbench.__file__).parent.parent.name}", flush=True)
    good = True
    with tempfile.TemporaryDirectory() as name:
        place = Path(name).resolve()
        os.environ["QBENCH_CACHE"] = str(place / "cache")
        whole = made_project(place / "whole")
        if arguments.only in (None, "kills"):
            trials = [
                Path(shutil.copytree(whole, place / name))
                for name in ("accept", "pytest", "report")
            ]
            accept = qbench_command("accept", "latest", "--what", "all", "--reason", "a trial")
            good &= show("kill: qbench accept", kills(trials[0], accept, "baselines"))
            good &= show(
                "kill: pytest --qbench-accept-fp32 … =all",
                kills_of_session(trials[1], *REFERENCE, seed=5),
            )
            report = qbench_command("report", "--report", "html", "--report", "md")
            good &= show("kill: qbench report", kills(trials[2], report, "reports"))
        if arguments.only in (None, "cells"):
            for model in MODELS:
                title = f"8 × qbench accept, model '{model}'"
                good &= show(
                    title, parallel_cells(whole, place / f"cells-{model}", model, arguments.rounds)
                )
        if arguments.only in (None, "sessions"):
            good &= show(
                "3 × pytest --qbench-accept=new", parallel_sessions(whole, place / "sessions", 5)
            )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

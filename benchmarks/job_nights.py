"""A night of 20,000 cells as 50 jobs, some of which are killed: what is counted in the end.

    125 models × 20 backends × 8 schemas; engines are stubs with answers of their own, so that the
    cost is qbench's

The suite is accepted and measured by one process; that gives the times for the first plan. Then 50
jobs are run, two at a time. Five are killed at a random moment (SIGKILL) and run again with
--qbench-resume; one is left out:

    merge    --expect names exactly the cells of the job that was left out
    late     after that job ran, nothing is missing, and every cell of the merged night has the same
             outcome, metrics and digests as the one process gave it
    even     a second night, by the times of the first: the longest job compared with their mean
    history  30 nights like the first, in which some cells move: the cells that moved furthest, and
             the report with its largest page

Time of a job: processor time of its process, because two share the computer. 0 where all holds.

    python benchmarks/job_nights.py [--models 125] [--jobs 50] [--copies 1] [--seed 1]

--copies: the 30 nights have the measured models this many times, each time under other names, so
that the history of a large suite does not take hours to measure: --models 5 --jobs 7 --copies 25.
"""

import argparse
import datetime
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from carry import write_project

from qbench.storage import json_line
from qbench.tracking import History, Run

SUITE, BAR = "suites/carry.qbench.toml", 1.2
QUIET = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
COMPARED = ("outcome", "metrics", "digests", "n", "losses", "gains", "correct")
"""What two records of a cell must agree in."""
KILLED, AT_ONCE = 5, 2
_LEFT_OUT = ("CI", "PYTHONDONTWRITEBYTECODE")
"""Of the environment: with the second, each process would compile qbench again."""
NIGHTS, MOVED = 30, 0.001
TOP_S, REPORT_S, PAGE_MB = 2.0, 10.0, 2.0


class Ended(NamedTuple):
    """A process that ended: exit code (negative: by a signal), wall and processor time, output."""

    code: int
    seconds: float
    busy: float
    output: str


def run(folder: Path, *words: str, kill_after: float | None = None) -> Ended:
    """Run Python on ``words`` in ``folder``; kill it after so many seconds."""
    environment = {name: one for name, one in os.environ.items() if name not in _LEFT_OUT}
    start = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        if kill_after is not None:
            timer = threading.Timer(kill_after, process.send_signal, (signal.SIGKILL,))
            timer.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if kill_after is not None:
            timer.cancel()
        output.seek(0)
        text = output.read()
    busy = used.ru_utime + used.ru_stime
    return Ended(process.returncode, time.perf_counter() - start, busy, text)


def pytest(folder: Path, *options: str, kill_after: float | None = None) -> Ended:
    """Run pytest in ``folder``.

    Raises:
        SystemExit: it ends as no night ends.
    """
    done = run(folder, "-m", "pytest", *QUIET, *options, kill_after=kill_after)
    if done.code not in (0, 1) and kill_after is None:
        raise SystemExit(
            f"pytest {' '.join(options)} ended with {done.code}\n{done.output[-3000:]}"
        )
    return done


def qbench(folder: Path, *words: str) -> Ended:
    """Run a verb of qbench in ``folder``."""
    program = "import sys, qbench.cli; sys.exit(qbench.cli.main(sys.argv[1:]))"
    return run(folder, "-c", program, *words)


def make_plan(folder: Path, jobs: int, history: str, name: str) -> dict[str, Any]:
    """Plan the night by the times in ``history``.

    Raises:
        SystemExit: the plan is refused.
    """
    done = qbench(folder, "plan", SUITE, "--jobs", str(jobs), "--history", history, "-o", name)
    if done.code:
        raise SystemExit(done.output)
    plan: dict[str, Any] = json.loads((folder / name).read_text())
    return plan


def run_jobs(
    folder: Path, plan: str, history: str, numbers: Iterable[int], *options: str
) -> dict[int, Ended]:
    """Run the jobs ``numbers`` of ``plan``, two at a time."""
    given = (f"--qbench-history={history}", *options)

    def one(number: int) -> tuple[int, Ended]:
        return number, pytest(folder, f"--qbench-job={plan}#{number}", *given)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(one, numbers))


def kill_each(folder: Path, history: str, moments: dict[int, float]) -> int:
    """Run jobs of the first plan and kill each after so many seconds; how many were killed before
    they ended.
    """
    given = f"--qbench-history={history}"
    codes = [
        pytest(folder, f"--qbench-job=plan.json#{number}", given, kill_after=moment).code
        for number, moment in moments.items()
    ]
    return sum(code < 0 for code in codes)


def night_of(folder: Path, history: str) -> Run:
    """The one night in ``history``."""
    found = History(folder / history)
    (night,) = found.each(found.nights())
    return night


def facts_of(night: Run) -> dict[str, Any]:
    """What each cell of ``night`` must agree in, by its name."""
    found = {}
    for cell in night.cells:
        name = f"{cell.model}::{cell.backend}+{cell.schema}"
        if name in found:
            raise SystemExit(f"{name} is counted twice")
        found[name] = [getattr(cell, key) for key in COMPARED]
    return found


def cells_of(plan: dict[str, Any], number: int, every: Iterable[str]) -> Iterator[str]:
    """The names of the cells of job ``number``, from ``every`` cell."""
    units = plan["jobs"][number - 1]["units"]
    for name in every:
        model, _, rest = name.partition("::")
        backend, _, schema = rest.partition("+")
        if any(
            unit["model"] == model
            and backend in (unit["backends"] or [backend])
            and schema in (unit["schemas"] or [schema])
            for unit in units
        ):
            yield name


def row(name: str, found: str, expected: str, *, holds: bool) -> bool:
    """Print one row; whether it holds."""
    print(f"{name:44} {found:>14} {expected:>12}{'' if holds else '  MISSED'}", flush=True)
    return holds


def longest_to_mean(done: dict[int, Ended]) -> float:
    """The longest job compared with their mean."""
    times = [one.busy for one in done.values()]
    return max(times) * len(times) / sum(times)


def main() -> int:
    """Run the nights and print the table; 1 when a row does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", type=int, default=125, metavar="M")
    parser.add_argument("--jobs", type=int, default=50, metavar="N")
    parser.add_argument("--copies", type=int, default=1, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qbench-jobs-") as name:
        return int(not nights(Path(name), arguments))


def nights(folder: Path, arguments: argparse.Namespace) -> bool:
    """All rows in ``folder``; whether they hold."""
    write_project(folder, arguments.models)
    accept = ("--qbench-accept=new", "--qbench-accept-fp32", "--qbench-accept-in-ci")
    pytest(folder, SUITE, *accept, "--qbench-history=accepting")
    alone = pytest(folder, SUITE, "--qbench-history=alone")
    expected = facts_of(night_of(folder, "alone"))
    print(f"{'':44} {'found':>14} {'expected':>12}")
    row("cells", f"{len(expected):,}", "", holds=True)
    row("one process, s of processor", f"{alone.busy:.0f}", "", holds=True)

    plan = make_plan(folder, arguments.jobs, "alone", "plan.json")
    numbers = random.Random(arguments.seed).sample(range(1, arguments.jobs + 1), arguments.jobs)
    left_out, killed, others = numbers[0], numbers[1 : 1 + KILLED], numbers[1 + KILLED :]
    first = run_jobs(folder, "plan.json", "jobs", others)
    usual = sum(one.seconds for one in first.values()) / len(first) / AT_ONCE
    noise = random.Random(arguments.seed)
    died = kill_each(folder, "jobs", {number: noise.uniform(0.1, usual) for number in killed})
    fine = row("jobs killed before they ended", str(died), "", holds=True)
    first |= run_jobs(folder, "plan.json", "jobs", killed, "--qbench-resume")

    merge = ("merge", "jobs", "-o", "merged", "--expect", "plan.json", "--json")
    done = qbench(folder, *merge)
    named = json.loads(done.output)["missing"].values() if done.code == 4 else ()
    missing = {cell.partition("::")[2] for several in named for cell in several}
    lost = set(cells_of(plan, left_out, expected))
    fine &= row("merge: exit code", str(done.code), "4", holds=done.code == 4)
    fine &= row(
        "merge: missing", str(len(missing)), str(len(lost)), holds=len(missing) == len(lost)
    )
    first |= run_jobs(folder, "plan.json", "jobs", [left_out])
    done = qbench(folder, *merge)
    fine &= row("late: exit code", str(done.code), "0", holds=done.code == 0)
    merged = facts_of(night_of(folder, "merged"))
    differ = sum(merged.get(name) != facts for name, facts in expected.items())
    fine &= row("late: cells that differ", str(differ), "0", holds=differ == 0)
    fine &= row(
        "late: cells", f"{len(merged):,}", f"{len(expected):,}", holds=len(merged) == len(expected)
    )
    row("first night: longest job / mean", f"{longest_to_mean(first):.2f}", "", holds=True)

    make_plan(folder, arguments.jobs, "merged", "second.json")
    second = run_jobs(folder, "second.json", "second", range(1, arguments.jobs + 1))
    ratio = longest_to_mean(second)
    fine &= row("second night: longest job / mean", f"{ratio:.2f}", f"<= {BAR}", holds=ratio <= BAR)
    busy = sum(one.busy for one in second.values())
    row("second night: all jobs / one process", f"{busy / alone.busy:.2f}", "", holds=True)
    return look_back(folder, arguments.copies) and fine


def look_back(folder: Path, copies: int) -> bool:
    """The rows about a history of many nights; whether they hold."""
    source = folder / "merged"
    if copies > 1:
        source = folder / "copies"
        write_copies(folder / "merged", source, copies)
        copy_baselines(folder / "baselines" / "carry", copies)
    write_nights(source, folder / "month")
    done = qbench(folder, "compare", "previous", "latest", "--top", "20", "--history", "month")
    fine = row(
        "history: what moved furthest, s of processor",
        f"{done.busy:.1f}",
        f"<= {TOP_S}",
        holds=done.code in (0, 1) and done.busy <= TOP_S,
    )
    done = qbench(folder, "report", "--history", "month", "-o", "pages", "--report", "html")
    fine &= row(
        "history: report, s of processor",
        f"{done.busy:.1f}",
        f"<= {REPORT_S}",
        holds=done.code == 0 and done.busy <= REPORT_S,
    )
    largest = max(page.stat().st_size for page in (folder / "pages").rglob("*.html")) / 1e6
    return (
        row(
            "history: largest page, MB", f"{largest:.2f}", f"<= {PAGE_MB}", holds=largest <= PAGE_MB
        )
        and fine
    )


def write_copies(source: Path, target: Path, copies: int) -> None:
    """The night in ``source`` with each model ``copies`` times: each copy has jobs of its own."""
    target.mkdir()
    for path in source.glob("*.jsonl"):
        header, *others = map(json.loads, path.read_text().splitlines())
        job = header["job"]
        for number in range(copies):
            index = job["index"] + number * job["of"]
            first = header | {
                "id": header["id"].replace(f"-j{job['index']:04}-", f"-j{index:04}-"),
                "planned": header["planned"] * copies,
                "job": job | {"index": index, "of": job["of"] * copies},
            }
            lines = (
                line | {"model": copy_name(line["model"], number)} if "model" in line else line
                for line in others
            )
            with (target / f"{first['id']}.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(map(json_line, [first, *lines]))


def copy_baselines(folder: Path, copies: int) -> None:
    """What was accepted for each model, for its copies too."""
    for path in sorted(folder.glob("*.json")):
        stored = json.loads(path.read_text())
        for number in range(copies):
            name = copy_name(path.stem, number)
            renamed = stored | {"model": stored["model"] | {"id": name}}
            (folder / f"{name}.json").write_text(json.dumps(renamed, sort_keys=True, indent=1))
            shutil.copy(folder / f"{path.stem}.fp32.npz", folder / f"{name}.fp32.npz")


def copy_name(model: str, number: int) -> str:
    """The name of a copy of ``model``."""
    return f"c{number:02}{model}"


def write_nights(source: Path, target: Path) -> None:
    """Copies of the night in ``source``, a day apart, each of a plan and commit of its own; in each
    some cells have other counts.
    """
    target.mkdir()
    noise = random.Random(7)
    files = [
        list(map(json.loads, path.read_text().splitlines())) for path in source.glob("*.jsonl")
    ]
    for night in range(NIGHTS):
        plan, commit = (f"{noise.getrandbits(64):016x}", f"{noise.getrandbits(160):040x}")
        for lines in files:
            header, *others = lines
            began = datetime.datetime.fromisoformat(header["started"])
            started = began + datetime.timedelta(days=night - NIGHTS)
            run_id = header["id"].replace(header["job"]["plan"], plan)
            changed = {
                "id": run_id,
                "started": started.isoformat(),
                "commit": commit,
                "job": header["job"] | {"plan": plan},
            }
            written = [header | changed, *(moved(line, noise) for line in others)]
            # in the form that qbench writes: another one takes several times as long to read
            with (target / f"{run_id}.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(map(json_line, written))


def moved(line: dict[str, Any], noise: random.Random) -> dict[str, Any]:
    """``line`` with other seconds, and one of a thousand cells with other hits in every metric."""
    if line["type"] != "cell":
        return line
    seconds = {name: one * noise.uniform(0.8, 1.25) for name, one in line["seconds"].items()}
    line = line | {"seconds": {name: round(one, 3) for name, one in seconds.items()}}
    if noise.random() > MOVED:
        return line
    metrics = {
        name: metric | {"hits": noise.randrange(metric["out_of"])}
        for name, metric in line["metrics"].items()
    }
    return line | {"metrics": metrics}


if __name__ == "__main__":
    sys.exit(main())

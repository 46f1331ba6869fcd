"""A year of an engine in a few minutes: a real history in which real rules change, under the
noise of machines.

    python examples/scripted-year/scripted_year.py FOLDER

makes a git project of 120 commits, three nights apart, whose engine is a TOML arithmetic and whose
calibration rule is a TOML schema. Every night one machine runs the suite on it; what it measures is
measured by the integer interpreter on a trained network, once for each state of the files (an equal
state measures the same). What the first night of each machine measured was accepted; up to 16 of
400 answers may differ from it, so that every night of the slide is green.

    commit  12   activations are calibrated on everything that was seen, outliers too: a sample of
                 400 less
    commit  24   multipliers have 11 bits: another sample less, and no step that anybody would see
    commit  40   the last step of the kernels rounds down instead of to the nearest: an instruction
                 less
    commit  60   and back
    commit  75   board-a gets another firmware, whose multipliers have fewer bits: other numbers,
                 and no regression
    commit  90   activations are calibrated on the inner 99 % of what was seen

Two machines take turns; board-b saturates pairs of products, as x64 without VNNI does. Then:

    cd FOLDER && qbench history check

names commit 90, seen by both machines, and tells of the slide since commit 24 beside what was
accepted; ``--all`` shows commit 40, too.
"""

import datetime
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbench.host import first_parents
from qbench.storage import digest_plain
from qbench.suite import Bench, Settings, approve_run, describe_start, expand, gather, load_suite
from qbench.tracking import Accepting, Scope

COMMITS = 120
OUTLIERS_TOO, SHORTER = 12, 24
ROUNDS_DOWN, ROUNDS_AGAIN, UPGRADE, CALIBRATES_NARROWLY = 40, 60, 75, 90
MACHINES = 2
FIRST_NIGHT = datetime.datetime(2026, 1, 3, 2, tzinfo=datetime.UTC)

SUITE = """
[suite]
agreement = 0.5
flips = 16
backends = ["integer-engine"]
schemas = ["ours"]

[[model]]
id = "fashion_mobile"
data = "fashion_test"
samples = 400
calibration = { data = "fashion_calibration", count = 64 }
metrics = ["top1", "agreement"]
"""
ENGINE = """
name = "engine"
source = "the engine of the scripted year"
{pairs}

[scaling]
form = "fixed"
bits = {bits}
stages = [{{ rounding = "{rounding}" }}]
"""
SCHEMA = """
[[rules]]
activation = {{ qtype = "uint8", symmetry = "asymmetric", range_method = "{method}" }}
weight = {{ qtype = "int8", symmetry = "symmetric" }}
"""
SATURATES = "accumulator = { pair_bits = 16, pairs_in = 'dense' }"

SUBJECTS = {
    OUTLIERS_TOO: "Calibrate activations on everything that was seen",
    SHORTER: "Multipliers of 11 bits fit a byte more of the cache",
    ROUNDS_DOWN: "Last step of the kernels: one instruction less",
    ROUNDS_AGAIN: "Last step of the kernels rounds to the nearest again",
    CALIBRATES_NARROWLY: "Calibrate activations on the inner 99 %",
}


def machine_of(night: int) -> tuple[str, str, int]:
    """(environment class, what it adds to the engine, bits
    of its multipliers) of the machine of a night.
    """
    if night % 2:
        return "board-b-fw1", SATURATES, 15
    return ("board-a-fw1", "", 15) if night < UPGRADE else ("board-a-fw2", "", 6)


def write_sources(project: Path, number: int) -> None:
    """The files of commit ``number``."""
    rounding = "floor" if ROUNDS_DOWN <= number < ROUNDS_AGAIN else "half_up"
    method = "percentile(99)" if number >= CALIBRATES_NARROWLY else "minmax"
    method = method if number >= OUTLIERS_TOO else "percentile(99.99)"
    for folder in ("schemas", "arithmetics"):
        (project / "suites" / folder).mkdir(parents=True, exist_ok=True)
    (project / "suites/year.qbench.toml").write_text(SUITE)
    (project / "suites/schemas/ours.toml").write_text(SCHEMA.format(method=method))
    (project / "rounding.txt").write_text(rounding)
    (project / "bits.txt").write_text("11" if number >= SHORTER else "15")
    (project / "notes.txt").write_text(f"work of week {number // 2}, part {number % 2}\n")
    (project / ".gitignore").write_text("reports/\nsuites/arithmetics/\n")


def build(project: Path, night: int) -> None:
    """The engine as the machine of ``night`` has it, from the sources that are checked out."""
    _, pairs, most = machine_of(night)
    bits = min(most, int((project / "bits.txt").read_text()))
    rounding = (project / "rounding.txt").read_text()
    text = ENGINE.format(rounding=rounding, bits=bits, pairs=pairs)
    (project / "suites/arithmetics/engine.toml").write_text(text)


def measure(
    project: Path, machine: str, accepting: Accepting | None = None
) -> list[dict[str, Any]]:
    """The cell lines of the suite as it lies in ``project``;
    what is to be accepted goes into its baselines.
    """
    path = project / "suites/year.qbench.toml"
    suite = load_suite(path)
    catalogues = gather((), suites=path.parent)
    today = FIRST_NIGHT.date()
    settings = Settings(
        baselines=project / "baselines",
        suite_path=path.relative_to(
            project
        ).as_posix(),  # as it is typed there, in commands that reports show
        today=today,
        processor=machine,
        accepting=accepting,
    )
    bench = Bench(suite, catalogues, settings)
    found = [(planned, bench.run(planned).record) for planned in expand(suite, catalogues)]
    if accepting is not None:
        measured = [(planned, record.measurement()) for planned, record in found]
        approve_run(bench, [(planned, one) for planned, one in measured if one is not None])
    return [record.line() for _, record in found]


def live(project: Path) -> tuple[str, ...]:
    """Commit, build, measure and remember, night after night; the hashes of the commits."""
    git(project, "init", "-q")
    measured: dict[str, list[dict[str, Any]]] = {}
    for number in range(COMMITS):
        write_sources(project, number)
        git(project, "add", "-A")
        git(
            project,
            "commit",
            "-q",
            "-m",
            SUBJECTS.get(number, f"Work of week {number // 2}, part {number % 2}"),
        )
        build(project, number)
        machine, _, _ = machine_of(number)
        texts = {
            str(path): path.read_text() for path in sorted((project / "suites").rglob("*.toml"))
        }
        first = Accepting(scope=Scope.NEW, fp32=number == 0) if number < MACHINES else None
        state = digest_plain([machine, texts, first is None])
        if state not in measured:
            measured[state] = measure(project, machine, first)
        remember(project, number, machine, measured[state])
    return first_parents(project)


def remember(project: Path, number: int, machine: str, lines: list[dict[str, Any]]) -> None:
    """The run file of one night."""
    start = describe_start(
        project,
        suite="year",
        planned=len(lines),
        selected=len(lines),
        select="",
        limit=None,
        started=FIRST_NIGHT + datetime.timedelta(days=3 * number),
        token=f"{number:03}",
        processor=machine,
    )
    with start.open(project / "reports/history") as writer:
        for line in lines:
            writer.write(line)
        writer.close(exit_code=0)


def git(project: Path, *arguments: str) -> None:
    """Run git in ``project``."""
    who: Mapping[str, str] = {
        "user.name": "ann",
        "user.email": "ann@example.org",
        "commit.gpgsign": "false",
    }
    names = [part for key, value in who.items() for part in ("-c", f"{key}={value}")]
    subprocess.run(["git", "-C", str(project), *names, *arguments], check=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    live(folder)
    print(f"a year lies in {folder}; there: qbench history check")

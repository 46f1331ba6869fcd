"""Damaged files of every kind that qbench reads: none may end in a traceback or a hang.

    python benchmarks/reader_fuzz.py [--to 1000000] [--results F --resume] [--shard I/N]

Trial by trial the next kind: suites, quarantine files, schemas, arithmetics, devices, annotations,
plans of a quantization, profiles, plans of jobs, also for ``merge --expect``
(``tests/fuzz/readers.py``), and run files, of a run, of an attempt of a job and of a run that
resumes another or carries results (``tests/cli/damaged_runs.py``). The number of the trial draws
the file and the damage: a few bytes, or a value that is removed, moved or another, in a file of its
format. A run file lies among sound ones, and a command that reads a history is run; any other file
is read, and what it says is used. Expected is a result, or one sentence of four parts.

A trial that computes for more than 20 seconds is wrong.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

from trials import ROOT, Program, Result, parser, run

sys.path.extend([str(ROOT / "tests" / "fuzz"), str(ROOT / "tests" / "cli")])
from damaged_runs import CODES, COMMANDS, fuzzed_lines, mutated, night_of_jobs, plain_history
from readers import KINDS, use_damaged, use_sound, write_files

from qbench.cli.program import main as qbench

LONGEST = 20.0
"""Seconds of computing after which a trial counts as one that hangs."""
RUN_FILE = "run file"
HISTORY, MERGED = Path("reports/history"), "merged"
MORE_COMMANDS = (
    ["history", "index"],
    ["merge", str(HISTORY), "-o", MERGED],
    ["history", "show", "smoke::digits_cnn::ort-cpu1+w8a8_asym_pc"],
)


class HangError(Exception):
    """A trial computed too long."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise HangError


def use_run_file(number: int) -> str:
    """The exit code of a command that reads a history with a damaged run file."""
    noise = random.Random(number)
    for made in HISTORY.glob("index.sqlite*"):
        made.unlink()
    shutil.rmtree(MERGED, ignore_errors=True)
    (HISTORY / "odd.jsonl").write_bytes(mutated(noise, fuzzed_lines(noise)))
    commands = (*COMMANDS, *MORE_COMMANDS)
    command = commands[noise.randrange(len(commands))]
    code = qbench(list(command))
    if code not in CODES:
        raise ValueError(f"exit code {code}")
    return f"exit {code}"


def trial(number: int, folder: Path) -> Result:
    """Trial ``number``, of the kind that it is the turn of."""
    kinds = [*KINDS, RUN_FILE]
    kind, seed = kinds[number % len(kinds)], number // len(kinds)
    out, wrong, word = io.StringIO(), (), ""
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            word = use_run_file(seed) if kind == RUN_FILE else use_damaged(folder, kind, seed)
    except HangError:
        wrong = (f"it computed for {LONGEST:.0f} s",)
    except Exception as error:  # whatever it is: a user would see a traceback
        wrong = (_place(error),)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Result(
        trial=number,
        group=kind,
        counts={} if wrong else {word: 1},
        wrong=wrong,
        about=f"seed {seed}",
    )


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if f"{os.sep}qbench{os.sep}" in one.filename] or frames
    where = own[-1].filename.rpartition(f"qbench{os.sep}")[2]
    return f"{type(error).__name__} {where}:{own[-1].lineno}"


def work(numbers: Iterable[int]) -> Iterator[Result]:
    """The trials of these numbers."""
    signal.signal(signal.SIGPROF, _stop)
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="readers-") as name, contextlib.chdir(name):
        folder = Path(name)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            write_files(folder)
            for kind in KINDS:
                use_sound(folder, kind)
        plain_history(HISTORY)
        night_of_jobs(HISTORY)
        for number in numbers:
            yield trial(number, folder)
            os.chdir(folder)
    os.chdir(before)


def main() -> int:
    """Run the trials, print the table."""
    made: argparse.ArgumentParser = parser(__doc__, count=10_000)
    kinds = ("read", "refused", *(f"exit {code}" for code in range(5)))
    return run(made.parse_args(), Program(work=work, kinds=kinds))


if __name__ == "__main__":
    sys.exit(main())

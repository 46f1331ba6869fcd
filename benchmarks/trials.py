"""Trials that have numbers: which are run, where their results are kept, and one table of them.

A program of trials makes each trial out of its number alone. It then has these options:

    --from A --to B    the trials A to B - 1
    --shard I/N        of these, every N-th, beginning with the I-th: N machines run one part each
    --results F        append a line for each trial to F
    --resume           continue F: what it holds is not run again
    --until S          begin no trial after S seconds
    --only N           run the trial N alone and print its whole result; nothing is kept
    --table F …        run nothing: print what several files say together, and what is missing

A file begins with the program, its settings and a digest of the code: results of another program or
of other code are never mixed. A line that a killed process left half is not a result. A trial that
two files hold with different results is named: either it is not deterministic, or a machine is.

Exit code 0: all is as it should be; 1: a trial is wrong; 2: the options or the files are; 4: trials
are missing.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CODE = (
    "qbench",
    "engines/qbench_engines",
    "zoo/qbench_zoo",
    "benchmarks",
    "tests/fuzz",
    "tests/cli",
)
"""Folders whose Python files decide what a trial gives."""
_NAMED = 20
"""Wrong or missing trials that the table names."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a trial gave.

    Args:
        trial: its number.
        group: the row of the table that it belongs to; empty: there is one row.
        counts: what happened how often.
        wrong: a sentence for each thing that must not happen.
        about: what the trial was, in words.
        times: what differs each time that it runs, such as seconds.
    """

    trial: int
    group: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    wrong: Sequence[str] = ()
    about: str = ""
    times: Mapping[str, float] = field(default_factory=dict)

    @property
    def facts(self) -> tuple[object, ...]:
        """What is the same each time that the trial runs."""
        return (self.group, sorted(self.counts.items()), tuple(self.wrong))

    def line(self) -> str:
        """As it is kept: what is empty is left out."""
        return json.dumps(
            {key: value for key, value in vars(self).items() if value or key == "trial"}
        )


Work = Callable[[Iterable[int]], Iterator[Result]]
"""Runs the trials of these numbers, one after the other."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program of trials.

    Args:
        work: what runs them.
        settings: the options that decide what a trial is.
        kinds: columns of the table that are shown although nothing was counted.
        same: whether a trial gives the same each time: not where a clock decides.
        chosen: which of the numbers count, by an option of the program.
    """

    work: Work
    settings: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[str] = ()
    same: bool = True
    chosen: Callable[[int], bool] | None = None

    @property
    def head(self) -> dict[str, Any]:
        """The first line of its files."""
        return {"program": name_of_program(), "settings": dict(self.settings), "code": code()}


def name_of_program() -> str:
    """The name of the script that runs, without its ending."""
    return Path(sys.argv[0]).stem


def code() -> str:
    """The first digits of a digest of all code that the trials run."""
    digest = hashlib.sha256()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def parser(description: str | None, *, count: int) -> argparse.ArgumentParser:
    """A parser with the options of trials; ``count``: where they end by default."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    group = made.add_argument_group("trials")
    group.add_argument("--from", type=int, default=0, dest="first", metavar="A")
    group.add_argument(
        "--to", type=int, default=count, dest="last", metavar="B", help=f"default: {count}"
    )
    group.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N")
    group.add_argument("--results", type=Path, metavar="F", help="append a line for each trial")
    group.add_argument("--resume", action="store_true", help="continue F")
    group.add_argument("--until", type=float, metavar="S", help="begin no trial after S seconds")
    group.add_argument("--only", type=int, metavar="N", help="run trial N alone and print it")
    group.add_argument(
        "--table", type=Path, nargs="+", metavar="F", help="run nothing; print these together"
    )
    return made


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"'{text}': I/N with I from 1 to N is expected")
    return int(index), int(count)


def numbers(options: argparse.Namespace, program: Program) -> Sequence[int]:
    """The numbers that the options name."""
    index, count = options.shard
    every = range(options.first + index - 1, options.last, count)
    return every if program.chosen is None else list(filter(program.chosen, every))


def run(options: argparse.Namespace, program: Program) -> int:
    """Do what the options say; the exit code."""
    if options.only is not None:
        return _run_alone(options.only, program)
    found = Table(program)
    try:
        if options.table:
            for path in options.table:
                found.read(path)
        elif options.results is None:
            for one in _begun_in_time(numbers(options, program), options.until, program.work):
                found.add(one)
        else:
            _continue(options, program, found)
    except BadFileError as error:
        print(error, file=sys.stderr)
        return 2
    missing = [number for number in numbers(options, program) if number not in found.known]
    print(found.text(missing))
    if found.wrong or found.others:
        return 1
    return 4 if missing else 0


def _run_alone(number: int, program: Program) -> int:
    (one,) = program.work([number])
    print(json.dumps(vars(one), indent=1))
    return int(bool(one.wrong))


def _continue(options: argparse.Namespace, program: Program, found: "Table") -> None:
    path = options.results
    is_new = not path.exists() or not path.stat().st_size
    if not is_new:
        if not options.resume:
            raise BadFileError(f"'{path}' holds results: add --resume, or name another file")
        found.read(path)
    waiting = [number for number in numbers(options, program) if number not in found.known]
    with path.open("ab", buffering=0) as file:
        if is_new:
            file.write(_as_line(json.dumps(program.head)))
        elif not _ends_with_a_line(path):
            file.write(b"\n")
        for one in _begun_in_time(waiting, options.until, program.work):
            file.write(_as_line(one.line()))
            found.add(one)


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _as_line(text: str) -> bytes:
    return f"{text}\n".encode()


def _begun_in_time(every: Iterable[int], seconds: float | None, work: Work) -> Iterator[Result]:
    end = time.monotonic() + (float("inf") if seconds is None else seconds)

    def begun() -> Iterator[int]:
        for number in every:
            if time.monotonic() > end:
                return
            yield number

    with contextlib.closing(iter(work(begun()))) as results:  # type: ignore[type-var]
        yield from results


class BadFileError(Exception):
    """A file that holds no results of this program, its settings and this code."""


class Table:
    """The results of one or several files of ``program``."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.known: set[int] = set()
        self.wrong: dict[int, Result] = {}
        self.others: set[int] = set()
        self.torn = 0
        self._facts: dict[int, int] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._times: dict[str, float] = {}

    def add(self, one: Result) -> None:
        """Count ``one``; the first of its number counts."""
        facts = hash(json.dumps(one.facts))
        if one.trial in self.known:
            if self.program.same and self._facts[one.trial] != facts:
                self.others.add(one.trial)
            if one.wrong:
                self.wrong.setdefault(one.trial, one)
            return
        self.known.add(one.trial)
        self._facts[one.trial] = facts
        row = self._counts.setdefault(one.group, Counter())
        row.update({"trials": 1, **one.counts, "wrong": int(bool(one.wrong))})
        for name, value in one.times.items():
            self._times[name] = max(self._times.get(name, 0.0), value)
        if one.wrong:
            self.wrong[one.trial] = one

    def read(self, path: Path) -> None:
        """Add the results in the file at ``path``.

        Raises:
            BadFileError: it is of another program, or of other settings or code.
        """
        try:
            with path.open("rb") as file:
                self._require_head(path, _object(next(file, b"")))
                for line in file:
                    table = _object(line)
                    if table is None:
                        self.torn += bool(line.strip())
                    else:
                        self.add(Result(**table))
        except (OSError, TypeError) as error:
            raise BadFileError(f"Reading '{path}': {error}") from error

    def _require_head(self, path: Path, head: Mapping[str, Any] | None) -> None:
        wanted = self.program.head
        odd = [key for key in wanted if head is None or head.get(key) != wanted[key]]
        if odd:
            found = "no first line of results" if head is None else f"{odd[0]} {head.get(odd[0])!r}"
            raise BadFileError(f"'{path}': {found}; expected {odd[0]} {wanted[odd[0]]!r}")

    def text(self, missing: Sequence[int]) -> str:
        """The table in Markdown, what is wrong with the command that repeats it, what is
        missing.
        """
        kinds = ["trials", *self.program.kinds]
        for row in self._counts.values():
            kinds += [kind for kind in row if kind not in (*kinds, "wrong")]
        kinds.append("wrong")
        rows = sorted(self._counts.items())
        if len(rows) > 1:
            rows.append(("all", sum(self._counts.values(), Counter())))
        lines = [f"| {' | '.join(['', *kinds])} |", "|---" * (len(kinds) + 1) + "|"]
        lines += [
            f"| {name or name_of_program()} | {' | '.join(f'{row[kind]:,}' for kind in kinds)} |"
            for name, row in rows
        ]
        lines += [f"longest: {name} {value:.2f}" for name, value in sorted(self._times.items())]
        lines += self._wrong_lines()
        for number in sorted(self.others)[:_NAMED]:
            lines.append(f"DIFFERENT RESULTS {number}: {self.command(number)}")
        if self.torn:
            lines.append(f"{self.torn:,} lines were left half by a killed process")
        if missing:
            more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
            named = ", ".join(map(str, missing[:_NAMED]))
            lines.append(f"missing: {len(missing):,} ({named}{more})")
        return "\n".join(lines)

    def _wrong_lines(self) -> Iterator[str]:
        """Each way to be wrong once, with its trials and the command that repeats the first."""
        alike: dict[str, list[int]] = {}
        for number, one in sorted(self.wrong.items()):
            alike.setdefault(f"{one.group} {'; '.join(one.wrong)}".strip(), []).append(number)
        for text, found in sorted(alike.items(), key=lambda item: -len(item[1]))[:_NAMED]:
            more = ", …" if len(found) > _NAMED else ""
            yield f"WRONG {len(found):,} × {text}"
            yield f"    trials {', '.join(map(str, found[:_NAMED]))}{more}"
            yield f"    {self.wrong[found[0]].about}: {self.command(found[0])}"
        if len(alike) > _NAMED:
            yield f"… and {len(alike) - _NAMED:,} other ways to be wrong"

    def command(self, number: int) -> str:
        """What runs the trial ``number`` alone."""
        settings = self.program.settings.items()
        words = [f"--{name.replace('_', '-')}={value}" for name, value in settings]
        script = os.path.relpath(sys.argv[0], ROOT) if sys.argv[0].startswith("/") else sys.argv[0]
        return shlex.join(["python", script, *words, "--only", str(number)])


def _object(line: bytes) -> dict[str, Any] | None:
    """The table in ``line``; None where it is not whole."""
    try:
        table = json.loads(line)
    except ValueError:
        return None
    return table if isinstance(table, dict) else None

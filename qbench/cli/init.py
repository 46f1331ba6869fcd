"""qbench init: the files of a bench of your own, ready to run."""

import argparse
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.installation import FORMS, Package, package_of_text, package_of_this_computer
from qbench.cli.options import declare_json
from qbench.cli.printing import print_json, put
from qbench.cli.starter_files import (
    NETWORK,
    PARTS,
    SAMPLES,
    filled,
    fourth_of,
    identifier,
    placed,
    quoted,
    relative,
    settings_files,
    settings_words,
    write_all,
)
from qbench.cli.starter_jobs import SCHEDULERS, Scheduler, scheduler_of
from qbench.errors import InputError

if TYPE_CHECKING:
    from qbench.subjects import Dataset, ZooModel

_COUNT = 64
_NAME = re.compile(r"[a-z0-9_.-]+")


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench init``."""
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        default=".",
        help="where to write (default: this folder)",
    )
    parser.add_argument(
        "--model", metavar="FILE.onnx", help="your model (default: a network for digits)"
    )
    parser.add_argument("--data", metavar="D", help="your samples, written as for 'qbench eval'")
    parser.add_argument(
        "--calib",
        metavar="D2",
        help="calibration samples (default: every fourth of --data, which is not scored then)",
    )
    parser.add_argument(
        "--suite", metavar="NAME", default="mine", help="name of the suite (default: mine)"
    )
    parser.add_argument(
        "--package",
        metavar="P",
        help=(
            f"what the workflows install: {FORMS} (default: what is installed here, as far as a "
            "job can have it)"
        ),
    )
    parser.add_argument(
        "--ci",
        choices=tuple(SCHEDULERS),
        help="write only what runs a night there, next to a bench that is there already",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=count_from_one,
        help=(
            "with --ci: divide the night into N jobs (default: 8; github: one machine, at most 256)"
        ),
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Write all files, or none.

    Raises:
        InputError: a file is there already; a model or data that cannot be read, or that do not fit
            together.
        StoreError: the folder cannot be written.
    """
    folder = Path(arguments.folder)
    doing = f"Starting a bench in '{folder}'"
    if not _NAME.fullmatch(arguments.suite):
        expected = "lower-case letters, digits, '_', '.' and '-'"
        raise InputError(
            doing,
            found=f"--suite '{arguments.suite}'",
            expected=expected,
            remedy="Choose another name.",
        )
    scheduler, jobs = scheduler_of(arguments.ci, arguments.jobs, doing)
    package = _package(arguments, folder, doing) if scheduler.installs else None
    if arguments.ci:
        files, notes = _workflows(folder, package, scheduler, jobs)
        _refuse_none(files, folder, doing, scheduler)
    else:
        subject = _subject(arguments, folder, doing)
        files, notes = _files(folder, arguments.suite, subject)
        workflows, unwritten = _workflows(folder, package, scheduler, jobs)
        files |= workflows
        notes += unwritten
    if there := [path for path in files if path.exists()]:
        raise InputError(
            doing,
            found=" and ".join(f"'{path}'" for path in there),
            expected="no file of a name that is written here",
            remedy="Nothing was written. Name another folder, or move what is there.",
        )
    write_all(files, doing)
    steps = _first_steps(folder, arguments.suite)
    if arguments.ci:
        steps = [scheduler.next_step] if scheduler.next_step else []
    if arguments.json:
        print_json({"written": [str(path) for path in files], "notes": notes, "next": steps})
        return ExitCode.FINE
    for path in files:
        put(f"wrote {path}")
    for note in notes:
        put(note)
    if steps and arguments.ci:
        put("next:")
    elif steps:
        put("next: the first run stores the references, later ones are compared with them")
    for step in steps:
        put(f"  {step}")
    return ExitCode.FINE


def _refuse_none(
    files: Mapping[Path, str | bytes],
    folder: Path,
    doing: str,
    scheduler: Scheduler,
) -> None:
    """Refuse where workflows are all that was asked for, and none can be written or would run.

    Raises:
        InputError: as the name says.
    """
    if scheduler.at_root and _is_below_repository(folder):
        raise InputError(
            doing,
            found="a folder below the root of a repository",
            expected="the root: they are read in no other folder",
            remedy="Run it in the root of the repository, or name that folder.",
        )
    if not files:
        raise InputError(
            doing,
            found="an installation from a folder that no other computer has",
            expected=f"what a job installs: {FORMS}",
            remedy="Name it: --package P.",
        )
    if not any((folder / "suites").glob("*.qbench.toml")):
        remedy = "Write the bench first: qbench init; it writes the workflows, too."
        raise InputError(
            doing, found=f"no suite in '{folder / 'suites'}'", expected="a bench", remedy=remedy
        )


def _first_steps(folder: Path, suite: str) -> list[str]:
    """The commands that a user types next."""
    into = [] if folder.resolve() == Path.cwd() else [f"cd {folder}"]
    file = f"suites/{suite}.qbench.toml"
    return [*into, f"pytest {file} --qbench-accept-fp32 --qbench-accept=new", f"pytest {file}"]


def _subject(arguments: argparse.Namespace, folder: Path, doing: str) -> "_Subject":
    """What the suite measures: the user's model, or the digits."""
    if arguments.model or arguments.data or arguments.calib:
        return _own(arguments, folder, doing)
    return _digits()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What the suite names, and the text of the conftest.py that makes it."""

    model: str
    data: str
    calibration: str
    count: int
    metrics: tuple[str, ...]
    conftest: str


def _digits() -> _Subject:
    """The network for digits that comes with qbench."""
    return _Subject(
        model="digits_cnn",
        data="digits_test",
        calibration="digits_train",
        count=_COUNT,
        metrics=("top1", "agreement"),
        conftest=filled("digits.conftest"),
    )


def _own(arguments: argparse.Namespace, folder: Path, doing: str) -> _Subject:
    """The user's model and data, which are read here once, so that what is written can run.

    Raises:
        InputError: one of the two is missing or cannot be read, or they do not fit together.
    """
    from qbench.evaluation import refuse_overlap
    from qbench.extension import known_extensions
    from qbench.subjects import dataset_catalogue, dataset_from_text, read_network

    if not (arguments.model and arguments.data):
        raise InputError(
            doing,
            found="--model without --data" if arguments.model else "no --model",
            expected="both, or neither for the digits",
            remedy="Give both: --model net.onnx --data val.npz.",
        )
    if arguments.data in dataset_catalogue(known_extensions()).names():
        remedy = "Give a file or a folder, or write the suite by hand."
        raise InputError(
            doing,
            found=f"the name '{arguments.data}'",
            expected="samples of your own",
            remedy=remedy,
        )
    data, preprocess = dataset_from_text(arguments.data)
    network = read_network(str(Path(arguments.model)), data, preprocess)
    if arguments.calib:
        calibration = dataset_from_text(arguments.calib)[0]
        samples = SAMPLES.replace("@CALIB@", placed(arguments.calib, folder))
        refuse_overlap(network, calibration, data)
    else:
        calibration = fourth_of(data, doing)
        samples = PARTS
    return _Subject(
        model=network.id,
        data="my_data",
        calibration="my_calibration",
        count=min(_COUNT, len(calibration)),
        metrics=_metrics(network, data),
        conftest=filled(
            "own.conftest",
            DATA=placed(arguments.data, folder),
            IMPORTS="Dataset, ZooModel, dataset_from_text, model_from_file",
            NETWORK=NETWORK.format(
                function=identifier(network.id),
                made=f'model_from_file(HERE / "{quoted(relative(Path(arguments.model), folder))}", '
                f'name="{network.id}"{settings_words(data)})',
            ),
            MODELS=f'"{network.id}": {identifier(network.id)}',
            SAMPLES=samples,
        ),
    )


def _metrics(network: "ZooModel", data: "Dataset") -> tuple[str, ...]:
    """Those of 'qbench eval' without top5, which the first suite need not have."""
    usual = () if data.labels is None else getattr(network.task, "usual_metrics", ("exact",))
    return tuple(
        name
        for name in (*usual, *getattr(network.task, "usual_comparisons", ("agreement",)))
        if name != "top5"
    )


def _files(
    folder: Path, suite: str, subject: _Subject
) -> tuple[dict[Path, str | bytes], list[str]]:
    """What is written but for workflows, path → text, and sentences about what is not."""
    metrics = ", ".join(f'"{name}"' for name in subject.metrics)
    files: dict[Path, str | bytes] = {
        folder / "conftest.py": subject.conftest,
        folder / "suites" / f"{suite}.qbench.toml": filled(
            "suite.toml",
            SUITE=suite,
            MODEL_NAME=subject.model,
            SCORED=subject.data,
            CALIBRATION=subject.calibration,
            COUNT=str(subject.count),
            METRICS=metrics,
        ),
    }
    settings, notes = settings_files(folder)
    return files | settings, notes


def _package(arguments: argparse.Namespace, folder: Path, doing: str) -> Package | None:
    """What a job installs, as the user names it, as this computer knows it, or as the user
    answers; None: unknown.
    """
    if arguments.package:
        return package_of_text(arguments.package, folder, doing)
    known = package_of_this_computer(folder)
    is_asked = known is None and not arguments.json and sys.stdin.isatty() and sys.stdout.isatty()
    if not is_asked or _is_below_repository(folder):
        return known
    put(
        "The workflows install qbench, which is installed here from a folder that no other "
        "computer has."
    )
    answer = input(f"What do they install? {FORMS}; empty: write no workflows\n> ").strip()
    return package_of_text(answer, folder, doing) if answer else None


def _workflows(
    folder: Path, package: Package | None, scheduler: Scheduler, jobs: int | None
) -> tuple[dict[Path, str | bytes], list[str]]:
    """The files of ``scheduler`` and the wheel that they install, path → content, and sentences
    about what is not written.
    """
    if not scheduler.installs:
        return dict(scheduler.filled_files(folder, "", jobs)), []
    if _is_below_repository(folder):
        return {}, ["no workflows: GitHub reads them in the root of a repository only"]
    if package is None:
        return {}, [
            "no workflows: qbench is installed here from a folder that no other computer has; say "
            "what a job installs: "
            f"qbench init {shlex.quote(str(folder))} --ci {scheduler.name} --package P, where P is "
            f"{FORMS}",
        ]
    files: dict[Path, str | bytes] = {
        folder / path: content for path, content in package.files.items()
    }
    return files | scheduler.filled_files(folder, package.words, jobs), []


def _is_below_repository(folder: Path) -> bool:
    """Whether a folder above ``folder`` is the root of a git repository, and ``folder`` is not."""
    return not (folder / ".git").exists() and any(
        (one / ".git").exists() for one in folder.resolve().parents
    )


COMMAND = Command(
    name="init",
    summary="write the files of a bench of your own: conftest, suite, settings, workflows",
    example="qbench init --model net.onnx --data val.npz",
    declare=declare,
    execute=execute,
)

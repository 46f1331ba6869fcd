"""qbench bisect package."""

import argparse
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.bisect_quantizer import QuantizerReleases, quantizer_asked, with_package
from qbench.cli.command import ExitCode
from qbench.cli.options import (
    choose_schema,
    declare_calibration,
    declare_data,
    declare_json,
    declare_threads,
    names_of,
)
from qbench.cli.printing import print_json, put, say
from qbench.errors import IncomparableError, InputError, QbenchError, UnavailableError
from qbench.number_text import counted
from qbench.working import working

if TYPE_CHECKING:
    from qbench.backends import Backend
    from qbench.evaluation import Subject, SubjectArtifacts
    from qbench.judging import Compared, Measurement
    from qbench.quantization import Quantizer, Schema
    from qbench.suite import Mark, PackageNotes, PackageTask, PackageTrial, Question


# What a release of a package changes: the outputs of a model, compared with the good release, or
# how a command ends.

ENGINE = "onnxruntime"
_PYTHON = "{python}"
_SKIP = 125
_FIRST_OF_SIGNALS = 128


@dataclass(frozen=True, kw_only=True)
class ModelTrials:
    """Runs one model under each release, and counts what differs from the good one, or its metrics.

    Args:
        arguments: those of the command.
        backend: that of a release.
        schema: that of a release; None: the model runs as it is.
        good: that release.
    """

    arguments: argparse.Namespace
    backend: "Callable[[str], Backend]"
    schema: "Callable[[str], Schema | None]"
    good: str

    def __call__(self, version: str) -> "PackageTrial":
        """The release ``version``; one that does not run the model is passed over.

        Raises:
            QbenchError: the model, its data or the good release are wrong.
        """
        from qbench.suite import PackageTrial

        good = self._good
        try:
            measured = self._measured(self.backend(version), self.schema(version), good)
        except QbenchError as error:
            if version == self.good:
                raise
            return PackageTrial(mark="skipped", says=str(error))
        if self.arguments.metric:
            return PackageTrial(says=self._metric_said(measured), lines=(self._line(measured),))
        assert measured.compared is not None
        return _compared(measured.compared, self.arguments.tolerance)

    @cached_property
    def _good(self) -> "Backend":
        return self.backend(self.good)

    @cached_property
    def _subject(self) -> "Subject":
        from qbench.evaluation import build_subject

        given = self.arguments
        metrics = [given.metric] if given.metric else []
        return build_subject(given.model, given.data, given.calib, metrics, given.calib_count)

    @cached_property
    def _shared(self) -> "SubjectArtifacts":
        """The float model and its ranges are those of our own engine: one model for all
        releases.
        """
        from qbench.backends import get_backend
        from qbench.evaluation import FLOAT_BACKEND, subject_artifacts

        shared = subject_artifacts(self._subject, get_backend(FLOAT_BACKEND))
        if self.arguments.schema:
            shared.require_float()
        return shared

    def _measured(
        self, backend: "Backend", schema: "Schema | None", good: "Backend"
    ) -> "Measurement":
        from qbench.evaluation import Comparator, environment_here, measure_cell
        from qbench.judging import FP32, Cell, Criterion

        given = self.arguments
        criterion = Criterion(backend=good.name, relative=given.tolerance)
        comparator = (
            None
            if given.metric
            else Comparator(backend=good, criterion=criterion, environment=environment_here(good))
        )
        cell = Cell(
            "bisect", self._subject.model.id, backend.name, FP32 if schema is None else schema.name
        )
        return measure_cell(
            self._shared,
            backend,
            schema,
            cell=cell,
            environment=environment_here(backend),
            threads=given.threads,
            comparator=comparator,
        )

    def _line(self, measured: "Measurement") -> Mapping[str, Any]:
        """A ``cell`` line as bisecting reads it; its backend is the one that every release
        mirrors.
        """
        cell = measured.cell
        metrics = {
            one.metric: {"hits": one.hits, "out_of": one.out_of, "direction": one.direction.value}
            for one in measured.scores
        }
        axes = {
            "suite": cell.suite,
            "model": cell.model,
            "backend": self.arguments.backend,
            "schema": cell.schema,
        }
        return {**axes, "metrics": metrics}

    def _metric_said(self, measured: "Measurement") -> str:
        from qbench.judging import valued

        return ", ".join(f"{one.metric} {valued(one, one.value)}" for one in measured.scores)


def _model_trials(
    arguments: argparse.Namespace,
    python: Callable[[str], Path],
    releases: QuantizerReleases | None,
    good: str,
) -> ModelTrials:
    """Trials of releases of an engine, which run the model, or of a quantizer, which makes it."""
    from qbench.backends import get_backend, python_backend

    named = arguments.backend
    if releases is not None:
        return ModelTrials(
            arguments=arguments,
            backend=lambda _: get_backend(named),
            schema=releases.schema,
            good=good,
        )
    chosen = choose_schema(arguments.schema) if arguments.schema else None

    def backend(version: str) -> "Backend":
        return python_backend(python(version), named, name=f"{arguments.package}-{version}")

    return ModelTrials(arguments=arguments, backend=backend, schema=lambda _: chosen, good=good)


@dataclass(frozen=True, kw_only=True)
class CommandTrials:
    """Runs the user's command under each release: status 0 is good, 125 passes it over, others
    up to 127 are bad.

    Args:
        command: its words; ``{python}`` is replaced by the program.
        python: the program of a release.
    """

    command: Sequence[str]
    python: Callable[[str], Path]

    def __call__(self, version: str) -> "PackageTrial":
        """The release ``version``; one that cannot be installed is passed over.

        Raises:
            InputError: the command cannot be run. UnavailableError: it was ended by a signal.
        """
        from qbench.suite import PackageTrial

        try:
            program = self.python(version)
        except UnavailableError as error:
            return PackageTrial(mark="skipped", says=str(error))
        words = [word.replace(_PYTHON, str(program)) for word in self.command]
        doing = f"Running '{' '.join(words)}'"
        try:
            status = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=2, check=False
            ).returncode
        except OSError as error:
            raise InputError(
                doing,
                found=error.strerror or str(error),
                expected="a program",
                remedy="Correct the command after '--'.",
            ) from error
        if not 0 <= status < _FIRST_OF_SIGNALS:
            raise UnavailableError(
                doing,
                found=f"status {status}",
                expected="0 (good), 125 (cannot be tested) or up to 127 (bad)",
                remedy=(
                    "The command crashed or was killed: start the same bisection again to continue "
                    "from here."
                ),
            )
        return PackageTrial(
            mark=_mark(status), says=f"the command ended with {status}", numbers={"status": status}
        )


def _mark(status: int) -> str:
    """The mark of a release by the exit status of the command."""
    if status == _SKIP:
        return "skipped"
    return "bad" if status else "good"


def _compared(compared: "Compared", tolerance: float | None) -> "PackageTrial":
    from qbench.judging import Criterion, holds
    from qbench.suite import PackageTrial

    numbers: dict[str, Any] = {
        "elements": compared.elements,
        "differing": compared.differing,
        "unbounded": compared.unbounded,
        "steps": compared.steps,
        "relative": compared.relative,
        "sample": compared.sample,
        "first": compared.first.origin if compared.first is not None else "",
    }
    mark = (
        "good"
        if holds(compared, Criterion(backend=compared.backend, relative=tolerance))
        else "bad"
    )
    if not compared.differing:
        return PackageTrial(
            mark=mark, says=f"all {compared.elements} elements equal", numbers=numbers
        )
    steps = "" if compared.steps is None else f"{compared.steps:.3g} steps, "
    says = f"{compared.differing} of {compared.elements} elements differ, by at most {steps}"
    says += f"{compared.relative:.3g} relative"
    if compared.unbounded:
        says += f"; {compared.unbounded} are NaN or infinite on one side only"
    if numbers["first"]:
        says += f"; first at node '{numbers['first']}'"
    return PackageTrial(mark=mark, says=says, numbers=numbers)


def content_of(text: str) -> str:
    """``text``, with the digest of the file that it names, if it names one: another content is
    another task.
    """
    from qbench.storage import digest_file

    with suppress(OSError, ValueError):
        return f"{text} {digest_file(Path(text))[:16]}"
    return text


# ``qbench bisect package``: which release changed what a model gives; each has an environment of
# its own.

_ASKED = (
    "model",
    "data",
    "schema",
    "calib",
    "calib_count",
    "backend",
    "metric",
    "tolerance",
    "threads",
    "base_python",
)


def declare_environments(parser: argparse.ArgumentParser) -> None:
    """Which releases there are and how each gets its environment: ``--versions``, ``--venv``,
    ``--with``, a Python.
    """
    parser.add_argument(
        "--versions",
        metavar="V,…",
        action="joined",
        default="",
        help="try only these versions (default: all that pip offers)",
    )
    parser.add_argument(
        "--venv",
        metavar="DIR",
        action="append",
        default=[],
        help="an existing environment; no environments are created; repeatable",
    )
    parser.add_argument(
        "--with",
        dest="requirements",
        metavar="REQ",
        action="append",
        default=[],
        help="install this requirement too; repeatable",
    )
    parser.add_argument(
        "--base-python",
        metavar="PY",
        help="create environments with this Python (default: the one that runs qbench)",
    )


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench bisect package``."""
    parser.add_argument(
        "package",
        metavar="NAME",
        help="name of the package, such as onnxruntime, or of a quantizer, such as by-nncf",
    )
    parser.add_argument("--good", required=True, metavar="A", help="a version that is good")
    parser.add_argument(
        "--bad", required=True, metavar="B", help="a later or earlier version that is bad"
    )
    declare_environments(parser)
    parser.add_argument("--model", metavar="MODEL", help="an ONNX file, or a model of the zoo")
    declare_data(parser, "samples that the model is run on")
    parser.add_argument(
        "--schema",
        metavar="S",
        help="quantize the model with this schema (default: run it as it is)",
    )
    declare_calibration(parser)
    parser.add_argument(
        "--backend",
        metavar="B",
        default="ort-cpu",
        help="backend whose settings each version runs with (default: ort-cpu)",
    )
    declare_threads(parser)
    judged = parser.add_mutually_exclusive_group()
    judged.add_argument(
        "--metric",
        default="",
        metavar="M",
        help="a version is bad where this metric is nearer to that of the bad end",
    )
    judged.add_argument(
        "--tolerance",
        type=float,
        metavar="R",
        help=(
            "a version is bad where outputs differ by more than R of the largest (default: where "
            "any bit differs)"
        ),
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        help=(
            "file that keeps the state, so that a bisection can be continued (default: "
            "reports/bisect/NAME-A-B.json)"
        ),
    )
    declare_json(parser)
    parser.set_defaults(command=())
    parser.epilog = (
        "After '--' comes a command of your own that is run instead of a model. {python} in it is "
        "the Python of a version; its exit status is 0 where that is good, 125 where it cannot be "
        "tested, and another one up to 127 where it is bad."
    )


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Halve until one version, or a stretch that cannot be tried, is left; print it.

    Raises:
        InputError: a version that is not known, neither a model nor a command, or a quantizer
            without a metric.
        UnavailableError: an end of the line cannot be had.
        IncomparableError: the ends do not differ.
        StoreError: the notebook cannot be written.
    """
    from qbench.suite import PackageNotes, next_commit, reopened, save_notes, suspects

    named, quantizer = arguments.package, quantizer_asked(arguments)
    check_environments(arguments, f"Bisecting {named}")
    if quantizer is not None:
        arguments = with_package(arguments, quantizer)
    _check(arguments)
    there = environments(arguments)
    task = _task(arguments, there, quantizer)
    path = Path(arguments.state or f"reports/bisect/{named}-{task.line[0]}-{task.line[-1]}.json")
    notes = reopened(path, PackageNotes(task=task), is_over=lambda kept: kept.ended)
    releases = None
    if quantizer is not None:
        releases = QuantizerReleases(quantizer=quantizer, arguments=arguments, there=there)
    python = programs(arguments, there) if releases is None else releases.python
    trial: Callable[[str], PackageTrial] = (
        CommandTrials(command=arguments.command, python=python)
        if arguments.command
        else _model_trials(arguments, python, releases, task.line[0])
    )

    def tried(notes: "PackageNotes", version: str) -> "PackageNotes":
        if version not in notes.trials:
            with working(f"trying {arguments.package} {version}"):
                notes = notes.with_trial(version, trial(version))
            save_notes(path, notes)
        return notes

    for end in (task.line[0], task.line[-1]):
        # one that failed is tried again: the reason may be gone
        if end not in notes.trials or notes.trials[end].mark == "skipped":
            with working(f"trying {arguments.package} {end}"):
                notes = notes.with_trial(end, trial(end))
            _demand_tried(notes, end, path)
            save_notes(path, notes)
    try:
        question = _question(notes, arguments)
    except IncomparableError:
        save_notes(path, replace(notes, ended=True))
        raise
    marks = notes.marks(question)
    later = task.line[1:]
    while (version := next_commit(later, marks)) is not None:
        notes = tried(notes, version)
        marks = notes.marks(question)
        left = counted(len(suspects(later, marks)), "version")
        say(f"{version} is {marks[version].value}: {notes.trials[version].says}; {left} left")
    save_notes(path, replace(notes, ended=True))
    _print(suspects(later, marks), marks, notes, question, arguments)
    return ExitCode.FINE


def _check(arguments: argparse.Namespace) -> None:
    doing = f"Bisecting {arguments.package}"
    found = ""
    if arguments.command and arguments.model:
        found = "both a model and a command"
    elif not arguments.command and not (arguments.model and arguments.data):
        found = "no command, and no model with data"
    if found:
        raise InputError(
            doing,
            found=found,
            expected="--model MODEL --data D, or a command after '--'",
            remedy="Name what is run with each version.",
        )
    if bool(arguments.schema) < bool(arguments.calib):
        raise InputError(
            doing,
            found="--calib without --schema",
            expected="both, or neither",
            remedy="Name the schema.",
        )


def check_environments(arguments: argparse.Namespace, doing: str) -> None:
    """Refuse existing environments together with what new ones are made of.

    Raises:
        InputError: both are given.
    """
    if arguments.venv and (arguments.requirements or arguments.base_python or arguments.versions):
        raise InputError(
            doing,
            found="--venv with --versions, --with or --base-python",
            expected="either existing environments, or requirements to create them from",
            remedy="Leave one of the two out.",
        )


def environments(arguments: argparse.Namespace) -> dict[str, Path]:
    """Version → the program of an environment that is there."""
    from qbench.backends import installed_version

    return {
        installed_version(Path(folder), arguments.package): Path(folder)
        for folder in arguments.venv
    }


def known_versions(arguments: argparse.Namespace, there: Mapping[str, Path]) -> tuple[str, ...]:
    """The versions of the environments that are ``there``, else those that are named, else all
    that pip offers.

    Raises:
        NotFetchedError: pip finds none.
    """
    from qbench.backends import offered_versions

    if there or arguments.versions:
        return tuple(there) or tuple(names_of(arguments.versions))
    base = arguments.base_python
    return offered_versions(arguments.package, Path(base) if base else None)


def _task(
    arguments: argparse.Namespace, there: Mapping[str, Path], quantizer: "Quantizer | None"
) -> "PackageTask":
    from qbench.suite import PackageTask, versions_between

    package, known = arguments.package, known_versions(arguments, there)
    asked = {
        name: content_of(str(value))
        for name in _ASKED
        if (value := getattr(arguments, name)) is not None
    }
    asked |= {"command": " ".join(arguments.command), "with": " ".join(arguments.requirements)}
    asked["extension"] = " ".join(arguments.extension)
    if quantizer is not None:
        asked["quantizer"] = quantizer.digest
    line = versions_between(package, known, arguments.good, arguments.bad)
    return PackageTask(
        package=package, line=line, asked={name: text for name, text in asked.items() if text}
    )


def programs(arguments: argparse.Namespace, there: Mapping[str, Path]) -> Callable[[str], Path]:
    """What finds the Python of a version: one that is there, or one that is made."""
    from qbench.backends import EnvironmentMaker, program_in
    from qbench.host import package_versions

    if there:
        return lambda version: program_in(there[version])
    base = arguments.base_python
    maker = EnvironmentMaker(base=Path(base)) if base else EnvironmentMaker()
    requirements = list(arguments.requirements)
    engines = (one for one in (arguments.package, *requirements) if one.startswith(ENGINE))
    if not arguments.command and next(engines, None) is None:
        # a model needs one: ours, for all versions
        requirements.append(f"{ENGINE}=={package_versions([ENGINE])[ENGINE]}")
    return lambda version: maker.make([f"{arguments.package}=={version}", *requirements])


def _demand_tried(notes: "PackageNotes", end: str, path: Path) -> None:
    if notes.trials[end].mark == "skipped":
        kept = f" What was tried before is kept in '{path}'." if path.exists() else ""
        raise InputError(
            f"Trying {notes.task.package} {end}, an end of the bisection",
            found=notes.trials[end].says,
            expected="an end that can be tested",
            remedy=f"Choose another version for this end.{kept}",
        )


def _question(notes: "PackageNotes", arguments: argparse.Namespace) -> "Question | None":
    """What a metric is asked; None where every version is good or bad by itself.

    Raises:
        IncomparableError: the ends do not differ.
    """
    from qbench.suite import Mark, ask

    good, bad = (notes.trials[end] for end in (notes.task.line[0], notes.task.line[-1]))
    if arguments.metric:
        return ask(good.lines, bad.lines, metric=arguments.metric)
    for end, trial, wanted in (
        (notes.task.line[0], good, Mark.GOOD),
        (notes.task.line[-1], bad, Mark.BAD),
    ):
        if trial.marked(None) is not wanted:
            raise IncomparableError(
                f"Bisecting {notes.task.package} from {notes.task.line[0]} to "
                f"{notes.task.line[-1]}",
                found=f"that {end} is {trial.mark}: {trial.says}",
                expected=f"a {wanted.value} end",
                remedy="Check that the ends are in the right order. A good end that differs from "
                "itself has an engine whose results are not repeatable.",
            )
    return None


def _print(
    found: tuple[str, ...],
    marks: "Mapping[str, Mark]",
    notes: "PackageNotes",
    question: "Question | None",
    arguments: argparse.Namespace,
) -> None:
    task, trials = notes.task, notes.trials
    if arguments.json:
        print_json(
            {
                "package": task.package,
                "line": list(task.line),
                "suspects": list(found),
                "question": question,
                "tried": {version: mark.value for version, mark in marks.items()},
                "trials": {version: trials[version] for version in trials},
            }
        )
        return
    before = task.line[task.line.index(found[0]) - 1]
    if len(found) == 1:
        put(f"{task.package} {found[0]} is the first bad version")
    else:
        put(
            f"the first bad version of {task.package} is one of {len(found)} that cannot be "
            "distinguished"
        )
    if question is not None:
        put(
            f"  {question.metric} goes from {question.text(question.good)} to "
            f"{question.text(question.bad)}"
        )
    for version in (before, *found):
        said = trials[version].says if version in trials else "not tried"
        mark = f"{marks[version].value}: " if version in marks else ""
        put(f"  {version}  {mark}{said}")

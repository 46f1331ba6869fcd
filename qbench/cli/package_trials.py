"""What a release of a package does: to a model, beside the good release, or to a command of the user's."""

import argparse
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.chosen_schema import choose_schema
from qbench.errors import InputError, QbenchError, UnavailableError

if TYPE_CHECKING:
    from qbench.backends import AnotherPython
    from qbench.evaluation import SharedWork, Subject
    from qbench.judging import Compared, Measurement
    from qbench.suite import PackageTrial

ENGINE = "onnxruntime"
_PYTHON = "{python}"
_SKIP = 125
_FIRST_OF_SIGNALS = 128


@dataclass(frozen=True, kw_only=True)
class ModelTrials:
    """Runs one model under each release, and counts what differs from the good one, or its metrics.

    Args:
        arguments: those of the command. python: the program of a release. good: that release.
    """

    arguments: argparse.Namespace
    python: Callable[[str], Path]
    good: str

    def __call__(self, version: str) -> "PackageTrial":
        """The release ``version``; one that does not run the model is passed over.

        Raises:
            QbenchError: the model, its data or the good release are wrong.
        """
        from qbench.suite import PackageTrial

        good = self._good
        try:
            backend = self._backend(version)
            measured = self._measured(backend, good)
        except QbenchError as error:
            if version == self.good:
                raise
            return PackageTrial(mark="skipped", says=str(error))
        if self.arguments.metric:
            return PackageTrial(says=self._metric_said(measured), lines=(self._line(measured),))
        assert measured.compared is not None
        return _compared(measured.compared, self.arguments.tolerance)

    @cached_property
    def _good(self) -> "AnotherPython":
        return self._backend(self.good)

    def _backend(self, version: str) -> "AnotherPython":
        from qbench.backends import python_backend

        name = f"{self.arguments.package}-{version}"
        return python_backend(self.python(version), self.arguments.backend, name=name)

    @cached_property
    def _subject(self) -> "Subject":
        from qbench.cli.own_subject import build_subject

        given = self.arguments
        metrics = [given.metric] if given.metric else []
        return build_subject(given.model, given.data, given.calib, metrics, given.calib_count)

    @cached_property
    def _shared(self) -> "SharedWork":
        """The float model and its ranges are those of our own engine: one model for all releases."""
        from qbench.backends import get_backend
        from qbench.evaluation import FLOAT_BACKEND, shared_work

        shared = shared_work(self._subject, get_backend(FLOAT_BACKEND))
        if self.arguments.schema:
            shared.require_float()
        return shared

    def _measured(self, backend: "AnotherPython", good: "AnotherPython") -> "Measurement":
        from qbench.evaluation import Beside, environment_here, measure_cell
        from qbench.judging import FP32, Cell, Criterion

        given = self.arguments
        schema = choose_schema(given.schema) if given.schema else None
        criterion = Criterion(backend=good.name, relative=given.tolerance)
        beside = None if given.metric else Beside(backend=good, criterion=criterion, environment=environment_here(good))
        cell = Cell("bisect", self._subject.model.id, backend.name, FP32 if schema is None else schema.name)
        return measure_cell(
            self._shared,
            backend,
            schema,
            cell=cell,
            environment=environment_here(backend),
            threads=given.threads,
            beside=beside,
        )

    def _line(self, measured: "Measurement") -> Mapping[str, Any]:
        """A ``cell`` line as bisecting reads it; its backend is the one that every release mirrors."""
        cell = measured.cell
        metrics = {
            one.metric: {"hits": one.hits, "out_of": one.out_of, "direction": one.direction.value}
            for one in measured.scores
        }
        axes = {"suite": cell.suite, "model": cell.model, "backend": self.arguments.backend, "schema": cell.schema}
        return {**axes, "metrics": metrics}

    def _metric_said(self, measured: "Measurement") -> str:
        from qbench.judging import valued

        return ", ".join(f"{one.metric} {valued(one, one.value)}" for one in measured.scores)


@dataclass(frozen=True, kw_only=True)
class CommandTrials:
    """Runs the user's command under each release: status 0 is good, 125 passes it over, others up to 127 are bad.

    Args:
        command: its words, in which ``{python}`` stands for the program. python: the program of a release.
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
            status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=2, check=False).returncode
        except OSError as error:
            raise InputError(
                doing, found=error.strerror or str(error), expected="a program", remedy="Mend what is behind '--'."
            ) from error
        if not 0 <= status < _FIRST_OF_SIGNALS:
            raise UnavailableError(
                doing,
                found=f"status {status}",
                expected="0 (good), 125 (cannot be tested) or up to 127 (bad)",
                remedy="Its last run was ended from outside, or it crashed: the same command goes on from here.",
            )
        mark = "skipped" if status == _SKIP else "bad" if status else "good"
        return PackageTrial(mark=mark, says=f"the command ended with {status}", numbers={"status": status})


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
    mark = "good" if holds(compared, Criterion(backend=compared.backend, relative=tolerance)) else "bad"
    if not compared.differing:
        return PackageTrial(mark=mark, says=f"all {compared.elements} elements equal", numbers=numbers)
    steps = "" if compared.steps is None else f"{compared.steps:.3g} steps, "
    says = f"{compared.differing} of {compared.elements} elements differ, by at most {steps}"
    says += f"{compared.relative:.3g} relative"
    if compared.unbounded:
        says += f"; {compared.unbounded} are NaN or infinite on one side only"
    if numbers["first"]:
        says += f"; first at node '{numbers['first']}'"
    return PackageTrial(mark=mark, says=says, numbers=numbers)


def content_of(text: str) -> str:
    """``text``, with the digest of the file that it names, if it names one: another content is another task."""
    from qbench.storage import digest_file

    with suppress(OSError, ValueError):
        return f"{text} {digest_file(Path(text))[:16]}"
    return text

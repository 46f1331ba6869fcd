"""The notes of a bisection over the releases of a package."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from packaging.version import InvalidVersion, Version

from qbench.errors import InputError, unknown_name
from qbench.suite.bisection import Mark, Question

FORMAT = "qbench-bisect-package/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTask:
    """What is bisected; notes belong to one task.

    Args:
        package: its name. line: versions from the good end to the bad one, both included.
        asked: all other arguments that the result depends on, name → text.
    """

    package: str
    line: tuple[str, ...]
    asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTrial:
    """One version.

    Args:
        mark: ``good``, ``bad`` or ``skipped``; empty where ``lines`` decide, compared with those of the ends.
        says: what was observed, or why nothing was; for people.
        numbers: counts. lines: the cell's line with its metrics.
    """

    mark: str = ""
    says: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[Mapping[str, Any], ...] = ()

    def marked(self, question: Question | None) -> Mark:
        """The mark of the version; by ``question`` where the trial has none."""
        if self.mark:
            return Mark(self.mark)
        return Mark.SKIPPED if question is None else question.mark(question.value(self.lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageNotes:
    """All results so far, version → trial; ``ended``: no version is left to try."""

    format: str = FORMAT
    task: PackageTask
    trials: Mapping[str, PackageTrial] = field(default_factory=dict)
    ended: bool = False

    def with_trial(self, version: str, trial: PackageTrial) -> "PackageNotes":
        """These notes and ``trial`` of ``version``."""
        return replace(self, trials={**self.trials, version: trial})

    def marks(self, question: Question | None) -> dict[str, Mark]:
        """Version → its mark."""
        return {version: trial.marked(question) for version, trial in self.trials.items()}


def versions_between(package: str, known: Iterable[str], good: str, bad: str) -> tuple[str, ...]:
    """The versions from ``good`` to ``bad``, both included, in the order of PEP 440, backwards if ``bad`` is older.

    Pre-releases are included only as ends.

    Raises:
        InputError: an end is no version, is not known, or both are the same.
    """
    doing = f"Bisecting {package} from {good} to {bad}"
    first, last = (_version(doing, one) for one in (good, bad))
    found = {_version(doing, one): one for one in known}
    for end, name in ((first, good), (last, bad)):
        if end not in found:
            raise unknown_name(doing, "version", name, found.values())
    if first == last:
        raise InputError(doing, found="one version at both ends", expected="two", remedy="Name another end.")
    low, high = min(first, last), max(first, last)
    line = [one for one in sorted(found) if low <= one <= high and (not one.is_prerelease or one in (low, high))]
    return tuple(found[one] for one in (line if first < last else reversed(line)))


def _version(doing: str, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise InputError(
            doing, found=f"'{text}' for a version", expected="one as PEP 440 writes it, 1.17.3", remedy="Correct it."
        ) from error

"""A suite file opened with pytest's options, once per process."""

import contextlib
import datetime
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import InputError
from qbench.extension import Extension, error_of_code, named_also, place_of
from qbench.number_text import counted
from qbench.plugin.jobs import JOB
from qbench.plugin.options import OPTIONS, history_place, origin_of
from qbench.plugin.skips import is_skip, skip_reason

if TYPE_CHECKING:
    from pluggy import HookRelay

    from qbench.evaluation import Subject
    from qbench.judging import QuarantineEntry
    from qbench.suite import (
        Bench,
        Carrying,
        Catalogues,
        Check,
        JobChoice,
        JudgedCell,
        PlannedCell,
        Suite,
        Unit,
    )

_OPENED = pytest.StashKey[dict[Any, "OpenSuite"]]()


@dataclass
class OpenSuite:
    """One suite in this process.

    Args:
        suite, catalogues: from the file, the options and the extensions.
        planned: its cells in file order.
        stale_entries: entries of the quarantine file that match no cell; empty unless the session
            prunes, because without pruning such an entry is an error.
        notes: what options set in place of its tables, in sentences.
        subject: of a check, which is built from files; None: as the suite names it.
        of_cells: how many cells the suite has, where ``planned`` are those of one job; None: they
            are all.
        added: what the conftest files of its folder add.
    """

    suite: "Suite"
    catalogues: "Catalogues"
    planned: "tuple[PlannedCell, ...]"
    config: pytest.Config
    shown_path: str
    stale_entries: "tuple[QuarantineEntry, ...]" = ()
    subject: "Subject | None" = None
    notes: tuple[str, ...] = ()
    of_cells: int | None = None
    added: "tuple[Extension, ...]" = ()

    @property
    def is_part(self) -> bool:
        """Whether ``planned`` are the cells of one job alone."""
        return self.of_cells is not None

    @property
    def count(self) -> int:
        """How many cells the suite has."""
        return len(self.planned) if self.of_cells is None else self.of_cells

    @cached_property
    def bench(self) -> "Bench":
        """Measures and judges the cells."""
        from qbench.host import utc_today
        from qbench.storage import Cache
        from qbench.suite import Bench, Settings
        from qbench.tracking import Accepting, Scope

        options = self.config.stash[OPTIONS]
        accepting = None
        if options.accepts:
            scope = None if options.accept is None else Scope(options.accept)
            accepting = Accepting(scope=scope, fp32=options.accept_fp32, reason=options.reason)
        settings = Settings(
            baselines=options.baselines,
            suite_path=self.shown_path,
            today=utc_today(),
            cache=Cache.default() if options.cache is None else Cache.at(options.cache),
            accepting=accepting,
            limit=options.limit,
            uses_floors=options.repeats is None,
            processor=self.config.hook.pytest_qbench_processor(config=self.config),
            most_samples=options.samples,
            quantizes_twice=options.quantize_twice,
        )
        return Bench(self.suite, self.catalogues, settings, subject=self.subject)

    @cached_property
    def carrying(self) -> "Carrying | None":
        """Carries earlier results over; None: every cell is measured, and no key is noted.

        A run that accepts results measures all of them, and notes their keys.
        """
        options = self.config.stash[OPTIONS]
        rule = options.carry
        if rule is None or options.release is not None:
            return None
        from qbench.host import utc_now
        from qbench.suite import Carrying

        if options.accepts:
            rule = replace(rule, age=datetime.timedelta())
        place = history_place(self.config)
        models = {one.cell.model for one in self.planned}
        return Carrying(self.bench, rule, place, models, utc_now)

    def run(self, planned: "PlannedCell") -> "JudgedCell":
        """``planned`` carried over, or measured and judged."""
        carrying = self.carrying
        return self.bench.run(planned) if carrying is None else carrying.run(planned)

    @property
    def told(self) -> tuple[str, ...]:
        """Its ``notes``, and what is known of the history that results are carried from."""
        carrying = self.carrying
        return self.notes if carrying is None else (*self.notes, *carrying.notes)


def open_suite(
    path: Path, config: pytest.Config, hook: "HookRelay", *, whole: bool = False
) -> OpenSuite:
    """The suite at ``path`` with all its cells, or where the session runs a job of a plan and not
    ``whole``, with those of the job; opened once for the same conftest files.

    Args:
        hook: gives the extensions; the hook of a node leaves out the conftest files of other
            folders.

    Raises:
        InputError: the file or a name in it is wrong.
    """
    known = config.stash.setdefault(_OPENED, {})
    choice = None if whole else config.stash.get(JOB, None)
    key = (
        os.path.normpath(path),
        choice is None,
        *(one.function for one in hook.pytest_qbench_extension.get_hookimpls()),
    )
    if key not in known:
        try:
            known[key] = _opened(path, config, hook, choice)
        except BaseException as error:
            if not is_skip(error):
                raise
            raise InputError(  # pytest would leave the whole suite out, and pass
                f"Opening the suite '{path.name}'",
                found=f"a skip ({skip_reason(error)})",
                expected="what its cells are made of",
                remedy=(
                    "Skip inside the loader that needs it: its cells are then skipped, and the "
                    "others run."
                ),
            ) from error
    return known[key]


def _opened(
    path: Path, config: pytest.Config, hook: "HookRelay", choice: "JobChoice | None"
) -> OpenSuite:
    from qbench.suite import expand, expand_pruned, expand_units, load_suite

    part = _part_of(path, choice)
    suite = _with_options(config, load_suite(path, only=None if part is None else part.units))
    # as a user would type it where pytest was started
    shown = os.path.relpath(path, config.invocation_params.dir)
    shown = str(path) if shown.startswith("..") else Path(shown).as_posix()
    added = _extensions(hook, config)
    catalogues = _catalogues(added, config, path.parent)
    opened = partial(OpenSuite, config=config, shown_path=shown, added=tuple(added))
    if part is not None:
        with _naming_idle_hooks(hook, len(added)):
            planned = expand_units(suite, catalogues, part.units)
        forced, notes = forced_by_options(planned, suite, config)
        return opened(suite, catalogues, forced, notes=notes, of_cells=part.of)
    if config.stash[OPTIONS].prune:
        # pruning reports stale entries at the end, so here they are not an error
        kept, planned = expand_pruned(suite, catalogues)
        stale = tuple(entry for entry in suite.quarantine if entry not in kept.quarantine)
        forced, notes = forced_by_options(planned, suite, config)
        return opened(kept, catalogues, forced, notes=notes, stale_entries=stale)
    with _naming_idle_hooks(hook, len(added)):
        planned = expand(suite, catalogues)
    forced, notes = forced_by_options(planned, suite, config)
    return opened(suite, catalogues, forced, notes=notes)


@dataclass(frozen=True, slots=True)
class _Part:
    """The units of a job in a suite ``of`` so many cells, by their model."""

    units: "Mapping[str, Sequence[Unit]]"
    of: int


def _part_of(path: Path, choice: "JobChoice | None") -> _Part | None:
    """What the job has of the suite at ``path``; None: there is no job.

    Raises:
        InputError: the plan is of another suite.
    """
    if choice is None:
        return None
    from qbench.suite import refuse_other_suite

    entry = refuse_other_suite(choice.plan, path)
    return _Part(choice.job.models(entry.name), entry.cells)


def open_test(check: "Check", config: pytest.Config, hook: "HookRelay") -> OpenSuite:
    """The suite of the one cell of ``check``, with pytest's options.

    Raises:
        InputError: what ``qbench.suite.open_check`` raises; a hook fails.
    """
    from qbench.judging import CHECKS, Tolerance
    from qbench.suite import open_check

    folder = config.rootpath / "suites"  # names of schemas, devices and engines in files
    added = _extensions(hook, config)
    known = _catalogues(added, config, folder)
    with named_also(lambda: tuple(added)):
        opened = open_check(check, known, limit=config.stash[OPTIONS].limit)
    suite, planned = _with_options(config, opened.suite), opened.planned
    if check.tolerance is None or config.getoption("qbench_tolerance"):
        # an argument wins over the ini file, the command line over both
        tolerances = ((None, suite.own_tolerance() or Tolerance()),)
        planned = replace(planned, tolerances=tolerances)
    cells = _repeated((planned,), config)
    return OpenSuite(
        suite,
        opened.catalogues,
        cells,
        config,
        CHECKS,
        subject=opened.subject,
        added=tuple(added),
    )


def _catalogues(added: "list[Extension]", config: pytest.Config, folder: Path) -> "Catalogues":
    """What can be named: with the ``added`` extensions and the files in ``folder``."""
    from qbench.suite import gather, with_python

    catalogues = gather(added, suites=folder)
    release = config.stash[OPTIONS].release
    if release is None:
        return catalogues
    return with_python(catalogues, release.python, release.package)


def _repeated(
    planned: "tuple[PlannedCell, ...]", config: pytest.Config
) -> "tuple[PlannedCell, ...]":
    """``planned``, to be run as often as the option says."""
    repeats = config.stash[OPTIONS].repeats
    if repeats is None:
        return planned
    return tuple(one.with_repeats(repeats, "option --qbench-repeats") for one in planned)


def forced_by_options(
    planned: "tuple[PlannedCell, ...]", suite: "Suite", config: pytest.Config
) -> "tuple[tuple[PlannedCell, ...], tuple[str, ...]]":
    """``planned`` with the numbers that options set in place of every table, and a sentence for
    each such option: in how many cells a table says otherwise.
    """
    from qbench.judging import RelativeTo

    options, notes = config.stash[OPTIONS], []
    if options.tolerance is not None:
        origin = origin_of(config, "tolerance")
        others = [one for one in planned if any(t.rule != origin for _, t in one.tolerances)]
        unit = suite.table.relative_to or RelativeTo.SCORE
        planned = tuple(one.with_tolerance(options.tolerance, origin, unit) for one in planned)
        what = f"{origin.removeprefix('option ')}={options.tolerance:g} sets the tolerance"
        notes.append(_forced_text(what, planned, others, suite.name))
    if options.repeats is not None:
        others = [one for one in planned if one.rules.repeats_rule != "default"]
        what = f"--qbench-repeats={options.repeats} sets the number of runs"
        notes.append(_forced_text(what, planned, others, suite.name))
    return _repeated(planned, config), tuple(notes)


def _forced_text(
    what: str, planned: "Sequence[PlannedCell]", others: "Sequence[PlannedCell]", suite: str
) -> str:
    """``--qbench-tolerance=0.005 sets the tolerance of all 106 cells of suite smoke, in 22 of them
    (mobilenet_v2) in place of a table of the suite``.
    """
    text = f"{what} of all {counted(len(planned), 'cell')} of suite {suite}"
    models = list(dict.fromkeys(one.cell.model for one in others))
    if not models:
        return f"{text}."
    named = ", ".join(models[:_NAMED]) + (", …" if len(models) > _NAMED else "")
    return f"{text}, in {len(others)} of them ({named}) in place of a table of their own."


_NAMED = 3


def _extensions(hook: "HookRelay", config: pytest.Config) -> list[Extension]:
    """What the hooks return that return something.

    Raises:
        InputError: one fails, or returns something else; its file is named.
    """
    files = _hook_files(hook)
    try:
        values = hook.pytest_qbench_extension(config=config)
    except Exception as error:  # it is their code: whatever it raises is about their file
        folder = next(
            (str(Path(file).parent) for file in files if place_of(error, Path(file).parent)), ""
        )
        raise error_of_code(
            f"Calling the hook {_HOOK} of {_listed(files)}",
            error,
            folder=folder or Path.cwd(),
            expected="a qbench.Extension",
            remedy="Correct the hook.",
        ) from error
    for value in values:
        if not isinstance(value, Extension):
            raise InputError(
                f"Reading what the hook {_HOOK} of {_listed(files)} returned",
                found=f"a {type(value).__name__}",
                expected="a qbench.Extension",
                remedy="Correct the return value, or return None to add nothing.",
            )
    return list(values)


_HOOK = "pytest_qbench_extension"


def _hook_files(hook: "HookRelay") -> list[str]:
    """The files that define the hook for the suite, the nearest first."""
    plugins = (one.plugin for one in reversed(hook.pytest_qbench_extension.get_hookimpls()))
    return [str(file) for file in (getattr(plugin, "__file__", None) for plugin in plugins) if file]


def _listed(files: "Iterable[str]") -> str:
    return " and ".join(f"'{os.path.relpath(file)}'" for file in files) or "a plugin"


@contextlib.contextmanager
def _naming_idle_hooks(hook: "HookRelay", returned: int) -> Iterator[None]:
    """Add to the error of an unknown name that hooks returned nothing, where fewer than all
    ``returned`` something.
    """
    try:
        yield
    except InputError as error:
        files = _hook_files(hook)
        if len(
            hook.pytest_qbench_extension.get_hookimpls()
        ) <= returned or not error.found.startswith("unknown "):
            raise
        found = f"{error.found}, and that the hook {_HOOK} of {_listed(files)} returned None"
        remedy = "Return the Extension from the hook."
        raise InputError(
            error.doing, found=found, expected=error.expected, remedy=remedy
        ) from error


def _with_options(config: pytest.Config, suite: "Suite") -> "Suite":
    """``suite`` with the numbers that options replace."""
    options, table = config.stash[OPTIONS], suite.table
    if options.tolerance is not None:
        table = replace(table, tolerance=options.tolerance)
        suite = replace(suite, tolerance_from=origin_of(config, "tolerance"))
    if options.threads is not None:
        table = replace(table, threads=options.threads)
    return replace(suite, table=table)

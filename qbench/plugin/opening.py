"""A suite file opened with pytest's options, once per process."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.errors import InputError
from qbench.extension import Extension
from qbench.plugin.options import OPTIONS, origin_of

if TYPE_CHECKING:
    from pluggy import HookRelay

    from qbench.judging import QuarantineEntry
    from qbench.suite import Bench, Catalogues, PlannedCell, Suite

_OPENED = pytest.StashKey[dict[Any, "OpenSuite"]]()


@dataclass
class OpenSuite:
    """One suite in this process.

    Args:
        suite, catalogues: from the file, the options and the extensions. planned: its cells in file order.
        stale_entries: entries of the quarantine file that match no cell; empty unless the session prunes, because
            without pruning such an entry is an error.
    """

    suite: "Suite"
    catalogues: "Catalogues"
    planned: "tuple[PlannedCell, ...]"
    config: pytest.Config
    shown_path: str
    stale_entries: "tuple[QuarantineEntry, ...]" = ()

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
            cache=Cache.default() if options.cache is None else Cache(options.cache),
            accepting=accepting,
            limit=options.limit,
            uses_floors=options.repeats is None,
            processor=self.config.hook.pytest_qbench_processor(config=self.config),
        )
        return Bench(self.suite, self.catalogues, settings)


def open_suite(path: Path, config: pytest.Config, hook: "HookRelay") -> OpenSuite:
    """The suite at ``path`` with all its cells; opened once for the same conftest files.

    Args:
        hook: gives the extensions; the hook of a node leaves out the conftest files of other folders.

    Raises:
        InputError: the file or a name in it is wrong.
    """
    known = config.stash.setdefault(_OPENED, {})
    key = (os.path.normpath(path), *(one.function for one in hook.pytest_qbench_extension.get_hookimpls()))
    if key not in known:
        known[key] = _opened(path, config, hook)
    return known[key]


def _opened(path: Path, config: pytest.Config, hook: "HookRelay") -> OpenSuite:
    from qbench.suite import expand, expand_pruned, gather, load_suite, with_python

    suite = _with_options(config, load_suite(path))
    shown = os.path.relpath(path, config.invocation_params.dir)  # as a user would type it where pytest was started
    shown = str(path) if shown.startswith("..") else Path(shown).as_posix()
    added = [_extension(value) for value in hook.pytest_qbench_extension(config=config) if value is not None]
    catalogues = gather(added, suites=path.parent)
    if (release := config.stash[OPTIONS].release) is not None:
        catalogues = with_python(catalogues, release.python, release.package)
    if config.stash[OPTIONS].prune:  # pruning reports stale entries at the end, so here they are no error
        kept, planned = expand_pruned(suite, catalogues)
        stale = tuple(entry for entry in suite.quarantine if entry not in kept.quarantine)
        return OpenSuite(kept, catalogues, planned, config, shown, stale)
    planned = expand(suite, catalogues)
    if (repeats := config.stash[OPTIONS].repeats) is not None:
        planned = tuple(one.with_repeats(repeats, "option --qbench-repeats") for one in planned)
    return OpenSuite(suite, catalogues, planned, config, shown)


def _extension(value: object) -> Extension:
    if isinstance(value, Extension):
        return value
    raise InputError(
        "Reading what the hook pytest_qbench_extension returned",
        found=f"a {type(value).__name__}",
        expected="a qbench.Extension",
        remedy="Correct the return value in conftest.py, or return None to add nothing.",
    )


def _with_options(config: pytest.Config, suite: "Suite") -> "Suite":
    """``suite`` with the numbers that options replace."""
    options, table = config.stash[OPTIONS], suite.table
    if options.tolerance is not None:
        table = replace(table, tolerance=options.tolerance)
        suite = replace(suite, tolerance_from=origin_of(config, "tolerance"))
    if options.threads is not None:
        table = replace(table, threads=options.threads)
    return replace(suite, table=table)

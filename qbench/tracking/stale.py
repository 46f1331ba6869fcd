"""Baselines that nothing uses any more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench.errors import StoreError
from qbench.judging import CHECKS, Cell
from qbench.storage import sweep_work_folder
from qbench.tracking.answers_file import ACCEPTED, FP32
from qbench.tracking.baseline import AcceptedCell, Baseline
from qbench.tracking.baseline_file import (
    baseline_path,
    changing_baseline,
    find_baseline,
    load_cells,
)
from qbench.tracking.calibrations import calibration_name, variant_of_key

_NAMED = 3


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class StaleEntry:
    """One entry of a baseline, or a whole baseline, that no cell of the suite uses.

    Args:
        suite, model: whose baseline.
        cell: its slug, or ``calibration:KEY``; empty: the whole file.
        environment_class: the class whose result is of a former model or former data; empty: all
            that is known of it.
    """

    suite: str
    model: str
    cell: str = ""
    environment_class: str = ""

    @property
    def name(self) -> str:
        """``model``, ``model::cell`` or ``model::cell in CLASS``."""
        named = f"{self.model}::{self.cell}" if self.cell else self.model
        return f"{named} in {self.environment_class}" if self.environment_class else named

    @property
    def why(self) -> str:
        """One clause."""
        if self.environment_class:
            return "of a former model or former data"
        return f"no such {self._kind} in the suite '{self.suite}'"

    @property
    def _kind(self) -> str:
        if self.is_calibration:
            return "variant"
        return "cell" if self.cell else "model"

    @property
    def is_calibration(self) -> bool:
        """Whether it is what a variant was calibrated by."""
        return self.cell.startswith(calibration_name(""))


def find_stale_entries(folder: Path, suite: str, cells: Iterable[Cell]) -> tuple[StaleEntry, ...]:
    """The entries of the baselines of ``suite`` that no cell uses, sorted.

    Damaged files are skipped here.

    Args:
        folder: of baselines.
        cells: every cell of the suite, whether it is measured now or not.
    """
    sweep_work_folder(folder / suite)
    slugs: dict[str, set[str]] = {}
    for cell in cells:
        slugs.setdefault(cell.model, set()).add(cell.slug)
    found = []
    for model in _stored_models(folder / suite):
        path = baseline_path(folder, suite, model)
        if model not in slugs:
            found.append(StaleEntry(suite=suite, model=model))
            continue
        try:
            known, calibrations = load_cells(path)
        except StoreError:
            continue
        for slug, held in known.items():
            classes = held.former if slug in slugs[model] else ("",)
            found += [
                StaleEntry(suite=suite, model=model, cell=slug, environment_class=name)
                for name in classes
            ]
        variants = {"+".join(slug.split("+")[2:]) for slug in slugs[model]}
        lost = (
            calibration_name(key) for key in calibrations if variant_of_key(key) not in variants
        )
        found += [StaleEntry(suite=suite, model=model, cell=name) for name in lost]
    return tuple(sorted(found))


def accepted_cells(folder: Path, suite: str) -> dict[Cell, AcceptedCell]:
    """What the baselines of ``suite`` in ``folder`` hold of each cell, damaged files apart."""
    found = {}
    for model in _stored_models(folder / suite):
        try:
            known, _ = load_cells(baseline_path(folder, suite, model))
        except StoreError:
            continue
        for slug, held in known.items():
            backend, schema, *variant = slug.split("+")
            found[Cell(suite, model, backend, schema, *variant)] = held
    return found


def _stored_models(folder: Path) -> list[str]:
    """The models with a file in ``folder``: also those of which a killed process left only
    answers.
    """
    suffixes = (".json", FP32.suffix, ACCEPTED.suffix)
    return sorted(
        {path.name.removesuffix(end) for end in suffixes for path in folder.glob(f"*{end}")}
    )


def stale_entry_notes(entries: Iterable[StaleEntry], suite_path: str) -> tuple[str, ...]:
    """A sentence for each reason, with the first few entries and the command that removes them
    from ``suite_path``.
    """
    reasons: dict[str, list[str]] = {}
    for one in entries:
        reasons.setdefault(one.why, []).append(one.name)
    return tuple(
        f"{'1 baseline is' if len(names) == 1 else f'{len(names)} baselines are'} left over "
        f"({why}): "
        f"{', '.join(names[:_NAMED])}"
        f"{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''}; "
        f"they are kept; if they are not needed, remove them by: pytest {suite_path} "
        "--collect-only --qbench-prune"
        for why, names in reasons.items()
    )


def orphan_notes(folder: Path, suites: Path, suffix: str) -> tuple[str, ...]:
    """A sentence for each folder of baselines without a suite of its name in ``suites``; no
    command removes these.

    Args:
        folder: of baselines.
        suffix: of the names of suite files. Suites may lie in other folders too.
    """
    named = (path.parent.name for path in sorted(folder.glob("*/*.json")))
    orphans = [
        name
        for name in dict.fromkeys(named)
        if name != CHECKS and not (suites / f"{name}{suffix}").exists()
    ]
    return tuple(
        f"'{folder.name}/{name}' holds baselines, but '{suites.name}' has no suite '{name}'."
        for name in orphans
    )


def prune_stale_entries(folder: Path, entries: Iterable[StaleEntry]) -> None:
    """Remove ``entries`` from the baselines in ``folder``, as these are now.

    Raises:
        StoreError: a baseline cannot be read or written; those before it are done.
    """
    files: dict[Path, list[StaleEntry]] = {}
    for one in entries:
        files.setdefault(baseline_path(folder, one.suite, one.model), []).append(one)
    for path, several in files.items():
        with changing_baseline(path) as change:
            if any(not one.cell for one in several):
                change.delete()
            elif (baseline := find_baseline(path)) is not None:
                change.save(_without(baseline, several))


def _without(baseline: Baseline, entries: Sequence[StaleEntry]) -> Baseline:
    cells = dict(baseline.cells)
    kept = {slug: dict(classes) for slug, classes in baseline.kept.items()}
    lost = {one.cell for one in entries if one.is_calibration}
    calibrations = {
        key: held
        for key, held in baseline.calibrations.items()
        if calibration_name(key) not in lost
    }
    for one in entries:
        cell, name = cells.get(one.cell), one.environment_class
        if one.is_calibration or cell is None or (name and name not in cell.former):
            # another process removed it, or accepted a result of today's model there, since it was
            # found
            continue
        if not name or cell.accepted.keys() == {name}:
            del cells[one.cell]
            kept.pop(one.cell, None)
            continue
        left = {key: accepted for key, accepted in cell.accepted.items() if key != name}
        cells[one.cell] = replace(
            cell, accepted=left, former=tuple(n for n in cell.former if n != name)
        )
        kept.get(one.cell, {}).pop(name, None)
    return replace(baseline, cells=cells, kept=kept, calibrations=calibrations)

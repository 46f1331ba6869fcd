"""Suite × catalogues → planned cells, in the order of the file: model by model, fp32 first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from qbench.errors import InputError, nearest, unknown_name
from qbench.extension import Catalogue
from qbench.judging import (
    FP32,
    GIVEN,
    Cell,
    Criterion,
    EnvironmentClass,
    QuarantineEntry,
    Tolerance,
    resolve_tolerance,
)
from qbench.suite.catalogues import WRITTEN_MACHINES, Catalogues
from qbench.suite.criteria import Asked, criterion_for, refuse_idle
from qbench.suite.layered import refuse_idle_settings
from qbench.suite.limits import check_limits
from qbench.suite.passes import NONE, variant_of
from qbench.suite.suite import CalibrationChoice, ModelTable, Suite

_VARIANT_KEYS = ("calibration.count", "calibration.data", "schemas", "backends", "passes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A cell with the settings that hold for it, before anything is loaded.

    ``passes``: what rewrites its graphs, as ``suite.passes`` says. ``criterion``: beside another backend.
    """

    cell: Cell
    suite: Suite
    model: ModelTable
    calibration: CalibrationChoice
    passes: str = NONE
    criterion: Criterion | None = None

    @property
    def partner(self) -> ModelTable | None:
        """The float model that this one, which came quantized, is judged against."""
        return self.suite.partners.get(self.model.id)

    @property
    def recalibrated(self) -> str:
        """Its variant, where that has calibration samples of its own; else empty."""
        return "" if self.calibration == self.model.calibration else self.cell.variant

    @property
    def line(self) -> int:
        """Zero-based line of the model in the suite file."""
        return self.suite.lines.get(self.model.id, 0)

    def tolerance(self, environment: EnvironmentClass) -> Tolerance:
        """The tolerance that wins here: default < suite < model < cell."""
        return resolve_tolerance(
            self.suite.own_tolerance(), self.model.own_tolerance(), cell_tolerance(self.model, self.cell, environment)
        )

    @property
    def is_listed(self) -> bool:
        """Whether the quarantine file has an entry about this cell, on whatever machine."""
        return any(entry.is_about(self.cell) for entry in self.suite.quarantine)

    def quarantine(self, environment: EnvironmentClass) -> QuarantineEntry | None:
        """The quarantine entry about this cell on this machine."""
        return next((entry for entry in self.suite.quarantine if entry.covers(self.cell, environment)), None)


def expand(suite: Suite, catalogues: Catalogues, *, whole: bool = True) -> tuple[PlannedCell, ...]:
    """Every cell of ``suite``; one cut to a part is not ``whole``, and may hold settings about cells it has not.

    Raises:
        InputError: an unknown model, data set, backend, schema or metric (the nearest name is suggested); a name
            twice in a list; a tolerance, a criterion or a quarantine entry that is about no cell; a cell that is to be
            compared with itself, or in two ways; a file that spells no machine.
    """
    doing = f"Expanding suite '{suite.name}'"
    planned: list[PlannedCell] = []
    _check_criteria(doing, suite.asked(), catalogues)
    for model in suite.models:
        _check_names(doing, model, catalogues)
        cells = tuple(_cells_of(doing, suite, model, catalogues))
        if whole:
            _refuse_idle_tolerances(doing, model, cells)
            refuse_idle(model.asked(), (planned.cell for planned in cells), doing)
            refuse_idle_settings((model.cell_settings(),), (planned.cell for planned in cells), doing)
        planned += cells
    if whole:
        refuse_idle(suite.asked(), (one.cell for one in planned), doing)
        refuse_idle_settings((suite.cell_settings(),), (one.cell for one in planned), doing)
        check_limits(doing, suite.table.limits, (name for one in suite.models for name in one.metrics), catalogues)
        _refuse_idle_entries(doing, suite, planned)
    _read_written_machines(planned, catalogues)
    return tuple(planned)


def _read_written_machines(planned: Iterable[PlannedCell], catalogues: Catalogues) -> None:
    """Read each machine that a file spells once, so that a mistake in it is one error and not one of every cell."""
    for backend in sorted({one.cell.backend for one in planned}):
        if catalogues.backends.owner(backend) == WRITTEN_MACHINES:
            catalogues.backends.get(backend)


def cell_tolerance(model: ModelTable, cell: Cell, environment: EnvironmentClass | None) -> Tolerance | None:
    """The model's tolerance for this very cell; ``environment`` None disregards conditions."""
    if not isinstance(model.tolerance, Mapping):
        return None
    for key, setting in model.tolerance.items():
        if not cell.is_named_by(key):
            continue
        if isinstance(setting, float):
            return Tolerance(setting, f"cell {model.id}::{key}")
        if environment is None or environment.matches(setting.when):
            rule = f"cell {model.id}::{key}" + (f" ({setting.reason})" if setting.reason else "")
            own = {metric: Tolerance(value, rule) for metric, value in setting.metrics.items()}
            return Tolerance(setting.value, rule, own)
    return None


def _cells_of(doing: str, suite: Suite, model: ModelTable, catalogues: Catalogues) -> Iterable[PlannedCell]:
    backends = _names(doing, "backend", suite.table.backends if model.backends is None else model.backends, catalogues)
    if model.came_quantized:
        listed = model.schemas is None or GIVEN in model.schemas  # a Python test may have cut them
        for backend in backends if listed else ():
            yield _planned(doing, suite, model, (backend, GIVEN, ""), model.calibration)
        return
    schemas = _names(doing, "schema", suite.table.schemas if model.schemas is None else model.schemas, catalogues)
    axis = (suite.table.passes if model.passes is None else model.passes) or (NONE,)
    for backend in backends:
        floats = suite.table.fp32 and backend not in catalogues.integer_machines
        if floats:
            yield _planned(doing, suite, model, (backend, FP32, ""), model.calibration)
        for schema, passes in product(schemas, axis):
            cell = _planned(doing, suite, model, (backend, schema, variant_of(passes)), model.calibration)
            yield replace(cell, passes=passes)
    for variant, settings in model.variants.items():
        calibration = _varied(doing, model, variant, settings, catalogues)
        for backend in _names(doing, "backend", tuple(settings.get("backends", backends)), catalogues):
            for schema in _names(doing, "schema", tuple(settings.get("schemas", schemas)), catalogues):
                cell = _planned(doing, suite, model, (backend, schema, variant), calibration)
                yield replace(cell, passes=settings.get("passes", NONE))


def _planned(
    doing: str, suite: Suite, model: ModelTable, axes: tuple[str, str, str], calibration: CalibrationChoice
) -> PlannedCell:
    try:
        cell = Cell(suite.name, model.id, *axes)
    except ValueError as error:
        raise InputError(doing, found=str(error), expected="names that fit a node id", remedy="Rename it.") from error
    criterion = criterion_for(cell, (suite.asked(), model.asked()), doing)
    if criterion is None and model.is_alone:
        raise InputError(
            f"{doing}, cell '{cell}'",
            found="no float model and no 'equal_to' or 'close_to'",
            expected="something to judge it by",
            remedy=f'Say what it must be: equal_to = {{ "{cell.backend}" = "BACKEND" }}.',
        )
    return PlannedCell(cell=cell, suite=suite, model=model, calibration=calibration, criterion=criterion)


def _varied(
    doing: str, model: ModelTable, variant: str, settings: Mapping[str, Any], catalogues: Catalogues
) -> CalibrationChoice:
    for key in settings:
        if key not in _VARIANT_KEYS:
            close = nearest(key, _VARIANT_KEYS)
            raise InputError(
                f"{doing}, variant '{variant}' of '{model.id}'",
                found=f"an unknown key '{key}'",
                expected=f"one of: {', '.join(_VARIANT_KEYS)}",
                remedy=f"Did you mean '{close}'?" if close else "Remove it.",
            )
        if not _has_kind(key, settings[key]):
            raise InputError(
                f"{doing}, variant '{variant}' of '{model.id}'",
                found=f"{settings[key]!r} for '{key}'",
                expected="lists of names for schemas and backends, a whole number for calibration.count, else a name",
                remedy="Correct the variant.",
            )
    data = settings.get("calibration.data", model.calibration.data)
    _require(doing, catalogues.datasets, data)
    try:
        return replace(model.calibration, count=settings.get("calibration.count", model.calibration.count), data=data)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{doing}, variant '{variant}' of '{model.id}'",
            found=str(error),
            expected="a positive whole number",
            remedy="Mend calibration.count.",
        ) from error


def _has_kind(key: str, value: object) -> bool:
    """Whether the setting ``key`` of a variant can be ``value``."""
    if key in ("schemas", "backends"):
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    return type(value) is int if key == "calibration.count" else isinstance(value, str)


def _check_names(doing: str, model: ModelTable, catalogues: Catalogues) -> None:
    _require(doing, catalogues.models, model.id)
    metrics, _, data = zip(*(m.partition("@") for m in model.metrics), strict=True)
    for name in (model.data, model.calibration.data, *filter(None, data)):
        _require(doing, catalogues.datasets, name)
    for name in metrics:
        _require(doing, catalogues.metrics, name)
    _refuse_twice(doing, f"metrics of '{model.id}'", model.metrics)
    check_limits(f"{doing}, model '{model.id}'", model.limits, model.metrics, catalogues)
    _check_criteria(doing, model.asked(), catalogues)


def _check_criteria(doing: str, asked: Iterable[Asked], catalogues: Catalogues) -> None:
    for setting in asked:
        if setting.criterion.backend:
            _require(
                f"{doing}, {setting.key} ({setting.criterion.rule})", catalogues.backends, setting.criterion.backend
            )


def _names(doing: str, kind: str, names: tuple[str, ...], catalogues: Catalogues) -> tuple[str, ...]:
    catalogue: Catalogue[Any] = catalogues.backends if kind == "backend" else catalogues.schemas
    for name in names:
        _require(doing, catalogue, name)
    _refuse_twice(doing, f"{kind}s", names)
    return names


def _require(doing: str, catalogue: Catalogue[Any], name: str) -> None:
    if not catalogue.knows(name):
        raise catalogue.unknown(name, doing)


def _refuse_twice(doing: str, what: str, names: tuple[str, ...]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            doing,
            found=f"'{twice[0]}' twice among the {what}",
            expected="each cell once",
            remedy="Remove the duplicate.",
        )


def _refuse_idle_tolerances(doing: str, model: ModelTable, cells: tuple[PlannedCell, ...]) -> None:
    keys = model.tolerance if isinstance(model.tolerance, Mapping) else {}
    for key in keys:
        if not any(planned.cell.is_named_by(key) for planned in cells):
            known = {name for planned in cells for name in (planned.cell.schema, planned.cell.slug)}
            raise unknown_name(f"{doing}, tolerances of '{model.id}'", "cell", key, known)
        setting = keys[key]
        for metric in () if isinstance(setting, float) else setting.metrics:
            if metric not in model.metrics:
                raise unknown_name(f"{doing}, tolerances of '{model.id}'", "metric", metric, model.metrics)


def expand_pruned(suite: Suite, catalogues: Catalogues) -> tuple[Suite, tuple[PlannedCell, ...]]:
    """``suite`` without the quarantine entries that are about no cell of it, and its cells.

    Raises:
        InputError: as of ``expand``.
    """
    idle = idle_entries(suite, expand(replace(suite, quarantine=()), catalogues))
    kept = replace(suite, quarantine=tuple(entry for entry in suite.quarantine if entry not in idle))
    return kept, expand(kept, catalogues)


def idle_entries(suite: Suite, planned: Iterable[PlannedCell]) -> tuple[QuarantineEntry, ...]:
    """The entries of the quarantine file of ``suite`` that are about none of its ``planned`` cells."""
    cells = [one.cell for one in planned]
    return tuple(entry for entry in suite.quarantine if not any(entry.is_about(cell) for cell in cells))


def _refuse_idle_entries(doing: str, suite: Suite, planned: Iterable[PlannedCell]) -> None:
    cells = tuple(planned)
    for entry in idle_entries(suite, cells):
        raise unknown_name(f"{doing}, its quarantine file", "cell", entry.cell, [str(one.cell) for one in cells])

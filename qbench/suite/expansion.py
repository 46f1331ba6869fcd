"""Suite × catalogues → planned cells with all their settings, in the order of the file: model
by model, fp32 first.
"""

import fnmatch
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from qbench.errors import InputError, nearest, unknown_name
from qbench.extension import Catalogue
from qbench.judging import (
    FP32,
    GIVEN,
    RANGES_FILE,
    RECORDED,
    Cell,
    Criterion,
    EnvironmentClass,
    QuarantineEntry,
    RelativeTo,
    Rules,
    Tolerance,
)
from qbench.metrics import Against, Direction
from qbench.suite.catalogues import WRITTEN_ARITHMETICS, Catalogues
from qbench.suite.job_plan import Unit
from qbench.suite.settings import (
    NONE,
    CriterionSetting,
    Layer,
    check_limits,
    criterion_for,
    ranges_file_of,
    refuse_idle,
    rules_for,
    variant_of,
)
from qbench.suite.suite_file import CalibrationChoice, ModelTable, Suite, When

ANSWERS = "answers-"
"""Begins the names of backends of answers that were recorded elsewhere: one cell each, whatever
the schemas are.
"""

_VARIANT_KEYS = ("calibration.count", "calibration.data", "schemas", "backends", "passes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A cell with all its settings, resolved once and before anything is loaded.

    Each number carries a ``rule``: the table that set it (``suite smoke``, ``model m``, ``cell
    m::pattern``). Settings that depend on the environment class are ordered choices: the class is
    known only when the backend is loaded.

    Args:
        model: its table.
        partner: the float model that this one, which came quantized, is judged against.
        recalibrated: its variant, if that has its own calibration samples; else empty.
        passes: a policy or a pipeline that rewrites its graphs.
        line: zero-based, of the model in the suite file.
        rules: floors, limits, decision, allowance and equivalent classes.
        tolerances: (condition on the environment class, tolerance); the first that holds wins, the
            last always holds.
        criterion: what it must be compared with another backend; None: nothing.
        quarantine: the entries about it, in the order of their file.
        test: the node id of the test that is this cell (``qbench_check``); empty: a cell of a suite
            file. Where nothing was accepted for a test, it is judged by its loss alone.
    """

    cell: Cell
    model: ModelTable
    calibration: CalibrationChoice
    rules: Rules
    tolerances: tuple[tuple[When, Tolerance], ...]
    recalibrated: str = ""
    passes: str = NONE
    line: int = 0
    partner: ModelTable | None = None
    criterion: Criterion | None = None
    quarantine: tuple[QuarantineEntry, ...] = ()
    test: str = ""

    def tolerance(self, environment: EnvironmentClass) -> Tolerance:
        """The tolerance in ``environment``: default < suite < model < cell."""
        return next(tolerance for when, tolerance in self.tolerances if environment.matches(when))

    def with_tolerance(self, value: float, rule: str, unit: RelativeTo) -> "PlannedCell":
        """This cell with one tolerance for every metric and class, whatever tables say; ``unit``:
        of the suite, unless its model has one.
        """
        one = Tolerance(value, rule, relative_to=self.model.relative_to or unit)
        return replace(self, tolerances=((None, one),))

    def with_repeats(self, repeats: int, rule: str) -> "PlannedCell":
        """This cell with ``repeats`` runs; ``rule`` names what asks for them."""
        return replace(self, rules=replace(self.rules, repeats=repeats, repeats_rule=rule))

    def quarantine_entry(self, environment: EnvironmentClass) -> QuarantineEntry | None:
        """The quarantine entry about this cell in ``environment``."""
        return next((entry for entry in self.quarantine if environment.matches(entry.when)), None)


def expand(suite: Suite, catalogues: Catalogues, *, whole: bool = True) -> tuple[PlannedCell, ...]:
    """Every cell of ``suite``; if that is a part of a suite (not ``whole``), settings may name
    cells it lacks.

    Raises:
        InputError: an unknown model, data set, backend, schema or metric (the nearest name is
            suggested); a name twice in a list; a tolerance, a criterion or a quarantine entry that
            matches no cell; a cell that would be compared with itself, or in two ways; a file that
            defines no valid arithmetic; a file of ranges by hand that cannot be read.
    """
    doing = f"Expanding suite '{suite.name}'"
    planned: list[PlannedCell] = []
    _check_criteria(doing, suite.asked(), catalogues)
    _check_backends(doing, suite.layers(), catalogues)
    for model in suite.models:
        _check_names(doing, model, catalogues)
        cells = tuple(_cells_of(doing, suite, model, catalogues))
        _refuse_endless_errors(doing, model, cells, catalogues)
        _refuse_points(doing, model, cells, catalogues)
        if whole:
            _refuse_idle_tolerances(doing, model, cells)
            refuse_idle(model.asked(), model.layers(), (planned.cell for planned in cells), doing)
        planned += cells
    if whole:
        refuse_idle(suite.asked(), suite.layers(), (one.cell for one in planned), doing)
        check_limits(
            doing,
            suite.table.limits,
            (name for one in suite.models for name in one.metrics),
            catalogues,
        )
        _refuse_idle_entries(doing, suite, planned)
    _read_written_arithmetics(planned, catalogues)
    _read_ranges_files(doing, suite, planned)
    return tuple(planned)


def _read_written_arithmetics(planned: Iterable[PlannedCell], catalogues: Catalogues) -> None:
    """Read each arithmetic that a file defines once, or a mistake in it gives an error per cell."""
    for backend in sorted({one.cell.backend for one in planned}):
        if catalogues.backends.owner(backend) == WRITTEN_ARITHMETICS:
            catalogues.backends.get(backend)


def _read_ranges_files(doing: str, suite: Suite, planned: Iterable[PlannedCell]) -> None:
    """Read each file of ranges by hand once, or a mistake in it gives an error per cell.

    Raises:
        InputError: one cannot be read, or a model has one that is not quantized here.
    """
    for model in suite.models:
        if model.came_quantized and RANGES_FILE.name in model.cells:
            raise InputError(
                f"{doing}, model '{model.id}'",
                found=f"'{RANGES_FILE.name}' for a model that came quantized",
                expected="it for models that are quantized here",
                remedy="Remove the key.",
            )
    folder = suite.path.parent
    paths = {p for one in planned if (p := ranges_file_of(folder, one.rules)) is not None}
    for path in sorted(paths):
        from qbench.quantization import load_ranges  # few suites have such a file

        load_ranges(path)


def tolerances_of(
    suite: Suite, model: ModelTable, cell: Cell
) -> tuple[tuple[When, Tolerance], ...]:
    """(condition on the environment class, tolerance) of any ``cell`` of ``model``; the last
    always holds.
    """
    unit = suite.table.relative_to or RelativeTo.SCORE
    named = (
        (when, tolerance)
        for pattern, when, tolerance in model.cell_tolerances(unit)
        if cell.is_named_by(pattern)
    )
    return (*named, (None, model.own_tolerance(unit) or suite.own_tolerance() or Tolerance()))


class _Planner:
    """Plans the cells of one model; what does not depend on the cell is resolved once."""

    def __init__(self, doing: str, suite: Suite, model: ModelTable) -> None:
        self._doing = doing
        self._suite = suite
        self._model = model
        self._criteria = (suite.asked(), model.asked())
        self._rules = suite.rules(model.id)
        self._layers = (*suite.layers(), *model.layers())

    def plan(
        self,
        axes: tuple[str, str, str],
        calibration: CalibrationChoice | None = None,
        passes: str = NONE,
    ) -> PlannedCell:
        """The cell at ``axes`` (backend, schema, variant); ``calibration`` None is the model's own.

        Raises:
            InputError: a name that fits no node id, or a criterion without meaning.
        """
        suite, model = self._suite, self._model
        try:
            cell = Cell(suite.name, model.id, *axes)
        except ValueError as error:
            raise InputError(
                self._doing,
                found=str(error),
                expected="names that fit a node id",
                remedy="Rename it.",
            ) from error
        return PlannedCell(
            cell=cell,
            model=model,
            calibration=calibration or model.calibration,
            recalibrated="" if calibration in (None, model.calibration) else cell.variant,
            rules=rules_for(cell, self._rules, self._layers),
            tolerances=tolerances_of(suite, model, cell),
            passes=passes,
            line=suite.lines.get(model.id, 0),
            partner=suite.partners.get(model.id),
            criterion=self._criterion(cell),
            quarantine=tuple(entry for entry in suite.quarantine if entry.is_about(cell)),
        )

    def _criterion(self, cell: Cell) -> Criterion | None:
        criterion = criterion_for(cell, self._criteria, self._doing)
        if criterion is None and self._model.is_alone:
            raise InputError(
                f"{self._doing}, cell '{cell}'",
                found="no float model and no 'equal_to' or 'close_to'",
                expected="something to judge it by",
                remedy=(
                    f'Name the backend to compare with: equal_to = {{ "{cell.backend}" = "BACKEND" '
                    f"}}."
                ),
            )
        return criterion


def _cells_of(
    doing: str, suite: Suite, model: ModelTable, catalogues: Catalogues
) -> Iterable[PlannedCell]:
    planner = _Planner(doing, suite, model)
    backends = _names(
        doing,
        "backend",
        suite.table.backends if model.backends is None else model.backends,
        catalogues,
    )
    for backend in backends:
        if backend.startswith(ANSWERS):
            yield planner.plan((backend, RECORDED, ""))
    backends = tuple(name for name in backends if not name.startswith(ANSWERS))
    if model.came_quantized:
        listed = model.schemas is None or GIVEN in model.schemas  # a Python test may have cut them
        for backend in backends if listed else ():
            yield planner.plan((backend, GIVEN, ""))
        return
    schemas = _names(
        doing, "schema", suite.table.schemas if model.schemas is None else model.schemas, catalogues
    )
    axis = (suite.table.passes if model.passes is None else model.passes) or (NONE,)
    for backend in backends:
        floats = suite.table.fp32 and backend not in catalogues.integer_backends
        if floats:
            yield planner.plan((backend, FP32, ""))
        for schema, passes in product(schemas, axis):
            yield planner.plan((backend, schema, variant_of(passes)), passes=passes)
    for variant, settings in model.variants.items():
        calibration = _varied(doing, model, variant, settings, catalogues)
        for backend in _names(
            doing, "backend", tuple(settings.get("backends", backends)), catalogues
        ):
            for schema in _names(
                doing, "schema", tuple(settings.get("schemas", schemas)), catalogues
            ):
                yield planner.plan(
                    (backend, schema, variant), calibration, settings.get("passes", NONE)
                )


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
                expected=(
                    "lists of names for schemas and backends, a whole number for "
                    "calibration.count, else a name"
                ),
                remedy="Correct the variant.",
            )
    data = settings.get("calibration.data", model.calibration.data)
    _require(doing, catalogues.datasets, data)
    try:
        return replace(
            model.calibration,
            count=settings.get("calibration.count", model.calibration.count),
            data=data,
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{doing}, variant '{variant}' of '{model.id}'",
            found=str(error),
            expected="a positive whole number",
            remedy="Correct calibration.count.",
        ) from error


def _has_kind(key: str, value: object) -> bool:
    """Whether the setting ``key`` of a variant can be ``value``."""
    if key in ("schemas", "backends"):
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    return type(value) is int if key == "calibration.count" else isinstance(value, str)


def _check_names(doing: str, model: ModelTable, catalogues: Catalogues) -> None:
    _check_model(doing, model, catalogues)
    metrics, _, data = zip(*(m.partition("@") for m in model.metrics), strict=True)
    for name in (model.data, model.calibration.data, *filter(None, data)):
        _require(doing, catalogues.datasets, name)
    for name in metrics:
        _require(doing, catalogues.metrics, name)
    _refuse_twice(doing, f"metrics of '{model.id}'", model.metrics)
    check_limits(f"{doing}, model '{model.id}'", model.limits, model.metrics, catalogues)
    _check_criteria(doing, model.asked(), catalogues)
    _check_backends(doing, model.layers(), catalogues)


def _check_model(doing: str, model: ModelTable, catalogues: Catalogues) -> None:
    if not model.subject:
        _require(doing, catalogues.models, model.id)
    elif catalogues.models.knows(model.id):
        raise InputError(
            f"{doing}, model '{model.id}'",
            found=f"subject = '{model.subject}', and a model '{model.id}' of "
            f"{catalogues.models.owner(model.id)}",
            expected="one model of a name",
            remedy="Give this one another 'id', or remove 'subject'.",
        )


def _check_criteria(doing: str, asked: Iterable[CriterionSetting], catalogues: Catalogues) -> None:
    for setting in asked:
        if setting.criterion.backend:
            _require(
                f"{doing}, {setting.key} ({setting.criterion.rule})",
                catalogues.backends,
                setting.criterion.backend,
            )


def _check_backends(doing: str, layers: Iterable[Layer[Any]], catalogues: Catalogues) -> None:
    for layer in layers:
        named = (layer.key.backend(value) for value in layer.values.values())
        for backend in filter(None, named):
            _require(f"{doing}, {layer.key.name} of {layer.owner}", catalogues.backends, backend)


def _names(
    doing: str, kind: str, names: tuple[str, ...], catalogues: Catalogues
) -> tuple[str, ...]:
    catalogue: Catalogue[Any] = catalogues.backends if kind == "backend" else catalogues.schemas
    for name in names:
        _require(doing, catalogue, name)
    _refuse_twice(doing, f"{kind}s", names)
    return names


def _require(doing: str, catalogue: Catalogue[Any], name: str) -> None:
    if not catalogue.knows(name):
        if catalogue.kind == "backend" and name.startswith("answers:"):
            raise InputError(
                doing,
                found=f"the backend '{name}'",
                expected="a name: cells are named by their backends",
                remedy=(
                    "Put the file into the folder 'answers' next to the suite, and name it: "
                    "answers-STEM."
                ),
            )
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
                raise unknown_name(
                    f"{doing}, tolerances of '{model.id}'", "metric", metric, model.metrics
                )


def _refuse_endless_errors(
    doing: str, model: ModelTable, cells: tuple[PlannedCell, ...], catalogues: Catalogues
) -> None:
    """Check that no tolerance is relative to the error of a metric that has no best value, such
    as decibels.
    """
    every = [tolerance for planned in cells for _, tolerance in planned.tolerances]
    for metric, tolerance in product(model.metrics, every):
        if tolerance.of(metric).relative_to is not RelativeTo.ERROR:
            continue  # metrics are loaded only where it matters
        kind = catalogues.metrics.get(metric.partition("@")[0])
        if (
            kind.against is Against.LABELS
            and kind.direction is Direction.HIGHER
            and kind.unit != "%"
        ):
            raise InputError(
                f"{doing}, tolerances of '{model.id}'",
                found=f"'{metric}' relative to its error ({tolerance.of(metric).rule})",
                expected="a metric that has a best value, of which the error is the rest",
                remedy=f"Give '{metric}' an absolute one: tolerance = {{ abs = … }}.",
            )


def _refuse_points(
    doing: str, model: ModelTable, cells: tuple[PlannedCell, ...], catalogues: Catalogues
) -> None:
    """Check that no absolute tolerance of a share is 1 or more, which no loss exceeds: it is one in
    points.
    """
    every = [tolerance for planned in cells for _, tolerance in planned.tolerances]
    for metric, tolerance in product(model.metrics, every):
        own = tolerance.of(metric)
        if own.relative_to is not RelativeTo.NOTHING or own.value < 1:
            continue  # metrics are loaded only where it matters
        kind = catalogues.metrics.get(metric.partition("@")[0])
        if kind.against is Against.LABELS and kind.unit == "%":
            raise InputError(
                f"{doing}, tolerances of '{model.id}'",
                found=f"{100 * own.value:g} pp of '{metric}' (abs = {own.value:g}, {own.rule})",
                expected="less than 1 for a share: it cannot lose more than all",
                remedy=f"Write points as a share: {own.value:g} points are {own.value / 100:g}.",
            )


def expand_pruned(suite: Suite, catalogues: Catalogues) -> tuple[Suite, tuple[PlannedCell, ...]]:
    """``suite`` without the quarantine entries that match no cell, and its cells.

    Raises:
        InputError: as of ``expand``.
    """
    idle = idle_entries(suite, expand(replace(suite, quarantine=()), catalogues))
    kept = replace(
        suite, quarantine=tuple(entry for entry in suite.quarantine if entry not in idle)
    )
    return kept, expand(kept, catalogues)


def expand_units(
    suite: Suite, catalogues: Catalogues, units: Mapping[str, Sequence[Unit]]
) -> tuple[PlannedCell, ...]:
    """The cells of ``suite`` that ``units``, by their model, cover; no other model is expanded.

    Settings that match no cell are not looked for: the plan was made of all cells.

    Raises:
        InputError: as of ``expand``; or there are other cells than when the units were made.
    """
    part = replace(suite, models=tuple(model for model in suite.models if model.id in units))
    planned = tuple(
        one
        for one in expand(part, catalogues, whole=False)
        if any(unit.covers(one.cell) for unit in units[one.cell.model])
    )
    expected = sum(unit.cells for several in units.values() for unit in several)
    if len(planned) != expected:
        raise InputError(
            f"Expanding a job of suite '{suite.name}'",
            found=f"{len(planned)} cells",
            expected=f"{expected}, as when the plan was made",
            remedy="Make the plan again with 'qbench plan', or run the suite that it is of.",
        )
    return planned


def idle_entries(suite: Suite, planned: Iterable[PlannedCell]) -> tuple[QuarantineEntry, ...]:
    """The entries of the quarantine file of ``suite`` that match none of its ``planned`` cells."""
    cells = [one.cell for one in planned]
    return tuple(
        entry for entry in suite.quarantine if not any(entry.is_about(cell) for cell in cells)
    )


def _refuse_idle_entries(doing: str, suite: Suite, planned: Iterable[PlannedCell]) -> None:
    cells = tuple(planned)
    for entry in idle_entries(suite, cells):
        raise unknown_name(
            f"{doing}, its quarantine file", "cell", entry.cell, [str(one.cell) for one in cells]
        )


# Cells by axis: ``model=mobilenet_v2 backend=ort-*,onnx-reference``; blanks are "and", commas are
# "or", ``*`` any.

AXES = ("model", "backend", "schema", "variant")


@dataclass(frozen=True, slots=True)
class Selection:
    """Axis → patterns of which one must match; axes that are not named take every value."""

    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """The selection that ``text`` writes; an empty one selects everything.

        Raises:
            InputError: not of the form ``axis=pattern``, or an unknown axis.
        """
        found: dict[str, tuple[str, ...]] = {}
        for part in text.split():
            axis, equals, patterns = part.partition("=")
            if not equals or not patterns or axis not in AXES:
                close = nearest(axis, AXES) if axis not in AXES else None
                raise InputError(
                    f"Reading the selection '{text}'",
                    found=f"'{part}'",
                    expected=f"axis=pattern with an axis of {', '.join(AXES)}",
                    remedy=f"Did you mean '{close}'?" if close else "Correct the expression.",
                )
            found[axis] = found.get(axis, ()) + tuple(patterns.split(","))
        return cls(found)

    def covers(self, cell: Cell) -> bool:
        """Whether ``cell`` is selected."""
        return all(
            any(fnmatch.fnmatchcase(getattr(cell, axis), pattern) for pattern in several)
            for axis, several in self.patterns.items()
        )


# ``2/5``: the share of the second of five machines.
#
# share of a model = SHA-256 of its name, as a whole number, modulo the number of machines
#
# A model is not divided, since its cells share samples, a profile and an fp32 run. Its share does
# not depend on the other models of the suite, so that the cache of a machine stays useful.


@dataclass(frozen=True, slots=True)
class Shard:
    """Share ``index`` (from 1) of ``count``; the default is everything."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The share that ``text`` writes; an empty one is everything.

        Raises:
            InputError: it is not ``i/N`` with 1 ≤ i ≤ N.
        """
        if not text:
            return cls()
        index, slash, count = text.partition("/")
        if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
            return cls(int(index), int(count))
        raise InputError(
            f"Reading the shard '{text}'",
            found="no share",
            expected="i/N with i from 1 to N, as in 2/5",
            remedy="Correct the option.",
        )

    @property
    def text(self) -> str:
        """``2/5``; empty for everything."""
        return f"{self.index}/{self.count}" if self.count > 1 else ""

    def holds(self, model: str) -> bool:
        """Whether ``model`` belongs to this share."""
        return (
            int.from_bytes(hashlib.sha256(model.encode()).digest()) % self.count == self.index - 1
        )

"""Settings of single cells: their layers, and which table set each value."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from qbench.errors import InputError, nearest, unknown_name
from qbench.judging import (
    CELL_KEYS,
    RANGES_FILE,
    Cell,
    Criterion,
    Limit,
    Rules,
    Setting,
    SuiteKey,
)
from qbench.storage import KEYS, value_from_table, value_of_type
from qbench.suite.catalogues import Catalogues

if TYPE_CHECKING:
    from qbench.evaluation import Rewriting
    from qbench.extension import Catalogue
    from qbench.passes import Pass


# Keys of single cells (``judging.suite_keys``): for all cells, or by pattern of cells.
#
# Layers: default < suite < model < cell. In one table the first key that matches a cell wins;
# verdicts name it.

T = TypeVar("T")
CloseTo = Mapping[str, Any] | None
EqualTo = str | Mapping[str, str] | None
"""A backend for all cells, or backends by pattern of cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer(Generic[T]):
    """The values of ``key`` in the table ``owner`` (``suite smoke``, ``model m``): pattern
    (``""``: all) → value.
    """

    key: SuiteKey
    owner: str
    values: Mapping[str, T]

    def value_for(self, cell: Cell) -> Setting | None:
        """The value of the first pattern that matches ``cell``, and the place that set it;
        None: none matches.
        """
        for pattern, value in self.values.items():
            if not pattern:
                return Setting(value, self.owner)
            if cell.is_named_by(pattern):
                return Setting(value, f"{self.owner}::{pattern}")
        return None


def by_pattern(value: Any, *keys: str) -> Mapping[str, Any]:  # noqa: ANN401
    """Pattern of cells → value, as one key of a table writes it: a table by pattern, or a value
    for all cells (``""``).

    Args:
        keys: of the value, where it is a table itself. A table with a key that is nearly one of
            them is such a value: its reader names the mistake.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return {"": value}
    is_value = keys and (not value or any(_is_key(name, keys) for name in value))
    return {"": value} if is_value else value


def _is_key(name: str, keys: Iterable[str]) -> bool:
    return name in keys or (name.isidentifier() and nearest(name, keys) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """What ``[suite]`` and ``[[model]]`` set for all cells, or by pattern of cells.

    ``cells``: name of a ``SuiteKey`` → its value as written.
    """

    equal_to: EqualTo = None
    close_to: CloseTo = None
    cells: Mapping[str, Any] = field(
        default_factory=dict, metadata={KEYS: {key.name: Any for key in CELL_KEYS}}
    )


def layers_of(owner: str, table: CellSettings) -> tuple[Layer[Any], ...]:
    """One layer for each key that ``table`` sets. ``criteria_of`` reads ``equal_to`` and
    ``close_to``.

    Raises:
        InputError, ValueError: an impossible value.
    """
    written = ((key, table.cells[key.name]) for key in CELL_KEYS if key.name in table.cells)
    return tuple(Layer(key=key, owner=owner, values=_entries(key, value)) for key, value in written)


def _entries(key: SuiteKey, written: object) -> dict[str, Any]:
    """Pattern → value of ``key``, checked.

    Raises:
        InputError: one is impossible.
    """
    own_keys = [field.name for field in fields(key.entry)] if is_dataclass(key.entry) else []
    return {
        pattern: _entry(key, pattern, value)
        for pattern, value in by_pattern(written, *own_keys).items()
    }


def _entry(key: SuiteKey, pattern: str, written: object) -> Any:  # noqa: ANN401 - a ``key.entry``
    """``written`` for the cells of ``pattern`` (``""``: for all) as the type of ``key``.

    Raises:
        InputError: it is of another type, or impossible.
    """
    name = f"{key.name}.{json.dumps(pattern)}" if pattern else key.name
    is_own_table = is_dataclass(key.entry) and isinstance(written, Mapping)
    table = {key.short: written} if key.short and not is_own_table else written
    try:
        if isinstance(table, Mapping) and is_dataclass(key.entry):
            value = value_from_table(key.entry, table, name)
        else:
            value = value_of_type(key.entry, written, name)
        key.check(value)
    except (InputError, ValueError) as error:
        raise _refused(key, name, error, is_own_table=is_own_table) from error
    return value


def _refused(key: SuiteKey, name: str, error: Exception, *, is_own_table: bool) -> InputError:
    """``error`` about the value that a suite sets for ``name``, in words about ``key``."""
    remedy = f"Write {name} = {key.example}."
    if isinstance(error, InputError):
        place, found, expected = error.doing.removeprefix("Reading "), error.found, error.expected
        if not is_own_table:
            place = name
            is_of_another_type = error.__cause__ is None
            expected = key.accepts if is_of_another_type else expected
        if error.remedy.startswith("Did you mean"):
            remedy = error.remedy
    else:
        place, (found, _, expected) = name, str(error).partition(": it is ")
    if expected in ("", "a possible value"):
        expected = key.accepts
    if not found.startswith(key.name):
        found = f"{found} in {place}"
    return InputError(f"Reading {name}", found=found, expected=expected, remedy=remedy)


def rules_for(cell: Cell, rules: Rules, layers: Iterable[Layer[Any]]) -> Rules:
    """``rules`` of a model with the values that ``layers``, general first, set for ``cell``."""
    won: dict[str, tuple[SuiteKey, Setting]] = {}
    for layer in layers:
        setting = layer.value_for(cell)
        if setting is not None:
            won[layer.key.name] = layer.key, setting
    for key, setting in won.values():
        rules = key.apply(rules, cell, setting.value, setting.rule)
    return rules


def ranges_file_of(folder: Path, rules: Rules) -> Path | None:
    """The file of ranges by hand for a cell with ``rules``; None: it has none.

    ``folder``: that of the suite; the name of the file is relative to it.
    """
    setting = rules.more.get(RANGES_FILE.name)
    return folder / setting.value if setting is not None and setting.value else None


# ``equal_to`` and ``close_to``: which cells must answer like another backend, and how closely.
#
#     equal_to = "ort-cpu"                                  # every quantized cell of the suite or
#                                                           # model
#     equal_to = { "integer-ort-x64" = "ort-cpu-precise" }  # those of a backend, a schema or a
#                                                           # pattern
#     close_to = { backend = "ort-cpu", steps = 1, relative = 1e-3 }
#     close_to = { "integer-xnnpack+w8a8_*" = { backend = "ort-cpu", steps = 1 } }
#
# Layers: nothing < suite < model. In one table the first key that matches a cell wins, as with
# tolerances. The backend ``""`` removes the criterion of the suite.


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionLimits:
    """One ``close_to``: the other backend, and at least one limit."""

    backend: str
    steps: float | None = None
    relative: float | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.relative is None:
            raise ValueError("a closeness without 'steps' or 'relative'")
        self.criterion()  # refuses the impossible

    def criterion(self) -> Criterion:
        """The criterion with these limits."""
        return Criterion(backend=self.backend, steps=self.steps, relative=self.relative)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionSetting:
    """The criterion that ``key`` of one table sets for the cells of ``pattern`` (``""``: for
    all).
    """

    key: str
    pattern: str
    criterion: Criterion

    def is_about(self, cell: Cell) -> bool:
        """Whether it holds for ``cell``; never for float cells."""
        return not cell.is_fp32 and (not self.pattern or cell.is_named_by(self.pattern))


def criteria_of(kind: str, name: str, table: CellSettings) -> tuple[CriterionSetting, ...]:
    """The criteria by which cells of ``table`` are compared with another backend.

    Args:
        kind, name: ``suite`` or ``model`` and its name, for rules.

    Raises:
        InputError: a closeness without a backend or a limit, with an unknown key, or with an
            impossible number.
    """
    equal, close = (
        by_pattern(table.equal_to),
        by_pattern(table.close_to, "backend", "steps", "relative"),
    )
    settings = [("equal_to", pattern, Criterion(backend=other)) for pattern, other in equal.items()]
    settings += [
        ("close_to", pattern, _criteria_limits(pattern, one).criterion())
        for pattern, one in close.items()
    ]
    particular = "cell" if kind == "model" else kind
    return tuple(
        CriterionSetting(
            key=key,
            pattern=pattern,
            criterion=replace(
                asked, rule=f"{particular} {name}::{pattern}" if pattern else f"{kind} {name}"
            ),
        )
        for key, pattern, asked in settings
    )


def criterion_for(
    cell: Cell, layers: Iterable[tuple[CriterionSetting, ...]], doing: str
) -> Criterion | None:
    """The criterion of ``cell`` from the last of ``layers`` (general first) that sets one;
    None: none does.

    Raises:
        InputError: both keys of one table hold for the cell, or it would be compared with itself.
    """
    criterion: Criterion | None = None
    for layer in layers:
        first = {asked.key: asked.criterion for asked in reversed(layer) if asked.is_about(cell)}
        if len(first) > 1:
            raise InputError(
                f"{doing}, cell '{cell}'",
                found="both 'equal_to' and 'close_to' for it",
                expected="one criterion per cell",
                remedy="Give each a pattern, so that no cell has both.",
            )
        criterion = next(iter(first.values()), criterion)
    if criterion is None or not criterion.backend:
        return None
    if criterion.backend == cell.backend:
        raise InputError(
            f"{doing}, cell '{cell}'",
            found=f"'{cell.backend}' compared with itself ({criterion.rule})",
            expected="another backend",
            remedy=f'Name the cells: equal_to = {{ "BACKEND" = "{criterion.backend}" }}.',
        )
    return criterion


def refuse_idle(
    asked: Iterable[CriterionSetting],
    layers: Iterable[Layer[Any]],
    cells: Iterable[Cell],
    doing: str,
) -> None:
    """Check that every pattern of ``layers`` matches one of ``cells``, and every one of
    ``asked`` a quantized one.

    Raises:
        InputError: one matches none; the nearest cell is suggested.
    """
    known = list(cells)
    gated = [cell for cell in known if not cell.is_fp32]
    patterns = [(f"{one.key} ({one.criterion.rule})", one.pattern, gated) for one in asked]
    patterns += [
        (f"{layer.key.name} of {layer.owner}", pattern, known)
        for layer in layers
        for pattern in layer.values
    ]
    for where, pattern, among in patterns:
        if pattern and not any(cell.is_named_by(pattern) for cell in among):
            names = {name for cell in among for name in (cell.backend, cell.schema, cell.slug)}
            raise unknown_name(f"{doing}, {where}", "cell", pattern, names)


def _criteria_limits(pattern: str, table: object) -> CriterionLimits:
    """``table`` as limits for the cells of ``pattern`` (``""``: for all).

    Raises:
        InputError: it is not a table of a backend and limits.
    """
    where = f"'{pattern}' of close_to" if pattern else "close_to"
    if isinstance(table, Mapping):
        return value_from_table(CriterionLimits, table, where)
    raise InputError(
        f"Reading {where}",
        found=f"'{pattern}' = {table!r}",
        expected="a table of a backend and limits",
        remedy='Write { backend = "…", steps = 1 }.',
    )


# Limits of distances to fp32: a number per metric, in the unit of the metric (shares as fractions).
#
#     limits = { sqnr = 20.0, kl = 0.05 }    # at least 20 dB, at most 0.05 nats
#
# The metric gives the direction.
#
# Layers: suite < model. A distance without a limit is shown and does not gate.

Limits = Mapping[str, float]


def require_finite(limits: Limits) -> None:
    """Check that ``limits`` are finite.

    Raises:
        ValueError: one is NaN or infinite.
    """
    for metric, value in limits.items():
        if not math.isfinite(value):
            raise ValueError(f"limits.{metric} = {value} is impossible: it is a finite number")


def layered_limits(*layers: tuple[str, Limits]) -> dict[str, Limit]:
    """The limits of ``layers``, (owner, limits), general first."""
    return {
        metric: Limit(value, owner) for owner, limits in layers for metric, value in limits.items()
    }


def check_limits(
    doing: str, limits: Limits, metrics: Iterable[str], catalogues: Catalogues
) -> None:
    """Check that every limit belongs to one of ``metrics``, as the suite writes them, and that
    it is a distance.

    Raises:
        InputError: one is not.
    """
    asked = set(metrics)
    for metric in limits:
        if metric not in asked:
            raise unknown_name(f"{doing}, limits", "metric", metric, asked)
        if not catalogues.metrics.get(metric.partition("@")[0]).is_distance:
            raise InputError(
                f"{doing}, limits",
                found=f"'{metric}', which is not a distance to fp32",
                expected="limits of distances such as 'sqnr' and 'kl'",
                remedy=(
                    "Set 'tolerance' for metrics that compare with labels, 'agreement' for the "
                    "agreement with fp32."
                ),
            )


# Shares that a suite sets for all its models, or a model for itself, each with the table that set
# it.

SHARES = ("integer_macs", "agreement", "ranges")


class _Table(Protocol):
    """A table that may set shares; None: it does not."""

    @property
    def integer_macs(self) -> float | None: ...
    @property
    def agreement(self) -> float | None: ...
    @property
    def ranges(self) -> float | None: ...


def require_shares(table: _Table) -> None:
    """Check the shares of ``table``.

    Raises:
        ValueError: one is not between 0 and 1.
    """
    for name in SHARES:
        value = getattr(table, name)
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} = {value} is impossible: it is a share between 0 and 1")


def layered_share(name: str, *layers: tuple[str, _Table | None]) -> tuple[float | None, str]:
    """The share ``name`` and its table, from the last of ``layers`` (place, table) that sets
    it; None: none does.
    """
    found = [(getattr(table, name), place) for place, table in layers if table is not None]
    return next(
        ((value, place) for value, place in reversed(found) if value is not None), (None, "default")
    )


# ``passes`` of a suite: a policy, with which the standard pipeline runs, or the text of a pipeline.
#
#     passes = ["none", "exact", "fast"]    a further axis: cells are called …+passes=exact
#     variants.one = { passes = "merge-requantize{steps = 1}" }
#
# Passes that are named one by one are all admitted, whether they keep the values or not.

POLICIES = ("exact", "rounding", "fast")
NONE = "none"
"""The value of ``passes`` for graphs as the quantizer wrote them."""


def variant_of(passes: str) -> str:
    """The variant of cells with ``passes``; empty for cells that are not rewritten."""
    return "" if passes == NONE else f"passes={passes}"


def require_known_policies(where: str, passes: Iterable[str]) -> None:
    """Check the policies of the key ``passes``.

    Raises:
        ValueError: one is not a policy, or is listed twice.
    """
    words = tuple(passes)
    for word in words:
        if word not in (NONE, *POLICIES):
            raise ValueError(
                f"passes = {word!r} of {where}, which is none of {', '.join((NONE, *POLICIES))}"
            )
    if len(set(words)) < len(words):
        raise ValueError(f"passes of {where} with a duplicate")


def rewriting_of(passes: str, catalogue: "Catalogue[Pass]", doing: str) -> "Rewriting | None":
    """The rewriting after quantization for the value ``passes`` of a cell; None: none.

    Raises:
        InputError: an unknown pass, or not the text of a pipeline.
    """
    from qbench.evaluation import Rewriting
    from qbench.passes import Policy, parse_pipeline, standard_pipeline

    if passes == NONE:
        return None
    if passes in POLICIES:
        policy = Policy(passes)
        return Rewriting(standard_pipeline(policy, catalogue), policy)
    try:
        return Rewriting(parse_pipeline(passes, catalogue), Policy.FAST)
    except InputError as error:
        raise InputError(
            doing, found=error.found, expected=error.expected, remedy=error.remedy
        ) from error

"""Settings of single cells: how each is layered and what set it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from qbench.errors import InputError, unknown_name
from qbench.judging import Allowance, Cell, Criterion, Decision, DecisionRule, Limit, Rules
from qbench.storage import value_from_table
from qbench.suite.catalogues import Catalogues

if TYPE_CHECKING:
    from qbench.evaluation import Rewriting
    from qbench.extension import Catalogue
    from qbench.passes import Pass


# Settings of single cells beside the tolerance: how a loss is decided, and how far answers may be from accepted ones.
#
#     decision = "ci"                                             # point, ci or strict: every quantized cell
#     decision = { "w8a8_asym_pt" = "strict" }                    # those of a backend, a schema or a pattern
#     flips = 3                                                   # so many samples may answer otherwise than accepted
#     probabilities = { absolute = 1e-3, relative = 0.01 }        # of the best classes; either limit suffices
#     probabilities = { "integer-*" = { absolute = 0.0 } }
#
# Layers: default < suite < model < cell; in a table the first key that is about a cell wins, and verdicts name who won.
# Float cells have no decision of their own: they are to reproduce their reference, by the plain rule.

T = TypeVar("T")
DecisionSetting = Mapping[str, DecisionRule] | DecisionRule | None
FlipsSetting = Mapping[str, int] | int | None
ProbabilitiesSetting = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityLimits:
    """What a probability may move: ``absolute``, or as a share of the accepted one ``relative``; either suffices."""

    absolute: float | None = None
    relative: float | None = None

    def __post_init__(self) -> None:
        if self.absolute is None and self.relative is None:
            raise ValueError("probabilities without 'absolute' or 'relative'")
        Allowance(absolute=self.absolute, relative=self.relative)  # refuses the impossible


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer(Generic[T]):
    """What one table, ``owner`` (``suite smoke``, ``model m``), sets ``key`` to: pattern (``""``: all) → value."""

    key: str
    owner: str
    values: Mapping[str, T]


def layers_of(
    owner: str, decision: DecisionSetting, flips: FlipsSetting, probabilities: ProbabilitiesSetting
) -> tuple[Layer[Any], ...]:
    """The settings of one table, a layer each.

    Raises:
        InputError, ValueError: a number below zero, or probabilities without a limit or with another key.
    """
    moves = probabilities or {}
    if probabilities is not None and (not probabilities or any(key in moves for key in ("absolute", "relative"))):
        moves = {"": probabilities}
    counts = flips if isinstance(flips, Mapping) else {} if flips is None else {"": flips}
    for count in counts.values():
        Allowance(flips=count)  # refuses the impossible
    deciding = decision if isinstance(decision, Mapping) else {} if decision is None else {"": decision}
    limits = {pattern: _limits(pattern, table) for pattern, table in moves.items()}
    return (
        Layer(key="decision", owner=owner, values=deciding),
        Layer(key="flips", owner=owner, values=counts),
        Layer(key="probabilities", owner=owner, values=limits),
    )


def rules_for(cell: Cell, rules: Rules, layers: Iterable[Layer[Any]]) -> Rules:
    """``rules`` of a model with what ``layers``, general first, set for this very cell."""
    won: dict[str, tuple[Any, str]] = {}
    for layer in layers:
        keys = (pattern for pattern in layer.values if not pattern or cell.is_named_by(pattern))
        if (pattern := next(keys, None)) is not None:
            won[layer.key] = layer.values[pattern], f"{layer.owner}::{pattern}" if pattern else layer.owner
    if not won:
        return rules
    decided = None if cell.is_fp32 else won.get("decision")
    flips, flips_rule = won.get("flips", (None, "default"))
    limits, moves_rule = won.get("probabilities", (None, "default"))
    return replace(
        rules,
        decision=Decision() if decided is None else Decision(*decided),
        allowance=Allowance(
            flips=flips,
            absolute=None if limits is None else limits.absolute,
            relative=None if limits is None else limits.relative,
            flips_rule=flips_rule,
            moves_rule=moves_rule,
        ),
    )


def refuse_idle_settings(layers: Iterable[Layer[Any]], cells: Iterable[Cell], doing: str) -> None:
    """Check that every pattern is about a cell.

    Raises:
        InputError: one is about none; the nearest cell is suggested.
    """
    known = list(cells)
    for layer in layers:
        for pattern in filter(None, layer.values):
            if not any(cell.is_named_by(pattern) for cell in known):
                names = {name for cell in known for name in (cell.backend, cell.schema, cell.slug)}
                raise unknown_name(f"{doing}, {layer.key} of {layer.owner}", "cell", pattern, names)


def _limits(pattern: str, table: object) -> ProbabilityLimits:
    where = f"'{pattern}' of probabilities" if pattern else "probabilities"
    if isinstance(table, Mapping):
        return value_from_table(ProbabilityLimits, table, where)
    raise InputError(
        f"Reading {where}",
        found=f"{table!r}",
        expected="a table of limits",
        remedy="Write { absolute = 0.001 } or { relative = 0.01 }.",
    )


# ``equal_to`` and ``close_to`` of a suite: which cells must be what another backend is, and how closely.
#
#     equal_to = "ort-cpu"                                                 # every quantized cell of the suite or model
#     equal_to = { "integer-ort-x64" = "ort-cpu-precise" }                 # those of a backend, a schema or a pattern
#     close_to = { backend = "ort-cpu", steps = 1, relative = 1e-3 }
#     close_to = { "integer-xnnpack+w8a8_*" = { backend = "ort-cpu", steps = 1 } }
#
# Layers: nothing < suite < model; in a table the first key that is about a cell wins, as with tolerances. ``""`` for a
# backend asks nothing, in place of what the suite asks.

EqualTo = str | Mapping[str, str] | None
CloseTo = Mapping[str, Any] | None
_LIMITS = ("backend", "steps", "relative")


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
        """What it asks of a cell."""
        return Criterion(backend=self.backend, steps=self.steps, relative=self.relative)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What one key of one table asks of the cells that ``pattern`` is about (``""``: of all)."""

    key: str
    pattern: str
    criterion: Criterion

    def is_about(self, cell: Cell) -> bool:
        """Whether it speaks of ``cell``; float cells are asked nothing."""
        return not cell.is_fp32 and (not self.pattern or cell.is_named_by(self.pattern))


def asked_by(kind: str, name: str, equal_to: EqualTo, close_to: CloseTo) -> tuple[Asked, ...]:
    """The settings of one table, in its order.

    Args:
        kind, name: ``suite`` or ``model``, and which: rules name them.

    Raises:
        InputError: a closeness without a backend or a limit, with an unknown key, or with an impossible number.
    """
    equal = {"": equal_to} if isinstance(equal_to, str) else equal_to or {}
    close: Mapping[str, Any] = close_to or {}
    if close_to is not None and (not close_to or any(key in close_to for key in _LIMITS)):
        close = {"": close_to}
    settings = [("equal_to", pattern, Criterion(backend=other)) for pattern, other in equal.items()]
    settings += [
        ("close_to", pattern, _criteria_limits(pattern, table).criterion()) for pattern, table in close.items()
    ]
    particular = "cell" if kind == "model" else kind
    return tuple(
        Asked(
            key=key,
            pattern=pattern,
            criterion=replace(asked, rule=f"{particular} {name}::{pattern}" if pattern else f"{kind} {name}"),
        )
        for key, pattern, asked in settings
    )


def criterion_for(cell: Cell, layers: Iterable[tuple[Asked, ...]], doing: str) -> Criterion | None:
    """What ``cell`` is asked by the most particular of ``layers`` (general first) that speaks of it; None: nothing.

    Raises:
        InputError: both keys of one table ask something of the cell, or it is to be compared with itself.
    """
    criterion: Criterion | None = None
    for layer in layers:
        first = {asked.key: asked.criterion for asked in reversed(layer) if asked.is_about(cell)}
        if len(first) > 1:
            raise InputError(
                f"{doing}, cell '{cell}'",
                found="both 'equal_to' and 'close_to' for it",
                expected="one criterion a cell",
                remedy="Give each a pattern, so that no cell has both.",
            )
        criterion = next(iter(first.values()), criterion)
    if criterion is None or not criterion.backend:
        return None
    if criterion.backend == cell.backend:
        raise InputError(
            f"{doing}, cell '{cell}'",
            found=f"'{cell.backend}' to be compared with itself ({criterion.rule})",
            expected="another backend",
            remedy=f'Say which cells are meant: equal_to = {{ "BACKEND" = "{criterion.backend}" }}.',
        )
    return criterion


def refuse_idle(asked: Iterable[Asked], cells: Iterable[Cell], doing: str) -> None:
    """Check that every pattern is about a quantized cell.

    Raises:
        InputError: one is about none; the nearest cell is suggested.
    """
    gated = [cell for cell in cells if not cell.is_fp32]
    for setting in asked:
        if setting.pattern and not any(setting.is_about(cell) for cell in gated):
            known = {name for cell in gated for name in (cell.backend, cell.schema, cell.slug)}
            raise unknown_name(f"{doing}, {setting.key} ({setting.criterion.rule})", "cell", setting.pattern, known)


def _criteria_limits(pattern: str, table: object) -> CriterionLimits:
    """``table`` as limits; ``pattern`` names the cells it is about, ``""`` all.

    Raises:
        InputError: it is no table of a backend and limits.
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


# How far outputs may be from fp32: a number by metric, in the metric's unit (of shares a fraction).
#
#     limits = { sqnr = 20.0, kl = 0.05 }      # at least 20 dB, at most 0.05 nats: which side is the metric's direction
#
# Layers: suite < model. A distance that nothing limits is shown and does not gate.

Limits = Mapping[str, float]


def refuse_no_numbers(limits: Limits) -> None:
    """Check that ``limits`` can be compared with.

    Raises:
        ValueError: one is NaN or infinite.
    """
    for metric, value in limits.items():
        if not math.isfinite(value):
            raise ValueError(f"limits.{metric} = {value}, which is no number to compare with")


def layered_limits(*layers: tuple[str, Limits]) -> dict[str, Limit]:
    """The limits of ``layers``, (who sets them, what), general first."""
    return {metric: Limit(value, owner) for owner, limits in layers for metric, value in limits.items()}


def check_limits(doing: str, limits: Limits, metrics: Iterable[str], catalogues: Catalogues) -> None:
    """Check that every limit is of one of ``metrics``, as the suite writes them, and that it is a distance.

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
                found=f"'{metric}', which is no distance to fp32",
                expected="limits of distances such as 'sqnr' and 'kl'",
                remedy="Set 'tolerance' for what is counted against labels, 'agreement' for that.",
            )


# The shares that a suite sets for all its models and a model for itself, each with the place that set it.

SHARES = ("integer_macs", "agreement", "ranges")


class _Table(Protocol):
    """What may set them; None: it does not."""

    @property
    def integer_macs(self) -> float | None: ...
    @property
    def agreement(self) -> float | None: ...
    @property
    def ranges(self) -> float | None: ...


def refuse_no_shares(table: _Table) -> None:
    """Check what ``table`` sets.

    Raises:
        ValueError: one is not between 0 and 1.
    """
    for name in SHARES:
        value = getattr(table, name)
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{name} = {value}, which is no share between 0 and 1")


def layered_share(name: str, *layers: tuple[str, _Table | None]) -> tuple[float, str]:
    """The share ``name`` and who set it, of ``layers`` (place, table) the last that does; the first sets all."""
    found = [(getattr(table, name), place) for place, table in layers if table is not None]
    return [(value, place) for value, place in found if value is not None][-1]


# What ``passes`` means in a suite: a policy, under which the standard pipeline runs, or a pipeline by its text.
#
#     passes = ["none", "exact", "fast"]                       a further axis: cells are called …+passes=exact
#     variants.one = { passes = "merge-requantize{steps = 1}" }
#
# Passes that are named one by one are admitted whatever they do: who names them knows.

POLICIES = ("exact", "rounding", "fast")
NONE = "none"
"""The word of the axis for graphs as the quantizer wrote them."""


def variant_of(passes: str) -> str:
    """How cells of the axis are called; empty for those that nothing rewrites."""
    return "" if passes == NONE else f"passes={passes}"


def refuse_unknown(where: str, passes: Iterable[str]) -> None:
    """Check the words of the axis.

    Raises:
        ValueError: one is no policy, or stands there twice.
    """
    words = tuple(passes)
    for word in words:
        if word not in (NONE, *POLICIES):
            raise ValueError(f"passes = {word!r} of {where}, which is none of {', '.join((NONE, *POLICIES))}")
    if len(set(words)) < len(words):
        raise ValueError(f"passes of {where} with one word twice")


def rewriting_of(passes: str, catalogue: "Catalogue[Pass]", doing: str) -> "Rewriting | None":
    """What runs behind the quantizer where a cell says ``passes``; None: nothing.

    Raises:
        InputError: a pass that is not known, or no text of a pipeline.
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
        raise InputError(doing, found=error.found, expected=error.expected, remedy=error.remedy) from error

"""Settings of single cells beside the tolerance: how a loss is decided, and how far answers may be from accepted ones.

    decision = "ci"                                             # point, ci or strict: every quantized cell
    decision = { "w8a8_asym_pt" = "strict" }                    # those of a backend, a schema or a pattern
    flips = 3                                                   # so many samples may answer otherwise than accepted
    probabilities = { absolute = 1e-3, relative = 0.01 }        # of the best classes; either limit suffices
    probabilities = { "integer-*" = { absolute = 0.0 } }

Layers: default < suite < model < cell; in a table the first key that is about a cell wins, and verdicts name who won.
Float cells have no decision of their own: they are to reproduce their reference, by the plain rule.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from qbench.errors import InputError, unknown_name
from qbench.judging import Allowance, Cell, Decision, DecisionRule, Rules
from qbench.storage import value_from_table

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

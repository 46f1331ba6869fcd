"""The keys of a suite that are set for all cells or by pattern of cells, one row each."""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from qbench.judging.cell import Cell
from qbench.judging.rules import DEFAULT_TOLERANCE, Allowance, Rules, Setting, Stop, Tolerance
from qbench.judging.statistics import Decision, DecisionRule

# In a suite file, in [suite] or in a [[model]]:
#
#     decision = "ci"                                       # every cell
#     decision = { "w8a8_asym_pt" = "strict" }              # those of a backend, a schema or a
#                                                           # pattern
#     flips = 3                                             # so many samples may answer otherwise
#                                                           # than accepted
#     probabilities = { absolute = 1e-3, relative = 0.01 }  # of the best classes; either limit
#                                                           # suffices
#     no_worse_than = { "integer-*" = { backend = "ort-cpu", margin = 0.005 } }
#     stop = "decided"                                      # all or decided: when a cell ends
#     repeats = 5                                           # runs of a cell; 2 where the second
#                                                           # answers alike
#
# Layers: default < suite < model < cell. In one table the first key that matches a cell wins;
# verdicts name it.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityLimits:
    """How far a probability may move: ``absolute``, or ``relative`` to the accepted one; either
    limit suffices.
    """

    absolute: float | None = None
    relative: float | None = None

    def __post_init__(self) -> None:
        if self.absolute is None and self.relative is None:
            raise ValueError("probabilities without 'absolute' or 'relative'")
        Allowance(absolute=self.absolute, relative=self.relative)  # refuses the impossible


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherBackend:
    """A ``no_worse_than``: the other backend, and by how much of its score a cell may be worse
    on the same samples.
    """

    backend: str
    margin: float = DEFAULT_TOLERANCE

    def __post_init__(self) -> None:
        Tolerance(self.margin)  # refuses the impossible


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioLimits:
    """The most that something may be: a multiple of that of ``fp32``, and of the ``accepted``
    one.
    """

    fp32: float | None = None
    accepted: float | None = None

    def __post_init__(self) -> None:
        limits = [one for one in (self.fp32, self.accepted) if one is not None]
        if not limits:
            raise ValueError("a ratio without 'fp32' or 'accepted'")
        for limit in limits:
            if not 0 < limit < math.inf:
                raise ValueError(f"a ratio of {limit:g}: it is more than 0, such as 0.8")


def _accept_any(value: Any) -> None:  # noqa: ANN401 - of any key
    """Refuse nothing: the type of the value is enough."""


def _no_backend(_: Any) -> str:  # noqa: ANN401 - of any key
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteKey:
    """A key that is one value for all cells, or a table of values by pattern of cells.

    Args:
        name: in the suite file.
        entry: the type of one value: a number, a text, an enum, or a dataclass whose fields are the
            keys of a table.
        default: what holds where no table sets it, in words for the page of options.
        sentence: what it does, for the page of options.
        short: the field of a dataclass ``entry`` that a bare value sets; empty: it is always a
            table.
        example: of the right values, for an error message.
        check: raises ValueError where one value is impossible.
        applied: the rules of a cell with one value and the place that set it; by default in
            ``Rules.more``.
        of_float: whether float cells have it.
        of_recorded: whether cells of answers that were recorded elsewhere do.
        backend: the backend that a value names, which has to exist; empty: none.
    """

    name: str
    entry: type
    default: str
    sentence: str
    example: str
    short: str = ""
    check: Callable[[Any], object] = _accept_any
    applied: "Callable[[Rules, Cell, Any, str], Rules] | None" = field(default=None)
    of_float: bool = False
    of_recorded: bool = True
    backend: Callable[[Any], str] = _no_backend

    @property
    def accepts(self) -> str:
        """The values in words, for an error message: ``an integer``, ``a number, or a table of
        'fp32', 'accepted'``.
        """
        if not is_dataclass(self.entry):
            return _type_words(self.entry)
        table = f"a table of {', '.join(repr(one.name) for one in fields(self.entry))}"
        if not self.short:
            return table
        (bare, *_) = get_args(get_type_hints(self.entry)[self.short]) or (str,)
        return f"{_type_words(bare)}, or {table}"

    def apply(self, rules: Rules, cell: Cell, value: object, rule: str) -> Rules:
        """``rules`` of ``cell`` where the place ``rule`` sets this key to ``value``."""
        if cell.is_fp32 and not self.of_float:
            return rules
        if cell.is_recorded and not self.of_recorded:
            return rules
        if self.applied is not None:
            return self.applied(rules, cell, value, rule)
        return replace(rules, more={**rules.more, self.name: Setting(value, rule)})


def _type_words(kind: type) -> str:
    if issubclass(kind, enum.Enum):
        return f"one of {', '.join(repr(one.value) for one in kind)}"
    return {int: "an integer", float: "a number", str: "a text"}[kind]


def _decided(rules: Rules, _: Cell, value: DecisionRule, rule: str) -> Rules:
    return replace(rules, decision=Decision(value, rule))


def _with_flips(rules: Rules, _: Cell, value: int, rule: str) -> Rules:
    return replace(rules, allowance=replace(rules.allowance, flips=value, flips_rule=rule))


def _with_moves(rules: Rules, _: Cell, value: ProbabilityLimits, rule: str) -> Rules:
    allowance = replace(
        rules.allowance, absolute=value.absolute, relative=value.relative, moves_rule=rule
    )
    return replace(rules, allowance=allowance)


def _compared(rules: Rules, cell: Cell, value: OtherBackend, rule: str) -> Rules:
    if value.backend == cell.backend:
        return rules
    return replace(
        rules, no_worse_than=value.backend, no_worse_margin=Tolerance(value.margin, rule)
    )


def _recovering(rules: Rules, _: Cell, value: float, rule: str) -> Rules:
    return replace(rules, recovery=value, recovery_rule=rule)


def _executing(rules: Rules, _: Cell, value: float, rule: str) -> Rules:
    return replace(rules, executed_macs=value, executed_rule=rule)


def _sliced(rules: Rules, _: Cell, value: str, rule: str) -> Rules:
    return replace(rules, slices=value, slices_rule=rule)


def _repeated(rules: Rules, _: Cell, value: int, rule: str) -> Rules:
    return replace(rules, repeats=value, repeats_rule=rule)


def _stopping(rules: Rules, _: Cell, value: Stop, __: str) -> Rules:
    return replace(rules, stop=value)


def _require_one(value: int) -> None:
    if value < 1:
        raise ValueError(f"repeats = {value} is impossible: it is a whole number from 1")


DECISION = SuiteKey(
    name="decision",
    entry=DecisionRule,
    default='"point"',
    example='"ci"',
    sentence="what makes a loss red: its counts, or what the sample proves of them",
    applied=_decided,
)
FLIPS = SuiteKey(
    name="flips",
    entry=int,
    default="0",
    example="3",
    sentence="so many samples may answer otherwise than accepted",
    check=lambda value: Allowance(flips=value),
    applied=_with_flips,
    of_float=True,
)
PROBABILITIES = SuiteKey(
    name="probabilities",
    entry=ProbabilityLimits,
    default="not compared",
    sentence="how far probabilities may be from the accepted ones",
    example="{ absolute = 0.001 } or { relative = 0.01 }",
    applied=_with_moves,
    of_float=True,
)
NO_WORSE_THAN = SuiteKey(
    name="no_worse_than",
    entry=OtherBackend,
    default="none",
    sentence="another backend whose loss on the same samples that of a cell may exceed by a margin",
    short="backend",
    example='"ort-cpu-precise" or { backend = "ort-cpu-precise", margin = 0.005 }',
    applied=_compared,
    backend=lambda value: value.backend,
)
RECOVERY = SuiteKey(
    name="recovery",
    entry=float,
    default="none",
    example="0.98",
    sentence="the least share of today's fp32 score",
    check=lambda value: Rules(recovery=value),
    applied=_recovering,
)
EXECUTED_MACS = SuiteKey(
    name="executed_macs",
    entry=float,
    default="as accepted",
    example="0.9",
    sentence="the least share of multiply-accumulates that the engine runs in integers",
    check=lambda value: Rules(executed_macs=value),
    applied=_executing,
)
SLICES = SuiteKey(
    name="slices",
    entry=str,
    default="none",
    example='"class"',
    sentence="parts of the data that are judged one by one: `class`, or a column",
    applied=_sliced,
)
REPEATS = SuiteKey(
    name="repeats",
    entry=int,
    default="1",
    example="5",
    sentence="how many times a cell runs",
    check=_require_one,
    applied=_repeated,
    of_float=True,
)
STOP = SuiteKey(
    name="stop",
    entry=Stop,
    default='"all"',
    example='"decided"',
    sentence="when a cell ends: after all samples, or when its verdict is decided",
    applied=_stopping,
    of_float=True,
)
RANGES_FILE = SuiteKey(
    name="ranges_file",
    entry=str,
    default="none",
    example='"ranges.toml"',
    sentence="a file of ranges by hand of single values, relative to the suite",
    of_recorded=False,
)
OF_MEASURING = (REPEATS, STOP, RANGES_FILE)
"""Keys of how a cell is made and run; those of what it is judged by are in the rows of
``gates.GATES``.
"""

"""``equal_to`` and ``close_to`` of a suite: which cells must be what another backend is, and how closely.

    equal_to = "ort-cpu"                                                 # every quantized cell of the suite or model
    equal_to = { "integer-ort-x64" = "ort-cpu-precise" }                 # those of a backend, a schema or a pattern
    close_to = { backend = "ort-cpu", steps = 1, relative = 1e-3 }
    close_to = { "integer-xnnpack+w8a8_*" = { backend = "ort-cpu", steps = 1 } }

Layers: nothing < suite < model; in a table the first key that is about a cell wins, as with tolerances. ``""`` for a
backend asks nothing, in place of what the suite asks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from qbench.errors import InputError, unknown_name
from qbench.judging import Cell, Criterion
from qbench.storage import value_from_table

EqualTo = str | Mapping[str, str] | None
CloseTo = Mapping[str, Any] | None
_LIMITS = ("backend", "steps", "relative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
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
    settings += [("close_to", pattern, _limits(pattern, table).criterion()) for pattern, table in close.items()]
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


def _limits(pattern: str, table: object) -> Limits:
    """``table`` as limits; ``pattern`` names the cells it is about, ``""`` all.

    Raises:
        InputError: it is no table of a backend and limits.
    """
    where = f"'{pattern}' of close_to" if pattern else "close_to"
    if isinstance(table, Mapping):
        return value_from_table(Limits, table, where)
    raise InputError(
        f"Reading {where}",
        found=f"'{pattern}' = {table!r}",
        expected="a table of a backend and limits",
        remedy='Write { backend = "…", steps = 1 }.',
    )

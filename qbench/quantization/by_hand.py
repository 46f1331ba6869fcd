"""Ranges by hand: what a person knows of single values, read from a file for the planner.

::

    [values.relu1]              # low ≤ 0 ≤ high; a range on one side of zero is widened to zero
    low = 0.0
    high = 6.0

    [values."conv1.weight"]     # or the parameters themselves; lists have one number per channel
    scale = 0.0078125
    zero_point = 0
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError, unknown_name
from qbench.numerics import SMALLEST_SCALE, QParams, QParamsKind
from qbench.quantization.decision import (
    BY_FILE,
    Decision,
    Given,
    Shared,
    Static,
    describe,
    numbers,
)
from qbench.quantization.spec import Role, Slot
from qbench.storage import digest_plain, read_toml, value_from_table

Floats = npt.NDArray[np.float64]
Number = float | tuple[float, ...]
"""One for the whole tensor, or one per channel."""

_RANGE, _PARAMETERS = ("low", "high"), ("scale", "zero_point")
_FORMS = "'low' and 'high', or 'scale' and 'zero_point'"
_GRAPH = "::"
"""Between the name of a graph and that of its value, for models of several graphs."""
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class HandRange:
    """One table of the file: a range, or a scale and a zero point.

    Args:
        low, high: the ends of the range.
        scale, zero_point: the parameters themselves.

    Raises:
        ValueError: both forms, half of one, another type, or an impossible range.
    """

    low: Any = None
    high: Any = None
    scale: Any = None
    zero_point: Any = None

    def __post_init__(self) -> None:
        given = [name for name in (*_RANGE, *_PARAMETERS) if getattr(self, name) is not None]
        if tuple(given) not in (_RANGE, _PARAMETERS):
            words = " and ".join(map(repr, given)) or "an empty table"
            raise ValueError(f"{words}: it is {_FORMS}")
        for name in given:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if self.is_range:
            self._refuse_backward()
        elif not all(scale > 0 for scale in _each(self.scale)):
            raise ValueError(f"scale = {_words(self.scale)}: it is a positive number")

    @property
    def is_range(self) -> bool:
        """Whether it has ends; else it has parameters."""
        return self.low is not None

    def _refuse_backward(self) -> None:
        lows, highs = _each(self.low), _each(self.high)
        if len(lows) != len(highs) and 1 not in (len(lows), len(highs)):
            raise ValueError(
                f"{len(lows)} values of 'low' and {len(highs)} of 'high': it is as many of both"
            )
        if not (np.asarray(lows) < np.asarray(highs)).all():
            raise ValueError(
                f"low = {_words(self.low)}, high = {_words(self.high)}: it is a low end below "
                "the high one"
            )


def _number(name: str, written: Any) -> Number:  # noqa: ANN401 - as TOML has it
    """``written`` as numbers, whole ones for a zero point.

    Raises:
        ValueError: it is of another type, or not finite.
    """
    is_list = isinstance(written, list | tuple)
    every = tuple(written) if is_list else (written,)
    if name == "zero_point":
        kind, is_fine = "a whole number", all(type(one) is int for one in every)
    else:
        kind = "a finite number"
        is_fine = all(type(one) in (int, float) and math.isfinite(one) for one in every)
        every = tuple(float(one) for one in every) if is_fine else every
    if not is_fine or not every:
        raise ValueError(f"{name} = {written!r}: it is {kind}, or a list of one per channel")
    return every if is_list else every[0]


def _each(number: Number) -> tuple[float, ...]:
    return number if isinstance(number, tuple) else (number,)


def _words(number: Number) -> str:
    return str(list(number)) if isinstance(number, tuple) else f"{number:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandRanges:
    """The tables of one file; it is part of a ``Schema`` (``Schema.with_ranges``).

    Args:
        file: its name, which the plan gives as the reason.
        values: (value, its range) in the order of the file.
    """

    file: str
    values: tuple[tuple[str, HandRange], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values with a range here."""
        return tuple(name for name, _ in self.values)

    @property
    def digest(self) -> str:
        """The digest of the ranges; comments and the order of the file do not change it."""
        return digest_plain(dict(self.values))[:_DIGITS]

    @property
    def doing(self) -> str:
        """What was being done, for errors."""
        return f"Planning with the ranges of '{self.file}'"

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def given(
        self,
        name: str,
        kind: QParamsKind,
        *,
        shape: tuple[int, ...] = (),
        axis: int | None = None,
        block_size: int | None = None,
    ) -> Given:
        """The decision about the value ``name``, which is among ``names``.

        Args:
            name: of the value.
            kind: the type, the symmetry and the kind of scale that the schema asks for.
            shape: of the scales: () per tensor, (channels,) per channel, that of the blocks.
            axis, block_size: as in ``QParams``.

        Raises:
            InputError: the numbers are not qparams of that kind, or do not fit the channels.
        """
        one = dict(self.values)[name]
        source = f"{BY_FILE}'{self.file}', {place_of(name)}"
        ends = (one.low, one.high) if one.is_range else (one.scale, one.zero_point)
        first, second = (self._spread(name, end, shape) for end in ends)
        try:
            if one.is_range:
                _require_wide(first, second, kind)
                qparams = kind.choose(first, second, axis=axis, block_size=block_size)
                widened = bool((first > 0).any() or (second < 0).any())
                return Given(qparams, source + ", widened to hold zero" * widened)
            qparams = QParams(
                first,
                second.astype(np.int64),
                kind.qtype,
                axis=axis,
                block_size=block_size,
                narrow_range=kind.narrow_range,
            )
        except (ValueError, InputError) as error:
            found = error.found if isinstance(error, InputError) else str(error)
            raise self._refused(name, kind, found) from error
        self._refuse_misfit(name, kind, qparams)
        return Given(qparams, source)

    def _spread(self, name: str, number: Number, shape: tuple[int, ...]) -> Floats:
        array = np.asarray(number, np.float64)
        if array.ndim and array.shape != shape:
            has = f"{shape[0]} channels" if len(shape) == 1 else "one pair for the whole tensor"
            raise InputError(
                self.doing,
                found=f"{len(array)} numbers in {place_of(name)}, whose value has {has}",
                expected="one number, or one per channel where the schema asks for channels",
                remedy="Correct the list.",
            )
        return np.array(np.broadcast_to(array, shape))

    def _refuse_misfit(self, name: str, kind: QParamsKind, qparams: QParams) -> None:
        """Parameters that the family or the kind of scale of the schema does not have."""
        points = {int(point) for point in qparams.zero_point.reshape(-1)}
        allowed = kind.zero_points
        wrong = set() if allowed is None else points - allowed
        if wrong:
            raise self._refused(name, kind, f"the zero point {min(wrong)}")
        if kind.scale_kind != "real":
            mantissas, _ = np.frexp(qparams.scale.astype(np.float64))
            if (mantissas != 0.5).any():
                odd = qparams.scale.reshape(-1)[int(np.argmax(mantissas.reshape(-1) != 0.5))]
                raise self._refused(name, kind, f"the scale {odd:g}, which is no power of two")

    def _refused(self, name: str, kind: QParamsKind, found: str) -> InputError:
        words = [kind.symmetry, str(kind.qtype), "narrow" * kind.narrow_range]
        words.append(kind.scale_kind * (kind.scale_kind != "real"))
        return InputError(
            self.doing,
            found=f"{found} in {place_of(name)}",
            expected=f"qparams that are {' '.join(filter(None, words))}, as the schema asks for",
            remedy="Correct the table, or give 'low' and 'high'.",
        )

    def of_graphs(self, graphs: Iterable[str]) -> "dict[str, HandRanges]":
        """Graph → the ranges of its values; of several graphs the file names values as
        ``graph::value``.

        Raises:
            InputError: a name without one of these graphs.
        """
        known = list(graphs)
        if len(known) == 1:
            return {known[0]: self}
        found: dict[str, list[tuple[str, HandRange]]] = {graph: [] for graph in known}
        for name, one in self.values:
            graph, mark, value = name.partition(_GRAPH)
            if not mark or graph not in found:
                raise InputError(
                    self.doing,
                    found=f"{place_of(name)} for a model of the graphs {', '.join(known)}",
                    expected='the graph in front of the value, as in [values."graph::value"]',
                    remedy="Name the graph.",
                )
            found[graph].append((value, one))
        return {
            graph: HandRanges(file=self.file, values=tuple(values))
            for graph, values in found.items()
        }


def _require_wide(low: Floats, high: Floats, kind: QParamsKind) -> None:
    """Check that a float32 scale can be as small as the range [low, high] asks for.

    Raises:
        ValueError: it cannot.
    """
    reach = np.maximum(np.abs(low), np.abs(high))
    if (reach / kind.code_count < SMALLEST_SCALE).any():
        raise ValueError("a range that is smaller than float32 scales")


def place_of(name: str) -> str:
    """The table about the value ``name``, as it is written in the file."""
    return f"[values.{name if re.fullmatch(r'[A-Za-z0-9_-]+', name) else json.dumps(name)}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RangesText:
    """The keys of the file."""

    values: Mapping[str, Mapping[str, Any]]


def load_ranges(path: Path | str) -> HandRanges:
    """The ranges in the TOML file at ``path``.

    Raises:
        InputError: the file does not exist or is not TOML, it holds no value, an unknown key,
            both forms in one table, or an impossible range.
    """
    file = Path(path)
    where = f"ranges file '{file.name}'"
    text = value_from_table(_RangesText, read_toml(file), where)
    if not text.values:
        raise InputError(
            f"Reading {where}",
            found="no value in it",
            expected="a table per value, as in [values.relu1]",
            remedy="Add one, or leave the file out.",
        )
    values = tuple(
        (name, value_from_table(HandRange, table, f"{place_of(name)} of {where}"))
        for name, table in text.values.items()
    )
    return HandRanges(file=file.name, values=values)


def merged(one: Given, other: Given) -> Given:
    """The decision about values that share parameters and are both in the file.

    Raises:
        InputError: their parameters differ.
    """
    if one.qparams == other.qparams:
        return one
    raise InputError(
        f"Planning with the {one.source.removeprefix('the ').partition(',')[0]}",
        found=f"{_parameters(one)} and {_parameters(other)}, for values that share parameters",
        expected="one range for them",
        remedy="Leave one of the two tables out.",
    )


def refuse_other(given: Given, fixed: QParams, why: str) -> None:
    """Refuse parameters by hand where others are fixed already.

    Raises:
        InputError: they differ from ``fixed``; ``why`` says what fixes these.
    """
    if given.qparams != fixed:
        raise InputError(
            f"Planning with the {given.source.removeprefix('the ').partition(',')[0]}",
            found=f"{_parameters(given)}, where {why}: {numbers(fixed)}",
            expected="a range for a value whose parameters are chosen",
            remedy="Leave the table out.",
        )


def _parameters(given: Given) -> str:
    place = given.source.partition(", ")[2]
    return f"{numbers(given.qparams)} by {place}"


def require_used(
    ranges: HandRanges,
    decisions: Mapping[Slot, Decision],
    floats: Mapping[str, str],
    makers: Mapping[str, str],
    inside: Mapping[str, str],
) -> None:
    """Check that every value of the file is quantized with its parameters.

    Args:
        ranges: of the file.
        decisions: of the plan.
        floats: unit that stays float → its reason.
        makers: every value and constant of the graph → the node that makes it, or nothing.
        inside: value inside of a unit → the result of that unit.

    Raises:
        InputError: a name that no value has, or a value that is not quantized by the file.
    """
    taken = {slot.value for slot, one in decisions.items() if _by_file(one)}
    for name in ranges.names:
        if name in taken:
            continue
        about = [one for slot, one in decisions.items() if slot.value == name]
        quantized = sorted({s.value for s, one in decisions.items() if _has_choice(s, one)})
        if name not in makers:
            raise unknown_name(ranges.doing, "value", name, quantized)
        maker = makers[name]
        if about:
            why = f"is {describe(about[0])}"
        elif maker in floats:
            why = f"is float: {maker} stays in float, {floats[maker]}"
        elif name in inside:
            why = f"is computed together with '{inside[name]}', which alone is quantized"
        else:
            why = "is read by nothing that is quantized"
        raise InputError(
            ranges.doing,
            found=f"{place_of(name)}, and '{name}' {why}",
            expected=f"a value that is quantized: {', '.join(quantized[:12])}",
            remedy="Leave the table out, or name another value; --why prints all of them.",
        )


def _by_file(decision: Decision) -> bool:
    return isinstance(decision, Given) and decision.source.startswith(BY_FILE)


def _has_choice(slot: Slot, decision: Decision) -> bool:
    """Whether a file can name the value of ``slot``."""
    return slot.role is not Role.BIAS and isinstance(decision, Static | Shared | Given)

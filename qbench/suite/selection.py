"""Cells by axis: ``model=mobilenet_v2 backend=ort-*,onnx-reference``; blanks are "and", commas are "or", ``*`` any."""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.errors import InputError, nearest
from qbench.judging import Cell

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
                    remedy=f"Did you mean '{close}'?" if close else "Mend the expression.",
                )
            found[axis] = found.get(axis, ()) + tuple(patterns.split(","))
        return cls(found)

    def covers(self, cell: Cell) -> bool:
        """Whether ``cell`` is selected."""
        return all(
            any(fnmatch.fnmatchcase(getattr(cell, axis), pattern) for pattern in several)
            for axis, several in self.patterns.items()
        )

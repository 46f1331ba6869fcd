"""How one tensor is to be quantized: grid, family, granularity, kind of scale, and where its range comes from."""

import enum
from dataclasses import dataclass
from typing import cast, get_args

from qbench.numerics import Interval, QParams, QType, ScaleKind, Symmetry, choose_qparams


class Granularity(enum.Enum):
    """How many elements share one pair of parameters."""

    TENSOR = "tensor"
    CHANNEL = "channel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Wishes for one tensor; plain words, so that a schema can be a TOML table.

    Args:
        qtype: the grid, as in ``int8``.
        symmetry: ``asymmetric``, ``symmetric`` or ``symmetric_unsigned``.
        granularity: per tensor or per channel.
        narrow_range: leave out the lowest level.
        scale_kind: ``real`` or ``pow2``.
        range_method: name of the rule that takes a range from statistics.

    Raises:
        ValueError, InputError: no such grid, family or kind of scale.
    """

    qtype: str
    symmetry: str
    granularity: Granularity = Granularity.TENSOR
    narrow_range: bool = False
    scale_kind: str = "real"
    range_method: str = "minmax"

    def __post_init__(self) -> None:
        QType.parse(self.qtype)
        for word, choices in ((self.symmetry, get_args(Symmetry)), (self.scale_kind, get_args(ScaleKind))):
            if word not in choices:
                raise ValueError(f"{word!r} is none of {', '.join(choices)}")

    @property
    def grid(self) -> QType:
        """The grid that ``qtype`` names."""
        return QType.parse(self.qtype)

    @property
    def family(self) -> Symmetry:
        """``symmetry``, as the numerics take it."""
        return cast(Symmetry, self.symmetry)

    def choose(self, interval: Interval, *, axis: int | None = None) -> QParams:
        """Parameters that represent ``interval``, one pair a channel along ``axis`` where it is given."""
        return choose_qparams(
            interval.low,
            interval.high,
            self.grid,
            symmetry=self.family,
            narrow_range=self.narrow_range,
            scale_kind=cast(ScaleKind, self.scale_kind),
            axis=axis,
        )

    def __str__(self) -> str:
        words = [self.qtype, self.symmetry]
        if self.granularity is Granularity.CHANNEL:
            words.append("per channel")
        if self.narrow_range:
            words.append("narrow")
        if self.scale_kind != "real":
            words.append(self.scale_kind)
        if self.range_method != "minmax":
            words.append(self.range_method)
        return " ".join(words)

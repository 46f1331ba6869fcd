"""How one tensor is to be quantized: grid, family, granularity, kind of scale, and where its range comes from."""

import enum
import math
from dataclasses import dataclass, field
from typing import cast, get_args

from qbench.calibration import RangeMethod, get_range_method
from qbench.numerics import GridKind, QParams, QType, ScaleKind, Symmetry


class Granularity(enum.Enum):
    """How many elements share one pair of parameters."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Wishes for one tensor; plain words, so that a schema can be a TOML table.

    Args:
        qtype: the grid, as in ``int8``.
        symmetry: ``asymmetric``, ``symmetric`` or ``symmetric_unsigned``.
        granularity: per tensor, per channel, or per block of ``block_size`` elements of what is summed over.
        block_size: elements of a block.
        narrow_range: leave out the lowest level.
        scale_kind: ``real``, ``pow2`` (rounded up) or ``pow2_nearest``.
        range_method: the rule that takes a range from statistics, as in ``minmax`` or ``percentile(99.9)``.
        dynamic: parameters are computed from every batch at run time; nothing is calibrated.
        scale, zero_point: parameters fixed beforehand, of one tensor; they come together, and no range is taken.

    Raises:
        ValueError, InputError: no such grid, family, kind of scale or range method, or settings that exclude another.
    """

    qtype: str
    symmetry: str
    granularity: Granularity = Granularity.TENSOR
    block_size: int | None = None
    narrow_range: bool = False
    scale_kind: str = "real"
    range_method: str = "minmax"
    dynamic: bool = False
    scale: float | None = None
    zero_point: int | None = None
    method: RangeMethod = field(init=False, repr=False, compare=False)
    """The range method that ``range_method`` spells."""

    def __post_init__(self) -> None:
        QType.parse(self.qtype)
        object.__setattr__(self, "method", get_range_method(self.range_method))
        for word, choices in ((self.symmetry, get_args(Symmetry)), (self.scale_kind, get_args(ScaleKind))):
            if word not in choices:
                raise ValueError(f"{word!r}, which is none of {', '.join(choices)}")
        if (self.granularity is Granularity.BLOCK) != (self.block_size is not None):
            size = "no block_size" if self.block_size is None else f"a block_size of {self.block_size}"
            raise ValueError(f"{size} with the granularity '{self.granularity.value}'")
        if self.block_size is not None and self.block_size < 1:
            raise ValueError(f"a block_size of {self.block_size}, below one element")
        if (self.scale is None) != (self.zero_point is None):
            given, missing = ("zero_point", "scale") if self.scale is None else ("scale", "zero_point")
            raise ValueError(f"a fixed {given} without a fixed {missing}")
        if self.dynamic or self.scale is not None:
            self._refuse_calibrated()
        if self.scale is not None and not (0 < self.scale < math.inf):
            raise ValueError(f"a fixed scale of {self.scale:g}, which is not positive and finite")
        if (fixed := self.fixed) is not None:
            self._refuse_misfit(fixed)

    def _refuse_calibrated(self) -> None:
        """What a spec cannot ask for whose parameters are not taken from statistics."""
        what = "dynamic" if self.dynamic else "fixed"
        if self.dynamic and self.scale is not None:
            raise ValueError("a fixed scale beside dynamic = true")
        if self.granularity is not Granularity.TENSOR:
            raise ValueError(f"{what} parameters with the granularity '{self.granularity.value}'")
        if self.range_method != "minmax":
            raise ValueError(f"the range method '{self.range_method}', which {what} parameters have no use for")
        if self.dynamic and (self.symmetry, self.scale_kind) != ("asymmetric", "real"):
            raise ValueError(f"dynamic parameters that are {self.symmetry} with {self.scale_kind} scales")

    def _refuse_misfit(self, fixed: QParams) -> None:
        """Fixed parameters that are not of the family and the kind of scale asked for."""
        qtype, zero_point = fixed.qtype, int(fixed.zero_point)
        allowed = {"symmetric": (qtype.middle,), "symmetric_unsigned": (qtype.qmin, qtype.middle)}
        if zero_point not in allowed.get(self.symmetry, (zero_point,)):
            raise ValueError(f"a fixed zero_point of {zero_point}, which no {self.symmetry} {qtype} grid has")
        if self.scale_kind != "real" and math.frexp(float(fixed.scale))[0] != 0.5:
            raise ValueError(f"a fixed scale of {self.scale:g}, which is no power of two")

    @property
    def kind(self) -> GridKind:
        """The grid asked for, without its scale."""
        symmetry, scale_kind = cast(Symmetry, self.symmetry), cast(ScaleKind, self.scale_kind)
        return GridKind(QType.parse(self.qtype), symmetry, self.narrow_range, scale_kind)

    @property
    def fixed(self) -> QParams | None:
        """The parameters, where they are fixed beforehand."""
        if self.scale is None or self.zero_point is None:
            return None
        return QParams(self.scale, self.zero_point, QType.parse(self.qtype), narrow_range=self.narrow_range)

    def __str__(self) -> str:
        words = [self.qtype, self.symmetry]
        if self.granularity is Granularity.CHANNEL:
            words.append("per channel")
        if self.block_size is not None:
            words.append(f"per block of {self.block_size}")
        if self.narrow_range:
            words.append("narrow")
        if self.scale_kind != "real":
            words.append(self.scale_kind)
        if self.dynamic:
            words.append("dynamic")
        elif self.scale is not None:
            words.append(f"fixed at scale {self.scale:g} zero point {self.zero_point}")
        elif self.range_method != "minmax":
            words.append(self.range_method)
        return " ".join(words)

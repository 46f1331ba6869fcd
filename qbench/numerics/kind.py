"""What is asked of a grid before its range is known: the integers, the family, the ends, the kind of scale."""

from dataclasses import dataclass

import numpy.typing as npt

from qbench.numerics.affine import ScaleKind, Symmetry, choose_qparams
from qbench.numerics.qparams import QParams
from qbench.numerics.qtype import QType


@dataclass(frozen=True, slots=True)
class GridKind:
    """A grid without its scale; ``choose`` gives it one. The fields are those of ``choose_qparams``."""

    qtype: QType
    symmetry: Symmetry
    narrow_range: bool = False
    scale_kind: ScaleKind = "real"

    @property
    def qmin(self) -> int:
        """The lowest level in use."""
        return self.qtype.qmin + int(self.narrow_range)

    @property
    def qmax(self) -> int:
        """The highest level in use."""
        return self.qtype.qmax

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return self.qmax - self.qmin + 1

    def mirrors(self, low: float) -> bool:
        """Whether a range that begins at ``low`` is widened to [−a, a]: unsigned families do so for negative ones."""
        return self.symmetry == "symmetric" or (self.symmetry == "symmetric_unsigned" and low < 0)

    def choose(
        self, low: npt.ArrayLike, high: npt.ArrayLike, *, axis: int | None = None, block_size: int | None = None
    ) -> QParams:
        """Parameters that represent [low, high]: numbers, or arrays along ``axis`` (of the blocks' shape per block).

        Raises:
            InputError: what ``choose_qparams`` refuses.
        """
        return choose_qparams(
            low,
            high,
            self.qtype,
            symmetry=self.symmetry,
            narrow_range=self.narrow_range,
            scale_kind=self.scale_kind,
            axis=axis,
            block_size=block_size,
        )

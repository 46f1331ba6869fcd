"""Many samples from few pictures: squares cut out on fixed grids at several sizes.

    side = ⌊short · eighths / 8⌋,   left = ⌊(width − side) · column / (columns − 1)⌋      (one column: the middle)

Crops of one picture overlap and are anything but independent: good for agreement and calibration, not for tests of
significance. All of them carry the picture as their source.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from qbench.zoo.pictures import Pixels


@dataclass(frozen=True, slots=True)
class Grid:
    """Squares whose side is ``eighths`` / 8 of the picture's shorter side, in ``rows`` × ``columns`` places."""

    eighths: int
    rows: int
    columns: int

    def __len__(self) -> int:
        return self.rows * self.columns

    def names(self) -> Iterator[str]:
        """The places' names, row by row: ``e6r0c1``."""
        return (f"e{self.eighths}r{row}c{column}" for row in range(self.rows) for column in range(self.columns))

    def cut(self, picture: Pixels, index: int) -> Pixels:
        """The crop at place ``index`` of ``picture`` (H, W, 3)."""
        row, column = divmod(index, self.columns)
        height, width = picture.shape[:2]
        side = max(1, min(height, width) * self.eighths // 8)
        top, left = _start(height - side, row, self.rows), _start(width - side, column, self.columns)
        return picture[top : top + side, left : left + side]


def _start(room: int, index: int, count: int) -> int:
    return room // 2 if count == 1 else room * index // (count - 1)

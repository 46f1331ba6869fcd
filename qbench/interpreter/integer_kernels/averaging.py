"""What makes means of sums, once for every number of elements: y = clamp(round(Σ (x − z_x) · s_x / (s_y · n)) + z_y).

A machine may hold the multiplier between two grids and not that over n: shifts alone do not where n is no power of two.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError, UnsupportedError
from qbench.graph import node_key
from qbench.interpreter.kernel import Making
from qbench.numerics import Averaging, QParams, averager

Ints64 = npt.NDArray[np.int64]
Averager = Callable[[Ints64], Ints64]
"""Σ (x − z_x) → levels, not yet clamped."""


class Averagers:
    """The averagers of one node.

    Args:
        making: of the node.
        x, y: grids of the data and of the result.

    Raises:
        InputError: a multiplier between the grids that the machine cannot hold.
    """

    def __init__(self, making: Making, x: QParams, y: QParams) -> None:
        self._making, self._x, self._y = making, x, y
        self._made: dict[tuple[Averaging, tuple[int, ...], bytes], Averager] = {}

    def of(self, scheme: Averaging, counts: Ints64) -> Averager:
        """By ``scheme`` over ``counts`` elements each, broadcast against the sums.

        Raises:
            UnsupportedError: a multiplier over so many elements that the machine cannot hold.
        """
        key = scheme, counts.shape, counts.tobytes()
        if key not in self._made:
            self._made[key] = self._new(scheme, counts)
        return self._made[key]

    def _new(self, scheme: Averaging, counts: Ints64) -> Averager:
        machine = self._making.arithmetic
        averager(scheme, self._x, self._y, counts * 0 + 1, machine)
        try:
            return averager(scheme, self._x, self._y, counts, machine)
        except InputError as error:
            least, most = int(counts.min()), int(counts.max())
            raise UnsupportedError(
                f"Averaging at '{node_key(self._making.node)}' by the arithmetic '{machine.name}'",
                found=f"{error.found}, over {least if least == most else f'{least} to {most}'} elements",
                expected=error.expected,
                remedy="Keep the node in float, or choose another backend.",
            ) from error

"""A range method turns what is known of a value into the interval that its grid is to represent."""

from typing import Any, Protocol

import numpy.typing as npt

from qbench.calibration.statistics import Statistics
from qbench.numerics import Interval, QType, Symmetry


class RangeMethod(Protocol):
    """A frozen value whose fields are its settings. The grid is given for methods that weigh its rounding error."""

    @property
    def name(self) -> str:
        """Short word, as in the names of schemas."""
        ...

    def of_statistics(self, statistics: Statistics, qtype: QType, symmetry: Symmetry) -> Interval:
        """One interval for a watched value, from its statistics alone.

        Raises:
            InputError: the statistics hold too little for this method.
        """
        ...

    def of_rows(self, rows: npt.NDArray[Any], qtype: QType, symmetry: Symmetry) -> Interval:
        """One interval for each row of ``rows``, (n, elements) real: the channels of a constant."""
        ...

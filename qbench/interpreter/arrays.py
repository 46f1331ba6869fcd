"""What flows between kernels: numpy arrays, of levels or of reals."""

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

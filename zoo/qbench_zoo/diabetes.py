"""The diabetes study: ten measures of 442 patients, and how far the disease had gone a year
later, 25 to 346.

Efron, Hastie, Johnstone and Tibshirani, "Least angle regression" (2004), table 1; as scikit-learn
carries it. Every fifth row, i mod 5 = 0, is scored (89); the others (353) were learned from and are
for calibration.

x = (measure − mean) / standard deviation, both of the rows that were learned from.
"""

import functools
import gzip

import numpy as np
import numpy.typing as npt

from qbench.subjects import SCIKIT_LEARN, open_member

_FOLDER = "sklearn/datasets/data"


@functools.cache
def _table() -> npt.NDArray[np.float64]:
    """(442, 11): ten measures, and the value.

    Raises:
        UnavailableError: the package that has them cannot be downloaded.
    """
    rows, values = (
        gzip.decompress(open_member(SCIKIT_LEARN, f"{_FOLDER}/{name}.csv.gz"))
        .decode("ascii")
        .splitlines()
        for name in ("diabetes_data_raw", "diabetes_target")
    )
    return np.array(
        [[*map(float, row.split()), float(value)] for row, value in zip(rows, values, strict=True)],
        np.float64,
    )


def diabetes_rows(*, test: bool) -> npt.NDArray[np.intp]:
    """The numbers of the rows of one part."""
    return np.flatnonzero((np.arange(len(_table())) % 5 == 0) == test)


def diabetes_arrays(*, test: bool) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Measures (n, 10) and values (n,) of one part.

    Raises:
        UnavailableError: the package that has them cannot be downloaded.
    """
    table = _table()[diabetes_rows(test=test)]
    return table[:, :-1], table[:, -1]


def standardized(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Measures (n, 10) as the network takes them."""
    learned, _ = diabetes_arrays(test=False)
    return np.asarray((x - learned.mean(axis=0)) / learned.std(axis=0), np.float32)


def target_scale() -> float:
    """What a value is divided by while the network learns, so that losses are near 1."""
    return 100.0

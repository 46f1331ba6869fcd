"""How likely a sequence model takes the right sequences to be, in whole numbers: what perplexity is counted from."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Likelihoods:
    """Of n right sequences, each token of which was asked for after the right ones before it (teacher forcing).

    Args:
        surprise: (n,) int64, −Σ ln p(token) in millionths of a nat. tokens: (n,) int64, how many the sum is over.
    """

    surprise: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        for values in (self.surprise, self.tokens):
            if values.ndim != 1 or values.dtype != np.int64 or len(values) != len(self.tokens):
                raise ValueError(f"likelihoods are (n,) int64, not {values.shape} {values.dtype}")

"""From a raw sample to a graph's feed, in two steps so that the first can be cached compactly.

``prepare`` does the slow part for one sample (decode, resize, crop) into small integers; ``finish`` does the cheap
part for a batch (scale, normalize, layout). Both are pure, and ``name`` states every setting; changed code is found by
its source (``storage.digest_code``).
"""

from typing import Any, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]


class Preprocess(Protocol):
    """A frozen value; ``kinds`` are the kinds of raw sample it takes."""

    @property
    def name(self) -> str:
        """Every setting in one line: two of the same name give the same numbers."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of raw sample it takes, as ``Dataset.kind`` has them."""
        ...

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a raw sample is whatever its kind says
        """One raw sample → input name → compact array without a batch axis, of one shape for all samples."""
        ...

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """A stack of prepared samples (batch axis first) → the graph's feeds."""
        ...

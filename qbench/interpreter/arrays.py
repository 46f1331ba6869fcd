"""What flows between kernels, and the error for a batch that they cannot compute."""

from typing import Any

import numpy.typing as npt

# What flows between kernels: numpy arrays, of codes or of reals.

Array = npt.NDArray[Any]


# What kernels raise for a batch that they cannot compute; anything else that they raise is a fault
# of theirs.


class BatchError(ValueError):
    """A batch that the graph cannot compute: the reason, without the name of the node."""


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that ``shapes`` have together, by the rules of ONNX and numpy.

    Raises:
        BatchError: they do not fit.
    """
    whole = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for place, size in enumerate(reversed(shape), 1):
            if size != 1 and whole[-place] not in (1, size):
                raise BatchError(f"operands of {' and '.join(map(_text, shapes))}")
            whole[-place] = size if size != 1 else whole[-place]
    return tuple(whole)


def _text(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a scalar"

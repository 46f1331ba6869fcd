"""One node of a float graph as the arguments of a kernel, and the type of a kernel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbench.interpreter.arrays import Array

Results = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """The facts of a node that do not change from batch to batch.

    Args:
        operator: its type.
        version: the version of the operator: the opset in which it was last changed.
        attributes: those of the node and the defaults of its version; None where there is no
            default.
        outputs: how many the node names.
        evaluated: the kernel of ONNX's evaluator, for other attributes; raises NotImplementedError
            where it has none.
    """

    operator: str
    version: int
    attributes: Mapping[str, Any]
    outputs: int
    evaluated: Callable[..., Results]


Inputs = Sequence[Array | None]
Kernel = Callable[[Call, Inputs], Results]


def given(inputs: Inputs, index: int) -> Array | None:
    """Input ``index``, or None where it is left out."""
    return inputs[index] if index < len(inputs) else None


def needed(inputs: Inputs, index: int) -> Array:
    """Input ``index``.

    Raises:
        ValueError: it is left out.
    """
    found = given(inputs, index)
    if found is None:
        raise ValueError(f"input {index} is left out")
    return found

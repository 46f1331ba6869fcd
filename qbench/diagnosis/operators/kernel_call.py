"""Calling what is on trial: a plain kernel on levels, or a backend on the graph; both answer with levels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.backends import Array, Backend, IntegerBackend
from qbench.numerics import Arithmetic, QParams, dequantize
from qbench.zoo import (
    OperatorSubject,
    bias_levels,
    constant_array,
    fed_levels,
    feeds_of_levels,
    operator_graph,
    weight_levels,
)

Ints = npt.NDArray[np.int64]

Kernel = Callable[..., npt.ArrayLike]
"""``kernel(x, …[, weight[, bias]], parameters)``: arrays of levels in the order of the ONNX node → levels."""


Levels = npt.NDArray[np.float64]
"""Levels; between two of them where a backend left the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorParameters:
    """All that a kernel is told beside its levels.

    Args:
        operator: as ONNX calls it; ``Requantize``: no operator, from grid to grid.
        attributes: of the ONNX node, numbers, words and tuples of numbers; what it leaves out has ONNX's default.
        inputs: the grid of every operand in order, the constant one included; the bias is at s_x · s_w.
        output: the grid of the result.
        constants: further inputs by name, such as ``pads`` of a Pad.
    """

    operator: str
    attributes: Mapping[str, Any]
    inputs: tuple[QParams, ...]
    output: QParams
    constants: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Trial:
    """A subject with its levels at hand.

    Args:
        subject: the operator and its grids. fed: levels of its fed operands. weight: of the constant one.
    """

    subject: OperatorSubject
    fed: tuple[Ints, ...]
    weight: Ints | None

    @classmethod
    def of(cls, subject: OperatorSubject) -> "Trial":
        """``subject`` with its own levels."""
        return cls(subject, fed_levels(subject), None if subject.weight is None else weight_levels(subject))

    def on_backend(self, backend: Backend) -> Levels:
        """What ``backend`` answers, in levels; a real between two levels where it left the grid.

        Raises:
            QbenchError: it does not run the graph.
        """
        with backend.prepare(operator_graph(self.subject, weight=self.weight)) as executor:
            (real,) = executor.run(feeds_of_levels(self.subject, self.fed)).values()
        output = self.subject.output.qparams()
        levels = np.rint(real.astype(np.float64) / output.scale) + output.zero_point
        on_grid = dequantize(levels.astype(np.int64), output) == real
        return np.asarray(np.where(on_grid, levels, real.astype(np.float64) / output.scale + output.zero_point))

    def by_kernel(self, kernel: Kernel) -> Levels:
        """What ``kernel`` answers.

        Raises:
            TypeError: no integers.
        """
        subject = self.subject
        operands = [*zip(self.fed, (operand.grid for operand in subject.inputs), strict=True)]
        if subject.weight is not None and self.weight is not None:
            operands.append((self.weight, subject.weight.grid))
        grids = tuple(grid.qparams() for _, grid in operands)
        arrays = [levels.astype(grid.qtype.storage_dtype) for (levels, _), grid in zip(operands, grids, strict=True)]
        if subject.bias:
            arrays.append(bias_levels(subject).astype(np.int32))
        parameters = OperatorParameters(
            operator=subject.operator,
            attributes=subject.attributes,
            inputs=grids,
            output=subject.output.qparams(),
            constants={name: constant_array(values) for name, values in subject.constants},
        )
        found = np.asarray(kernel(*arrays, parameters))
        if found.dtype.kind not in "iu":
            raise TypeError(f"a kernel answers with levels, which are integers, not {found.dtype}")
        return found.astype(np.float64)


def counted(trial: Trial, machine: Arithmetic) -> Levels:
    """What the integer interpreter answers under ``machine``.

    Raises:
        QbenchError: a multiplier that the machine cannot hold.
    """
    return trial.on_backend(IntegerBackend(arithmetic=machine))

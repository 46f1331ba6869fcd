"""A kernel that a fault stands around: its node, its right run, and the means to compile its node otherwise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.faults.operators import Array
from qbench.graph import constant_value
from qbench.interpreter import KernelFunction


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One node of the lowered graph.

    Args:
        node: as lowered. run: as the machine counts it. made: compiles another node for the same machine.
    """

    node: ir.Node
    run: KernelFunction
    made: Callable[[ir.Node], KernelFunction]

    def with_constant(self, index: int, array: Array) -> KernelFunction:
        """The run of the same node whose input ``index`` is ``array``; inputs are given as to ``run``."""
        inputs = [
            None if value is None else _copied(value, array if place == index else None)
            for place, value in enumerate(self.node.inputs)
        ]
        twin = ir.node(
            self.node.op_type,
            inputs,
            domain=self.node.domain,
            name=self.node.name,
            outputs=[ir.val(value.name) for value in self.node.outputs],
        )
        twin.attributes.update(self.node.attributes)
        return self.made(twin)


def _copied(value: ir.Value, array: Array | None) -> ir.Value:
    """A value like ``value`` that belongs to no graph; a constant where it is one, ``array`` where that is given."""
    held = constant_value(value) if array is None else array
    if held is None:
        return ir.val(value.name, value.dtype, value.shape)
    tensor = ir.Tensor(np.asarray(held, order="C"), name=value.name)
    return ir.val(value.name, tensor.dtype, tensor.shape, const_value=tensor)


def changed(run: KernelFunction, change: Callable[[Array], Array]) -> KernelFunction:
    """``run`` whose first result is changed."""

    def other(inputs: Sequence[Array | None]) -> Sequence[Array]:
        first, *rest = run(inputs)
        return [change(first), *rest]

    return other


def fed(run: KernelFunction, change: Callable[[Array], Array]) -> KernelFunction:
    """``run`` whose first input is changed."""

    def other(inputs: Sequence[Array | None]) -> Sequence[Array]:
        first, *rest = inputs
        assert first is not None
        return run([change(first), *rest])

    return other

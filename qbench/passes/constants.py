"""Putting new constants into a graph: an initializer with type and shape, under a name that nothing else bears."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.passes.naming import NameScope


def add_constant(graph: ir.Graph, name: str, array: npt.NDArray[Any], names: NameScope) -> ir.Value:
    """A new initializer of ``graph`` holding ``array``, called ``name`` or, when that is taken, with a number behind.

    Args:
        graph: changed in place.
        array: any dtype that ONNX has; made contiguous.
        names: the value names of the whole model; takes the new one.
    """
    unique = names.fresh(name)
    tensor = ir.Tensor(np.ascontiguousarray(array), name=unique)
    value = ir.val(unique, tensor.dtype, tensor.shape, const_value=tensor)
    graph.register_initializer(value)
    return value

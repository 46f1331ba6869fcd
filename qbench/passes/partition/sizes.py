"""How many bytes the values of one sample take.

    ⌈ elements · bytes of an element / samples of a run ⌉

Free dimensions count as ``graph.cost`` counts them: 1, or the usual size that the model declares.
"""

import math

import onnx_ir as ir

from qbench.graph import fixed_batch, shapes_alone


def bytes_of_values(before: ir.Model, lowered: ir.Model) -> dict[str, int]:
    """Name → bytes of one sample, of every computed or fed value of ``lowered`` whose type is known.

    Args:
        before: the graph before it was lowered: shapes are inferred of operators that onnx knows.
        lowered: its values are asked about; those that lowering made have the shape that it gave them.
    """
    shaped = shapes_alone(before, free_dims=1).graph
    shapes = {value.name: value.shape for value in (*shaped.inputs, *(v for node in shaped for v in node.outputs))}
    samples = fixed_batch(before) or 1
    found = {}
    for value in (*lowered.graph.inputs, *(v for node in lowered.graph for v in node.outputs)):
        shape = shapes.get(value.name) or value.shape
        if value.name and value.dtype is not None and shape is not None:
            elements = math.prod(dim if isinstance(dim, int) else 1 for dim in shape)
            found[value.name] = -(-math.ceil(elements * value.dtype.itemsize) // samples)
    return found

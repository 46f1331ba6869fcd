"""The usual sizes of a graph's free dimensions, read off the data that it is fed.

A network for pictures of any size has no cost, and no share of it in integers, before the user says which size is
meant: where the graph does not declare one, the data does.
"""

from collections.abc import Callable, Mapping

import onnx_ir as ir

from qbench.graph import declare_dims, declared_dims, own_copy
from qbench.subjects import Samples


def with_usual_sizes(model: ir.Model, samples: Callable[[], Samples]) -> ir.Model:
    """``model`` itself where all sizes are known, else a copy that declares those of the first batch of ``samples``.

    Free are named dimensions behind the batch; inputs that the task feeds under no name of its own stay free.
    """
    declared = declared_dims(model)
    free = {
        (str(value.name), axis): str(dim.value)
        for value in model.graph.inputs
        for axis, dim in enumerate(value.shape or ())
        if axis and not isinstance(dim, int) and dim.value and dim.value not in declared
    }
    if not free:
        return model
    found = _found(free, {name: array.shape for name, array in next(samples().batches()).items()})
    if not found:
        return model
    copy = own_copy(model)
    declare_dims(copy, {**found, **declared})
    return copy


def _found(free: Mapping[tuple[str, int], str], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    return {
        dim: shapes[name][axis] for (name, axis), dim in free.items() if name in shapes and axis < len(shapes[name])
    }

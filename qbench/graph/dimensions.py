"""The usual sizes of a graph's free dimensions, written into the model: ``{"H": 224, "W": 224}``.

A network that takes pictures of any size has no cost until somebody says which size is meant. The batch is never
declared: costs are of one sample.
"""

import json
from collections.abc import Mapping

import onnx_ir as ir

from qbench.graph.origin import read_entry

_KEY = "qbench.dims"
_LARGEST = (1 << 31) - 1


def declare_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Write the usual size of each named free dimension into ``model``.

    Raises:
        ValueError: a size is not positive.
    """
    if any(size < 1 for size in dims.values()):
        raise ValueError(f"the usual sizes {dict(dims)} are not all positive")
    model.metadata_props[_KEY] = json.dumps(dict(sorted(dims.items())))


def fixed_batch(model: ir.Model) -> int | None:
    """How many samples a run of ``model`` takes: the first dimension of its first input, None where that is free."""
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    shape = inputs[0].shape if inputs else None
    if shape is None or not len(shape) or not isinstance(shape[0], int) or shape[0] < 1:
        return None
    return shape[0]


def declared_dims(model: ir.Model) -> dict[str, int]:
    """Name of a free dimension → its usual size; empty for a graph that declares none.

    Raises:
        InputError: the metadata are not as ``declare_dims`` writes them.
    """
    return read_entry(model.metadata_props, _KEY, f"the model '{model.graph.name}'", _sizes) or {}


def _sizes(table: Mapping[str, int]) -> dict[str, int]:
    if not all(type(size) is int and 1 <= size <= _LARGEST for size in table.values()):
        raise ValueError("sizes that are not whole numbers from 1")
    return dict(table)

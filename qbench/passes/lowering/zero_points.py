"""Zero points that others leave out are written down: 0, of the type of the integers (``graph.grid_dtype``)."""

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, grid_dtype
from qbench.passes.lowering.operands import is_quantize
from qbench.passes.lowering.site import Site


def write_zero_points(site: Site) -> bool:
    """Give every Q and DQ its zero point, of the shape of its scale; True when one had none."""
    known: dict[tuple[ir.DataType, tuple[int, ...]], ir.Value] = {}
    changed = False
    for node in site.graph:
        if not is_quantize(node) or node.op_type == "DynamicQuantizeLinear" or not _has_none(node):
            continue
        dtype, shape = grid_dtype(node), _shape(node.inputs[1])
        if shape is None or not dtype.is_integer():
            continue
        if (dtype, shape) not in known:
            known[dtype, shape] = site.constant(f"zero_{dtype.name.lower()}", np.zeros(shape, dtype.numpy()))
        node.resize_inputs(3)
        node.replace_input_with(2, known[dtype, shape])
        changed = True
    return changed


def _has_none(node: ir.Node) -> bool:
    return len(node.inputs) < 3 or node.inputs[2] is None


def _shape(scale: ir.Value | None) -> tuple[int, ...] | None:
    known = constant_value(scale)
    if known is not None:
        return known.shape
    sizes = None if scale is None or scale.shape is None else [size for size in scale.shape if isinstance(size, int)]
    return None if sizes is None or scale is None or len(sizes) != len(scale.shape or ()) else tuple(sizes)

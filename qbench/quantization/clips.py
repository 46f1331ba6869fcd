"""What becomes of the Relu or Clip that a unit carries when its result goes on a grid.

A clip before a Q equals a clip of levels behind it (``numerics.grid``), so three ways of writing it give the same
numbers: the grid (of every channel) saturates exactly where the clip does, and the clip goes; the levels are clipped,
behind the Q, so that an engine sees the operator and its Q side by side; or, where ONNX has no Clip for such levels or
every channel has its own, it stays in float.
"""

import enum

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value
from qbench.numerics import QParams, clip_levels
from qbench.quantization.written_types import activation_dtype, clips_levels


class ClipForm(enum.Enum):
    """Where the clip of a unit is done."""

    ABSORBED = "absorbed"
    INTEGER = "integer"
    FLOAT = "float"


def clip_form(clip: ir.Node, qparams: QParams) -> ClipForm:
    """How the Relu or Clip ``clip`` is written when its result is on the grid ``qparams``."""
    if clip.outputs[0].is_graph_output():
        return ClipForm.FLOAT
    grids = [qparams] if qparams.axis is None else _one_by_one(qparams)
    if all(levels_of(clip, grid) == (grid.qmin, grid.qmax) for grid in grids):
        return ClipForm.ABSORBED
    as_integers = qparams.axis is None and clips_levels(activation_dtype(qparams.qtype))
    return ClipForm.INTEGER if as_integers else ClipForm.FLOAT


def _one_by_one(qparams: QParams) -> list[QParams]:
    """The grids of single channels."""
    pairs = zip(qparams.scale, qparams.zero_point, strict=True)
    return [QParams(s, z, qparams.qtype, narrow_range=qparams.narrow_range) for s, z in pairs]


def levels_of(clip: ir.Node, qparams: QParams) -> tuple[int, int]:
    """The levels that ``clip`` (with constant ends) clips to, on a grid per tensor."""
    if clip.op_type == "Relu":
        return clip_levels(0.0, np.inf, qparams)
    ends = [constant_value(clip.inputs[i]) if i < len(clip.inputs) else None for i in (1, 2)]
    low, high = (default if end is None else float(end) for end, default in zip(ends, (-np.inf, np.inf), strict=True))
    return clip_levels(low, high, qparams)

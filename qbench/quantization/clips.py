"""What becomes of the Relu or Clip that a unit carries when its result goes on a grid.

A clip before a Q equals a clip of levels behind it (``numerics.grid``), so three ways of writing it give the same
numbers: the grid saturates exactly where the clip does, and the clip goes; the levels are clipped, behind the Q, so
that an engine sees the operator and its Q side by side; or, where ONNX has no Clip for such levels, it stays in float.
"""

import enum

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value
from qbench.numerics import QParams, clip_levels


class ClipForm(enum.Enum):
    """Where the clip of a unit is done."""

    ABSORBED = "absorbed"
    INTEGER = "integer"
    FLOAT = "float"


def clip_form(clip: ir.Node, qparams: QParams) -> ClipForm:
    """How the Relu or Clip ``clip`` is written when its result is on the grid ``qparams``."""
    if clip.outputs[0].is_graph_output():
        return ClipForm.FLOAT
    if levels_of(clip, qparams) == (qparams.qmin, qparams.qmax):
        return ClipForm.ABSORBED
    return ClipForm.INTEGER if qparams.qtype.bits == 8 else ClipForm.FLOAT


def levels_of(clip: ir.Node, qparams: QParams) -> tuple[int, int]:
    """The levels that ``clip`` (with constant ends) clips to."""
    if clip.op_type == "Relu":
        return clip_levels(0.0, np.inf, qparams)
    ends = [constant_value(clip.inputs[i]) if i < len(clip.inputs) else None for i in (1, 2)]
    low, high = (default if end is None else float(end) for end, default in zip(ends, (-np.inf, np.inf), strict=True))
    return clip_levels(low, high, qparams)

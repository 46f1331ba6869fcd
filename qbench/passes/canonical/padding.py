"""Zero padding before a convolution becomes padding of the convolution."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, is_pinned
from qbench.passes.editing import remove_unread
from qbench.passes.effect import EXACT, Effect


@dataclass(frozen=True, slots=True)
class AbsorbPad:
    """Requires: constants are initializers. Ensures: no Conv with explicit pads reads such a Pad."""

    name: str = "absorb-pad"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Absorb them; the Pad itself goes when nothing else reads it. True when any was absorbed."""
        return sum(_absorbed(node) for node in list(model.graph) if node.op_type == "Conv" and not node.domain) > 0


def _absorbed(conv: ir.Node) -> bool:
    pad = None if conv.inputs[0] is None else conv.inputs[0].producer()
    if pad is None or pad.domain or pad.op_type != "Pad" or pad.graph is not conv.graph or is_pinned(pad.outputs[0]):
        return False
    auto = conv.attributes.get("auto_pad")
    if auto is not None and auto.as_string() not in ("NOTSET", "VALID"):
        return False
    added = _spatial_pads(pad)
    if added is None:
        return False
    given = conv.attributes.get("pads")
    old = [0] * len(added) if given is None else list(given.as_ints())
    conv.attributes["pads"] = ir.AttrInt64s("pads", [a + b for a, b in zip(old, added, strict=True)])
    conv.attributes.pop("auto_pad", None)
    conv.replace_input_with(0, pad.inputs[0])
    remove_unread(pad)
    return True


def _spatial_pads(pad: ir.Node) -> list[int] | None:
    """Begins then ends of the spatial axes, or None when ``pad`` is no constant, non-negative, spatial zero padding."""
    mode = pad.attributes.get("mode")
    operands = [*pad.inputs, None, None][1:4]
    pads, fill = constant_value(operands[0]), constant_value(operands[1])
    if (mode is not None and mode.as_string() != "constant") or pads is None or operands[2] is not None:
        return None
    if operands[1] is not None and (fill is None or np.any(fill)):
        return None
    begins, ends = np.split(pads.astype(int), 2)
    if min(pads, default=0) < 0 or any((*begins[:2], *ends[:2])):
        return None
    return [*begins[2:].tolist(), *ends[2:].tolist()]

"""A Clip from 0 to a constant between two linear operators becomes a Relu, so that the pair can be equalized.

    clip(x, 0, h)    →    max(x, 0)        another function: where x > h the result is larger now

This costs accuracy in float already (networks trained with ReLU6 use its upper end); what it costs is measured, as any
loss is, against the network as it came. Source: Nagel et al. (arXiv 1906.04721), 5.1.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.graph import constant_value, forget_lineage, is_pinned
from qbench.passes.canonical.linear_pairs import linear_pairs
from qbench.passes.effect import LOSSY, Effect


@dataclass(frozen=True, slots=True)
class OpenClips:
    """Requires: constants are initializers. Ensures: no Clip(0, h) alone stands in the way of an equalized pair.

    Nodes and results keep their names. Left alone: every other Clip, such as one before a sum. Begins a new lineage.
    """

    name: str = "open-clips"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Replace them; True when there were any."""
        found = {
            node: None
            for pair in linear_pairs(model.graph, through=frozenset({"Clip"}))
            if all(_opens(clip) for clip in pair.between if clip.op_type == "Clip")
            for node in pair.between
            if node.op_type == "Clip"
        }
        for clip in found:
            _replace(clip)
        if found:
            forget_lineage(model)
        return bool(found)


def _opens(clip: ir.Node) -> bool:
    """Whether the lower end of ``clip`` is 0 and the upper one, if any, a positive constant."""
    low, high = (constant_value(value) for value in (*clip.inputs[1:], None, None)[:2])
    if low is None or low.size != 1 or low.item() != 0 or is_pinned(clip.outputs[0]):
        return False
    absent = len(clip.inputs) < 3 or clip.inputs[2] is None
    return absent or (high is not None and high.size == 1 and math.isfinite(high.item()) and high.item() > 0)


def _replace(clip: ir.Node) -> None:
    graph, old = clip.graph, clip.outputs[0]
    assert isinstance(graph, ir.Graph)
    relu = ir.Node("", "Relu", [clip.inputs[0]], num_outputs=1, name=clip.name)
    relu.metadata_props.update(clip.metadata_props)
    graph.insert_after(clip, relu)
    new, name = relu.outputs[0], old.name
    new.type, new.shape = old.type, old.shape
    old.replace_all_uses_with(new)
    old.name = None  # two values may not bear one name, not even for a moment
    new.name = name
    graph.remove(clip, safe=True)

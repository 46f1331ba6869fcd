"""A chain of grids that became one: levels in between that are not rounded any more, or not limited either.

Only a graph before a pass has levels inside: every other piece is cut where levels stand.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.framing import counted
from qbench.diagnosis.causes.scene import Scene
from qbench.graph import clip_of_levels, grid_of, only_consumer, own_copy
from qbench.judging import Cause


@dataclass(frozen=True, slots=True)
class Chains:
    """Each grid inside, and all of them: left out but for its ends, and wholly."""

    name: str = "grids inside"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """Where there is one."""
        return heaviest(self._tried(scene))

    def _tried(self, scene: Scene) -> Iterator[Explanation | None]:
        inside = [str(node.outputs[0].name) for node in _inside(scene.captured.unit.graph.graph)]
        for names in dict.fromkeys((*((name,) for name in inside), tuple(inside)) if inside else ()):
            where = ", ".join(names)
            for is_limited, cause, words in (
                (True, Cause.ROUNDING, f"numbers that are not rounded to '{where}' in between"),
                (False, Cause.ABSORBED_CLIP, f"numbers that '{where}' does not hold back in between"),
            ):
                unit = scene.captured.unit
                edited = replace(unit, graph=_without(unit.graph, names, is_limited))
                levels = counted(replace(scene.captured, unit=edited), scene.machine, scene.feeds)
                if levels is not None:
                    yield scene.weigh_levels(cause, words, levels)


def _inside(graph: ir.Graph) -> list[ir.Node]:
    """The quantizers that one DequantizeLinear alone reads, on one grid."""
    found = (node for node in graph if node.op_type == "QuantizeLinear" and _pair(node) is not None)
    return [node for node in found if (grid := grid_of(node)) is not None and grid.axis is None]


def _pair(quantizer: ir.Node) -> ir.Node | None:
    clip = clip_of_levels(quantizer)
    reader = only_consumer((quantizer if clip is None else clip).outputs[0])
    return reader if reader is not None and reader.op_type == "DequantizeLinear" else None


def _without(model: ir.Model, names: tuple[str, ...], is_limited: bool) -> ir.Model:
    """``model`` with the reals in front of these grids behind them; within their ends where ``is_limited``."""
    copy = own_copy(model)
    for quantizer in [node for node in _inside(copy.graph) if node.outputs[0].name in names]:
        pair, grid, real = _pair(quantizer), grid_of(quantizer), quantizer.inputs[0]
        assert pair is not None
        assert grid is not None
        assert real is not None
        if is_limited:
            ends = [(end - int(grid.zero_point)) * float(grid.scale) for end in (grid.qmin, grid.qmax)]
            limits = [
                _constant(copy.graph, f"{quantizer.outputs[0].name}_end_{place}", end) for place, end in enumerate(ends)
            ]
            clip = ir.Node("", "Clip", [real, *limits], name=f"{quantizer.outputs[0].name}_ends")
            copy.graph.insert_before(quantizer, clip)
            real = clip.outputs[0]
        for use in tuple(pair.outputs[0].uses()):
            use.node.replace_input_with(use.idx, real)
    return copy


def _constant(graph: ir.Graph, name: str, number: float) -> ir.Value:
    value = ir.Value(name=name, const_value=ir.tensor(np.array(number, np.float32), name=name))
    graph.initializers[name] = value
    return value

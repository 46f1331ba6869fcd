"""A batch normalization that no operator before it can take in becomes a convolution of its own.

    BN(y) = s·y + t    =    Conv(y, W, t),    W of shape [C, 1, 1, …] = s,  group = C

A residual network that normalizes before its convolutions reads each sum twice: the shortcut needs it as it is, so
that nothing can be folded into what made it. As a convolution it is counted in integers like any other, its factor a
weight with one scale a channel and its shift a bias. Factors and shifts are computed in float64 and rounded once.
"""

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from qbench.passes.canonical.normalization import affine_of, is_constant_normalization
from qbench.passes.constants import add_constant
from qbench.passes.effect import LOSSY, Effect
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class BatchNormToConv:
    """Requires: constants are initializers, shapes are inferred, and what can be folded is folded.

    Ensures: no BatchNormalization of constant parameters reads a float32 value (N, C, …) of three to five dimensions.
    Node and result keep their names. Left alone: other ranks and types, training mode, computed parameters.
    """

    name: str = "batchnorm-to-conv"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Replace them; True when there were any."""
        names = NameScope.of_values(model)
        return sum(_replaced(n, names) for n in list(model.graph) if is_constant_normalization(n)) > 0


def _replaced(norm: ir.Node, names: NameScope) -> bool:
    value, graph = norm.inputs[0], norm.graph
    rank = 0 if value is None or value.shape is None else len(value.shape)
    if value is None or not isinstance(graph, ir.Graph) or value.dtype != ir.DataType.FLOAT or not 3 <= rank <= 5:
        return False
    scale, shift = affine_of(norm)
    window = [1] * (rank - 2)
    title = norm.name or norm.outputs[0].name
    weight = add_constant(graph, f"{title}.weight", scale.astype("float32").reshape(-1, 1, *window), names)
    bias = add_constant(graph, f"{title}.bias", shift.astype("float32"), names)
    attributes: dict[str, int | list[int]] = {"kernel_shape": window, "group": scale.size}
    conv = ir.node("Conv", [value, weight, bias], attributes, name=norm.name, num_outputs=1)
    conv.metadata_props.update(norm.metadata_props)
    graph.insert_after(norm, conv)
    old, new = norm.outputs[0], conv.outputs[0]
    name = old.name
    new.type, new.shape = old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = None  # two values may not bear one name, not even for a moment
    new.name = name
    graph.remove(norm, safe=True)
    return True

"""Weights that a graph quantizes itself are quantized beforehand: machines are made for weights that are known.

    w ─Q─DQ─ [movers] ─ product   →   Q(w) ─DQ─ [movers] ─ product

By ONNX's rule, whatever the machine: engines leave it to whoever converts the model. Constants that no product reads
are quantized by the machine itself.
"""

import onnx_ir as ir

from qbench.graph import operator_facts
from qbench.passes.effect import QDQ
from qbench.passes.lowering.movers import is_mover
from qbench.passes.naming import NameScope
from qbench.passes.qdq.folding import fold_quantizer

_ON_THE_WAY = frozenset({"Clip", "DequantizeLinear"})


def quantize_weights(model: ir.Model) -> bool:
    """Quantize them in graph order; True when there was one.

    Raises:
        InputError: a Q or DQ that means nothing.
    """
    names = NameScope.of_values(model)
    quantizers = [node for node in model.graph if not node.domain and node.op_type == "QuantizeLinear"]
    weights = [node for node in quantizers if _weighs(node.outputs[0])]
    return [fold_quantizer(node, names, (QDQ,)) for node in weights].count(True) > 0


def _weighs(levels: ir.Value) -> bool:
    """Whether a product reads them, dequantized, as its weight or bias."""
    waiting = [levels]
    while waiting:
        for use in waiting.pop().uses():
            facts = operator_facts(use.node)
            if facts.weight is not None and use.idx in (facts.weight, facts.bias):
                return True
            if use.idx == 0 and (is_mover(use.node) or (not use.node.domain and use.node.op_type in _ON_THE_WAY)):
                waiting.extend(use.node.outputs)
    return False

"""Q/DQ pairs that were placed by hand in a float model: which there are, and the schema that
quantizes no more than they stand in front of.

::

    x ── Q ── DQ ── conv1 ── relu1 ── conv2          one pair: it fixes the qparams of x

    as the pairs say     conv1: weight and bias by the schema; conv2 stays float
    completed            conv1 and conv2 by the schema; x keeps the qparams of its pair
"""

from collections.abc import Iterator
from dataclasses import dataclass
from glob import escape

import onnx_ir as ir

from qbench.calibration import Unit
from qbench.graph import (
    is_constant,
    is_pinned,
    node_key,
    node_qparams,
)
from qbench.numerics import QParams
from qbench.passes import plannable
from qbench.quantization.candidates import requested_units
from qbench.quantization.decision import numbers
from qbench.quantization.schema import Rule, Schema
from qbench.quantization.spec import Role

NO_STUB = "no Q/DQ pair of the model is in front of it"
"""The reason why a slot stays in float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stub:
    """One QuantizeLinear on a computed or fed value, with the pairs' readers.

    Args:
        value: that it quantizes.
        node: the name of the QuantizeLinear.
        qparams: of the pair; None: they are computed at run time.
        readers: the nodes that read what its DequantizeLinear gives.
    """

    value: str
    node: str
    qparams: QParams | None
    readers: tuple[str, ...]

    def __str__(self) -> str:
        how = "computed at run time" if self.qparams is None else numbers(self.qparams)
        read = f", read by {', '.join(self.readers)}" if self.readers else ", read by nothing"
        return f"{self.value}: {how}{read}"


def stubs_of(model: ir.Model) -> tuple[Stub, ...]:
    """The pairs of ``model`` on computed or fed values, in graph order.

    Raises:
        InputError: a pair means nothing, as with a scale of zero.
    """
    quantizers = (node for node in model.graph if node.op_type == "QuantizeLinear")
    return tuple(
        Stub(
            value=value.name or "",
            node=node_key(node),
            qparams=node_qparams(node),
            readers=tuple(dict.fromkeys(_readers(node))),
        )
        for node in quantizers
        if (value := node.inputs[0]) is not None and not is_constant(value)
    )


def _readers(quantizer: ir.Node) -> Iterator[str]:
    for use in quantizer.outputs[0].uses():
        if use.node.op_type == "DequantizeLinear":
            yield from (node_key(reader.node) for reader in use.node.outputs[0].uses())


def of_stubs_alone(schema: Schema, model: ir.Model) -> Schema:
    """``schema`` for the units of ``model`` whose data all come through a pair, and float for the
    others; results without a pair are float.

    Raises:
        InputError: a Q or DQ that means nothing.
    """
    canonical = plannable(model, schema.canonical)
    units = [unit for unit, _ in requested_units(canonical, schema)]
    stubbed = [unit for unit in units if _is_stubbed(unit)]
    others = [unit for unit in units if unit not in stubbed]
    rules = []
    if others:
        rules.append(Rule(names=tuple(escape(unit.name) for unit in others), reason=NO_STUB))
    if stubbed:
        names = tuple(escape(unit.name) for unit in stubbed)
        rules.append(Rule(names=names, keep_float=(Role.OUTPUT,)))
    return schema.preceded_by(tuple(rules))


def _is_stubbed(unit: Unit) -> bool:
    data = [
        value
        for value in unit.head.inputs
        if value is not None and not is_constant(value) and value.dtype is ir.DataType.FLOAT
    ]
    return bool(data) and all(is_pinned(value) for value in data)

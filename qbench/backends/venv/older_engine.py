"""A graph for an engine that is older than the file: stamped with an older opset or IR version where nothing is lost.

An operator is the same under two opsets when ONNX gives both one definition, or when the newer one differs in nothing
but further types and attributes, and the node has neither. IR versions brought types and annotations, and a graph
without those types means the same under an older one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from qbench.graph import own_copy

_IR_LIMIT = re.compile(r"Unsupported model IR version: \d+, max supported IR version: (\d+)")
_OPSET_LIMIT = re.compile(r"Current official support for domain ai\.onnx is till opset (\d+)")
_OWN_DOMAINS = ("", "ai.onnx")
_WIDENED = frozenset(
    "Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If IsInf IsNaN Loop Pad QLinearMatMul "
    "QuantizeLinear ReduceMax ReduceMin Reshape Scan Shape Size Squeeze Transpose Unsqueeze".split()
)
"""What opsets 20 and 21 gave new types or attributes and no new meaning (ONNX's changelog of operators)."""
_WIDENED_SINCE, _WIDENED_UNTIL = 19, 21
_TYPES_SINCE_IR = {
    9: {"FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"},
    10: {"INT4", "UINT4"},
    11: {"FLOAT4E2M1"},
    12: {"FLOAT8E8M0"},
    13: {"INT2", "UINT2"},
}
"""IR version → the types it brought."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The newest IR version and opset that an engine takes, as far as its words tell; None: they do not."""

    ir: int | None = None
    opset: int | None = None

    @classmethod
    def told_by(cls, message: str) -> "Limits":
        """What the refusal ``message`` of an engine says."""
        ir_limit, opset = _IR_LIMIT.search(message), _OPSET_LIMIT.search(message)
        return cls(int(ir_limit[1]) if ir_limit else None, int(opset[1]) if opset else None)


def stamped_older(model: ir.Model, limits: Limits) -> ir.Model | None:
    """A copy of ``model`` within ``limits`` that means the same; None where it is within them, or would lose something."""
    opset = model.graph.opset_imports.get("", 0)
    older_ir = limits.ir is not None and model.ir_version > limits.ir
    older_opset = limits.opset is not None and opset > limits.opset
    if not older_ir and not older_opset:
        return None
    if older_ir and not _fits_ir(model, limits.ir or 0):
        return None
    if older_opset and not _fits_opset(model, opset, limits.opset or 0):
        return None
    copy = own_copy(model)
    if older_ir:
        copy.ir_version = limits.ir or copy.ir_version
    if older_opset:
        copy.graph.opset_imports[""] = limits.opset or opset
    return copy


def _fits_ir(model: ir.Model, version: int) -> bool:
    newer = {name for since, names in _TYPES_SINCE_IR.items() if since > version for name in names}
    return all(value.dtype is None or value.dtype.name not in newer for value in _values(model))


def _fits_opset(model: ir.Model, now: int, then: int) -> bool:
    return not model.functions and all(
        _means_the_same(node, now, then) for node in model.graph.all_nodes() if node.domain in _OWN_DOMAINS
    )


def _means_the_same(node: ir.Node, now: int, then: int) -> bool:
    try:
        new, old = (onnx.defs.get_schema(node.op_type, version, "") for version in (now, then))
    except onnx.defs.SchemaError:
        return False
    if new.since_version == old.since_version:
        return True
    known = node.op_type in _WIDENED and new.since_version <= _WIDENED_UNTIL and then >= _WIDENED_SINCE
    return known and set(node.attributes) <= set(old.attributes) and _types_fit(node, old)


def _types_fit(node: ir.Node, schema: "onnx.defs.OpSchema") -> bool:
    """Whether no value at ``node`` is of a type that came later; what a formal list leaves open repeats its last."""
    for values, formals in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        if len(values) > len(formals) and not formals:
            return False
        for place, value in enumerate(values):
            formal = formals[min(place, len(formals) - 1)]
            if value is not None and value.dtype is not None and _written(value.dtype) not in formal.types:
                return False
    return True


def _written(dtype: ir.DataType) -> str:
    """``tensor(float)``, as ONNX writes it."""
    name = onnx.TensorProto.DataType.Name(int(dtype)).lower()
    return f"tensor({name})"


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs

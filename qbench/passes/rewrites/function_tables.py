"""A function of one 8-bit value becomes a table of 256 entries."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import (
    POINTWISE,
    Capabilities,
    constant_value,
    only_consumer,
    origin_of,
    set_origin,
)
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic
from qbench.passes.contract import ARITHMETICS, QDQ, Effect, EffectKind, decline
from qbench.passes.editing import NameScope, add_constant, remove_unread, take_place
from qbench.passes.lowering.qoperator import lower_to_qoperator
from qbench.passes.lowering.site import INTEGER_INTERPRETER
from qbench.passes.requantization.border import (
    Border,
    Codes,
    border_of,
    codes_of,
    readers_of,
    real_clip_of,
)
from qbench.passes.requantization.tables import Array

_BITS, _CODE_COUNT = 8, 256
_FED = "codes"


@dataclass(frozen=True, slots=True)
class FunctionTables:
    """Requires: QDQ. Ensures: no function of one 8-bit value is between quantizers, where the
    arithmetics agree on it.

    Args:
        tables: whether the target computes tables; see ``under``.
        arithmetics: that must give the same table.
        name: of the pass.
    """

    tables: bool = True
    arithmetics: tuple[str, ...] = ARITHMETICS
    name: str = "function-tables"

    @classmethod
    def under(cls, capabilities: Capabilities) -> "FunctionTables":
        """The pass for a backend of these ``capabilities``: where it has no tables, every place
        is declined.
        """
        return cls(tables=capabilities.tables)

    @property
    def effect(self) -> Effect:
        """Exact under the arithmetics."""
        return Effect(EffectKind.EXACT, arithmetics=self.arithmetics)

    def run(self, model: ir.Model) -> bool:
        """Replace functions in graph order; True when there was one."""
        values, nodes = NameScope.of_values(model), NameScope.of_nodes(model)
        changed = False
        for node in list(model.graph):
            border = border_of(node)
            chain = () if border is None else _chain_before(border)
            if border is None or not chain:
                continue
            reason = self._replaced(model, chain, border, (values, nodes))
            if reason is None:
                changed = True
            else:
                decline(node, reason, self.name)
        return changed

    def _replaced(
        self,
        model: ir.Model,
        chain: Sequence[ir.Node],
        border: Border,
        names: tuple[NameScope, NameScope],
    ) -> str | None:
        """Why there is no table, or None when there is one now."""
        codes = codes_of(chain[0])
        if codes is None or codes.qparams.qtype.bits != _BITS:
            return "its input does not have 8 bits and static qparams per tensor"
        if not self.tables:
            return "the target has no tables"
        if any(
            real_clip_of(use.node) is not None
            for one in readers_of(border)
            for use in one.outputs[0].uses()
        ):
            return "a clip behind it has limits that a table does not have"
        alone = _alone(model, chain, border)
        occurring = np.arange(codes.low, codes.high + 1) % _CODE_COUNT
        if np.isnan(_reals(alone, len(chain))[occurring]).any():
            return "it gives NaN, which every arithmetic quantizes by a rule of its own"
        tables = [_table(alone, arithmetic) for arithmetic in self.arithmetics]
        for arithmetic, table in zip(self.arithmetics, tables, strict=True):
            if moved := int((table != tables[0])[occurring].sum()):
                first = self.arithmetics[0]
                return (
                    f"{moved} of {len(occurring)} quantized values differ between '{arithmetic}' "
                    f"and '{first}'"
                )
        _write(codes, chain, border, tables[0], names)
        return None


def _chain_before(border: Border) -> tuple[ir.Node, ...]:
    """A DequantizeLinear and the functions of one value between it and ``border``, in order;
    empty: there are none.
    """
    found: list[ir.Node] = []
    value, reader = border.source, border.quantizer
    while (maker := value.producer()) is not None and maker.graph is reader.graph:
        if found and not maker.domain and maker.op_type == "DequantizeLinear":
            return (maker, *reversed(found))
        operand = _operand(maker)
        if operand is None or only_consumer(value) is not reader:
            break
        found.append(maker)
        value, reader = operand, maker
    return ()


def _operand(node: ir.Node) -> ir.Value | None:
    """The one operand of a pointwise ``node`` that is no single constant; None where there is
    another.
    """
    if node.domain or node.op_type not in POINTWISE:
        return None
    varying = [
        value for value in node.inputs if value is not None and constant_value(value) is None
    ]
    if len(varying) != 1:
        return None
    (one,) = varying
    rank = 0 if one.shape is None else len(one.shape)
    known = [
        constant_value(value) for value in node.inputs if value is not None and value is not one
    ]
    return (
        one
        if all(array is not None and array.size == 1 and array.ndim <= rank for array in known)
        else None
    )


def _alone(model: ir.Model, chain: Sequence[ir.Node], border: Border) -> ir.Model:
    """From all codes in the order of a table to what ``border`` gives, as a model of its own."""
    source, qparams = chain[0].inputs[0], codes_of(chain[0])
    assert source is not None
    assert qparams is not None
    codes = ir.val(
        _FED, ir.DataType.from_numpy(qparams.qparams.qtype.storage_dtype), ir.Shape([_CODE_COUNT])
    )
    known: dict[ir.Value | None, ir.Value | None] = {None: None, source: codes}
    graph = ir.Graph([codes], [], nodes=[], opset_imports=model.opset_imports, name="table")
    names = NameScope([_FED])
    for node in (*chain, border.quantizer, *([] if border.clip is None else [border.clip])):
        for value in node.inputs:
            if value not in known:
                array = constant_value(value)
                assert array is not None
                known[value] = add_constant(graph, "constant", array, names)
        copy = ir.Node(
            "",
            node.op_type,
            [known[v] for v in node.inputs],
            node.attributes.values(),
            num_outputs=1,
        )
        copy.name = copy.outputs[0].name = names.fresh(node.op_type)
        copy.outputs[0].type = node.outputs[0].type
        known[node.outputs[0]] = copy.outputs[0]
        graph.append(copy)
    graph.outputs.append(graph[-1].outputs[0])
    return ir.Model(graph, ir_version=model.ir_version)


def _table(alone: ir.Model, arithmetic: str) -> Array:
    """(256,) of the border's type: what ``arithmetic`` gives for the codes 0 … 127, then 128 …
    255 or −128 … −1.
    """
    lowered, rules = (
        (alone, "ideal")
        if arithmetic == QDQ
        else (lower_to_qoperator(alone, INTEGER_INTERPRETER), arithmetic)
    )
    return _run(Program(lowered, get_arithmetic(rules)), alone)[
        str(alone.graph.outputs[0].name)
    ].reshape(-1)


def _reals(alone: ir.Model, steps: int) -> Array:
    """(256,) float32: what the first ``steps`` nodes give, of every code."""
    name = str(alone.graph[steps - 1].outputs[0].name)
    return _run(Program(alone, get_arithmetic("ideal"), (name,)), alone)[name].reshape(-1)


def _run(program: Program, alone: ir.Model) -> dict[str, Array]:
    dtype = alone.graph.inputs[0].dtype
    assert dtype is not None
    with np.errstate(all="ignore"):  # what overflows is infinite, and saturates
        return program.run({_FED: np.arange(_CODE_COUNT, dtype=np.uint8).view(dtype.numpy())})


def _write(
    codes: Codes,
    chain: Sequence[ir.Node],
    border: Border,
    table: Array,
    names: tuple[NameScope, NameScope],
) -> None:
    values, nodes = names
    graph, result, function = border.quantizer.graph, border.codes, chain[1]
    assert isinstance(graph, ir.Graph)
    origin, stem = origin_of(function), function.name or result.name
    index = ir.Node(
        "",
        "Cast",
        [codes.dequantizer.inputs[0]],
        [ir.AttrInt64("to", ir.DataType.INT32)],
        num_outputs=1,
    )
    entries = add_constant(graph, f"{stem}_table", table, values)
    looked_up = ir.Node("", "Gather", [entries, index.outputs[0]], num_outputs=1)
    for node, word in ((index, "index"), (looked_up, "lookup")):
        node.name = nodes.fresh(f"{stem}_{word}")
        node.outputs[0].shape = result.shape
        set_origin(node, origin)
    index.outputs[0].name = values.fresh(f"{stem}_index")
    index.outputs[0].type = ir.TensorType(ir.DataType.INT32)
    graph.insert_before(border.quantizer, [index, looked_up])
    take_place(result, looked_up.outputs[0])
    for gone in (border.clip, border.quantizer, *reversed(chain[1:])):
        if gone is not None:
            graph.remove(gone, safe=True)
    remove_unread(codes.dequantizer)

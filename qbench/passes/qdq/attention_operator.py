"""ONNX Runtime's operator of attention that keeps quantized keys and values, from Q and DQ around
them.
"""

from __future__ import annotations  # help() shows npt.NDArray, and not the union behind it

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.graph import (
    ENGINE_DOMAIN,
    GROUP_QUERY,
    cache_values,
    int_attribute,
    is_group_query,
    node_key,
    origin_of,
    quantized_cache,
    set_origin,
    stored_codes,
)
from qbench.passes.canonical.cleanup import RemoveDead
from qbench.passes.contract import LOSSY, Effect
from qbench.passes.editing import NameScope, add_constant, take_place
from qbench.passes.qdq.causal_attention import (
    Attention,
    Grouped,
    Kept,
    OtherShapeError,
    attentions,
    grouped_attentions,
)
from qbench.passes.run import rewrite

#     y, present key, present value
#         = GroupQueryAttention(q, k, v, past key, past value, S + T − 1, S + T, …, s_k, s_v)
#
# Queries are scaled in front of it, so that its ``scale`` is 1, and it masks the future itself. It
# stores
#
#     clip(rint(k / s), −2^(b − 1), 2^(b − 1) − 1),     b = 8, or b = 4: two codes a byte, first low
#
# by one scale or one for each channel, and has no zero point. Codes that end before these ends are
# made by limits of k. Source: docs/ContribOperators.md of ONNX Runtime 1.31, and single runs of it.

_Array = npt.NDArray[Any]
_FIRST_SCALE = 12
"""The input of the scales of keys; those of values are the next one."""
_MULTIPLE = 8
"""A head has so many numbers, or several times as many."""
_STORED = {4: ir.DataType.UINT8, 8: ir.DataType.INT8}
"""Bits of a code → the type of the cache."""
_MODES = {True: "PER_TENSOR", False: "PER_CHANNEL"}
"""Whether there is one scale → the operator's word for it."""


@dataclass(frozen=True, slots=True)
class LowerAttention:
    """Requires: the QDQ convention. Ensures: keys and values are kept in codes, by the operator
    above.

    Raises (from ``run``):
        UnsupportedError: attention is of another shape, or a key or value is kept in floats.
        InputError: past and present do not match.
    """

    name: str = "lower-attention"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Lower every attention; True."""
        _require_codes(model)
        try:
            grouped = grouped_attentions(model.graph)
            owned = {kept.past for one in grouped for kept in (one.key, one.value)}
            found = attentions(model.graph, owned)
            both = [_stored(one.key, one.value) for one in grouped]
            stored = [_stored(one.key, one.value) for one in found]
        except OtherShapeError as error:
            raise UnsupportedError(
                f"Writing '{model.graph.name}' with {GROUP_QUERY}",
                found=f"another decoder than that writes: {error}",
                expected="keys and values in symmetric codes of 8 bits or fewer, and causal "
                "attention to past and present alone",
                remedy="Write it as Q/DQ pairs, which hold the same codes.",
            ) from error
        writer = _Writer(model)
        for other, (bits, mode) in zip(grouped, both, strict=True):
            writer.keep(other, bits, mode)
        for one, (bits, mode) in zip(found, stored, strict=True):
            writer.write(one, bits, mode)
        model.graph.opset_imports.setdefault(ENGINE_DOMAIN, 1)
        return True


def _require_codes(model: ir.Model) -> None:
    """Requires that some of the cache of ``model`` is in codes, where it takes a past."""
    past = [one.past for one in cache_values(model.graph) if one.past is not None]
    if not past or quantized_cache(model):
        return
    raise UnsupportedError(
        f"Writing '{model.graph.name}' with {GROUP_QUERY}",
        found=f"a decoder whose keys and values are in floats, as '{past[0].name}' is",
        expected="keys and values in symmetric codes of 8 bits or fewer",
        remedy="Choose a schema that quantizes the cache, such as 'kv8h' or 'w8_sym_pc_kv8h'.",
    )


def lower_attention(model: ir.Model) -> ir.Model:
    """``model``, QDQ, with ONNX Runtime's attention that keeps quantized keys and values, as a new
    model.

    Inputs of the past and outputs of the present get the type of the codes: int8, or uint8 with two
    codes of 4 bits a byte.

    Raises:
        What ``LowerAttention`` raises.
    """
    return rewrite(model, (LowerAttention(), RemoveDead()))


def require_codes_inside(model: ir.Model) -> None:
    """Check that attention of ``model``, QDQ, reads keys and values as they are kept.

    Raises:
        UnsupportedError: a GroupQueryAttention in floats has Q and DQ behind it, so that it would
            read those of its own run before they are rounded.
    """
    for one in stored_codes(model.graph):
        maker = None if one.quantized is None else one.quantized.producer()
        if maker is not None and is_group_query(maker):
            raise UnsupportedError(
                f"Writing '{model.graph.name}' with Q and DQ",
                found=f"the {GROUP_QUERY} '{node_key(maker)}', which reads the keys and values of "
                "a run before they are rounded behind it",
                expected="the codes inside the operator",
                remedy="Write it with 'qbench quantize --form gqa', and give that file and "
                "--fp32 to 'qbench eval'.",
            )


def _stored(key: Kept, value: Kept) -> tuple[int, str]:
    """The bits of a stored code and the word for its scales, of key and value alike."""
    both, name = (key, value), key.present.name
    sizes = {(kept.heads, kept.numbers) for kept in both}
    if len(sizes) > 1 or key.numbers % _MULTIPLE:
        raise OtherShapeError(
            f"heads of '{name}' with {key.numbers} and {value.numbers} numbers, which are "
            f"no equal multiples of {_MULTIPLE}"
        )
    found = {(_bits(kept), _MODES[kept.scales.size == 1]) for kept in both}
    if len(found) > 1 or max(_bits(kept) for kept in both) not in _STORED:
        raise OtherShapeError(f"'{name}' is in other codes than its value, or in more than 8 bits")
    return found.pop()


def _bits(kept: Kept) -> int:
    """The fewest bits of ``_STORED`` that hold its codes; more where none does."""
    most = max(-kept.lowest, kept.highest + 1)
    return next((bits for bits in _STORED if most <= 1 << (bits - 1)), 16)


class _Writer:
    """A graph that is being rewritten, and the lengths that all its attention has."""

    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self._values, self._nodes = NameScope.of_values(model), NameScope.of_nodes(model)
        self._lengths: tuple[ir.Value, ir.Value] | None = None

    def write(self, one: Attention, bits: int, mode: str) -> None:
        """The operator in the place of ``one``."""
        last = one.result.producer()
        assert last is not None
        key, value = one.key, one.value
        if self._lengths is None:
            self._lengths = self._counted(last, key)
        scales = [self._scales(kept) for kept in (key, value)]
        given = [one.query]
        given += [self._limited(last, kept, kept.flat, bits) for kept in (key, value)]
        given += [key.past, value.past, *self._lengths]
        attributes = [
            ir.AttrInt64("num_heads", one.heads),
            ir.AttrInt64("kv_num_heads", key.heads),
            ir.AttrFloat32("scale", 1.0),
            *_quantizing(bits, mode),
        ]
        rest: list[ir.Value | None] = [None] * 5  # rotations, places, biases, sinks
        name = self._nodes.fresh(f"{node_key(last)}_attention")
        node = ir.Node(
            ENGINE_DOMAIN,
            GROUP_QUERY,
            [*given, *rest, *scales],
            attributes,
            num_outputs=3,
            name=name,
        )
        set_origin(node, origin_of(last))
        self._graph.insert_before(last, node)
        self._release(node, one, bits)

    def _release(self, node: ir.Node, one: Attention, bits: int) -> None:
        """Let the results of ``node`` be those of ``one``, and past and present hold codes."""
        real, *stored = node.outputs
        real.type = one.result.type
        take_place(one.result, real)
        for kept, new in zip((one.key, one.value), stored, strict=True):
            _keep_codes(kept, new, bits)

    def keep(self, one: Grouped, bits: int, mode: str) -> None:
        """The codes inside the operator that is there. A key that it rotates is limited by the
        ends of the operator alone, as are keys and values that come in one input with queries.
        """
        node = one.node
        rotates = bool(int_attribute(node, "do_rotary", 0))
        node.resize_inputs(max(len(node.inputs), _FIRST_SCALE + 2))
        for place, kept in enumerate((one.key, one.value)):
            flat = node.inputs[1 + place]
            if flat is not None and not (rotates and kept is one.key):
                node.replace_input_with(1 + place, self._limited(node, kept, flat, bits))
            node.replace_input_with(_FIRST_SCALE + place, self._scales(kept))
            _keep_codes(kept, node.outputs[1 + place], bits)
        for attribute in _quantizing(bits, mode):
            node.attributes[attribute.name] = attribute

    def _counted(self, at: ir.Node, key: Kept) -> tuple[ir.Value, ir.Value]:
        """S + T − 1, one for each text (N,), and S + T (1,), both int32."""
        before = self._node(at, "Shape", [key.past], start=2, end=3)
        new = self._node(at, "Shape", [key.flat], start=1, end=2)
        whole = self._node(at, "Add", [before, new])
        total = self._node(at, "Cast", [whole], to=int(ir.DataType.INT32))
        one = add_constant(self._graph, "one_token", np.array([1], np.int32), self._values)
        last = self._node(at, "Sub", [total, one])
        rows = self._node(at, "Shape", [key.flat], start=0, end=1)
        return self._node(at, "Expand", [last, rows]), total

    def _limited(self, at: ir.Node, kept: Kept, flat: ir.Value, bits: int) -> ir.Value:
        """``flat`` (N, T, K·d), so that its codes end where those of ``kept`` do."""
        value, half = flat, 1 << (bits - 1)
        for operator, code, end in (("Max", kept.lowest, -half), ("Min", kept.highest, half - 1)):
            if code != end:
                name = f"{flat.name}_{operator.lower()}"
                limit = (np.float32(code) * kept.scales).astype(np.float32)
                value = self._node(
                    at, operator, [value, add_constant(self._graph, name, limit, self._values)]
                )
        return value

    def _scales(self, kept: Kept) -> ir.Value:
        """One, (1,), or one for each channel, (1, heads, 1, numbers)."""
        shape = (1,) if kept.scales.size == 1 else (1, kept.heads, 1, kept.numbers)
        scales = kept.scales.astype(np.float32).reshape(shape)
        return add_constant(self._graph, f"{kept.present.name}_scale", scales, self._values)

    def _node(
        self, at: ir.Node, operator: str, inputs: list[ir.Value], **attributes: int
    ) -> ir.Value:
        """The result of a new node before ``at``."""
        node = ir.node(operator, inputs, attributes=attributes)
        node.name = self._nodes.fresh(f"{inputs[0].name}_{operator.lower()}")
        node.outputs[0].name = self._values.fresh(node.name)
        set_origin(node, origin_of(at))
        self._graph.insert_before(at, node)
        return node.outputs[0]


def _quantizing(bits: int, mode: str) -> tuple[ir.Attr, ...]:
    """The attributes of an operator that keeps codes."""
    return (
        ir.AttrString("k_quant_type", mode),
        ir.AttrString("v_quant_type", mode),
        ir.AttrInt64("kv_cache_bit_width", bits),
    )


def _keep_codes(kept: Kept, new: ir.Value, bits: int) -> None:
    """Let past and present of ``kept`` hold codes, and ``new`` be the present."""
    codes = ir.TensorType(_STORED[bits])
    for value in (kept.past, kept.present):
        value.type, value.shape = codes, _shape(value, kept.numbers * bits // 8)
    new.type, new.shape = codes, kept.present.shape
    take_place(kept.present, new)


def _shape(value: ir.Value, stored: int) -> ir.Shape | None:
    """That of ``value`` with ``stored`` bytes a head, two codes of 4 bits in one."""
    if value.shape is None:
        return None
    return ir.Shape([*value.shape[:-1], stored])

"""ONNX Runtime's operators with weights in blocks, from and to DequantizeLinear and the operator of
ONNX.
"""

from __future__ import annotations  # help() shows npt.NDArray, and not the union behind it

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import (
    ENGINE_DOMAIN,
    constant_value,
    float_attribute,
    input_at,
    int_attribute,
    node_key,
    node_qparams,
)
from qbench.numerics import QParams, QType, parameter_shape
from qbench.passes.canonical.cleanup import RemoveDead
from qbench.passes.contract import LOSSY, Effect
from qbench.passes.editing import NameScope, remove_unread
from qbench.passes.qdq.import_qdq import PairWriter
from qbench.passes.run import rewrite

#     MatMulNBits(x, B, s, z, -, b)        ↔  MatMul(x, DQ(codes (K, N), s, z; axis 0)) + b
#     GatherBlockQuantized(d, i, s, z)     ↔  Gather(DQ(codes, s, z; quantize_axis), i)
#
# B holds the rows of N in blocks along K, the lowest bits of a byte first; a last block that is
# shorter is filled up. A zero point that is left out is 2^(bits − 1) of packed codes, and 0 of
# those in ONNX's types of 4 bits. ONNX Runtime's quantizer gives symmetric blocks scales of either
# sign, and the scale 0 to blocks of nothing but zeros. A scale below zero is read as its size, with
# codes and zero point from the other end of the type:
#
#     (q − z) · s = ((M − q) − (M − z)) · |s|,     M = qmin + qmax
#
# Source: docs/ContribOperators.md of ONNX Runtime 1.31.

_Array = npt.NDArray[Any]
_Ints = npt.NDArray[np.int64]
PRODUCT, LOOKUP = "MatMulNBits", "GatherBlockQuantized"
_WIDTHS = (2, 4, 8)
_SMALLEST = 16
"""Of the blocks of both operators, which are powers of two."""
_WHOLE = 4
"""Codes of two bits in a byte."""


def has_block_operators(model: ir.Model) -> bool:
    """Whether ``model`` has one of them in its main graph."""
    return any(_is_one(node) for node in model.graph)


def _is_one(node: ir.Node) -> bool:
    return node.domain == ENGINE_DOMAIN and node.op_type in (PRODUCT, LOOKUP)


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """Codes of some type, and the scales and zero points of their blocks along ``axis``."""

    codes: _Ints
    scales: npt.NDArray[np.float32]
    points: _Ints
    qtype: QType
    axis: int
    size: int


@dataclass(frozen=True, slots=True)
class RaiseBlocks:
    """Requires: constants are initializers. Ensures: of the operators above only those are left
    whose weights are computed, reordered (``g_idx``), not in float32, or with real zero points.

    Raises (from ``run``):
        InputError: a scale that is not finite, or zero where codes are not; constants that do not
            fit the blocks.
    """

    name: str = "raise-blocks"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Raise them in graph order; True when there were any."""
        nodes = [node for node in model.graph if _is_one(node)]
        if not nodes:
            return False
        writer = PairWriter(model, NameScope.of_values(model), NameScope.of_nodes(model))
        return sum(_raised(node, writer) for node in nodes) > 0


def _raised(node: ir.Node, writer: PairWriter) -> bool:
    product = node.op_type == PRODUCT
    blocks = _of_product(node) if product else _of_lookup(node)
    if blocks is None:
        return False
    name = node_key(node)
    wanted = input_at(node, 1 if product else 0)
    weight = _dequantized(
        node, _positive(node, blocks), "" if wanted is None else wanted.name, writer
    )
    if not product:
        axis = ir.AttrInt64("axis", int_attribute(node, "gather_axis", 0))
        real = writer.before(node, "Gather", [weight, node.inputs[1]], [axis], name=name)
    else:
        bias = input_at(node, 5)
        real = writer.before(node, "MatMul", [node.inputs[0], weight], [], name=name)
        if bias is not None:
            inputs = [real.outputs[0], bias]
            real = writer.before(node, "Add", inputs, [], name=f"{name}_bias")
    writer.take_place(node, real)
    return True


def _dequantized(at: ir.Node, blocks: _Blocks, name: str | None, writer: PairWriter) -> ir.Value:
    """A DequantizeLinear of ``blocks`` before ``at``, whose weight is called ``name``."""
    bits = max(blocks.qtype.bits, 4)  # the operator set here has no integers of 2
    word = f"{'' if blocks.qtype.signed else 'u'}int{bits}"
    kind = getattr(ml_dtypes, word) if bits < 8 else np.dtype(word)
    parts = [
        writer.constant(f"{name}_{part}", array)
        for part, array in (
            ("codes", blocks.codes.astype(kind)),
            ("scale", blocks.scales),
            ("zero_point", blocks.points.astype(kind)),
        )
    ]
    attributes = [ir.AttrInt64("axis", blocks.axis), ir.AttrInt64("block_size", blocks.size)]
    made = writer.before(at, "DequantizeLinear", parts, attributes, name=f"{node_key(at)}_weight")
    made.outputs[0].shape = ir.Shape(blocks.codes.shape)
    return made.outputs[0]


def _of_product(node: ir.Node) -> _Blocks | None:
    """The weight (K, N) of a MatMulNBits; None where it is not read."""
    packed, scales, points = (constant_value(input_at(node, place)) for place in (1, 2, 3))
    bits, size = int_attribute(node, "bits", 4), int_attribute(node, "block_size", 32)
    unread = packed is None or scales is None or input_at(node, 4) is not None
    if unread or bits not in _WIDTHS or not _are_codes(node, 3, points):
        return None
    assert packed is not None
    assert scales is not None
    depth, columns = int_attribute(node, "K", 1), int_attribute(node, "N", 1)
    count = -(-depth // max(size, 1))
    _require(node, packed.size == columns * count * size * bits // 8, packed.shape, "weights", size)
    _require(node, scales.size == columns * count, scales.shape, "scales", size)
    if scales.dtype != np.float32:
        return None
    codes = _unpacked(packed.reshape(columns, -1), bits)[:, :depth]
    zeros = np.full((columns, count), 1 << (bits - 1), np.int64)
    if points is not None:
        rows = points.reshape(columns, -1)
        zeros = _unpacked(rows, bits)[:, :count]
    own = scales.reshape(columns, count)
    return _Blocks(codes.T, own.T, zeros.T, QType(bits, signed=False), 0, size)


def _of_lookup(node: ir.Node) -> _Blocks | None:
    """The table of a GatherBlockQuantized; None where it is not read."""
    data, scales, points = (constant_value(input_at(node, place)) for place in (0, 2, 3))
    bits, size = int_attribute(node, "bits", 4), int_attribute(node, "block_size", 128)
    if data is None or scales is None or scales.dtype != np.float32 or bits not in _WIDTHS:
        return None
    if not _are_codes(node, 3, points):
        return None
    qtype, packed = QType(bits, signed=False), data.dtype == np.uint8
    if packed:
        codes = _unpacked(data.reshape(-1, data.shape[-1]), bits).reshape(*data.shape[:-1], -1)
    else:
        qtype, codes = QType.parse(data.dtype.name), data.astype(np.int64)
    axis = int_attribute(node, "quantize_axis", 1) % codes.ndim
    shape = parameter_shape(codes.shape, axis, size)
    _require(node, scales.shape == shape, scales.shape, "scales", size)
    zeros = np.full(shape, 1 << (bits - 1) if packed else 0, np.int64)
    if points is not None and packed:
        zeros = _unpacked(points.reshape(-1, points.shape[-1]), bits)
        zeros = zeros.reshape(*points.shape[:-1], -1)[..., : shape[-1]]
    elif points is not None:
        zeros = points.astype(np.int64)
    return _Blocks(codes, scales, zeros, qtype, axis, size)


def _are_codes(node: ir.Node, place: int, points: _Array | None) -> bool:
    """Whether zero points are left out, or constant integers."""
    if points is None:
        return input_at(node, place) is None
    return points.dtype == np.uint8 or points.dtype.name in ("int4", "uint4", "int2", "uint2")


def _require(node: ir.Node, fits: bool, shape: tuple[int, ...], what: str, size: int) -> None:
    if not fits:
        raise _meaningless(node, f"{what} of shape {shape}, which are no blocks of {size}")


def _positive(node: ir.Node, blocks: _Blocks) -> _Blocks:
    """``blocks`` with the same numbers and scales above zero."""
    scales, points = blocks.scales, blocks.points
    if not np.isfinite(scales).all():
        raise _meaningless(node, f"a scale of {scales[~np.isfinite(scales)].reshape(-1)[0]}")
    ends = blocks.qtype.qmin + blocks.qtype.qmax
    below, none = scales < 0, scales == 0
    each = [_each(part, blocks) for part in (below, none, points)]
    if (blocks.codes != each[2])[each[1]].any():
        raise _meaningless(node, "a scale of zero for codes that are not")
    codes = np.where(each[0], ends - blocks.codes, blocks.codes)
    return _Blocks(
        codes,
        np.where(none, np.float32(1), np.abs(scales)).astype(np.float32),
        np.where(below, ends - points, points),
        blocks.qtype,
        blocks.axis,
        blocks.size,
    )


def _each(parts: _Array, blocks: _Blocks) -> _Array:
    """``parts``, one for each block, as one for each code."""
    length = blocks.codes.shape[blocks.axis]
    return np.repeat(parts, blocks.size, blocks.axis).take(range(length), blocks.axis)


def _meaningless(node: ir.Node, found: str) -> InputError:
    return InputError(
        f"Reading the {node.op_type} '{node_key(node)}'",
        found=found,
        expected="finite scales, one for each block",
        remedy="Export the model again; as it is, its numbers mean nothing.",
    )


def _unpacked(packed: _Array, bits: int) -> _Ints:
    """Rows of bytes as rows of numbers of ``bits`` bits, the lowest first."""
    parts = [(packed >> (bits * part)) & ((1 << bits) - 1) for part in range(8 // bits)]
    return np.stack(parts, axis=-1).reshape(packed.shape[0], -1).astype(np.int64)


def _packed(codes: _Ints, bits: int) -> npt.NDArray[np.uint8]:
    """Rows of numbers as rows of bytes; a last byte is filled up with zeros."""
    each = 8 // bits
    whole = np.pad(codes, [(0, 0), (0, -codes.shape[1] % each)]).astype(np.uint8)
    parts = whole.reshape(len(codes), -1, each) << (bits * np.arange(each, dtype=np.uint8))
    return np.asarray(np.bitwise_or.reduce(parts, axis=-1), np.uint8)


# The other way: the operators of ONNX Runtime for a MatMul, Gemm or Gather of weights in blocks.


@dataclass(frozen=True, slots=True)
class LowerBlocks:
    """Requires: the QDQ convention. Ensures: every MatMul, Gemm and Gather of a constant in blocks
    is an operator above, but those that have none.
    """

    name: str = "lower-blocks"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Lower them in graph order; True when there were any."""
        writer = PairWriter(model, NameScope.of_values(model), NameScope.of_nodes(model))
        done = 0
        for node, maker, qparams in list(_blocked(model)):
            codes = constant_value(maker.inputs[0])
            if codes is None or _reason(node, qparams, codes) is not None:
                continue
            _lowered(node, _read(qparams, codes), writer)
            remove_unread(maker)
            done += 1
        if done:
            model.graph.opset_imports.setdefault(ENGINE_DOMAIN, 1)
        return done > 0


def lower_blocks(model: ir.Model) -> tuple[ir.Model, dict[str, str]]:
    """``model``, QDQ, with ONNX Runtime's operators for weights in blocks, as a new model, and the
    nodes with weights in blocks that stay, with the reason.

    Raises:
        InputError: an invalid Q or DQ, or no weight is in blocks.
    """
    if not any(_blocked(model)):
        raise InputError(
            f"Writing '{model.graph.name}' with {PRODUCT}",
            found="no MatMul, Gemm or Gather with a weight in blocks of integers",
            expected="a schema with such weights alone, as w4a16 or w8_sym_b64",
            remedy="Choose another schema or form.",
        )
    lowered = rewrite(model, (LowerBlocks(), RemoveDead()))  # the constants of the pairs, too
    left = {
        node_key(node): _reason(node, qparams, constant_value(maker.inputs[0])) or ""
        for node, maker, qparams in _blocked(lowered)
    }
    return lowered, left


def _blocked(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Node, QParams]]:
    """The nodes of ``model`` with a weight in blocks of integers, what dequantizes it, and its
    qparams.
    """
    for node in model.graph:
        place = _WEIGHTS.get(node.op_type) if not node.domain else None
        value = None if place is None else input_at(node, place)
        maker = None if value is None else value.producer()
        if maker is None or maker.op_type != "DequantizeLinear":
            continue
        qparams = node_qparams(maker)
        if qparams is not None and qparams.block_size is not None:
            yield node, maker, qparams


_WEIGHTS = {"MatMul": 1, "Gemm": 1, "Gather": 0}


def _reason(node: ir.Node, qparams: QParams, codes: _Array | None) -> str | None:
    """Why a node stays as it is; None: it does not."""
    size, wide = qparams.block_size or 0, qparams.qtype.bits > 8
    if size < _SMALLEST or size & (size - 1):
        return f"its blocks of {size} are no power of two from {_SMALLEST} upwards"
    if wide or codes is None or codes.ndim != 2:
        return "its weight is no constant matrix of 8 bits or fewer"
    turned = node.op_type == "Gather" or bool(int_attribute(node, "transB", 0))
    if (qparams.axis or 0) % 2 != int(turned):
        return "its blocks do not lie along what is summed over"
    if node.op_type == "Gather" and codes.shape[1] % _WHOLE:
        return f"its {codes.shape[1]} columns do not fill whole bytes"
    factors = [float_attribute(node, name, 1.0) for name in ("alpha", "beta")]
    if int_attribute(node, "transA", 0) or factors != [1.0, 1.0]:
        return f"{PRODUCT} has no factors and turns no data"
    return None


def _read(qparams: QParams, codes: _Array) -> _Blocks:
    """Rows of unsigned codes in blocks, of the fewest bits where zero points are in the middle."""
    axis = (qparams.axis or 0) % 2
    rows = codes.astype(np.int64) if axis else codes.astype(np.int64).T
    scales = qparams.scale if axis else qparams.scale.T
    points = qparams.zero_point if axis else qparams.zero_point.T
    size = qparams.block_size or 1
    centred = rows - np.repeat(points, size, 1)[:, : rows.shape[1]]
    widest = next(width for width in _WIDTHS if qparams.qtype.bits <= width)
    for bits in _WIDTHS[: _WIDTHS.index(widest) + 1]:
        half = 1 << (bits - 1)
        if -half <= centred.min(initial=0) and centred.max(initial=0) < half:
            qtype, middle = QType(bits, signed=False), np.full(points.shape, half)
            return _Blocks(centred + half, scales, middle, qtype, 1, size)
    least = qparams.qtype.qmin
    return _Blocks(rows - least, scales, points - least, QType(widest, signed=False), 1, size)


def _lowered(node: ir.Node, blocks: _Blocks, writer: PairWriter) -> None:
    """Put the operator in the place of ``node``."""
    (rows, depth), bits, name = blocks.codes.shape, blocks.qtype.bits, node_key(node)
    numbers = {"bits": bits, "block_size": blocks.size}
    product = node.op_type != "Gather"
    if product:
        numbers |= {"K": depth, "N": rows}
        whole = np.pad(blocks.codes, [(0, 0), (0, -depth % blocks.size)])
        packed = _packed(whole, bits).reshape(rows, -1, blocks.size * bits // 8)
    else:
        numbers |= {"gather_axis": int_attribute(node, "axis", 0), "quantize_axis": 1}
        packed = _packed(blocks.codes, bits)
    parts: dict[str, _Array] = {"packed": packed, "scales": np.ascontiguousarray(blocks.scales)}
    if (blocks.points != 1 << (bits - 1)).any():
        parts["points"] = _packed(blocks.points, bits)
    weight, *others = (writer.constant(f"{name}_{word}", part) for word, part in parts.items())
    real = node.inputs[0 if product else 1]
    given = [real, weight, *others] if product else [weight, real, *others]
    attributes = [ir.AttrInt64(key, number) for key, number in numbers.items()]
    operator = PRODUCT if product else LOOKUP
    made = writer.before(node, operator, given, attributes, name=name, domain=ENGINE_DOMAIN)
    added = input_at(node, 2)
    if added is not None:  # of a Gemm
        made = writer.before(node, "Add", [made.outputs[0], added], [], name=f"{name}_bias")
    writer.take_place(node, made)

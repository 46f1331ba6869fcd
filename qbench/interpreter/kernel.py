"""A kernel: one node compiled under one arithmetic, arrays in, arrays out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import QDQ_OPSET, code_dtype, constant_value, node_key
from qbench.interpreter.arrays import Array
from qbench.interpreter.gemm import Gemm
from qbench.numerics import Arithmetic, QParams, QType

KernelFunction = Callable[[Sequence[Array | None]], Sequence[Array]]
"""Inputs of the node in order (None where left out) → its outputs."""

KernelWrapper = Callable[[ir.Node, KernelFunction], KernelFunction]
"""Wraps a node's kernel; returns the kernel itself where it has nothing to do."""

_POINT_TYPES = frozenset({"int8", "uint8", "int16", "uint16", "int32", "int4", "uint4"})
_BORDERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_CODE_TYPES = frozenset(
    {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16}
)


@dataclass(slots=True)
class Counters:
    """What happened at one node since it was prepared.

    Complete under ``counting_means``; compiled loops, and engines that saturate by themselves, do
    not count.

    Args:
        The first: quantized results that were counted.
        clipped_low, clipped_high: those below and above the ends they are clamped to; where a Relu
            is part of the node, the lower one is its own.
        overflowed: sums that left the accumulator, which wraps or saturates (products, where it
            saturates at each); quotients by zero.
        saturated: pairs of products that did.
    """

    levels: int = 0  # stored name
    clipped_low: int = 0
    clipped_high: int = 0
    overflowed: int = 0
    saturated: int = 0

    @property
    def clipped(self) -> int:
        """At either end."""
        return self.clipped_low + self.clipped_high

    def clip(self, codes: npt.NDArray[Any], low: int, high: int) -> npt.NDArray[Any]:
        """``codes`` clamped to ``low`` … ``high``, with those beyond counted."""
        self.levels += codes.size  # stored name
        self.clipped_low += int(np.count_nonzero(codes < low))
        self.clipped_high += int(np.count_nonzero(codes > high))
        return np.asarray(np.clip(codes, low, high))


@dataclass(frozen=True, slots=True)
class Means:
    """What kernels compute with: how products are made, and whether inner loops are compiled.
    No bit depends on it.
    """

    gemm: Gemm
    compiled: bool


@dataclass(frozen=True, slots=True)
class KernelContext:
    """All that a kernel is made from.

    Args:
        node: what it computes.
        arithmetic: the rules at this node.
        means: what it is computed with.
        counters: where its events are counted.
    """

    node: ir.Node
    arithmetic: Arithmetic
    means: "Means"
    counters: Counters = field(default_factory=Counters)

    def constant(self, index: int) -> Array | None:
        """The constant at input ``index``; None where there is none, or it is computed."""
        return constant_value(self.node.inputs[index]) if index < len(self.node.inputs) else None

    def absent(self, index: int) -> bool:
        """Whether input ``index`` is left out."""
        return index >= len(self.node.inputs) or self.node.inputs[index] is None

    @property
    def opset(self) -> int:
        """Of the node's domain, as the graph imports it."""
        graph = self.node.graph
        return QDQ_OPSET if graph is None else graph.opset_imports.get(self.node.domain, QDQ_OPSET)

    def needed(self, index: int) -> Array:
        """The constant at input ``index``.

        Raises:
            ValueError: it is computed or left out.
        """
        found = self.constant(index)
        if found is None:
            raise ValueError(f"input {index} of {self.node.op_type} is no constant")
        return found

    def scales(self, index: int) -> npt.NDArray[np.float32]:
        """The constant scale or scales at input ``index``.

        Raises:
            ValueError: they are computed, or no float32.
            InputError: one is not positive and finite: such numbers mean nothing.
        """
        found = self.needed(index)
        if found.dtype != np.float32:
            raise ValueError(f"scales of {found.dtype}: arithmetics are known for float32")
        good = np.isfinite(found) & (found > 0)
        if not good.all():
            raise InputError(
                f"Reading the {self.node.op_type} '{node_key(self.node)}'",
                found=f"a scale of {found[~good].reshape(-1)[0]}",
                expected="scales that are positive and finite",
                remedy="Export the model again; as it is, its numbers mean nothing.",
            )
        return found

    def qparams(self, scale: int, zero_point: int, *, axis: int | None = None) -> QParams:
        """The qparams whose scale and zero point are these inputs; a zero point that is left
        out is 0.

        It then has the type that ONNX gives it: of a Q or DQ, of its integers
        (``graph.code_dtype``); of any other operator, of its data.

        Raises:
            ValueError: they are computed, scales are not float32, or the type is not a quantized
                one.
        """
        scales = self.scales(scale)
        points = (
            np.zeros(scales.shape, self._left_out())
            if self.absent(zero_point)
            else self.needed(zero_point)
        )
        if points.dtype.name not in _POINT_TYPES:
            raise ValueError(f"a zero point of type {points.dtype}, which is not a quantized type")
        qtype = QType.parse(points.dtype.name)
        if scales.size == 1:
            return QParams(float(scales.reshape(-1)[0]), int(points.reshape(-1)[0]), qtype)
        return QParams(scales, points.astype(np.int64), qtype, axis=axis)

    def _left_out(self) -> npt.DTypeLike:
        """The type of a zero point that is left out."""
        if self.node.op_type in _BORDERS:
            return code_dtype(self.node).numpy()
        found = [
            value.dtype
            for value in self.node.inputs
            if value is not None and value.dtype is not None
        ]
        known = {dtype for dtype in found if dtype in _CODE_TYPES}
        if len(known) != 1:
            raise ValueError("a zero point is left out, and its type is unknown")
        return known.pop().numpy()


Maker = Callable[[KernelContext], KernelFunction]
"""Makes the kernel of a node; a ValueError gives the reason why this node has none."""

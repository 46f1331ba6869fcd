"""Q and DQ around one value or constant at a time, in a graph that is changed in place."""

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.graph import constant_value, node_key, origin_of, set_origin
from qbench.numerics import QParams, QType, quantize
from qbench.quantization.clips import ClipForm, levels_of
from qbench.quantization.float_writer import write_float_levels
from qbench.quantization.node_writer import NodeWriter
from qbench.quantization.written_types import (
    activation_dtype,
    clips_levels,
    constant_dtype,
    end_values,
    saturates_at,
    stored,
)

_DYNAMIC = QType.parse("uint8")


class PairWriter:
    """The state of one writing: the parameters and integers written so far, and what they stand for now."""

    def __init__(self, model: ir.Model) -> None:
        self._nodes = NodeWriter(model)
        self._graph = model.graph
        self._parameters: dict[tuple[str, QParams, ir.DataType], tuple[ir.Value, ir.Value]] = {}
        self._integers: dict[tuple[str, QParams], ir.Value] = {}
        self._replaced: dict[str, ir.Value] = {}

    def value(self, value: ir.Value, qparams: QParams, clip: ClipForm) -> None:
        """Put ``value`` on its grid for everything that reads it inside the graph; ``clip`` is of its producer."""
        uses = tuple(value.uses())
        if not uses:
            return
        if qparams.qtype.bits > 16:
            write_float_levels(self._nodes, value, qparams)
            return
        producer, dtype = value.producer(), activation_dtype(qparams.qtype)
        moved = producer if clip is not ClipForm.FLOAT else None
        source = value if moved is None else moved.inputs[0]
        assert source is not None
        levels = (qparams.qmin, qparams.qmax)
        if moved is not None and clip is ClipForm.INTEGER:
            levels = levels_of(moved, qparams)
        narrow, stem, after = levels != saturates_at(dtype), value.name or "", producer
        if narrow and not clips_levels(dtype):
            source = self._clipped_values(source, after, qparams, levels)
            after = source.producer()
        parameters = self._written_parameters(value.name or "", qparams, dtype)
        attributes = _attributes(qparams)
        node = self._nodes.made("QuantizeLinear", [source, *parameters], attributes, f"{value.name}_quantized", dtype)
        node.outputs[0].shape = source.shape
        self._nodes.behind(after, node)
        quantized = node.outputs[0]
        if narrow and clips_levels(dtype):
            clipper = moved if clip is ClipForm.INTEGER else None
            quantized = self._clipped_levels(quantized, levels, node_key(clipper) if clipper else stem, clipper)
        for use in uses:
            self._dequantized(quantized, use.node, use.idx, parameters, attributes)
        if moved is not None:
            self._replaced.update({v.name or "": v for v in moved.inputs[1:] if v is not None})
            self._graph.remove(moved, safe=True)

    def dynamic(self, value: ir.Value, qtype: QType, readers: Collection[tuple[str, int]]) -> None:
        """Let every batch choose the grid of ``value`` for ``readers``, by node and index; others read it in float.

        Raises:
            UnsupportedError: a grid that DynamicQuantizeLinear does not give.
        """
        if qtype != _DYNAMIC:
            raise UnsupportedError(
                f"Writing the dynamic parameters of '{value.name}'",
                found=f"a grid of {qtype}",
                expected=f"{_DYNAMIC}, the only one that ONNX's DynamicQuantizeLinear gives",
                remedy="Ask for dynamic activations of that type.",
            )
        uses = tuple(use for use in value.uses() if (node_key(use.node), use.idx) in readers)
        if not uses:
            return
        stem = f"{value.name}_quantized"
        node = self._nodes.made("DynamicQuantizeLinear", [value], [], stem, ir.DataType.UINT8, outputs=3)
        for output, word, dtype in zip(node.outputs[1:], ("scale", "zero_point"), _DYNAMIC_TYPES, strict=True):
            self._nodes.name_output(output, f"{value.name}_{word}")
            output.dtype, output.shape = dtype, ir.Shape([])
        node.outputs[0].shape = value.shape
        self._nodes.behind(value.producer(), node)
        quantized, scale, point = node.outputs
        for use in uses:
            self._dequantized(quantized, use.node, use.idx, (scale, point), [])

    def constant(self, node: ir.Node, index: int, qparams: QParams) -> None:
        """Store the constant at input ``index`` of ``node`` as integers, and dequantize it there.

        Raises:
            IndexError, ValueError: there is none, or ``qparams`` do not fit its shape.
        """
        value = node.inputs[index] if index >= 0 else None
        if value is None:
            raise ValueError("nothing there")
        dtype, key = constant_dtype(qparams.qtype), (value.name or "", qparams)
        if key not in self._integers:
            array = constant_value(value)
            if array is None:
                raise ValueError("no constant there")
            levels = stored(quantize(array, qparams), dtype)
            self._integers[key] = self._nodes.initializer(f"{value.name}_quantized", levels)
        parameters = self._written_parameters(value.name or "", qparams, dtype)
        self._replaced[value.name or ""] = value
        self._dequantized(self._integers[key], node, index, parameters, _attributes(qparams))

    def drop_unused(self) -> None:
        """Remove the float constants that nothing reads any more."""
        for name, value in self._replaced.items():
            if value.uses() or value.is_graph_output():
                continue
            producer = value.producer()
            if producer is not None:
                self._graph.remove(producer, safe=True)
            elif name in self._graph.initializers:
                del self._graph.initializers[name]

    def _clipped_levels(
        self, quantized: ir.Value, levels: tuple[int, int], stem: str, clip: ir.Node | None
    ) -> ir.Value:
        """``quantized`` clipped to ``levels``; ``clip`` is the node of real values that this stands for, if any."""
        dtype, maker = quantized.dtype, quantized.producer()
        assert maker is not None
        assert dtype is not None
        ends = [
            self._nodes.initializer(f"{stem}_{word}", stored(np.asarray(level), dtype))
            for word, level in zip(("low", "high"), levels, strict=True)
        ]
        node = self._nodes.made("Clip", [quantized, *ends], [], f"{stem}_of_levels", dtype)
        node.outputs[0].shape = quantized.shape
        self._nodes.behind(maker, node, origin=None if clip is None else origin_of(clip))
        return node.outputs[0]

    def _clipped_values(
        self, source: ir.Value, after: ir.Node | None, qparams: QParams, levels: tuple[int, int]
    ) -> ir.Value:
        """``source`` clipped to the real values of ``levels``, behind ``after``; per channel by Max and Min."""
        rank = None if source.shape is None else len(source.shape)
        low, high = (
            self._nodes.initializer(f"{source.name}_{word}", ir.tensor(end))
            for word, end in zip(("low", "high"), end_values(qparams, levels, rank), strict=True)
        )
        steps = [("Clip", [low, high])] if qparams.axis is None else [("Max", [low]), ("Min", [high])]
        for operator, ends in steps:
            node = self._nodes.made(operator, [source, *ends], [], f"{source.name}_in_grid", ir.DataType.FLOAT)
            node.outputs[0].shape = source.shape
            self._nodes.behind(after, node)
            source, after = node.outputs[0], node
        return source

    def _dequantized(
        self,
        source: ir.Value,
        consumer: ir.Node,
        index: int,
        parameters: tuple[ir.Value, ir.Value],
        attributes: list[ir.Attr],
    ) -> None:
        wanted = f"{source.name}_for_{node_key(consumer)}"
        node = self._nodes.made("DequantizeLinear", [source, *parameters], attributes, wanted, ir.DataType.FLOAT)
        node.outputs[0].shape = source.shape
        set_origin(node, origin_of(consumer))
        self._nodes.before(consumer, index, node)

    def _written_parameters(self, name: str, qparams: QParams, dtype: ir.DataType) -> tuple[ir.Value, ir.Value]:
        key = (name, qparams, dtype)
        if key not in self._parameters:
            scale = self._nodes.initializer(f"{name}_scale", ir.tensor(np.asarray(qparams.scale)))
            point = self._nodes.initializer(f"{name}_zero_point", stored(qparams.zero_point, dtype))
            self._parameters[key] = (scale, point)
        return self._parameters[key]


_DYNAMIC_TYPES = (ir.DataType.FLOAT, ir.DataType.UINT8)


def _attributes(qparams: QParams) -> list[ir.Attr]:
    attributes = [] if qparams.axis is None else [ir.AttrInt64("axis", qparams.axis)]
    if qparams.block_size is not None:
        attributes.append(ir.AttrInt64("block_size", qparams.block_size))
    return attributes

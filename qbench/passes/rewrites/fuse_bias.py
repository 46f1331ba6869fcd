"""An addition of a constant per channel behind a product becomes its bias."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import (
    constant_value,
    float_attribute,
    input_at,
    node_qparams,
    only_consumer,
    op_spec,
    origin_of,
    set_origin,
    weight_channel_axis,
)
from qbench.passes.contract import Effect, decline, within
from qbench.passes.editing import NameScope, add_constant, take_place
from qbench.passes.requantization.border import border_of

_LIMIT = 2.0**30
"""Of a bias in an accumulator of 32 bits, so that there is room for the products."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class FuseBias:
    """Requires: QDQ. Ensures: no Add of a constant per channel alone reads a Conv,
    ConvTranspose or Gemm of codes.

    Left alone: a product with a bias already, with qparams of its own, with other factors than 1,
    or with computed qparams; a sum that no border per tensor reads, whose steps nothing would
    bound.
    """

    name: str = "fuse-bias"
    effect: ClassVar[Effect] = within(1)

    def run(self, model: ir.Model) -> bool:
        """Fuse them in graph order; True when there was one."""
        values, nodes = NameScope.of_values(model), NameScope.of_nodes(model)
        return sum(self._fused(node, values, nodes) for node in list(model.graph)) > 0

    def _fused(self, product: ir.Node, values: NameScope, nodes: NameScope) -> bool:
        if product.domain or op_spec(product).bias is None or input_at(product, 2) is not None:
            return False
        added = only_consumer(product.outputs[0])
        if added is None or added.domain or added.op_type != "Add":
            return False
        (other,) = [value for value in added.inputs if value is not product.outputs[0]] or [None]
        found = _bias(product, added, other)
        if isinstance(found, str):
            decline(added, found, self.name)
            return False
        _write(product, added, found, (values, nodes))
        return True


def _bias(product: ir.Node, added: ir.Node, other: ir.Value | None) -> tuple[Array, Array] | str:
    """The int32 codes of the bias and their scales, one per channel; or why they do not exist."""
    scales, axis = _scales(product)
    reader = only_consumer(added.outputs[0])
    border = None if reader is None else border_of(reader)
    if scales is None or axis is None:
        return "the operands of the product are not quantized with known qparams"
    if border is None:
        return "no quantizer with qparams per tensor alone reads the sum"
    real = _constant(other)
    weight = product.inputs[1]
    channels = None if weight is None or weight.shape is None else weight.shape[axis]
    if product.op_type == "ConvTranspose" and isinstance(channels, int):
        group = product.attributes.get("group")
        channels *= 1 if group is None else group.as_int()
    if real is None or not isinstance(channels, int) or not _a_channel(real, channels, product):
        return "what is added is not a constant per channel"
    if scales.size not in (1, channels) or scales.max() > float(border.qparams.scale):
        return "a step of the product is wider than one of the result"
    codes = np.rint(np.broadcast_to(real.reshape(-1), (channels,)).astype(np.float64) / scales)
    if not np.abs(codes).max(initial=0) <= _LIMIT:  # NaN does not fit either
        return "the bias does not fit an accumulator of 32 bits"
    return codes.astype(np.int32), np.asarray(scales, np.float32).reshape(
        () if scales.size == 1 else -1
    )


def _scales(product: ir.Node) -> tuple[Array | None, int | None]:
    """float32 products of the scales of data and weight, and the weight's axis of channels."""
    factors = [float_attribute(product, name, 1.0) for name in ("alpha", "beta")]
    all_qparams = [_qparams(value) for value in product.inputs[:2]]
    weight = product.inputs[1]
    if (
        factors != [1.0, 1.0]
        or all_qparams[0] is None
        or all_qparams[1] is None
        or weight is None
        or weight.shape is None
    ):
        return None, None
    axis = weight_channel_axis(product, len(weight.shape))
    data, weights = all_qparams
    if (
        data.axis is not None
        or weights.block_size
        or (weights.axis is not None and weights.axis != axis)
    ):
        return None, None
    if product.op_type == "ConvTranspose" and weights.axis is not None:
        return None, None  # its channels are those of a group
    return np.asarray(data.scale * weights.scale, np.float32), axis


def _qparams(value: ir.Value | None) -> Any:  # noqa: ANN401 - a QParams or None
    maker = None if value is None else value.producer()
    return None if maker is None or maker.op_type != "DequantizeLinear" else node_qparams(maker)


def _constant(value: ir.Value | None) -> Array | None:
    """The reals of a constant, or of dequantized constant codes."""
    known = constant_value(value)
    maker = None if value is None else value.producer()
    if known is not None or maker is None or maker.op_type != "DequantizeLinear":
        return known
    codes, qparams = constant_value(maker.inputs[0]), node_qparams(maker)
    if codes is None or qparams is None:
        return None
    scale, point = qparams.expanded(codes.shape)
    return np.asarray((codes.astype(np.int64) - point) * scale.astype(np.float64))


def _a_channel(real: Array, channels: int, product: ir.Node) -> bool:
    """Whether ``real`` broadcasts over channels and nothing else."""
    rank = None if product.outputs[0].shape is None else len(product.outputs[0].shape)
    if real.size == 1:
        return real.ndim <= (2 if rank is None else rank)
    if product.op_type == "Gemm":
        return real.shape in ((channels,), (1, channels))
    wanted = None if rank is None else (channels, *[1] * (rank - 2))
    return wanted is not None and real.shape in (wanted, (1, *wanted))


def _write(
    product: ir.Node,
    added: ir.Node,
    bias_codes: tuple[Array, Array],
    names: tuple[NameScope, NameScope],
) -> None:
    graph, (codes, scales), (values, nodes) = product.graph, bias_codes, names
    assert isinstance(graph, ir.Graph)
    stem = f"{product.name}.bias"
    operands = [
        add_constant(graph, f"{stem}_{word}", array, values)
        for word, array in (
            ("quantized", codes),
            ("scale", scales),
            ("point", np.zeros(scales.shape, np.int32)),
        )
    ]
    axis = [] if scales.ndim == 0 else [ir.AttrInt64("axis", 0)]
    bias = ir.Node("", "DequantizeLinear", operands, axis, num_outputs=1, name=nodes.fresh(stem))
    bias.outputs[0].name = values.fresh(stem)
    bias.outputs[0].dtype, bias.outputs[0].shape = ir.DataType.FLOAT, ir.Shape(codes.shape)
    set_origin(bias, origin_of(product))
    graph.insert_before(product, bias)
    product.resize_inputs(3)
    product.replace_input_with(op_spec(product).bias or 2, bias.outputs[0])
    take_place(added.outputs[0], product.outputs[0])
    graph.remove(added, safe=True)

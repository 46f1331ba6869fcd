"""Cross-layer equalization: factors move between linear operators until their weights have
similar ranges.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.graph import (
    constant_value,
    forget_lineage,
    input_at,
    int_attribute,
    is_constant,
    is_pinned,
    node_key,
    only_consumer,
    op_spec,
)
from qbench.passes.contract import LOSSY, Effect
from qbench.passes.editing import NameScope, set_constant_operand, take_place

# The factors that give the weights of neighbouring linear operators the same range in every channel
# they share.
#
# With r¹_i the largest absolute weight that makes channel i and r²_i the largest that reads it,
# each pair takes
#
#     s_i = √(r¹_i / r²_i)
#     W¹ := S⁻¹ · W¹,   W² := W² · S        so that both become √(r¹_i · r²_i)
#
# over and over in graph order, as an operator in the middle of a chain belongs to two pairs, until
# no factor moves by more than a ten-thousandth. A channel that is all but zero on one side has no
# range to speak of and keeps its factor.
#
# Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
# (arXiv 1906.04721), 4.1.

Doubles = npt.NDArray[np.float64]

_SETTLED = 1e-4
_MATTERS = 1e-3
"""Less than this is left as it is, so that equalizing what was equalized, and rounded to
float32, changes nothing.
"""

_SWEEPS = 1000
_DEAD = 2.0**-20
"""Channels whose weights are this small compared with the operator's largest: they reach no
16-bit code.
"""


@dataclass(frozen=True, slots=True)
class SharedChannels:
    """Two operators by key, and how many input channels of the second each output channel of
    the first becomes.
    """

    first: str
    second: str
    columns: int


def equalizing_scales(
    magnitudes: Mapping[str, Doubles],
    pairs: Sequence[SharedChannels],
    floors: Sequence[Doubles | None] = (),
) -> tuple[Doubles, ...] | None:
    """S of every pair, of shape [channels]; None when no factor would matter.

    Args:
        magnitudes: operator → largest absolute weight over the window, shape [group, outputs,
            inputs].
        pairs: in graph order; an operator is first in at most one and second in at most one.
        floors: of every pair the least factor of each channel, at most 1; NaN: the channel keeps
            the factor 1; None, or none at all: any factor will do.

    Raises:
        UnsupportedError: factors still move after a thousand sweeps, as along chains of some eighty
            operators. Half equalized would be another graph each time that it is equalized again.
    """
    current = {key: np.array(array, np.float64) for key, array in magnitudes.items()}
    total = [np.ones(_made(current[pair.first]).size) for pair in pairs]
    moved = largest = 0.0
    for sweep in range(_SWEEPS):
        largest = 0.0
        for index, pair in enumerate(pairs):
            least = floors[index] if floors else None
            step = _step(current, pair, None if least is None else least / total[index])
            total[index] *= step
            largest = max(largest, float(np.abs(np.log(step)).max(initial=0.0)))
        moved = largest if not sweep else moved
        if moved <= _MATTERS:
            return None
        if largest <= _SETTLED:
            return tuple(total)
    raise UnsupportedError(
        f"Equalizing the weights of {len(current)} operators",
        found=f"factors that still move by {np.expm1(largest):.1%} after {_SWEEPS} sweeps",
        expected="factors that settle",
        remedy="Choose a canonical pipeline without equalization.",
    )


def _step(
    current: dict[str, Doubles], pair: SharedChannels, least: Doubles | None = None
) -> Doubles:
    """One pair equalized in ``current``; the factors that did it, none below ``least``."""
    first, second = current[pair.first], current[pair.second]
    made = _made(first)
    read = second.max(axis=1).reshape(-1, pair.columns).max(axis=1)
    living = (made > _DEAD * made.max(initial=0.0)) & (read > _DEAD * read.max(initial=0.0))
    scale = np.ones(made.size)
    scale[living] = np.sqrt(made[living]) / np.sqrt(read[living])
    if least is not None:
        scale = np.where(np.isnan(least), 1.0, np.maximum(scale, least))
    current[pair.first] = first / scale.reshape(*first.shape[:2], 1)
    current[pair.second] = current[pair.second] * np.repeat(scale, pair.columns).reshape(
        second.shape[0], 1, -1
    )
    return scale


def _made(magnitude: Doubles) -> Doubles:
    """The range of every output channel."""
    return np.asarray(magnitude.max(axis=2).reshape(-1))


# Weights of linear operators as blocks, so that every operator has its channels on the same axes.
#
#     [group, output channel of the group, input channel of the group, element of the window]
#
#     Conv [G·O, I, …]    ConvTranspose [G·I, O, …]    Gemm [O, I] when transB, else [I, O]; one
#                                                      group, no window
#
# Output channel o of group g is channel g·O + o of the result, input channel i of it channel g·I +
# i of the data.


_Array = npt.NDArray[Any]


def blocks_of(node: ir.Node, weight: _Array) -> _Array:
    """``weight`` of the linear ``node`` as blocks, shape [group, outputs, inputs, window]; same
    dtype.
    """
    if node.op_type == "Gemm":
        by_output = weight if int_attribute(node, "transB", 0) else weight.T
        return by_output[None, :, :, None]
    groups = int_attribute(node, "group", 1)
    blocks = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return blocks if node.op_type == "Conv" else np.swapaxes(blocks, 1, 2)


def weight_of_blocks(node: ir.Node, blocks: _Array, shape: tuple[int, ...]) -> _Array:
    """The weight of ``shape`` whose blocks are ``blocks``: undoes ``blocks_of``."""
    if node.op_type == "Gemm":
        by_output = blocks[0, :, :, 0]
        return by_output if int_attribute(node, "transB", 0) else by_output.T
    return (blocks if node.op_type == "Conv" else np.swapaxes(blocks, 1, 2)).reshape(shape)


# Pairs of linear operators between which a factor per channel can be moved, because all between
# them lets it through.
#
#     B(f(A(x)))  =  B(S · f(S⁻¹ · A(x)))        where f(s·x) = s·f(x) for s > 0, channel by channel
#
# Such are Relu, LeakyRelu, PRelu, Abs, poolings by mean or maximum, and Flatten, which makes
# columns of a channel. A Clip is none of them: its upper end would move with the channel.

_HOMOGENEOUS = frozenset(
    {
        "Abs",
        "AveragePool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LeakyRelu",
        "MaxPool",
        "PRelu",
        "Relu",
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class LinearPair:
    """Two linear operators and what is between them; nothing else reads any value from one to
    the other.

    Args:
        first: makes the channels.
        second: sums over them.
        between: the nodes between, in order.
        columns: how many input channels of ``second`` one output channel of ``first`` becomes.
    """

    first: ir.Node
    second: ir.Node
    between: tuple[ir.Node, ...]
    columns: int


def linear_pairs(
    graph: ir.Graph, *, through: frozenset[str] = frozenset()
) -> tuple[LinearPair, ...]:
    """The pairs of ``graph`` in its order; ``through`` names operators that may be between as
    well.
    """
    return tuple(_pairs(graph, _HOMOGENEOUS | through))


def _pairs(graph: ir.Graph, passing: frozenset[str]) -> Iterator[LinearPair]:
    for first in graph:
        if not _is_scalable(first) or not _has_scalable_bias(first):
            continue
        between: list[ir.Node] = []
        value = first.outputs[0]
        while (node := _reader(value)) is not None and _passes(node, passing):
            between.append(node)
            value = node.outputs[0]
        if node is not None and _is_scalable(node) and not int_attribute(node, "transA", 0):
            columns = _columns(first, node, between)
            if columns is not None:
                yield LinearPair(first, node, tuple(between), columns)


def _reader(value: ir.Value) -> ir.Node | None:
    """The only reader of ``value``, where it reads it as data and the value has no qparams of
    its own.
    """
    reader = None if is_pinned(value) else only_consumer(value)
    return (
        reader if reader is not None and reader.inputs[0] is value and not reader.domain else None
    )


def _passes(node: ir.Node, passing: frozenset[str]) -> bool:
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return False  # the indices of a MaxPool
    return node.op_type in passing or (
        node.op_type == "Flatten" and int_attribute(node, "axis", 1) == 1
    )


def _is_scalable(node: ir.Node) -> bool:
    """Whether ``node`` is linear with a constant float32 weight that is free to change."""
    if node.domain or op_spec(node).bias is None:
        return False
    weight = node.inputs[1]
    return (
        weight is not None
        and is_constant(weight)
        and weight.dtype == ir.DataType.FLOAT
        and not is_pinned(weight)
    )


def _has_scalable_bias(node: ir.Node) -> bool:
    bias = input_at(node, 2)
    return bias is None or (is_constant(bias) and not is_pinned(bias))


def _columns(first: ir.Node, second: ir.Node, between: list[ir.Node]) -> int | None:
    """Input channels of ``second`` for each output channel of ``first``; None where the two do
    not fit.
    """
    made, read = constant_value(first.inputs[1]), constant_value(second.inputs[1])
    assert made is not None
    assert read is not None
    if made.ndim < 2 or read.ndim < 2:
        return None
    groups, outputs = blocks_of(first, made).shape[:2]
    read_groups, _, inputs = blocks_of(second, read).shape[:3]
    columns, rest = divmod(read_groups * inputs, groups * outputs)
    flattened = any(node.op_type == "Flatten" for node in between)
    return columns if not rest and columns and (columns == 1 or flattened) else None


# Cross-layer equalization: factors move between neighbouring linear operators until their weights
# have like ranges.
#
#     y = B·f(A·x + a) + b    =    (B·S) · f((S⁻¹·A)·x + S⁻¹·a) + b
#     f positively homogeneous, S diagonal, > 0
#
# A weight with one scale per tensor loses channels that are small compared with the largest;
# afterwards no channel is smaller than need be. The function is the same but for rounding; the
# values between are not: a profile is taken behind this pass.


@dataclass(frozen=True, slots=True)
class Equalize:
    """Requires: constants are initializers, nodes are named, normalizations are folded, no
    weight is shared.

    Ensures: in every pair of linear operators that ``linear_pairs`` finds, both weights have the
    same range in every channel that they share, to a thousandth. Left alone: pairs with a Clip
    between them, weights of other types than float32, weights and values that came with qparams.
    Begins a new lineage, as values change under their names.

    Raises (from ``run``):
        UnsupportedError: a chain of operators is so long that its factors do not settle.
    """

    name: str = "equalize"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Equalize; True when any weight had to change."""
        return equalize_pairs(model, linear_pairs(model.graph))


def equalize_pairs(
    model: ir.Model, pairs: Sequence[LinearPair], floors: Sequence[Doubles | None] = ()
) -> bool:
    """Equalize ``pairs`` of ``model``, which changes; True when any weight had to.

    Args:
        model: canonical.
        pairs: of it.
        floors: as ``equalizing_scales`` takes them.

    Raises:
        UnsupportedError: factors do not settle.
    """
    nodes = {node_key(node): node for pair in pairs for node in (pair.first, pair.second)}
    magnitudes = {key: np.abs(_blocks(node)).max(axis=3) for key, node in nodes.items()}
    shared = [SharedChannels(node_key(p.first), node_key(p.second), p.columns) for p in pairs]
    scales = equalizing_scales(magnitudes, shared, floors)
    if scales is None:
        return False
    factors = {key: _Factors() for key in nodes}
    for pair, scale in zip(shared, scales, strict=True):
        factors[pair.first].made = scale
        factors[pair.second].read = np.repeat(scale, pair.columns)
    names = NameScope.of_values(model)
    for key, node in nodes.items():
        _scale(node, factors[key], names)
    forget_lineage(model)
    return True


@dataclass(slots=True)
class _Factors:
    """By what the output channels of an operator are divided, and its input channels
    multiplied; None: 1.
    """

    made: Doubles | None = None
    read: Doubles | None = None


def _blocks(node: ir.Node) -> Doubles:
    weight = constant_value(node.inputs[1])
    assert weight is not None
    return blocks_of(node, weight.astype(np.float64))


def _scale(node: ir.Node, factors: _Factors, names: NameScope) -> None:
    weight, blocks = constant_value(node.inputs[1]), _blocks(node)
    assert weight is not None
    if factors.read is not None:
        blocks = blocks * factors.read.reshape(blocks.shape[0], 1, blocks.shape[2], 1)
    if factors.made is not None:
        blocks = blocks / factors.made.reshape(*blocks.shape[:2], 1, 1)
    set_constant_operand(
        node, 1, weight_of_blocks(node, blocks, weight.shape).astype(weight.dtype), names
    )
    bias = constant_value(node.inputs[2]) if len(node.inputs) > 2 else None
    if bias is not None and factors.made is not None:
        # The last axis of a bias runs over channels, or is one number for all of them.
        set_constant_operand(
            node, 2, (bias.astype(np.float64) / factors.made).astype(bias.dtype), names
        )


# A Clip from 0 to a constant between two linear operators becomes a Relu, so that the pair can be
# equalized.
#
#     clip(x, 0, h)    →    max(x, 0)        another function: where x > h the result is larger now
#
# This costs accuracy in float already (networks trained with ReLU6 use its upper end); what it
# costs is measured, as any loss is, against the network as it came. Source: Nagel et al. (arXiv
# 1906.04721), 5.1.


@dataclass(frozen=True, slots=True)
class OpenClips:
    """Requires: constants are initializers. Ensures: no pair is left unequalized because of a
    Clip(0, h) alone.

    Nodes and results keep their names. Left alone: every other Clip, such as one before a sum.
        Begins a new lineage.
    """

    name: str = "open-clips"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Replace them; True when there were any."""
        found = {
            node: None
            for pair in linear_pairs(model.graph, through=frozenset({"Clip"}))
            if all(opens(clip) for clip in pair.between if clip.op_type == "Clip")
            for node in pair.between
            if node.op_type == "Clip"
        }
        for clip in found:
            _replace(clip)
        if found:
            forget_lineage(model)
        return bool(found)


def opens(clip: ir.Node) -> bool:
    """Whether the lower end of ``clip`` is 0 and the upper one, if any, a positive constant."""
    low, high = (constant_value(value) for value in (*clip.inputs[1:], None, None)[:2])
    if low is None or low.size != 1 or low.item() != 0 or is_pinned(clip.outputs[0]):
        return False
    absent = len(clip.inputs) < 3 or clip.inputs[2] is None
    return absent or (
        high is not None and high.size == 1 and math.isfinite(high.item()) and high.item() > 0
    )


def _replace(clip: ir.Node) -> None:
    graph = clip.graph
    assert isinstance(graph, ir.Graph)
    relu = ir.Node("", "Relu", [clip.inputs[0]], num_outputs=1, name=clip.name)
    relu.metadata_props.update(clip.metadata_props)
    graph.insert_after(clip, relu)
    take_place(clip.outputs[0], relu.outputs[0])
    graph.remove(clip, safe=True)

"""Limits that are missing, moved or merged."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.hypotheses.hypothesis import Explanation, UnitEvidence
from qbench.diagnosis.hypotheses.interior import Floats
from qbench.diagnosis.units import limits_of
from qbench.graph import (
    clip_of_codes,
    node_qparams,
    only_consumer,
    own_copy,
    producer,
    values_by_name,
)
from qbench.judging import Cause
from qbench.numerics import QType


def limits(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """A limit of a Relu, a Clip or the codes that is missing or changed, or values that wrap
    instead of being clamped.

    Only for a quantized result.
    """
    unit = facts.captured.unit
    qparams, code_type = unit.qparams, unit.code_type
    if qparams is None or code_type is None:
        return
    zero = int(qparams.zero_point)
    low, high = qparams.qtype.qmin - zero, qparams.qtype.qmax - zero
    free = np.where(np.isfinite(facts.real), np.rint(facts.real), facts.found)
    if facts.lowest > low or facts.highest < high:
        for words, ends in {
            "no limits at all": (low, high),
            f"no upper limit of {facts.highest:g} steps": (facts.lowest, high),
            f"no lower limit of {facts.lowest:g} steps": (low, facts.highest),
            "a limit at 0 and no upper one": (0, high),
        }.items():
            yield _clamped(facts, words, free, *ends)
    yield from _others(facts, free)
    for bits in dict.fromkeys((8, qparams.qtype.bits, code_type.bits)):
        register = QType(bits, signed=qparams.qtype.signed)
        first, last = register.qmin - zero, register.qmax - zero
        wrapped = (free - first) % (1 << bits) + first
        for beyond, where in (
            (free != facts.rounded(free), ""),
            (free > last, " above"),
            (free < first, " below"),
        ):
            words = f"codes that wrap at {bits} bits{where} in place of being clamped"
            yield _codes(facts, words, np.where(beyond, wrapped, facts.correct), Cause.ACCUMULATOR)


def _others(facts: UnitEvidence, free: Floats) -> Iterator[Explanation | None]:
    """A limit at the least or largest found value, if more than one value lies there."""
    inside = facts.found[np.isfinite(facts.found)]
    if not inside.size:
        return
    least, most = float(inside.min()), float(inside.max())
    for words, end, ends in (
        ("an upper limit of {:g} steps", most, (facts.lowest, most)),
        ("a lower limit of {:g} steps", least, (least, facts.highest)),
    ):
        if int((facts.found == end).sum()) > 1 and end not in (facts.lowest, facts.highest):
            yield _clamped(facts, words.format(end), free, *ends)


def _clamped(
    facts: UnitEvidence, words: str, free: Floats, low: float, high: float
) -> Explanation | None:
    """Values within the limits stay those of the arithmetic."""
    within = (free > facts.lowest) & (free < facts.highest)
    return _codes(facts, words, np.clip(np.where(within, facts.correct, free), low, high))


def _codes(
    facts: UnitEvidence, words: str, codes: Floats, cause: Cause = Cause.ABSORBED_CLIP
) -> Explanation | None:
    """``codes`` are rounded: at ties the arithmetic may have the neighbour."""
    near = np.abs(codes - facts.found) <= 1
    tied = near & (np.abs(facts.real - np.floor(facts.real) - 0.5) <= facts.slack)
    return facts.weigh_codes(cause, words, np.where(tied & ~facts.differing, facts.found, codes))


def chains(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Inner quantizers that were removed: values are not rounded there any more, or not clamped
    either.

    Only a graph before a pass has inner quantized values; every other unit ends at quantized
    values.
    """
    graph = facts.captured.unit.graph
    inside = [str(node.outputs[0].name) for node in _inside(graph.graph)]
    for names in dict.fromkeys((*((name,) for name in inside), tuple(inside)) if inside else ()):
        where = ", ".join(names)
        for is_limited, cause, words in (
            (True, Cause.ROUNDING, f"numbers that are not rounded to '{where}' in between"),
            (False, Cause.ABSORBED_CLIP, f"numbers that '{where}' does not hold back in between"),
        ):
            yield facts.weigh_arithmetic(cause, words, graph=_without(graph, names, is_limited))


def _inside(graph: ir.Graph) -> list[ir.Node]:
    """The quantizers per tensor that only one DequantizeLinear reads."""
    found = (node for node in graph if node.op_type == "QuantizeLinear" and _pair(node) is not None)
    return [
        node
        for node in found
        if (qparams := node_qparams(node)) is not None and qparams.axis is None
    ]


def _pair(quantizer: ir.Node) -> ir.Node | None:
    clip = clip_of_codes(quantizer)
    reader = only_consumer((quantizer if clip is None else clip).outputs[0])
    return reader if reader is not None and reader.op_type == "DequantizeLinear" else None


def _without(model: ir.Model, names: tuple[str, ...], is_limited: bool) -> ir.Model:
    """``model`` without these quantizers; with the limits of their codes where ``is_limited``."""
    copy = own_copy(model)
    for quantizer in [node for node in _inside(copy.graph) if node.outputs[0].name in names]:
        pair, qparams, real = _pair(quantizer), node_qparams(quantizer), quantizer.inputs[0]
        assert pair is not None
        assert qparams is not None
        assert real is not None
        if is_limited:
            ends = [
                (end - int(qparams.zero_point)) * float(qparams.scale)
                for end in (qparams.qmin, qparams.qmax)
            ]
            limits = [
                _constant(copy.graph, f"{quantizer.outputs[0].name}_end_{place}", end)
                for place, end in enumerate(ends)
            ]
            clip = ir.Node("", "Clip", [real, *limits], name=f"{quantizer.outputs[0].name}_ends")
            copy.graph.insert_before(quantizer, clip)
            real = clip.outputs[0]
        for use in tuple(pair.outputs[0].uses()):
            use.node.replace_input_with(use.idx, real)
    return copy


def _constant(graph: ir.Graph, name: str, number: float) -> ir.Value:
    value = ir.Value(name=name, const_value=ir.tensor(np.array(number, np.float32), name=name))
    graph.initializers[name] = value
    return value


_STEP = 1.25
"""Steps up to which two limits are equal: a limit may be rounded, and values up to half a step
beyond it, too.
"""
_WEIGHT = 0.95


def float_limits(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """A limit that differs from that of the float graph, with values between the two.

    Only for a quantized result of a Relu or Clip with constant limits in the float graph.
    """
    unit = facts.captured.unit
    if facts.original is None or unit.code_type is None:
        return
    limits = limits_of(producer(values_by_name(facts.original).get(unit.represents)), unit.scale)
    if limits is None:
        return
    low, high = limits
    lowest, highest = (end - unit.zero_point for end in (unit.code_type.qmin, unit.code_type.qmax))
    for side, here, there in (
        ("lower", facts.low, max(low, lowest - 0.5)),
        ("upper", facts.high, min(high, highest + 0.5)),
    ):
        between = (facts.real > min(here, there)) & (facts.real < max(here, there))
        if abs(here - there) > _STEP and between.any():
            evidence = (
                f"the {side} limit is {here:.4g} steps in the quantized graph and {there:.4g} in "
                f"the float graph: {int(between.sum())} of {between.size} values lie in between"
            )
            yield Explanation(cause=Cause.ABSORBED_CLIP, evidence=evidence, weight=_WEIGHT)

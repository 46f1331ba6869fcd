"""Scales of another channel, multipliers of few bits, operands that are not rescaled to one
scale.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.hypotheses.arithmetic import multipliers
from qbench.diagnosis.hypotheses.hypothesis import Explanation, Mask, Product, UnitEvidence
from qbench.diagnosis.hypotheses.interior import Floats
from qbench.graph import constant_value
from qbench.judging import Cause
from qbench.numerics import dequantize

_FITTED = 0.97
_LINEAR = frozenset(
    {"Add", "Sub", "Concat", "Sum", "Identity", "Reshape", "Transpose", "Flatten", "AveragePool"}
)
_LINEAR_TOO = frozenset(
    {"GlobalAveragePool", "ReduceMean", "Resize", "MaxPool", "Relu", "Slice", "Pad", "Mul"}
)


def scales(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Other scales of the weights, and other multipliers, of a product by constant weights."""
    product = Product.of(facts)
    if product is None:
        return
    scales = product.scales
    for words, other in _of_other_channels(scales):
        yield from _scaled(facts, product, facts.along(other / scales), words)
    for words, held in _stored(scales):
        yield from _scaled(facts, product, facts.along(held / scales), words)
    factor = fitted_factor(facts.real, facts.found, facts.inside)
    yield from _scaled(
        facts,
        product,
        np.asarray(factor),
        f"a multiplier {factor:.4g} times the right one",
        fitted=True,
    )
    yield from multipliers(facts, product)


def weight_scales(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The same of the weights where ``Product`` has nothing: the other operand is real, or an
    operator comes after.
    """
    inner = facts.interior
    one = (
        None
        if inner is None or not facts.is_product or Product.of(facts) is not None
        else inner.operand(1)
    )
    if inner is None or one is None or one.qparams is None or one.codes is None:
        return
    scales = np.asarray(one.qparams.scale, np.float64)
    channels = _of_other_channels(scales) if scales.ndim == 1 else ()
    for words, other in (*channels, *_stored(scales)):
        held = other.astype(np.float32)
        if np.array_equal(held, one.qparams.scale):
            continue
        values = {
            **facts.operands,
            one.name: dequantize(one.codes, replace(one.qparams, scale=held)),
        }
        yield facts.weigh_reals(Cause.WRONG_SCALE, words, inner.run(values))


def _of_other_channels(scales: Floats) -> Iterator[tuple[str, Floats]]:
    """(words, scales) of a kernel that takes the scale of another channel."""
    if scales.size < 2:
        return
    yield "the scale of the next channel", np.roll(scales, -1)
    yield "the scale of the channel before", np.roll(scales, 1)
    yield "the first channel's scale in all", np.full_like(scales, scales[0])
    yield "the last channel's scale in all", np.full_like(scales, scales[-1])
    yield "the largest scale in all channels", np.full_like(scales, scales.max())
    yield "the mean scale in all channels", np.full_like(scales, scales.mean())
    yield "the scales in the opposite order", scales[::-1]


def _scaled(
    facts: UnitEvidence, product: Product, by: Floats, words: str, *, fitted: bool = False
) -> Iterator[Explanation | None]:
    """The sums times ``by``, with the bias or without it, for an engine that adds the bias as a
    real number.
    """
    if np.allclose(by, 1, rtol=1e-6, atol=0):
        return
    share = _FITTED if fitted else 1.0
    yield facts.weigh_reals(Cause.WRONG_SCALE, words, facts.real * by, share)
    if product.bias is not None:
        sums_only = (facts.real - product.bias) * by + product.bias
        yield facts.weigh_reals(
            Cause.WRONG_SCALE, f"{words} (not of the bias)", sums_only, share * _FITTED
        )


def operand_scales(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Operands of a sum or a concatenation with another factor.

    The part of each operand is the result when the others are 0.
    """
    inner = facts.interior
    if inner is None or facts.is_product:
        return
    feeds = [name for name, one in inner.operands.items() if one.feed and one.qparams is not None]
    if not feeds or inner.node.op_type not in _LINEAR | _LINEAR_TOO or len(feeds) > 8:
        return
    if inner.node.op_type == "Mul":
        yield _whole(facts)
        yield from _by_other_qparams(facts, feeds)
        return
    silent = {name: facts.operands[name] * 0 for name in feeds}
    parts = [inner.run({**facts.operands, **silent, name: facts.operands[name]}) for name in feeds]
    yield from _fitted(facts, feeds, parts)
    yield from _by_other_qparams(facts, feeds)


def _by_other_qparams(facts: UnitEvidence, feeds: list[str]) -> Iterator[Explanation | None]:
    """One operand, or all of them, dequantized with the parameters of another."""
    inner = facts.interior
    assert inner is not None
    for of in feeds:
        qparams = inner.operands[of].qparams
        assert qparams is not None
        others = {
            name: dequantize(facts.feeds[inner.operands[name].feed], qparams)
            for name in feeds
            if (other := inner.operands[name].qparams) is None
            or (qparams.scale, qparams.zero_point) != (other.scale, other.zero_point)
        }
        for name, array in others.items():
            real = inner.run({**facts.operands, name: array})
            yield facts.weigh_reals(
                Cause.WRONG_SCALE, f"'{name}' read with the qparams of '{of}'", real
            )
        if len(others) > 1:
            real = inner.run({**facts.operands, **others})
            yield facts.weigh_reals(
                Cause.WRONG_SCALE, f"all operands read with the qparams of '{of}'", real
            )


def _fitted(
    facts: UnitEvidence, feeds: list[str], parts: Sequence[Floats]
) -> Iterator[Explanation | None]:
    inner = facts.interior
    assert inner is not None
    for name, part in zip(feeds, parts, strict=True):
        qparams = inner.operands[name].qparams
        assert qparams is not None
        raw = inner.scale / float(qparams.scale)
        if abs(raw - 1) > 1e-6:
            words = f"'{name}' taken over without being rescaled to the scale of the result"
            yield facts.weigh_reals(Cause.WRONG_SCALE, words, facts.real + (raw - 1) * part)
            zero, own = int(qparams.zero_point), facts.captured.unit.zero_point
            mask = part != 0
            taken = facts.real + np.where(mask, (raw - 1) * part + zero - own, 0)
            yield facts.weigh_reals(Cause.WRONG_SCALE, f"codes of {words}", taken)
    inside = facts.inside
    if int(inside.sum()) <= 2 * len(parts):
        return
    system = np.stack([part[inside] for part in parts], axis=1)
    factors, *_ = np.linalg.lstsq(system, facts.found[inside], rcond=None)
    for name, part, factor in zip(feeds, parts, factors, strict=True):
        if abs(factor - 1) > 1e-3:
            words = f"'{name}' counted {factor:.4g} times"
            yield facts.weigh_reals(
                Cause.WRONG_SCALE, words, facts.real + (factor - 1) * part, _FITTED
            )
    every = facts.real + sum(
        (factor - 1) * part for factor, part in zip(factors, parts, strict=True)
    )
    words = f"operands counted {', '.join(f'{factor:.4g}' for factor in factors)} times"
    yield facts.weigh_reals(Cause.WRONG_SCALE, words, every, _FITTED**2)


def stored_scales(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The weights' scales in a shorter type, computed by the arithmetic itself: the effect is
    smaller than ties.

    Only for a product, on a backend that declares its arithmetic.
    """
    product = Product.of(facts) if facts.claimed else None
    if product is None:
        return
    for words, held in _stored(product.scales):
        if np.array_equal(held, product.scales):
            continue
        model = facts.captured.unit.graph.clone()
        pair = next(node for node in model.graph if node.outputs[0].name == product.weight)
        old = pair.inputs[1]
        array = None if old is None else constant_value(old)
        if old is None or array is None:
            return
        name = f"{old.name}_in_a_shorter_type"
        tensor = ir.tensor(held.reshape(array.shape).astype(np.float32), name=name)
        model.graph.initializers[name] = value = ir.Value(name=name, const_value=tensor)
        pair.replace_input_with(1, value)
        yield facts.weigh_arithmetic(Cause.WRONG_SCALE, words, graph=model)


def _stored(scales: Floats) -> Iterator[tuple[str, Floats]]:
    smallest = float(np.finfo(np.float16).smallest_subnormal)
    halves = np.maximum(scales.astype(np.float32).astype(np.float16).astype(np.float64), smallest)
    yield "weights' scales in half precision", halves
    fraction, exponent = np.frexp(scales)
    bfloat16 = np.asarray(np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8))
    yield "weights' scales in the 8 bits of bfloat16", bfloat16
    yield "weights' scales as powers of two", np.exp2(np.rint(np.log2(scales)))


def fitted_factor(real: Floats, found: Floats, inside: Mask) -> float:
    """The factor of ``real`` that fits ``found`` best, among the values ``inside`` that are
    larger than a step.
    """
    chosen = inside & (np.abs(real) > 1)
    energy = float((real[chosen] ** 2).sum())
    return float((found * real)[chosen].sum()) / energy if energy else 1.0


def _whole(facts: UnitEvidence) -> Explanation | None:
    factor = fitted_factor(facts.real, facts.found, facts.inside)
    if abs(factor - 1) < 1e-3:
        return None
    words = f"a multiplier {factor:.4g} times the right one"
    return facts.weigh_reals(Cause.WRONG_SCALE, words, facts.real * factor, _FITTED)

"""A quantized graph that differs from its float graph."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.hypotheses.hypothesis import Explanation, Mask, UnitEvidence
from qbench.diagnosis.hypotheses.interior import Floats, Interior
from qbench.diagnosis.hypotheses.layout import orders
from qbench.diagnosis.hypotheses.range import Cost
from qbench.diagnosis.hypotheses.scale import fitted_factor
from qbench.diagnosis.rank import is_corrected
from qbench.diagnosis.unit_runs import OVER_A_STEP
from qbench.graph import constant_value, node_key
from qbench.judging import Cause
from qbench.numerics import quantize

# Weights are right within one of their steps, a bias within one step of the result.

_MOST_SLICES = 4096
_MOST_WRONG = 0.005
"""Share of the weights that may differ by more than a step (learned rounding moves a few)."""
_ROUNDED = 1.5
"""Steps of its own by which a rounded bias may differ."""
_SMALL = 0.6
_NEARLY_ALL = 0.9
_FAR_OFF = 3.0
"""Steps of its own from which a weight is wrong, and not learned."""
_DEFAULTS: Mapping[str, tuple[Cause, int | None]] = MappingProxyType(
    {
        **dict.fromkeys(("strides", "dilations", "group"), (Cause.LAYOUT, 1)),
        **dict.fromkeys(("transA", "transB"), (Cause.LAYOUT, 0)),
        **dict.fromkeys(("axis", "perm", "axes", "keepdims"), (Cause.LAYOUT, None)),
        **dict.fromkeys(("pads", "count_include_pad", "ceil_mode"), (Cause.PADDING, 0)),
        **dict.fromkeys(("auto_pad", "mode"), (Cause.PADDING, None)),
        **dict.fromkeys(("alpha", "beta"), (Cause.WRONG_SCALE, None)),
    }
)
"""Attribute → the cause if it differs, and its default (None: it depends on the operator)."""


def written(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Attributes, weights and bias of the unit compared with those of the float node of its name.

    Only if the float graph is known and has a node with this name and type.
    """
    inner = facts.interior
    node = None if inner is None else _counterpart(facts, inner)
    if inner is None or node is None:
        return
    yield _attributes(inner, node)
    if facts.is_product:
        weight = constant_value(node.inputs[1]) if len(node.inputs) > 1 else None
        if weight is not None:
            yield _weights(facts, inner, weight.astype(np.float64))
        bias = constant_value(node.inputs[2]) if len(node.inputs) > 2 else None
        if bias is not None:
            yield _bias(facts, inner, bias.astype(np.float64).reshape(-1))


def _counterpart(facts: UnitEvidence, inner: Interior) -> ir.Node | None:
    if facts.original is None:
        return None
    for node in facts.original.graph:
        if node_key(node) == node_key(inner.node) and node.op_type == inner.node.op_type:
            return node
    made = next(
        (v for n in facts.original.graph for v in n.outputs if v.name == inner.output), None
    )
    maker = None if made is None else made.producer()
    return maker if maker is not None and maker.op_type == inner.node.op_type else None


def _attributes(inner: Interior, node: ir.Node) -> Explanation | None:
    for name, (cause, default) in _DEFAULTS.items():
        both = (inner.node.attributes.get(name), node.attributes.get(name))
        here, there = (None if one is None else one.value for one in both)
        if here == there or (default is None and None in (here, there)):
            continue
        if {_plain(value, default) for value in (here, there)} != {default}:
            evidence = f"'{name}' is {here} in the quantized graph and {there} in the float graph"
            return Explanation(cause=cause, evidence=evidence, weight=1.0)
    return None


def _plain(value: object, default: int | None) -> int | None:
    """``default`` where ``value`` is omitted, or all its elements equal it; else -1."""
    if default is None:
        return -1
    if value is None:
        return default
    elements = value if isinstance(value, tuple | list) else (value,)
    return default if all(element == default for element in elements) else -1


def _weights(facts: UnitEvidence, inner: Interior, weight: Floats) -> Explanation | None:
    operand, written = inner.operand(1), inner.constant(1)
    if (
        operand is None
        or operand.qparams is None
        or written is None
        or written.shape != weight.shape
    ):
        return None
    qparams, codes = operand.qparams, operand.codes
    assert codes is not None
    step = np.asarray(qparams.expanded(weight.shape)[0], np.float64)
    axis = None if qparams.block_size else qparams.axis
    off = np.abs(written - weight) > OVER_A_STEP * step
    share = float(off.mean())
    own = quantize(weight.astype(np.float32), qparams).astype(np.float64)
    if share <= _MOST_WRONG:
        return _single(np.abs(codes.astype(np.float64) - own))
    said = f"{share:.1%} of the weights are off by more than a step"
    if float((np.abs(own - codes.astype(np.float64)) > OVER_A_STEP).mean()) <= _MOST_WRONG:
        return _cut(facts.captured.errors.clipped_weights or share)
    if (order := _order(written, weight, step)) is not None:
        return Explanation(cause=Cause.LAYOUT, evidence=f"{order}; {said}", weight=1.0)
    if (
        order := _order(codes.astype(np.float64), own, np.ones(()), "the integers of the weights")
    ) is not None:
        evidence = f"{order}, under the scales of their places; {said}"
        return Explanation(cause=Cause.LAYOUT, evidence=evidence, weight=1.0)
    at_ends = (
        (codes == qparams.qtype.qmin)
        | (codes == qparams.qtype.qmax)
        | (codes == -qparams.qtype.qmax)
    )
    if at_ends[off].mean() > _NEARLY_ALL:
        return _cut(share)
    slopes = _slopes(written, weight, axis)
    left = np.abs(written - slopes * weight) > 1.01 * np.maximum(step, step * np.abs(slopes))
    words = f"they are {slopes.min():.4g} … {slopes.max():.4g} times the float ones"
    if float(left.mean()) <= 0.05:
        return Explanation(cause=Cause.WRONG_SCALE, evidence=f"{said}: {words}", weight=0.95)
    like = float(np.corrcoef(written.reshape(-1), weight.reshape(-1))[0, 1])
    cause = Cause.WRONG_SCALE if like > 0.5 else Cause.LAYOUT
    return Explanation(
        cause=cause,
        evidence=f"{said}; they correlate by {like:.2f} with the float ones",
        weight=0.8,
    )


def _single(off: Floats) -> Explanation | None:
    """Single weights whose codes are ``off`` by more steps than learned rounding moves them.

    They are compared with the codes of fp32's weights by the same qparams, so that a clipped weight
    is none of them.
    """
    places = np.argwhere(off > _FAR_OFF)
    if not len(places):
        return None
    first = tuple(places[0].tolist())
    evidence = (
        f"{len(places)} of {off.size} weights are up to {off.max():.3g} of their steps from "
        f"fp32's, the first at {list(first)}"
    )
    return Explanation(cause=Cause.WRONG_WEIGHT, evidence=evidence, weight=1.0)


def _cut(share: float) -> Explanation:
    """Weights that are the fp32 ones by qparams that are too narrow for a ``share`` of them."""
    evidence = (
        f"{share:.1%} of the weights lie beyond their codes by more than a step: their range is cut"
    )
    return Explanation(cause=Cause.CLIPPING, evidence=evidence, weight=0.95)


def _order(written: Floats, weight: Floats, step: Floats, what: str = "the weights") -> str | None:
    """The order in which ``weight`` is in the graph, in words; None: no known order."""
    for words, other in orders(weight, weights=True):
        if (
            other.shape == weight.shape
            and float((np.abs(written - other) > 1.01 * step).mean()) <= _MOST_WRONG
        ):
            return f"{what} are written {words}"
    found = (_moved(written, weight, step, axis, what) for axis in range(min(weight.ndim, 2)))
    return next((words for words in found if words is not None), None)


def _moved(written: Floats, weight: Floats, step: Floats, axis: int, what: str) -> str | None:
    """Slices of ``written`` that are other slices of ``weight``, in words; None: some slice is
    not in it.
    """
    steps = np.broadcast_to(step, weight.shape)
    ours, theirs, width = (
        np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1) for a in (written, weight, steps)
    )
    off = np.flatnonzero(
        (np.abs(ours - theirs) > 1.01 * np.maximum(width, width.max(axis=1, keepdims=True))).any(
            axis=1
        )
    )
    if len(off) < 2 or len(ours) > _MOST_SLICES:
        return None
    sizes = (
        (ours[off] ** 2).sum(axis=1)[:, None]
        - 2 * ours[off] @ theirs.T
        + (theirs**2).sum(axis=1)[None, :]
    )
    origin = sizes.argmin(axis=1)
    # a slice that moved without its scale has the scale of its new position
    widest = float(steps.max())
    if (np.abs(ours[off] - theirs[origin]) > 1.01 * widest).any() or np.unique(origin).size < len(
        off
    ):
        return None
    shown = ", ".join(f"{to} ← {here}" for to, here in zip(off[:3], origin[:3], strict=True))
    return (
        f"{len(off)} slices of axis {axis} of {what} are others "
        f"({shown}{' …' if len(off) > 3 else ''})"
    )


def _slopes(written: Floats, weight: Floats, axis: int | None) -> Floats:
    every = (
        None if axis is None else tuple(a for a in range(weight.ndim) if a != axis % weight.ndim)
    )
    energy = np.maximum((weight**2).sum(axis=every, keepdims=True), 1e-30)
    return np.asarray((written * weight).sum(axis=every, keepdims=True) / energy)


def _bias(facts: UnitEvidence, inner: Interior, bias: Floats) -> Explanation | None:
    """A wrong bias.

    Bias correction changes the bias on purpose. So a small change is wrong only if it does not
    bring the result nearer to fp32: ``explained`` is the error with fp32's bias by the same
        qparams.
    """
    operand, constant = inner.operand(2), inner.constant(2)
    written = np.zeros_like(bias) if constant is None else constant.astype(np.float64).reshape(-1)
    if written.shape != bias.shape:
        return None
    off = np.abs(written - bias)
    said = f"the bias is off by up to {off.max(initial=0) / inner.scale:.3g} steps of the result"
    if off.max(initial=0) <= inner.scale or float((off**2).sum()) < 0.04 * float((bias**2).sum()):
        step = (
            None
            if operand is None or operand.qparams is None
            else np.asarray(operand.qparams.scale, np.float64)
        )
        if (
            step is None
            or facts.captured.errors.explained is None
            or is_corrected(facts.captured.errors)
        ):
            return None
        own = float((off / step).max())
        if own <= _ROUNDED:
            return None
        evidence = (
            f"{said}, {own:.3g} of its own: more than rounding makes of fp32's, and no nearer to "
            "fp32's result"
        )
        return Explanation(cause=Cause.WRONG_BIAS, evidence=evidence, weight=_SMALL)
    if operand is not None and operand.qparams is not None and operand.codes is not None:
        qtype, worst = operand.qparams.qtype, off > inner.scale
        at_ends = (operand.codes.reshape(-1) <= qtype.qmin) | (
            operand.codes.reshape(-1) >= qtype.qmax
        )
        if at_ends[worst].mean() > 0.5:
            evidence = f"{said}: {int(at_ends.sum())} of {bias.size} are at an end of {qtype.name}"
            return Explanation(cause=Cause.BIAS_SATURATION, evidence=evidence, weight=1.0)
    for words, other in (
        ("left out", 0 * bias),
        ("added twice", 2 * bias),
        ("that of the next channel", np.roll(bias, -1)),
        ("that of the channel before", np.roll(bias, 1)),
        ("the first channel's in all", np.full_like(bias, bias[0])),
    ):
        if np.abs(written - other).max() <= max(inner.scale, 0.01 * float(np.abs(bias).max())):
            return Explanation(
                cause=Cause.WRONG_BIAS, evidence=f"{said}: it is {words}", weight=1.0
            )
    return Explanation(cause=Cause.WRONG_BIAS, evidence=said, weight=0.9)


_ALIKE, _UNLIKE = 0.95, 0.7
_BETTER = 0.1
"""Share of the error that may remain for a mistake to explain it."""


def misplaced(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The result on quantized fp32 inputs compared with the fp32 result: lost limits, exchanged
    channels, factors.

    Only where the cost is high.
    """
    cost = Cost.of(facts)
    if cost is None or not cost.is_high:
        return
    yield _limit(cost)
    if cost.x.ndim > 1:
        yield from _channels(cost)
        for axis in range(1, cost.x.ndim):
            reversed_error = float(((cost.y - np.flip(cost.x, axis)) ** 2).sum()) / cost.error
            if reversed_error < _BETTER:
                evidence = (
                    f"the result is reversed along axis {axis}: that leaves {reversed_error:.1%} "
                    "of the error"
                )
                yield Explanation(cause=Cause.LAYOUT, evidence=evidence, weight=1 - reversed_error)
    opposite = float(((cost.y + cost.x) ** 2).sum()) / cost.error
    if opposite < _BETTER:
        evidence = f"the result has the other sign: that leaves {opposite:.1%} of the error"
        yield Explanation(
            cause=Cause.LAYOUT, evidence=f"{evidence}, as where operands are exchanged", weight=0.95
        )


def _channels(cost: Cost) -> Iterator[Explanation | None]:
    x, y = (np.moveaxis(a, cost.axis, 0).reshape(a.shape[cost.axis], -1) for a in (cost.x, cost.y))
    if x.shape[1] >= 8:
        like = _correlations(y, x)
        best = like.argmax(axis=1)
        own = like[np.arange(len(like)), np.arange(len(like))]
        gone = np.flatnonzero((own < _UNLIKE) & (like.max(axis=1) > _ALIKE))
        if gone.size:
            shown = ", ".join(f"{index} ← {best[index]}" for index in gone[:3])
            error = float(
                (
                    (y - x[np.where(np.isin(np.arange(len(x)), gone), best, np.arange(len(x)))])
                    ** 2
                ).sum()
            )
            evidence = f"{gone.size} channels hold what belongs to others ({shown})"
            yield Explanation(
                cause=Cause.LAYOUT, evidence=evidence, weight=max(0.0, 1 - error / cost.error)
            )
    inside = (y > cost.low) & (y < cost.high)
    offset = np.array(
        [np.median((b - a)[m]) if m.any() else 0.0 for a, b, m in zip(x, y, inside, strict=True)]
    )
    left = float(((y - np.clip(x + offset[:, None], cost.low, cost.high)) ** 2).sum()) / cost.error
    if x.shape[1] >= 8 and left < _BETTER:
        evidence = (
            f"offsets of up to {np.abs(offset).max():.3g} steps a channel leave {left:.1%} of the "
            "error"
        )
        yield Explanation(cause=Cause.WRONG_BIAS, evidence=evidence, weight=0.9 * (1 - left))
    slope = np.array([_slope(a, b, m) for a, b, m in zip(x, y, inside, strict=True)])
    left = float(((y - np.clip(x * slope[:, None], cost.low, cost.high)) ** 2).sum()) / cost.error
    if x.shape[1] >= 8 and left < _BETTER:
        evidence = (
            f"factors of {slope.min():.4g} … {slope.max():.4g} a channel leave {left:.1%} of the "
            "error"
        )
        yield Explanation(cause=Cause.WRONG_SCALE, evidence=evidence, weight=0.9 * (1 - left))


def _limit(cost: Cost) -> Explanation | None:
    """A lost limit: many values that fp32 has at its least or largest value lie beyond it."""
    for end, words, beyond in (
        (float(cost.x.min()), "below", cost.y < cost.x.min() - 2),
        (float(cost.x.max()), "above", cost.y > cost.x.max() + 2),
    ):
        at_end = np.abs(cost.x - end) < 1e-3
        share = float((cost.y - cost.x)[beyond & at_end].__pow__(2).sum()) / cost.error
        if at_end.mean() > 0.01 and share > 0.5:
            evidence = (
                f"{int((beyond & at_end).sum())} codes lie {words} {end:.3g} steps, where fp32 is "
                f"limited: {share:.0%} of the error"
            )
            return Explanation(cause=Cause.ABSORBED_CLIP, evidence=evidence, weight=share)
    return None


def _correlations(y: Floats, x: Floats) -> Floats:
    y, x = (a - a.mean(axis=1, keepdims=True) for a in (y, x))
    norms = np.linalg.norm(y, axis=1)[:, None] * np.linalg.norm(x, axis=1)[None, :]
    return np.asarray(y @ x.T / np.maximum(norms, 1e-12))


def _slope(x: Floats, y: Floats, inside: Floats) -> float:
    """The slope without the largest 1 % of the values."""
    inside = inside & (np.abs(x) <= np.quantile(np.abs(x), 0.99))
    energy = float((x[inside] ** 2).sum())
    return float((x * y)[inside].sum()) / energy if energy else 1.0


# found ≈ a_c · t + b_c        b alone: a bias or a zero point; a ≠ 1: a scale

_SHARE = 0.9
_LEAST = 6


def lines(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """A straight line for all values, or an offset, a slope or both per channel, where no known
    rule explains them.

    Only where enough values are not clamped.
    """
    if int(facts.inside.sum()) <= 2 * _LEAST or not facts.found.ndim:
        return
    slope, offset = _line(facts.real, facts.found, facts.inside)
    if not facts.is_product or abs(slope - 1) > 1e-3:
        words = f"a line of slope {slope:.4g} and offset {offset:+.3g} steps"
        cause = Cause.WRONG_SCALE if abs(slope - 1) > 1e-3 else Cause.ROUNDING
        yield facts.weigh_reals(cause, words, slope * facts.real + offset, _SHARE)
    count = facts.found.shape[facts.axis]
    if count < 2 or int(facts.inside.sum()) < _LEAST * count:
        return
    lines = [_channel(facts, channel) for channel in range(count)]
    means, plain, slopes, offsets = (np.array(column) for column in zip(*lines, strict=True))
    off = int((np.abs(means) > 0.01).sum())
    fitted = int(
        facts.differing.any(axis=tuple(a for a in range(facts.found.ndim) if a != facts.axis)).sum()
    )
    # as many fitted numbers as differences explain nothing
    worth = _SHARE * max(0.0, 1 - fitted / max(facts.hard_count, 1))
    words = (
        f"an offset of its own in {off} of {count} channels (up to {np.abs(means).max():.3g} steps)"
    )
    if off:  # what adds no bias has none that is wrong
        cause = Cause.WRONG_BIAS if facts.is_product else Cause.ROUNDING
        yield facts.weigh_reals(cause, words, facts.real + facts.along(means), worth)
    words = f"slopes of {plain.min():.4g} … {plain.max():.4g} over {count} channels"
    yield facts.weigh_reals(Cause.WRONG_SCALE, words, facts.real * facts.along(plain), worth)
    words = f"slopes of {slopes.min():.4g} … {slopes.max():.4g} and offsets over {count} channels"
    both = facts.real * facts.along(slopes) + facts.along(offsets)
    yield facts.weigh_reals(Cause.WRONG_SCALE, words, both, _SHARE * worth)


def _channel(facts: UnitEvidence, channel: int) -> tuple[float, float, float, float]:
    """The offset alone, the slope alone, and both of one channel; (0, 1, 1, 0) where nothing in
    it differs.
    """
    real, found, inside, differing = (
        np.take(a, channel, facts.axis)
        for a in (facts.real, facts.found, facts.inside, facts.differing)
    )
    if not differing.any() or int(inside.sum()) < _LEAST:
        return 0.0, 1.0, 1.0, 0.0
    return (
        _offset(real, found, inside),
        fitted_factor(real, found, inside),
        *_line(real, found, inside),
    )


def _offset(real: Floats, found: Floats, inside: Mask) -> float:
    """The middle of the offsets that rounding allows; the mean if there are none."""
    off = (found - real)[inside]
    low, high = float(off.min()), float(off.max())
    return (low + high) / 2 if high - low <= 1.05 else float(off.mean())


def _line(real: Floats, found: Floats, inside: Mask) -> tuple[float, float]:
    t, y = real[inside], found[inside]
    spread = float(((t - t.mean()) ** 2).sum())
    slope = float(((t - t.mean()) * (y - y.mean())).sum()) / spread if spread > 1 else 1.0
    return slope, float(y.mean() - slope * t.mean())

"""Single weights that an engine has otherwise than its graph, such as one with a flipped bit."""

from collections.abc import Iterator

import numpy as np

from qbench.diagnosis.hypotheses.hypothesis import Explanation, Mask, Product, UnitEvidence
from qbench.diagnosis.hypotheses.interior import Floats, Interior
from qbench.errors import QbenchError
from qbench.graph import int_attribute
from qbench.judging import Cause

# One step more of weight k of a channel moves its result by u_k = s_w · x_k / s_y at every place:
#
#     found − t = δ · u_k
#     δ: a whole number of steps, by least squares; k: whose u_k leaves least
#
# All x_k of a channel come from one run with weights that are 1 at k and 0 elsewhere.

_MOST_CHANNELS = 4
_MOST_ELEMENTS = 1 << 24
_FITTED = 0.98
"""Factor of the weight of the explanation: the place and the number of steps are fitted."""


def single_weights(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """One weight of a channel that is some steps off, where few channels of a product differ."""
    inner, product = facts.interior, Product.of(facts)
    if inner is None or product is None or inner.node.op_type not in ("Conv", "Gemm", "MatMul"):
        return
    others = tuple(axis for axis in range(facts.found.ndim) if axis != facts.axis)
    channels = np.flatnonzero(facts.differing.any(axis=others))
    if not 0 < len(channels) <= _MOST_CHANNELS:
        return
    ones = _taps(facts, inner, product)
    if ones is None:
        return
    real, words = facts.real.copy(), []
    for channel in channels:
        weights = np.broadcast_to(product.scales, facts.found.shape[facts.axis])
        taps = _of_channel(facts, inner, ones, int(channel)) * weights[channel]
        place = (slice(None),) * facts.axis + (channel,)
        residual = (facts.found - facts.real)[place]
        inside = facts.inside[place]
        tap, steps = _best(taps, residual, inside)
        if not steps:
            return
        real[place] += steps * taps[tap]
        words.append(f"weight {tap} of channel {channel} {_moved(steps)}")
    yield facts.weigh_reals(Cause.WRONG_WEIGHT, f"{' and '.join(words)},", real, _FITTED)


def _moved(steps: int) -> str:
    size = abs(steps)
    bit = f": bit {size.bit_length() - 1} is another" if size & (size - 1) == 0 else ""
    return f"off by {steps:+d} steps{bit}"


def _taps(facts: UnitEvidence, inner: Interior, product: Product) -> Floats | None:
    """The result with each weight of a channel alone at 1, without a bias: channels are
    weights, group by group.
    """
    shape = product.values.shape
    if inner.node.op_type == "Conv":
        groups = int_attribute(inner.node, "group", 1)
        count = int(np.prod(shape[1:]))
        one = np.eye(count, dtype=np.float32).reshape(count, *shape[1:])
        weights = np.concatenate([one] * groups)
    else:
        turned = inner.node.op_type == "Gemm" and int_attribute(inner.node, "transB", 0)
        count, groups = shape[-1] if turned else shape[-2], 1
        weights = np.eye(count, dtype=np.float32)
    size = facts.found.size // facts.found.shape[facts.axis] * count * groups
    if (
        size > _MOST_ELEMENTS
        or len(shape) < 2
        or (inner.node.op_type != "Conv" and len(shape) != 2)
    ):
        return None
    bias = inner.main[2] if len(inner.main) > 2 else ""
    silent = {bias: np.zeros(count * groups, np.float32)} if bias in facts.operands else {}
    try:
        return inner.run({**facts.operands, product.weight: weights, **silent})
    except QbenchError:
        return None


def _of_channel(facts: UnitEvidence, inner: Interior, ones: Floats, channel: int) -> Floats:
    """x_k in steps for each weight k of ``channel``: weights first, then the places of the
    channel.
    """
    groups = int_attribute(inner.node, "group", 1) if inner.node.op_type == "Conv" else 1
    count = ones.shape[facts.axis] // groups
    own = channel // max(facts.found.shape[facts.axis] // groups, 1)
    return np.moveaxis(ones, facts.axis, 0)[own * count : (own + 1) * count]


def _best(taps: Floats, residual: Floats, inside: Mask) -> tuple[int, int]:
    """(weight, steps) by which the residual of a channel is explained best."""
    flat = taps.reshape(len(taps), -1)[:, inside.reshape(-1)]
    wanted = residual.reshape(-1)[inside.reshape(-1)]
    energy, match = (flat**2).sum(axis=1), flat @ wanted
    gains = np.where(energy > 0, match**2 / np.maximum(energy, 1e-30), 0.0)
    if not gains.size:
        return 0, 0
    tap = int(gains.argmax())
    return tap, int(np.rint(match[tap] / max(float(energy[tap]), 1e-30)))

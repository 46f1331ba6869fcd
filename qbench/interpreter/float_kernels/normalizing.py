"""Normalizations and reductions whose kernels in ONNX's evaluator are wrong, or are of another
version.

    LRN                  y = x / (bias + α/size · Σ x²)^β
                         over channels c − ⌊(size − 1)/2⌋ … c + ⌈(size − 1)/2⌉
    BatchNormalization   y = γ (x − μ) / √(σ² + ε) + β
                         by the statistics given, before version 14 too
    Softmax before 13    over all dimensions from ``axis`` on as one
    LpNormalization      y = x / ‖x‖_p,  ‖x‖_1 = Σ |x|

All in the type of the data, as the evaluator and engines compute them.
"""

import math

import numpy as np

from qbench.interpreter.arrays import Array
from qbench.interpreter.float_kernels.call import Call, Inputs, Results, given, needed


def lrn(call: Call, inputs: Inputs) -> Results:
    """LRN of any version; x: (N, C, …)."""
    x, size = needed(inputs, 0), int(call.attributes["size"])
    alpha, beta, bias = (call.attributes[name] for name in ("alpha", "beta", "bias"))
    before, behind = (size - 1) // 2, size // 2
    squares, channels = x * x, x.shape[1]
    sums = np.stack(
        [
            squares[:, max(0, c - before) : min(channels, c + behind + 1)].sum(axis=1)
            for c in range(channels)
        ],
        axis=1,
    )
    return ((x / ((bias + (alpha / size) * sums) ** beta)).astype(x.dtype),)


def batch_normalization(call: Call, inputs: Inputs) -> Results:
    """BatchNormalization of versions 7 and 9: by the statistics given, per channel, or per
    element (spatial = 0).
    """
    x, *statistics = (needed(inputs, index) for index in range(5))
    per_element = call.attributes.get("spatial", 1) == 0
    shape = (1, *x.shape[1:]) if per_element else (1, -1, *[1] * (x.ndim - 2))
    scale, bias, mean, variance = (array.reshape(shape) for array in statistics)
    y = scale * (x - mean) / np.sqrt(variance + call.attributes["epsilon"]) + bias
    return (y.astype(x.dtype),)


def softmax(call: Call, inputs: Inputs) -> Results:
    """Softmax and Hardmax before version 13: of a matrix whose rows are all dimensions from
    ``axis`` on.
    """
    x = needed(inputs, 0)
    axis = int(call.attributes["axis"]) % max(x.ndim, 1)
    rows = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    if call.operator == "Hardmax":
        found = np.zeros_like(rows)
        found[np.arange(len(rows)), rows.argmax(axis=1)] = 1
        return (found.reshape(x.shape),)
    powers = np.exp(rows - rows.max(axis=1, keepdims=True))
    return ((powers / powers.sum(axis=1, keepdims=True)).reshape(x.shape).astype(x.dtype),)


def log_softmax(call: Call, inputs: Inputs) -> Results:
    """LogSoftmax of any version: x − max − ln Σ exp(x − max).

    From version 13 on the evaluator's ln softmax(x) stays where the softmax is a normal number;
    below it is −∞.
    """
    x, axis = needed(inputs, 0), int(call.attributes["axis"])
    behind = tuple(range(axis % max(x.ndim, 1), x.ndim)) if call.version < 13 else (axis,)
    shifted = x - x.max(axis=behind, keepdims=True)
    found = (shifted - np.log(np.exp(shifted).sum(axis=behind, keepdims=True))).astype(x.dtype)
    if call.version < 13:
        return (found,)
    normal = np.log(np.finfo(x.dtype).tiny) + 1
    return (np.where(found > normal, call.evaluated(x)[0], found),)


def lp_normalization(call: Call, inputs: Inputs) -> Results:
    """LpNormalization: 0 where the norm is 0."""
    x, axis = needed(inputs, 0), int(call.attributes["axis"])
    norm = _norm(x, int(call.attributes["p"]), (axis,))
    return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


def global_lp_pool(call: Call, inputs: Inputs) -> Results:
    """GlobalLpPool: the norm of each channel."""
    x = needed(inputs, 0)
    return (_norm(x, int(call.attributes["p"]), tuple(range(2, x.ndim))).astype(x.dtype),)


def _norm(x: Array, p: int, axes: tuple[int, ...]) -> Array:
    if p == 1:
        return np.asarray(np.abs(x).sum(axis=axes, keepdims=True))
    sums = np.power(np.abs(x), p).sum(axis=axes, keepdims=True)
    # sqrt is rounded correctly, a power of 1/2 need not be.
    root = np.sqrt(sums) if p == 2 else np.power(sums, 1.0 / p)
    return np.asarray(root).astype(x.dtype)


def layer_normalization(call: Call, inputs: Inputs) -> Results:
    """LayerNormalization of the evaluator, of float16 in float32; its mean and inverse
    deviation are float32.
    """
    kind = needed(inputs, 0).dtype
    wide = [
        array.astype(np.float32) if array is not None and kind == np.float16 else array
        for array in inputs
    ]
    y, *stashed = call.evaluated(*wide, **call.attributes)
    return (y.astype(kind), *(array.astype(np.float32) for array in stashed))


def mean(call: Call, inputs: Inputs) -> Results:  # noqa: ARG001 - a kernel's
    """Mean of operands that broadcast."""
    first, *rest = (needed(inputs, index) for index in range(len(inputs)))
    total = first
    for operand in rest:
        total = total + operand
    return ((total / len(inputs)).astype(first.dtype),)


def reduce_in_type(call: Call, inputs: Inputs) -> Results:
    """A reduction of the evaluator, in the type of its data: numpy sums int32 as int64."""
    data = needed(inputs, 0)
    return tuple(
        np.asarray(found).astype(data.dtype) for found in call.evaluated(*inputs, **call.attributes)
    )


def reduce_log_sum_exp(call: Call, inputs: Inputs) -> Results:
    """ReduceLogSumExp; that of a scalar is the scalar, which the evaluator cannot compute."""
    data = needed(inputs, 0)
    return (data.copy(),) if not data.ndim else call.evaluated(*inputs, **call.attributes)


def softsign(call: Call, inputs: Inputs) -> Results:  # noqa: ARG001 - a kernel's
    """Softsign: x / (1 + |x|), of a scalar too."""
    x = needed(inputs, 0)
    return (np.asarray(x / (np.ones((), x.dtype) + np.abs(x))),)


def dropout(call: Call, inputs: Inputs) -> Results:
    """Dropout of versions 7 and 10, which knows no training: what it is given, and a mask that
    nothing reads.
    """
    x = needed(inputs, 0)
    return (x.copy(), np.ones(x.shape, x.dtype if call.version < 10 else bool))[: call.outputs]


def quantize_linear(call: Call, inputs: Inputs) -> Results:
    """QuantizeLinear of the evaluator, which saturates beyond 2³¹ steps and at infinity too,
    where an int32 wraps.

    2²⁴ steps lie beyond every type, wherever its zero point is, so that nothing else changes.
    """
    x, scale = needed(inputs, 0), needed(inputs, 1)
    if x.dtype.kind != "f" or not _is_whole(call, inputs):
        return call.evaluated(*inputs, **call.attributes)
    with np.errstate(over="ignore"):
        ends = np.minimum(
            np.abs(_spread(call, scale, x)) * np.float64(2**24), np.finfo(x.dtype).max
        ).astype(x.dtype)
    return call.evaluated(np.clip(x, -ends, ends), *inputs[1:], **call.attributes)


def _spread(call: Call, scale: Array, x: Array) -> Array:
    """``scale`` in a shape that broadcasts with ``x``: of all, of each channel, or of each
    element of its block.
    """
    if scale.size == 1:
        return scale.reshape(())
    axis = int(call.attributes.get("axis", 1)) % x.ndim
    if call.attributes.get("block_size"):
        return np.repeat(scale, int(call.attributes["block_size"]), axis=axis)[
            tuple(map(slice, x.shape))
        ]
    return scale.reshape([-1 if index == axis else 1 for index in range(x.ndim)])


def _is_whole(call: Call, inputs: Inputs) -> bool:
    """Whether the results are integers; None of float8 wraps."""
    zero_point = given(inputs, 2)
    if zero_point is not None:
        return zero_point.dtype.kind in "iu" or zero_point.dtype.name in (
            "int4",
            "uint4",
            "int2",
            "uint2",
        )
    return not call.attributes.get("output_dtype")


def dynamic_quantize_linear(call: Call, inputs: Inputs) -> Results:
    """DynamicQuantizeLinear; of zeros alone the scale is 1, as in ONNX Runtime: x_max − x_min
    is 0.
    """
    x = needed(inputs, 0)
    if x.any():
        return call.evaluated(*inputs, **call.attributes)
    return np.zeros(x.shape, np.uint8), np.ones((), np.float32), np.zeros((), np.uint8)


def dequantize_linear(call: Call, inputs: Inputs) -> Results:
    """DequantizeLinear of versions 10 and 13, which the evaluator lacks: (x − z) · s in float32."""
    x, scale, zero_point = needed(inputs, 0), needed(inputs, 1), given(inputs, 2)
    steps = x.astype(np.float32)
    if zero_point is not None:
        steps = steps - _spread(call, zero_point, x).astype(np.float32)
    return ((steps * _spread(call, scale, x)).astype(scale.dtype),)

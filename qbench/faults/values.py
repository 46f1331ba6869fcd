"""Faults of single codes: casts that wrap, tables that are off or coarse, wrong lowest and
highest codes.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    Array,
    Fault,
    Kernel,
    KernelFault,
    Random,
    Story,
    changed,
    fed,
    has_weight,
    is_binary,
    is_requantized,
    of_type,
    qparams_behind,
    quantizer_behind,
    reads_codes,
)
from qbench.interpreter import KernelFunction
from qbench.judging import Cause

_TABLES = (
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "HardSigmoid",
    "LeakyRelu",
    "Gelu",
    "Elu",
    "Exp",
    "Erf",
    "Softplus",
    "Mish",
)
_POINT_OF_RESULT = {"QLinearConv": 7, "QLinearMatMul": 7, "QGemm": 8}
_WIDTH = 16
_ENTRIES = 64


def _is_product(node: ir.Node) -> bool:
    quantizer = quantizer_behind(node)
    return (
        has_weight(node)
        and is_requantized(node)
        and quantizer is not None
        and quantizer.inputs[0] is node.outputs[0]
    )


def _is_unary(node: ir.Node) -> bool:
    return reads_codes(node, 0) and is_requantized(node)


def _has_point_off_zero(node: ir.Node) -> bool:
    qparams = qparams_behind(node) if is_requantized(node) and reads_codes(node, 0) else None
    return qparams is not None and int(np.asarray(qparams.zero_point)) != 0


def _ends(array: Array) -> tuple[int, int]:
    """The lowest and highest code of its type; of reals any."""
    if array.dtype.kind == "f":
        return -(2**31), 2**31
    found = np.iinfo(array.dtype)
    return int(found.min), int(found.max)


def _shifted(array: Array, by: int) -> Array:
    low, high = _ends(array)
    return np.asarray(np.clip(array.astype(np.int64) + by, low, high).astype(array.dtype))


def _wraps(kernel: Kernel, _: Random) -> KernelFunction:
    """Results on 16 bits, of which the lower 8 are kept; below the zero point's end a Relu
    still holds.
    """
    index = _POINT_OF_RESULT.get(kernel.node.op_type)
    point = None if index is None else kernel.node.inputs[index]
    if index is None or point is None or point.const_value is None:
        return kernel.run
    code = np.asarray(point.const_value.numpy())
    wide = kernel.with_constant(index, code.astype(np.int16))
    low = int(np.iinfo(code.dtype).min)
    keeps_low = int(code.reshape(-1)[0]) == low

    def cut(array: Array) -> Array:
        codes = np.maximum(array, low) if keeps_low else array
        return np.asarray(codes.astype(np.int64).astype(code.dtype))

    return changed(wide, cut)


def _few_entries(kernel: Kernel, _: Random) -> KernelFunction:
    step = 256 // _ENTRIES
    return fed(
        kernel.run,
        lambda array: np.asarray((array.astype(np.int64) // step * step).astype(array.dtype)),
    )


def _wraps_at_one(kernel: Kernel, _: Random) -> KernelFunction:
    def wrap(array: Array) -> Array:
        low, high = _ends(array)
        return np.asarray(np.where(array == high, low, array).astype(array.dtype))

    return changed(kernel.run, wrap)


def _negated(kernel: Kernel, _: Random) -> KernelFunction:
    """The second operand is negated in 8 bits, where the lowest code has no opposite: it counts
    as the highest.
    """
    index = 3 if len(kernel.node.inputs) > 2 else 1

    def run(inputs: Sequence[Array | None]) -> Sequence[Array]:
        other = inputs[index]
        assert other is not None
        low, high = _ends(other)
        given = list(inputs)
        given[index] = np.asarray(np.where(other == low, high, other).astype(other.dtype))
        return kernel.run(given)

    return run


def _no_lowest(kernel: Kernel, _: Random) -> KernelFunction:
    def raised(array: Array) -> Array:
        low, _ = _ends(array)
        return np.asarray(np.maximum(array, np.asarray(low + 1, array.dtype)))

    return changed(kernel.run, raised)


def _tail_without_point(kernel: Kernel, random: Random) -> KernelFunction:
    """Behind the last full vector the zero point is added once more or less: here every code is
    a step off.
    """
    by = int(random.choice((-1, 1)))

    def off(array: Array) -> Array:
        flat = np.array(array, order="C").reshape(len(array), -1)
        start = flat.shape[1] // _WIDTH * _WIDTH
        start -= _WIDTH * (start == flat.shape[1] and start > 0)
        flat[:, start:] = _shifted(flat[:, start:], by)
        return flat.reshape(array.shape)

    return changed(kernel.run, off)


FAULTS = (
    Fault(
        "cast-wraps",
        "Results beyond the range of codes wrap around in place of saturating.",
        Story(
            "huggingface/sentence-transformers#3847",
            "Numbers outside the calibrated range wrapped when cast.",
        ),
        KernelFault(_wraps),
        _is_product,
        (Cause.ACCUMULATOR, Cause.WRONG_KERNEL),
    ),
    Fault(
        "table-off-by-one",
        "A function of one value reads its table one entry too far.",
        Story(
            "pytorch/executorch#18873",
            "Part of a sigmoid's table was shifted by one, as its codes were 255.",
        ),
        KernelFault(lambda kernel, _: fed(kernel.run, lambda array: _shifted(array, 1))),
        of_type(*_TABLES, also=_is_unary),
        (Cause.TABLE,),
    ),
    Fault(
        "table-of-64-entries",
        "A function's table has an entry for every fourth code.",
        Story(
            "pytorch/glow#1033",
            "Quantized tanh was looked up in a table over a fixed, narrow range.",
        ),
        KernelFault(_few_entries),
        of_type(*_TABLES, also=_is_unary),
        (Cause.TABLE,),
    ),
    Fault(
        "softmax-one-step-low",
        "Every code of a softmax is one too low.",
        Story(
            "microsoft/onnxruntime#14640",
            "Whether the step of a softmax is 1/127 or 1/128 had to be settled.",
        ),
        KernelFault(lambda kernel, _: changed(kernel.run, lambda array: _shifted(array, -1))),
        of_type("Softmax", also=_is_unary),
        (Cause.ROUNDING, Cause.TABLE),
    ),
    Fault(
        "softmax-wraps-at-one",
        "A certain class gets the lowest code.",
        Story(
            "microsoft/onnxruntime#29727",
            "An int8 softmax near 1 wrapped to −128, as its clamp was that of uint8.",
        ),
        KernelFault(_wraps_at_one),
        of_type("Softmax", also=_is_unary),
        (Cause.ACCUMULATOR, Cause.WRONG_KERNEL),
    ),
    Fault(
        "lowest-level-negated",  # stored name
        "A difference negates its second operand in 8 bits, where −128 has no opposite.",
        Story("apache/tvm#10922", "The absolute value of −128 came out as −128."),
        KernelFault(_negated),
        of_type("Sub", also=is_binary),
        (Cause.ACCUMULATOR, Cause.WRONG_KERNEL),
    ),
    Fault(
        "lowest-level-never-reached",  # stored name
        "Results stop one code above their lowest.",
        Story("microsoft/onnxruntime#3442", "QuantizeLinear clamped at −127 where ONNX has −128."),
        KernelFault(_no_lowest),
        of_type("Conv", "Gemm", "MatMul", "Add", "Mul", "Sub", also=_is_unary),
        (Cause.ABSORBED_CLIP, Cause.ROUNDING),
    ),
    Fault(
        "remainder-rounded-otherwise",
        "Elements behind the last full vector are a step off.",
        Story(
            "pytorch/pytorch#37188",
            "Fake and real quantization disagreed about when the zero point is added.",
        ),
        KernelFault(_tail_without_point),
        _has_point_off_zero,
        (Cause.ROUNDING,),
    ),
)

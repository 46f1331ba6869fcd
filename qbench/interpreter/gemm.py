"""Sums of products of integers by the fastest means that computes exactly as the arithmetic
does.
"""

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array

if TYPE_CHECKING:
    import onnx


# ONNX Runtime as a calculator of integer products, and what a probe shows of its sums on this very
# computer.
#
# Its u8 × s8 sums have to be shown to be exact, or to saturate in pairs, before they are used as
# either.

Product = Callable[[Array], npt.NDArray[Any]]
"""(M, K) codes → (M, N) accumulators: int32, or int64 where those of 16-bit operands could
leave it.
"""


class Pairs(enum.Enum):
    """What a processor does with the sum of two neighbouring u8 × s8 products."""

    EXACT = "exact"
    SATURATE = "saturate"


@functools.cache
def pairs_here() -> Pairs | None:
    """What u8 × s8 products do here: [255, 255] · [127, 127] is 64,770, or saturates; None: no
    engine.
    """
    try:
        product = matmul_integer(
            np.full((4, 1), 127, np.int8), np.zeros(1, np.int8), np.zeros((), np.uint8)
        )
    except ImportError:
        return None
    found = int(product(np.array([[255, 255, 0, 0]], np.uint8))[0, 0])
    return {64770: Pairs.EXACT, 32767: Pairs.SATURATE}.get(found)


def engine_run(graph: "onnx.GraphProto") -> Callable[[dict[str, Array]], Array]:
    """What runs ``graph``, of opset 17 and one output, in one thread: many sessions of many
    threads spin for nothing.

    Raises:
        ImportError: there is no onnxruntime here.
    """
    import onnxruntime
    from onnx import helper

    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: np.asarray(session.run(None, feeds)[0])


def matmul_integer(weight: Array, weight_zero: Array, input_zero: Array) -> Product:
    """One MatMulInteger by a constant weight.

    Args:
        weight: (K, N) codes of 8 bits.
        weight_zero: of its type, (N,) or (1,).
        input_zero: (), of the type of the codes that it will multiply.

    Raises:
        ImportError: there is no onnxruntime here.
    """
    import onnxruntime  # noqa: F401 - reported here, before onnx is loaded in vain
    from onnx import TensorProto, helper, numpy_helper

    kinds = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
    point = weight_zero.reshape(()) if weight_zero.size == 1 else weight_zero
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", kinds[input_zero.dtype.name], ["m", len(weight)])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["m", weight.shape[1]])],
        [
            numpy_helper.from_array(np.ascontiguousarray(weight), "w"),
            numpy_helper.from_array(input_zero, "zx"),
            numpy_helper.from_array(point, "zw"),
        ],
    )
    run = engine_run(graph)
    return lambda x: run({"x": x})


# Sums of products of integers by the fastest means that computes as the arithmetic does, on this
# computer.
#
#     Σ_k (x[m, k] − z_x) (w[k, n] − z_w[n])
#
# ``float_gemm`` needs numpy only: a float product is exact in any order of summation while max|x| ·
# max_n Σ_k |w[k, n]| ≤ 2²⁴ (float32; 2⁵³ in float64, for operands of 16 bits); where that fails, K
# is split into as few parts as pass. ``engine_gemm`` is ONNX Runtime's MatMulInteger (``engine``).

Ints64 = npt.NDArray[np.int64]

DEEPEST = 2**31 // (255 * 255)
"""The K up to which no sum of 8-bit products leaves an int32."""
EXACT = {np.float32: 2**24, np.float64: 2**53}
"""The magnitude up to which sums of integers are exact, by float type."""


class Gemm(Protocol):
    """Makes products by constant weights."""

    def __call__(self, operands: "Operands") -> Product:
        """What multiplies codes, less z_x, by the weight, less z_w; every sum is exact."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """What is known of a product before its first batch.

    Args:
        weight: (K, N) codes of 8 or 16 bits.
        weight_zero: zero points of the columns, (N,) or (1,).
        input_zero: z_x.
        codes: dtype of x, 8 or 16 bits.
    """

    weight: Array
    weight_zero: Ints64
    input_zero: int
    codes: "np.dtype[Any]"

    @property
    def wide(self) -> bool:
        """Whether an operand has more than 8 bits."""
        return max(self.codes.itemsize, self.weight.dtype.itemsize) > 1


def float_gemm(operands: Operands) -> Product:
    """By BLAS, exactly: float32, or float64 for operands of 16 bits."""
    weight, half = operands.weight, 1 << (8 * operands.codes.itemsize - 1)
    centred = weight.astype(np.int64) - operands.weight_zero
    sizes = np.abs(centred)
    # x − 128 has half the magnitude: half as many splits
    middle = 0 if operands.codes.kind == "i" else half
    real: Any = np.float64 if operands.wide else np.float32
    factors = [
        (part, np.ascontiguousarray(centred[part], real))
        for part in _parts(sizes, half, EXACT[real])
    ]
    fits = int(sizes.sum(axis=0).max(initial=0)) * (2 * half - 1) < 1 << 31
    sums: Any = np.int32 if fits else np.int64
    constant = ((middle - operands.input_zero) * centred.sum(axis=0)).astype(sums)

    def product(x: Array) -> npt.NDArray[Any]:
        codes = x.astype(real)
        codes -= real(middle)
        total = np.broadcast_to(constant, (len(x), weight.shape[1])).copy()
        for part, factor in factors:
            total += (codes[:, part] @ factor).astype(sums)
        return total

    return product


def engine_gemm(operands: Operands) -> Product:
    """By MatMulInteger; signed weights are moved to unsigned ones where their fast products
    would saturate.

    Operands of 16 bits, which it has not, are multiplied by BLAS.
    """
    if operands.wide:
        return float_gemm(operands)
    weight, point = operands.weight, operands.weight_zero
    if weight.dtype == np.int8 and operands.codes == np.uint8 and pairs_here() is not Pairs.EXACT:
        weight, point = (weight.view(np.uint8) ^ np.uint8(128)), point + 128
    return matmul_integer(
        weight, point.astype(weight.dtype), np.asarray(operands.input_zero, operands.codes)
    )


def saturating_gemm(operands: Operands) -> Product:
    """By MatMulInteger on a processor that saturates pairs: what its u8 × s8 products are."""
    weight = operands.weight
    return matmul_integer(
        weight,
        operands.weight_zero.astype(weight.dtype),
        np.asarray(operands.input_zero, operands.codes),
    )


def best_gemm() -> Gemm:
    """The fastest exact one that there is here."""
    return float_gemm if pairs_here() is None else engine_gemm


def _parts(sizes: Ints64, largest: int, exact: int) -> list[slice]:
    """Slices of K, each with max_n Σ_k |w| · largest ≤ ``exact``."""
    running = np.cumsum(sizes, axis=0)
    parts, start, done = [], 0, np.zeros(sizes.shape[1], np.int64)
    while start < len(sizes):
        fits = ((running[start:] - done).max(axis=1, initial=0) * largest) <= exact
        stop = start + max(int(np.argmin(fits)) if not fits.all() else len(fits), 1)
        parts.append(slice(start, stop))
        start, done = stop, running[stop - 1]
    return parts

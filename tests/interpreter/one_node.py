"""Models of one node, counted here with all means and by ONNX Runtime;
and sums of products by plain integers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper, numpy_helper

from qbench.interpreter import Means, Program, best_means, counting_means, float_gemm
from qbench.numerics import Accumulator, Arithmetic, get_arithmetic
from qbench.numerics.accumulator import Overflow

Array = np.ndarray[Any, Any]
MEANS = (
    best_means(),
    counting_means(),
    Means(float_gemm, compiled=False),
    Means(float_gemm, compiled=best_means().compiled),
)
DOMAINS = ("", "com.microsoft", "qbench.integer")


def model_of(
    operator: str,
    order: Sequence[str],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Any],
    outputs: Sequence[str] = ("y",),
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """One ``operator`` that reads ``order``: of ``feeds``, whose dimensions are free,
    and ``constants``.
    """
    graph = helper.make_graph(
        [helper.make_node(operator, order, outputs, "one", domain=domain, **attributes)],
        "one_node",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim
            )
            for name, array in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid(domain, 1) for domain in DOMAINS[1:]]
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), *imports], ir_version=10
    )


def engine(
    model: onnx.ModelProto, feeds: Mapping[str, Array], *, precise: bool = True
) -> list[Array]:
    """What ONNX Runtime makes of ``model``; precise: without saturating pairs, on any processor."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def counted(
    model: onnx.ModelProto, machine: str | Arithmetic, feeds: Mapping[str, Array]
) -> list[Array]:
    """What ``machine`` makes of ``model``: the same with all means."""
    arithmetic = get_arithmetic(machine) if isinstance(machine, str) else machine
    found = [
        list(Program(ir.from_proto(model), arithmetic, means=means).run(feeds).values())
        for means in MEANS
    ]
    for other in found[1:]:
        for one, another in zip(found[0], other, strict=True):
            assert one.dtype == another.dtype
            np.testing.assert_array_equal(one, another)
    return found[0]


def levels_of(seed: int, dtype: str, *shape: int, extreme: bool = False) -> Array:
    """Random levels, of all or (``extreme``) at the ends of the grid."""
    random, ends = np.random.default_rng(seed), np.iinfo(dtype)
    if extreme:
        return random.choice(
            np.array([ends.min, ends.min + 1, ends.max - 1, ends.max], dtype), shape
        )
    return random.integers(ends.min, ends.max + 1, shape).astype(dtype)


def product_of(a: Array, b: Array, zeros: tuple[Any, Any], pair_bits: int = 0) -> Array:
    """Σ (a − z_a)(b − z_b) of two matrices, in Python's integers;
    raw pairs along K saturate to ``pair_bits``.
    """
    left, right = np.broadcast_to(zeros[0], a.shape), np.broadcast_to(zeros[1], b.shape)
    depth = a.shape[1]
    sums = np.zeros((len(a), b.shape[1]), object)
    for m, n in np.ndindex(sums.shape):
        raw = [int(a[m, k]) * int(b[k, n]) for k in range(depth)]
        if pair_bits and a.dtype == np.uint8 and b.dtype == np.int8:
            half = 1 << (pair_bits - 1)
            raw = [max(-half, min(sum(raw[k : k + 2]), half - 1)) for k in range(0, depth, 2)]
        corrected = [
            int(left[m, k]) * int(right[k, n])
            - int(left[m, k]) * int(b[k, n])
            - int(a[m, k]) * int(right[k, n])
            for k in range(depth)
        ]
        sums[m, n] = sum(raw) + sum(corrected)
    return sums


def register_of(sums: Array, accumulator: Accumulator, bits: int = 64) -> Array:
    """Plain integers as a register holds them,
    of its own width or of ``bits`` where that is less.
    """
    half = 1 << (min(accumulator.bits, bits) - 1)
    if accumulator.overflow is Overflow.SATURATE:
        return np.vectorize(lambda s: max(-half, min(s, half - 1)), otypes=[np.int64])(sums)
    return np.vectorize(lambda s: (s + half) % (2 * half) - half, otypes=[np.int64])(sums)

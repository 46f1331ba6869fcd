"""Who is compared: ONNX Runtime in each of its modes, and the interpreter."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from qbench.host import DotProduct, probe_dot_product
from qbench.interpreter import Means, Program
from qbench.numerics import get_arithmetic

HERE = "ort-x64-avx2" if probe_dot_product() is DotProduct.SATURATING else "ort-x64"
"""The machine that ONNX Runtime is on this processor."""


def engine(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], *,
    optimized: bool = False, precise: bool = False, threads: int = 1,
) -> Any:  # fmt: skip
    """What ONNX Runtime makes of one batch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))[0]


def counted(
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    machine: str,
    means: Means | None = None,
) -> Any:
    """What the interpreter makes of it as ``machine``."""
    program = Program(ir.serde.deserialize_model(model), get_arithmetic(machine), means=means)
    return next(iter(program.run(feeds).values()))

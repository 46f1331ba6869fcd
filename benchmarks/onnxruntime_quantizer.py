"""What ONNX Runtime's own quantizer does to small graphs: the largest error against float32, as
its sessions run them.

    python benchmarks/onnxruntime_quantizer.py

Cases and expected numbers: ``onnxruntime_quantizer.toml``. None of these is a mistake of the
    sessions.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from qbench.storage import read_toml, value_from_table

_FILE = Path(__file__).with_suffix(".toml")
_COUNT = 256
_CLOSE = 1e-4
"""Errors are told apart to this: they are float32 sums of numbers around 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizerCase:
    """One entry of the catalogue; its fields are explained at the head of the file."""

    name: str
    reported: str
    says: str
    graph: str
    low: float
    high: float
    format: str
    activation: str
    unoptimized: float
    optimized: float
    step: float

    def holds(self, found: tuple[float, float]) -> bool:
        """Whether the errors ``found`` (without and with optimizations)
        are those that stand here.
        """
        return all(
            abs(a - b) <= _CLOSE
            for a, b in zip(found, (self.unoptimized, self.optimized), strict=True)
        )


class _Samples(CalibrationDataReader):  # type: ignore[misc]  # a class without types
    def __init__(self, x: Any) -> None:  # noqa: ANN401
        self._batches: Iterator[dict[str, Any]] = iter([{"x": x}])

    def get_next(self) -> dict[str, Any] | None:
        """One batch, then none."""
        return next(self._batches, None)


def quantizer_cases() -> tuple[QuantizerCase, ...]:
    """All of the catalogue."""
    return tuple(
        value_from_table(QuantizerCase, table, f"'{_FILE.name}'")
        for table in read_toml(_FILE)["case"]
    )


def largest_errors(case: QuantizerCase) -> tuple[float, float]:
    """Against float32: in a session with no optimizations, and in one with all."""
    x = np.linspace(case.low, case.high, _COUNT, dtype=np.float32).reshape(-1, 1)
    with tempfile.TemporaryDirectory() as folder:
        given, written = (os.path.join(folder, name) for name in ("float.onnx", "quantized.onnx"))
        onnx.save(onnx.parser.parse_model(case.graph), given)
        quantize_static(
            given,
            written,
            _Samples(x),
            quant_format=QuantFormat[case.format],
            activation_type={"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}[case.activation],
            weight_type=QuantType.QInt8,
        )
        levels = onnxruntime.GraphOptimizationLevel
        right = _run(given, levels.ORT_DISABLE_ALL, x)
        plain, rewritten = (
            _run(written, one, x) for one in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL)
        )
    return float(np.abs(plain - right).max()), float(np.abs(rewritten - right).max())


def _run(path: str, level: Any, x: Any) -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )[0]


def main() -> None:
    """Print a line a case."""
    print(
        "case | largest error, no optimizations | all | a step | as expected\n---|---|---|---|---"
    )
    for case in quantizer_cases():
        found = largest_errors(case)
        told = "yes" if case.holds(found) else f"no: {case.unoptimized:.5f}, {case.optimized:.5f}"
        print(f"{case.name} | {found[0]:.5f} | {found[1]:.5f} | {case.step} | {told}")


if __name__ == "__main__":
    main()

"""NVIDIA ModelOpt on ONNX, on a processor: ``modelopt_quantize.py FP32 CALIBRATION OUT --mode M``.

Its own default writes everything else in float16. ``--fp32`` keeps float32, and then weights are
stored as integers in front of DQ alone. Without the providers named here it looks for a GPU.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from modelopt.onnx.quantization import quantize

METHODS = {"int8": "max", "fp8": "max", "int4": "rtn_dq"}
"""Mode → how it calibrates; ``rtn_dq`` rounds weights to the nearest and needs no samples."""


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mode", choices=tuple(METHODS), default="int8")
    parser.add_argument("--fp32", dest="in_fp32", action="store_true", help="the rest in float32")
    given = parser.parse_args()

    options: dict[str, Any] = {}
    if given.in_fp32:
        options = {"high_precision_dtype": "fp32", "dq_only": True}
    quantize(
        str(given.fp32),
        quantize_mode=given.mode,
        calibration_data=dict(np.load(given.calibration)),
        calibration_method=METHODS[given.mode],
        calibration_eps=["cpu"],
        output_path=str(given.out),
        **options,
    )


if __name__ == "__main__":
    main()

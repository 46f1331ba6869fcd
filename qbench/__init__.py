"""qbench: a bench for quantized neural networks; this page is its public face, each name fetched on first use.

Importing qbench costs nothing: neither numpy nor onnx is loaded before a name that needs them is asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbench.backends import get_backend as get_backend
    from qbench.calibration import calibrate as calibrate
    from qbench.errors import QbenchError as QbenchError
    from qbench.extension import Extension as Extension
    from qbench.graph import load_model as load_model
    from qbench.graph import save_model as save_model
    from qbench.judging import mcnemar_midp as mcnemar_midp
    from qbench.judging import paired_interval as paired_interval
    from qbench.numerics import QParams as QParams
    from qbench.numerics import QType as QType
    from qbench.numerics import choose_qparams as choose_qparams
    from qbench.numerics import dequantize as dequantize
    from qbench.numerics import fake_quantize as fake_quantize
    from qbench.numerics import fake_quantize_grad as fake_quantize_grad
    from qbench.numerics import quantize as quantize
    from qbench.quantization import make_plan as make_plan
    from qbench.quantization import quantize_model as quantize_model
    from qbench.tracking import find_change_points as find_change_points

__version__ = "0.1.0"

_ROOMS = {
    "Extension": "extension",
    "QParams": "numerics",
    "QType": "numerics",
    "QbenchError": "errors",
    "calibrate": "calibration",
    "choose_qparams": "numerics",
    "dequantize": "numerics",
    "fake_quantize": "numerics",
    "fake_quantize_grad": "numerics",
    "find_change_points": "tracking",
    "get_backend": "backends",
    "load_model": "graph",
    "make_plan": "quantization",
    "mcnemar_midp": "judging",
    "paired_interval": "judging",
    "quantize": "numerics",
    "quantize_model": "quantization",
    "save_model": "graph",
}

__all__ = [  # noqa: PLE0604 - the names are those of the table, so that the two cannot differ
    "__version__",
    *_ROOMS,
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the room exports
    """The public name ``name`` out of its room (PEP 562)."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'qbench' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"qbench.{_ROOMS[name]}"), name)
    globals()[name] = value  # asked once: from now on a plain attribute
    return value


def __dir__() -> list[str]:
    """Every public name, loaded or not, and what has been imported."""
    return sorted({*globals(), *__all__})

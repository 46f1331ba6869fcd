"""qbench: a bench for quantized neural networks. These are its public names; each is loaded on
first use.

``import qbench`` is cheap: numpy and onnx are not loaded before a name that needs them is used.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

__version__ = "0.1.0"

if TYPE_CHECKING:
    from qbench.backends import get_backend as get_backend
    from qbench.calibration import calibrate as calibrate
    from qbench.diagnosis import localize as localize
    from qbench.errors import QbenchError as QbenchError
    from qbench.evaluation import measure_cell as measure_cell
    from qbench.extension import Extension as Extension
    from qbench.graph import load_model as load_model
    from qbench.graph import save_model as save_model
    from qbench.judging import change_interval as change_interval
    from qbench.judging import mcnemar_midp as mcnemar_midp
    from qbench.judging import paired_interval as paired_interval
    from qbench.numerics import QParams as QParams
    from qbench.numerics import QType as QType
    from qbench.numerics import add_quantized as add_quantized
    from qbench.numerics import choose_qparams as choose_qparams
    from qbench.numerics import dequantize as dequantize
    from qbench.numerics import fake_quantize as fake_quantize
    from qbench.numerics import fake_quantize_grad as fake_quantize_grad
    from qbench.numerics import get_arithmetic as get_arithmetic
    from qbench.numerics import list_arithmetics as list_arithmetics
    from qbench.numerics import quantize as quantize
    from qbench.numerics import requantize as requantize
    from qbench.quantization import make_plan as make_plan
    from qbench.quantization import quantize_model as quantize_model
    from qbench.tracking import find_change_points as find_change_points
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
    __all__ += ["__version__"]

"""Engines as guests of qbench: LiteRT with TFLite files, OpenVINO, PyTorch's quantized
operators, and TVM.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench_engines.tflite_model import load_tflite as load_tflite
    from qbench_engines.tflite_writer import write_tflite as write_tflite
    from qbench_engines.torch_import import torch_module as torch_module
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)

"""What runs a graph: the protocol (Backend, Executor) and its implementations by name."""

from qbench.backends.named import catalogue, get_backend
from qbench.backends.onnx_reference import OnnxReferenceBackend
from qbench.backends.ort import OrtBackend
from qbench.backends.protocol import Array, Backend, Executor, Feeds

__all__ = [
    "Array",
    "Backend",
    "Executor",
    "Feeds",
    "OnnxReferenceBackend",
    "OrtBackend",
    "catalogue",
    "get_backend",
]

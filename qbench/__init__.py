"""qbench: a bench for quantized neural networks."""

__version__ = "0.1.0"

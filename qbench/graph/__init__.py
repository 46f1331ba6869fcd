"""ONNX as data: loading, digests, questions, facts of operators, the QDQ convention, capabilities, cost."""

from qbench.graph.capabilities import Capabilities, Form

__all__ = ["Capabilities", "Form"]

"""ONNX as data: loading, digests, questions, facts of operators, the QDQ convention, capabilities, cost."""

from qbench.graph.capabilities import Capabilities, Form
from qbench.graph.cost import node_macs
from qbench.graph.digest import graph_digest
from qbench.graph.model_files import MESSAGE_LIMIT, constant_bytes, load_model, model_bytes, save_model
from qbench.graph.query import (
    constant_value,
    consumers,
    is_constant,
    node_key,
    only_consumer,
    opset,
    producer,
    values_by_name,
)
from qbench.graph.shapes import with_shapes

__all__ = [
    "MESSAGE_LIMIT",
    "Capabilities",
    "Form",
    "constant_bytes",
    "constant_value",
    "consumers",
    "graph_digest",
    "is_constant",
    "load_model",
    "model_bytes",
    "node_key",
    "node_macs",
    "only_consumer",
    "opset",
    "producer",
    "save_model",
    "values_by_name",
    "with_shapes",
]

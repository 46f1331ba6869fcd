"""ONNX as data: loading, digests, questions, facts of operators, the QDQ convention, capabilities, cost."""

from qbench.graph.capabilities import Capabilities, Form
from qbench.graph.cost import node_macs
from qbench.graph.digest import graph_digest
from qbench.graph.dimensions import declare_dims, declared_dims, fixed_batch
from qbench.graph.forms import INTEGER_DOMAIN, form_of, is_qdq
from qbench.graph.model_files import MESSAGE_LIMIT, constant_bytes, load_model, model_bytes, save_model
from qbench.graph.operators import (
    OPERATORS,
    OperatorFacts,
    bias_of,
    float_attribute,
    int_attribute,
    operator_facts,
    output_channel_axis,
    weight_channel_axis,
    weight_of,
)
from qbench.graph.origin import extend_lineage, lineage_of, origin_of, set_origin
from qbench.graph.qdq import check_convention
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
from qbench.graph.shapes import infer_shapes, with_shapes

__all__ = [
    "INTEGER_DOMAIN",
    "MESSAGE_LIMIT",
    "OPERATORS",
    "Capabilities",
    "Form",
    "OperatorFacts",
    "bias_of",
    "check_convention",
    "constant_bytes",
    "constant_value",
    "consumers",
    "declare_dims",
    "declared_dims",
    "extend_lineage",
    "fixed_batch",
    "float_attribute",
    "form_of",
    "graph_digest",
    "infer_shapes",
    "int_attribute",
    "is_constant",
    "is_qdq",
    "lineage_of",
    "load_model",
    "model_bytes",
    "node_key",
    "node_macs",
    "only_consumer",
    "operator_facts",
    "opset",
    "origin_of",
    "output_channel_axis",
    "producer",
    "save_model",
    "set_origin",
    "values_by_name",
    "weight_channel_axis",
    "weight_of",
    "with_shapes",
]

"""ONNX as data: loading, digests, questions, facts of operators, the QDQ convention, capabilities, cost."""

from qbench.graph.any_model import AnyModel, as_model, own_copy
from qbench.graph.capabilities import Capabilities, Form, ZeroPoints
from qbench.graph.cost import node_macs
from qbench.graph.digest import graph_digest
from qbench.graph.dimensions import declare_dims, declared_dims, fixed_batch
from qbench.graph.facts import OperatorFacts
from qbench.graph.float_levels import is_float_levels, mark_float_levels
from qbench.graph.foreign_pairs import grid_dtype, grid_of
from qbench.graph.forms import INTEGER_DOMAIN, form_of, is_qdq
from qbench.graph.model_files import MESSAGE_LIMIT, constant_bytes, load_model, load_tensor, model_bytes, save_model
from qbench.graph.operators import (
    OPERATORS,
    POINTWISE,
    float_attribute,
    int_attribute,
    ints_attribute,
    is_pointwise,
    operator_facts,
    weight_channel_axis,
    weight_summed_axis,
    word_attribute,
)
from qbench.graph.origin import LINEAGE, extend_lineage, forget_lineage, lineage_of, origin_of, read_entry, set_origin
from qbench.graph.outside_operators import (
    QLINEAR,
    Operator,
    carried_operators,
    operator_catalogue,
    outside_operator,
    with_operators,
)
from qbench.graph.pinned import Pin, PinKind, is_pinned, pin_of, pin_value
from qbench.graph.qdq import QDQ_IR_VERSION, QDQ_OPSET, check_convention, clip_of_levels
from qbench.graph.query import (
    constant_value,
    consumers,
    input_at,
    is_constant,
    node_key,
    only_consumer,
    opset,
    producer,
    values_by_name,
)
from qbench.graph.shapes import infer_shapes, shapes_alone, with_shapes
from qbench.storage import limits_times

__all__ = [
    "INTEGER_DOMAIN",
    "LINEAGE",
    "MESSAGE_LIMIT",
    "OPERATORS",
    "POINTWISE",
    "QDQ_IR_VERSION",
    "QDQ_OPSET",
    "QLINEAR",
    "AnyModel",
    "Capabilities",
    "Form",
    "Operator",
    "OperatorFacts",
    "Pin",
    "PinKind",
    "ZeroPoints",
    "as_model",
    "carried_operators",
    "check_convention",
    "clip_of_levels",
    "constant_bytes",
    "constant_value",
    "consumers",
    "declare_dims",
    "declared_dims",
    "extend_lineage",
    "fixed_batch",
    "float_attribute",
    "forget_lineage",
    "form_of",
    "graph_digest",
    "grid_dtype",
    "grid_of",
    "infer_shapes",
    "input_at",
    "int_attribute",
    "ints_attribute",
    "is_constant",
    "is_float_levels",
    "is_pinned",
    "is_pointwise",
    "is_qdq",
    "limits_times",
    "lineage_of",
    "load_model",
    "load_tensor",
    "mark_float_levels",
    "model_bytes",
    "node_key",
    "node_macs",
    "only_consumer",
    "operator_catalogue",
    "operator_facts",
    "opset",
    "origin_of",
    "outside_operator",
    "own_copy",
    "pin_of",
    "pin_value",
    "producer",
    "read_entry",
    "save_model",
    "set_origin",
    "shapes_alone",
    "values_by_name",
    "weight_channel_axis",
    "weight_summed_axis",
    "with_operators",
    "with_shapes",
    "word_attribute",
]

"""ONNX as data: loading, digests, questions, facts of operators, the QDQ convention,
capabilities, cost.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.graph.capabilities import Capabilities as Capabilities
    from qbench.graph.capabilities import Form as Form
    from qbench.graph.capabilities import ZeroPoints as ZeroPoints
    from qbench.graph.cost import node_macs as node_macs
    from qbench.graph.digest import graph_digest as graph_digest
    from qbench.graph.fixed_qparams import Pin as Pin
    from qbench.graph.fixed_qparams import PinKind as PinKind
    from qbench.graph.fixed_qparams import is_pinned as is_pinned
    from qbench.graph.fixed_qparams import pin_of as pin_of
    from qbench.graph.fixed_qparams import pin_value as pin_value
    from qbench.graph.foreign_files import FileFormat as FileFormat
    from qbench.graph.foreign_files import FileProduct as FileProduct
    from qbench.graph.foreign_files import WrittenFile as WrittenFile
    from qbench.graph.foreign_files import file_held_by as file_held_by
    from qbench.graph.foreign_files import file_products as file_products
    from qbench.graph.foreign_files import form_text as form_text
    from qbench.graph.foreign_files import format_catalogue as format_catalogue
    from qbench.graph.foreign_files import format_held_by as format_held_by
    from qbench.graph.foreign_files import format_of_path as format_of_path
    from qbench.graph.foreign_files import graph_of_file as graph_of_file
    from qbench.graph.library_domains import LIBRARIES as LIBRARIES
    from qbench.graph.library_domains import LibraryOperators as LibraryOperators
    from qbench.graph.library_domains import library_operators as library_operators
    from qbench.graph.library_domains import library_remedy as library_remedy
    from qbench.graph.model_files import MESSAGE_LIMIT as MESSAGE_LIMIT
    from qbench.graph.model_files import AnyModel as AnyModel
    from qbench.graph.model_files import as_model as as_model
    from qbench.graph.model_files import constant_bytes as constant_bytes
    from qbench.graph.model_files import load_model as load_model
    from qbench.graph.model_files import load_tensor as load_tensor
    from qbench.graph.model_files import model_bytes as model_bytes
    from qbench.graph.model_files import own_copy as own_copy
    from qbench.graph.model_files import save_model as save_model
    from qbench.graph.ops import ENGINE_DOMAIN as ENGINE_DOMAIN
    from qbench.graph.ops import INTEGER_DOMAIN as INTEGER_DOMAIN
    from qbench.graph.ops import INTEGER_FORMS as INTEGER_FORMS
    from qbench.graph.ops import OPERATORS as OPERATORS
    from qbench.graph.ops import POINTWISE as POINTWISE
    from qbench.graph.ops import PRODUCTS as PRODUCTS
    from qbench.graph.ops import REFERENCE_KERNEL as REFERENCE_KERNEL
    from qbench.graph.ops import REQUANTIZE as REQUANTIZE
    from qbench.graph.ops import IntegerForm as IntegerForm
    from qbench.graph.ops import Kind as Kind
    from qbench.graph.ops import OpSpec as OpSpec
    from qbench.graph.ops import Output as Output
    from qbench.graph.ops import float_name as float_name
    from qbench.graph.ops import is_mover as is_mover
    from qbench.graph.ops import op_spec as op_spec
    from qbench.graph.ops import weight_channel_axis as weight_channel_axis
    from qbench.graph.ops import weight_summed_axis as weight_summed_axis
    from qbench.graph.outside_operators import QLINEAR as QLINEAR
    from qbench.graph.outside_operators import Operator as Operator
    from qbench.graph.outside_operators import OperatorFacts as OperatorFacts
    from qbench.graph.outside_operators import carried_operators as carried_operators
    from qbench.graph.outside_operators import operator_catalogue as operator_catalogue
    from qbench.graph.outside_operators import outside_operator as outside_operator
    from qbench.graph.outside_operators import with_operators as with_operators
    from qbench.graph.qdq import QDQ_IR_VERSION as QDQ_IR_VERSION
    from qbench.graph.qdq import QDQ_OPSET as QDQ_OPSET
    from qbench.graph.qdq import check_convention as check_convention
    from qbench.graph.qdq import clip_of_codes as clip_of_codes
    from qbench.graph.qdq import code_dtype as code_dtype
    from qbench.graph.qdq import form_of as form_of
    from qbench.graph.qdq import is_qdq as is_qdq
    from qbench.graph.qdq import mark_float_codes as mark_float_codes
    from qbench.graph.qdq import node_qparams as node_qparams
    from qbench.graph.qdq import rounded_behind as rounded_behind
    from qbench.graph.query import LINEAGE as LINEAGE
    from qbench.graph.query import OF_REALS as OF_REALS
    from qbench.graph.query import constant_value as constant_value
    from qbench.graph.query import consumers as consumers
    from qbench.graph.query import extend_lineage as extend_lineage
    from qbench.graph.query import float_attribute as float_attribute
    from qbench.graph.query import forget_lineage as forget_lineage
    from qbench.graph.query import input_at as input_at
    from qbench.graph.query import int_attribute as int_attribute
    from qbench.graph.query import ints_attribute as ints_attribute
    from qbench.graph.query import is_constant as is_constant
    from qbench.graph.query import lineage_of as lineage_of
    from qbench.graph.query import node_key as node_key
    from qbench.graph.query import only_consumer as only_consumer
    from qbench.graph.query import opset as opset
    from qbench.graph.query import origin_of as origin_of
    from qbench.graph.query import producer as producer
    from qbench.graph.query import read_entry as read_entry
    from qbench.graph.query import set_origin as set_origin
    from qbench.graph.query import values_by_name as values_by_name
    from qbench.graph.query import word_attribute as word_attribute
    from qbench.graph.shapes import declare_dims as declare_dims
    from qbench.graph.shapes import declared_dims as declared_dims
    from qbench.graph.shapes import fixed_batch as fixed_batch
    from qbench.graph.shapes import infer_shapes as infer_shapes
    from qbench.graph.shapes import shapes_alone as shapes_alone
    from qbench.graph.shapes import with_shapes as with_shapes
    from qbench.storage import limits_times as limits_times
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)

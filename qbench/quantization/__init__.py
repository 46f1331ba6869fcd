"""Deciding and doing: schemas, plans over a profile, and writing a plan into a graph as QDQ."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.quantization.all_float import refuse_all_float as refuse_all_float
    from qbench.quantization.all_float import why_all_float as why_all_float
    from qbench.quantization.bias_correction import BiasCorrection as BiasCorrection
    from qbench.quantization.bias_correction import bias_correction_of as bias_correction_of
    from qbench.quantization.bias_correction import correct_biases as correct_biases
    from qbench.quantization.by_hand import HandRange as HandRange
    from qbench.quantization.by_hand import HandRanges as HandRanges
    from qbench.quantization.by_hand import load_ranges as load_ranges
    from qbench.quantization.cache_names import remedy_without_cache as remedy_without_cache
    from qbench.quantization.cache_slots import IDLE_CACHE as IDLE_CACHE
    from qbench.quantization.candidates import requested_units as requested_units
    from qbench.quantization.decision import Decision as Decision
    from qbench.quantization.decision import Derived as Derived
    from qbench.quantization.decision import Dynamic as Dynamic
    from qbench.quantization.decision import Fixed as Fixed
    from qbench.quantization.decision import Given as Given
    from qbench.quantization.decision import KeptFloat as KeptFloat
    from qbench.quantization.decision import Shared as Shared
    from qbench.quantization.decision import Static as Static
    from qbench.quantization.decision import numbers as numbers
    from qbench.quantization.decision import qparams_of as qparams_of
    from qbench.quantization.fitted_plan import FittedModel as FittedModel
    from qbench.quantization.fitted_plan import fit_model as fit_model
    from qbench.quantization.fitted_plan import fit_task as fit_task
    from qbench.quantization.fitted_plan import ranges_text as ranges_text
    from qbench.quantization.grammar import catalogue as catalogue
    from qbench.quantization.grammar import get_schema as get_schema
    from qbench.quantization.internal_qparams import Ranges as Ranges
    from qbench.quantization.plan import Plan as Plan
    from qbench.quantization.plan import cached_types as cached_types
    from qbench.quantization.plan_file import load_plan as load_plan
    from qbench.quantization.plan_file import save_plan as save_plan
    from qbench.quantization.planning import as_schema as as_schema
    from qbench.quantization.planning import make_plan as make_plan
    from qbench.quantization.quantizer_file import Quantizer as Quantizer
    from qbench.quantization.quantizer_file import load_quantizer as load_quantizer
    from qbench.quantization.quantizer_file import lock_lines as lock_lines
    from qbench.quantization.quantizer_file import lock_with as lock_with
    from qbench.quantization.quantizer_file import quantizer_catalogue as quantizer_catalogue
    from qbench.quantization.quantizer_file import quantizer_of as quantizer_of
    from qbench.quantization.reading import float8_share as float8_share
    from qbench.quantization.reading import has_quantized_products as has_quantized_products
    from qbench.quantization.reading import is_quantized as is_quantized
    from qbench.quantization.reading import read_plan as read_plan
    from qbench.quantization.schema import GraphOutputs as GraphOutputs
    from qbench.quantization.schema import Rule as Rule
    from qbench.quantization.schema import Schema as Schema
    from qbench.quantization.schema import Share as Share
    from qbench.quantization.schema import SlotOptions as SlotOptions
    from qbench.quantization.schema import WeightCodes as WeightCodes
    from qbench.quantization.schema import load_schema as load_schema
    from qbench.quantization.schema import quantizer_schema as quantizer_schema
    from qbench.quantization.schema import schema_from_table as schema_from_table
    from qbench.quantization.schema import schema_in_file as schema_in_file
    from qbench.quantization.spec import BiasKind as BiasKind
    from qbench.quantization.spec import BiasSpec as BiasSpec
    from qbench.quantization.spec import Finer as Finer
    from qbench.quantization.spec import Granularity as Granularity
    from qbench.quantization.spec import Role as Role
    from qbench.quantization.spec import Slot as Slot
    from qbench.quantization.spec import Spec as Spec
    from qbench.quantization.stubs import NO_STUB as NO_STUB
    from qbench.quantization.stubs import Stub as Stub
    from qbench.quantization.stubs import of_stubs_alone as of_stubs_alone
    from qbench.quantization.stubs import stubs_of as stubs_of
    from qbench.quantization.weight_fit import WeightFit as WeightFit
    from qbench.quantization.weight_fit import adjusted_on_samples as adjusted_on_samples
    from qbench.quantization.weight_fit import fit_weights as fit_weights
    from qbench.quantization.weight_fit import weight_fit_of as weight_fit_of
    from qbench.quantization.writing import insert_qdq as insert_qdq
    from qbench.quantization.writing import quantize_model as quantize_model
    from qbench.quantization.writing import with_clips_of as with_clips_of
    from qbench.quantization.writing import with_integers_of as with_integers_of
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)

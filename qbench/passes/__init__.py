"""Graph → graph: what a pass is and does to numbers, pipelines of them, canonical passes,
rewrites, lowering.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.passes.canonical.bias import bias_split_from as bias_split_from
    from qbench.passes.canonical.bias import is_product as is_product
    from qbench.passes.canonical.cache_channels import channels_of_cache as channels_of_cache
    from qbench.passes.canonical.equalize_clips import equalized_by_peaks as equalized_by_peaks
    from qbench.passes.canonical_pipeline import CACHE_CHANNELS_PIPELINE as CACHE_CHANNELS_PIPELINE
    from qbench.passes.canonical_pipeline import CANONICAL as CANONICAL
    from qbench.passes.canonical_pipeline import DEFAULT as DEFAULT
    from qbench.passes.canonical_pipeline import Canonical as Canonical
    from qbench.passes.canonical_pipeline import canonicalize as canonicalize
    from qbench.passes.canonical_pipeline import plannable as plannable
    from qbench.passes.canonical_pipeline import plannable_digest as plannable_digest
    from qbench.passes.contract import EXACT as EXACT
    from qbench.passes.contract import LOSSY as LOSSY
    from qbench.passes.contract import Effect as Effect
    from qbench.passes.contract import EffectKind as EffectKind
    from qbench.passes.contract import Pass as Pass
    from qbench.passes.contract import Policy as Policy
    from qbench.passes.contract import decline as decline
    from qbench.passes.contract import declined as declined
    from qbench.passes.contract import within as within
    from qbench.passes.editing import NameScope as NameScope
    from qbench.passes.effect_check.check import BrokenRegion as BrokenRegion
    from qbench.passes.effect_check.check import assert_effect as assert_effect
    from qbench.passes.effect_check.check import broken_regions as broken_regions
    from qbench.passes.effect_check.check import check_pass as check_pass
    from qbench.passes.effect_check.check import check_run as check_run
    from qbench.passes.effect_check.check import output_changes as output_changes
    from qbench.passes.effect_check.verdicts import Checked as Checked
    from qbench.passes.effect_check.verdicts import OutputChange as OutputChange
    from qbench.passes.effect_check.verdicts import PassVerdict as PassVerdict
    from qbench.passes.effect_check.verdicts import RegionVerdict as RegionVerdict
    from qbench.passes.integer_form import lower_to_integers as lower_to_integers
    from qbench.passes.lowering.qoperator import LowerToQOperator as LowerToQOperator
    from qbench.passes.lowering.qoperator import lower_to_qoperator as lower_to_qoperator
    from qbench.passes.lowering.site import INTEGER_INTERPRETER as INTEGER_INTERPRETER
    from qbench.passes.lowering.site import ONNX_RUNTIME as ONNX_RUNTIME
    from qbench.passes.lowering.site import Target as Target
    from qbench.passes.lowering.site import integer_target as integer_target
    from qbench.passes.partition.device import Device as Device
    from qbench.passes.partition.device import Limits as Limits
    from qbench.passes.partition.device import float_name as float_name
    from qbench.passes.partition.device import get_device as get_device
    from qbench.passes.partition.device import list_devices as list_devices
    from qbench.passes.partition.device import load_device as load_device
    from qbench.passes.partition.files import PartitionFiles as PartitionFiles
    from qbench.passes.partition.files import partition_files as partition_files
    from qbench.passes.partition.files import read_partition as read_partition
    from qbench.passes.partition.files import write_partition as write_partition
    from qbench.passes.partition.marking import Place as Place
    from qbench.passes.partition.partitioning import Costs as Costs
    from qbench.passes.partition.partitioning import Partition as Partition
    from qbench.passes.partition.partitioning import partition_costs as partition_costs
    from qbench.passes.partition.partitioning import partition_model as partition_model
    from qbench.passes.partition.sections import Section as Section
    from qbench.passes.pattern import apply_rules as apply_rules
    from qbench.passes.pattern import rewrite_rule as rewrite_rule
    from qbench.passes.pipeline import Pipeline as Pipeline
    from qbench.passes.pipeline import parse_pipeline as parse_pipeline
    from qbench.passes.qdq.attention_operator import lower_attention as lower_attention
    from qbench.passes.qdq.attention_operator import require_codes_inside as require_codes_inside
    from qbench.passes.qdq.block_operators import lower_blocks as lower_blocks
    from qbench.passes.registry import catalogue as catalogue
    from qbench.passes.registry import standard_pipeline as standard_pipeline
    from qbench.passes.run import PassAccount as PassAccount
    from qbench.passes.run import PassError as PassError
    from qbench.passes.run import Rewritten as Rewritten
    from qbench.passes.run import rewrite as rewrite
    from qbench.passes.run import run_pipeline as run_pipeline
    from qbench.passes.stored_values import Shared as Shared
    from qbench.passes.stored_values import StorageCost as StorageCost
    from qbench.passes.stored_values import storage_cost as storage_cost
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)

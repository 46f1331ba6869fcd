"""Graph → graph: what a pass is and does to numbers, pipelines of them, canonical passes, rewrites, lowering."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.passes.canonical.split_bias import bias_split_from as bias_split_from
    from qbench.passes.canonical.split_bias import is_product as is_product
    from qbench.passes.canonical_pipeline import CANONICAL as CANONICAL
    from qbench.passes.canonical_pipeline import DEFAULT as DEFAULT
    from qbench.passes.canonical_pipeline import Canonical as Canonical
    from qbench.passes.canonical_pipeline import canonicalize as canonicalize
    from qbench.passes.canonical_pipeline import plannable as plannable
    from qbench.passes.canonical_pipeline import plannable_digest as plannable_digest
    from qbench.passes.contract import Pass as Pass
    from qbench.passes.contract import Placed as Placed
    from qbench.passes.declining import decline as decline
    from qbench.passes.declining import declined as declined
    from qbench.passes.effect import EXACT as EXACT
    from qbench.passes.effect import LOSSY as LOSSY
    from qbench.passes.effect import Effect as Effect
    from qbench.passes.effect import EffectKind as EffectKind
    from qbench.passes.effect import Policy as Policy
    from qbench.passes.effect import within as within
    from qbench.passes.effect_check.checking import assert_effect as assert_effect
    from qbench.passes.effect_check.checking import check_pass as check_pass
    from qbench.passes.effect_check.checking import check_run as check_run
    from qbench.passes.effect_check.checking import output_changes as output_changes
    from qbench.passes.effect_check.occurring import BrokenRegion as BrokenRegion
    from qbench.passes.effect_check.occurring import broken_regions as broken_regions
    from qbench.passes.effect_check.verdicts import Checked as Checked
    from qbench.passes.effect_check.verdicts import Counterexample as Counterexample
    from qbench.passes.effect_check.verdicts import OutputChange as OutputChange
    from qbench.passes.effect_check.verdicts import PassVerdict as PassVerdict
    from qbench.passes.effect_check.verdicts import RegionVerdict as RegionVerdict
    from qbench.passes.lowering.machines import INTEGER_MACHINES as INTEGER_MACHINES
    from qbench.passes.lowering.qoperator import LowerToQOperator as LowerToQOperator
    from qbench.passes.lowering.qoperator import lower_to_qoperator as lower_to_qoperator
    from qbench.passes.lowering.target import ONNX_RUNTIME as ONNX_RUNTIME
    from qbench.passes.lowering.target import Target as Target
    from qbench.passes.machine_form import lower_to_machines as lower_to_machines
    from qbench.passes.named import catalogue as catalogue
    from qbench.passes.naming import NameScope as NameScope
    from qbench.passes.partition.costs import Costs as Costs
    from qbench.passes.partition.costs import partition_costs as partition_costs
    from qbench.passes.partition.device import Device as Device
    from qbench.passes.partition.device import Limits as Limits
    from qbench.passes.partition.device_files import get_device as get_device
    from qbench.passes.partition.device_files import list_devices as list_devices
    from qbench.passes.partition.device_files import load_device as load_device
    from qbench.passes.partition.marking import Place as Place
    from qbench.passes.partition.operators import float_name as float_name
    from qbench.passes.partition.partitioning import Conversions as Conversions
    from qbench.passes.partition.partitioning import Partition as Partition
    from qbench.passes.partition.partitioning import partition_model as partition_model
    from qbench.passes.partition.sections import Section as Section
    from qbench.passes.pattern import apply_rules as apply_rules
    from qbench.passes.pattern import rewrite_rule as rewrite_rule
    from qbench.passes.pipeline import Pipeline as Pipeline
    from qbench.passes.pipeline import parse_pipeline as parse_pipeline
    from qbench.passes.rewriting import rewrite as rewrite
    from qbench.passes.running import Declined as Declined
    from qbench.passes.running import PassAccount as PassAccount
    from qbench.passes.running import PassError as PassError
    from qbench.passes.running import Rewritten as Rewritten
    from qbench.passes.running import run_pipeline as run_pipeline
    from qbench.passes.standard import standard_pipeline as standard_pipeline
    from qbench.passes.stored_values import Shared as Shared
    from qbench.passes.stored_values import StorageCost as StorageCost
    from qbench.passes.stored_values import storage_cost as storage_cost
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "canonical.split_bias": (
                "bias_split_from",
                "is_product",
            ),
            "canonical_pipeline": (
                "CANONICAL",
                "Canonical",
                "DEFAULT",
                "canonicalize",
                "plannable",
                "plannable_digest",
            ),
            "contract": (
                "Pass",
                "Placed",
            ),
            "declining": (
                "decline",
                "declined",
            ),
            "effect": (
                "EXACT",
                "Effect",
                "EffectKind",
                "LOSSY",
                "Policy",
                "within",
            ),
            "effect_check.checking": (
                "assert_effect",
                "check_pass",
                "check_run",
                "output_changes",
            ),
            "effect_check.occurring": (
                "BrokenRegion",
                "broken_regions",
            ),
            "effect_check.verdicts": (
                "Checked",
                "Counterexample",
                "OutputChange",
                "PassVerdict",
                "RegionVerdict",
            ),
            "lowering.machines": ("INTEGER_MACHINES",),
            "lowering.qoperator": (
                "LowerToQOperator",
                "lower_to_qoperator",
            ),
            "lowering.target": (
                "ONNX_RUNTIME",
                "Target",
            ),
            "machine_form": ("lower_to_machines",),
            "named": ("catalogue",),
            "naming": ("NameScope",),
            "partition.costs": (
                "Costs",
                "partition_costs",
            ),
            "partition.device": (
                "Device",
                "Limits",
            ),
            "partition.device_files": (
                "get_device",
                "list_devices",
                "load_device",
            ),
            "partition.marking": ("Place",),
            "partition.operators": ("float_name",),
            "partition.partitioning": (
                "Conversions",
                "Partition",
                "partition_model",
            ),
            "partition.sections": ("Section",),
            "pattern": (
                "apply_rules",
                "rewrite_rule",
            ),
            "pipeline": (
                "Pipeline",
                "parse_pipeline",
            ),
            "rewriting": ("rewrite",),
            "standard": ("standard_pipeline",),
            "stored_values": (
                "Shared",
                "StorageCost",
                "storage_cost",
            ),
            "running": (
                "Declined",
                "PassAccount",
                "PassError",
                "Rewritten",
                "run_pipeline",
            ),
        },
    )

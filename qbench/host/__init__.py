"""This computer: processor, probe (dot product), versions, commit, clock."""

from qbench.host.git import Commit, Worktree, current_commit, first_parents, subject_line, tree_hash, whole_hash
from qbench.host.processor import (
    DotProduct,
    architecture,
    classify,
    probe_dot_product,
    processor_class,
    processor_features,
    processor_name,
)
from qbench.host.termination import ended_like_interrupted
from qbench.host.versions import describe_host, package_versions, python_version, utc_now, utc_today

__all__ = [
    "Commit",
    "DotProduct",
    "Worktree",
    "architecture",
    "classify",
    "current_commit",
    "describe_host",
    "ended_like_interrupted",
    "first_parents",
    "package_versions",
    "probe_dot_product",
    "processor_class",
    "processor_features",
    "processor_name",
    "python_version",
    "subject_line",
    "tree_hash",
    "utc_now",
    "utc_today",
    "whole_hash",
]

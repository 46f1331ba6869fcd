"""This computer: processor, probe (dot product), versions, commit, clock."""

from qbench.host.clock import utc_now, utc_today
from qbench.host.commit import Commit, current_commit
from qbench.host.description import describe_host
from qbench.host.main_line import first_parents, subject_line, tree_hash, whole_hash
from qbench.host.probe import DotProduct, probe_dot_product
from qbench.host.processor import architecture, classify, processor_class, processor_features, processor_name
from qbench.host.termination import ended_like_interrupted
from qbench.host.versions import package_versions, python_version
from qbench.host.worktree import Worktree

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

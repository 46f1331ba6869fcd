"""This computer: processor, probe (dot product), versions, commit, clock."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.host.computer import COUNTING_PACKAGES as COUNTING_PACKAGES
    from qbench.host.computer import DotProduct as DotProduct
    from qbench.host.computer import architecture as architecture
    from qbench.host.computer import blas_kernels as blas_kernels
    from qbench.host.computer import classify as classify
    from qbench.host.computer import describe_host as describe_host
    from qbench.host.computer import has_amx as has_amx
    from qbench.host.computer import package_versions as package_versions
    from qbench.host.computer import probe_dot_product as probe_dot_product
    from qbench.host.computer import processor_class as processor_class
    from qbench.host.computer import processor_features as processor_features
    from qbench.host.computer import processor_name as processor_name
    from qbench.host.computer import unusual_blas_kernels as unusual_blas_kernels
    from qbench.host.computer import utc_now as utc_now
    from qbench.host.computer import utc_today as utc_today
    from qbench.host.git import OURS_BASE_THEIRS as OURS_BASE_THEIRS
    from qbench.host.git import FileBranch as FileBranch
    from qbench.host.git import Worktree as Worktree
    from qbench.host.git import current_commit as current_commit
    from qbench.host.git import first_parents as first_parents
    from qbench.host.git import git_user as git_user
    from qbench.host.git import indexed_file as indexed_file
    from qbench.host.git import published_commit as published_commit
    from qbench.host.git import run_git as run_git
    from qbench.host.git import subject_line as subject_line
    from qbench.host.git import tree_hash as tree_hash
    from qbench.host.git import whole_hash as whole_hash
    from qbench.host.supervision import early_end_noticed as early_end_noticed
    from qbench.host.supervision import run_supervised as run_supervised
    from qbench.host.termination import ended_like_interrupted as ended_like_interrupted
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)

"""Subjects: trained models, the data they are judged on, how a sample becomes a feed, and the task that answers."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.zoo.arrays import ReadyArray as ReadyArray
    from qbench.zoo.arrays import read_arrays as read_arrays
    from qbench.zoo.assets import DebianPackage as DebianPackage
    from qbench.zoo.assets import Package as Package
    from qbench.zoo.assets import Pinned as Pinned
    from qbench.zoo.assets import Progress as Progress
    from qbench.zoo.assets import fetch_package as fetch_package
    from qbench.zoo.assets import list_members as list_members
    from qbench.zoo.assets import open_member as open_member
    from qbench.zoo.catalogue import dataset_catalogue as dataset_catalogue
    from qbench.zoo.catalogue import get_dataset as get_dataset
    from qbench.zoo.catalogue import get_model as get_model
    from qbench.zoo.catalogue import model_catalogue as model_catalogue
    from qbench.zoo.catalogue import needed_packages as needed_packages
    from qbench.zoo.dataset import Dataset as Dataset
    from qbench.zoo.digits import digits_arrays as digits_arrays
    from qbench.zoo.model import ZooModel as ZooModel
    from qbench.zoo.networks.building import GraphBuilder as GraphBuilder
    from qbench.zoo.operators.entries import feeds_of_levels as feeds_of_levels
    from qbench.zoo.operators.entries import operator_feeds as operator_feeds
    from qbench.zoo.operators.graph import constant_array as constant_array
    from qbench.zoo.operators.graph import operator_graph as operator_graph
    from qbench.zoo.operators.levels import bias_levels as bias_levels
    from qbench.zoo.operators.levels import fed_levels as fed_levels
    from qbench.zoo.operators.levels import weight_levels as weight_levels
    from qbench.zoo.operators.subject import OperandGrid as OperandGrid
    from qbench.zoo.operators.subject import OperatorSubject as OperatorSubject
    from qbench.zoo.operators.table import get_operator as get_operator
    from qbench.zoo.operators.table import list_operators as list_operators
    from qbench.zoo.pictures import Interpolation as Interpolation
    from qbench.zoo.pictures import Layout as Layout
    from qbench.zoo.pictures import Picture as Picture
    from qbench.zoo.preprocess import Preprocess as Preprocess
    from qbench.zoo.samples import BATCH as BATCH
    from qbench.zoo.samples import Samples as Samples
    from qbench.zoo.samples import prepare_samples as prepare_samples
    from qbench.zoo.sources import dataset_from_text as dataset_from_text
    from qbench.zoo.tasks import Classification as Classification
    from qbench.zoo.tasks import Runner as Runner
    from qbench.zoo.tasks import Task as Task
    from qbench.zoo.tasks import WholeOutput as WholeOutput
    from qbench.zoo.tasks import forced_likelihoods as forced_likelihoods
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "arrays": (
                "ReadyArray",
                "read_arrays",
            ),
            "assets": (
                "DebianPackage",
                "Package",
                "Pinned",
                "Progress",
                "fetch_package",
                "list_members",
                "open_member",
            ),
            "catalogue": (
                "dataset_catalogue",
                "get_dataset",
                "get_model",
                "model_catalogue",
                "needed_packages",
            ),
            "dataset": ("Dataset",),
            "digits": ("digits_arrays",),
            "model": ("ZooModel",),
            "networks.building": ("GraphBuilder",),
            "operators.entries": (
                "feeds_of_levels",
                "operator_feeds",
            ),
            "operators.graph": (
                "constant_array",
                "operator_graph",
            ),
            "operators.levels": (
                "bias_levels",
                "fed_levels",
                "weight_levels",
            ),
            "operators.subject": (
                "OperandGrid",
                "OperatorSubject",
            ),
            "operators.table": (
                "get_operator",
                "list_operators",
            ),
            "pictures": (
                "Interpolation",
                "Layout",
                "Picture",
            ),
            "preprocess": ("Preprocess",),
            "samples": (
                "BATCH",
                "Samples",
                "prepare_samples",
            ),
            "sources": ("dataset_from_text",),
            "tasks": (
                "Classification",
                "Runner",
                "Task",
                "WholeOutput",
                "forced_likelihoods",
            ),
        },
    )

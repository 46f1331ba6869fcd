"""Subjects: trained models, the data they are judged on, how a sample becomes a feed, and the task that answers."""

from qbench.zoo.arrays import ReadyArray
from qbench.zoo.assets import Package, Progress, fetch_package, list_members, open_member
from qbench.zoo.catalogue import dataset_catalogue, get_dataset, get_model, model_catalogue, needed_packages
from qbench.zoo.dataset import Dataset
from qbench.zoo.model import ZooModel
from qbench.zoo.pictures import Interpolation, Layout, Picture
from qbench.zoo.preprocess import Preprocess
from qbench.zoo.samples import BATCH, Samples, prepare_samples
from qbench.zoo.sources import dataset_from_text
from qbench.zoo.tasks import Classification, Task

__all__ = [
    "BATCH",
    "Classification",
    "Dataset",
    "Interpolation",
    "Layout",
    "Package",
    "Picture",
    "Preprocess",
    "Progress",
    "ReadyArray",
    "Samples",
    "Task",
    "ZooModel",
    "dataset_catalogue",
    "dataset_from_text",
    "fetch_package",
    "get_dataset",
    "get_model",
    "list_members",
    "model_catalogue",
    "needed_packages",
    "open_member",
    "prepare_samples",
]

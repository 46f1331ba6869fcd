"""Subjects: trained models, the data they are scored on, how a sample becomes a feed, and tasks."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.subjects.assets import DebianPackage as DebianPackage
    from qbench.subjects.assets import Package as Package
    from qbench.subjects.assets import SourcePackage as SourcePackage
    from qbench.subjects.assets import fetch_package as fetch_package
    from qbench.subjects.assets import list_members as list_members
    from qbench.subjects.assets import open_member as open_member
    from qbench.subjects.catalogue import SCIKIT_LEARN as SCIKIT_LEARN
    from qbench.subjects.catalogue import Entry as Entry
    from qbench.subjects.catalogue import dataset_catalogue as dataset_catalogue
    from qbench.subjects.catalogue import get_dataset as get_dataset
    from qbench.subjects.catalogue import get_model as get_model
    from qbench.subjects.catalogue import model_catalogue as model_catalogue
    from qbench.subjects.catalogue import needed_packages as needed_packages
    from qbench.subjects.copies import Contents as Contents
    from qbench.subjects.copies import content_notes as content_notes
    from qbench.subjects.dataset import Array as Array
    from qbench.subjects.dataset import ClassNames as ClassNames
    from qbench.subjects.dataset import Dataset as Dataset
    from qbench.subjects.dataset import Preprocess as Preprocess
    from qbench.subjects.detection import FRAME as FRAME
    from qbench.subjects.detection import Corners as Corners
    from qbench.subjects.detection import Detection as Detection
    from qbench.subjects.detection import Fit as Fit
    from qbench.subjects.detection import FramedPicture as FramedPicture
    from qbench.subjects.detection import restored_boxes as restored_boxes
    from qbench.subjects.detection import unframed as unframed
    from qbench.subjects.digits import digits_arrays as digits_arrays
    from qbench.subjects.model_files import data_notes as data_notes
    from qbench.subjects.model_files import model_from_file as model_from_file
    from qbench.subjects.model_files import only_graph as only_graph
    from qbench.subjects.model_files import read_graph as read_graph
    from qbench.subjects.model_files import read_network as read_network
    from qbench.subjects.model_files import require_feeds as require_feeds
    from qbench.subjects.operator_graphs import GraphBuilder as GraphBuilder
    from qbench.subjects.operator_graphs import bias_codes as bias_codes
    from qbench.subjects.operator_graphs import constant_array as constant_array
    from qbench.subjects.operator_graphs import fed_codes as fed_codes
    from qbench.subjects.operator_graphs import feeds_of_codes as feeds_of_codes
    from qbench.subjects.operator_graphs import operator_feeds as operator_feeds
    from qbench.subjects.operator_graphs import operator_graph as operator_graph
    from qbench.subjects.operator_graphs import weight_codes as weight_codes
    from qbench.subjects.operators import OperandQParams as OperandQParams
    from qbench.subjects.operators import OperatorSubject as OperatorSubject
    from qbench.subjects.operators import get_operator as get_operator
    from qbench.subjects.operators import list_operators as list_operators
    from qbench.subjects.pictures import Channels as Channels
    from qbench.subjects.pictures import Crop as Crop
    from qbench.subjects.pictures import Interpolation as Interpolation
    from qbench.subjects.pictures import Layout as Layout
    from qbench.subjects.pictures import Picture as Picture
    from qbench.subjects.pictures import Pixels as Pixels
    from qbench.subjects.pictures import decode_picture as decode_picture
    from qbench.subjects.sample_folders import ReadyArray as ReadyArray
    from qbench.subjects.sample_folders import read_arrays as read_arrays
    from qbench.subjects.samples import BATCH as BATCH
    from qbench.subjects.samples import Samples as Samples
    from qbench.subjects.samples import prepare_samples as prepare_samples
    from qbench.subjects.samples import unfollowed_text as unfollowed_text
    from qbench.subjects.sequences import Transduction as Transduction
    from qbench.subjects.sequences import batches_by_length as batches_by_length
    from qbench.subjects.sources import dataset_from_text as dataset_from_text
    from qbench.subjects.subject import RestoresAnswers as RestoresAnswers
    from qbench.subjects.subject import Runner as Runner
    from qbench.subjects.subject import Task as Task
    from qbench.subjects.subject import ZooModel as ZooModel
    from qbench.subjects.subject import task_answers as task_answers
    from qbench.subjects.tasks import GRAPH as GRAPH
    from qbench.subjects.tasks import Classification as Classification
    from qbench.subjects.tasks import NearestNeighbour as NearestNeighbour
    from qbench.subjects.tasks import Verification as Verification
    from qbench.subjects.tasks import WholeOutput as WholeOutput
    from qbench.subjects.tasks import best_classes as best_classes
    from qbench.subjects.tasks import finite_rows as finite_rows
    from qbench.subjects.tasks import forced_likelihoods as forced_likelihoods
    from qbench.subjects.tasks import runner_named as runner_named
    from qbench.subjects.tasks import tied_rows as tied_rows
    from qbench.subjects.value_tasks import Regression as Regression
    from qbench.subjects.value_tasks import Restoration as Restoration
    from qbench.subjects.value_tasks import Segmentation as Segmentation
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)

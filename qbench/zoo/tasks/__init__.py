"""Tasks: samples → answers; each owns its loop over the graphs of its model."""

from qbench.zoo.tasks.classification import Classification
from qbench.zoo.tasks.nearest_neighbour import NearestNeighbour
from qbench.zoo.tasks.task import Runner, Task
from qbench.zoo.tasks.teacher_forcing import forced_likelihoods
from qbench.zoo.tasks.transduction import Transduction
from qbench.zoo.tasks.verification import Verification
from qbench.zoo.tasks.whole_output import WholeOutput

__all__ = [
    "Classification",
    "NearestNeighbour",
    "Runner",
    "Task",
    "Transduction",
    "Verification",
    "WholeOutput",
    "forced_likelihoods",
]

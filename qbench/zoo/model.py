"""A trained network of the zoo: its graphs, how samples enter it, and the task that reads its answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from qbench.zoo.preprocess import Preprocess
from qbench.zoo.tasks.task import Task


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZooModel:
    """A network with weights, lazily loaded.

    Args:
        id: name in suites. graphs: name → loader of an ONNX graph, float unless a suite names
            its ``fp32`` partner; names as ``task.graphs`` has them.
        preprocess, task: how a raw sample becomes a feed, and outputs an answer.
        origin: where the weights come from and under which licence, for lists.
    """

    id: str
    graphs: Mapping[str, Callable[[], ir.Model]]
    preprocess: Preprocess
    task: Task
    origin: str

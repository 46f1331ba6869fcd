"""An operator subject as the zoo's values: a model whose answer is its whole output, and the data it is fed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.numerics import dequantize
from qbench.storage import digest_arrays
from qbench.zoo.dataset import Dataset
from qbench.zoo.model import ZooModel
from qbench.zoo.operators.graph import input_names, operator_graph
from qbench.zoo.operators.levels import Ints, fed_levels
from qbench.zoo.operators.subject import OperatorSubject
from qbench.zoo.preprocess import Array
from qbench.zoo.tasks import WholeOutput

_KIND = "operands"


@dataclass(frozen=True, slots=True)
class Operands:
    """A sample that has an array for every input of its graph."""

    @property
    def name(self) -> str:
        """There is nothing to set."""
        return "operands"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Data of operator subjects."""
        return (_KIND,)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - arrays by name, by the data's kind
        """As it is."""
        return {name: np.asarray(array) for name, array in sample.items()}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """As it is."""
        return batch


def operator_model(subject: OperatorSubject) -> ZooModel:
    """The quantized graph of ``subject``."""
    return ZooModel(
        id=subject.id,
        graphs={"model": lambda: operator_graph(subject)},
        preprocess=Operands(),
        task=WholeOutput(),
        origin="made in code by qbench.zoo.operators",
    )


def operator_data(subject: OperatorSubject) -> Dataset:
    """What ``subject`` is fed."""
    feeds = operator_feeds(subject)
    count = len(next(iter(feeds.values())))
    ids = tuple(f"{subject.id}[{index}]" for index in range(count))
    return Dataset(
        id=subject.id,
        kind=_KIND,
        sample_ids=ids,
        sources=ids,
        labels=None,
        content=digest_arrays(feeds),
        load=lambda index: {name: array[index] for name, array in feeds.items()},
    )


def operator_feeds(subject: OperatorSubject) -> Mapping[str, Array]:
    """Input name → reals (samples, …) float32, each exactly on a level."""
    return feeds_of_levels(subject, fed_levels(subject))


def feeds_of_levels(subject: OperatorSubject, levels: Sequence[Ints]) -> Mapping[str, Array]:
    """Input name → reals on ``levels`` (samples, …), one array an operand."""
    grids = [operand.grid.qparams() for operand in subject.inputs]
    return {
        name: dequantize(part.astype(grid.qtype.storage_dtype), grid)
        for name, part, grid in zip(input_names(subject), levels, grids, strict=True)
    }

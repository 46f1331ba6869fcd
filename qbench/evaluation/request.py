"""All that measuring one cell takes, as a value."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qbench.backends import Backend
from qbench.evaluation.artifacts import SubjectArtifacts
from qbench.evaluation.rewriting import Rewriting
from qbench.evaluation.subject import Subject
from qbench.judging import Cell, Criterion, EnvironmentClass, GateKind, StopRule
from qbench.metrics import Answers

if TYPE_CHECKING:
    from qbench.quantization import Schema


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparator:
    """Another backend that runs a cell's quantized model, its class, and how both must agree."""

    backend: Backend
    criterion: Criterion
    environment: EnvironmentClass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """All that measuring one cell takes.

    Args:
        shared: what the cells of the subject share.
        reference: fp32 answers by data set, which losses and gains are counted against.
        environment: the class of this computer with the packages that ``backend`` counts with.
        schema: None runs a model as it is: the float one, or the given one where the schema of
            ``cell`` is ``given``.
        rewriting: what runs behind the quantizer; None: nothing.
        comparator: the backend that a quantized cell is compared with; None: it is not compared.
        asked: evidence beyond the answers → what it is measured by (``judging.asked_evidence``):
            the ``Backend`` that the cell must not be worse than, the least share that recovers, the
            column that tells slices apart.
        keeps_answers: whether the measurement carries the answers themselves.
        repeats: how many times the cell runs; with 1 it is not known whether its answers repeat.
        repeat_threads: of the runs after the first, in turn; empty: ``threads``.
        stop: ends the cell when it decides every gate; None: all samples are run.
        recalibrated: the variant of the suite that the calibration samples are of; empty: they are
            the model's own.
        most_samples: how many lost and gained samples of each data set the measurement lists; 0:
            none are looked for.
        private: whether they are listed by their ids alone, whatever the data says.
        times_samples: whether the measurement has the seconds of a sample on the engine.
        timer: seconds on a monotonic clock.
    """

    cell: Cell
    shared: SubjectArtifacts
    backend: Backend
    schema: "Schema | None"
    reference: Mapping[str, Answers]
    environment: EnvironmentClass
    rewriting: Rewriting | None = None
    threads: int = 1
    comparator: Comparator | None = None
    asked: Mapping[GateKind, Any] = field(default_factory=dict)
    keeps_answers: bool = False
    repeats: int = 1
    repeat_threads: tuple[int, ...] = ()
    stop: StopRule | None = None
    recalibrated: str = ""
    most_samples: int = 0
    private: bool = False
    times_samples: bool = False
    timer: Callable[[], float] = time.perf_counter

    @property
    def is_by_others(self) -> bool:
        """Whether no schema of qbench decides what is quantized: the plans of graphs that came
        quantized, or that another quantizer made, are read.
        """
        return self.schema is None or self.schema.made_by is not None

    @property
    def subject(self) -> Subject:
        """What is measured."""
        return self.shared.subject

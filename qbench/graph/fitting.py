"""What a fitter is given and gives: a float graph and the quantization parameters of its values
and constants, by name; nothing of schemas, plans or samples' origins.

A plan becomes a ``FitTask`` (``quantization.fitted_plan``), so that a guest that fits by gradients
needs to know arrays and graphs only. A fitter changes parameters and constants, never which values
have some.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt
import onnx_ir as ir

from qbench.extension import Catalogue, Extension
from qbench.numerics import QParams

Array = npt.NDArray[Any]
Place = tuple[str, int]
"""A node by its name, and the index of one of its inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """What may change of one set of quantization parameters.

    Args:
        name: of the value or constant that a file of ranges names.
        qparams: what it begins with.
        pow2: its scales stay powers of two.
        zero_point: the zero point may move, too.
    """

    name: str
    qparams: QParams
    pow2: bool = False
    zero_point: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTask:
    """One canonical float graph, and where it is quantized with what.

    Args:
        model: canonical, float; not touched.
        values: value → the name of its parameters; every reader inside the graph gets it quantized.
        constants: (node, index) of a weight or another constant operand → the name of its
            parameters.
        biases: (node, index) of a bias → the names of the parameters of data and weight, whose
            scales multiplied are the bias's; int32.
        outputs: the graph outputs that leave the graph quantized.
        moving: name → parameters that may change.
        fixed: name → parameters that stay.
    """

    model: ir.Model
    values: Mapping[str, str]
    constants: Mapping[Place, str]
    biases: Mapping[Place, tuple[str, str]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    moving: Mapping[str, Moving]
    fixed: Mapping[str, QParams] = field(default_factory=dict)

    @property
    def qparams(self) -> dict[str, QParams]:
        """Name → the parameters that fitting begins with."""
        return {**{name: one.qparams for name, one in self.moving.items()}, **self.fixed}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """How to fit.

    Args:
        steps: of gradient descent; of each layer, where layers are fitted one by one.
        batch: samples of a step.
        rate: step size relative to a parameter; None: the usual one of the method.
        weights: fit the weights and biases too.
        seed: of every random choice: order of samples, dropout of roundings.
        threads: of the processor.
        freeze: from which share of the steps on thresholds are frozen one by one; 1: never.
    """

    steps: int = 200
    batch: int = 16
    rate: float | None = None
    weights: bool = False
    seed: int = 0
    threads: int = 1
    freeze: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What came out.

    Args:
        qparams: name → parameters, of everything that could move.
        constants: name of a constant → its new float numbers; their nearest codes are the fitted
            ones.
        losses: loss of every step, or of every layer before and after, for people.
    """

    qparams: Mapping[str, QParams]
    constants: Mapping[str, Array] = field(default_factory=dict)
    losses: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitJob:
    """The arguments of a fitter.

    Args:
        task: where to begin.
        feeds: graph input → samples along the first axis, equally many of each.
        settings: how.
        labels: the class of every sample; None: the results of the float graph are the aim.
    """

    task: FitTask
    feeds: Mapping[str, Array]
    settings: FitSettings = field(default_factory=FitSettings)
    labels: Array | None = None

    @property
    def doing(self) -> str:
        """What an error says was going on."""
        return f"Fitting '{self.task.model.graph.name}'"


class Fitter(Protocol):
    """A method of fitting; an extension names it (``Extension.fitters``)."""

    def fit(self, job: FitJob) -> Fitted:
        """Do ``job``.

        Raises:
            InputError: the method does not fit the schema or the samples.
            UnsupportedError: an operator that cannot be simulated.
        """
        ...


def fitter_catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[Fitter]:
    """The methods of ``extensions``; qbench itself has none."""
    own: Catalogue[Fitter] = Catalogue("fitter", {})
    return own.extended(extensions)

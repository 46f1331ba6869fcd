"""Cases of what ONNX Runtime's rewriting changes, with numbers to hold it to (``optimizer_catalogue.toml``)."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Feeds, Level, Optimization, OrtBackend
from qbench.diagnosis.optimizer_effects import OptimizationEffect, OptimizationTrial
from qbench.diagnosis.step_causes import StepCauses
from qbench.storage import read_toml, value_from_table

Array = npt.NDArray[Any]

_FILE = Path(__file__).with_suffix(".toml")
_SEED = 20261122
_PAIRS = 256
"""Levels of 8 bits; pairs of them are squared that many."""


class Origin(enum.Enum):
    """Whose doing a difference is."""

    KERNEL = "kernel"
    OPTIMIZER = "optimizer"
    NOBODY = "nobody"


class Samples(enum.Enum):
    """What an input is fed."""

    LEVELS = "levels"
    PAIRS_FIRST = "pairs-first"
    PAIRS_SECOND = "pairs-second"
    DRAWN = "drawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCase:
    """One graph, and how the outputs of two sessions over it differ: none and all optimizations.

    Args:
        name: short. reported: what was measured before, elsewhere. says: what was found here.
        belongs: whose doing it is.
        graph: ONNX text. samples: what its inputs are fed. constants: inputs that become weights.
        expected: output levels by cause; only those that are not zero are written.
        operators: those of the optimized graph.
    """

    name: str
    reported: str
    says: str
    belongs: Origin
    graph: str
    samples: Mapping[str, Samples]
    expected: StepCauses
    operators: Mapping[str, int]
    constants: Mapping[str, Samples] | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A ``case`` and the ``effect`` that was measured."""

    case: OptimizerCase
    effect: OptimizationEffect

    @property
    def measured(self) -> StepCauses:
        """Of its one output."""
        (output,) = self.effect.outputs
        assert output.causes is not None
        return output.causes

    @property
    def as_expected(self) -> bool:
        """Whether every number is."""
        return self.measured == self.case.expected and dict(self.effect.after) == dict(self.case.operators)


def optimizer_cases() -> tuple[OptimizerCase, ...]:
    """All of the catalogue, in its order."""
    tables = read_toml(_FILE)["case"]
    return tuple(
        value_from_table(OptimizerCase, table, f"case '{table.get('name', number)}' of '{_FILE.name}'")
        for number, table in enumerate(tables)
    )


def measure_case(case: OptimizerCase, *, precise: bool = True) -> CaseResult:
    """Run one case, as a rule in the mode where u8 × s8 sums are exact on every x64 processor."""
    model = ir.from_onnx_text(case.graph)
    inputs = {str(value.name): value for value in model.graph.inputs}
    for index, (name, samples) in enumerate((case.constants or {}).items()):
        _make_constant(model, inputs[name], _array(inputs[name], samples, 1000 + index))
    feeds: Feeds = {name: _array(inputs[name], one, n) for n, (name, one) in enumerate(case.samples.items())}
    trial = OptimizationTrial(model, feeds, OrtBackend(name="ort-cpu", precise=precise))
    return CaseResult(case, trial.compare(Optimization(level=Level.NONE), Optimization()))


def _array(value: ir.Value, samples: Samples, stream: int) -> Array:
    assert value.dtype is not None
    assert value.shape is not None
    shape, dtype = value.shape.numpy(), value.dtype.numpy()
    lowest = np.iinfo(dtype).min
    levels = np.arange(lowest, lowest + _PAIRS)
    match samples:
        case Samples.LEVELS:
            chosen = levels
        case Samples.PAIRS_FIRST:
            chosen = np.tile(levels, _PAIRS)
        case Samples.PAIRS_SECOND:
            chosen = np.repeat(levels, _PAIRS)
        case Samples.DRAWN:
            chosen = np.random.default_rng([_SEED, stream]).integers(lowest, lowest + _PAIRS, shape)
    return chosen.astype(dtype).reshape(shape)


def _make_constant(model: ir.Model, value: ir.Value, array: Array) -> None:
    model.graph.inputs.remove(value)
    value.const_value = ir.tensor(array, name=value.name)
    model.graph.register_initializer(value)

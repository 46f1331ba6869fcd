"""Units in which an engine differs from the arithmetic that it declares."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from qbench.backends import Array, Backend, Feeds, IntegerBackend, arithmetic_of, in_slices
from qbench.diagnosis.engine.client import UnitSession
from qbench.diagnosis.target import Target, sample_count
from qbench.diagnosis.units import QuantizedUnit, quantized_units, real_units
from qbench.errors import InputError
from qbench.judging import Cause
from qbench.metrics import unequal

REAL_WIDTH = 2.0**-16
"""Share of the largest number of a real result by which another order of float32 sums may move
it.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Divergence:
    """A unit that the engine computes otherwise than its declared arithmetic.

    Args:
        unit: the piece; ``node`` is the operator by its name in fp32.
        elements: number compared.
        differing: number not equal.
        largest: difference in steps; absolute if real.
        repeats: whether the engine gives equal results for equal inputs.
        crash: how the engine fails, in a sentence; empty: it does not.
        feeds: one sample on which they differ (a whole batch, where the first axis does not run
            over samples).
    """

    unit: QuantizedUnit
    elements: int = 0
    differing: int = 0
    largest: float = 0.0
    repeats: bool = True
    crash: str = ""
    feeds: Mapping[str, Array] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The operator by its name in fp32."""
        return self.unit.node

    @property
    def cause(self) -> Cause:
        """The kind of fault."""
        if self.crash:
            return Cause.CRASH
        return Cause.WRONG_KERNEL if self.repeats else Cause.NONDETERMINISM

    @property
    def sentence(self) -> str:
        """The divergence in words."""
        if self.crash:
            return f"the engine fails on it alone: {self.crash}"
        size = f"{self.largest:.3g}"
        if self.unit.qparams is not None:
            size += " step" if self.largest == 1 else " steps"
        apart = f"{self.differing} of {self.elements} numbers differ, by at most {size}"
        if self.repeats:
            return apart
        more = f"; compared with the arithmetic, {apart}" if self.differing else ""
        return f"two runs of the same input differ{more}"


def engine_divergences(
    target: Target, feeds: Feeds | Iterable[Feeds], *, interpreter: Backend | None = None
) -> tuple[Divergence, ...]:
    """The units of the target that its backend computes otherwise than it declares, in the
    order of the graph.

    Args:
        target: its ``backend`` runs the units.
        feeds: one batch, or several: they are used one by one.
        interpreter: what the backend should equal; None: the target's ``claims``, or one of the
            declared arithmetic.

    Raises:
        InputError: the backend declares no arithmetic, and no interpreter is given.
        QbenchError: the interpreter does not run the graph.
    """
    claimed = interpreter or target.claims or claimed_interpreter(target.backend)
    units = (*quantized_units(target.quantized), *real_units(target.quantized))
    taps = [unit.value for unit in units]
    with ExitStack() as stack:
        watched = stack.enter_context(claimed.prepare(target.quantized, taps=taps))
        whole = in_slices(watched, target.quantized)
        replays = [
            _Replay(stack.enter_context(UnitSession(unit, target.backend, threads=target.threads)))
            for unit in units
        ]
        for batch in [feeds] if isinstance(feeds, Mapping) else feeds:
            values = {**batch, **whole.run(batch)}
            for replay in replays:
                replay.add(values, sample_count(batch))
    return tuple(replay.divergence for replay in replays if replay.differs)


def claimed_interpreter(backend: Backend) -> Backend:
    """The integer interpreter of the arithmetic that ``backend`` declares.

    Raises:
        InputError: it declares no arithmetic.
    """
    arithmetic = arithmetic_of(backend)
    if arithmetic is None:
        raise InputError(
            f"Comparing '{backend.name}' with the arithmetic that it declares",
            found="a backend that declares no arithmetic",
            expected="a backend that declares one, or the name of an arithmetic",
            remedy="Name the arithmetic that it should compute by ('qbench list arithmetics').",
        )
    return IntegerBackend(arithmetic=arithmetic)


class _Replay:
    """One unit in the engine, batch by batch; only the first sample that differs is kept."""

    def __init__(self, alone: UnitSession) -> None:
        self.divergence = Divergence(unit=alone.unit)
        self._alone = alone

    @property
    def differs(self) -> bool:
        """Whether the engine differs, crashes or does not repeat its result."""
        return bool(
            self.divergence.crash or self.divergence.differing or not self.divergence.repeats
        )

    def add(self, values: Mapping[str, Array], samples: int) -> None:
        """One batch of the watched run."""
        if self.divergence.crash:
            return
        unit, expected = self.divergence.unit, values[self.divergence.unit.value]
        feeds = {name: values[name] for name in unit.feeds}
        found, again = self._alone.run(feeds), self._alone.run(feeds)
        if found is None or again is None:
            self.divergence = replace(self.divergence, crash=self._alone.crash)
            self._keep(values, None, samples, replaces=True)
            return
        apart = differing(unit, found, expected)
        repeats = found.shape == again.shape and not unequal(found, again).any()
        wrong = (
            apart
            if repeats
            else apart | differing(unit, again, expected) | np.asarray(found != again)
        )
        if wrong.any() and not self.differs:
            self._keep(values, wrong, samples)
        self.divergence = replace(
            self.divergence,
            elements=self.divergence.elements + expected.size,
            differing=self.divergence.differing + int(np.count_nonzero(apart)),
            largest=max(self.divergence.largest, largest_gap(found, expected)),
            repeats=self.divergence.repeats and repeats,
        )

    def _keep(
        self,
        values: Mapping[str, Array],
        apart: npt.NDArray[np.bool_] | None,
        samples: int,
        *,
        replaces: bool = False,
    ) -> None:
        """Keep the first sample that differs, or the whole batch where the sample is not known."""
        feeds = {name: values[name] for name in self.divergence.unit.feeds}
        if self.divergence.feeds and not replaces:
            return
        by_sample = all(len(array) == samples for array in feeds.values() if array.ndim)
        if apart is not None and by_sample and apart.ndim and len(apart) == samples:
            row = int(np.argmax(apart.reshape(samples, -1).any(axis=1)))
            feeds = {name: array[row : row + 1] for name, array in feeds.items()}
        self.divergence = replace(
            self.divergence, feeds={name: np.array(array) for name, array in feeds.items()}
        )


def differing(unit: QuantizedUnit, found: Array, expected: Array) -> npt.NDArray[np.bool_]:
    """Where the results of a unit are not equal: quantized values exactly, real ones beyond the
    order of float32 sums.

    Results of different shapes differ everywhere.
    """
    if found.shape != expected.shape:
        return np.ones(expected.shape, bool)
    apart = unequal(found, expected)
    if unit.qparams is not None or found.dtype.kind != "f":
        return apart
    finite = np.abs(expected[np.isfinite(expected)])
    width = REAL_WIDTH * float(finite.max(initial=0))
    with np.errstate(invalid="ignore"):
        near = np.abs(found.astype(np.float64) - expected) <= width
    return np.asarray(apart & ~near)


def largest_gap(found: Array, expected: Array) -> float:
    """The largest finite difference; 0 for different shapes."""
    if found.shape != expected.shape:
        return 0.0
    with np.errstate(invalid="ignore"):
        gaps = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return float(gaps[np.isfinite(gaps)].max(initial=0))

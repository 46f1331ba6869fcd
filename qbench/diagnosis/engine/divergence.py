"""Where an engine leaves the arithmetic that it claims."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from qbench.backends import Array, Backend, Feeds, IntegerBackend, arithmetic_of, in_slices
from qbench.diagnosis.engine.client import Alone
from qbench.diagnosis.target import Target, sample_count
from qbench.diagnosis.units import QuantizedUnit, quantized_units, real_units
from qbench.errors import InputError
from qbench.judging import Cause
from qbench.metrics import unequal

REAL_WIDTH = 2.0**-16
"""Share of a real result's largest number up to which another order of float32 sums may move it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parting:
    """A unit that the engine does not count as it claims to.

    Args:
        unit: the piece; ``node`` is the operator by its name in fp32.
        elements: compared. differing: that are not equal. largest: difference in steps (of a real result, as it is).
        repeats: whether the engine answers the same to the same; False: it does not.
        crash: why it gives no answer, in a sentence; empty: it does.
        feeds: of one sample on which they differ (of a whole batch, where the first axis does not run over samples).
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
        """What kind of fault it is."""
        if self.crash:
            return Cause.CRASH
        return Cause.WRONG_KERNEL if self.repeats else Cause.NONDETERMINISM

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        if self.crash:
            return f"the engine fails on it alone: {self.crash}"
        steps = "" if self.unit.grid is None else f" {'step' if self.largest == 1 else 'steps'}"
        apart = f"{self.differing} of {self.elements} numbers differ, by at most {self.largest:.3g}{steps}"
        if self.repeats:
            return apart
        return "two runs of the same input differ" + (f"; beside the arithmetic {apart}" if self.differing else "")


def engine_partings(
    target: Target, feeds: Feeds | Iterable[Feeds], *, machine: Backend | None = None
) -> tuple[Parting, ...]:
    """The units of the target that its backend does not count as it claims, in the order of the graph.

    Args:
        target: its ``backend`` replays the units.
        feeds: one batch, or several: they are used one by one.
        machine: what it claims to be; None: what the target names, or what its backend declares.

    Raises:
        InputError: nothing is known of it, and no machine is named.
        QbenchError: the machine does not run the graph.
    """
    claimed = machine or target.claims or claimed_machine(target.backend)
    units = (*quantized_units(target.quantized), *real_units(target.quantized))
    taps = [unit.value for unit in units]
    with ExitStack() as stack:
        watched = stack.enter_context(claimed.prepare(target.quantized, taps=taps))
        whole = in_slices(watched, target.quantized)
        replays = [_Replay(stack.enter_context(Alone(unit, target.backend, threads=target.threads))) for unit in units]
        for batch in [feeds] if isinstance(feeds, Mapping) else feeds:
            values = {**batch, **whole.run(batch)}
            for replay in replays:
                replay.add(values, sample_count(batch))
    return tuple(replay.parting for replay in replays if replay.parts)


def claimed_machine(backend: Backend) -> Backend:
    """The machine that ``backend`` claims to be here, with nothing around its kernels.

    Raises:
        InputError: it declares no arithmetic.
    """
    arithmetic = arithmetic_of(backend)
    if arithmetic is None:
        raise InputError(
            f"Comparing '{backend.name}' with the arithmetic that it claims",
            found="a backend whose arithmetic is not known here",
            expected="one that is, or the name of one",
            remedy="Name a machine that it should count as ('qbench list arithmetics').",
        )
    return IntegerBackend(arithmetic=arithmetic)


class _Replay:
    """One unit in the engine, batch by batch; only the first sample that differs is kept."""

    def __init__(self, alone: Alone) -> None:
        self.parting = Parting(unit=alone.unit)
        self._alone = alone

    @property
    def parts(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.parting.crash or self.parting.differing or not self.parting.repeats)

    def add(self, values: Mapping[str, Array], samples: int) -> None:
        """One batch of the watched run."""
        if self.parting.crash:
            return
        unit, expected = self.parting.unit, values[self.parting.unit.value]
        feeds = {name: values[name] for name in unit.feeds}
        found, again = self._alone.run(feeds), self._alone.run(feeds)
        if found is None or again is None:
            self.parting = replace(self.parting, crash=self._alone.crash)
            self._keep(values, None, samples, anew=True)
            return
        apart = differing(unit, found, expected)
        repeats = found.shape == again.shape and not unequal(found, again).any()
        parted = apart if repeats else apart | differing(unit, again, expected) | np.asarray(found != again)
        if parted.any() and not self.parts:
            self._keep(values, parted, samples)
        self.parting = replace(
            self.parting,
            elements=self.parting.elements + expected.size,
            differing=self.parting.differing + int(np.count_nonzero(apart)),
            largest=max(self.parting.largest, largest_gap(found, expected)),
            repeats=self.parting.repeats and repeats,
        )

    def _keep(
        self, values: Mapping[str, Array], apart: npt.NDArray[np.bool_] | None, samples: int, *, anew: bool = False
    ) -> None:
        """Keep the first sample that differs, or the whole batch where its sample is not known."""
        feeds = {name: values[name] for name in self.parting.unit.feeds}
        if self.parting.feeds and not anew:
            return
        by_sample = all(len(array) == samples for array in feeds.values() if array.ndim)
        if apart is not None and by_sample and apart.ndim and len(apart) == samples:
            row = int(np.argmax(apart.reshape(samples, -1).any(axis=1)))
            feeds = {name: array[row : row + 1] for name, array in feeds.items()}
        self.parting = replace(self.parting, feeds={name: np.array(array) for name, array in feeds.items()})


def differing(unit: QuantizedUnit, found: Array, expected: Array) -> npt.NDArray[np.bool_]:
    """Where the results of a unit are not equal: levels as they are, real ones beyond what sums of float32 leave.

    Another shape is another result everywhere.
    """
    if found.shape != expected.shape:
        return np.ones(expected.shape, bool)
    apart = unequal(found, expected)
    if unit.grid is not None or found.dtype.kind != "f":
        return apart
    finite = np.abs(expected[np.isfinite(expected)])
    width = REAL_WIDTH * float(finite.max(initial=0))
    with np.errstate(invalid="ignore"):
        near = np.abs(found.astype(np.float64) - expected) <= width
    return np.asarray(apart & ~near)


def largest_gap(found: Array, expected: Array) -> float:
    """The largest finite difference; 0 of two shapes."""
    if found.shape != expected.shape:
        return 0.0
    with np.errstate(invalid="ignore"):
        gaps = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    return float(gaps[np.isfinite(gaps)].max(initial=0))

"""The numbers of one node on a few samples, as arrays: what its cause is read from."""

from collections.abc import Mapping
from dataclasses import dataclass

from qbench.backends import Array
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.judging import NodeErrors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """The piece alone on the same levels in front once more: what it gave, and what it had given just before."""

    levels: Array
    before: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Captured:
    """A unit at work.

    Args:
        unit: the piece of the quantized graph; without a grid its result is real, as ``found`` and ``again`` then are.
        errors: what was counted of it over all samples.
        feeds: levels in front of it in the patient's own run, by name.
        found: levels that the patient had behind it there.
        again: levels that the patient's backend makes of ``feeds`` with the piece alone; None: it fails on it.
        crash: why it does, in a sentence; empty otherwise.
        real: the number in front of rounding by real arithmetic on ``feeds``, in steps, zero point left out: float64.
        fed: fp32 numbers in front, rounded to the grids there. isolated: levels that the backend makes of ``fed``.
        expected: the fp32 value itself, real.
        replays: of ``feeds``, at other times.
    """

    unit: QuantizedUnit
    errors: NodeErrors
    feeds: Mapping[str, Array]
    found: Array
    again: Array | None
    crash: str = ""
    real: Array
    fed: Mapping[str, Array]
    isolated: Array | None
    expected: Array
    replays: tuple[Replay, ...] = ()

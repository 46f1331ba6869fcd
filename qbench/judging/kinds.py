"""The kinds of gates; ``gates.GATES`` has a row for each."""

import enum
from dataclasses import dataclass


class GateKind(enum.StrEnum):
    """What a gate checks; its value is the word in run files. ``gates.GATES`` has their rows."""

    LOSS = "loss"  # of a metric against labels, compared with fp32
    FLOOR = "floor"  # of the agreement with fp32
    LIMIT = "limit"  # of a distance to fp32
    INTEGER = "integer"  # the share of multiply-accumulates planned in integers
    EXECUTED = "executed"  # the share that the engine ran in integers
    EQUALITY = "equality"  # with another backend: equal_to, close_to
    RECOVERY = "recovery"  # the share of today's fp32 score
    SLICES = "slice"  # the loss in each part of the data
    # the loss compared with another backend's
    NO_WORSE_THAN = "rival"  # stored name
    LATENCY = "latency"  # the time of a sample as a multiple of that of fp32
    LATENCY_DRIFT = "latency_drift"  # the same ratio compared with the accepted one
    FILE_SIZE = "file_size"  # the bytes of the model, also compared with fp32
    FILE_SIZE_DRIFT = "file_size_drift"  # the bytes compared with the accepted ones
    CALIBRATION = "calibration"  # ranges compared with the accepted ones
    EXECUTED_DRIFT = "executed_drift"  # the share that the engine ran, compared with the accepted
    DRIFT = "drift"  # the result compared with the accepted one
    REFERENCE = "reference"  # fp32 reproduces its stored answers
    RETRAINED = "fp32"  # the loss of another float model; shown
    KNOWN_BAD = "listed"  # the value of a known-bad cell compared with the quarantine file


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What a gate of time or size measures: ``name`` in tables, and its ``unit``.

    ``is_exact``: whether the same code always gives the same number.
    """

    name: str
    unit: str
    is_exact: bool


@dataclass(frozen=True, slots=True)
class RememberedNumber:
    """A number of evidence that an accepted result keeps.

    ``low`` to ``high``: an accepted number in this range stays, because ``number`` does not differ
    from it by more than the suite allows.
    """

    number: float
    low: float
    high: float

"""What a baseline expects of one cell, as plain values: judging needs no file and no format of one."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.judging.environment import EnvironmentClass


class State(enum.Enum):
    """Whether a stored fp32 reference can judge what was measured."""

    KNOWN = "known"
    MISSING = "missing"  # no baseline for this model
    STALE = "stale"  # it is of another model, data or preprocessing


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A result that people approved for one cell in one environment class.

    Args:
        metrics: metric as the suite writes it → hits. predictions: data set → digest of the predictions.
        reason: why it replaced an earlier one; empty for the first.
        arithmetic: digest of how an integer machine counted then; empty where it is not known, or none did.
    """

    metrics: Mapping[str, int]
    predictions: Mapping[str, str]
    reason: str = ""
    arithmetic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """Everything judging wants to know about one cell's past.

    Args:
        state: of the model's baseline. what: what is missing or differs, in words; empty when KNOWN.
        reference: data set → digest of the stored fp32 answers.
        accepted: environment class, as text → what was approved there.
        floors: metric against the reference → least hits.
        cell_known: whether anything was ever accepted for this cell, in whatever class.
        whole: whether all samples were scored: a few cannot show that a known-bad cell no longer fails.
        stored: whether results of the cell are kept at all; those that another backend alone judges are not.
    """

    state: State = State.KNOWN
    what: str = ""
    reference: Mapping[str, str] = field(default_factory=dict)
    accepted: Mapping[str, Accepted] = field(default_factory=dict)
    floors: Mapping[str, int] = field(default_factory=dict)
    cell_known: bool = True
    whole: bool = True
    stored: bool = True

    @classmethod
    def missing(cls, what: str) -> "Expectation":
        """Nothing is stored; ``what`` names the model or file that is missing."""
        return cls(state=State.MISSING, what=what, cell_known=False)


def accepted_on(accepted: Mapping[str, Accepted], processor: str) -> bool:
    """Whether one of the ``accepted`` results (environment class, as text → result) is of this class of processor."""
    return any(EnvironmentClass.parse(name).processor == processor for name in accepted)

"""The samples that a cell lost and gained against fp32, with both answers to each."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.metrics import AnswerPart

LOST, GAINED, CHANGED = "lost", "gained", "changed"
"""The effects on a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSample:
    """One sample that the cell answers better or worse than fp32.

    Args:
        id: its name in the data set.
        effect: ``lost``, ``gained``; ``changed`` where nothing says which answer is right.
        label: in words; empty: there is none.
        change: of the probability of the label (of the best class of fp32, where there is no
            label); where answers have no probabilities, of the value of the metric, negative where
            it is worse. None: neither is known.
        fp32, quantized: the parts of both answers, best first.
        values: what the metric counts of this sample in fp32 and in the cell; None: it counts 0 or
            1.
    """

    id: str
    effect: str
    label: str = ""
    change: float | None = None
    fp32: tuple[AnswerPart, ...] = ()
    quantized: tuple[AnswerPart, ...] = ()
    values: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleChanges:
    """Of one data set.

    Args:
        metric: by which samples are lost and gained.
        is_probability: whether ``change`` of the samples is that of a probability.
        lost, gained, changed: how many there are in all; ``changed`` counts those of either kind
            and those whose answers differ and count the same.
        digest: of the data set, by which previews are found.
        private: the samples may not be shown: they have ids alone.
        samples: the largest change first.
    """

    metric: str
    digest: str
    lost: int = 0
    gained: int = 0
    changed: int = 0
    is_probability: bool = False
    private: bool = False
    samples: tuple[ChangedSample, ...] = field(default=())

    @property
    def of_effect(self) -> int:
        """How many samples were lost or gained; without labels, how many are answered otherwise."""
        has_labels = all(one.effect != CHANGED for one in self.samples)
        return self.lost + self.gained if has_labels else self.changed

    @property
    def is_whole(self) -> bool:
        """Whether every one of them is listed."""
        return len(self.samples) >= self.of_effect


SamplesByData = Mapping[str, SampleChanges]
"""Data set → its samples."""

"""Samples that say which of them are fed: a task asks for batches, and names only feeds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

from qbench.backends import Array
from qbench.subjects import BATCH, Samples


@dataclass(frozen=True, slots=True, eq=False)
class NotedSamples(Samples):
    """Samples that tell ``note`` the names of each batch before it is used."""

    note: Callable[[Sequence[str]], None]

    @classmethod
    def of(cls, samples: Samples, note: Callable[[Sequence[str]], None]) -> "NotedSamples":
        """``samples``, whose batches are told to ``note``."""
        return cls(**{field.name: getattr(samples, field.name) for field in fields(samples)}, note=note)

    def batches(self, size: int = BATCH) -> Iterator[dict[str, Array]]:
        """Feeds, ``size`` samples at a time."""
        for place, feeds in enumerate(Samples.batches(self, size)):
            self.note(self.ids[place * size : (place + 1) * size])
            yield feeds

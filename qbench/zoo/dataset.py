"""Raw samples with stable names: what a subject is scored or calibrated on, before any model's preprocessing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from qbench.metrics import Labels
from qbench.storage import digest_plain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """n raw samples.

    Args:
        id: name in suites. kind: what one sample is; a model's preprocessing says which kinds it takes:
            ``picture`` ((H, W, 3) uint8 RGB), ``bytes``, ``word`` (str), ``speech_8k`` ((12800,) int16),
            ``speech_8k_pair`` (two of those), ``array`` (a ready feed).
        sample_ids: n distinct names.
        sources: n names of what each sample was cut from: two data sets that share one overlap.
        labels: per sample the class ids that are right, or the right sequence; None: unlabelled.
        content: digest of the raw content (the package's or the files'), known without decoding anything.
        load: the raw sample at an index.
    """

    id: str
    kind: str
    sample_ids: tuple[str, ...]
    sources: tuple[str, ...]
    labels: Labels | None
    content: str
    load: Callable[[int], Any]

    def __post_init__(self) -> None:
        if len(set(self.sample_ids)) != len(self.sample_ids):
            raise ValueError(f"data set '{self.id}' names a sample twice")
        if len(self.sources) != len(self.sample_ids) or (
            self.labels is not None and len(self.labels) != len(self.sample_ids)
        ):
            raise ValueError(f"data set '{self.id}' has other numbers of sources or labels than of samples")

    def __len__(self) -> int:
        return len(self.sample_ids)

    @property
    def digest(self) -> str:
        """The identity of the data: content, sample names in order, labels."""
        return digest_plain([self.content, list(self.sample_ids), self.labels])

    def take(self, count: int) -> "Dataset":
        """``count`` samples spread evenly over the whole, in order.

        Raises:
            ValueError: there are fewer.
        """
        if not 0 < count <= len(self):
            raise ValueError(f"data set '{self.id}' holds {len(self)} samples, {count} were asked for")
        chosen = [i * len(self) // count for i in range(count)]
        load = self.load
        return replace(
            self,
            sample_ids=tuple(self.sample_ids[i] for i in chosen),
            sources=tuple(self.sources[i] for i in chosen),
            labels=None if self.labels is None else tuple(self.labels[i] for i in chosen),
            load=lambda index: load(chosen[index]),
        )

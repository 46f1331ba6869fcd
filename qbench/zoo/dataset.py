"""Raw samples with stable names: what a subject is scored or calibrated on, before any model's preprocessing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from qbench.errors import InputError
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

    Raises:
        InputError: two samples share a name, or there are more or fewer sources or labels than samples.
    """

    id: str
    kind: str
    sample_ids: tuple[str, ...]
    sources: tuple[str, ...]
    labels: Labels | None
    content: str
    load: Callable[[int], Any]

    def __post_init__(self) -> None:
        count = len(self.sample_ids)
        if (distinct := len(set(self.sample_ids))) != count:
            self._refuse(f"{distinct} different names for {count} samples", "a name of its own for every sample")
        if len(self.sources) != count:
            self._refuse(f"{len(self.sources)} sources for {count} samples", "one source for every sample")
        if self.labels is not None and len(self.labels) != count:
            self._refuse(f"{len(self.labels)} labels for {count} samples", "labels for every sample")

    def _refuse(self, found: str, expected: str) -> NoReturn:
        remedy = "Mend the file or the function that the data set comes from."
        raise InputError(f"Making the data set '{self.id}'", found=found, expected=expected, remedy=remedy)

    def __len__(self) -> int:
        return len(self.sample_ids)

    @property
    def digest(self) -> str:
        """The identity of the data: content, sample names in order, labels."""
        return digest_plain([self.content, list(self.sample_ids), self.labels])

    def take(self, count: int) -> "Dataset":
        """``count`` samples spread evenly over the whole, in order.

        Raises:
            InputError: there are fewer.
        """
        if not 0 < count <= len(self):
            raise InputError(
                f"Taking {count} samples of the data set '{self.id}'",
                found=f"{len(self)} samples in it",
                expected=f"a number from 1 to {len(self)}",
                remedy="Ask for fewer, or bring more.",
            )
        return self.pick([i * len(self) // count for i in range(count)])

    def pick(self, chosen: Sequence[int]) -> "Dataset":
        """The samples at the places ``chosen``, in that order."""
        load = self.load
        return replace(
            self,
            sample_ids=tuple(self.sample_ids[i] for i in chosen),
            sources=tuple(self.sources[i] for i in chosen),
            labels=None if self.labels is None else tuple(self.labels[i] for i in chosen),
            load=lambda index: load(chosen[index]),
        )

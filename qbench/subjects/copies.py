"""Samples that are the same to a model under different names, by the digests kept with the
prepared samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qbench.number_text import counted
from qbench.subjects.dataset import Dataset
from qbench.subjects.samples import CONTENT_BYTES, CONTENTS_FILE, Samples


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """A data set with the digest of what each of its n samples is to the model."""

    data: Dataset
    digests: tuple[bytes, ...]

    @classmethod
    def of(cls, data: Dataset, samples: Samples) -> "Contents | None":
        """Those of ``data``, which ``samples`` are; nothing is prepared or read but one digest
        a sample.

        None: the cache does not have them any more, which is not a reason to end a run that has its
            numbers.
        """
        try:
            kept = (samples.folder / CONTENTS_FILE).read_bytes()
        except OSError:
            return None
        if len(kept) != CONTENT_BYTES * len(data):
            return None  # cut short: the cache is not a reason to end a run
        starts = range(0, len(kept), CONTENT_BYTES)
        return cls(data, tuple(kept[start : start + CONTENT_BYTES] for start in starts))

    def names(self) -> Mapping[bytes, str]:
        """Digest → the first sample with it."""
        return dict(zip(reversed(self.digests), reversed(self.data.sample_ids), strict=True))


def content_notes(scored: Sequence[Contents], calibration: Contents | None) -> tuple[str, ...]:
    """What a user should know of ``scored``: copies in it, and samples that ranges are taken
    from; each a sentence.

    Copies that have one source are not news: they are counted together.
    """
    found = [copies_note(one) for one in scored]
    if calibration is not None:
        found += [overlap_note(calibration, one) for one in scored]
    return tuple(filter(None, found))


def copies_note(scored: Contents) -> str:
    """That samples of different sources have one content; empty: none have."""
    data, first = scored.data, scored.names()
    sources = dict(zip(data.sample_ids, data.drawn_from, strict=True))
    copies = [
        (sample, first[digest])
        for sample, digest in zip(data.sample_ids, scored.digests, strict=True)
        if sources[sample] != sources[first[digest]]
    ]
    if not copies:
        return ""
    sample, original = copies[0]
    return (
        f"'{data.id}': {counted(len(data), 'sample')}, {counted(len(first), 'distinct content')} "
        f"('{sample}' is to the model the same as '{original}'): each counts as a source of its "
        "own, so that intervals are too narrow; remove the copies, or give those of one content "
        "one source (?sources=, Dataset.with_sources)"
    )


def overlap_note(calibration: Contents, scored: Contents) -> str:
    """That scored samples have the content of calibration samples; empty: none have."""
    learned = calibration.names()
    shared = [
        (sample, learned[digest])
        for sample, digest in zip(scored.data.sample_ids, scored.digests, strict=True)
        if digest in learned
    ]
    if not shared:
        return ""
    sample, other = shared[0]
    return (
        f"'{scored.data.id}': {len(shared)} of {counted(len(scored.data), 'scored sample')} "
        f"{'has' if len(shared) == 1 else 'have'} the content of calibration samples of "
        f"'{calibration.data.id}' ('{sample}' is to the model the same as '{other}'): ranges are "
        "taken from what is scored, so that losses are measured too small; choose other "
        "calibration data"
    )

"""What the samples that a cell lists look like: loaded once more, each at most once a process."""

from collections.abc import Callable
from dataclasses import dataclass

from qbench.errors import QbenchError
from qbench.evaluation.subject import Subject
from qbench.judging import SamplesByData
from qbench.storage import Preview
from qbench.subjects import Dataset, preview_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePreviews:
    """(digest of the data, id of the sample, preview) of each; and a sentence about each data set
    of which samples could not be loaded.
    """

    found: tuple[tuple[str, str, Preview], ...] = ()
    problems: tuple[str, ...] = ()


def previews_of(
    subject: Subject, samples: SamplesByData, is_known: Callable[[str, str], bool]
) -> SamplePreviews:
    """The previews of ``samples``, but for those of private data.

    Args:
        is_known: whether the data with this digest has a preview of this sample already.
    """
    found: list[tuple[str, str, Preview]] = []
    problems = []
    for name, changes in samples.items():
        if changes.private:
            continue
        wanted = [one.id for one in changes.samples if not is_known(changes.digest, one.id)]
        failed = []
        for sample in wanted:
            made = _preview(subject.data[name], sample)
            if isinstance(made, Preview):
                found.append((changes.digest, sample, made))
            else:
                failed.append((sample, made))
        if failed:
            problems.append(_sentence(name, failed))
    return SamplePreviews(found=tuple(found), problems=tuple(problems))


def _preview(data: Dataset, sample: str) -> Preview | str:
    """The preview; where the sample cannot be loaded any more, why."""
    try:
        return preview_of(data.load(data.sample_ids.index(sample)))
    except QbenchError as error:
        return error.found
    except Exception as error:  # a reader of users may raise anything; the cell is measured
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _sentence(name: str, failed: list[tuple[str, str]]) -> str:
    sample, why = failed[0]
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return (
        f"Showing sample '{sample}'{more} of '{name}': found {why}; "
        "expected what it was prepared from. Put it back; until then reports show the id alone."
    )

"""Scores of characters along a line of text → the text, by the best path.

    at each of T places the character of the highest score; equal neighbours are one; blanks are dropped

Source: Graves et al., Connectionist Temporal Classification (2006), section 3.2. The lowest id among equal scores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qbench.errors import InputError
from qbench.metrics import PADDING, AnswerKind, Answers, points_of
from qbench.zoo.samples import Samples
from qbench.zoo.tasks.classification import GRAPH
from qbench.zoo.tasks.reading import Array, runner_named
from qbench.zoo.tasks.task import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReading:
    """One graph from a picture of a line to scores (n, T, characters), blank first.

    Args:
        title: of the alphabet, which tells it from others. alphabet: makes the characters behind the blank, in order.
        picture, width: feeds of the samples: (n, 3, H, W), and how many columns of W are the picture.
        batch: lines in one run at most.
    """

    title: str
    alphabet: Callable[[], Sequence[str]]
    picture: str = "x"
    width: str = "width"
    batch: int = 8

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"line reading(best path, {self.title}, {self.picture}, {self.width}, batch={self.batch})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The text of every sample as code points.

        Raises:
            InputError: an output of another shape, not finite (the sample is named), or with more characters than the
                alphabet.
        """
        run = runner_named(runners, GRAPH, self.name).run
        characters = ("", *self.alphabet())
        texts: list[tuple[int, ...]] = []
        for feeds in samples.batches(self.batch):
            ids = samples.ids[len(texts) : len(texts) + len(feeds[self.width])]
            columns = int(feeds[self.width].max())  # what lies behind the longest line of a batch is padding to all
            scores = next(iter(run({self.picture: feeds[self.picture][..., :columns]}).values()))
            _check(np.asarray(scores), len(characters), ids, samples.data)
            texts += [points_of("".join(characters[i] for i in _path(row))) for row in np.asarray(scores)]
        longest = max(1, *map(len, texts))
        answers = np.full((len(texts), longest), PADDING, np.int32)
        for row, text in zip(answers, texts, strict=True):
            row[: len(text)] = text
        return Answers(answers, kind=AnswerKind.TEXT)


def _path(scores: Array) -> list[int]:
    best = scores.argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    return [int(i) for i in best[changed] if i]


def _check(scores: Array, characters: int, sample_ids: Sequence[str], data: str) -> None:
    if scores.ndim != 3 or len(scores) != len(sample_ids) or scores.shape[2] != characters:
        found = f"an output of shape {scores.shape}"
        expected = f"({len(sample_ids)}, places, {characters} characters)"
        raise InputError(
            f"Reading lines of '{data}'", found=found, expected=expected, remedy="Choose a model of lines."
        )
    finite = np.isfinite(scores).all(axis=(1, 2))
    if not finite.all():
        raise InputError(
            f"Reading lines of '{data}', sample '{sample_ids[int(np.argmin(finite))]}'",
            found=f"NaN or Inf in the scores ({int((~finite).sum())} of {len(scores)} samples of the batch)",
            expected="finite numbers",
            remedy="Look for a kernel or a scale that overflows.",
        )

"""Tasks of sequence models, and batches of sequences of one length, so that no graph sees
padding or needs a mask.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.metrics import (
    MILLION,
    PADDING,
    AnswerKind,
    Answers,
    FirstOutputs,
    IntegerAnswers,
    Labels,
    Likelihoods,
    OutputKind,
)
from qbench.subjects.dataset import Array
from qbench.subjects.samples import BATCH, Samples
from qbench.subjects.subject import Runner
from qbench.subjects.tasks import finite_rows, runner_named

# One sequence → another, greedily: one encoder step per letter, then one decoder step per answered
# token.
#
# h₀ = 0; hₜ = encode(xₜ, hₜ₋₁) while t < length; then yₜ = argmax decode(yₜ₋₁, hₜ₋₁) from the start
# token until the end token or ``limit`` tokens. Whole batches run. A row that has ended repeats its
# last step: the shape stays, the result is the same, and an observing executor sees no number that
# does not belong to a sample.
#
# Teacher-forced, yₜ is the label's token instead, and the end token after its last one.

ENCODER, DECODER = "encoder_step", "decoder_step"
LETTERS, LENGTH = "letters", "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transduction:
    """Two graphs: ``encoder_step`` (token, h) → next_h and ``decoder_step`` (token, h) →
    logits, next_h.

    Samples feed ``letters`` (n, t) and ``length`` (n,): how many of the t belong to the sequence.

    Args:
        state: width of h. start, end: token ids that begin and end an answer; neither is part of
            it.
        limit: the longest answer.
        batch: sequences in one run of a graph.
    """

    state: int
    start: int
    end: int
    limit: int = 20
    batch: int = 64

    def __post_init__(self) -> None:
        if min(self.state, self.limit, self.batch) < 1:
            raise ValueError(
                f"state {self.state}, limit {self.limit}, batch {self.batch}: each is at least 1"
            )

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return (
            f"transduction(greedy, state={self.state}, start={self.start}, end={self.end}, "
            f"limit={self.limit}, batch={self.batch})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The encoder's step and the decoder's."""
        return (ENCODER, DECODER)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The token ids of every sample, (n, limit) int32 padded with ``PADDING``; the lowest
        id among equal logits.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is
                named).
        """
        encoder = runner_named(runners, ENCODER, self.name)
        decoder = runner_named(runners, DECODER, self.name)
        doing = f"Transducing '{samples.data}'"
        answers: list[Array] = []
        ties: list[Array] = []
        first = FirstOutputs(OutputKind.CLASSES)
        start = 0
        for feeds in samples.batches(self.batch):
            ids = samples.ids[start : start + len(feeds[LENGTH])]
            h = self._encode(encoder, feeds[LETTERS], feeds[LENGTH], ids, doing)
            tokens, tied, logits = self._decode(decoder, h, ids, doing)
            answers.append(tokens)
            ties.append(tied)
            first.add(logits)
            start += len(ids)
        return IntegerAnswers(
            np.concatenate(answers),
            tied=np.concatenate(ties),
            kind=AnswerKind.SEQUENCE,
            outputs=first.held,
        )

    def likelihoods(self, runners: Mapping[str, Runner], samples: Samples) -> Likelihoods:
        """The likelihood of the label of every sample, including its end token.

        Raises:
            InputError: what ``answer`` raises; or a label holds a token that the decoder does not
                have.
        """
        labels = samples.whole_labels
        assert labels is not None
        encoder = runner_named(runners, ENCODER, self.name)
        decoder = runner_named(runners, DECODER, self.name)
        doing = f"Teacher-forcing '{samples.data}'"
        surprises: list[Array] = []
        start = 0
        for feeds in samples.batches(self.batch):
            rows = slice(start, start + len(feeds[LENGTH]))
            h = self._encode(encoder, feeds[LETTERS], feeds[LENGTH], samples.ids[rows], doing)
            surprises.append(self._force(decoder, h, labels[rows], samples.ids[rows], doing))
            start = rows.stop
        tokens = np.array([len(label) + 1 for label in labels], dtype=np.int64)
        return Likelihoods(np.rint(MILLION * np.concatenate(surprises)).astype(np.int64), tokens)

    def _force(
        self, decoder: Runner, h: Array, labels: Labels, ids: tuple[str, ...], doing: str
    ) -> Array:
        """The surprise (n,) float64 of every label and its end, in nats."""
        lengths = np.array([len(label) + 1 for label in labels])
        targets = np.full((len(ids), lengths.max()), self.end, np.int64)
        for row, label in zip(targets, labels, strict=True):
            row[: len(label)] = label
        token: Array = np.full(len(ids), self.start, np.int64)
        found: Array = np.zeros(len(ids))
        for step, target in enumerate(targets.T):
            outputs = decoder.run({"token": token, "h": h})
            next_h = finite_rows(outputs, "next_h", ids, f"{doing}, token {step}")
            logits = finite_rows(outputs, "logits", ids, f"{doing}, token {step}")
            found += np.where(step < lengths, _surprise(logits, target, ids, doing), 0.0)
            goes_on = step + 1 < lengths
            token = np.where(goes_on, target, token)
            h = np.where(goes_on[:, None], next_h, h)
        return found

    def _encode(
        self, encoder: Runner, letters: Array, length: Array, ids: tuple[str, ...], doing: str
    ) -> Array:
        rows = np.arange(len(ids))
        before: Array = np.zeros((len(ids), self.state), np.float32)
        h = before
        for step in range(int(length.max(initial=0))):
            before = np.where((step < length)[:, None], h, before)
            token = letters[rows, np.minimum(step, length - 1)]
            h = finite_rows(
                encoder.run({"token": token, "h": before}), "next_h", ids, f"{doing}, letter {step}"
            )
        return h

    def _decode(
        self, decoder: Runner, h: Array, ids: tuple[str, ...], doing: str
    ) -> tuple[Array, Array, Array]:
        """Tokens (n, limit) int32; in which rows (bool) a step had equal best logits; the first
        step's logits.
        """
        tokens = np.full((len(ids), self.limit), PADDING, np.int32)
        token: Array = np.full(len(ids), self.start, np.int64)
        running: npt.NDArray[np.bool_] = np.ones(len(ids), np.bool_)
        tied = ~running
        first: Array | None = None
        for step in range(self.limit):
            outputs = decoder.run({"token": token, "h": h})
            next_h = finite_rows(outputs, "next_h", ids, f"{doing}, answer {step}")
            logits = finite_rows(outputs, "logits", ids, f"{doing}, answer {step}")
            first = logits if first is None else first
            # the first of equals, which is the lowest id
            best = logits.argmax(axis=1).astype(np.int64)
            tied |= (logits == logits.max(axis=1, keepdims=True)).sum(axis=1) > 1
            running &= best != self.end
            if not running.any():
                break
            tokens[running, step] = best[running]
            token = np.where(running, best, token)
            h = np.where(running[:, None], next_h, h)
        assert first is not None
        return tokens, tied, first


def _surprise(logits: Array, targets: Array, ids: tuple[str, ...], doing: str) -> Array:
    """−ln softmax(``logits`` (n, tokens)) at ``targets`` (n,), (n,) float64."""
    outside = (targets < 0) | (targets >= logits.shape[1])
    if outside.any():
        row = int(np.argmax(outside))
        raise InputError(
            f"{doing}, sample '{ids[row]}'",
            found=f"token {targets[row]} in its label",
            expected=(
                f"tokens from 0 to {logits.shape[1] - 1}, as the decoder has {logits.shape[1]}"
            ),
            remedy="Number the tokens of labels in the order of the decoder's logits.",
        )
    moved = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    found: Array = np.log(np.exp(moved).sum(axis=1)) - moved[np.arange(len(ids)), targets]
    return found


def batches_by_length(
    samples: Samples, sequence: str, length: str, batch: int = BATCH
) -> Iterator[tuple[list[int], Array]]:
    """Batches of samples of one length, shortest first: their indices, and their rows of
    ``sequence`` without padding.

    Args:
        sequence, length: feeds of ``samples``: (n, T) and how many of the T belong to the sequence.
        batch: the most samples in one run.
    """
    feeds = _together(samples, sequence, length)
    lengths = feeds[length].reshape(-1)
    for one in np.unique(lengths):
        rows = np.flatnonzero(lengths == one)
        for start in range(0, len(rows), batch):
            chosen = rows[start : start + batch]
            yield chosen.tolist(), feeds[sequence][chosen, : int(one)]


def _together(samples: Samples, *names: str) -> Mapping[str, Array]:
    parts = [{name: feeds[name] for name in names} for feeds in samples.batches()]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}

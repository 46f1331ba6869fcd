"""Speech → text, greedily: an encoder run for the sound, then a decoder step a token.

    heard = encode(mel); the prompt's tokens are given one by one, then yₜ = argmax decode(yₜ₋₁, heard, remembered)
    until the end token or ``limit`` tokens; what a step remembers of its token is given to those behind it

Whole batches run. What a row remembers grows with every step, so that a row that has ended cannot repeat its last one:
it repeats the first row that goes on instead. The shape stays, and a watching executor sees no number that no sample
has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.metrics import PADDING, AnswerKind, Answers, FirstOutputs, OutputKind, points_of
from qbench.zoo.samples import BATCH, Samples
from qbench.zoo.tasks.reading import Array, finite_rows, runner_named
from qbench.zoo.tasks.task import Runner

ENCODER, DECODER = "encoder", "decoder_step"
_NEXT = "next_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcription:
    """Two graphs: ``encoder`` (sound) → heard, and ``decoder_step`` (token, heard, key_i, value_i) → logits, next_….

    The encoder's outputs are inputs of the step by the same names, the step's ``next_key_i`` and ``next_value_i`` those
    of the one behind it.

    Args:
        title: of the text, which tells it from others. text: makes it of token ids.
        prompt: the tokens in front of every answer. end: the token behind it. answered: ids below it may be answered.
        layers, heads, depth: of the decoder: keys are (n, heads, depth, tokens), values (n, heads, tokens, depth).
        limit: tokens of the longest answer. batch: samples in one run of a graph. sound: feed of the samples.
    """

    title: str
    text: Callable[[Sequence[int]], str]
    prompt: tuple[int, ...]
    end: int
    answered: int
    layers: int
    heads: int
    depth: int
    limit: int = 60
    batch: int = BATCH
    sound: str = "mel"

    def __post_init__(self) -> None:
        if not self.prompt or min(self.limit, self.batch, self.layers, self.heads, self.depth) < 1:
            raise ValueError(
                "a prompt of one token at least, a limit, a batch, layers, heads and a depth of 1 at least"
            )

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return (
            f"transcription(greedy, {self.title}, {self.sound}, prompt={self.prompt}, end={self.end}, "
            f"answered={self.answered}, limit={self.limit}, batch={self.batch})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The encoder, and the decoder's step."""
        return (ENCODER, DECODER)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The text of every sample as code points; the lowest id among equal logits.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is named).
        """
        encoder = runner_named(runners, ENCODER, self.name)
        decoder = runner_named(runners, DECODER, self.name)
        texts: list[tuple[int, ...]] = []
        ties: list[Array] = []
        first = FirstOutputs(OutputKind.CLASSES)
        for feeds in samples.batches(self.batch):
            ids = samples.ids[len(texts) : len(texts) + len(feeds[self.sound])]
            heard = encoder.run({self.sound: feeds[self.sound]})
            tokens, tied, logits = self._written(decoder, heard, ids, f"Transcribing '{samples.data}'")
            texts += [points_of(self.text(row)) for row in tokens]
            ties.append(tied)
            first.add(logits)
        answers = np.full((len(texts), max(1, *map(len, texts))), PADDING, np.int32)
        for row, text in zip(answers, texts, strict=True):
            row[: len(text)] = text
        return Answers(answers, tied=np.concatenate(ties), kind=AnswerKind.TEXT, outputs=first.held)

    def _written(
        self, decoder: Runner, heard: Mapping[str, Array], ids: tuple[str, ...], doing: str
    ) -> tuple[list[list[int]], Array, Array]:
        """The tokens of every row; in which rows (bool) a step had equal best logits; the first step's logits."""
        rows = len(ids)
        feeds = {**heard, **self._nothing(rows)}
        outputs: Mapping[str, Array] = {}
        for token in self.prompt:
            outputs = _step(decoder, feeds, np.full((rows, 1), token, np.int64))
        tokens: list[list[int]] = [[] for _ in ids]
        running: npt.NDArray[np.bool_] = np.ones(rows, np.bool_)
        tied = ~running
        first: Array | None = None
        for step in range(self.limit):
            logits = finite_rows(outputs, "logits", ids, f"{doing}, token {step}")[:, : self.answered]
            first = logits if first is None else first
            best = logits.argmax(axis=1).astype(np.int64)  # the first of equals, which is the lowest id
            tied |= running & ((logits == logits.max(axis=1, keepdims=True)).sum(axis=1) > 1)
            before, running = running, running & (best != self.end)
            for row in np.flatnonzero(running):
                tokens[row].append(int(best[row]))
            if not running.any() or step + 1 == self.limit:
                break
            source = np.where(running, np.arange(rows), running.argmax())
            if (before & ~running).any():
                feeds = {name: array[source] for name, array in feeds.items()}
            outputs = _step(decoder, feeds, best[source][:, None])
        assert first is not None
        return tokens, tied, first

    def _nothing(self, rows: int) -> dict[str, Array]:
        """What is remembered at first."""
        shapes = {"key": (rows, self.heads, self.depth, 0), "value": (rows, self.heads, 0, self.depth)}
        return {
            f"{role}_{layer}": np.zeros(shape, np.float32)
            for layer in range(self.layers)
            for role, shape in shapes.items()
        }


def _step(decoder: Runner, feeds: dict[str, Array], token: Array) -> dict[str, Array]:
    """Run a step with ``token``; ``feeds`` then hold what it remembers too."""
    feeds["token"] = token
    outputs = decoder.run(feeds)
    feeds.update({name.removeprefix(_NEXT): array for name, array in outputs.items() if name.startswith(_NEXT)})
    return outputs

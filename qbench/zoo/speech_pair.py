"""Two windows of speech → two mel spectrograms: what a voice is verified by.

    (a, b) → first = S(a), second = S(b)                       S: ``mel_spectrogram``

A window stands in many pairs; the spectrograms of the last few hundred windows are kept.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.zoo.mel_spectrogram import MelSpectrogram
from qbench.zoo.preprocess import Array

SPEECH_PAIR = "speech_8k_pair"
"""The kind of raw sample: two of (12800,) int16, 1.6 s at 8 kHz each."""

_KEPT = 512


@dataclass(frozen=True, slots=True)
class SpeechPair:
    """Two windows → ``first`` and ``second``, (160, 40) float32 each."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"pair of {MelSpectrogram().name}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Pairs of windows of speech."""
        return (SPEECH_PAIR,)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - two windows of speech, as ``kinds`` says
        """The two spectrograms.

        Raises:
            InputError: a window has another length.
        """
        first, second = (_spectrogram(np.asarray(window, np.int16).tobytes()) for window in sample)
        return {"first": first, "second": second}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """As it is."""
        return batch


@functools.lru_cache(maxsize=_KEPT)
def _spectrogram(window: bytes) -> Array:
    """Of a window of int16 by its bytes; not to be written to."""
    prepared = MelSpectrogram().prepare(np.frombuffer(window, np.int16))["mel"]
    prepared.setflags(write=False)
    return prepared

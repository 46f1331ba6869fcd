"""Speech as mel spectrograms, as the voice encoder and Whisper were trained on them."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.subjects import Array
from qbench_zoo.networks.sequences import FRAMES, MELS
from qbench_zoo.networks.transformers import FRAMES as WHISPER_FRAMES
from qbench_zoo.networks.transformers import MELS as WHISPER_MELS

# Speech at 8 kHz → a mel spectrogram at 16 kHz, as the voice encoder was trained on it.
#
#     x₁₆(m) = Σ_k x₈(k) · sinc((m - 2k)/2) · w(m - 2k)
#              band-limited doubling; w: Kaiser window, β = 8, ±64 taps
#     x′ = x₁₆ · 10^((L + 30) / -20)  where L = 20·log₁₀ rms(x₁₆) < -30 dB
#          quiet speech is raised
#     S(t, b) = Σ_f M(b, f) · |Σ_k x′(160·t + k - 200) · hann(k) · e^(-2πi·f·k/400)|²
#
# 25 ms windows in steps of 10 ms, zeros beyond the ends, power and no logarithm; M: triangles that
# overlap by half, equally far apart on Slaney's mel scale from 0 to 8 kHz, of equal area (Slaney
# 1998, Auditory Toolbox: mfcc.m). Settings: Resemblyzer 0.1.4, ``hparams.py`` and ``audio.py``.

SPEECH = "speech_8k"
"""The kind of raw sample: (12800,) int16, 1.6 s at 8 kHz."""

RATE = 16_000
SAMPLES = 12_800
WINDOW, STEP = 400, 160
"""Of a spectrum, in samples at 16 kHz."""

_LEAST_DB = -30.0
_TAPS, _BETA = 64, 8.0

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MelSpectrogram:
    """1.6 s of speech (12800,) int16 → ``mel`` (160, 40) float32."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return (
            f"mel spectrogram(8 kHz doubled by sinc·kaiser({_BETA:g}, {_TAPS}), at least "
            f"{_LEAST_DB:g} dB, window={WINDOW}, step={STEP}, slaney mels={MELS}, frames={FRAMES})"
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Windows of speech."""
        return (SPEECH,)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a window of speech, as ``kinds`` says
        """The spectrogram.

        Raises:
            InputError: the window has another length.
        """
        window = np.asarray(sample)
        if window.shape != (SAMPLES,):
            raise InputError(
                "Reading a window of speech",
                found=f"an array of shape {window.shape}",
                expected=f"({SAMPLES},): 1.6 s at 8 kHz",
                remedy="Cut the speech into such windows.",
            )
        speech = at_least(doubled(window / 32768), _LEAST_DB)
        return {"mel": mel_spectrogram(speech)[:FRAMES].astype(np.float32)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """As it is."""
        return batch


def doubled(speech: Floats) -> Floats:
    """``speech`` (n,) at twice its rate, (2n,); the given samples stay as they are."""
    taps = np.arange(-_TAPS, _TAPS + 1)
    spread = np.zeros(2 * len(speech))
    spread[::2] = speech
    return np.convolve(spread, np.sinc(taps / 2) * np.kaiser(len(taps), _BETA))[_TAPS:-_TAPS]


def at_least(speech: Floats, decibels: float) -> Floats:
    """``speech`` raised to a level of ``decibels`` below full scale if it is quieter; silence
    stays.
    """
    level = float(np.sqrt(np.mean(speech**2)))
    wanted = 10 ** (decibels / 20)
    return speech * (wanted / level) if 0 < level < wanted else speech


def mel_spectrogram(speech: Floats) -> Floats:
    """``speech`` (n,) at 16 kHz → power in 40 bands, (1 + n // 160, 40)."""
    return mel_power(np.pad(speech, WINDOW // 2), MELS)


def mel_power(speech: Floats, bands: int) -> Floats:
    """``speech`` (n,) at 16 kHz → power of every whole window in ``bands``, (1 + (n - 400) //
    160, bands).
    """
    frames = np.lib.stride_tricks.sliding_window_view(speech, WINDOW)[::STEP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(frames * hann, axis=1)) ** 2
    return np.asarray(power @ mel_bands(bands).T)


@functools.cache
def mel_bands(bands: int = MELS) -> Floats:
    """The triangles M, (bands, 201): bands by frequencies of 40 Hz."""
    frequencies = np.arange(WINDOW // 2 + 1) * RATE / WINDOW
    corners = _hertz(np.linspace(0.0, float(_mels(RATE / 2)), bands + 2))
    low, middle, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low))


# Slaney's scale: 15 mels to 1 kHz in equal steps, from there on 27 mels to a factor of 6.4.
_KNEE_HERTZ, _KNEE_MELS, _STEPS = 1000.0, 15.0, 27 / np.log(6.4)


def _mels(hertz: float) -> float:
    """Of a frequency of at least 1 kHz."""
    return float(_KNEE_MELS + _STEPS * np.log(hertz / _KNEE_HERTZ))


def _hertz(mels: Floats) -> Floats:
    above = _KNEE_HERTZ * np.exp((np.maximum(mels, _KNEE_MELS) - _KNEE_MELS) / _STEPS)
    return np.where(mels < _KNEE_MELS, mels * _KNEE_HERTZ / _KNEE_MELS, above)


# Speech at 8 kHz → the logarithm of a mel spectrogram at 16 kHz, as Whisper was trained on it.
#
#     x = the speech at twice its rate, zeros behind it up to 15 s, 12.5 ms mirrored at both ends
#     P(b, t) = Σ_f M(b, f) · |Σ_k x(160·t + k) · hann(k) · e^(-2πi·f·k/400)|²,  0 ≤ t < 1500
#     L = log₁₀ max(P, 10⁻¹⁰);    mel = (max(L, max L - 8) + 4) / 4
#
# M: 80 triangles, equally far apart on Slaney's mel scale from 0 to 8 kHz, of equal area.
# Source: Radford et al. (2022), section 2.2, and Whisper's ``audio.py``, which fills up to 30 s.

RECORDING = "recording_8k"
"""The kind of raw sample: (n,) int16 at 8 kHz."""

LONGEST = WHISPER_FRAMES * STEP // 2
"""Samples at 8 kHz."""

_QUIETEST, _RANGE = 1e-10, 8.0


@dataclass(frozen=True, slots=True)
class LogMel:
    """At most 15 s of speech (n,) int16 → ``mel`` (80, 1500) float32."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return (
            f"log mel(8 kHz doubled, window={WINDOW}, step={STEP}, slaney mels={WHISPER_MELS}, "
            f"frames={WHISPER_FRAMES}, whisper)"
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Recordings."""
        return (RECORDING,)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a recording, as ``kinds`` says
        """The spectrogram.

        Raises:
            InputError: the recording is empty or too long, or has several channels.
        """
        recording = np.asarray(sample)
        if recording.ndim != 1 or not 0 < len(recording) <= LONGEST:
            raise InputError(
                "Reading a recording",
                found=f"an array of shape {recording.shape}",
                expected=f"(n,), n from 1 to {LONGEST}: at most 15 s at 8 kHz",
                remedy="Leave it out, or cut it.",
            )
        return {"mel": log_mel(doubled(recording / 32768)).astype(np.float32)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """As it is."""
        return batch


def log_mel(speech: Floats) -> Floats:
    """``speech`` (n,) at 16 kHz, n ≤ 240,000 → (80, 1500)."""
    filled = np.pad(speech, (0, WHISPER_FRAMES * STEP - len(speech)))
    power = mel_power(np.pad(filled, WINDOW // 2, mode="reflect"), WHISPER_MELS)[:WHISPER_FRAMES].T
    loudness = np.log10(np.maximum(power, _QUIETEST))
    return np.asarray((np.maximum(loudness, loudness.max() - _RANGE) + 4) / 4)


# Two windows of speech → two mel spectrograms: what a voice is verified by.
#
#     (a, b) → first = S(a), second = S(b)                       S: ``mel_spectrogram``
#
# A window is in many pairs; the spectrograms of the last few hundred windows are kept.

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

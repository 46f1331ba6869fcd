"""Speech at 8 kHz → the logarithm of a mel spectrogram at 16 kHz, as Whisper was trained on it.

    x = the speech at twice its rate, zeros behind it up to 15 s, 12.5 ms mirrored at both ends
    P(b, t) = Σ_f M(b, f) · |Σ_k x(160·t + k) · hann(k) · e^(-2πi·f·k/400)|²,  0 ≤ t < 1500
    L = log₁₀ max(P, 10⁻¹⁰);    mel = (max(L, max L - 8) + 4) / 4

M: 80 triangles, equally far apart on Slaney's mel scale from 0 to 8 kHz, of equal area.
Source: Radford et al. (2022), section 2.2, and Whisper's ``audio.py``, which fills up to 30 s.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.errors import InputError
from qbench.zoo.mel_spectrogram import STEP, WINDOW, Floats, doubled, mel_power
from qbench.zoo.networks.whisper import FRAMES, MELS
from qbench.zoo.preprocess import Array

RECORDING = "recording_8k"
"""The kind of raw sample: (n,) int16 at 8 kHz."""

LONGEST = FRAMES * STEP // 2
"""Samples at 8 kHz."""

_QUIETEST, _RANGE = 1e-10, 8.0


@dataclass(frozen=True, slots=True)
class LogMel:
    """At most 15 s of speech (n,) int16 → ``mel`` (80, 1500) float32."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"log mel(8 kHz doubled, window={WINDOW}, step={STEP}, slaney mels={MELS}, frames={FRAMES}, whisper)"

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
    filled = np.pad(speech, (0, FRAMES * STEP - len(speech)))
    power = mel_power(np.pad(filled, WINDOW // 2, mode="reflect"), MELS)[:FRAMES].T
    loudness = np.log10(np.maximum(power, _QUIETEST))
    return np.asarray((np.maximum(loudness, loudness.max() - _RANGE) + 4) / 4)

"""Recordings as asterisk's packages hold them: WAV files of one channel, 16 bits and 8 kHz."""

import io
import wave

import numpy as np
import numpy.typing as npt

from qbench.errors import UnavailableError

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
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") if found == _FORMAT else None
    except (wave.Error, EOFError) as error:
        raise unavailable_recording(name, str(error) or "that it ends in its header") from error
    if sound is None:
        raise unavailable_recording(name, f"{found[0]} channels, {8 * found[1]} bits, {found[2]} Hz")
    return sound.astype(np.int16)


def unavailable_recording(name: str, found: str, more: str = "") -> UnavailableError:
    """The error for the recording ``name``; ``more``: what it was expected to be besides."""
    return UnavailableError(
        f"Reading the recording '{name}'",
        found=found,
        expected=f"a WAV file of one channel, 16 bits and 8000 Hz{more}",
        remedy="Pin the package that has one.",
    )

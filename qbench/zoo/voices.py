"""Whose voice it is: ``resemblyzer``, a recurrent network from speech to a direction, and five voices to tell apart.

Of each voice the recordings of at least 1.6 s in the order of their paths, p₀ … p₍ₘ₋₁₎; p at ⌊i·m/40⌋, i < 40, are
scored and 24 of the others, as evenly apart, calibrate: 200 and 120 windows, each the middle 1.6 s of its recording.
A label is a voice. The English and the Spanish one are of the same speaker in two languages, mistaken now and then.
"""

import functools
import zipfile
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.storage import digest_plain
from qbench.zoo.assets import fetch_package, open_member
from qbench.zoo.dataset import Dataset
from qbench.zoo.debian_client import DebianPackage
from qbench.zoo.formats.torch_legacy import read_torch_legacy
from qbench.zoo.mel_spectrogram import SAMPLES, SPEECH, MelSpectrogram
from qbench.zoo.model import ZooModel
from qbench.zoo.networks.resemblyzer import resemblyzer_network
from qbench.zoo.packages import RESEMBLYZER, VOICES
from qbench.zoo.recordings import HEADER, read_recording, unavailable_recording
from qbench.zoo.tasks import NearestNeighbour

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
    """The paths of all recordings in ``package`` that are long enough, in order; silence is none."""
    with zipfile.ZipFile(fetch_package(package)) as archive:
        members = archive.infolist()
    least = HEADER + 2 * SAMPLES
    return tuple(sorted(m.filename for m in members if m.file_size >= least and "/silence/" not in m.filename))


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
        (voice, path) for voice, package in enumerate(VOICES) for path in chosen(recordings(package), scored=scored)
    ]
    ids = tuple(path.partition("/sounds/")[2].removesuffix(".wav") for _, path in places)
    return Dataset(
        id=name,
        kind=SPEECH,
        sample_ids=ids,
        sources=ids,
        labels=tuple((voice,) for voice, _ in places),
        content=digest_plain([package.sha256 for package in VOICES]),
        load=lambda index: _window(*places[index]),
    )


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

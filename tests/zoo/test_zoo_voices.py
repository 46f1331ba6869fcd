"""Voices: the spectrogram beside its sums, windows of recordings, the nearest other sample, and
the network on them.
"""

import io
import math
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError, UnavailableError
from qbench.metrics import Labels
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples
from qbench.subjects.sample_folders import ReadyArray
from qbench.subjects.samples import Samples
from qbench.subjects.tasks import NearestNeighbour, class_scores, similarities
from qbench_zoo.spectrograms import MelSpectrogram, at_least, doubled, mel_bands, mel_spectrogram
from qbench_zoo.voices import chosen, middle

Floats = npt.NDArray[Any]

# -- the spectrogram


def test_a_frame_is_the_sum_it_is_said_to_be() -> None:
    speech = np.random.default_rng(0).normal(0, 0.1, 2000)
    found = mel_spectrogram(speech)
    assert found.shape == (1 + 2000 // 160, 40)
    padded = np.concatenate([np.zeros(200), speech, np.zeros(200)])
    for t in (0, 5, 12):
        power = []
        for f in range(201):
            parts = [
                padded[160 * t + k]
                * (0.5 - 0.5 * math.cos(2 * math.pi * k / 400))
                * np.exp(-2j * math.pi * f * k / 400)
                for k in range(400)
            ]
            power.append(abs(sum(parts)) ** 2)
        np.testing.assert_allclose(found[t], mel_bands() @ np.array(power), rtol=1e-9)


def test_bands_are_librosas() -> None:
    bands, hertz = mel_bands(), np.arange(201) * 40
    assert bands.shape == (40, 201)
    assert (bands >= 0).all()
    # its version 0.11.0, filters.mel(sr=16000, n_fft=400, n_mels=40): peak in Hz, its height, sum
    found = [
        (int(hertz[band.argmax()]), float(band.max()), float(band.sum()))
        for band in bands[[0, 19, 39]]
    ]
    expected = [(80, 0.012405, 0.024809), (1640, 0.007216, 0.024856), (7400, 0.001725, 0.024979)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=6e-7)
    assert (bands[19] * bands[20]).any()
    assert not (bands[18] * bands[20]).any()
    np.testing.assert_allclose(
        bands[25:].sum(axis=1) * 40, 1, rtol=0.03
    )  # each triangle encloses 1, in Hz


@pytest.mark.parametrize("hertz", [100, 1000, 3000])
def test_doubling_keeps_samples_and_puts_the_tone_between_them(hertz: int) -> None:
    tone = np.sin(2 * np.pi * hertz * np.arange(4000) / 8000 + 0.3)
    found = doubled(tone)
    np.testing.assert_allclose(found[::2], tone, rtol=0, atol=1e-12)
    expected = np.sin(2 * np.pi * hertz * np.arange(8000) / 16000 + 0.3)
    np.testing.assert_allclose(found[200:-200], expected[200:-200], rtol=0, atol=1e-4)


def test_quiet_speech_is_raised_and_loud_speech_and_silence_are_not() -> None:
    noise = np.random.default_rng(2).normal(0, 1, 1000)
    raised = at_least(noise * 1e-4, -30)
    assert 20 * math.log10(math.sqrt(np.mean(raised**2))) == pytest.approx(-30)
    np.testing.assert_array_equal(at_least(noise, -30), noise)
    np.testing.assert_array_equal(at_least(np.zeros(9), -30), 0)


def test_a_window_becomes_160_frames_and_nothing_else_is_taken() -> None:
    prepared = MelSpectrogram().prepare(np.full(12_800, 1000, np.int16))
    assert {name: (a.shape, a.dtype) for name, a in prepared.items()} == {
        "mel": ((160, 40), np.float32)
    }
    with pytest.raises(InputError, match=r"shape \(12799,\)"):
        MelSpectrogram().prepare(np.zeros(12_799, np.int16))


# -- recordings


def recording(samples: Floats, *, channels: int = 1, rate: int = 8000) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return stream.getvalue()


def test_the_middle_is_cut() -> None:
    np.testing.assert_array_equal(
        middle(recording(np.arange(12_805)), "a.wav"), np.arange(2, 12_802)
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (recording(np.zeros(12_799)), "12799 samples"),
        (recording(np.zeros(40_000), channels=2), "2 channels"),
        (recording(np.zeros(40_000), rate=16_000), "16000 Hz"),
        (recording(np.zeros(40_000))[:20], "header"),
        (b"no sound", ""),
    ],
)
def test_what_is_no_such_recording_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(UnavailableError, match=r"'a\.wav'") as caught:
        middle(data, "a.wav")
    assert words in caught.value.found


@given(st.integers(64, 500))
def test_scored_and_calibrating_recordings_are_apart(count: int) -> None:
    paths = [f"{index:04d}" for index in range(count)]
    scored, calibrating = chosen(paths, scored=True), chosen(paths, scored=False)
    assert (len(set(scored)), len(set(calibrating))) == (40, 24)
    assert not set(scored) & set(calibrating)
    assert list(scored) == sorted(scored)
    assert list(calibrating) == sorted(calibrating)


# -- the task


class Table:
    """An executor that answers with prepared rows."""

    def __init__(self, rows: Floats) -> None:
        self.rows, self.at = rows, 0

    def run(self, feeds: Mapping[str, Floats]) -> dict[str, Floats]:
        count = len(feeds["x"])
        self.at += count
        return {"embedding": self.rows[self.at - count : self.at]}


def samples_of(count: int, labels: Labels | None, folder: Path) -> Samples:
    folder.mkdir(exist_ok=True)
    np.zeros(count, np.float32).tofile(folder / "0.raw")
    (folder / "layout.json").write_text('{"x": {"dtype": "<f4", "shape": [1]}}')
    ids = tuple(f"s{index}" for index in range(count))
    return Samples("given", "0", ids, labels, folder, ReadyArray(input="x"))


def nearest_by_hand(rows: Floats, classes: list[int], i: int) -> int:
    def cosine(j: int) -> float:
        a, b = rows[i].astype(float), rows[j].astype(float)
        lengths = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
        return float(a @ b) / lengths if lengths else 0.0

    return classes[max((j for j in range(len(rows)) if j != i), key=cosine)]


def test_the_answer_is_the_class_of_the_nearest_other_sample(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    rows = random.normal(0, 1, (21, 6)).astype(np.float32)
    rows[7] *= 1e-3  # lengths do not count
    classes = random.integers(0, 3, 21).tolist()
    samples = samples_of(21, tuple((c,) for c in classes), tmp_path / "a")
    answers = NearestNeighbour(output="embedding").answer({"model": Table(rows)}, samples)
    assert answers.ids.shape == (21, 3)
    assert answers.ids[:, 0].tolist() == [nearest_by_hand(rows, classes, i) for i in range(21)]
    assert answers.scores is not None
    assert (np.diff(answers.scores, axis=1) <= 0).all()


def test_without_labels_the_answer_is_the_nearest_sample(tmp_path: Path) -> None:
    rows = np.random.default_rng(4).normal(0, 1, (9, 5)).astype(np.float32)
    answers = NearestNeighbour().answer({"model": Table(rows)}, samples_of(9, None, tmp_path / "a"))
    assert answers.ids.shape == (9, 5)
    assert answers.ids[:, 0].tolist() == [
        nearest_by_hand(rows, list(range(9)), i) for i in range(9)
    ]


def test_an_embedding_of_zeros_is_like_nobody_and_ties_are_counted(tmp_path: Path) -> None:
    rows = np.array([[1, 0], [1, 0], [0, 1], [0, 0]], np.float32)
    samples = samples_of(4, ((0,), (0,), (1,), (1,)), tmp_path / "a")
    answers = NearestNeighbour().answer({"model": Table(rows)}, samples)
    assert answers.ids.tolist() == [[0, 1], [0, 1], [0, 1], [0, 1]]
    assert answers.ties == 2  # the third and the fourth: 0 to everybody
    similar = similarities(rows)
    assert class_scores(similar, np.array([0, 0, 1, 2]))[:, 2].tolist() == [0, 0, 0, -2]


@pytest.mark.parametrize("label", [(), (0, 1), (-1,)])
def test_a_sample_is_of_exactly_one_class(label: tuple[int, ...], tmp_path: Path) -> None:
    samples = samples_of(2, ((0,), label), tmp_path / "a")
    with pytest.raises(InputError, match=r"sample 's1'.*one label"):
        NearestNeighbour().answer({"model": Table(np.ones((2, 2), np.float32))}, samples)


def test_an_answer_names_a_class() -> None:
    with pytest.raises(ValueError, match="0 classes"):
        NearestNeighbour(k=0)


# -- the network on the voices


class OneThread:
    def __init__(self, model: ir.Model) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)

    def run(self, feeds: Mapping[str, Floats]) -> dict[str, Floats]:
        return {"embedding": self.session.run(["embedding"], dict(feeds))[0]}


@pytest.mark.slow
def test_voices_are_many_and_apart_from_those_that_calibrate() -> None:
    scored, calibrating = get_dataset("voices"), get_dataset("voices_calibration")
    for data, each in ((scored, 40), (calibrating, 24)):
        assert data.labels == tuple((voice,) for voice in range(5) for _ in range(each))
        assert {sample.partition("_")[0] for sample in data.sample_ids} == {
            "en",
            "es",
            "fr",
            "it",
            "ru",
        }
        assert not any("/silence/" in sample for sample in data.sample_ids)
    assert not {*scored.sources} & {*calibrating.sources}
    assert scored.load(0).shape == (12_800,)


@pytest.mark.slow
def test_real_voices_are_told_apart_as_measured() -> None:
    model, data = get_model("resemblyzer"), get_dataset("voices")
    samples = prepare_samples(data, model.preprocess, Cache.default())
    answers = model.task.answer({"model": OneThread(model.graphs["model"]())}, samples)
    wrong = [(i // 40, int(answers.ids[i, 0])) for i in range(200) if answers.ids[i, 0] != i // 40]
    assert len(wrong) == pytest.approx(5, abs=1)
    assert {voice for pair in wrong for voice in pair} <= {
        0,
        1,
    }  # one speaker, in English and in Spanish

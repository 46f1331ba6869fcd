"""Whether two are of one voice: likenesses by hand, pairs that are even and apart,
and the encoder on them.
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnxruntime import quantization

from qbench import save_model
from qbench.errors import InputError
from qbench.metrics import AnswerKind, get_metric
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples
from qbench.subjects.sample_folders import ReadyArray
from qbench.subjects.samples import BATCH, Samples
from qbench.subjects.tasks import Verification, scaled_similarities
from qbench_zoo.spectrograms import MelSpectrogram, SpeechPair
from qbench_zoo.voices import chosen_pairs

Floats = npt.NDArray[Any]
TASK = Verification(input="x", output="e")

# -- the task


class Doubling:
    """An executor whose embedding is what it is fed, twice; it notes every batch."""

    def __init__(self) -> None:
        self.batches: list[Floats] = []

    def run(self, feeds: Mapping[str, Floats]) -> dict[str, Floats]:
        self.batches.append(feeds["x"])
        return {"e": 2 * feeds["x"]}


def samples_of(first: Floats, second: Floats, folder: Path) -> Samples:
    folder.mkdir(exist_ok=True)
    first.astype(np.float32).tofile(folder / "0.raw")
    second.astype(np.float32).tofile(folder / "1.raw")
    spec = f'{{"dtype": "<f4", "shape": [{first.shape[1]}]}}'
    (folder / "layout.json").write_text(f'{{"first": {spec}, "second": {spec}}}')
    ids = tuple(f"s{index}" for index in range(len(first)))
    return Samples("given", "0", ids, None, folder, ReadyArray(input="x"))


def likeness_by_hand(a: Floats, b: Floats) -> float:
    lengths = math.sqrt(math.fsum(float(x) ** 2 for x in a)) * math.sqrt(
        math.fsum(float(x) ** 2 for x in b)
    )
    cosine = (
        math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True)) / lengths
        if lengths
        else 0.0
    )
    return 1e6 * (1 + cosine) / 2


def test_likenesses_are_cosines_of_the_pairs_and_each_thing_runs_once(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    things = random.normal(0, 1, (11, 5)).astype(np.float32)
    things[4] = 0
    first, second = things[random.integers(0, 11, 60)], things[random.integers(0, 11, 60)]
    runner = Doubling()
    answers = TASK.answer({"model": runner}, samples_of(first, second, tmp_path / "a"))
    assert (answers.kind, answers.ids.shape) == (AnswerKind.LIKENESS, (60, 1))
    expected = [likeness_by_hand(a, b) for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(answers.ids[:, 0], expected, rtol=0, atol=0.5 + 1e-6)
    assert [len(batch) for batch in runner.batches] == [BATCH, 3]
    assert len(np.unique(np.concatenate(runner.batches), axis=0)) == 11


def test_extreme_likenesses_are_exact() -> None:
    one, zero = np.array([[1.0, 0.0]]), np.array([[0.0, 0.0]])
    assert [int(scaled_similarities(one, other)[0]) for other in (one, -one, zero)] == [
        1_000_000,
        0,
        500_000,
    ]
    assert scaled_similarities(np.array([[1 + 1e-9, 0.0]]), one).tolist() == [
        1_000_000
    ]  # a length one bit too long


def test_what_is_not_finite_names_a_pair_that_it_stands_in(tmp_path: Path) -> None:
    class Broken(Doubling):
        def run(self, feeds: Mapping[str, Floats]) -> dict[str, Floats]:
            return {"e": np.where(feeds["x"] == 7, np.nan, feeds["x"])}

    first, second = np.ones((3, 2)), np.ones((3, 2))
    second[1] = 7
    with pytest.raises(InputError, match="sample 's1'"):
        TASK.answer({"model": Broken()}, samples_of(first, second, tmp_path / "a"))


# -- the pairs


@given(st.lists(st.integers(20, 45), min_size=3, max_size=5))
def test_pairs_are_as_many_alike_as_not_each_once_and_never_of_one_speaker_in_two_languages(
    sizes: list[int],
) -> None:
    of = [voice for voice, size in enumerate(sizes) for _ in range(size)]
    pairs = chosen_pairs(of)
    groups = Counter(tuple(sorted((of[a], of[b]))) for a, b in pairs)
    voices = range(len(sizes))
    assert groups == {
        (a, b): 162 if a == b else 90 for a in voices for b in voices if a <= b and (a, b) != (0, 1)
    }
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert all(a != b for a, b in pairs)


@pytest.mark.slow
def test_the_pairs_of_real_windows_are_even_and_calibration_has_others() -> None:
    scored, calibrating = get_dataset("voice_pairs"), get_dataset("voice_pairs_calibration")
    assert scored.labels == ((1,),) * 810 + ((0,),) * 810
    windows = Counter(window for pair in scored.sample_ids for window in pair.split("~"))
    assert len(windows) == 200
    assert min(windows.values()) >= 9  # of 16.2 on average: no window decides
    halves = [window for pair in calibrating.sample_ids for window in pair.split("~")]
    assert (len(halves), len(set(halves))) == (120, 120)
    assert not set(halves) & set(windows)
    first, second = calibrating.load(0)
    plain = get_dataset("voices_calibration")
    np.testing.assert_array_equal(first, plain.load(0))
    np.testing.assert_array_equal(second, plain.load(1))


def test_a_pair_is_prepared_as_its_windows_are() -> None:
    random = np.random.default_rng(1)
    a, b = (random.integers(-9000, 9000, 12_800).astype(np.int16) for _ in range(2))
    prepared = SpeechPair().prepare((a, b))
    for name, window in (("first", a), ("second", b)):
        np.testing.assert_array_equal(prepared[name], MelSpectrogram().prepare(window)["mel"])
    with pytest.raises(InputError, match=r"shape \(9,\)"):
        SpeechPair().prepare((a, b[:9]))


# -- the encoder on them


class OneThread:
    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options)

    def run(self, feeds: Mapping[str, Floats]) -> dict[str, Floats]:
        return {"embedding": self.session.run(["embedding"], dict(feeds))[0]}


@pytest.mark.slow
def test_the_error_rate_is_as_measured_and_collapses_under_dynamic_quantization(
    tmp_path: Path,
) -> None:
    model, data = get_model("resemblyzer_verification"), get_dataset("voice_pairs")
    save_model(model.graphs["model"](), tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "pt.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "pc.onnx", per_channel=True)
    samples = prepare_samples(data, model.preprocess, Cache.default())
    misjudged = {}
    for name in ("float", "pt", "pc"):
        answers = model.task.answer({"model": OneThread(tmp_path / f"{name}.onnx")}, samples)
        misjudged[name] = int(get_metric("eer").count(answers, data.labels, None).hits.sum())
    assert misjudged["float"] == pytest.approx(
        242, abs=2
    )  # of 1,620: 14.9 %, as of all 18,300 pairs
    assert misjudged["pt"] == pytest.approx(
        600, abs=80
    )  # 37.0 %; one scale for all weights of an LSTM
    assert misjudged["pc"] == pytest.approx(500, abs=80)  # 30.9 %; one for a row of a gate

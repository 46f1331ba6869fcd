"""Which samples a cell lost and gained, and what is told of each."""

from dataclasses import replace

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.evaluation import build_subject, measure_cell, previews_of, subject_artifacts
from qbench.metrics import IntegerAnswers
from qbench.storage import Cache
from qbench.subjects import preview_of

MOST = 4


@pytest.fixture(scope="module")
def subject():
    return build_subject("digits_cnn", "digits_test", "digits_train", ["top1"], 64)


@pytest.fixture(scope="module")
def measured(subject):
    shared = subject_artifacts(subject, get_backend("ort-cpu"))
    measure_cell(shared, "ort-cpu", None, most_samples=MOST)  # its probabilities are told
    return measure_cell(shared, "ort-cpu", "w4a4_asym_pt", most_samples=MOST)


def test_the_samples_are_those_that_the_score_counts(subject, measured):
    changes, top1 = measured.samples["digits_test"], measured.score("top1")
    assert (changes.lost, changes.gained) == (top1.losses, top1.gains)
    assert changes.changed == measured.changed_count["digits_test"] > MOST
    assert len(changes.samples) == MOST
    assert not changes.is_whole
    data = subject.data["digits_test"]
    for sample in changes.samples:
        right = f"class {data.labels[data.sample_ids.index(sample.id)][0]}"
        assert sample.label == right
        best = sample.fp32[0].text, sample.quantized[0].text
        assert best.index(right) == (0 if sample.effect == "lost" else 1)


def test_the_largest_change_of_the_probability_of_the_label_comes_first(measured):
    changes = measured.samples["digits_test"]
    assert changes.is_probability
    sizes = [abs(one.change) for one in changes.samples]
    assert sizes == sorted(sizes, reverse=True)
    for sample in changes.samples:
        before, now = (
            next(part.probability for part in parts if part.text == sample.label)
            for parts in (sample.fp32, sample.quantized)
        )
        assert sample.change == pytest.approx(now - before, abs=1e-6)
        assert len(sample.fp32) == len(sample.quantized) == 5


def test_nothing_is_listed_unless_it_is_asked_for(subject):
    assert measure_cell(subject, "ort-cpu", "w4a4_asym_pt").samples == {}


def test_without_an_fp32_cell_the_reference_is_told_without_probabilities(subject):
    measured = measure_cell(subject, "ort-cpu", "w4a4_asym_pt", most_samples=MOST)
    changes = measured.samples["digits_test"]
    assert not changes.is_probability
    assert {part.probability for one in changes.samples for part in one.fp32} == {None}
    assert all(one.quantized[0].probability for one in changes.samples)


def test_private_data_has_ids_alone(subject, measured):
    data = {"digits_test": replace(subject.data["digits_test"], private=True)}
    own = replace(subject, data=data)
    changes = measure_cell(own, "ort-cpu", "w4a4_asym_pt", most_samples=MOST).samples["digits_test"]
    assert changes.private
    assert changes.lost == measured.samples["digits_test"].lost
    assert {(one.label, one.change, one.fp32, one.quantized) for one in changes.samples} == {
        ("", None, (), ())
    }
    assert previews_of(own, {"digits_test": changes}, lambda *_: False).found == ()


def test_each_sample_has_a_preview_unless_one_is_known(subject, measured):
    changes = measured.samples["digits_test"]
    known = changes.samples[0].id
    made = previews_of(subject, measured.samples, lambda _, sample: sample == known)
    assert [one for _, one, _ in made.found] == [one.id for one in changes.samples[1:]]
    assert all(preview.picture.startswith(b"\x89PNG") for _, _, preview in made.found)


def test_samples_whose_files_are_gone_are_one_sentence(subject, measured, tmp_path):
    def load(_):
        return (tmp_path / "gone.png").read_bytes()

    own = replace(subject, data={"digits_test": replace(subject.data["digits_test"], load=load)})
    made = previews_of(own, measured.samples, lambda *_: False)
    assert made.found == ()
    (sentence,) = made.problems
    first = measured.samples["digits_test"].samples[0].id
    assert f"'{first}' and {MOST - 1} more of 'digits_test'" in sentence
    assert "No such file" in sentence
    assert sentence.endswith("Put it back; until then reports show the id alone.")


@pytest.mark.parametrize(
    ("sample", "text", "start"),
    [
        ("a sentence", "a sentence", b""),
        (b"GIF89a", "6 bytes: GIF89a", b""),
        (np.array([1.5, -2.0]), "1.5, -2", b""),
        ({"x": np.float32(3)}, "3", b""),
        (("one", "two"), "1: one; 2: two", b""),
        ([1.5, -2], "1.5, -2", b""),
        (list(range(500)), "500 numbers from 0 to 499", b"\x89PNG"),
        ([10**30, 2], f"{10**30} 2", b""),
        (np.zeros((8, 8), np.uint8), "8 × 8 pixels", b"\x89PNG"),
        (np.ones((1, 28, 28), np.float32), "28 × 28 pixels", b"\x89PNG"),
        (np.zeros((300, 400, 3), np.uint8), "400 × 300 pixels", b"\xff\xd8\xff"),
        (np.arange(500, dtype=np.int16), "500 numbers from 0 to 499", b"\x89PNG"),
        (np.zeros((2, 3, 4, 5)), "2 × 3 × 4 × 5 numbers from 0 to 0", b""),
        (np.array(["a", "b"]), "a b", b""),
        (frozenset(), "a frozenset", b""),
    ],
    ids=str,
)
def test_a_preview_goes_by_the_value(sample, text, start):
    preview = preview_of(sample)
    assert preview.text == text
    assert preview.picture.startswith(start) if start else preview.picture == b""


def test_a_noisy_picture_stays_below_the_limit():
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), np.uint8)
    assert 0 < len(preview_of(noise).picture) <= 12_000


def test_not_a_number_is_told():
    assert preview_of(np.full(100, np.nan, np.float32)).picture == b""
    assert "nan" in preview_of(np.full(100, np.nan, np.float32)).text
    assert preview_of(np.full((9, 9), np.inf, np.float32)).picture == b""


FAILS = {
    "raises": lambda *_: 1 / 0,
    "gives nothing": lambda *_: None,
    "gives numbers": lambda *_: (1, 2),
}


@pytest.mark.parametrize("how", FAILS)
def test_a_text_of_an_own_answer_that_fails_is_left_out_with_a_notice(
    subject, measured, monkeypatch, tmp_path, how
):
    monkeypatch.setattr(IntegerAnswers, "told", FAILS[how])
    monkeypatch.setattr(IntegerAnswers, "told_label", FAILS[how])
    cache = Cache(tmp_path)
    shared = subject_artifacts(subject, get_backend("ort-cpu"), cache)
    found = measure_cell(shared, "ort-cpu", "w4a4_asym_pt", most_samples=MOST)
    changes, right = found.samples["digits_test"], measured.samples["digits_test"]
    assert [one.id for one in changes.samples]
    assert (changes.lost, changes.gained) == (right.lost, right.gained)
    assert {(one.label, one.fp32, one.quantized) for one in changes.samples} == {("", (), ())}
    notices = [one for one in cache.take_notices() if "IntegerAnswers.told" in one]
    assert len(notices) == 2

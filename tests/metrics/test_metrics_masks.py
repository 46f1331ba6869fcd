"""Masks: intersections over unions, right pixels and agreement, counted as scalars and as
scikit-learn count them.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import jaccard_score

from qbench.metrics import MaskAnswers, get_metric, packed_answers, score, unpacked_answers


def masks(
    seed: int, *, n: int = 6, classes: int = 4, ignored: float = 0.1
) -> tuple[MaskAnswers, tuple[np.ndarray, ...]]:
    draw = np.random.default_rng(seed)
    right = draw.integers(0, classes, (n, 5, 7)).astype(np.uint8)
    found = np.where(
        draw.random(right.shape) < 0.6, right, draw.integers(0, classes, right.shape)
    ).astype(np.uint8)
    return MaskAnswers(found), tuple(
        np.where(draw.random(right.shape) < ignored, 255, right).astype(np.uint8)
    )


def value(name: str, answers: MaskAnswers, labels: tuple[np.ndarray, ...]) -> float:
    return score(get_metric(name), answers, labels=labels, reference=answers).value


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_shares_are_those_of_one_pixel_after_another(seed: int, classes: int) -> None:
    answers, labels = masks(seed, n=2, classes=classes)
    pairs = [
        (int(a), int(b))
        for mask, label in zip(answers.classes, labels, strict=True)
        for a, b in zip(mask.ravel(), label.ravel(), strict=True)
        if b != 255
    ]
    shares = {}
    for one in {each for pair in pairs for each in pair}:
        both = sum(a == one and b == one for a, b in pairs)
        either = sum(one in pair for pair in pairs)
        shares[one] = both / either
        assert value(f"iou_{one}", answers, labels) == pytest.approx(shares[one], abs=1e-9)
    assert value("miou", answers, labels) == pytest.approx(
        sum(shares.values()) / len(shares), abs=1e-9
    )
    assert value("pixel_accuracy", answers, labels) == sum(a == b for a, b in pairs) / len(pairs)


def test_scikit_learn_gives_the_same_mean_intersection_over_union() -> None:
    for seed in range(50):
        answers, labels = masks(seed, classes=2 + seed % 5)
        right = np.stack(labels)
        kept = right != 255
        theirs = jaccard_score(right[kept], answers.classes[kept], average="macro")
        assert value("miou", answers, labels) == pytest.approx(theirs, abs=1e-9)


def test_an_ignored_pixel_counts_nowhere_whatever_is_answered() -> None:
    answers, labels = masks(1)
    other = answers.classes.copy()
    other[np.stack(labels) == 255] = 9
    for name in ("miou", "pixel_accuracy", "iou_2"):
        assert value(name, MaskAnswers(other), labels) == value(name, answers, labels)


def test_wide_masks_ignore_65535_and_count_class_255() -> None:
    right = np.full((1, 2, 2), 255, np.uint16)
    right[0, 0, 0] = 65535
    assert value("iou_255", MaskAnswers(np.full((1, 2, 2), 255, np.uint16)), tuple(right)) == 1.0


def test_pictures_are_lost_and_gained_each_by_itself() -> None:
    answers, labels = masks(3, ignored=0)
    worse = answers.classes.copy()
    worse[2] = 3 - np.stack(labels)[2]  # every pixel wrong, but for none
    found = score(get_metric("miou"), MaskAnswers(worse), labels=labels, reference=answers)
    assert (found.losses, found.gains) == (1, 0)
    assert found.value < found.reference_value
    assert found.interval is not None
    assert found.interval[0] < found.value - found.reference_value < found.interval[1]


def test_agreement_is_the_share_of_equal_pixels() -> None:
    answers, labels = masks(4, n=3)
    other = answers.classes.copy()
    other[0, 0, :2] += 1
    found = score(get_metric("agreement"), MaskAnswers(other), labels=labels, reference=answers)
    assert (found.hits, found.out_of, found.losses) == (3 * 35 - 2, 3 * 35, 1)


def test_masks_come_back_from_a_record_and_equal_masks_have_equal_digests() -> None:
    answers, _ = masks(5)
    stored = unpacked_answers(packed_answers(answers))
    assert stored.form == "masks"
    assert np.array_equal(stored.arrays()["classes"], answers.classes)
    assert MaskAnswers(answers.classes.astype(np.uint16)).digest == answers.digest
    assert MaskAnswers(answers.classes + np.uint8(1)).digest != answers.digest


def test_large_masks_of_few_areas_come_back_from_a_record() -> None:
    smooth = np.zeros((200, 256, 256), np.uint8)
    smooth[:, 40:90, 30:200] = np.arange(200, dtype=np.uint8)[:, None, None]
    text = packed_answers(MaskAnswers(smooth))
    assert smooth.nbytes > 100 * len(text)
    assert np.array_equal(unpacked_answers(text).arrays()["classes"], smooth)
    with pytest.raises(
        ValueError, match="cannot be read"
    ):  # of other answers so much is not unpacked
        unpacked_answers("values" + text.removeprefix("masks"))


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (np.zeros((6, 4, 7), np.uint8), "miou compares masks of 5×7 pixels, and label 0 has 4×7"),
        (
            np.zeros((6, 5, 7), np.float32),
            "miou compares masks of uint8 or uint16, and label 0 is float32",
        ),
        (np.full((6, 5, 7), 255, np.uint8), "miou has nothing to count in 6 samples"),
    ],
)
def test_labels_that_are_no_masks_of_the_answers_are_refused(
    labels: np.ndarray, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        value("miou", masks(6)[0], tuple(labels))


@pytest.mark.parametrize(
    "name", ["iou_", "iou_x", "iou_-1", "iou_65536", "iou_٣", "iou_" + "9" * 5000]
)
def test_other_names_are_no_intersection_over_union(name: str) -> None:
    from qbench.errors import InputError

    with pytest.raises(InputError, match="metric"):
        get_metric(name)


def test_metrics_that_an_extension_adds_are_offered_first() -> None:
    from qbench import Extension
    from qbench.errors import InputError
    from qbench.metrics import catalogue

    added = Extension(name="mine", metrics={"near1": lambda: get_metric("miou")})
    with pytest.raises(InputError, match="Choose one of: near1, top1, "):
        catalogue([added]).get("zzz")
    assert catalogue([added]).get("iou_4").name == "iou_4"

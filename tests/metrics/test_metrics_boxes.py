"""Metrics of boxes, compared with COCO's rules written out box by box."""

import math
from fractions import Fraction

import numpy as np
import pytest
from box_cases import Case, random_case
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.judging import Decision, DecisionRule, GateState, Tolerance
from qbench.judging.loss import loss_gate
from qbench.metrics import (
    LEAST_OF_MEAN,
    Answers,
    BoxAnswers,
    Ratio,
    box_labels,
    get_metric,
    ratio_of_boxes,
    restored_answers,
    score,
)
from qbench.metrics.box_matching import areas_of, overlaps
from qbench.metrics.resampling import RESAMPLES

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
SIZES = {
    "box_map": (0, 1e10),
    "box_map_small": (0, 32**2),
    "box_map_medium": (32**2, 96**2),
    "box_map_large": (96**2, 1e10),
}

# ---- the judge: COCO's rules, one box at a time


def overlap(answer, label, crowd) -> float:
    width = min(answer[2], label[2]) - max(answer[0], label[0])
    height = min(answer[3], label[3]) - max(answer[1], label[1])
    if width <= 0 or height <= 0:
        return 0.0
    own, other = ((box[2] - box[0]) * (box[3] - box[1]) for box in (answer, label))
    return width * height / (own if crowd else own + other - width * height)


def ranked(case: Case, picture: int, named: int) -> list[tuple[int, tuple[float, ...]]]:
    """Score and corners of the answers to one picture of one class, best first."""
    answers = case.answers
    rows = [
        (int(answers.scores[picture, i]), tuple(answers.corners[picture, i] / 256))
        for i in range(answers.classes.shape[1])
        if answers.classes[picture, i] == named
    ]
    return sorted(rows, key=lambda row: -row[0])[:100]


def matched(
    case: Case, picture: int, named: int, least: float, sizes
) -> tuple[list[tuple[int, bool]], int]:
    """Score of each answer that counts and whether it is right; and how many labels there are."""
    labels = [row for row in case.labels[picture] if row[4] == named]
    out = [bool(row[6]) or not sizes[0] <= row[5] <= sizes[1] for row in labels]
    order = sorted(range(len(labels)), key=lambda i: out[i])
    gone: set[int] = set()
    found = []
    for points, box in ranked(case, picture, named):
        best, place = least, None
        for i in order:
            if i in gone and not labels[i][6]:
                continue
            if place is not None and not out[place] and out[i]:
                break
            if (share := overlap(box, labels[i][:4], labels[i][6])) >= best:
                best, place = share, i
        if place is not None:
            gone.add(place)
            if not out[place]:
                found.append((points, True))
        elif sizes[0] <= (box[2] - box[0]) * (box[3] - box[1]) <= sizes[1]:
            found.append((points, False))
    return found, len(labels) - sum(out)


def mean_precision(case: Case, pictures, sizes, overlaps=OVERLAPS) -> float | None:
    classes = []
    for named in range(case.classes):
        for least in overlaps:
            rows, wanted = [], 0
            for picture in pictures:
                found, labels = matched(case, picture, named, least, sizes)
                rows, wanted = rows + found, wanted + labels
            if not wanted:
                break
            right, curve = 0, []
            for place, (_, is_right) in enumerate(sorted(rows, key=lambda row: -row[0]), start=1):
                right += is_right
                curve.append((right / wanted, right / place))
            classes.append(
                sum(max((p for r, p in curve if r >= recall), default=0) for recall in RECALLS)
                / 101
            )
    return sum(classes) / len(classes) if classes else None


@pytest.mark.slow_but(7)
@pytest.mark.parametrize("seed", range(60))
def test_average_precision_is_cocos_written_out(seed: int) -> None:
    case = random_case(seed, most=8)
    every = range(len(case.labels))
    for name, sizes in SIZES.items():
        counts = get_metric(name).count(case.answers, case.labels, None)
        expected = mean_precision(case, every, sizes)
        assert (
            counts.sums[1] == 0
            if expected is None
            else math.isclose(Fraction(*counts.sums), expected, abs_tol=1e-9)
        )
    alone = get_metric("box_map").count(case.answers, case.labels, None)
    for picture in every:
        expected = mean_precision(case, [picture], SIZES["box_map"])
        assert (alone.out_of[picture] == 0) == (expected is None)
        assert expected is None or abs(alone.hits[picture] / 1e6 - expected) < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_a_weight_counts_a_picture_so_often(seed: int) -> None:
    case = random_case(1000 + seed, pictures=4)
    metric = get_metric("box_map")
    # no ties: boxes of equal scores are ordered picture by picture, which a weight cannot repeat
    falling = np.argsort(-case.answers.scores.ravel(), kind="stable")
    case.answers.scores.ravel()[falling] = 900_000 - np.arange(len(falling))
    counts = metric.count(case.answers, case.labels, None)
    weights = np.random.default_rng(seed).integers(0, 4, (6, 4))
    if counts.weighted is None:
        return
    for row, value in zip(weights, counts.weighted(weights.astype(float)), strict=True):
        places = np.repeat(np.arange(4), row)
        answers = case.answers
        again = BoxAnswers(answers.corners[places], answers.scores[places], answers.classes[places])
        hits, out_of = (
            metric.count(again, tuple(case.labels[i] for i in places), None).sums
            if len(places)
            else (0, 0)
        )
        assert math.isnan(value) if out_of == 0 else abs(value - hits / out_of) < 1e-9


@pytest.mark.parametrize("seed", range(30))
def test_precision_recall_and_f1_are_counted_of_confident_boxes(seed: int) -> None:
    case = random_case(2000 + seed)
    hits = answered = wanted = 0
    for picture in range(len(case.labels)):
        for named in range(case.classes):
            scores, rows = [], []
            found, labels = matched(case, picture, named, 0.5, (0, 1e10))
            scores += [points for points, _ in found]
            rows += [is_right for points, is_right in found if points >= 500_000]
            hits, answered, wanted = hits + sum(rows), answered + len(rows), wanted + labels
    sums = {
        name: get_metric(name).count(case.answers, case.labels, None).sums
        for name in ("box_precision", "box_recall")
    }
    billion = 1_000_000_000 * bool(answered + wanted)
    precision, f1 = (
        round(billion * Fraction(a, max(b, 1)))
        for a, b in ((hits, answered), (2 * hits, answered + wanted))
    )
    assert sums == {"box_precision": (precision, billion), "box_recall": (hits, wanted)}
    counts = get_metric("box_f1").count(case.answers, case.labels, None)
    assert counts.sums == (f1, billion)
    assert (counts.hits.sum(), counts.out_of.sum()) == (2 * hits, answered + wanted)


# ---- small cases by hand


def answers_of(*pictures, sides: int = 4, confident: float = 0.5) -> BoxAnswers:
    """Each picture: (box, score, class) of every answer."""
    parts = ([[row[i] for row in picture] for picture in pictures] for i in range(3))
    return BoxAnswers.of(*parts, sides=sides, confident=confident)


BOX = (10.0, 10.0, 30.0, 20.0)


def test_hmean_ignores_classes_and_what_nobody_can_read() -> None:
    labels = (
        box_labels([BOX, (100, 0, 200, 50)], [0, 0], ignored=[False, True]),
        box_labels([], []),
    )
    answers = answers_of(
        [(BOX, 0.9, 3), ((110, 0, 150, 20), 0.9, 0), ((120, 5, 150, 20), 0.9, 0)], [(BOX, 0.7, 0)]
    )
    # one right, one wrong; one label
    for name, value in {"hmean": 666_666_667, "box_f1": 0}.items():
        assert get_metric(name).count(answers, labels, None).sums == (value, 1_000_000_000)
    found_none = answers_of([(BOX, 0.2, 0)], [])
    assert get_metric("box_precision").count(found_none, labels, None).sums == (0, 1_000_000_000)


def test_of_labels_that_are_overlapped_equally_the_last_is_taken() -> None:
    labels = (box_labels([(0, 0, 10, 10), (2, 0, 12, 10)], [0, 0]),)
    answers = answers_of(
        [((1, 0, 11, 10), 0.9, 0), ((-1, 0, 9, 10), 0.8, 0)]
    )  # the second fits the first label alone
    assert get_metric("box_recall_75").count(answers, labels, None).sums == (2, 2)


def test_a_ratio_of_boxes_takes_any_overlap() -> None:
    labels = (box_labels([BOX], [0]),)
    answers = answers_of([((10, 10, 30, 19), 0.9, 0)])  # shares 0.9 of the union
    for least, hits in ((0.9, 1), (0.91, 0)):
        metric = ratio_of_boxes("r", "R", Ratio.RECALL, least=least)
        assert metric.count(answers, labels, None).sums == (hits, 1)


def test_agreement_counts_the_boxes_that_fp32_found_too() -> None:
    fp32 = answers_of(
        [(BOX, 0.9, 0), ((50, 50, 70, 70), 0.8, 1)], [], [(BOX, 0.6, 0)], [(BOX, 0.4, 0)]
    )
    now = answers_of(
        [(BOX, 0.6, 0), ((50, 50, 70, 70), 0.8, 2)], [], [(BOX, 0.4, 0)], [(BOX, 0.1, 0)]
    )
    assert [one.tolist() for one in now.agreement_with(fp32)] == [[1, 1, 0, 1], [2, 1, 1, 1]]
    found = score(get_metric("agreement"), now, labels=None, reference=fp32)
    assert (found.hits, found.reference_hits, found.out_of, found.has_floor) == (3, 5, 5, True)


def test_answers_are_whole_numbers_by_falling_score() -> None:
    answers = answers_of(
        [((0, 0, 1, 1.001), 0.25, 7), ((0, 0, 2, 2), 0.75, 1), ((0, 0, 3, 3), 0.75, 0)], []
    )
    assert answers.classes.tolist() == [[1, 0, 7], [-1, -1, -1]]
    assert answers.scores[0].tolist() == [750_000, 750_000, 250_000]
    assert answers.corners[0, 2].tolist() == [0, 0, 256, 256]
    stored = restored_answers("boxes", answers.arrays())
    again = BoxAnswers(**{name: array.astype(np.int32) for name, array in stored.arrays().items()})
    assert (again.digest, again.best(0)) == (answers.digest, answers.best(0))


def test_padding_is_no_part_of_the_answer() -> None:
    short = answers_of([(BOX, 0.5, 0)])
    wide = BoxAnswers(
        *(
            np.pad(a, [(0, 0), (0, 3), (0, 0)][: a.ndim], constant_values=-1)
            for a in (short.corners, short.scores, short.classes)
        )
    )
    assert (wide.digest, wide.best(0)) == (short.digest, short.best(0))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ((BOX, math.nan, 0), "NaN or Inf in boxes or scores"),
        (((0, 0, math.inf, 1), 0.5, 0), "NaN or Inf in boxes or scores"),
        ((BOX, 1.5, 0), r"a score of 1\.5, and scores are from 0 to 1"),
        ((BOX, 0.5, -1), "a class below 0"),
        (((0, 0, 1e9, 1), 0.5, 0), "farther away than any picture is wide"),
    ],
)
def test_impossible_answers_are_refused(row, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        answers_of([row])


@pytest.mark.parametrize(
    ("box", "sentence"),
    [((5, 0, 4, 1), "a box of negative size"), ((0, 0, math.nan, 1), "NaN or Inf in a box")],
)
def test_impossible_labels_are_refused(box, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        box_labels([box], [0])


def test_metrics_of_boxes_refuse_what_is_no_box() -> None:
    with pytest.raises(ValueError, match="box_map counts boxes, and these answers are rankings"):
        get_metric("box_map").count(
            Answers(np.zeros((1, 1), np.int32)), (box_labels([], []),), None
        )
    with pytest.raises(ValueError, match=r"labels \(m, 7\) or \(m, 11\), and these are \(2, 2\)"):
        get_metric("box_map").count(answers_of([]), (np.zeros((2, 2)),), None)


def test_data_without_any_right_box_has_nothing_to_count() -> None:
    answers = answers_of([(BOX, 0.5, 0)])
    with pytest.raises(ValueError, match="box_map has nothing to count in 1 samples"):
        score(get_metric("box_map"), answers, labels=(box_labels([], []),), reference=answers)


@pytest.mark.parametrize("sources", [None, "own", "pairs"])
@pytest.mark.parametrize("pictures", [5, 12, 20])
def test_a_detector_that_finds_nothing_any_more_has_lost_its_precision(
    pictures: int, sources: str | None
) -> None:
    labels = (box_labels([BOX], [0]),) * pictures
    fp32 = answers_of(*[[(BOX, 0.9, 0)]] * pictures)
    found_none = answers_of(*[[]] * pictures)
    named = {"own": range(pictures), "pairs": (i // 2 for i in range(pictures))}
    drawn = None if sources is None else [str(one) for one in named[sources]]
    found = score(
        get_metric("box_precision"), found_none, labels=labels, reference=fp32, sources=drawn
    )
    assert (found.value, found.reference_value, found.losses) == (0, 1, pictures)
    assert found.interval is None  # out of no box there is no precision to resample
    if found.independent >= LEAST_OF_MEAN:
        for rule in DecisionRule:
            assert loss_gate(found, Tolerance(), Decision(rule)).state is GateState.BROKEN


def test_the_interval_draws_whole_sources() -> None:
    draw = np.random.default_rng(0)
    boxes = [tuple(10 * i + np.array([0, 0, 8, 8.0])) for i in range(4)]
    labels = tuple(box_labels(boxes, [0] * 4) for _ in range(40))
    fp32 = answers_of(*([(box, 0.9, 0) for box in boxes] for _ in range(40)))
    now = answers_of(
        *(
            [(box, 0.9, 0) for box in boxes[: 4 if i % 8 else draw.integers(0, 3)]]
            for i in range(40)
        )
    )
    own = score(get_metric("box_map"), now, labels=labels, reference=fp32)
    together = score(
        get_metric("box_map"),
        now,
        labels=labels,
        reference=fp32,
        sources=[str(i % 8) for i in range(40)],
    )
    change = own.value - own.reference_value
    assert own.interval[0] < change < own.interval[1]
    assert together.interval[1] - together.interval[0] > 1.5 * (own.interval[1] - own.interval[0])
    assert (own.losses, own.gains) == (5, 0)


def test_values_of_many_boxes_are_resampled_less_often() -> None:
    box = (0.0, 0.0, 8.0, 8.0)
    few = get_metric("box_map").count(answers_of([(box, 0.9, 0)]), (box_labels([box], [0]),), None)
    many = get_metric("box_map").count(
        answers_of(*([(box, 0.9, 0)] * 90 for _ in range(60))), (box_labels([box], [0]),) * 60, None
    )
    assert (few.resamples, many.resamples) == (RESAMPLES, 50_000_000 // (10 * 90 * 60))


# ---- overlaps of quadrilaterals

ANGLE = st.floats(0, 2 * math.pi)


def square(middle, half: float, angle: float) -> np.ndarray:
    turned = angle + math.pi / 4 + np.arange(4) * math.pi / 2
    return (
        np.array(middle) + half * math.sqrt(2) * np.stack([np.cos(turned), np.sin(turned)], axis=1)
    ).reshape(1, 8)


@given(ANGLE)
def test_a_square_in_a_square_shares_its_area(angle: float) -> None:
    inner, outer = square((3, 5), 1, angle), square((3, 5), 2, 0)
    assert areas_of(inner)[0] == pytest.approx(4)
    assert overlaps(inner, outer, np.array([False]))[0] == pytest.approx(0.25)
    assert overlaps(inner, outer, np.array([True]))[0] == pytest.approx(1)


def test_a_square_turned_by_45_degrees_shares_an_octagon() -> None:
    shared = 8 * (math.sqrt(2) - 1)  # of a square of side 2
    found = overlaps(square((0, 0), 1, 0), square((0, 0), 1, math.pi / 4), np.array([False]))
    assert found[0] == pytest.approx(shared / (8 - shared))


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 12), min_size=8, max_size=8), st.integers(0, 3), st.booleans(), ANGLE
)
def test_quadrilaterals_overlap_as_their_boxes_however_they_are_written(
    sides, first, backwards, angle
) -> None:
    x0, y0, w, h, x1, y1, v, u = sides
    boxes = np.array([[x0, y0, x0 + w, y0 + h], [x1, y1, x1 + v, y1 + u]], float)
    expected = overlaps(boxes[:1], boxes[1:], np.array([False]))[0]
    corners = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(2, 4, 2)
    rolled = np.roll(corners[0], first, axis=0)[:: -1 if backwards else 1]
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    ours, theirs = ((points @ turn).reshape(1, 8) for points in (rolled, corners[1]))
    assert overlaps(ours, theirs, np.array([False]))[0] == pytest.approx(expected, abs=1e-7)
    assert overlaps(boxes[:1], corners[1].reshape(1, 8), np.array([False]))[0] == pytest.approx(
        expected, abs=1e-9
    )

"""Boxes as answers and as labels, and the metrics of detection: COCO's average precision,
precision, recall, F1, hmean.

A box is 4 numbers (left, top, right, bottom) or 8 (the corners x, y of a convex quadrilateral, one
after the other), in pixels; x grows to the right, y downwards.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from qbench.metrics.answer_parts import PARTS, AnswerPart, shortened
from qbench.metrics.answers import (
    MILLION,
    PADDING,
    Answers,
    Outputs,
    answer_words,
)
from qbench.metrics.box_matching import Boxes, Floats, Matches, areas_of, match_boxes, precisions
from qbench.metrics.metric import ArrayLabels, Counts, Metric, array_metric
from qbench.metrics.resampling import RESAMPLES
from qbench.metrics.scores import BILLION
from qbench.number_text import counted
from qbench.storage import digest_arrays

PIXEL = 256
"""Units of a stored coordinate in a pixel: a power of two, so that it is a float without
rounding.
"""
CONFIDENT = 0.5
"""The score from which on a box counts as found, where a metric does not rank boxes."""
_AGREEING = 0.9
"""The overlap from which on a box agrees with one of fp32."""
_FARTHEST = 2**31 // PIXEL - 1


@dataclass(frozen=True, slots=True, eq=False)
class BoxAnswers(Answers):
    """The boxes found in n pictures, whole numbers, those of a picture by falling score.

    Args:
        corners: (n, m, 4) or (n, m, 8) int32, in 1/256 pixel.
        scores: (n, m) int32, in millionths.
        classes: (n, m) int32; ``PADDING`` where a picture has fewer than m boxes, at the end.
        confident: score in millionths from which on a box counts in metrics that do not rank boxes.
        outputs: of the network for the first samples; None: the task does not record them.
    """

    corners: npt.NDArray[np.int32]
    scores: npt.NDArray[np.int32]
    classes: npt.NDArray[np.int32]
    confident: int = round(CONFIDENT * MILLION)
    outputs: Outputs | None = None

    def __post_init__(self) -> None:
        shape = self.classes.shape
        if (
            self.classes.ndim != 2
            or self.scores.shape != shape
            or self.corners.shape not in ((*shape, 4), (*shape, 8))
        ):
            raise ValueError(
                f"boxes of the shapes {self.corners.shape}, {self.scores.shape} and {shape}: they "
                "are (n, m, 4 or 8), (n, m) and (n, m)"
            )

    @classmethod
    def of(
        cls,
        boxes: Sequence[npt.NDArray[Any]],
        scores: Sequence[npt.NDArray[Any]],
        classes: Sequence[npt.NDArray[Any]],
        *,
        sides: int = 4,
        confident: float = CONFIDENT,
    ) -> Self:
        """Of every picture ``boxes`` (m, sides) in pixels, ``scores`` (m,) from 0 to 1 and
        ``classes`` (m,) from 0.

        Boxes are ordered by falling score, equal ones as they come.

        Raises:
            ValueError: a number is not finite or too far away, or a score or a class is impossible.
        """
        most = max(1, max(map(len, classes), default=0))
        corners = np.zeros((len(boxes), most, sides), np.int32)
        points = np.zeros((len(boxes), most), np.int32)
        named = np.full((len(boxes), most), PADDING, np.int32)
        for row, (box, score, one) in enumerate(zip(boxes, scores, classes, strict=True)):
            wide = np.asarray(box, np.float64).reshape(-1, sides)
            given = np.asarray(score, np.float64)
            if not np.isfinite(given).all() or not np.isfinite(wide).all():
                raise ValueError("NaN or Inf in boxes or scores")
            if ((given < 0) | (given > 1)).any():
                raise ValueError(
                    f"a score of {given[(given < 0) | (given > 1)][0]:g}, and scores are from 0 to "
                    "1"
                )
            if (np.asarray(one) < 0).any() or (np.abs(wide) > _FARTHEST).any():
                raise ValueError(
                    "a class below 0, or a coordinate that is farther away than any picture is wide"
                )
            millionths = np.rint(MILLION * given).astype(np.int32)
            order = np.argsort(-millionths, kind="stable")
            corners[row, : len(order)] = np.rint(PIXEL * wide[order])
            points[row, : len(order)] = millionths[order]
            named[row, : len(order)] = np.asarray(one)[order]
        return cls(corners, points, named, round(confident * MILLION))

    @property
    def form(self) -> str:
        """Boxes."""
        return "boxes"

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Those of detection, or of text in quadrilaterals."""
        return ("hmean",) if self.corners.shape[2] == 8 else ("box_map", "box_map50")

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def is_box(self) -> npt.NDArray[np.bool_]:
        """(n, m) whether a place holds a box; the others are padding."""
        return np.asarray(self.classes != PADDING)

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """Corners, scores and classes, without columns that are padding in every picture."""
        used = max(1, int(self.is_box.sum(axis=1).max(initial=0)))
        return {
            "corners": self.corners[:, :used],
            "scores": self.scores[:, :used],
            "classes": self.classes[:, :used],
        }

    @property
    def digest(self) -> str:
        """Of all boxes: equal digests are identical predictions."""
        return digest_arrays(self.arrays())

    def best(self, index: int) -> tuple[bytes, ...]:
        """Every box of the picture, with score and class."""
        used = self.is_box[index]
        return tuple(
            array[index][used].tobytes() for array in (self.corners, self.scores, self.classes)
        )

    def agreement_with(
        self, reference: Answers
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Of every picture the confident boxes that fp32 found too, out of the larger number of
        the two.

        A box is found where one of the same class overlaps it by 0.9 (``matching``). Two pictures
        without boxes agree, one out of one.
        """
        assert isinstance(reference, BoxAnswers)
        other = reference.confident_boxes()
        ours = self.confident_boxes()
        found = match_boxes(ours, other, np.array([_AGREEING]))
        counts = [np.bincount(one.pictures, minlength=len(self)) for one in (ours, other)]
        hits = np.bincount(found.boxes.pictures[found.right[0]], minlength=len(self))
        none = (counts[0] == 0) & (counts[1] == 0)
        return (hits + none).astype(np.int64), np.maximum(np.maximum(*counts), 1).astype(np.int64)

    def told(self, index: int, name_of: Callable[[int], str]) -> tuple[AnswerPart, ...]:
        """The confident boxes by class: how many, and the best score among them."""
        found: dict[int, list[int]] = {}
        for one, points in zip(self.classes[index], self.scores[index], strict=True):
            if one != PADDING and points >= self.confident:
                found.setdefault(int(one), []).append(int(points))
        largest = sorted(found.items(), key=lambda each: -max(each[1]))[:PARTS]
        parts = (
            AnswerPart(f"{len(points)} × {shortened(name_of(one))}", max(points) / MILLION)
            for one, points in largest
        )
        return tuple(parts) or (AnswerPart("no box"),)

    def told_label(
        self,
        right: Sequence[int] | npt.NDArray[Any],
        name_of: Callable[[int], str],  # noqa: ARG002 - the boxes are counted, whatever they hold
    ) -> str:
        """How many boxes are right."""
        return counted(len(right), "right box", "right boxes")

    def boxes(self) -> Boxes:
        """All boxes, as they are matched."""
        return self._flat(self.is_box)

    def confident_boxes(self) -> Boxes:
        """Those whose score is at least ``confident``."""
        return self._flat(self.is_box & (self.scores >= self.confident))

    def _flat(self, chosen: npt.NDArray[np.bool_]) -> Boxes:
        pictures = np.broadcast_to(np.arange(len(self))[:, None], chosen.shape)[chosen]
        corners = self.corners[chosen] / PIXEL
        return Boxes(
            pictures=pictures,
            classes=self.classes[chosen].astype(np.int64),
            corners=corners,
            areas=areas_of(corners),
            ignored=np.zeros(len(pictures), np.bool_),
            scores=self.scores[chosen],
        )


# Labels: of every picture one array (m, 4 + 3) or (m, 8 + 3) float64: the box, its class, its area
# and 1 where it is ignored. The area decides the size of an object; COCO's is that of its outline,
# which is smaller than the box's.


def box_labels(
    boxes: npt.ArrayLike,
    classes: npt.ArrayLike,
    areas: npt.ArrayLike | None = None,
    ignored: npt.ArrayLike | None = None,
    *,
    sides: int = 4,
) -> Floats:
    """The label of one picture.

    Args:
        boxes: (m, sides) pixels, ``sides`` 4 or 8.
        classes: (m,).
        areas: (m,); None: those of the boxes.
        ignored: (m,) bool; None: none is.

    Raises:
        ValueError: a number is not finite, or a box has negative sides.
    """
    corners = np.asarray(boxes, np.float64).reshape(-1, sides)
    if not np.isfinite(corners).all():
        raise ValueError("NaN or Inf in a box")
    if sides == 4 and ((corners[:, 2] < corners[:, 0]) | (corners[:, 3] < corners[:, 1])).any():
        raise ValueError("a box of negative size")
    count = len(corners)
    label = np.zeros((count, sides + 3))
    label[:, :sides] = corners
    label[:, sides] = np.asarray(classes, np.float64).reshape(count)
    label[:, sides + 1] = (
        areas_of(corners) if areas is None else np.asarray(areas, np.float64).reshape(count)
    )
    label[:, sides + 2] = 0 if ignored is None else np.asarray(ignored, np.bool_).reshape(count)
    return label


def boxes_of_labels(labels: ArrayLabels) -> Boxes:
    """The boxes of all pictures.

    Raises:
        ValueError: they are not labels that ``box_labels`` made.
    """
    widths = {label.shape[1] if label.ndim == 2 else -1 for label in labels}
    if len(widths) > 1 or not widths <= {7, 11}:
        raise ValueError(
            f"boxes are compared with labels (m, 7) or (m, 11), and these are {labels[0].shape}"
        )
    rows = np.concatenate(labels)
    sides = rows.shape[1] - 3
    return Boxes(
        pictures=np.repeat(np.arange(len(labels)), [len(label) for label in labels]),
        classes=rows[:, sides].astype(np.int64),
        corners=rows[:, :sides],
        areas=rows[:, sides + 1],
        ignored=rows[:, sides + 2] != 0,
    )


# COCO's mean average precision over classes and over overlaps of 0.50 to 0.95, of all labels or of
# one size.
#
#     value = mean over the classes that have a label, and over the overlaps, of the average
#             precision (box_matching)
#
# Source: Lin et al. (2014) and pycocotools, whose number it is. A picture alone counts its own
# average precision over the classes that it is labelled with, in millionths: losses and gains
# compare that.

OVERLAPS = np.linspace(0.5, 0.95, 10)
SMALL, LARGE = 32.0**2, 96.0**2
"""Square pixels: a small object has at most the one, a large one at least the other."""
_FARTHEST_AREA = 1e10
_MOST_BOXES = 100
"""Of a picture and a class, those of the highest scores."""
_FEWEST_RESAMPLES, _COUNTED_BOXES = 500, 50_000_000
"""Resamples of many boxes, and boxes that all resamples of few count: about 10 s."""


def _boxes_of(name: str, answers: Answers, labels: ArrayLabels) -> tuple[BoxAnswers, Boxes]:
    if isinstance(answers, BoxAnswers):
        return answers, boxes_of_labels(labels)
    raise ValueError(f"{name} counts boxes, and these answers are {answer_words(answers)}")


def average_precision(
    name: str,
    title: str,
    *,
    least: npt.NDArray[np.float64],
    sizes: tuple[float, float] | None = None,
) -> Metric:
    """Mean average precision at the overlaps ``least`` (t,), of labels within ``sizes``."""

    def count(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
        found, right = _boxes_of(name, answers, labels)
        matches = match_boxes(found.boxes(), right, least, sizes=sizes, most=_MOST_BOXES)
        pictures = len(found)

        def value(weights: Floats) -> Floats:
            each = precisions(matches, weights, (matches.boxes.classes, matches.labels.classes))
            known = ~np.isnan(each)
            mean: Floats = np.where(known, each, 0.0).sum(axis=1) / np.where(
                known.any(axis=1), known.sum(axis=1), np.nan
            )
            return mean

        each, out_of = _of_pictures(matches, pictures)
        if not len(matches.labels):
            return Counts(each, out_of, total=(0, 0))
        total = round(BILLION * float(value(np.ones((1, pictures)))[0]))
        cost = max(1, len(matches.boxes) * len(least))
        draws = min(RESAMPLES, max(_FEWEST_RESAMPLES, _COUNTED_BOXES // cost))
        return Counts(each, out_of, total=(total, BILLION), weighted=value, resamples=draws)

    return array_metric(name, title, count)


def _of_pictures(
    matches: Matches, pictures: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The mean average precision of every picture alone, in millionths, out of a million or of
    nothing: (pictures,).
    """
    boxes, labels = matches.boxes, matches.labels
    classes = int(max(boxes.classes.max(initial=0), labels.classes.max(initial=0))) + 1
    keys = [one.pictures * classes + one.classes for one in (boxes, labels)]
    known, places = np.unique(np.concatenate(keys), return_inverse=True)
    groups = places[: len(boxes)], places[len(boxes) :]
    found = precisions(matches, np.ones((1, pictures)), groups)[0]
    owner = np.zeros(len(known), np.int64)
    owner[groups[0]], owner[groups[1]] = boxes.pictures, labels.pictures
    wanted = ~np.isnan(found)
    count = np.bincount(owner[wanted], minlength=pictures)
    sums = np.bincount(owner[wanted], found[wanted], minlength=pictures)
    hits = np.rint(MILLION * sums / np.maximum(count, 1)).astype(np.int64)
    return hits, np.where(count > 0, MILLION, 0).astype(np.int64)


BOX_MAP = average_precision("box_map", "COCO mAP, overlaps 0.50 to 0.95", least=OVERLAPS)
BOX_MAP50 = average_precision("box_map50", "COCO mAP at an overlap of 0.50", least=OVERLAPS[:1])
BOX_MAP75 = average_precision("box_map75", "COCO mAP at an overlap of 0.75", least=OVERLAPS[5:6])
BOX_MAP_SMALL = average_precision(
    "box_map_small", "COCO mAP of small objects", least=OVERLAPS, sizes=(0.0, SMALL)
)
BOX_MAP_MEDIUM = average_precision(
    "box_map_medium", "COCO mAP of medium objects", least=OVERLAPS, sizes=(SMALL, LARGE)
)
BOX_MAP_LARGE = average_precision(
    "box_map_large", "COCO mAP of large objects", least=OVERLAPS, sizes=(LARGE, _FARTHEST_AREA)
)


# Confident boxes at one overlap: sums over pictures.
#
#     precision = right / answered    recall = right / labels
#     F1 = hmean = 2 · right / (answered + labels)
#
# hmean is the harmonic mean by which text detection is ranked: Karatzas et al., "ICDAR 2015
# competition on robust reading" (2015), one answer for one label at an overlap of 0.5; text that is
# not legible is ignored there, and answers inside it count as nothing. Boxes are matched by score
# here, in ICDAR by place: at 0.5 no answer can overlap two labels that do not overlap themselves.


class Ratio(enum.Enum):
    """What right boxes are counted out of."""

    PRECISION = "precision"
    RECALL = "recall"
    F1 = "f1"


def ratio_of_boxes(
    name: str, title: str, ratio: Ratio, *, least: float, classless: bool = False
) -> Metric:
    """A metric of confident boxes that overlap a label by ``least``; ``classless``: of whatever
    class.
    """

    def count(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
        found, right = _boxes_of(name, answers, labels)
        matches = match_boxes(
            found.confident_boxes(), right, np.array([least]), classless=classless
        )
        pictures = matches.boxes.pictures
        hits, answered, wanted = (
            np.bincount(one, minlength=len(found)).astype(np.int64)
            for one in (
                pictures[matches.right[0]],
                pictures[~matches.left_out[0]],
                matches.labels.pictures,
            )
        )
        if ratio is Ratio.RECALL:
            return Counts(hits, wanted)
        over, under = (2 * hits, answered + wanted) if ratio is Ratio.F1 else (hits, answered)
        # out of another number for every answer, so always a share; who finds nothing has the
        # precision 0
        share = Fraction(int(over.sum()), max(1, int(under.sum())))
        return Counts(
            over, under, total=(round(BILLION * share), BILLION if (answered + wanted).any() else 0)
        )

    return array_metric(name, title, count)


BOX_PRECISION = ratio_of_boxes(
    "box_precision", "Precision of boxes at 0.50", Ratio.PRECISION, least=0.5
)
BOX_RECALL = ratio_of_boxes("box_recall", "Recall of boxes at 0.50", Ratio.RECALL, least=0.5)
BOX_F1 = ratio_of_boxes("box_f1", "F1 of boxes at 0.50", Ratio.F1, least=0.5)
BOX_PRECISION_75 = ratio_of_boxes(
    "box_precision_75", "Precision of boxes at 0.75", Ratio.PRECISION, least=0.75
)
BOX_RECALL_75 = ratio_of_boxes("box_recall_75", "Recall of boxes at 0.75", Ratio.RECALL, least=0.75)
BOX_F1_75 = ratio_of_boxes("box_f1_75", "F1 of boxes at 0.75", Ratio.F1, least=0.75)
HMEAN = ratio_of_boxes("hmean", "Hmean of boxes at 0.50", Ratio.F1, least=0.5, classless=True)

"""Answers that name a class for each pixel, and what counts them: intersection over union,
right pixels.

    IoU_c = Σᵢ |answer = c ∧ label = c| / Σᵢ |answer = c ∨ label = c|    over the pixels of all
                                                                         pictures i
    mIoU  = mean of IoU_c over the classes that any answer or label has

A pixel whose label is ``IGNORED`` counts nowhere. Sources: Everingham et al., "The Pascal visual
object classes challenge" (2010), section 4.2.2; Long, Shelhamer and Darrell (2015), section 5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics.answer_parts import PARTS, AnswerPart, shortened
from qbench.metrics.answers import (
    Answers,
    Outputs,
    answer_words,
)
from qbench.metrics.metric import ArrayLabels, Counts, Metric, array_metric
from qbench.metrics.resampling import Wide
from qbench.metrics.scores import BILLION
from qbench.number_text import percent

IGNORED = 255
"""The label of a pixel that is not counted; in masks of uint16 it is 65535."""

Mask = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class MaskAnswers(Answers):
    """The class of every pixel of n pictures.

    Args:
        classes: (n, H, W) uint8 or uint16.
        tied: (n,) bool: in some pixel the best score was shared, and the lowest class taken; None:
            not recorded.
        outputs: those of the network for the first samples; None: not recorded.
    """

    classes: Mask
    tied: npt.NDArray[np.bool_] | None = None
    outputs: Outputs | None = None

    def __post_init__(self) -> None:
        if self.classes.ndim != 3 or self.classes.dtype not in (np.uint8, np.uint16):
            raise ValueError(
                f"masks are (n, H, W) uint8 or uint16, not {self.classes.shape} "
                f"{self.classes.dtype}"
            )

    @property
    def form(self) -> str:
        """One word."""
        return "masks"

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """``classes`` in the smallest type, so that equal masks have equal digests."""
        small = self.classes.max(initial=0) <= np.iinfo(np.uint8).max
        return {"classes": self.classes.astype(np.uint8) if small else self.classes}

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Of segmentation."""
        return ("miou", "pixel_accuracy")

    def best(self, index: int) -> bytes:
        """The mask of sample ``index``."""
        return bytes(self.classes[index].astype(np.uint16).tobytes())

    def told(self, index: int, name_of: Callable[[int], str]) -> tuple[AnswerPart, ...]:
        """The largest classes, each with its share of the pixels."""
        found, pixels = np.unique(self.classes[index], return_counts=True)
        largest = np.argsort(-pixels, kind="stable")[:PARTS]
        whole = self.classes[index].size
        return tuple(
            AnswerPart(
                f"{shortened(name_of(int(found[at])))}: {percent(pixels[at] / whole)} of pixels"
            )
            for at in largest
        )

    def agreement_with(
        self, reference: Answers
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Equal pixels, out of all."""
        assert isinstance(reference, MaskAnswers)
        if self.classes.shape != reference.classes.shape:
            raise ValueError(
                f"masks {self.classes.shape} and {reference.classes.shape} of the reference"
            )
        same = (self.classes == reference.classes).sum(axis=(1, 2), dtype=np.int64)
        return same, np.full(len(self), self.classes[0].size, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ClassPixels:
    """(n, classes) int64 each: pixels of every class in every picture, where the label is not
    ignored.

    Args:
        both: answered and labelled so.
        either: answered or labelled so.
    """

    both: npt.NDArray[np.int64]
    either: npt.NDArray[np.int64]


def class_pixels(answered: Mask, labelled: Mask, ignored: int) -> ClassPixels:
    """The pixels of each class in masks (n, H, W) of one shape."""
    kept = labelled != ignored
    classes = 1 + max(
        int(answered.max(initial=0, where=kept)), int(labelled.max(initial=0, where=kept))
    )
    both, named = [], []
    for one, right, counts in zip(answered, labelled, kept, strict=True):
        a, b = one[counts], right[counts]
        both.append(np.bincount(a[a == b], minlength=classes))
        named.append(np.bincount(a, minlength=classes) + np.bincount(b, minlength=classes))
    common = np.array(both, np.int64)
    return ClassPixels(common, np.array(named, np.int64) - common)


def mean_iou(both: Wide, either: Wide) -> Wide:
    """The mean over classes of sums (b, classes): (b,); a class without a pixel is left out,
    NaN: there is none.
    """
    found = either > 0
    shares = np.divide(both, either, out=np.zeros(both.shape), where=found).sum(axis=1)
    means = np.divide(
        shares, found.sum(axis=1), out=np.full(len(shares), np.nan), where=found.any(axis=1)
    )
    return np.asarray(means)


def _pixels(name: str, answers: Answers, labels: ArrayLabels) -> ClassPixels:
    masks, right = _masks(name, answers, labels)
    return class_pixels(masks, right, _ignored(right))


def _masks(name: str, answers: Answers, labels: ArrayLabels) -> tuple[Mask, Mask]:
    if isinstance(answers, MaskAnswers):
        _require_masks(name, answers.classes.shape[1:], labels)
        return answers.classes, np.stack(labels)
    raise ValueError(f"{name} compares masks, and these answers are {answer_words(answers)}")


def _require_masks(name: str, size: tuple[int, ...], labels: ArrayLabels) -> None:
    for index, label in enumerate(labels):
        if label.dtype not in (np.uint8, np.uint16):
            raise ValueError(
                f"{name} compares masks of uint8 or uint16, and label {index} is {label.dtype}"
            )
        if label.shape != size:
            answered, right = ("×".join(map(str, shape)) for shape in (size, label.shape))
            raise ValueError(
                f"{name} compares masks of {answered} pixels, and label {index} has {right}"
            )


def _ignored(right: Mask) -> int:
    return int(np.iinfo(right.dtype).max)


# The value is that of all pictures together; a picture is better or worse by its own mean.


def _counted(pixels: ClassPixels, chosen: slice) -> Counts:
    both = pixels.both[:, chosen].astype(np.float64)
    either = pixels.either[:, chosen].astype(np.float64)

    def value(weights: Wide) -> Wide:
        return mean_iou(weights @ both, weights @ either)

    whole = float(value(np.ones((1, len(both))))[0]) if either.any() else 0.0
    return Counts(
        hits=np.rint(BILLION * np.nan_to_num(mean_iou(both, either))).astype(np.int64),
        out_of=np.where(either.any(axis=1), BILLION, 0).astype(np.int64),
        total=(round(BILLION * whole), BILLION if either.any() else 0),
        weighted=value,
    )


def _iou_metric(name: str, title: str, chosen: slice) -> Metric:
    def count(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
        return _counted(_pixels(name, answers, labels), chosen)

    return array_metric(name, title, count)


MIOU = _iou_metric("miou", "Mean intersection over union", slice(None))


def iou_of_class(number: int) -> Metric:
    """The intersection over union of class ``number``."""
    return _iou_metric(
        f"iou_{number}", f"Intersection over union of class {number}", slice(number, number + 1)
    )


def _count_pixels(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
    masks, right = _masks("pixel_accuracy", answers, labels)
    kept = right != _ignored(right)
    return Counts(
        *(each.sum(axis=(1, 2), dtype=np.int64) for each in ((masks == right) & kept, kept))
    )


PIXEL_ACCURACY = array_metric("pixel_accuracy", "Pixels of the right class", _count_pixels)

"""Tasks whose answers are numbers for each sample: the class of every pixel, real values, a
picture.

Labels of such data are arrays: a mask (H, W) of uint8, values (d,), or a picture (C, H, W).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qbench.errors import InputError
from qbench.metrics import IGNORED, Answers, FirstOutputs, MaskAnswers, OutputKind, ValueAnswers
from qbench.subjects.dataset import Array
from qbench.subjects.samples import Samples
from qbench.subjects.subject import Runner
from qbench.subjects.tasks import GRAPH, runner_named


def _outputs(
    runners: Mapping[str, Runner], samples: Samples, output: str | None, task: str, form: str
) -> Iterator[tuple[slice, Array]]:
    """Of every batch which samples it has, and the output called ``output`` (None: the first),
    finite.

    Raises:
        InputError: no such output, not one entry for each sample, or a number that is not finite
            (the sample is named).
    """
    run = runner_named(runners, GRAPH, task).run
    start = 0
    for feeds in samples.batches():
        outputs, count = run(feeds), len(next(iter(feeds.values())))
        found = np.asarray(outputs.get(next(iter(outputs), "") if output is None else output, ()))
        rows = slice(start, start + count)
        doing = f"Answering '{samples.data}' with task '{task}'"
        if found.ndim < 2 or len(found) != count:
            remedy = "Name an output that the graph has, and choose a task that reads it."
            raise InputError(
                doing, found=f"an output of shape {found.shape}", expected=form, remedy=remedy
            )
        finite = np.isfinite(found.reshape(count, -1)).all(axis=1)
        if not finite.all():
            raise InputError(
                f"{doing}, sample '{samples.ids[start + int(np.argmin(finite))]}'",
                found=(
                    f"NaN or Inf in the output ({int((~finite).sum())} of {count} samples of the "
                    "batch)"
                ),
                expected="finite numbers",
                remedy=(
                    "Look for a kernel or a scale that overflows; nothing of this cell is scored."
                ),
            )
        yield rows, found
        start = rows.stop


# The class of every pixel: that of the best score, of equal ones the lowest. An output of whole
# numbers without an axis of classes is the mask itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class Segmentation:
    """One graph, one run for each batch.

    Args:
        output: the scores (n, classes, H, W) or the classes (n, H, W); None: the graph's first.
    """

    output: str | None = None

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Of masks."""
        return ("miou", "pixel_accuracy")

    @property
    def usual_comparisons(self) -> tuple[str, ...]:
        """Equal pixels, and the distance of the scores."""
        return ("agreement", "sqnr")

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"segmentation({self.output or 'first output'})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The masks of all samples, uint8 of up to 255 classes.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is
                named); a sample's mask has another size, or a class that the model does not have.
        """
        masks, tied = [], []
        first = FirstOutputs(OutputKind.VALUES)
        form = "scores (n, classes, H, W), or classes (n, H, W)"
        for rows, found in _outputs(runners, samples, self.output, self.name, form):
            classes = _classes(found, samples, self.name, form)
            _refuse_other_masks(samples, rows, found, classes)
            masks.append(classes)
            tied.append(_tied(found))
            first.add(found.reshape(len(found), -1))
        return MaskAnswers(np.concatenate(masks), np.concatenate(tied), first.held)

    def restored(self, arrays: Mapping[str, Array]) -> Answers:
        """The masks whose ``arrays()`` these are."""
        return MaskAnswers(arrays["classes"])


def _classes(found: Array, samples: Samples, task: str, form: str) -> Array:
    is_scored = found.ndim == 4 and found.dtype.kind == "f" and found.shape[1] > 1
    is_mask = found.ndim == 3 and found.dtype.kind in "iu"
    if not is_scored and not (
        is_mask and found.min() >= 0 and found.max() < np.iinfo(np.uint16).max
    ):
        raise InputError(
            f"Answering '{samples.data}' with task '{task}'",
            found=f"an output of shape {found.shape} and {found.dtype}",
            expected=form,
            remedy=(
                "Name an output that has a score for each of at least two classes and each pixel."
            ),
        )
    classes = found.argmax(axis=1) if is_scored else found
    count = found.shape[1] if is_scored else int(found.max()) + 1
    return classes.astype(np.uint8 if count <= IGNORED else np.uint16)


def _tied(found: Array) -> Array:
    """(n,) whether the best score of some pixel is shared."""
    if found.ndim == 3:
        return np.zeros(len(found), np.bool_)
    best = found == found.max(axis=1, keepdims=True)
    return np.asarray((best.sum(axis=1) > 1).any(axis=(1, 2)))


def _refuse_other_masks(samples: Samples, rows: slice, found: Array, classes: Array) -> None:
    if samples.labels is None or samples.whole_labels is not None:
        return
    for sample, mask in zip(samples.ids[rows], samples.labels[rows], strict=True):
        right = np.asarray(mask)
        doing = f"Comparing the mask of sample '{sample}' with that of the model"
        if right.shape != classes.shape[1:]:
            raise InputError(
                doing,
                found=f"{_size(right.shape)} pixels",
                expected=f"{_size(classes.shape[1:])} pixels, as the model answers",
                remedy="Give each picture a mask of the size of the model's output.",
            )
        counted = right[right != np.iinfo(right.dtype).max] if right.dtype.kind == "u" else right
        if found.ndim == 4 and counted.size and int(counted.max()) >= found.shape[1]:
            raise InputError(
                doing,
                found=f"class {int(counted.max())}",
                expected=(
                    f"classes from 0 to {found.shape[1] - 1}, or {IGNORED} for pixels that are not "
                    "counted"
                ),
                remedy="Number the classes in the order of the model's outputs.",
            )


def _size(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "one number"


# Values as they are, or in a unit of their own:
#
#     answer = factor · output, in the shape of ``shape``


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """One graph, one run for each batch.

    Args:
        output: which holds the values, (n, …); None: the graph's first.
        factor: what a value of the output is multiplied by, for labels in another unit.
        shape: of the values of a sample, such as (17, 2) of keypoints; None: as the output has
            them.
    """

    output: str | None = None
    factor: float = 1.0
    shape: tuple[int, ...] | None = None

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Errors in the unit of the labels; of points (K, 2) their similarity."""
        return ("oks",) if self.shape is not None and self.shape[1:] == (2,) else ("mae", "rmse")

    @property
    def usual_comparisons(self) -> tuple[str, ...]:
        """Distances from the fp32 outputs: after quantization no output is equal bit for bit."""
        return ("sqnr", "max_error")

    @property
    def name(self) -> str:
        """Every setting in one line."""
        form = "" if self.shape is None else f", {_size(self.shape)}"
        return f"regression({self.output or 'first output'} · {self.factor!r}{form})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The values of all samples, (n, …) float32.

        Raises:
            InputError: an output is missing, has another number of values, or is not finite (the
                sample is named).
        """
        values = []
        first = FirstOutputs(OutputKind.VALUES)
        form = "(n, values)" if self.shape is None else f"{math.prod(self.shape)} values a sample"
        for _, found in _outputs(runners, samples, self.output, self.name, form):
            if self.shape is not None and found[0].size != math.prod(self.shape):
                raise InputError(
                    f"Answering '{samples.data}' with task '{self.name}'",
                    found=f"an output of shape {found.shape}",
                    expected=form,
                    remedy="Name an output that has the values.",
                )
            first.add(found.reshape(len(found), -1))
            scaled = (found.astype(np.float64) * self.factor).astype(np.float32)
            values.append(scaled if self.shape is None else scaled.reshape(-1, *self.shape))
        return ValueAnswers(np.concatenate(values), first.held)

    def restored(self, arrays: Mapping[str, Array]) -> Answers:
        """The values whose ``arrays()`` these are."""
        return ValueAnswers(arrays["values"])


# A picture from a picture, in the 256 grey values that it would be saved in: round(255 ·
# clip(output / peak, 0, 1)).

_GREY = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """One graph, one run for each batch.

    Args:
        output: the picture, (n, C, H, W); None: the graph's first.
        peak: its brightest value.
    """

    output: str | None = None
    peak: float = 1.0

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Of pictures."""
        return ("psnr", "ssim")

    @property
    def usual_comparisons(self) -> tuple[str, ...]:
        """Distances from the fp32 outputs: after quantization no picture is equal bit for bit."""
        return ("sqnr", "max_error")

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"restoration({self.output or 'first output'} / {self.peak!r})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The pictures of all samples, (n, C, H, W) uint8.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is
                named).
        """
        pictures = []
        first = FirstOutputs(OutputKind.VALUES)
        form = "pictures (n, C, H, W)"
        for _, found in _outputs(runners, samples, self.output, self.name, form):
            if found.ndim != 4:
                raise InputError(
                    f"Answering '{samples.data}' with task '{self.name}'",
                    found=f"an output of shape {found.shape}",
                    expected=form,
                    remedy="Name an output that has a picture.",
                )
            first.add(found.reshape(len(found), -1))
            shares = np.clip(found.astype(np.float64) / self.peak, 0.0, 1.0)
            pictures.append(np.rint(shares * _GREY).astype(np.uint8))
        return ValueAnswers(np.concatenate(pictures), first.held)

    def restored(self, arrays: Mapping[str, Array]) -> Answers:
        """The pictures whose ``arrays()`` these are."""
        return ValueAnswers(arrays["values"])

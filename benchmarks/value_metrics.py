"""How far the metrics of masks, values, pictures and keypoints are from the libraries that
define them.

Random cases, each scored by qbench and by scikit-learn, SciPy, scikit-image or pycocotools; the
largest difference of each metric. A library that is not installed is left out. Exits with 1 where a
difference is above 10⁻⁹.

Run: python benchmarks/value_metrics.py [--cases 10000]
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import (
    jaccard_score,
    mean_absolute_error,
    mean_absolute_percentage_error,
    root_mean_squared_error,
)

from qbench.metrics import Answers, MaskAnswers, ValueAnswers, get_metric

BOUND = 1e-9

Case = tuple[str, Answers, tuple[np.ndarray, ...], float]
"""Metric, answers, labels, and the library's value."""


def masks(draw: np.random.Generator) -> Iterator[Case]:
    """One to four masks of 2 to 8 classes, with pixels that are not counted; scikit-learn."""
    shape = (int(draw.integers(1, 5)), int(draw.integers(2, 12)), int(draw.integers(2, 12)))
    classes = int(draw.integers(2, 9))
    right, other = (draw.integers(0, classes, shape).astype(np.uint8) for _ in range(2))
    found = np.where(draw.random(shape) < 0.7, right, other).astype(np.uint8)
    labels = np.where(draw.random(shape) < 0.1, 255, right).astype(np.uint8)
    kept = labels != 255
    if not kept.any():
        return
    answers = MaskAnswers(found)
    theirs = jaccard_score(labels[kept], found[kept], average="macro")
    yield "miou", answers, tuple(labels), float(theirs)
    yield "pixel_accuracy", answers, tuple(labels), float((labels == found)[kept].mean())


def values(draw: np.random.Generator) -> Iterator[Case]:
    """3 to 60 values of very different sizes, half of them rounded so that some are equal;
    scikit-learn and SciPy.
    """
    n, size = int(draw.integers(3, 60)), 10 ** draw.uniform(-2, 3)
    right = draw.normal(0, size, (n, 1))
    found = (right + draw.normal(0, size / 3, (n, 1))).astype(np.float32)
    if draw.random() < 0.5:
        found, right = (
            np.asarray(np.round(each / size, 1) * size, each.dtype) for each in (found, right)
        )
    wide, answers, labels = found.astype(np.float64), ValueAnswers(found), tuple(right)
    yield "mae", answers, labels, float(mean_absolute_error(right, wide))
    yield "rmse", answers, labels, float(root_mean_squared_error(right, wide))
    if (
        np.abs(right) > size / 1000
    ).all():  # a relative error of millions has no nine digits behind the point
        yield "mape", answers, labels, float(mean_absolute_percentage_error(right, wide))
    if len(np.unique(found)) > 1 and len(np.unique(right)) > 1:
        yield "spearman", answers, labels, float(spearmanr(found[:, 0], right[:, 0]).statistic)


def pictures(draw: np.random.Generator) -> Iterator[Case]:
    """One or two pictures of 11 to 24 pixels, in whole grey values or floats; scikit-image."""
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    shape = (int(draw.integers(1, 3)), int(draw.integers(11, 25)), int(draw.integers(11, 25)))
    is_whole = draw.random() < 0.5
    peak = 255.0 if is_whole else 1.0
    right = draw.uniform(0, peak, shape)
    found = np.clip(right + draw.normal(0, peak * draw.uniform(0.001, 0.3), shape), 0, peak)
    dtype = np.uint8 if is_whole else np.float32
    found, right = found.astype(dtype), right.astype(dtype)
    pairs = [
        (a.astype(np.float64), b.astype(np.float64)) for a, b in zip(right, found, strict=True)
    ]
    window = {
        "gaussian_weights": True,
        "sigma": 1.5,
        "use_sample_covariance": False,
        "data_range": peak,
    }
    answers, labels = ValueAnswers(found), tuple(right)
    yield (
        "ssim",
        answers,
        labels,
        float(np.mean([structural_similarity(a, b, **window) for a, b in pairs])),
    )
    if all((a != b).any() for a, b in pairs):
        yield (
            "psnr",
            answers,
            labels,
            float(np.mean([peak_signal_noise_ratio(*pair, data_range=peak) for pair in pairs])),
        )


def keypoints(draw: np.random.Generator) -> Iterator[Case]:
    """One person of 17 keypoints, some of them not labelled; pycocotools."""
    from pycocotools.cocoeval import COCOeval

    right = np.concatenate([draw.uniform(0, 200, (17, 2)), draw.integers(0, 3, (17, 1))], axis=1)
    right[int(draw.integers(17)), 2] = 2
    found = (right[:, :2] + draw.normal(0, draw.uniform(0.1, 20), (17, 2))).astype(np.float32)
    area = float(draw.uniform(100, 40_000))
    evaluation = COCOeval(iouType="keypoints")
    shown = np.concatenate([found.astype(np.float64), np.ones((17, 1))], axis=1).ravel().tolist()
    evaluation._gts[1, 1] = [  # noqa: SLF001
        {"keypoints": right.ravel().tolist(), "area": area, "bbox": [0, 0, 1, 1]}
    ]
    evaluation._dts[1, 1] = [{"keypoints": shown, "score": 1.0}]  # noqa: SLF001
    theirs = evaluation.computeOks(1, 1)[0, 0]
    yield "oks", ValueAnswers(found[None]), (np.append(right.ravel(), area),), float(theirs)


KINDS: tuple[Callable[[np.random.Generator], Iterator[Case]], ...] = (
    masks,
    values,
    pictures,
    keypoints,
)


def main(arguments: list[str]) -> int:
    """Count, compare, print."""
    parser = argparse.ArgumentParser(
        description="Metrics compared with the libraries that define them."
    )
    parser.add_argument("--cases", type=int, default=10_000, help="of each kind (default 10000)")
    count = parser.parse_args(arguments).cases
    warnings.simplefilter("ignore")
    worst: dict[str, float] = {}
    times: dict[str, int] = {}
    for kind in KINDS:
        started = time.perf_counter()
        try:
            for seed in range(count):
                for name, answers, labels, theirs in kind(np.random.default_rng(seed)):
                    hits, out_of = get_metric(name).count(answers, labels, None).sums
                    worst[name] = max(worst.get(name, 0.0), abs(hits / out_of - theirs))
                    times[name] = times.get(name, 0) + 1
        except ModuleNotFoundError as error:
            print(f"{kind.__name__}: left out, as {error.name} is not installed")
            continue
        sys.stderr.write(f"{kind.__name__}: {time.perf_counter() - started:.0f} s\n")
    for name, difference in worst.items():
        print(f"{name:15} {times[name]:7,} cases, largest difference {difference:.1e}")
    return int(any(difference > BOUND for difference in worst.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

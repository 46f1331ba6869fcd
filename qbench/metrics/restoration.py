"""How like the right picture a picture is that a network made: peak signal-to-noise ratio,
structural similarity.

    PSNR = 10 log₁₀(L² / MSE), the mean over pictures, at most 150 dB
    SSIM = mean over places of (2·μ_x·μ_y + c₁)·(2·σ_xy + c₂) / ((μ_x² + μ_y² + c₁)·(σ_x² + σ_y² +
    c₂))

L is 255 or 65535 of pictures in whole grey values, 1 of floats; c₁ = (0.01·L)², c₂ = (0.03·L)².
Means and variances are those of a Gaussian window of 11 × 11 pixels, σ = 1.5, at every place where
all of it lies in the picture; of several channels the mean. Source: Wang, Bovik, Sheikh and
Simoncelli, "Image quality assessment" (2004), equations 13 to 17.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import Answers
from qbench.metrics.distances import MOST_DB
from qbench.metrics.metric import ArrayLabels, Counts, array_metric
from qbench.metrics.regression import answered_values
from qbench.metrics.resampling import Wide
from qbench.metrics.scores import BILLION

WINDOW = 11
_SIGMA = 1.5
_K1, _K2 = 0.01, 0.03

Pixels = npt.NDArray[Any]


def psnr_db(found: Wide, right: Wide, peak: float) -> Wide:
    """(n,) ratios of pictures (n, …), in dB."""
    errors = ((found - right) ** 2).reshape(len(found), -1).mean(axis=1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(10 * np.log10(peak**2 / errors), MOST_DB))


def similarities_of_structure(found: Wide, right: Wide, peak: float) -> Wide:
    """(n,) structural similarities of pictures (n, …, H, W) of at least 11 × 11 pixels."""
    places = np.arange(WINDOW) - WINDOW // 2
    taps = np.exp(-(places**2) / (2 * _SIGMA**2))
    taps /= taps.sum()
    mean_x, mean_y, square_x, square_y, product = (
        _filtered(each, taps)
        for each in (found, right, found * found, right * right, found * right)
    )
    c1, c2 = (_K1 * peak) ** 2, (_K2 * peak) ** 2
    spread = square_x - mean_x**2 + square_y - mean_y**2
    shared = product - mean_x * mean_y
    above = (2 * mean_x * mean_y + c1) * (2 * shared + c2)
    below = (mean_x**2 + mean_y**2 + c1) * (spread + c2)
    return np.asarray((above / below).reshape(len(found), -1).mean(axis=1))


def _filtered(x: Wide, taps: Wide) -> Wide:
    """``x`` (…, H, W) with ``taps`` along both last axes: (…, H − 10, W − 10)."""
    rows, columns = x.shape[-2] - WINDOW + 1, x.shape[-1] - WINDOW + 1
    down = sum(tap * x[..., place : place + rows, :] for place, tap in enumerate(taps))
    return np.asarray(
        sum(tap * down[..., place : place + columns] for place, tap in enumerate(taps))
    )


def _pictures(name: str, answers: Answers, labels: ArrayLabels) -> tuple[Pixels, Pixels, float]:
    """Answered and right pictures of one shape and type, and the largest value of a pixel."""
    found = answered_values(name, answers)
    if found.ndim < 3 or min(found.shape[-2:]) < WINDOW:
        raise ValueError(
            f"{name} compares pictures of at least {WINDOW} × {WINDOW} pixels, not "
            f"{found.shape[1:]}"
        )
    for index, label in enumerate(labels):
        if label.shape != found.shape[1:] or (label.dtype.kind == "f") != (found.dtype.kind == "f"):
            answered, wanted = (
                f"{'×'.join(map(str, each.shape))} {each.dtype}" for each in (found[0], label)
            )
            raise ValueError(
                f"{name} compares pictures of {answered}, and label {index} is {wanted}"
            )
    right = np.stack(labels)
    peak = 1.0 if found.dtype.kind == "f" else float(np.iinfo(found.dtype).max)
    if right.min() < 0 or right.max() > peak:
        raise ValueError(
            f"{name} compares pictures of 0 to {peak:g}, and labels go from {right.min():g} to "
            f"{right.max():g}"
        )
    return found, right, peak


def _blocks(found: Pixels, right: Pixels) -> list[tuple[Wide, Wide]]:
    """Both as float64, some pictures at a time: all at once would take many times their memory."""
    size = max(1, (1 << 20) // found[0].size)
    return [
        (
            found[start : start + size].astype(np.float64),
            right[start : start + size].astype(np.float64),
        )
        for start in range(0, len(found), size)
    ]


def _count_ratios(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
    found, right, peak = _pictures("psnr", answers, labels)
    return _counted(np.concatenate([psnr_db(*block, peak) for block in _blocks(found, right)]))


def _count_structure(answers: Answers, labels: ArrayLabels, _reference: Answers | None) -> Counts:
    found, right, peak = _pictures("ssim", answers, labels)
    return _counted(
        np.concatenate([similarities_of_structure(*block, peak) for block in _blocks(found, right)])
    )


def _counted(values: Wide) -> Counts:
    return Counts(
        np.rint(BILLION * values).astype(np.int64), np.full(len(values), BILLION, np.int64)
    )


PSNR = array_metric("psnr", "Peak signal-to-noise ratio", _count_ratios, unit="dB")
SSIM = array_metric("ssim", "Structural similarity", _count_structure, unit="")

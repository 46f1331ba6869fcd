"""PSNR and SSIM of pictures: against loops over pixels and scikit-image."""

import math

import numpy as np
import pytest

from qbench.metrics import ValueAnswers, get_metric, score


def pictures(seed: int, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    peak = 1.0 if dtype == "float32" else float(np.iinfo(dtype).max)
    right = draw.uniform(0, peak, shape)
    found = np.clip(right + draw.normal(0, peak / 10, shape), 0, peak)
    return found.astype(dtype), right.astype(dtype)


def value(name: str, found: np.ndarray, right: np.ndarray) -> float:
    answers = ValueAnswers(found)
    return score(get_metric(name), answers, labels=tuple(right), reference=answers).value


def structure(x: np.ndarray, y: np.ndarray, peak: float) -> float:
    """Wang's index of two pictures (H, W), window by window."""
    window = np.array(
        [[math.exp(-(i * i + j * j) / (2 * 1.5**2)) for j in range(-5, 6)] for i in range(-5, 6)]
    )
    window /= window.sum()
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    found = []
    for top in range(x.shape[0] - 10):
        for left in range(x.shape[1] - 10):
            a, b = (each[top : top + 11, left : left + 11].astype(np.float64) for each in (x, y))
            ma, mb = (window * a).sum(), (window * b).sum()
            va, vb = (window * (a - ma) ** 2).sum(), (window * (b - mb) ** 2).sum()
            shared = (window * (a - ma) * (b - mb)).sum()
            found.append(
                (2 * ma * mb + c1) * (2 * shared + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))
            )
    return sum(found) / len(found)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_values_are_those_of_one_window_after_another(dtype: str) -> None:
    found, right = pictures(1, (3, 2, 13, 15), dtype)
    peak = {"uint8": 255.0, "uint16": 65535.0, "float32": 1.0}[dtype]
    wide = [each.astype(np.float64) for each in (found, right)]
    errors = [((a - b) ** 2).mean() for a, b in zip(*wide, strict=True)]
    assert value("psnr", found, right) == pytest.approx(
        sum(10 * math.log10(peak**2 / e) for e in errors) / 3, abs=1e-9
    )
    shares = [structure(found[i, c], right[i, c], peak) for i in range(3) for c in range(2)]
    assert value("ssim", found, right) == pytest.approx(sum(shares) / 6, abs=1e-9)


def test_equal_pictures_have_a_similarity_of_one_and_a_ratio_at_its_end() -> None:
    found, _ = pictures(2, (2, 12, 12), "uint8")
    assert value("ssim", found, found) == 1.0
    assert value("psnr", found, found) == 150.0


@pytest.mark.oracle
def test_scikit_image_gives_the_same_values() -> None:
    metrics = pytest.importorskip("skimage.metrics")
    for seed in range(100):
        found, right = pictures(seed, (2, 11 + seed % 9, 14), "uint8" if seed % 2 else "float32")
        peak = 255 if seed % 2 else 1.0
        wide = [each.astype(np.float64) for each in (found, right)]
        settings = {
            "gaussian_weights": True,
            "sigma": 1.5,
            "use_sample_covariance": False,
            "data_range": peak,
        }
        shares = [
            metrics.structural_similarity(b, a, **settings) for a, b in zip(*wide, strict=True)
        ]
        ratios = [
            metrics.peak_signal_noise_ratio(b, a, data_range=peak)
            for a, b in zip(*wide, strict=True)
        ]
        assert value("ssim", found, right) == pytest.approx(np.mean(shares), abs=1e-9)
        assert value("psnr", found, right) == pytest.approx(np.mean(ratios), abs=1e-9)


@pytest.mark.parametrize(
    ("found", "right", "sentence"),
    [
        (
            np.zeros((2, 10, 12), np.uint8),
            np.zeros((2, 10, 12), np.uint8),
            "at least 11 × 11 pixels",
        ),
        (
            np.zeros((2, 12, 12), np.uint8),
            np.zeros((2, 12, 13), np.uint8),
            "label 0 is 12×13 uint8",
        ),
        (
            np.zeros((2, 12, 12), np.float32),
            np.zeros((2, 12, 12), np.uint8),
            "12×12 float32, and label 0 is 12×12 uint8",
        ),
        (
            np.zeros((2, 12, 12), np.float32),
            np.full((2, 12, 12), 255.0),
            "pictures of 0 to 1, and labels go from 255",
        ),
    ],
)
def test_pictures_that_cannot_be_compared_are_refused(
    found: np.ndarray, right: np.ndarray, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        value("psnr", found, right)

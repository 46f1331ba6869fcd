"""How far outputs are from those of today's fp32 run."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import MILLION, Answers, OutputKind
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction

Wide = npt.NDArray[np.float64]

MOST_DB = 150.0
LEAST_PROBABILITY = 1e-7
_THOUSAND = 1000


def sqnr_db(x: Wide, y: Wide) -> Wide:
    """(m,) signal-to-noise ratios of rows ``y`` (m, d) against ``x``, in dB."""
    signal, noise = (x * x).sum(axis=1), ((x - y) ** 2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 10 * (np.log10(signal) - np.log10(noise))
    return np.asarray(np.clip(np.where(noise == 0, MOST_DB, ratio), -MOST_DB, MOST_DB))


def cosines(x: Wide, y: Wide) -> Wide:
    """(m,) cosines of rows (m, d)."""
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    found: Wide = np.asarray(~x.any(axis=1) & ~y.any(axis=1), np.float64)  # of two zeros
    np.divide((x * y).sum(axis=1), lengths, out=found, where=lengths > 0)
    return np.clip(found, -1.0, 1.0, out=found)


def relative_errors(x: Wide, y: Wide) -> Wide:
    """(m,) symmetric mean relative errors of rows (m, d), from 0 to 2."""
    size = np.abs(x) + np.abs(y)
    parts = np.divide(2 * np.abs(x - y), size, out=np.zeros_like(size), where=size > 0)
    return np.asarray(parts.mean(axis=1))


def max_errors(x: Wide, y: Wide) -> Wide:
    """(m,) greatest absolute differences of rows (m, d)."""
    return np.asarray(np.abs(x - y).max(axis=1))


def divergences(x: Wide, y: Wide) -> Wide:
    """(m,) Kullback-Leibler divergences of rows of scores (m, classes) from ``x``, in nats."""
    are_shares = bool((x >= 0).all() and (x <= 1).all())
    log_p, log_q = (_log_shares(z) if are_shares else _log_softmax(z) for z in (x, y))
    # rounding may leave −10⁻¹⁷
    found: Wide = np.maximum((np.exp(log_p) * (log_p - log_q)).sum(axis=1), 0.0)
    return found


def _log_softmax(scores: Wide) -> Wide:
    moved = scores - scores.max(axis=1, keepdims=True)
    found: Wide = moved - np.log(np.exp(moved).sum(axis=1, keepdims=True))
    return found


def _log_shares(shares: Wide) -> Wide:
    least = np.maximum(shares, LEAST_PROBABILITY)
    found: Wide = np.log(least / least.sum(axis=1, keepdims=True))
    return found


def _distance(
    name: str, of: Callable[[Wide, Wide], Wide], whole: int, kind: OutputKind | None = None
) -> Callable[..., Counts]:
    """A way to count ``of`` in parts of ``whole`` over the outputs that both runs hold."""

    def count(answers: Answers, _labels: Labels | None, reference: Answers | None) -> Counts:
        assert reference is not None
        ours, theirs = answers.held(name), reference.held(name)
        if ours.values.shape != theirs.values.shape:
            raise ValueError(
                f"{name} compares outputs {ours.values.shape} with {theirs.values.shape} of fp32"
            )
        if kind is not None and theirs.kind is not kind:
            raise ValueError(f"{name} is of scores of classes, and these outputs are other numbers")
        found = of(theirs.values.astype(np.float64), ours.values.astype(np.float64))
        return Counts(
            np.rint(whole * found).astype(np.int64), np.full(len(found), whole, dtype=np.int64)
        )

    return count


SQNR = Metric(
    name="sqnr",
    title="Signal to quantization noise",
    direction=Direction.HIGHER,
    against=Against.REFERENCE,
    count=_distance("sqnr", sqnr_db, _THOUSAND),
    unit="dB",
    proportion=False,
    of_run=True,
)
COSINE = Metric(
    name="cosine",
    title="Cosine to fp32",
    direction=Direction.HIGHER,
    against=Against.REFERENCE,
    count=_distance("cosine", cosines, MILLION),
    unit="",
    proportion=False,
    of_run=True,
)
KL = Metric(
    name="kl",
    title="Divergence from fp32",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_distance("kl", divergences, MILLION, OutputKind.CLASSES),
    unit="nats",
    proportion=False,
    of_run=True,
)
SMAPE = Metric(
    name="smape",
    title="Relative error",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_distance("smape", relative_errors, MILLION),
    proportion=False,
    of_run=True,
)
MAX_ERROR = Metric(
    name="max_error",
    title="Maximum difference",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_distance("max_error", max_errors, MILLION),
    unit="",
    proportion=False,
    of_run=True,
)

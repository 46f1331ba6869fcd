"""The table by which quantized language models are compared, of two token streams: that of
``llama-perplexity --kl-divergence``, with intervals by document.

    p, q: of the reference and of the model; t: a token that came, N of them all together
    ln PPL(q)            Σ −ln q(t) / N;  PPL = exp of it
    ln PPL ratio         ln PPL(q) − ln PPL(p);  PPL ratio = exp of it
    correlation          of ln q(t) and ln p(t): their covariance by the root of their variances
    KLD                  KL(p‖q) of each token; its mean and percentiles
    Δp                   q(t) − p(t) of each token; RMS Δp = √(Σ Δp² / N)
    same top             the share of tokens whose most probable token is the same
    flips                a token is right where none is more probable than the one that came:
                         right → wrong, wrong → right, wrong → another wrong
    same from the start  tokens of a sample in front of the first whose most probable token differs

The ``±`` of a mean x̄ is √((mean of x² − x̄²) / (N − 1)), as if tokens were independent; that of
the ratio is √(s_q² + s_p² − 2 cov), of exp(x) exp(x) times that of x, of RMS Δp that of the mean of
Δp² by 2 RMS. Percentiles are interpolated: of N sorted values the one at place f·(N − 1). All
these are the definitions of llama.cpp (``tools/perplexity/perplexity.cpp``:
``mean_and_uncertainty``, ``covariance``, ``percentile``).

The interval, in contrast, draws whole sources (documents), by the bootstrap; tokens of one document
depend on each other, so that it is the wider one.

The divergence of a token is known within bounds (``token_streams``). Percentiles and means rise
with each value, so that those of the lower bounds are lower bounds, and those of the upper ones
upper bounds. Of samples that are the reference's own greedy text, "same from the start" is the
length at which the model's greedy text departs from it: up to there both continue the same text.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.metrics.clusters import source_numbers
from qbench.metrics.resampling import weighted_interval
from qbench.metrics.scores import LEAST_OF_MEAN
from qbench.metrics.token_streams import (
    ROUNDING,
    Floats,
    TokenStreams,
    kl_bounds,
    require_same_tokens,
)

PERCENTILES = {"kld_999": 0.999, "kld_99": 0.99, "kld_median": 0.5}
"""Of the divergence, by the name of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One line of the table.

    Args:
        name: by which a program finds it. title: what a reader is shown.
        value: of a divergence, the least that it can be.
        most: the greatest that it can be, where it is known within bounds; None: ``value`` is
            exact; ∞: nothing bounds it.
        error: standard error, as if tokens were independent; None: there is none.
        interval: the 5 % and the 95 % point over sources; None: there is none.
        unit: ``"%"`` values are shares.
    """

    name: str
    title: str
    value: float
    most: float | None = None
    error: float | None = None
    interval: tuple[float, float] | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable:
    """All lines, and what they were counted of."""

    tokens: int
    samples: int
    sources: int
    rows: tuple[TokenRow, ...]

    def row(self, name: str) -> TokenRow:
        """The line of that name."""
        return next(one for one in self.rows if one.name == name)


def token_table(
    reference: TokenStreams, model: TokenStreams, sources: Sequence[str] | None = None
) -> TokenTable:
    """The table of ``model`` against ``reference``, of the same tokens.

    Args:
        sources: the document of each sample; None: each has its own.

    Raises:
        ValueError: samples have other numbers of tokens, vocabularies differ, or there is no token.
    """
    require_same_tokens(model, reference, "the table of tokens")
    if not len(model.realised):
        raise ValueError("the table of tokens has nothing to count")
    counted = _Counted.of(reference, model, sources)
    rows = (
        *_perplexities(counted),
        *_divergences(counted),
        *_probabilities(counted),
        *_flips(counted),
        *_first_differences(counted, model.lengths),
    )
    return TokenTable(
        tokens=len(model.realised),
        samples=len(model),
        sources=counted.drawn,
        rows=rows,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Values of every token, (N,) each.

    Args:
        owner: (N,) the sample of each. numbers: (n,) the source of each sample, or None.
        log_p, log_q: of the token that came. low, high: bounds of the divergence.
        same: whether the most probable token is the same. right_p, right_q: whether it came.
    """

    samples: int
    owner: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.intp] | None
    log_p: Floats
    log_q: Floats
    low: Floats
    high: Floats
    same: npt.NDArray[np.bool_]
    right_p: npt.NDArray[np.bool_]
    right_q: npt.NDArray[np.bool_]

    @staticmethod
    def of(p: TokenStreams, q: TokenStreams, sources: Sequence[str] | None) -> "_Counted":
        low, high = kl_bounds(p, q)
        return _Counted(
            samples=len(q),
            owner=np.repeat(np.arange(len(q)), q.lengths),
            numbers=source_numbers(sources, len(q)),
            log_p=p.realised,
            log_q=q.realised,
            low=low,
            high=high,
            same=p.first == q.first,
            right_p=_is_right(p),
            right_q=_is_right(q),
        )

    @property
    def drawn(self) -> int:
        """Sources that there are."""
        return self.samples if self.numbers is None else int(self.numbers.max()) + 1

    @property
    def change(self) -> Floats:
        """(N,) Δp."""
        return np.asarray(np.exp(self.log_q) - np.exp(self.log_p))

    def interval(
        self, values: Sequence[Floats], of_means: Callable[[Floats], Floats]
    ) -> tuple[float, float] | None:
        """Of ``of_means``, which takes the means (b, columns) of ``values`` and gives (b,), over
        drawn sources.

        None where there are too few sources for a mean, or a draw has no token.
        """
        if self.drawn < LEAST_OF_MEAN or not all(np.isfinite(one).all() for one in values):
            return None
        columns = [np.bincount(self.owner, one, self.samples) for one in values]
        sums = np.stack([*columns, np.bincount(self.owner, minlength=self.samples)], axis=1)

        def resampled(weights: Floats) -> Floats:
            totals = weights @ sums
            with np.errstate(divide="ignore", invalid="ignore"):
                return of_means(totals[:, :-1] / totals[:, -1:])

        return weighted_interval(resampled, self.samples, self.numbers)


def _is_right(streams: TokenStreams) -> npt.NDArray[np.bool_]:
    return np.asarray(streams.realised >= streams.logprobs.max(axis=1) - ROUNDING)


def _first(means: Floats) -> Floats:
    return means[:, 0]


def _error(values: Floats) -> float:
    """The standard error of the mean; 0 of few values, as of llama.cpp."""
    return math.sqrt(max(_covariance(values, values), 0.0))


def _covariance(a: Floats, b: Floats) -> float:
    """Of the means of ``a`` and ``b``; 0 of few values."""
    if len(a) <= 10:
        return 0.0
    return float((a * b).mean() - a.mean() * b.mean()) / (len(a) - 1)


def _perplexities(counted: _Counted) -> tuple[TokenRow, ...]:
    """PPL of both, their correlation, and their ratio."""
    of_p, of_q = -counted.log_p, -counted.log_q
    pairs = {"q": ("PPL(B)", of_q), "p": ("PPL(A)", of_p)}
    rows = []
    for name, (title, values) in pairs.items():
        perplexity = _exp(float(values.mean()))
        rows.append(
            TokenRow(
                name=f"ppl_{name}",
                title=title,
                value=perplexity,
                error=perplexity * _error(values),
                interval=_exp_of_both(counted.interval([values], _first)),
            )
        )
    cov, spread = _covariance(of_q, of_p), _error(of_q) * _error(of_p)
    ratio = float(of_q.mean() - of_p.mean())
    error = math.sqrt(max(_error(of_q) ** 2 + _error(of_p) ** 2 - 2 * cov, 0.0))
    interval = counted.interval([of_q - of_p], _first)
    correlation = TokenRow(
        name="correlation",
        title="Cor(ln p)",
        value=cov / spread if spread else math.nan,
        interval=counted.interval([of_q, of_p, of_q**2, of_p**2, of_q * of_p], _correlation),
        unit="%",
    )
    return (
        *rows,
        correlation,
        TokenRow(
            name="ln_ratio",
            title="mean ln(PPL(B)/PPL(A))",
            value=ratio,
            error=error,
            interval=interval,
        ),
        TokenRow(
            name="ratio",
            title="PPL(B)/PPL(A)",
            value=_exp(ratio),
            error=_exp(ratio) * error,
            interval=_exp_of_both(interval),
        ),
    )


def _exp(power: float) -> float:
    """∞ where it exceeds the largest float: a broken model gives every token almost nothing."""
    with np.errstate(over="ignore"):
        return float(np.exp(power))


def _exp_of_both(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if ends is None else (_exp(ends[0]), _exp(ends[1]))


def _correlation(means: Floats) -> Floats:
    """Of the means (b, 5) of a, b, a², b² and ab: (b,)."""
    a, b, aa, bb, ab = means.T
    return np.asarray((ab - a * b) / np.sqrt((aa - a * a) * (bb - b * b)))


def _divergences(counted: _Counted) -> tuple[TokenRow, ...]:
    """The mean, the greatest and some percentiles."""
    low, high = counted.low, counted.high
    is_exact = low is high or bool((low == high).all())

    def row(name: str, title: str, of: Callable[[Floats], float]) -> TokenRow:
        return TokenRow(name=name, title=title, value=of(low), most=None if is_exact else of(high))

    titles: Mapping[str, str]
    titles = {"kld_999": "99.9 % KLD", "kld_99": "99 % KLD", "kld_median": "median KLD"}
    mean = TokenRow(
        name="kld_mean",
        title="mean KLD",
        value=float(low.mean()),
        most=None if is_exact else float(high.mean()),
        error=_error(low),
        interval=counted.interval([low], _first),
    )
    return (
        mean,
        row("kld_max", "maximum KLD", lambda values: float(values.max())),
        *(row(name, titles[name], _percentile(share)) for name, share in PERCENTILES.items()),
    )


def _percentile(share: float) -> Callable[[Floats], float]:
    def of(values: Floats) -> float:
        place = share * (len(values) - 1)
        low = math.floor(place)
        first, second = np.sort(values)[[low, min(low + 1, len(values) - 1)]].tolist()
        # not first + …: ∞ − ∞ would be NaN
        return float(first if place == low else (1 - place + low) * first + (place - low) * second)

    return of


def _probabilities(counted: _Counted) -> tuple[TokenRow, ...]:
    """Δp, and the share of equal first choices."""
    change = counted.change
    rms = math.sqrt(float((change**2).mean()))
    same = counted.same.astype(np.float64)
    share = float(same.mean())
    return (
        TokenRow(
            name="delta_mean",
            title="mean Δp",
            value=float(change.mean()),
            error=_error(change),
            interval=counted.interval([change], _first),
            unit="%",
        ),
        TokenRow(
            name="delta_rms",
            title="RMS Δp",
            value=rms,
            error=_error(change**2) / (2 * rms) if rms else 0.0,
            interval=counted.interval([change**2], lambda means: np.sqrt(means[:, 0])),
            unit="%",
        ),
        TokenRow(
            name="same_top",
            title="same top",
            value=share,
            error=math.sqrt(share * (1 - share) / max(len(same) - 1, 1)),
            interval=counted.interval([same], _first),
            unit="%",
        ),
    )


def _flips(counted: _Counted) -> tuple[TokenRow, ...]:
    """First choices that changed, by whether they were right."""
    before, after, same = counted.right_p, counted.right_q, counted.same
    kinds = {
        "lost": ("right → wrong", before & ~after),
        "gained": ("wrong → right", ~before & after),
        "moved": ("wrong → another wrong", ~before & ~after & ~same),
    }
    return tuple(
        TokenRow(
            name=f"flips_{name}",
            title=title,
            value=float(flipped.mean()),
            interval=counted.interval([flipped.astype(np.float64)], _first),
            unit="%",
        )
        for name, (title, flipped) in kinds.items()
    )


def _first_differences(counted: _Counted, lengths: npt.NDArray[np.int64]) -> tuple[TokenRow, ...]:
    """How many tokens of a sample are in front of the first that differs."""
    ends = np.cumsum(lengths)
    runs = np.array(
        [
            np.append(counted.same[end - length : end], False).argmin()
            for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
        ],
        np.float64,
    )
    return (
        TokenRow(
            name="from_start_mean", title="same top from the start, mean", value=float(runs.mean())
        ),
        TokenRow(
            name="from_start_median",
            title="same top from the start, median",
            value=float(np.median(runs)),
        ),
        TokenRow(
            name="never_differs",
            title="samples without another top",
            value=float((runs == lengths).mean()),
            unit="%",
        ),
    )

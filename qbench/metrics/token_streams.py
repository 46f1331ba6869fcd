"""Tokens of language models with the log-probabilities of the k best: divergence, first
choices, perplexity.

Only the k most probable tokens of P (the reference) and of Q are stored, so KL(P‖Q) is known only
within bounds. Let A be the tokens listed in both, U those listed in P alone, W those in Q
alone, T the others; r_p and r_q the mass that is not listed, and c_p, c_q the least listed
probability, which no token outside exceeds.

Lower bound. KL is convex, and is to be minimized over the unknown q of U, p of W, and both of T:

    min  Σ_A p ln(p/q) + Σ_U p ln(p/q) + Σ_W p ln(p/q) + Σ_T p ln(p/q)
    with Σ_U q + q_T = r_q,  Σ_W p + p_T = r_p,  q ≤ c_q in U,  p ≤ c_p in W

By the log-sum inequality T counts as one token (Cover and Thomas, Elements of Information Theory,
theorem 2.7.1). With multipliers α and −(1 + ln α) of the two sums the Lagrangian has its minimum at
q = min(c_q, p/α), p = min(c_p, αq) and 0 in T. By weak duality its value is a lower bound for every
α > 0 (Boyd and Vandenberghe, Convex Optimization, 5.1.3):

    D(α) = Σ_A p ln(p/q) + Σ_U (p ln(p/q) + αq) + Σ_W (p ln(p/q) − (1 + ln α) p)
           − α r_q + (1 + ln α) r_p

dD/dα = (p_T − α q_T)/α falls where q_T > 0, so α is found by bisection; an α that is not the best
one gives a bound that is lower, never one that is wrong. Where T has tokens and none of them meets
its cap, the bound is reached.

Upper bound. Outside the listed tokens q can be arbitrarily small, so an upper bound needs a floor
f ≤ q of the whole vocabulary: one more number per sample. With it ln(p/q) ≤ ln(c_p/f) outside P's
list:

    KL ≤ Σ_A p ln(p/q) + Σ_U p ln(p/f) + r_p ln(c_p/f)

Where both list the whole vocabulary, nothing is outside, and both bounds are Σ_A p ln(p/q).

Of a window of running text only the second half is scored, so that every token has half a window in
front of it: of L tokens, those behind the first L/2 + 1 (rounded down), as ``llama-perplexity`` of
llama.cpp counts them (``tools/perplexity/perplexity.cpp``: ``first = n_ctx / 2``).

Log-probabilities are rounded when they are written: each mass outside is widened by 10⁻⁶ in the
direction that keeps the bounds bounds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from qbench.metrics.answer_files import TokenRecord
from qbench.metrics.answers import MILLION, AnswerKind, Answers, integer_answers
from qbench.metrics.metric import Counts, Metric
from qbench.metrics.resampling import change_interval
from qbench.metrics.scores import Against, Direction

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

ABSENT = -1
"""Fills rows of fewer than k tokens; its log-probability is −∞."""
ROUNDING = 1e-6
"""By how much the probabilities of one list may add up to more than 1 or less."""
_MOST = 1e-3
_LAST = 2**31 - 1
"""The highest id of a token."""
_STEPS = 48
_REACH = 60.0
"""ln α lies between −60 and 60."""
_BLOCK = 1 << 22
"""Pairs of listed tokens that are compared at once."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenStreams(Answers):
    """The tokens of n samples, N of them all together.

    Args:
        lengths: (n,) int64, tokens of each sample; their sum is N.
        realised: (N,) the log-probability of the token that came.
        top: (N, k) int64, the k most probable tokens; ``ABSENT`` where fewer are listed.
        logprobs: (N, k) of these.
        floor: (N,) no token of the vocabulary has a lower log-probability; −∞: not known.
        vocabulary: how many tokens there are; 0: not known.
    """

    lengths: Ids
    realised: Floats
    top: Ids
    logprobs: Floats
    floor: Floats
    vocabulary: int = 0

    def __post_init__(self) -> None:
        tokens = int(self.lengths.sum())
        shapes = {len(self.realised), len(self.top), len(self.logprobs), len(self.floor)}
        if shapes != {tokens} or self.top.shape != self.logprobs.shape:
            raise ValueError(f"streams of {tokens} tokens with arrays of {sorted(shapes)} rows")
        mass = np.exp(self.logprobs).sum(axis=1)
        if tokens and mass.max() > 1 + _MOST:
            raise ValueError(f"probabilities of one token that add up to {mass.max():.4g}")
        if tokens and not (self.realised <= ROUNDING).all():
            raise ValueError("a log-probability above 0 or NaN")
        if self.vocabulary and tokens and self.top.max() >= self.vocabulary:
            raise ValueError(
                f"the token {self.top.max()} of a vocabulary of {self.vocabulary} tokens"
            )

    @property
    def form(self) -> str:
        """Token streams."""
        return "token streams"

    def __len__(self) -> int:
        return len(self.lengths)

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """One row for each sample, padded at the end."""
        inside = np.arange(int(self.lengths.max(initial=0))) < self.lengths[:, None]

        def padded(flat: npt.NDArray[Any], filler: float) -> npt.NDArray[Any]:
            table = np.full((*inside.shape, *flat.shape[1:]), filler, flat.dtype)
            table[inside] = flat
            return table

        found = {"realised": self.realised, "logprobs": self.logprobs, "floor": self.floor}
        named = {name: padded(_shortest(flat), -np.inf) for name, flat in found.items()}
        words = np.full(len(self), self.vocabulary, np.int64)
        return {
            "lengths": self.lengths,
            "top": padded(self.top.astype(np.int32), ABSENT),
            "vocabulary": words,
            **named,
        }

    @property
    def is_whole(self) -> bool:
        """Whether every token lists the whole vocabulary."""
        return (
            self.vocabulary > 0
            and self.top.shape[1] == self.vocabulary
            and bool((self.top != ABSENT).all())
        )

    @property
    def first(self) -> Ids:
        """(N,) the most probable token; of equal ones the lowest."""
        best = self.logprobs == self.logprobs.max(axis=1, keepdims=True)
        return np.asarray(np.where(best, self.top, np.iinfo(np.int64).max).min(axis=1))

    def sums(self, values: Floats) -> Ids:
        """(n,) of ``values`` (N,), the sum of every sample in millionths."""
        owner = np.repeat(np.arange(len(self)), self.lengths)
        return np.asarray(np.rint(MILLION * np.bincount(owner, values, len(self))), np.int64)


def _shortest(values: Floats) -> npt.NDArray[Any]:
    """As float32, where that loses nothing."""
    short = values.astype(np.float32)
    return short if np.array_equal(short, values) else values


def stored_streams(arrays: Mapping[str, npt.NDArray[Any]]) -> TokenStreams:
    """The streams whose ``arrays()`` these are.

    Raises:
        ValueError: they are not those of streams.
    """
    expected = {"lengths", "realised", "top", "logprobs", "floor", "vocabulary"}
    if set(arrays) != expected:
        raise ValueError(f"the arrays {sorted(arrays)}, and streams have {sorted(expected)}")
    lengths = arrays["lengths"].astype(np.int64)
    inside = np.arange(arrays["realised"].shape[1]) < lengths[:, None]
    top = arrays["top"][inside].astype(np.int64)
    flat = [arrays[name][inside].astype(np.float64) for name in ("realised", "logprobs", "floor")]
    words = {*arrays["vocabulary"].tolist()}
    if len(words) > 1:
        raise ValueError(f"vocabularies of {sorted(words)} tokens in one stream")
    return TokenStreams(lengths, flat[0], top, flat[1], flat[2], int(max(words, default=0)))


def window_context(length: int) -> int:
    """How many of the ``length`` tokens of a window are not scored: the first, which nothing
    predicts, and those up to its half.
    """
    return length // 2 + 1


def _scored(one: TokenRecord) -> TokenRecord:
    """``one`` without the tokens that are context alone."""
    if not one.window:
        return one
    # the first token of the window is not in the lists
    first = window_context(len(one.realised) + 1) - 1
    return msgspec.structs.replace(
        one,
        realised=one.realised[first:],
        top=one.top[first:],
        logprobs=one.logprobs[first:],
    )


def streams_of(records: Sequence[TokenRecord]) -> TokenStreams:
    """The tokens of ``records`` that are scored, one record for each sample.

    Raises:
        ValueError: lists of one token or of one sample differ in length, probabilities are none,
            or records have different vocabularies.
    """
    for one in records:
        if not len(one.realised) == len(one.top) == len(one.logprobs):
            raise ValueError(
                f"{len(one.realised)} tokens with {len(one.top)} and {len(one.logprobs)} lists"
            )
    words = {one.vocabulary or 0 for one in records}
    if len(words) > 1:
        raise ValueError(f"samples with vocabularies of {sorted(words)} tokens")
    records = [_scored(one) for one in records]
    widest = max((len(row) for one in records for row in one.top), default=0)
    lengths = np.array([len(one.realised) for one in records], np.int64)
    tokens = int(lengths.sum())
    top = np.full((tokens, max(1, widest)), ABSENT, np.int64)
    logprobs = np.full(top.shape, -np.inf)
    place = 0
    for one in records:
        for ids, logs in zip(one.top, one.logprobs, strict=True):
            if (
                len(ids) != len(logs)
                or not ids
                or len(set(ids)) != len(ids)
                or min(ids) < 0
                or max(ids) > _LAST
            ):
                raise ValueError(
                    f"{len(ids)} tokens with {len(logs)} log-probabilities, twice one token, or no "
                    "token id"
                )
            top[place, : len(ids)], logprobs[place, : len(ids)] = ids, logs
            place += 1
    floors = np.array([-np.inf if one.floor is None else one.floor for one in records])
    realised = np.array([value for one in records for value in one.realised], np.float64)
    return TokenStreams(
        lengths, realised, top, logprobs, np.repeat(floors, lengths), max(words, default=0)
    )


def kl_bounds(p: TokenStreams, q: TokenStreams) -> tuple[Floats, Floats]:
    """(N,) each: the least and the greatest Kullback-Leibler divergence of ``q`` from ``p`` in
    nats, token by token.

    The greatest is ∞ where ``q`` has no floor and something lies outside the lists.
    """
    if p.is_whole and q.is_whole:
        exact = _whole_divergence(p, q)
        return exact, exact
    low, high = np.empty(len(p.realised)), np.empty(len(p.realised))
    block = max(1, _BLOCK // max(1, p.top.shape[1] * q.top.shape[1]))
    for start in range(0, len(low), block):
        rows = slice(start, start + block)
        low[rows], high[rows] = _bounds(
            (p.top[rows], p.logprobs[rows]), (q.top[rows], q.logprobs[rows]), np.exp(q.floor[rows])
        )
    return low, high


def _whole_divergence(p: TokenStreams, q: TokenStreams) -> Floats:
    """(N,) of lists of the whole vocabulary."""
    of_p, of_q = (
        np.take_along_axis(one.logprobs, np.argsort(one.top, axis=1), axis=1) for one in (p, q)
    )
    with np.errstate(invalid="ignore"):
        terms = np.where(of_p > -np.inf, np.exp(of_p) * (of_p - of_q), 0.0)
    return np.asarray(np.maximum(terms.sum(axis=1), 0.0))


def _bounds(
    first: tuple[Ids, Floats], second: tuple[Ids, Floats], floor: Floats
) -> tuple[Floats, Floats]:
    (p_ids, p_logs), (q_ids, q_logs) = first, second
    p, q = np.exp(p_logs), np.exp(q_logs)
    same = (p_ids[:, :, None] == q_ids[:, None, :]) & (p_ids[:, :, None] != ABSENT)
    q_of_p = np.where(same, q_logs[:, None, :], 0.0).sum(axis=2)
    both, p_alone = same.any(axis=2), ~same.any(axis=2) & (p_ids != ABSENT)
    q_alone = ~same.any(axis=1) & (q_ids != ABSENT)
    with np.errstate(invalid="ignore"):
        known = np.where(both & (p > 0), p * (p_logs - q_of_p), 0.0).sum(axis=1)
    u, w = np.where(p_alone, p, 0.0), np.where(q_alone, q, 0.0)
    outside_p, cap_p = _outside(p_ids, p)
    outside_q, cap_q = _outside(q_ids, q)
    low = known + _least(u, w, (outside_p, cap_p), (outside_q + ROUNDING, cap_q))
    return np.maximum(low, 0.0), known + _greatest(u, (outside_p, cap_p), floor)


def _outside(ids: Ids, shares: Floats) -> tuple[Floats, Floats]:
    """(N,) each: the mass that is not listed, and the most that one token of it can have."""
    mass = np.maximum(1.0 - shares.sum(axis=1), 0.0)
    least = np.where(ids == ABSENT, 1.0, shares).min(axis=1, initial=1.0)
    return mass, np.minimum(least, mass + ROUNDING)


def _least(
    u: Floats, w: Floats, of_p: tuple[Floats, Floats], of_q: tuple[Floats, Floats]
) -> Floats:
    """Max D(α) − Σ_A: the least that U, W and T can add."""
    (mass_p, cap_p), (mass_q, cap_q) = of_p, of_q
    low, high = np.full(len(u), -_REACH), np.full(len(u), _REACH)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        alpha = np.exp(middle)[:, None]
        tail_p = mass_p - np.minimum(cap_p[:, None], alpha * w).sum(axis=1)
        tail_q = mass_q - np.minimum(cap_q[:, None], u / alpha).sum(axis=1)
        rises = tail_p > alpha[:, 0] * tail_q
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    alpha, weight = np.exp(low)[:, None], 1 + low
    q_of_u, p_of_w = np.minimum(cap_q[:, None], u / alpha), np.minimum(cap_p[:, None], alpha * w)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_u = np.where(u > 0, u * np.log(u / q_of_u) + alpha * q_of_u, 0.0).sum(axis=1)
        of_w = np.where(w > 0, p_of_w * np.log(p_of_w / w) - weight[:, None] * p_of_w, 0.0).sum(
            axis=1
        )
    mass_p = np.maximum(mass_p - ROUNDING * np.sign(weight), 0.0)
    return np.asarray(of_u + np.nan_to_num(of_w) - alpha[:, 0] * mass_q + weight * mass_p)


def _greatest(u: Floats, of_p: tuple[Floats, Floats], floor: Floats) -> Floats:
    """The most that U, W and T can add."""
    mass, cap = of_p
    with np.errstate(divide="ignore", invalid="ignore"):
        of_u = np.where(u > 0, u * np.log(u / floor[:, None]), 0.0).sum(axis=1)
        ratio = np.log(cap / floor)
        rest = np.where(
            (mass <= ROUNDING) & (floor == 0), 0.0, (mass + ROUNDING * (ratio > 0)) * ratio
        )
    return np.asarray(of_u + rest)


def _streams(answers: Answers, metric: str) -> TokenStreams:
    if isinstance(answers, TokenStreams):
        return answers
    raise ValueError(f"{metric} compares token streams, and these answers are {answers.form}")


def _pair(
    answers: Answers, reference: Answers | None, metric: str
) -> tuple[TokenStreams, TokenStreams]:
    assert reference is not None
    ours, theirs = _streams(answers, metric), _streams(reference, metric)
    require_same_tokens(ours, theirs, metric)
    return ours, theirs


def require_same_tokens(ours: TokenStreams, theirs: TokenStreams, metric: str) -> None:
    """Refuse two streams that are not about the same tokens.

    Raises:
        ValueError: samples with other numbers of tokens, or vocabularies of other sizes.
    """
    if ours.vocabulary != theirs.vocabulary and ours.vocabulary and theirs.vocabulary:
        raise ValueError(
            f"{metric} compares probabilities of the same tokens, and one model chooses from "
            f"{theirs.vocabulary} tokens, the other from {ours.vocabulary}"
        )
    if len(ours.lengths) != len(theirs.lengths):
        raise ValueError(f"{metric} compares the same samples, and one file has more of them")
    others = np.flatnonzero(ours.lengths != theirs.lengths)
    if len(others):
        first = int(others[0])
        raise ValueError(
            f"{metric} compares the same tokens, and of sample {first + 1} one file has "
            f"{theirs.lengths[first]} that are scored, the other {ours.lengths[first]}"
            + _window_words(ours.lengths, theirs.lengths)
        )


def _window_words(ours: npt.NDArray[np.int64], theirs: npt.NDArray[np.int64]) -> str:
    """What explains the lengths of two streams, where the samples of one alone are windows."""
    for part, whole in ((ours, theirs), (theirs, ours)):
        if np.array_equal(part, whole // 2):  # what window_context leaves of whole + 1 tokens
            return ", as where 'window' is written in one of them alone"
    return ""


def _count_least(answers: Answers, _labels: object, reference: Answers | None) -> Counts:
    ours, theirs = _pair(answers, reference, "token_kl")
    return Counts(ours.sums(kl_bounds(theirs, ours)[0]), MILLION * ours.lengths)


def _same_streams(ours: TokenStreams, theirs: TokenStreams) -> bool:
    """Whether all numbers of both are equal. The listed probabilities are divided by the sum over
    the whole vocabulary, so that equal ones are taken for equal distributions.
    """
    pairs = (
        (getattr(ours, name), getattr(theirs, name))
        for name in ("lengths", "realised", "top", "logprobs", "floor")
    )
    return ours.vocabulary == theirs.vocabulary and all(np.array_equal(a, b) for a, b in pairs)


def _count_greatest(answers: Answers, _labels: object, reference: Answers | None) -> Counts:
    ours, theirs = _pair(answers, reference, "token_kl_most")
    if _same_streams(ours, theirs):
        return Counts(np.zeros(len(ours), np.int64), MILLION * ours.lengths)
    most = kl_bounds(theirs, ours)[1]
    if not np.isfinite(most).all():
        raise ValueError(
            "token_kl_most has no bound: tokens lie outside the lists, and no 'floor' is recorded"
        )
    return Counts(ours.sums(most), MILLION * ours.lengths)


def _count_first(answers: Answers, _labels: object, reference: Answers | None) -> Counts:
    ours, theirs = _pair(answers, reference, "token_top1")
    return Counts(
        ours.sums((ours.first == theirs.first).astype(np.float64)) // MILLION, ours.lengths
    )


def _count_surprise(answers: Answers, _labels: object, _reference: Answers | None) -> Counts:
    streams = _streams(answers, "token_perplexity")
    return Counts(streams.sums(-streams.realised), MILLION * streams.lengths)


def _count_same_start(answers: Answers, _labels: object, reference: Answers | None) -> Counts:
    assert reference is not None
    ours, theirs = (
        integer_answers(one, "same_start compares sequences", AnswerKind.SEQUENCE)
        for one in (answers, reference)
    )
    hits, out_of = [], []
    for index in range(len(ours)):
        text, other = ours.sequence(index), theirs.sequence(index)
        pairs = zip(text, other, strict=False)
        differs = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
        hits.append(min(len(text), len(other)) if differs is None else differs)
        out_of.append(len(other))
    return Counts(np.array(hits, np.int64), np.array(out_of, np.int64))


def _interval(
    count: Callable[[Answers, object, Answers | None], Counts], reference_hits: int
) -> Callable[[Answers, object, Answers, npt.NDArray[np.intp] | None], tuple[float, float] | None]:
    """The paired bootstrap of ``count`` over samples, against ``reference_hits`` per unit for
    the reference itself.
    """

    def resampled(
        answers: Answers, labels: object, reference: Answers, sources: npt.NDArray[np.intp] | None
    ) -> tuple[float, float] | None:
        found = count(answers, labels, reference)
        before = reference_hits * found.out_of
        return change_interval(
            np.stack([found.hits, found.out_of, before, found.out_of], axis=1), sources
        )

    return resampled


TOKEN_KL = Metric(
    name="token_kl",
    title="Divergence of a token from the reference, at least",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_count_least,
    unit="nats",
    proportion=False,
    resampled=_interval(_count_least, 0),
)
TOKEN_KL_MOST = Metric(
    name="token_kl_most",
    title="Divergence of a token from the reference, at most",
    direction=Direction.LOWER,
    against=Against.REFERENCE,
    count=_count_greatest,
    unit="nats",
    proportion=False,
    resampled=_interval(_count_greatest, 0),
)
TOKEN_TOP1 = Metric(
    name="token_top1",
    title="Tokens whose first choice is the reference's",
    direction=Direction.HIGHER,
    against=Against.REFERENCE,
    count=_count_first,
    proportion=False,
    resampled=_interval(_count_first, 1),
)
TOKEN_PERPLEXITY = Metric(
    name="token_perplexity",
    title="Logarithm of perplexity",
    direction=Direction.LOWER,
    against=Against.LABELS,
    count=_count_surprise,
    unit="nats",
    least_margin=0.005,
    proportion=False,
    of_text=True,
)
SAME_START = Metric(
    name="same_start",
    title="Tokens of a text in front of the first that is not the reference's",
    direction=Direction.HIGHER,
    against=Against.REFERENCE,
    count=_count_same_start,
    proportion=False,
    resampled=_interval(_count_same_start, 1),
)

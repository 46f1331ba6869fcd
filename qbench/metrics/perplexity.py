"""Perplexity, as its logarithm: the mean surprise of a right token, in nats.

    ln perplexity = Σ −ln p(tokenⱼ | right ones before it) / #tokens      hits_i in millionths, out of 10⁶ · tokens_i

The logarithm is a ratio of sums, so it is counted exactly and resampled like every other; perplexity itself is exp of
it. The least margin, half a hundredth of a nat, is half a percent of perplexity; the default share of a logarithm near
0 would be next to nothing. Source: Jelinek, Mercer, Bahl and Baker, "Perplexity: a measure of the difficulty of speech
recognition tasks" (1977).
"""

from qbench.metrics.answers import MILLION, Answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction


def _count_surprise(answers: Answers, _labels: Labels | None, _reference: Answers | None) -> Counts:
    found = answers.likelihoods
    if found is None:
        raise ValueError("perplexity counts likelihoods of labels, and these answers have none")
    return Counts(found.surprise, MILLION * found.tokens)


PERPLEXITY = Metric(
    name="perplexity",
    title="Log perplexity",
    direction=Direction.LOWER,
    against=Against.LABELS,
    count=_count_surprise,
    unit="nats",
    least_margin=0.005,
    proportion=False,
    of_run=True,
    of_likelihoods=True,
)

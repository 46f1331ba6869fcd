"""The table of two token streams, against a scalar count by llama.cpp's definitions."""

import json
import math

import msgspec
import numpy as np
import pytest

from qbench.cli.token_lines import plain_table
from qbench.metrics import TokenRecord, streams_of, token_table
from qbench.metrics.token_streams import TokenStreams, stored_streams, window_context

WORDS, TOKENS, LENGTH = 40, 1_000, 50


def log_shares(logits):
    wide = logits - logits.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def models():
    """(1000, 40) log-probabilities of two models, and the tokens that came."""
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 2, (TOKENS, WORDS))
    p, q = log_shares(logits), log_shares(logits + rng.normal(0, 0.6, logits.shape))
    came = np.array([rng.choice(WORDS, p=np.exp(row)) for row in p])
    return p, q, came


def records(logs, came, k=WORDS, **keys):
    order = np.argsort(-logs, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(logs, order, axis=1)
    realised = logs[np.arange(len(came)), came]
    return [
        TokenRecord(
            realised=realised[part].tolist(),
            top=order[part].tolist(),
            logprobs=best[part].tolist(),
            **keys,
        )
        for part in (slice(i, i + LENGTH) for i in range(0, len(came), LENGTH))
    ]


def llama_statistics(p, q, came):
    """What ``llama-perplexity --kl-divergence`` prints, token by token in Python's floats."""
    n = len(came)
    nll_q = [-float(row[t]) for row, t in zip(q, came, strict=True)]
    nll_p = [-float(row[t]) for row, t in zip(p, came, strict=True)]
    kld = [
        math.fsum(math.exp(a) * (a - b) for a, b in zip(of_p, of_q, strict=True))
        for of_p, of_q in zip(p.tolist(), q.tolist(), strict=True)
    ]
    delta = [math.exp(-a) - math.exp(-b) for a, b in zip(nll_q, nll_p, strict=True)]

    def mean(values):
        return math.fsum(values) / len(values)

    def error(values):
        spread = mean([v * v for v in values]) - mean(values) ** 2
        return math.sqrt(spread / (len(values) - 1))

    def percentile(values, share):
        ordered = sorted(values)
        place = share * (len(ordered) - 1)
        low = int(place)
        rest = place - low
        return (1 - rest) * ordered[low] + rest * ordered[min(low + 1, len(ordered) - 1)]

    pairs = [a * b for a, b in zip(nll_q, nll_p, strict=True)]
    cov = (mean(pairs) - mean(nll_q) * mean(nll_p)) / (n - 1)
    ln_ratio = mean(nll_q) - mean(nll_p)
    ln_error = math.sqrt(error(nll_q) ** 2 + error(nll_p) ** 2 - 2 * cov)
    rms = math.sqrt(mean([d * d for d in delta]))
    firsts = [(int(a.argmax()), int(b.argmax())) for a, b in zip(p, q, strict=True)]
    same = [a == b for a, b in firsts]
    share = mean(same)
    right = [(a == t, b == t) for (a, b), t in zip(firsts, came.tolist(), strict=True)]
    return {
        "ppl_q": (math.exp(mean(nll_q)), math.exp(mean(nll_q)) * error(nll_q)),
        "ppl_p": (math.exp(mean(nll_p)), math.exp(mean(nll_p)) * error(nll_p)),
        "correlation": (cov / (error(nll_q) * error(nll_p)), None),
        "ln_ratio": (ln_ratio, ln_error),
        "ratio": (math.exp(ln_ratio), math.exp(ln_ratio) * ln_error),
        "kld_mean": (mean(kld), error(kld)),
        "kld_max": (max(kld), None),
        "kld_999": (percentile(kld, 0.999), None),
        "kld_99": (percentile(kld, 0.99), None),
        "kld_median": (percentile(kld, 0.5), None),
        "delta_mean": (mean(delta), error(delta)),
        "delta_rms": (rms, error([d * d for d in delta]) / (2 * rms)),
        "same_top": (share, math.sqrt(share * (1 - share) / (n - 1))),
        "flips_lost": (mean([a and not b for a, b in right]), None),
        "flips_gained": (mean([b and not a for a, b in right]), None),
        "flips_moved": (
            mean([not (a or b or s) for (a, b), s in zip(right, same, strict=True)]),
            None,
        ),
    }


@pytest.mark.parametrize("worst", [-900.0, -705.0])
def test_a_model_that_gives_the_text_nothing_is_unbounded_and_no_error(worst):
    p, _, came = models()
    broken = np.full_like(p, worst)
    broken[:, 0] = 0.0
    came = np.maximum(came, 1)
    came[::7] = 0
    ours, theirs = (streams_of(records(one, came, vocabulary=WORDS)) for one in (broken, p))
    row = token_table(theirs, ours).row("ppl_q")
    with np.errstate(over="ignore"):
        expected = np.exp(-worst * (came > 0).mean())
    assert row.value == (pytest.approx(expected, rel=1e-6) if worst > -900 else math.inf)
    facts = plain_table(token_table(theirs, ours))
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


def test_a_thousand_tokens_are_counted_as_llama_cpp_does():
    p, q, came = models()
    ours, theirs = (streams_of(records(one, came, vocabulary=WORDS)) for one in (q, p))
    table = token_table(theirs, ours)
    expected = llama_statistics(p, q, came)
    assert table.tokens == TOKENS
    for name, (value, error) in expected.items():
        row = table.row(name)
        assert row.value == pytest.approx(value, abs=1e-6, rel=1e-6), name
        assert row.most is None
        if error is not None:
            assert row.error == pytest.approx(error, abs=1e-6, rel=1e-6), name


def test_what_is_not_stored_lies_between_two_numbers():
    p, q, came = models()
    whole = token_table(*(streams_of(records(one, came, vocabulary=WORDS)) for one in (p, q)))
    floor = float(q.min()) - 1e-9
    part = token_table(*(streams_of(records(one, came, 10, floor=floor)) for one in (p, q)))
    for name in ("kld_mean", "kld_max", "kld_999", "kld_99", "kld_median"):
        row, exact = part.row(name), whole.row(name).value
        assert row.value <= exact <= row.most
    for name in ("same_top", "delta_rms", "flips_lost", "correlation"):
        assert part.row(name) == whole.row(name)
    open_ended = token_table(*(streams_of(records(one, came, 10)) for one in (p, q)))
    assert open_ended.row("kld_max").most == math.inf


def test_intervals_draw_documents():
    p, q, came = models()
    both = [streams_of(records(one, came, vocabulary=WORDS)) for one in (p, q)]
    documents = [f"d{sample // 4}" for sample in range(TOKENS // LENGTH)]
    alone, together = token_table(*both), token_table(*both, documents)
    assert (alone.sources, together.sources) == (20, 5)
    for row in alone.rows[:-3]:
        if row.interval is not None:
            assert row.interval[0] <= row.value <= row.interval[1]
            assert together.row(row.name).interval != row.interval
    for few in (1, 4):
        table = token_table(*both, [f"d{sample % few}" for sample in range(len(documents))])
        assert all(row.interval is None for row in table.rows)


def test_flips_and_equal_starts_by_hand():
    def stream(firsts, came):
        shares = [
            [math.log(0.9 if token == first else 0.05) for token in range(3)] for first in firsts
        ]
        return TokenStreams(
            lengths=np.array([4, 3], np.int64),
            realised=np.array([row[t] for row, t in zip(shares, came, strict=True)]),
            top=np.tile(np.arange(3), (7, 1)),
            logprobs=np.array(shares),
            floor=np.full(7, math.log(0.05)),
            vocabulary=3,
        )

    came = [0, 0, 0, 0, 1, 1, 1]
    before = stream([0, 0, 1, 1, 1, 2, 1], came)
    after = stream([0, 2, 0, 2, 1, 2, 1], came)
    table = token_table(before, after)
    values = {row.name: row.value for row in table.rows}
    assert [7 * values[f"flips_{one}"] for one in ("lost", "gained", "moved")] == [1, 1, 1]
    assert values["from_start_mean"] == 2
    assert values["never_differs"] == 0.5
    assert values["same_top"] == pytest.approx(4 / 7)


@pytest.mark.parametrize("length", [2, 3, 8, 9, 256])
def test_of_a_window_the_second_half_is_scored(length):
    """As ``first = n_ctx / 2`` and ``n_ctx - 1 - first`` tokens from there on."""
    tokens = range(length - 1)  # of all but the first, which nothing predicts
    one = TokenRecord(
        realised=[-float(t) for t in tokens],
        top=[[t] for t in tokens],
        logprobs=[[-1.0] for _ in tokens],
        window=True,
    )
    found = streams_of([one])
    first = length // 2
    assert found.lengths.tolist() == [length - 1 - first]
    assert found.top[:, 0].tolist() == [t for t in tokens if t + 1 > first]
    assert window_context(length) == length - len(found.top)


def test_stored_streams_are_the_same():
    p, _, came = models()
    streams = streams_of(records(p, came, 7, vocabulary=WORDS, floor=-30.0))
    again = stored_streams(streams.arrays())
    for name in ("lengths", "realised", "top", "logprobs", "floor", "vocabulary"):
        np.testing.assert_array_equal(getattr(again, name), getattr(streams, name))


def test_other_vocabularies_and_other_tokens_are_refused():
    p, q, came = models()
    theirs = streams_of(records(p, came, vocabulary=WORDS))
    wider = np.concatenate([q, np.full((TOKENS, 1), -np.inf)], axis=1)
    with pytest.raises(ValueError, match="40 tokens, the other from 41"):
        token_table(theirs, streams_of(records(wider, came, vocabulary=WORDS + 1)))
    with pytest.raises(ValueError, match=r"that are scored, the other \d+$"):
        token_table(theirs, streams_of(records(q[:-1], came[:-1], vocabulary=WORDS)))
    windows = [
        msgspec.structs.replace(one, window=True) for one in records(q, came, vocabulary=WORDS)
    ]
    with pytest.raises(ValueError, match="as where 'window'"):
        token_table(streams_of(windows), theirs)
    with pytest.raises(ValueError, match="vocabularies"):
        streams_of([*records(p, came, vocabulary=WORDS), *records(p, came)])
    with pytest.raises(ValueError, match="vocabulary of 9"):
        streams_of(records(p, came, vocabulary=9))

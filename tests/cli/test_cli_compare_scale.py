"""``qbench compare`` of values that are no shares: what a small sample proves, whichever unit the
values are in.
"""

import json

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from qbench.cli.compare_answers import Log, compare_logs
from qbench.errors import InputError
from qbench.judging import Evidence
from qbench.metrics import LEAST_OF_MEAN


def log_of(path, values, *, lower=False, sources=None):
    header = {"format": "qbench-answers/1"} | ({"lower": ["m"]} if lower else {})
    records = [{"id": i, "metrics": {"m": value}} for i, value in enumerate(values)]
    for record, source in zip(records, sources or (), strict=False):
        record["source"] = source
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *records)))
    return Log.read(path)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")

    def compared(before, after, margin, **more):
        logs = [
            log_of(folder / name, values, **more)
            for name, values in (("a.jsonl", before), ("b.jsonl", after))
        ]
        return compare_logs(*logs, margin=margin)

    return compared


def evidence_of(found):
    return [None if one is None else one.evidence for one in found.evidence]


@pytest.mark.parametrize("margin", [0.0, 0.1, 5.0, 1e6])
@pytest.mark.parametrize("count", range(1, LEAST_OF_MEAN))
def test_a_sample_of_few_means_proves_nothing(count, margin, shown):
    before = [88.0 + i for i in range(count)]
    for change in (0.5, 0.0, -50.0):
        found = shown(before, [one + change for one in before], margin)
        assert evidence_of(found) == [Evidence.INCONCLUSIVE]


@pytest.mark.parametrize("margin", ["0.1", "5"])
def test_one_sample_ends_with_4(margin, tmp_path, monkeypatch, qbench):
    monkeypatch.chdir(tmp_path)
    log_of(tmp_path / "a.jsonl", [88.0])
    log_of(tmp_path / "b.jsonl", [88.5])
    code, out, _ = qbench("compare", "a.jsonl", "b.jsonl", "--margin", margin)
    assert code == 4
    assert "1 sample proves nothing" in out


def test_few_sources_of_many_samples_prove_nothing_about_a_mean(shown):
    rng = np.random.default_rng(2)
    before = rng.normal(50, 5, 200)
    after = before + rng.normal(0, 0.01, 200)
    for sources in (2, LEAST_OF_MEAN - 1):
        named = [f"s{i % sources}" for i in range(200)]
        found = shown(before.tolist(), after.tolist(), 0.1, sources=named)
        assert evidence_of(found) == [Evidence.INCONCLUSIVE]
    assert evidence_of(shown(before.tolist(), after.tolist(), 0.1)) == [Evidence.PASS]


def test_a_change_that_was_not_met_may_be_as_large_as_values_are_apart(shown):
    """Of 40 samples one moved by little; one in 20 that loses 40 would often not be met."""
    before = [60.0 + i for i in range(40)]
    after = [before[0] - 0.01, *before[1:]]
    assert evidence_of(shown(before, after, 1.0)) == [Evidence.INCONCLUSIVE]
    assert evidence_of(shown(before, after, 10.0)) == [Evidence.PASS]


def test_values_that_do_not_vary_prove_nothing(shown, tmp_path, monkeypatch, qbench):
    assert evidence_of(shown([3.0] * 50, [3.0] * 50, 1e9)) == [None]
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "b.jsonl"):
        log_of(tmp_path / name, [3.0] * 50)
    assert qbench("compare", "a.jsonl", "b.jsonl", "--margin", "1")[0] == 4
    assert qbench("compare", "a.jsonl", "b.jsonl")[0] == 0


@pytest.mark.parametrize("apart", [1e-7, 1e-12])
def test_values_that_differ_by_little_are_not_equal(apart, tmp_path, monkeypatch, qbench):
    monkeypatch.chdir(tmp_path)
    before = [0.5 + i / 100 for i in range(50)]
    log_of(tmp_path / "a.jsonl", before)
    log_of(tmp_path / "b.jsonl", [before[0] - apart, *before[1:]])
    code, out, _ = qbench("compare", "a.jsonl", "b.jsonl", "--json")
    (score,) = json.loads(out)["scores"]
    assert (code, score["losses"], score["gains"]) == (1, 1, 0)


def test_tokens_that_differ_by_little_are_not_equal(tmp_path, monkeypatch, qbench):
    monkeypatch.chdir(tmp_path)
    for name, one in (("a.jsonl", -0.5), ("b.jsonl", -0.5 - 1e-12)):
        tokens = {"realised": [one], "top": [[1, 2]], "logprobs": [[-0.5, -1.0]]}
        lines = [{"format": "qbench-answers/1"}]
        lines += [{"id": i, "tokens": tokens} for i in range(6)]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert qbench("compare", "a.jsonl", "b.jsonl")[0] == 1
    assert qbench("compare", "a.jsonl", "a.jsonl")[0] == 0


values = st.integers(-2000, 2000)
changes = st.integers(-300, 300)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(values, changes | st.just(0)), min_size=1, max_size=40),
    margin=st.integers(0, 900),
    factor=st.sampled_from([1e-15, 1e-12, 1e-9, 1e-7, 1e-3, 0.37, 2.0, 1e3, 6.02e8]),
    lower=st.booleans(),
)
@example(pairs=[(-2000, 0)] * 10 + [(0, -1)] * 10, margin=0, factor=1e-15, lower=False)
def test_another_unit_gives_the_same_verdict_or_is_refused(pairs, margin, factor, lower, shown):
    before = [3e-3 * value for value, _ in pairs]
    after = [3e-3 * (value + change) for value, change in pairs]
    margin *= 3.1e-3
    # shares against what is above 1 are refused, as one of the two may be in percent
    is_share = min(before) >= 0 and min(1, factor) * max(before) <= 1
    assume(not is_share or max(1, factor) * max(after) <= 1)
    plain = shown(before, after, margin, lower=lower)
    refusal = None
    try:
        scaled = shown(
            [factor * one for one in before],
            [factor * one for one in after],
            factor * margin,
            lower=lower,
        )
    except InputError as error:
        refusal = str(error)
    if refusal is not None:
        assert factor < 1e-7
        assert "Write the metric in a smaller unit" in refusal
        return
    assert evidence_of(scaled) == evidence_of(plain)
    assert scaled.differs == plain.differs
    (one,), (other,) = plain.scores, scaled.scores
    assert (other.losses, other.gains) == (one.losses, one.gains)

"""``qbench compare a.jsonl b.jsonl``: numbers by scalar counts, exit codes, and files that
cannot be compared.
"""

import json
import math
import re

import numpy as np
import pytest

HEADER = {"format": "qbench-answers/1"}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, records, header=HEADER):
        lines = ([header] if header else []) + list(records)
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    return write


def judged(values, more=lambda i: {}, name="acc"):
    return [{"id": i, "metrics": {name: value}, **more(i)} for i, value in enumerate(values)]


def compared(qbench, *more):
    code, out, err = qbench("compare", "a.jsonl", "b.jsonl", "--json", *more)
    return code, json.loads(out) if out else None, err


RNG = np.random.default_rng(4)
BEFORE = (RNG.random(400) < 0.8).astype(int).tolist()
AFTER = [1 - one if flip else one for one, flip in zip(BEFORE, RNG.random(400) < 0.1, strict=True)]


def test_losses_gains_and_midp_are_mcnemars(files, qbench):
    files("a.jsonl", judged(BEFORE))
    files("b.jsonl", judged(AFTER)[::-1], header=None)
    code, found, err = compared(qbench)
    assert code == 1, err
    (score,) = found["scores"]
    losses = sum(a > b for a, b in zip(BEFORE, AFTER, strict=True))
    gains = sum(b > a for a, b in zip(BEFORE, AFTER, strict=True))
    assert (score["losses"], score["gains"], score["n"]) == (losses, gains, 400)
    assert (score["value"], score["reference_value"]) == (sum(AFTER) / 400, sum(BEFORE) / 400)
    n, least = losses + gains, min(losses, gains)
    tail = [math.comb(n, k) / 2**n for k in range(least + 1)]
    assert score["shown"]["midp"] == pytest.approx(2 * sum(tail) - tail[-1])


def test_samples_of_one_source_are_no_independent_evidence(files, qbench):
    """Every answer four times: the counts are four times as many,
    and prove no more than the questions do.
    """
    files("a.jsonl", judged(BEFORE))
    files("b.jsonl", judged(AFTER))
    alone = compared(qbench)[1]["scores"][0]
    for name, values in (("a.jsonl", BEFORE), ("b.jsonl", AFTER)):
        files(
            name,
            judged([one for one in values for _ in range(4)], lambda i: {"source": f"q{i // 4}"}),
        )
    code, found, _ = compared(qbench)
    (score,) = found["scores"]
    assert (code, found["samples"], found["sources"]) == (1, 1600, 400)
    assert (score["losses"], score["value"]) == (4 * alone["losses"], alone["value"])
    assert score["clusters"]["p"] == pytest.approx(alone["shown"]["midp"], rel=1e-9)
    narrow, wide = (one["shown"]["high"] - one["shown"]["low"] for one in (score, alone))
    assert narrow > 0.9 * wide  # four independent samples would halve it


@pytest.mark.parametrize(
    ("after", "margin", "code"),
    [
        ([1] * 300, "0.02", 0),
        ([1] * 297 + [0] * 3, "0.02", 4),
        ([1] * 270 + [0] * 30, "0.02", 1),
        ([1] * 270 + [0] * 30, "0.2", 0),
    ],
)
def test_a_margin_is_proven_refuted_or_open(after, margin, code, files, qbench):
    files("a.jsonl", judged([1] * 300))
    files("b.jsonl", judged(after))
    assert compared(qbench, "--margin", margin)[0] == code


def test_a_first_value_that_is_no_number_is_named(files, qbench):
    for name in ("a.jsonl", "b.jsonl"):
        files(name, judged([math.nan, 1]), header=None)
    code, _, err = compared(qbench)
    assert code == 2
    assert "NaN" in err


@pytest.mark.parametrize("margin", ["5", "1"])
def test_a_margin_in_points_is_refused(margin, files, qbench):
    files("a.jsonl", judged([1] * 5))
    files("b.jsonl", judged([1] * 4 + [0]))
    code, _, err = compared(qbench, "--margin", margin)
    assert code == 2
    assert f"{int(margin) / 100:g}" in err


@pytest.mark.parametrize(
    ("samples", "sources", "least"),
    [(3, 3, None), (4, 4, None), (40, 3, None), (5, 5, 0.8 ** (1 / 5)), (40, 5, None)],
)
def test_few_samples_detect_a_drop_only_where_the_loss_of_all_is_one(
    samples, sources, least, files, qbench
):
    more = (lambda i: {"source": f"q{i % sources}"}) if sources < samples else (lambda i: {})
    for name, value in (("a.jsonl", 1), ("b.jsonl", 0)):
        files(name, judged([value] * samples, more))
    (lost,) = compared(qbench)[1]["scores"]
    found = lost["shown"]["detectable"]
    assert (found is None) is (lost["shown"]["midp"] > 0.05)
    if least is not None:
        assert found == pytest.approx(least)
    for margin in ((), ("--margin", "0.1")):
        out = qbench("compare", "a.jsonl", "b.jsonl", *margin)[1]
        assert ("too few to detect any drop" in out) is (found is None)


def test_equal_files_are_fine_and_samples_of_one_alone_are_named(files, qbench):
    files("a.jsonl", judged(BEFORE))
    files("b.jsonl", judged(BEFORE))
    assert compared(qbench)[0] == 0
    files("b.jsonl", [*judged(BEFORE)[:-2], {"id": "new", "metrics": {"acc": 1}}])
    code, found, _ = compared(qbench)
    assert (code, found["samples"], found["only_old"], found["only_new"]) == (
        4,
        398,
        ["398", "399"],
        ["new"],
    )
    _, _, err = qbench("compare", "a.jsonl", "b.jsonl")
    assert "only in a.jsonl: 2 samples ('398', '399')" in err


def test_files_with_a_header_are_answers_under_any_name(files, qbench):
    for name in ("a.jl", "b.answers"):
        files(name, judged(BEFORE))
    code, out, err = qbench("compare", "a.jl", "b.answers", "--json")
    assert (code, json.loads(out)["samples"], err) == (0, 400, "")


def test_answers_and_labels_are_judged_without_metrics(files, qbench):
    files("a.jsonl", [{"id": str(i), "answer": [i % 3, 9], "label": i % 3} for i in range(30)])
    files("b.jsonl", [{"id": str(i), "answer": [i % 2, 9], "label": i % 3} for i in range(30)])
    _, found, _ = compared(qbench)
    (score,) = found["scores"]
    same = sum(i % 2 == i % 3 for i in range(30))
    assert (score["metric"], score["hits"], score["reference_hits"], found["changed"]) == (
        "correct",
        same,
        30,
        30 - same,
    )


def test_values_that_are_no_shares_are_resampled(files, qbench):
    files(
        "a.jsonl", judged([i % 7 / 7 for i in range(200)], name="wer"), {**HEADER, "lower": ["wer"]}
    )
    files(
        "b.jsonl",
        judged([i % 7 / 7 + 0.1 for i in range(200)], name="wer"),
        {**HEADER, "lower": ["wer"]},
    )
    code, found, _ = compared(qbench, "--margin", "0.05")
    (score,) = found["scores"]
    assert (code, score["losses"], score["shown"]["evidence"]) == (1, 200, "fail")
    assert score["value"] - score["reference_value"] == pytest.approx(0.1, abs=1e-6)


def streams(rows, k, floor):
    order = np.argsort(-rows, axis=1, kind="stable")[:, :k]
    logs = np.log(np.take_along_axis(rows, order, axis=1))
    least = {"floor": float(np.log(rows.min()))} if floor else {}
    return {
        "realised": np.log(rows[:, 0]).tolist(),
        "top": order.tolist(),
        "logprobs": logs.tolist(),
        **least,
    }


@pytest.mark.parametrize("floor", [True, False])
def test_token_streams(floor, files, qbench):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(50, 0.1) + 1e-3, 60) * (1 - 1e-3) + 1e-3 / 50
    q = p * np.exp(rng.normal(0, 0.2, p.shape))
    q /= q.sum(axis=1, keepdims=True)
    for name, rows in (("a.jsonl", p), ("b.jsonl", q)):
        files(
            name,
            [{"id": i, "tokens": streams(rows[3 * i : 3 * i + 3], 10, floor)} for i in range(20)],
        )
    code, found, err = compared(qbench)
    assert code == 1, err
    values = {score["metric"]: score for score in found["scores"]}
    exact = float((p * np.log(p / q)).sum(axis=1).mean())
    assert values["token_kl"]["value"] <= exact
    assert ("token_kl_most" in values) is floor
    if floor:
        assert exact <= values["token_kl_most"]["value"]
    assert values["token_top1"]["hits"] == int((p.argmax(1) == q.argmax(1)).sum())
    rows = found["tokens"]["rows"]
    assert (found["tokens"]["tokens"], found["tokens"]["samples"]) == (60, 20)
    assert rows["kld_mean"]["value"] == pytest.approx(values["token_kl"]["value"], abs=1e-6)
    assert rows["kld_max"]["unbounded"] is not floor
    shown = qbench("compare", "a.jsonl", "b.jsonl")[1]
    assert all(row["title"] in shown for row in rows.values())
    assert values["token_perplexity"]["value"] == pytest.approx(-np.log(q[:, 0]).mean(), abs=1e-5)
    limit = values["token_kl_most"]["value"] * 2 if floor else 10
    proven = compared(qbench, "--metric", "token_kl", "--margin", str(limit))[0]
    assert proven == (0 if floor else 4)
    assert compared(qbench, "--metric", "token_kl", "--margin", str(exact / 100))[0] == 1


def test_intervals_of_token_streams_hold_their_values(files, qbench):
    """Of a stream against another, and against itself."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(50, 0.1) + 1e-3, 60) * (1 - 1e-3) + 1e-3 / 50
    q = p * np.exp(rng.normal(0, 0.2, p.shape))
    rows = {"a.jsonl": p, "b.jsonl": q / q.sum(axis=1, keepdims=True)}
    for name, found in rows.items():
        files(
            name,
            [{"id": i, "tokens": streams(found[3 * i : 3 * i + 3], 10, True)} for i in range(20)],
        )
    of_reference = ("token_kl", "token_kl_most", "token_top1")
    for other in ("b.jsonl", "a.jsonl"):
        code, out, _ = qbench("compare", "a.jsonl", other)
        assert code == (other == "b.jsonl")
        lines = out.splitlines()
        for name in of_reference:
            line = next(one for one in lines if one.startswith(f"{name} "))
            numbers = re.findall(r"[−-]?\d[\d.]*(?:e[−-]?\d+)?", line.split(name, 1)[1])
            if other == "a.jsonl" and name != "token_top1":
                # divergences have no most, and those of equal streams no spread
                assert [float(one) for one in numbers] == [0.0]
                continue
            value, low, high = (float(one.replace("−", "-")) for one in numbers[:3])
            assert 0 <= low <= value <= high, line
            assert name != "token_top1" or high <= 100, line


def test_each_interval_names_its_method_and_a_divergence_is_a_loss_above_0(files, qbench):
    rng = np.random.default_rng(1)
    for name in ("a.jsonl", "b.jsonl"):
        rows = rng.dirichlet(np.full(5, 2.0), 60)
        files(
            name,
            [{"id": i, "tokens": streams(rows[3 * i : 3 * i + 3], 5, False)} for i in range(20)],
        )
    out = qbench("compare", "a.jsonl", "b.jsonl", "--metric", "token_kl", "--margin", "9")[1]
    lines = out.splitlines()
    (row,) = (one for one in lines if one.startswith("token_kl "))
    assert "paired bootstrap 90 %, with unmet changes" in row
    assert any("bootstrap 90 % by source" in one for one in lines)
    (last,) = (one for one in lines if one.startswith("token_kl, margin 9 nats: PASS"))
    low, high = re.findall(r"([+−][\d.]+)", last)[:2]
    assert 0 < float(low) < float(high)


@pytest.mark.parametrize("metric", ["token_kl", "token_perplexity"])
def test_vocabularies_of_other_sizes_are_one_sentence(metric, words, files, qbench):
    rows = np.full((4, 5), 0.2)
    for name, vocabulary in (("a.jsonl", 5), ("b.jsonl", 6)):
        tokens = {**streams(rows, 3, True), "vocabulary": vocabulary}
        files(name, [{"id": i, "tokens": tokens} for i in range(3)])
    code, out, err = qbench("compare", "a.jsonl", "b.jsonl", "--metric", metric)
    assert (code, out) == (2, "")
    words(err)


@pytest.mark.parametrize(("answer", "label"), [("B", 1), (1, "B"), ([1, 2], "B"), ("1", [1, 2])])
def test_answers_that_no_label_can_equal_are_refused(answer, label, files, qbench):
    for name in ("a.jsonl", "b.jsonl"):
        files(name, [{"id": i, "answer": answer, "label": label} for i in range(9)])
    code, out, err = qbench("compare", "a.jsonl", "b.jsonl")
    assert (code, out) == (2, "")
    assert "none can be right" in err


def test_sources_that_differ_between_the_files_are_refused(words, files, qbench):
    files("a.jsonl", judged(BEFORE, lambda i: {"source": f"q{i // 4}"}))
    files("b.jsonl", judged(AFTER, lambda i: {"source": f"q{i // 2}"})[::-1])
    code, out, err = qbench("compare", "a.jsonl", "b.jsonl")
    assert (code, out) == (2, "")
    words(err)
    files("b.jsonl", judged(AFTER)[::-1])
    (alone,) = compared(qbench)[1]["scores"]
    files("b.jsonl", judged(AFTER, lambda i: {"source": f"q{i // 4}"})[::-1])
    assert compared(qbench)[1]["scores"] == [alone]


FAULTS = {
    "twice": ([*judged(BEFORE), {"id": 3, "metrics": {"acc": 1}}], "'3' twice"),
    "other metric": (judged(BEFORE, name="f1"), "acc"),
    "nan": (['{"id": "0", "metrics": {"acc": NaN}}'], "NaN"),
    "data": (judged(BEFORE), "revision"),
    "content": (
        judged(BEFORE, lambda i: {"content": f"other {i}"}),
        "another question in 400 samples ('0'",
    ),
    "mixed": ([{"id": 0, "metrics": {"acc": 1}}, {"id": 1, "metrics": {"f1": 1}}], "line 3"),
    "other samples": ([{"id": "z", "metrics": {"acc": 1}}], "no common sample"),
    "missing": (None, "nothing at that path"),
    "huge": (judged([1e300] * 400, lambda i: {"content": f"text {i}"}), "1e+300"),
    "token id": (
        [{"id": 0, "tokens": {"realised": [0.0], "top": [[2**70]], "logprobs": [[0.0]]}}],
        "",
    ),
    "no tokens": (
        [{"id": 0, "tokens": {"realised": [], "top": [], "logprobs": []}}],
        "nothing to count",
    ),
    "tokens": ([{"id": 0, "tokens": {"realised": [0.0], "top": [[1]], "logprobs": [[0.5]]}}], ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence_and_nothing_is_compared(fault, files, qbench):
    records, named = FAULTS[fault]
    files(
        "a.jsonl",
        judged(BEFORE, lambda i: {"content": f"text {i}"}),
        {**HEADER, "data": {"digest": "1" * 64}},
    )
    if "token" in fault:
        files("a.jsonl", records)
    if records is not None:
        digest = ("2" if fault == "data" else "1") * 64
        files("b.jsonl", [], {**HEADER, "data": {"digest": digest}})
        with open("b.jsonl", "a") as file:
            file.writelines(
                (one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records
            )
    code, out, err = qbench("compare", "a.jsonl", "b.jsonl")
    assert code == (3 if fault in ("other metric", "other samples") else 2)
    assert out == ""
    assert named in err
    assert err.count("\n") == 1


def test_options_of_runs_and_of_answers_are_told_apart(files, qbench):
    files("a.jsonl", judged(BEFORE))
    files("b.jsonl", judged(BEFORE, lambda i: {}, "f1"))
    for words, named in (
        (("a.jsonl", "a.jsonl", "--across"), "--across"),
        (("latest", "previous", "--margin", "0.1"), "--margin"),
        (("a.jsonl", "a.jsonl", "--margin", "-1"), "--margin"),
        (("a.jsonl", "a.jsonl", "--metric", "ac"), "'acc'"),
    ):
        code, _, err = qbench("compare", *words)
        assert code == 2
        assert named in err


@pytest.mark.parametrize(
    ("before", "after", "changed"), [(-1, -2, 1), ("a", "b", 1), ([-1], [-2], 1), (3, 3.0, 0)]
)
def test_every_other_answer_is_counted(before, after, changed, files, qbench):
    files("a.jsonl", [{"id": 0, "answer": before, "label": before}])
    files("b.jsonl", [{"id": 0, "answer": after, "label": before}])
    assert compared(qbench)[1]["changed"] == changed


# How the second file is judged is not up to it.

HALF = [one if i % 2 else 0 for i, one in enumerate(BEFORE)]
ANSWERED = [{"id": i, "answer": i % 7, "label": i % 7} for i in range(60)]


def _labelled(changed):
    return [{**record, **changed(record)} for record in ANSWERED]


STATED = {
    "lower in the second header": (judged(BEFORE), {}, judged(HALF), {"lower": ["acc"]}),
    "lower in the first header": (judged(BEFORE), {"lower": ["acc"]}, judged(HALF), {}),
    "against the definition": (
        judged(BEFORE, name="top1"),
        {"lower": ["top1"]},
        judged(HALF, name="top1"),
        {"lower": ["top1"]},
    ),
    "percent against shares": (judged(BEFORE), {}, judged([45.0 * one for one in BEFORE]), {}),
    "other labels": (ANSWERED, {}, _labelled(lambda r: {"answer": 3, "label": 3}), {}),
    "one other label": (
        ANSWERED,
        {},
        _labelled(lambda r: {"label": 9} if r["id"] == 5 else {}),
        {},
    ),
    "other labels with metrics": (
        judged(BEFORE, lambda i: {"answer": 1, "label": 1}),
        {},
        judged(BEFORE, lambda i: {"answer": 2, "label": 2}),
        {},
    ),
    "a label as a list": (ANSWERED, {}, _labelled(lambda r: {"label": [r["label"]]}), {}),
    "empty text": (
        _labelled(lambda r: {"answer": "x", "label": ""}),
        {},
        _labelled(lambda r: {"answer": "", "label": ""}),
        {},
    ),
    "blank text": (
        _labelled(lambda r: {"answer": "x", "label": " "}),
        {},
        _labelled(lambda r: {"answer": " ", "label": " "}),
        {},
    ),
    "empty list": (
        _labelled(lambda r: {"answer": [1], "label": []}),
        {},
        _labelled(lambda r: {"answer": [], "label": []}),
        {},
    ),
}


@pytest.mark.slow_but(9)
@pytest.mark.parametrize("margin", [(), ("--margin", "0.02")], ids=["differences", "margin"])
@pytest.mark.parametrize("case", STATED)
def test_the_file_that_is_judged_does_not_say_how(case, margin, files, qbench):
    first, head, second, other = STATED[case]
    files("a.jsonl", first, {**HEADER, **head})
    files("b.jsonl", second, {**HEADER, **other})
    code, out, err = qbench("compare", "a.jsonl", "b.jsonl", *margin)
    assert (code, out) == (2, ""), err


@pytest.mark.parametrize("header", [{}, {"lower": ["wer"]}])
def test_a_metric_that_qbench_defines_has_its_direction(header, files, qbench):
    files("a.jsonl", judged([i % 7 / 7 for i in range(200)], name="wer"), {**HEADER, **header})
    files(
        "b.jsonl", judged([i % 7 / 7 + 0.1 for i in range(200)], name="wer"), {**HEADER, **header}
    )
    code, found, err = compared(qbench, "--margin", "0.02")
    assert (code, found["scores"][0]["direction"]) == (1, "lower"), err


def test_a_label_that_is_no_number_is_refused(words, files, qbench):
    for name, label in (("a.npz", 0.5), ("b.npz", np.nan)):
        np.savez(
            name, id=np.array(["0", "1"]), answer=np.array([0.5, 0.5]), label=np.array([0.5, label])
        )
    code, _, err = qbench("compare", "a.npz", "b.npz")
    assert code == 2
    words(err)


@pytest.mark.parametrize(
    ("kept", "is_named"), [("q8_0", True), ("f16", False), ("BF16", False), (None, False)]
)
def test_a_reference_with_a_quantized_cache_is_named(kept, is_named, files, qbench):
    said = {} if kept is None else {"kv_cache": kept}
    header = {**HEADER, "provenance": {"tool": "llama.cpp 5", **said}}
    files("a.jsonl", judged(BEFORE), header=header)
    files("b.jsonl", judged(AFTER))
    out = qbench("compare", "a.jsonl", "b.jsonl")[1]
    assert ("a.jsonl ran with its cache in q8_0" in out) is is_named

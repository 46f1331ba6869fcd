"""``qbench compare``: what is listed with direction and unit,
and which exit code comes before which.
"""

import datetime
import json
import re
from pathlib import Path

import pytest
from test_cli_merge import END, RUN, put

from qbench.tracking import compare_runs, read_run

TOP1 = {
    "direction": "higher",
    "against": "labels",
    "unit": "%",
    "proportion": True,
    "hits": 8,
    "out_of": 10,
}
SQNR = {
    "direction": "higher",
    "against": "reference",
    "unit": "dB",
    "proportion": False,
    "hits": 35_200,
    "out_of": 1000,
}
KL = {
    "direction": "lower",
    "against": "reference",
    "unit": "nats",
    "proportion": False,
    "hits": 12_000,
    "out_of": 10**6,
}


def measured(run_id, models=("m1",), *, end=True, answers="p", where="x64", **metrics):
    """The text of a run file whose cells have ``metrics`` beside top1."""
    more = {"reference_hits": 9, "losses": 1, "gains": 0, "n": 10}
    cells = [
        {
            "type": "cell",
            "suite": "smoke",
            "model": model,
            "backend": "b",
            "schema": "s",
            "outcome": "passed",
            "environment_class": where,
            "digests": {"predictions:d": answers, "data:d": "d"},
            "metrics": {
                name: {**table, **more} for name, table in {"top1": TOP1, **metrics}.items()
            },
        }
        for model in models
    ]
    return (
        RUN.format(run_id)
        + "".join(json.dumps(cell) + "\n" for cell in cells)
        + (END if end else "")
    )


@pytest.fixture
def compared(project, qbench):
    """Compare the run files of two texts: (exit code, output, words on standard error)."""

    def compare(old, new, *options):
        put(project / "runs", a=old, b=new)
        return qbench("compare", "runs/a.jsonl", "runs/b.jsonl", *options)

    return compare


def test_distances_alone_are_listed_with_direction_and_unit(compared):
    old = measured("one", sqnr=SQNR, kl=KL)
    new = measured("two", sqnr=SQNR | {"hits": 33_100}, kl=KL | {"hits": 11_000})
    code, out, err = compared(old, new)
    assert (code, err) == (1, "")
    assert "1 cells, 1 differ" in out
    assert "sqnr 35.2 → 33.1 dB (−2.1 dB, worse), kl" in out
    assert "0.012 → 0.011 nats (−0.001 nats, better)" in out
    code, out, _ = compared(old, new, "--json")
    found = {metric["metric"]: metric for metric in json.loads(out)["cells"][0]["metrics"]}
    assert (
        found["sqnr"]["unit"],
        found["sqnr"]["lower_is_better"],
        found["kl"]["lower_is_better"],
    ) == (
        "dB",
        False,
        True,
    )
    assert compared(old, measured("two", sqnr=SQNR, kl=KL))[0] == 0


def test_top_lists_the_cells_that_moved_furthest(compared, project):
    """A share by its difference, another value by its part of the larger one, either way."""

    def night(run_id, hits, values):
        first, *cells, end = measured(run_id, tuple("abcd"), sqnr=SQNR).splitlines(keepends=True)
        lines = [json.loads(cell) for cell in cells]
        for line, right, value in zip(lines, hits, values, strict=True):
            line["metrics"]["top1"]["hits"] = right
            line["metrics"]["sqnr"]["hits"] = value
        return first + "".join(json.dumps(line) + "\n" for line in lines) + end

    old = night("one", (8, 8, 8, 8), (35_200, 40_000, 35_200, 35_200))
    new = night("two", (8, 8, 9, 5), (35_200, 32_000, 35_200, 35_200))
    moved = {"d": 0.3, "b": 0.2, "c": 0.1, "a": 0.0}
    code, out, _ = compared(old, new, "--top", "2")
    rows = [line.split("::")[0][-1] for line in out.splitlines() if "::" in line]
    assert (code, rows) == (1, list(moved)[:2])
    assert "1 cell more left out" in out
    found = json.loads(compared(old, new, "--top", "3", "--json")[1])["cells"]
    assert [row["cell"]["model"] for row in found] == list(moved)[:3]
    changes = {
        row.cell.model: row.largest_move
        for row in compare_runs(*(read_run(project / "runs" / f"{name}.jsonl") for name in "ab"))
    }
    assert changes == pytest.approx(moved)


def test_other_predictions_that_count_the_same_are_told(compared):
    code, out, _ = compared(measured("one"), measured("two", answers="q"))
    assert code == 1
    assert "top1 8 of 10 (other predictions on d" in out


def test_times_and_sizes_are_listed_where_they_are_judged(compared):
    """A cell with the same answers and a larger file was not listed at all."""

    def sized(run_id, size):
        gates = [
            {"kind": "latency", "state": "holds", "value": 0.5 + size / 1e6, "limit": 0.8},
            {"kind": "file_size", "state": "holds", "value": size, "limit": 40_000},
        ]
        first, cell, *others = measured(run_id).splitlines(keepends=True)
        return first + json.dumps(json.loads(cell) | {"gates": gates}) + "\n" + "".join(others)

    code, text, _ = compared(sized("r1", 30_000), sized("r2", 31_000))
    assert code == 0  # its answers are the same
    flat = " ".join(text.split())
    assert "latency 0.53 × fp32 → 0.531 × fp32 (at most 0.8 × fp32)" in flat
    assert "file_bytes 30,000 bytes → 31,000 bytes (at most 40,000 bytes)" in flat
    assert "latency" not in compared(sized("r1", 30_000), sized("r2", 30_000))[1]


@pytest.mark.parametrize("cut", ["old", "new"])
def test_an_interrupted_run_ends_with_4_and_is_named(compared, cut):
    models = ("m1", "m2")
    old = measured("one", models, end=cut != "old")
    new = measured("two", models[: 1 if cut == "new" else 2], end=cut != "new")
    code, out, err = compared(old, new)
    name = "one" if cut == "old" else "two"
    assert code == 4
    assert err.startswith(f"qbench: the run {name} was interrupted")
    assert err.count("\n") == 1
    assert ("only in the old run" in out) is (cut == "new")
    assert json.loads(compared(old, new, "--json")[1])["incomplete"] == [
        err.removeprefix("qbench: ").strip()
    ]


def test_a_run_with_lines_that_cannot_be_read_ends_with_4(words, compared):
    code, _, err = compared(measured("one"), measured("two").replace(END, '{"type":"cell"\n' + END))
    assert code == 4
    words(err)


def test_which_code_comes_first(compared, qbench):
    cut = measured("two", answers="other", end=False)
    code, _, err = compared(measured("one"), cut)
    assert code == 1
    assert "interrupted" in err
    code, _, err = compared(measured("one"), measured("two", where="arm64", end=False))
    assert code == 3
    assert "interrupted" in err
    code, out, _ = qbench("compare", "--help")
    rows = re.findall(
        r"^  (\S)", out.partition("the first in this list is returned")[2], re.MULTILINE
    )
    assert (code, rows) == (0, ["2", "3", "1", "4", "0"])


def put_nights(folder, *facts):
    """A file for each of ``facts`` of a header,
    whose only cell answers as the id of the run says.
    """
    for number, one in enumerate(facts):
        head, rest = measured(
            f"run-{number}", (f"m{one.get('shard', '1')[0]}",), answers=f"p{number}"
        ).split("\n", 1)
        put(folder, **{f"{9 - number}": f"{json.dumps({**json.loads(head), **one})}\n{rest}"})


def test_latest_is_the_last_night_with_all_its_shards_and_one_file_is_read_for_each(
    qbench, project, monkeypatch
):
    from qbench.tracking import history

    night = {"commit": "a" * 40, "planned": 2, "selected": 1, "limited": None, "select": ""}
    shards = (
        {**night, "shard": f"{share}/2", "started": f"2026-11-21T0{share}:00:00Z"}
        for share in (1, 2)
    )
    put_nights(project / "reports/history", {"started": "2026-11-20T00:00:00Z"}, *shards)
    read = []
    original = history._parsed
    monkeypatch.setattr(
        history,
        "_parsed",
        lambda lines, name, keep, **how: (
            read.append(Path(name).name) or original(lines, name, keep, **how)
        ),
    )
    code, out, err = qbench("compare", "run-0", "latest", "--json")
    assert (code, json.loads(out)["new"], err) == (1, "run-1 run-2", "")
    assert sorted(cell["cell"]["model"] for cell in json.loads(out)["cells"]) == ["m1", "m2"]
    assert sorted(read) == ["7.jsonl", "8.jsonl", "9.jsonl"]


def test_a_run_stamped_in_the_future_hides_no_later_one(qbench, project):
    now = datetime.datetime.now(datetime.UTC)
    stamps = [(now + datetime.timedelta(days=days)).isoformat() for days in (-2, 3650, -1)]
    places = ({"sequence": 1}, {"sequence": 2, "after": "run-0"}, {"sequence": 3, "after": "run-1"})
    put_nights(
        project / "reports/history",
        *({"started": s, **place} for s, place in zip(stamps, places, strict=True)),
    )
    code, out, err = qbench("compare", "latest", "latest", "--json")
    assert (code, json.loads(out)["new"]) == (0, "run-2")
    assert err.count("run-1") == err.count("qbench: ") == 2  # once for each side
    code, _, err = qbench("report", "--report", "md")
    assert (code, err.count("run-1")) == (0, 1)
    assert stamps[2][:10] in (project / "reports/report.md").read_text()
    assert qbench("history", "show", "m1::b+s")[2].count(" stamped later than it is now ") == 1


def test_one_odd_line_costs_no_report(qbench, project):
    odd = measured("run-1").replace('"metrics": {', '"metrics": 7, "was": {')
    put(project / "reports/history", a=measured("run-0"), b=odd)
    code, _, err = qbench("report", "--report", "md")
    assert code == 0
    assert "b.jsonl' has 1 line" in err


# Across environment classes.

X64, UPGRADED = "x64-avx2+onnxruntime-1.31.1", "x64-avx2+onnxruntime-1.24.1"


def test_the_refusal_names_across_and_across_shows_both_classes(compared):
    old, new = (
        measured("one", where=X64),
        measured("two", where=UPGRADED, answers="q", top1=TOP1 | {"hits": 7}),
    )
    code, _, err = compared(old, new)
    assert (code, "--across" in err) == (3, True)
    code, out, err = compared(old, new, "--across")
    assert (code, err) == (1, "")
    assert "across environment classes: onnxruntime 1.31.1 → 1.24.1 in 1 cell" in out
    assert "top1 8 → 7 of 10 (−10.00 pp, worse" in out
    code, out, _ = compared(old, new, "--across", "--json")
    facts = json.loads(out)
    assert (facts["across"], facts["exchanged"]) == (True, {"onnxruntime 1.31.1 → 1.24.1": 1})
    assert facts["cells"][0]["differs"] == ["onnxruntime 1.31.1 → 1.24.1"]


def test_across_ends_with_0_where_nothing_differs_and_with_3_where_nothing_can_be_compared(
    compared,
):
    old = measured("one", where=X64)
    assert compared(old, measured("two", where=UPGRADED), "--across")[0] == 0
    assert compared(old, measured("two", where=UPGRADED, end=False), "--across")[0] == 4
    other = measured("two", where=UPGRADED).replace('"data:d": "d"', '"data:d": "e"')
    assert compared(old, other, "--across")[0] == 3


def test_the_paired_statistics_are_those_of_the_counts_against_one_reference(compared):
    def text(name, hits, losses, **more):
        top1 = TOP1 | {
            "hits": hits,
            "out_of": 100,
            "n": 100,
            "reference_hits": 98,
            "losses": losses,
            "gains": 1,
        }
        cell = measured(name, **more).replace('"data:d": "d"', '"data:d": "d", "reference:d": "r"')
        head, line, end = cell.splitlines()
        return "\n".join(
            [head, json.dumps({**json.loads(line), "metrics": {"top1": top1}}), end, ""]
        )

    old, new = text("one", 96, 3, where=X64), text("two", 90, 9, where=UPGRADED, answers="q")
    code, out, _ = compared(old, new, "--across", "--json")
    pairs = json.loads(out)["cells"][0]["metrics"][0]["pairs"]
    assert (code, pairs["losses"], pairs["gains"]) == (1, [6, 10], [0, 4])
    assert pairs["midp"][0] == pytest.approx(2**-6)
    assert pairs["interval"][0] < -0.06 < pairs["interval"][1]
    assert "6 to 10 lost, 0 to 4 gained, p 0.016 to 0.12" in compared(old, new, "--across")[1]


def test_another_model_is_named_once_with_what_fp32_lost(compared):
    models = ("m1",)
    old = measured("one", models).replace('"data:d"', '"model": "w1", "data:d"')
    new = measured("two", models, answers="q").replace('"data:d"', '"model": "w2", "data:d"')
    code, out, _ = compared(old, new.replace('"reference_hits": 9', '"reference_hits": 7'))
    assert code == 1
    assert out.count("m1 is another model in the new run: fp32 top1 9 → 7 of 10") == 1


# The names of runs.

SHA = ["a" * 40, "b" * 40, "abc" + "d" * 37, "e" * 40]


@pytest.fixture
def named(project, qbench):
    """Four nights of the suite smoke, the third red and of a commit of its own, and an older
    run of another suite.
    """
    days = {"started": "2026-11-0{}T00:00:00Z"}
    facts = [{"commit": {"sha": sha, "dirty": False}} for sha in SHA]
    put_nights(
        project / "reports/history",
        {"started": "2026-11-01T00:00:00Z", "suite": "other"},
        *({"started": days["started"].format(2 + n), **fact} for n, fact in enumerate(facts)),
    )
    for number in (3, 4):
        path = project / f"reports/history/{9 - number}.jsonl"
        path.write_text(path.read_text().replace('"passed"', '"drifted"'))

    def run_of(name):
        code, out, err = qbench("compare", name, name, "--json")
        return json.loads(out)["old"] if code == 0 else err

    return run_of


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("latest", "run-4"),
        ("previous", "run-3"),
        ("latest~0", "run-4"),
        ("latest~1", "run-3"),
        ("latest~3", "run-1"),
        ("last-green", "run-2"),
        ("9.jsonl", "run-0"),
        ("reports/history/7.jsonl", "run-2"),
        ("run-2", "run-2"),
        (SHA[0], "run-1"),
        ("bbbb", "run-2"),
        ("abcd", "run-3"),
    ],
)
def test_a_run_has_many_names(named, name, run):
    assert named(name) == run


@pytest.mark.parametrize(
    "name", ["latest~4", "latest~99", "latest~x", "latst", "ffff", "eee", "run-", "other", ""]
)
def test_an_unknown_name_is_one_sentence_with_what_exists(named, name):
    err = named(name)
    assert err.count("\n") == 1
    assert "run-4" in err
    assert "last-green" in err


@pytest.mark.parametrize(
    ("name", "meant"), [("lastest", "latest"), ("lastgreen", "last-green"), ("previus", "previous")]
)
def test_a_mistyped_name_of_a_run_is_suggested(named, name, meant):
    assert f"Did you mean '{meant}'?" in named(name)


def test_without_a_green_run_last_green_says_so(words, named, project):
    for path in (project / "reports/history").glob("*.jsonl"):
        path.write_text(path.read_text().replace('"passed"', '"failed"'))
    words(named("last-green"))


def test_of_a_commit_the_newest_run_without_uncommitted_changes_is_meant(qbench, project):
    put_nights(
        project / "reports/history",
        *(
            {"started": f"2026-11-0{2 + n}T00:00:00Z", "commit": {"sha": SHA[0], "dirty": n == 2}}
            for n in range(3)
        ),
    )
    assert json.loads(qbench("compare", "aaaa", "aaaa", "--json")[1])["old"] == "run-1"


def test_accept_report_and_export_take_the_same_names(named, qbench, project):
    assert qbench("export", "--format", "csv", "last-green")[1].count("run-2") >= 1
    code, out, _ = qbench("report", "--compare", "last-green", "latest", "--json")
    assert (code, [Path(path).name for path in json.loads(out)]) == (0, ["compare.html"])
    page = (project / json.loads(out)[0]).read_text()
    assert "run-2" in page
    assert "run-4" in page
    assert "latest~9" in qbench("accept", "latest~9")[2]


def test_last_green_is_of_the_class_of_the_newest_run_where_there_is_one(qbench, project):
    put_nights(
        project / "reports/history", *({"started": f"2026-11-0{2 + n}T00:00:00Z"} for n in range(3))
    )
    other = project / "reports/history/8.jsonl"
    other.write_text(other.read_text().replace('"x64"', '"arm64"'))
    newest = project / "reports/history/7.jsonl"
    newest.write_text(newest.read_text().replace('"passed"', '"drifted"'))
    code, out, _ = qbench("compare", "last-green", "latest", "--json")
    facts = json.loads(out)
    assert (code, facts["old"], facts["new"]) == (1, "run-0", "run-2")
    (project / "reports/history/9.jsonl").unlink()
    code, out, _ = qbench("compare", "last-green", "latest", "--json", "--across")
    assert (code, json.loads(out)["old"]) == (1, "run-1")


def test_two_names_of_one_run_are_told(qbench, project):
    put(project / "reports/history", a=measured("run-0"))
    code, _, err = qbench("compare", "last-green", "latest")
    assert (code, "are one run, run-0" in err) == (0, True)


def test_cells_that_vanished_end_with_4_and_are_named(words, compared):
    code, out, err = compared(measured("one", ("m1", "m2", "m3")), measured("two", ("m1",)))
    assert code == 4
    words(err)
    assert "m2::b+s" in out
    assert compared(measured("one", ("m1",)), measured("two", ("m1", "m2")))[0] == 0, (
        "a new cell is no loss"
    )


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (('"x64"', '"arm64"'), "environment class x64 against arm64"),
        (('"data:d": "d"', '"data:d": "e"'), "other samples or labels"),
        (('"n": 10', '"n": 40'), "other samples: top1 of 10"),
    ],
)
def test_a_cell_that_cannot_be_compared_beside_equal_ones_ends_with_4(
    words, compared, changed, why
):
    old, new = measured("one", ("m1", "m2")), measured("two", ("m1", "m2"))
    lines = new.splitlines(keepends=True)
    last = max(place for place, line in enumerate(lines) if '"m2"' in line)
    lines[last] = lines[last].replace(*changed)
    code, _, err = compared(old, "".join(lines))
    assert code == 4
    words(err)
    assert why in err
    code, out, _ = compared(old, "".join(lines), "--json")
    (sentence,) = json.loads(out)["incomplete"]
    assert (code, "m2::b+s" in sentence) == (4, True)


def test_a_cell_that_neither_run_supports_is_no_gap(compared):
    texts = []
    for name in ("one", "two"):
        lines = [json.loads(one) for one in measured(name, ("m1", "m2")).splitlines()]
        for one in lines:
            if one.get("model") == "m2":
                one["outcome"] = "unsupported"
                del one["metrics"], one["digests"]
        texts.append("".join(json.dumps(one) + "\n" for one in lines))
    assert compared(*texts)[0] == 0


def test_counts_out_of_two_numbers_say_both(compared):
    old, new = (
        measured("one"),
        measured("two", answers="q", top1={**TOP1, "hits": 30, "out_of": 40}),
    )
    code, out, _ = compared(old, new)
    assert code == 1
    assert "top1 8 of 10 → 30 of 40 (−5.00 pp, worse)" in out


def test_a_cell_that_lost_its_support_ends_with_4(compared):
    new = measured("two", ("m1", "m2"))
    lines = [json.loads(one) for one in new.splitlines()]
    for one in lines:
        if one.get("model") == "m2":
            one["outcome"] = "unsupported"
            del one["metrics"], one["digests"]
    code, _, err = compared(
        measured("one", ("m1", "m2")), "".join(json.dumps(one) + "\n" for one in lines)
    )
    assert code == 1  # the outcome is another one
    assert "1 cell is unsupported now" in err


def test_selected_cells_without_a_line_end_with_4(compared):
    counts = '"planned": 2, "selected": 2, "suite"'
    old, new = (measured(name).replace('"suite"', counts, 1) for name in ("one", "two"))
    code, _, err = compared(old, new)
    assert (code, "1 of 2 selected cells" in err) == (4, True)


def made_with(text, **made):
    return text.replace('"outcome": "passed"', f'"outcome": "passed", "made": {json.dumps(made)}')


def test_what_changed_between_two_runs_is_one_line_with_the_values_before(words, compared):
    old = made_with(measured("one"), calibration="32 samples of 'c'", schema="a1")
    new = made_with(measured("two", answers="q"), calibration="4 samples of 'c'", schema="b2")
    code, out, _ = compared(old, new)
    assert code == 1
    (line,) = [one for one in out.splitlines() if one.startswith("changed between these runs: ")]
    words(line)
    exchanged = json.loads(compared(old, new, "--json")[1])["exchanged"]
    assert exchanged == {
        "calibration: 32 samples of 'c' → 4 samples of 'c'": 1,
        "the rules of the schema were edited": 1,
    }
    assert "changed between" not in compared(old, measured("two", answers="q"))[1], (
        "an older file knows nothing of it"
    )


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (
            ("tolerance 1 % (suite smoke)", "tolerance 2 % (suite smoke)"),
            "the rule of top1: tolerance 1 %",
        ),
        (("tolerance 1 % (suite smoke)",) * 2, ""),
    ],
)
def test_a_setting_of_the_suite_that_changed_is_named(compared, rules, words):
    gates = [
        [{"kind": "loss", "metric": "top1", "state": "holds", "detail": "", "rule": rule}]
        for rule in rules
    ]
    texts = [
        measured(name, answers=name).replace(
            '"outcome": "passed"', f'"outcome": "passed", "gates": {json.dumps(gate)}'
        )
        for name, gate in zip(("one", "two"), gates, strict=True)
    ]
    out = compared(*texts)[1]
    assert (words in out) if words else ("changed between" not in out)


def test_fewer_sources_are_named(compared):
    ends = {"interval": [-0.1, 0.1], "shown": [-0.1, 0.1]}
    clusters = {"sources": 32, "effect": 2.0, **ends, "p": 0.5, "error": 0.1}
    old = measured("one", top1=TOP1 | {"clusters": clusters})
    new = measured("two", answers="q", top1=TOP1 | {"clusters": clusters | {"sources": 8}})
    assert "32 sources → 8 sources" in compared(old, new)[1]


def test_what_a_run_accepted_passes_in_the_next_one_and_is_the_same(compared):
    old = measured("one").replace('"passed"', '"accepted"')
    code, out, _ = compared(old, measured("two"))
    assert (code, "1 cells, 0 differ" in out) == (0, True)
    assert compared(old.replace('"accepted"', '"failed"'), measured("two"))[0] == 1


NOISY = {"runs": 3, "differing": {"d": 4}, "flips": {"d": 4}}


@pytest.mark.parametrize(("hits", "code"), [(79, 0), (60, 1)])
def test_a_difference_within_the_noise_of_the_engine_is_none(compared, hits, code):
    """The mean of three runs is compared, by the noise that each run measured."""

    def noisy(name, first):
        runs = [first, first + 2, first + 1]
        counts = {"hits": runs, "out_of": [100] * 3, "pairs": 24, "flips": 4}
        metric = TOP1 | {"hits": first, "out_of": 100, "n": 100, "noise": [0.01, 0.0173]}
        text = measured(name, answers=name, top1=metric)
        repeats = json.dumps(NOISY | {"metrics": {"top1": counts}})
        return text.replace('"outcome": "passed"', f'"outcome": "passed", "repeats": {repeats}')

    found, out, _ = compared(noisy("one", 80), noisy("two", hits), "--all")
    assert found == code
    assert "81.00 % →" in out


def test_a_raw_log_of_another_tool_names_the_verb_that_reads_it(tmp_path, monkeypatch, qbench):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples_a.jsonl").write_text(
        '{"doc_id": 0, "target": "5", "filtered_resps": ["5"]}\n'
    )
    code, _, err = qbench("compare", "samples_a.jsonl", "samples_a.jsonl")
    assert code == 2
    assert "qbench import" in err

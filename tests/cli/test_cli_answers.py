"""``eval --backend answers:PATH``: answers and raw outputs that were recorded elsewhere,
and their faults.
"""

import json

import numpy as np
import onnxruntime as ort
import pytest

HEADER = {
    "format": "qbench-answers/1",
    "provenance": {"device": "Pixel 8", "firmware": "14.1-beta", "tool": "qnn 2.31"},
}


@pytest.fixture
def scores(blobs_files):
    """(n, classes): what ``net.onnx`` itself answers to ``test.npz``."""
    session = ort.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: np.load("test.npz")["x"]})[0]


def write(path, records, header=HEADER):
    lines = ([header] if header else []) + list(records)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"answers:{path}"


def ranked(scores):
    order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    return [{"id": f"x[{row}]", "answer": best.tolist()} for row, best in enumerate(order)]


def measured(qbench, backend, *more):
    code, out, err = qbench(
        "eval", "net.onnx", "--data", "test.npz", "--backend", str(backend), "--json", *more
    )
    assert code == 0, err
    return json.loads(out)


def counts(table):
    return {
        score["metric"]: (score["hits"], score["losses"], score["gains"])
        for score in table["quantized"]["scores"]
    }


def test_the_models_own_answers_lose_nothing_in_any_order(tmp_path, scores, qbench):
    records = ranked(scores)
    table = measured(qbench, write(tmp_path / "run.jsonl", records[::-1]))
    n = len(records)
    assert counts(table)["agreement"] == (n, 0, 0)
    assert counts(table)["top1"][1:] == counts(table)["top5"][1:] == (0, 0)
    assert table["quantized"]["cell"]["schema"] == "recorded"
    assert table["quantized"]["environment"] == {
        "device": "cpu",
        "processor": "Pixel_8",
        "packages": [["firmware", "14.1_beta"], ["qnn", "2.31"]],
    }


def test_one_changed_answer_is_one_flip(tmp_path, scores, qbench):
    records = ranked(scores)
    records[3]["answer"] = records[3]["answer"][1:] + records[3]["answer"][:1]
    table = measured(qbench, write(tmp_path / "run.jsonl", records))
    assert counts(table)["agreement"][1] == 1
    assert table["quantized"]["changed"] == {"test.npz": ["x[3]"]}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("form", ["npz", "folder", "answers"])
def test_raw_outputs_go_through_the_task(form, tmp_path, scores, qbench):
    ids = [f"x[{row}]" for row in range(len(scores))]
    path = tmp_path / ("dump" if form == "folder" else "dump.npz")
    rows = np.random.default_rng(0).permutation(len(ids))
    if form == "folder":
        path.mkdir()
        for name, row in zip(ids, scores, strict=True):
            np.save(path / f"{name}.npy", row)
    elif form == "npz":
        np.savez(path, id=np.array(ids)[rows], scores=scores[rows])
    else:
        best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        np.savez(path, id=np.array(ids)[rows], answer=best[rows], header=json.dumps(HEADER))
    metrics = "top1,agreement" if form == "answers" else "top1,agreement,sqnr"
    found = counts(measured(qbench, f"answers:{path}", "--metrics", metrics))
    assert found["agreement"] == (len(ids), 0, 0)
    if form != "answers":
        assert found["sqnr"][0] == 150_000 * min(128, len(ids))


def test_scores_of_all_classes_rank_as_the_task_does(tmp_path, scores, qbench):
    records = [{"id": f"x[{row}]", "scores": one.tolist()} for row, one in enumerate(scores)]
    assert counts(measured(qbench, write(tmp_path / "run.jsonl", records)))["agreement"][1] == 0


def wrong(name, records, scores):
    """``records`` with one fault → (the whole file or its records, what the error must name)."""
    last = records[-1]["id"]
    faults = {
        "missing": (records[:-1], f"1 sample without an answer ('{last}')"),
        "unknown": ([*records, {**records[0], "id": "y[0]"}], "1 unknown sample ('y[0]')"),
        "twice": ([*records, records[2]], "the sample 'x[2]' twice"),
        "nan": ([{**records[0], "scores": [float("nan")] * 5}], "NaN"),
        "mixed": ([records[0], {"id": "x[1]", "answer": "cat"}], "line 3"),
        "shallow": ([{"id": one["id"], "answer": one["answer"][0]} for one in records], "1 class"),
        "text": ([{"id": one["id"], "answer": "cat"} for one in records], "sample 'x[0]'"),
        "negative": ([{"id": one["id"], "answer": [-1]} for one in records], "sample 'x[0]'"),
        "rising": (
            [{**records[0], "scores": sorted(range(len(records[0]["answer"])))}],
            "scores that rise",
        ),
        "empty": ([], "no record"),
    }
    return faults[name]


@pytest.mark.slow_but(2)
@pytest.mark.parametrize(
    "name",
    [
        "missing",
        "unknown",
        "twice",
        "nan",
        "mixed",
        "shallow",
        "text",
        "negative",
        "rising",
        "empty",
    ],
)
def test_a_fault_is_one_sentence_and_nothing_is_judged(name, tmp_path, scores, qbench):
    records, named = wrong(name, ranked(scores), scores)
    backend = write(tmp_path / "run.jsonl", records)
    metrics = ("--metrics", "top1,top5") if name == "shallow" else ()
    code, out, err = qbench(
        "eval", "net.onnx", "--data", "test.npz", "--backend", backend, *metrics
    )
    assert (code, out) == (2, "")
    assert named in err
    assert err.count("\n") == 1


def test_another_revision_of_the_data_is_refused(tmp_path, scores, qbench):
    from qbench.subjects import dataset_from_text

    digest = dataset_from_text("test.npz")[0].digest
    good = write(
        tmp_path / "run.jsonl",
        ranked(scores),
        {**HEADER, "data": {"id": "test.npz", "digest": digest}},
    )
    measured(qbench, good)
    bad = write(
        tmp_path / "run.jsonl",
        ranked(scores),
        {**HEADER, "data": {"id": "test.npz", "digest": "0" * 64}},
    )
    code, out, err = qbench("eval", "net.onnx", "--data", "test.npz", "--backend", bad)
    assert (code, out) == (2, "")
    assert digest[:12] in err


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"id": "x[0]", "answer": [1]}\n{"id": "x[1]", "ans', "line 2"),
        ('{"format": "qbench-answers/9"}\n', "qbench-answers/9"),
        ("[1, 2]\n", "line 1"),
        ("\xff\n", "line 1"),
    ],
)
def test_a_broken_file_is_one_sentence(text, named, tmp_path, blobs_files, qbench):
    (tmp_path / "run.jsonl").write_bytes(text.encode("latin-1"))
    code, out, err = qbench(
        "eval", "net.onnx", "--data", "test.npz", "--backend", f"answers:{tmp_path / 'run.jsonl'}"
    )
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


def test_nan_in_a_raw_output_names_its_sample(tmp_path, scores, qbench):
    scores = scores.copy()
    scores[7, 1] = np.nan
    np.savez(tmp_path / "dump.npz", id=[f"x[{row}]" for row in range(len(scores))], scores=scores)
    code, out, err = qbench(
        "eval", "net.onnx", "--data", "test.npz", "--backend", f"answers:{tmp_path / 'dump.npz'}"
    )
    assert (code, out) == (2, "")
    assert "sample 'x[7]'" in err


@pytest.mark.parametrize(
    "option", [["--schema", "w8a8_asym_pc", "--calib", "train.npz"], ["--fp32", "net.onnx"]]
)
def test_what_runs_a_model_is_refused_with_answers(option, tmp_path, scores, qbench):
    backend = write(tmp_path / "run.jsonl", ranked(scores))
    code, _, err = qbench("eval", "net.onnx", "--data", "test.npz", "--backend", backend, *option)
    assert code == 2
    assert option[0] in err


def test_without_metrics_those_are_counted_that_one_class_of_each_sample_can_be(
    scores, tmp_path, qbench
):
    best = [
        {"id": f"x[{row}]", "answer": int(one)} for row, one in enumerate(scores.argmax(axis=1))
    ]
    backend = write(tmp_path / "best.jsonl", best)
    code, out, err = qbench("eval", "net.onnx", "--data", "test.npz", "--backend", backend)
    assert code == 0, err
    assert "left out: top5" in err
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("top", "agree"))] == [
        "top1",
        "agreement",
    ]
    code, _, err = qbench(
        "eval", "net.onnx", "--data", "test.npz", "--backend", backend, "--metrics", "top5"
    )
    assert (code, "leave the metric out" in err) == (2, True)
    every = write(tmp_path / "every.jsonl", ranked(scores))
    assert "left out" not in qbench("eval", "net.onnx", "--data", "test.npz", "--backend", every)[2]

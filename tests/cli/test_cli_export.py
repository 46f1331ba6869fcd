"""Exports and the index from the command line: what is written where, and the exit codes."""

import json

import pytest
from test_cli_merge import content, put

METRICS = (
    '{"top1@d":{"n":10,"hits":8,"out_of":10,"reference_hits":9,"losses":1,"gains":0,'
    '"value":0.8,"direction":"higher","proportion":true}}'
)


def measured(run_id, *cells, end=True):
    plain = '"outcome":"passed"'
    return content(run_id, *cells, end=end).replace(plain, f'{plain},"metrics":{METRICS}')


@pytest.fixture
def history(project):
    put(project / "reports" / "history", one=measured("run-1", 1), two=measured("run-2", 1, 2))
    return project / "reports" / "history"


@pytest.mark.parametrize("form", ["csv", "json", "junit", "github-benchmark", "bencher"])
def test_every_format_to_a_file_and_to_a_pipe(qbench, project, history, form):
    code, out, err = qbench("export", "--format", form)
    assert (code, err) == (0, "")
    assert qbench("export", "run-2", "--format", form, "-o", "there/out")[:2] == (0, "")
    assert (project / "there" / "out").read_bytes() == out.encode()


def test_all_runs(qbench, history):
    code, out, _ = qbench("export", "all", "--format", "json")
    assert code == 0
    assert [(row["run"], row["model"]) for row in json.loads(out)] == [
        ("run-1", "m1"),
        ("run-2", "m1"),
        ("run-2", "m2"),
    ]


def test_an_interrupted_run_is_exported_and_told(words, qbench, history):
    put(history, three=measured("run-3", 1, end=False))
    code, out, err = qbench("export", "run-3", "--format", "bencher")
    assert code == 4
    assert json.loads(out) == {
        "smoke/m1::b+s": {"top1@d": json.loads(out)["smoke/m1::b+s"]["top1@d"]}
    }
    words(err)


def test_a_run_that_is_not_there(words, qbench, history):
    code, out, err = qbench("export", "nothing", "--format", "csv")
    assert (code, out) == (2, "")
    words(err)


def test_the_index_of_a_history(qbench, project, history):
    place = "reports/history/index.sqlite"
    assert qbench("history", "index") == (
        0,
        f"{place}: 2 run files added, 0 changed, 0 gone, 0 as they were; 2 runs in all\n",
        "",
    )
    put(history, bad="nonsense\n")
    code, out, err = qbench("history", "index", "--json")
    assert code == 2
    assert json.loads(out)["kept"] == 2
    assert "bad.jsonl" in err
    (history / "bad.jsonl").unlink()
    assert qbench("history", "index", "--rebuild", "--db", "other.sqlite")[0] == 0
    assert (project / "other.sqlite").exists()


@pytest.mark.parametrize("place", ["mysql://host/db", "nowhere/deep/index.sqlite", "suites"])
def test_a_database_that_cannot_be_had_is_one_sentence(qbench, history, place):
    code, out, err = qbench("history", "index", "--db", place)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(("qbench: Opening the index", "qbench: Updating the index"))


def test_without_a_history_there_is_nothing_to_index(qbench, project):
    code, _, err = qbench("history", "index")
    assert code == 2
    assert "no such folder" in err


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ((), "no -o"),
        (("-o", "m.onnx"), "-o m.onnx"),
        (("-o", "m.tflite", "--format", "csv"), "--format csv"),
        (("n.onnx", "-o", "m.tflite"), "2 inputs"),
    ],
)
def test_a_model_is_exported_alone_and_to_a_tflite_file(qbench, more, found):
    code, out, err = qbench("export", "m.onnx", *more)
    assert (code, out) == (2, "")
    assert f"found {found}" in err
    assert "m.tflite'." in err


def test_runs_need_a_format(qbench, history):
    code, out, err = qbench("export", "latest")
    assert (code, out) == (2, "")
    assert "no --format" in err


@pytest.mark.parametrize(
    ("words", "found", "remedy"),
    [
        (
            ("net.onnx", "--format", "tflite", "-o", "m.tflite"),
            "found --format tflite; expected one ONNX model, no --format, and a file that ends",
            "Call 'qbench export net.onnx -o m.tflite'.",
        ),
        (("net.onnx",), "found no -o;", "Call 'qbench export net.onnx -o net.tflite'."),
        (
            ("latest", "-o", "m.tflite"),
            "found 'latest', which is not an ONNX model;",
            "Call 'qbench export MODEL.onnx -o m.tflite'.",
        ),
        (("--format", "jsn"), "found --format jsn; expected one of csv, json", "Did you mean"),
        (("--format", "bmp"), "found --format bmp; expected one of csv, json", "Choose one of"),
    ],
)
def test_a_wrong_argument_is_one_sentence(words, found, remedy, qbench, history):
    """'--format tflite' printed how to call the verb, and that tflite is no choice."""
    code, out, err = qbench("export", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert found in err
    assert remedy in err

"""``qbench import``: logs in the forms that lm-eval 0.4.13 and Inspect 0.3.285 wrote,
tables, and broken ones.
"""

import json
import sys
import zipfile

import pytest


def lm_line(doc, *, name="none", answer="7", **metrics):
    metrics = metrics or {"exact_match": 1.0}
    return {
        "doc_id": doc,
        "doc": {"question": f"{doc}+1=", "article": f"page {doc // 2}"},
        "target": str(doc + 1),
        "arguments": {"gen_args_0": {"arg_0": f"{doc}+1=", "arg_1": {"until": ["\n"]}}},
        "resps": [[answer]],
        "filtered_resps": [answer] if isinstance(answer, str) else answer,
        "filter": name,
        "metrics": list(metrics),
        "doc_hash": f"{doc:016d}" * 4,
        "prompt_hash": "1" * 64,
        "target_hash": "2" * 64,
        **metrics,
    }


@pytest.fixture
def imported(tmp_path, monkeypatch, qbench):
    monkeypatch.chdir(tmp_path)

    def run(name, *more):
        code, out, err = qbench("import", "-o", "answers.jsonl", name, *more)
        path = tmp_path / "answers.jsonl"
        if code:
            assert not path.exists()
            assert out == ""
            assert "Traceback" not in err
            return code, err, []
        header, *records = map(json.loads, path.read_text().splitlines())
        return header, err, records

    return run


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_lm_evals_filters_metrics_and_hashes(tmp_path, imported):
    strict = [lm_line(doc, name="strict", exact_match=float(doc % 2)) for doc in range(4)]
    loose = [lm_line(doc, name="loose", answer="[invalid]", exact_match=0.0) for doc in range(4)]
    write_lines(tmp_path / "samples_sums_2026-11-23T13-18-58.646978.jsonl", strict + loose)
    facts = {
        "lm_eval_version": "0.4.13",
        "higher_is_better": {"sums": {"exact_match": True, "wer": False}},
    }
    (tmp_path / "results_2026-11-23T13-18-58.646978.json").write_text(json.dumps(facts))
    name = "samples_sums_2026-11-23T13-18-58.646978.jsonl"
    assert imported(name)[0] == 2
    assert "--filter strict" in imported(name)[1]
    assert "'lose'" in imported(name, "--filter", "lose")[1]
    header, _, records = imported(name, "--filter", "strict", "--source", "doc.article")
    assert header["provenance"] == {"tool": "lm-eval 0.4.13"}
    assert (header["data"], header["lower"]) == ({"id": "sums"}, ["wer"])
    assert [record["metrics"]["exact_match"] for record in records] == [0.0, 1.0, 0.0, 1.0]
    assert [record["source"] for record in records] == ["page 0", "page 0", "page 1", "page 1"]
    assert records[3]["answer"] == "7"
    assert len({record["content"] for record in records}) == 4


def test_several_tasks_become_one_file(tmp_path, imported):
    for task in ("sums", "products"):
        write_lines(
            tmp_path / f"samples_{task}_x.jsonl", [lm_line(doc, acc=1.0) for doc in range(3)]
        )
    names = ("samples_sums_x.jsonl", "samples_products_x.jsonl")
    header, _, records = imported(*names)
    assert [record["id"] for record in records] == [
        f"{task}/{doc}" for task in ("sums", "products") for doc in range(3)
    ]
    assert header["data"]["id"] == "sums+products"
    (tmp_path / "answers.jsonl").unlink()
    assert "'sums'" in imported(names[0], names[0])[1]
    write_archive(tmp_path / "log.eval", inspect_log())
    assert "inspect_ai" in imported(names[0], "log.eval")[1]


def test_epochs_of_several_tasks_are_sources_of_each(tmp_path, imported):
    for task in ("sums", "products"):
        log = inspect_log(epochs=2)
        log["eval"]["dataset"]["name"] = task
        write_archive(tmp_path / f"{task}.eval", log)
    records = imported("sums.eval", "products.eval")[2]
    assert {record["source"] for record in records} == {
        f"{task}/q{i}" for task in ("sums", "products") for i in range(4)
    }
    (tmp_path / "answers.jsonl").unlink()
    records = imported("sums.eval", "products.eval", "--source", "metadata.topic")[2]
    assert {record["source"] for record in records} == {
        "t0",
        "t1",
    }  # what the user named is the same in both


def test_a_log_without_anything_to_compare_is_refused(words, tmp_path, imported):
    write_lines(
        tmp_path / "wiki.jsonl",
        [lm_line(0, answer=[["-1.5", "False"]], word_perplexity=[-12.5, 4])],
    )
    code, err, _ = imported("wiki.jsonl")
    assert code == 2
    words(err)


def test_lm_evals_multiple_choice_answers_with_the_best(tmp_path, imported):
    answer = [["-0.9", "False"], ["-0.5", "True"], ["-0.5", "False"]]
    lines = [lm_line(0, answer=answer, acc=1.0, acc_norm=0.0, brier_score=[1, 2])]
    write_lines(tmp_path / "samples.jsonl", lines)
    _, err, (record,) = imported("samples.jsonl")
    assert (record["answer"], record["metrics"]) == (1, {"acc": 1.0, "acc_norm": 0.0})
    assert "brier_score" in err


def inspect_log(epochs=1, status="success", spoilt=()):
    samples = [
        {
            "id": f"q{i}",
            "epoch": epoch,
            "input": [{"id": f"random {i} {epoch}", "role": "user", "content": f"{i}+1="}],
            "target": str(i + 1),
            "metadata": {"topic": f"t{i // 2}"},
            "output": {"completion": f"It is {i + 1}"},
            "scores": {
                "match": {"value": "C" if i else "I", "answer": str(i + 1)},
                "judge": {"value": {"style": 0.25, "tone": True}},
            },
            "events": [{"anything": 1}],
        }
        for epoch in range(1, epochs + 1)
        for i in range(4)
    ]
    for index in spoilt:
        samples[index] |= {"error": {"message": "timeout"}, "scores": {}}
    spec = {"task": "sums", "dataset": {"name": "sums-data"}, "packages": {"inspect_ai": "0.3.285"}}
    return {
        "version": 2,
        "status": status,
        "eval": {**spec, "config": {"epochs": epochs}},
        "samples": samples,
    }


def write_archive(path, log, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("_journal/start.json", "{}")
        for one in log["samples"]:
            archive.writestr(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one))
        archive.writestr(
            "header.json", json.dumps({key: log[key] for key in ("version", "status", "eval")})
        )


@pytest.mark.parametrize("form", ["json", "eval"])
def test_inspects_grades_epochs_and_failed_samples(form, tmp_path, imported):
    log = inspect_log(epochs=2, status="error", spoilt=[5])
    if form == "json":
        (tmp_path / "log.json").write_text(json.dumps(log, indent=2))
    else:
        write_archive(tmp_path / "log.eval", log)
    header, err, records = imported(f"log.{form}")
    assert header["provenance"] == {"tool": "inspect_ai 0.3.285"}
    assert header["data"] == {"id": "sums-data"}
    assert [record["id"] for record in records] == [
        "q0#1",
        "q1#1",
        "q2#1",
        "q3#1",
        "q0#2",
        "q2#2",
        "q3#2",
    ]
    assert [record["source"] for record in records] == ["q0", "q1", "q2", "q3", "q0", "q2", "q3"]
    assert records[0]["metrics"] == {"match": 0.0, "judge.style": 0.25, "judge.tone": 1.0}
    assert (records[1]["answer"], records[1]["metrics"]["match"]) == ("2", 1.0)
    assert records[0]["content"] == records[4]["content"] != records[1]["content"]
    assert "'error'" in err
    assert "1 sample without a score left out ('q1#2')" in err


@pytest.mark.parametrize("form", ["json", "eval"])
@pytest.mark.parametrize(("declared", "noted"), [(None, False), (4, False), (5, True)])
def test_a_log_of_a_part_of_its_data_says_so(declared, noted, form, tmp_path, imported):
    log = inspect_log(epochs=2)
    log["eval"]["dataset"] = {"name": "sums-data", "samples": declared}
    if form == "json":
        (tmp_path / "log.json").write_text(json.dumps(log))
    else:
        write_archive(tmp_path / "log.eval", log)
    _, err, _ = imported(f"log.{form}")
    assert ("4 of the 5 samples" in err) == noted


def test_two_imported_logs_are_compared(tmp_path, imported, qbench):
    write_archive(tmp_path / "old.eval", inspect_log())
    changed = inspect_log()
    changed["samples"][3]["scores"]["match"]["value"] = "I"
    write_archive(tmp_path / "new.eval", changed)
    imported("old.eval")
    (tmp_path / "answers.jsonl").rename(tmp_path / "old.jsonl")
    imported("new.eval")
    code, out, _ = qbench("compare", "old.jsonl", "answers.jsonl", "--json", "--metric", "match")
    (score,) = json.loads(out)["scores"]
    assert (code, score["losses"], score["gains"], score["n"]) == (1, 1, 0, 4)


def test_a_table_with_columns_of_other_names(tmp_path, imported):
    (tmp_path / "run.csv").write_text(
        '\ufeffname,pred,y,photo,acc,text\na.png,3,3,one,1,x\nb.png,"[2, 1]",3,one,0,y\n'
    )
    options = (
        "--columns",
        "id=name,answer=pred,label=y",
        "--source",
        "photo",
        "--device",
        "pixel-8",
        "--tool",
        "qnn 2",
    )
    code, err, _ = imported("run.csv", *options)
    assert code == 2
    assert "sample 'b.png'" in err
    (tmp_path / "run.csv").write_text(
        "name,pred,y,photo,acc,text\na.png,3,3,one,1,x\nb.png,2,3,one,0.5,y\n"
    )
    header, _, records = imported("run.csv", *options)
    assert header["provenance"] == {"device": "pixel-8", "tool": "qnn 2"}
    assert records == [
        {"id": "a.png", "answer": 3, "metrics": {"acc": 1.0}, "label": 3, "source": "one"},
        {"id": "b.png", "answer": 2, "metrics": {"acc": 0.5}, "label": 3, "source": "one"},
    ]


def test_a_column_of_a_table_is_typed_as_a_whole(tmp_path, imported):
    (tmp_path / "run.csv").write_text("id,answer,label,mixed\na,Paris,42,1\nb,42,42,n/a\n")
    _, err, records = imported("run.csv")
    assert [(one["answer"], one["label"]) for one in records] == [("Paris", "42"), ("42", "42")]
    assert not any(one.get("metrics") for one in records)
    assert "left out: mixed" in err


def test_a_metric_without_a_first_value_is_not_dropped(tmp_path, imported):
    (tmp_path / "run.csv").write_text("id,acc,empty\na,,\nb,1,\n")
    code, err, _ = imported("run.csv")
    assert code == 2
    assert "line 2" in err
    assert "'acc'" in err


def test_the_digest_of_the_data_goes_into_the_header(tmp_path, blobs_files, qbench):
    from qbench.subjects import dataset_from_text

    (tmp_path / "run.csv").write_text("id,answer\nx[0],1\n")
    code, _, err = qbench(
        "import", str(tmp_path / "run.csv"), "-o", "answers.jsonl", "--data", "test.npz"
    )
    assert code == 0, err
    with open("answers.jsonl") as file:
        header = json.loads(file.readline())
    assert header["data"] == {"id": "test.npz", "digest": dataset_from_text("test.npz")[0].digest}


BROKEN = {
    "twice.jsonl": ([lm_line(0), lm_line(0)], "'0' twice"),
    "cut.jsonl": ('{"doc_id": 0, "filter": "none"}\n{"doc_id": 1, "fil', "line 2"),
    "nan.jsonl": ('{"doc_id": 0, "metrics": ["acc"], "acc": NaN}\n', "NaN"),
    "other.jsonl": ('{"id": 0}\n', "doc_id"),
    "empty.jsonl": ("", "no record"),
    "mixed.jsonl": ([lm_line(0, acc=1.0), lm_line(1, f1=1.0)], "'mixed.jsonl', sample '1': found"),
    "no.json": ('{"status": "success"}', "eval"),
    "grade.json": (json.dumps({**inspect_log(), "samples": [
        {"id": "a", "scores": {"judge": {"value": "fine"}}, "output": {"completion": "x"}}]}),
        "'judge'"),
    "broken.eval": ("PK not a zip", "zip"),
    "headless.eval": (None, "header.json"),
    "ragged.csv": ("id,acc\na,1\nb\n", "line 3: found 1 field;"),
    "nan.csv": ("id,acc\na,1\nb,nan\n", "line 3"),
    "nameless.csv": ("sample,acc\na,1\n", "--columns id="),
    "latin.csv": ("id,acc\n\xe9,1\n".encode("latin-1"), "UTF-8"),
    "log.txt": ("x", "'.txt'"),
    "bytes.jsonl": (b'{"doc_id": 0, "metrics": ["acc"], "acc": 1, "filter": "\xff"}\n', "line 1"),
    "endless.jsonl": ('{"doc_id": 0, "filtered_resps": [["1", 0], [1e999, 0]]}\n', "line 1"),
    "great.jsonl": ((
        '{"doc_id": 0, "metrics": ["acc"], "acc": 1%s}\n'
    ) % ("0" * 400), "'acc' beyond"),
    "names.jsonl": ('{"doc_id": 0, "metrics": [["acc"]], "acc": 1}\n', "no metric"),
    "great.json": (json.dumps({**inspect_log(), "samples": [
        {"id": "a", "scores": {"judge": {"value": 10**400}}, "output": {"completion": "x"}}]}),
        "'judge'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_log_is_one_sentence_and_nothing_is_written(name, tmp_path, imported):
    content, named = BROKEN[name]
    if isinstance(content, list):
        write_lines(tmp_path / name, content)
    elif content is None:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("samples/a_epoch_1.json", "{}")
    else:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    code, err, _ = imported(name)
    assert code == 2
    assert named in err
    assert err.count("\n") == 1


def test_a_damaged_member_is_named(tmp_path, imported):
    write_archive(tmp_path / "log.eval", inspect_log(), zipfile.ZIP_STORED)
    data = (tmp_path / "log.eval").read_bytes()
    (tmp_path / "log.eval").write_bytes(data.replace(b"It is 3", b"It is 4"))
    code, err, _ = imported("log.eval")
    assert code == 2
    assert "samples/q2_epoch_1.json" in err


@pytest.mark.parametrize("change", ["data", "encrypted", "method"])
def test_a_member_that_cannot_be_unpacked_is_named(change, tmp_path, imported):
    write_archive(tmp_path / "log.eval", inspect_log())
    data = bytearray((tmp_path / "log.eval").read_bytes())
    name = b"samples/q0_epoch_1.json"
    local, central = data.find(name), data.rfind(name) - 46
    if change == "data":
        data[local + len(name) : local + len(name) + 8] = b"\xff" * 8
    elif change == "encrypted":
        data[central + 8] |= 1
    else:
        data[central + 10] = 9
    (tmp_path / "log.eval").write_bytes(data)
    code, err, _ = imported("log.eval")
    assert code == 2
    assert "samples/q0_epoch_1.json" in err
    assert err.count("\n") == 1


def test_answers_of_a_table_that_no_whole_number_holds_are_texts(tmp_path, imported):
    answers = ["9" * 18, "9" * 19, "9" * 5000, "[" * 50_000]
    for text, kind in zip(answers, (int, str, str, str), strict=True):
        (tmp_path / "answers.jsonl").unlink(missing_ok=True)
        (tmp_path / "table.csv").write_text(f"id,answer\na,{text}\n")
        ((record),) = imported("table.csv")[2]
        assert isinstance(record["answer"], kind)


def test_zstandard_is_asked_for_where_it_is_missing(tmp_path, imported, monkeypatch):
    """The methods of a stored file are overwritten:
    nothing is unpacked before the package is looked for.
    """
    write_archive(tmp_path / "log.eval", inspect_log(), zipfile.ZIP_STORED)
    data = bytearray((tmp_path / "log.eval").read_bytes())
    for mark, place in ((b"PK\x01\x02", 10), (b"PK\x03\x04", 8)):
        start = -1
        while (start := data.find(mark, start + 1)) >= 0:
            data[start + place : start + place + 2] = (93).to_bytes(2, "little")
    (tmp_path / "log.eval").write_bytes(data)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    code, err, _ = imported("log.eval")
    assert code == 2
    assert "pip install " in err
    assert "[inspect]" in err


def test_a_line_has_a_limit(tmp_path, imported, monkeypatch):
    monkeypatch.setattr("qbench.metrics.answer_files._LINE_BYTES", 1 << 20)
    (tmp_path / "long.jsonl").write_text(json.dumps(lm_line(0, answer="x" * (1 << 20))) + "\n")
    code, err, _ = imported("long.jsonl")
    assert code == 2
    assert "1 MiB in one line" in err


@pytest.mark.parametrize("columns", ["id,answer,label,score", "score,label,id,answer"])
def test_right_and_wrong_are_not_left_out_in_silence(columns, tmp_path, imported, capsys):
    row = {"id": "a", "answer": "1", "label": "1", "score": "0.5"}
    (tmp_path / "t.csv").write_text(
        f"{columns}\n{','.join(row[name] for name in columns.split(','))}\n"
    )
    assert "metrics (score)" in imported("t.csv")[1]
    (tmp_path / "t.csv").write_text("id,answer,label\na,1,1\n")
    assert "metrics (" not in imported("t.csv")[1]


def test_the_names_of_columns_are_quoted(words, tmp_path, imported):
    (tmp_path / "t.csv").write_text('"id,answer"\n"a,1"\n')
    code, err, _ = imported("t.csv")
    assert code == 2
    words(err)

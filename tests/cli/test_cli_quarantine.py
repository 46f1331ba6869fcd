"""``qbench quarantine`` writes what a suite then reads,
and leaves the rest of the file as it is.
"""

import concurrent.futures
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from test_cli_run import accept_all

SUITE = "suites/tiny.qbench.toml"
FILE = Path("suites/tiny.quarantine.toml")
CELL = "blobs::ort-cpu+w8a8_asym_pc"
GIVEN = ("--reason", 'a "known" one', "--until", "2999-12-31", "--owner", "me")
WRITTEN = """\
# why these are here
[[cell]]   # the first
cell = "blobs::ort-cpu-noopt+w8a8_asym_pt"
measured = "bad"
reason = "known"
owner = "you"
expires = "2999-01-01"
when = "riscv64"
"""


def entries() -> list[dict[str, object]]:
    return tomllib.loads(FILE.read_text())["cell"]


def test_a_red_cell_is_listed_with_what_was_measured_and_is_green_then(project, qbench, fill_once):
    fill_once(project, accept_all)
    path = Path(SUITE)
    path.write_text(path.read_text().replace("[suite]", "[suite]\nagreement = 1.0", 1))
    assert qbench("run", SUITE, "--select", "schema=w8a8_asym_pc backend=ort-cpu")[0] == 1
    code, out, err = qbench("quarantine", CELL, *GIVEN, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["path"], told["cells"]) == (str(FILE), [CELL])
    (run,) = Path("reports/history").glob("*.jsonl")
    (cell,) = [
        line for line in map(json.loads, run.read_text().splitlines()) if line["type"] == "cell"
    ]
    (entry,) = entries()
    assert {**entry, "when": None} == told["entry"]
    assert entry["measured"] in {
        gate["detail"].partition(";")[0] for gate in cell["gates"] if gate["kind"] == "floor"
    }
    assert (entry["cell"], entry["reason"], entry["expires"]) == (
        CELL,
        'a "known" one',
        "2999-12-31",
    )
    code, out, err = qbench(
        "run", SUITE, "--select", "schema=w8a8_asym_pc backend=ort-cpu", "--json"
    )
    assert [one["outcome"] for one in json.loads(out)["cells"]] == ["quarantined"]
    assert code == 0, err


def test_the_file_keeps_what_is_in_it(project, qbench):
    FILE.write_text(WRITTEN)
    code, _, err = qbench(
        "quarantine", f"{SUITE}::blobs::*+w8a8_asym_pc", *GIVEN, "--measured", "20 %"
    )
    assert code == 0, err
    assert FILE.read_text().startswith(WRITTEN)
    first, second = entries()
    assert first["owner"] == "you"
    assert second["cell"] == "blobs::*+w8a8_asym_pc"
    code, _, err = qbench(
        "quarantine", first["cell"], *GIVEN, "--measured", "x", "--when", "x64", "--when", "arm64"
    )
    assert code == 0, err  # listed on other computers only
    assert entries()[2]["when"] == ["x64", "arm64"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            [CELL, "--reason", "x", "--until", "2020-01-01", "--owner", "me", "--measured", "x"],
            "which is past",
        ),
        (
            [CELL, "--reason", "x", "--until", "soon", "--owner", "me", "--measured", "x"],
            "no day such as 2027-03-31",
        ),
        (["blobs::ort-cpu+w8a8_asim_pc", *GIVEN, "--measured", "x"], f"Did you mean '{CELL}'?"),
        ([CELL, *GIVEN], "Add --measured"),
        (
            ["blobs::ort-cpu-noopt+w8a8_asym_pt", *GIVEN, "--measured", "x"],
            "it listed until 2999-01-01 (you), item 1",
        ),
        ([f"suites/none.qbench.toml::{CELL}", *GIVEN, "--measured", "x"], "No such file"),
    ],
)
def test_a_wrong_entry_is_one_sentence_and_nothing_is_written(project, qbench, arguments, words):
    FILE.write_text(WRITTEN)
    code, out, err = qbench("quarantine", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert FILE.read_text() == WRITTEN


def test_a_file_of_another_form_is_left_alone(project, qbench):
    fields = 'measured = "x", reason = "x", owner = "x", expires = "2999-01-01"'
    text = f'cell = [{{ cell = "{CELL}", {fields}, when = "riscv64" }}]\n'
    FILE.write_text(text)
    code, _, err = qbench("quarantine", "blobs::*", *GIVEN, "--measured", "x")
    assert code == 2
    assert "as tables [[cell]]" in err
    assert FILE.read_text() == text


def test_a_cell_of_two_suites_needs_the_name_of_one(project, qbench):
    Path("suites/other.qbench.toml").write_text(Path(SUITE).read_text())
    code, _, err = qbench("quarantine", CELL, *GIVEN, "--measured", "x")
    assert code == 2
    assert f"Name it: 'suites/other.qbench.toml::{CELL}'" in err


@pytest.mark.slow
def test_all_missing_keys_of_an_entry_are_named_at_once(project, qbench):
    FILE.write_text(f'[[cell]]\ncell = "{CELL}"\nreason = "known"\n')
    code, _, err = qbench("run", SUITE)
    assert code == 2
    assert f"item 1 ('{CELL}') of 'cell'" in err
    assert "'measured', 'owner', 'expires'" in err


def red_run(qbench, *select):
    path = Path(SUITE)
    path.write_text(path.read_text().replace("[suite]", "[suite]\nagreement = 1.0", 1))
    assert qbench("run", SUITE, *select)[0] == 1


@pytest.mark.slow
def test_an_entry_holds_the_values_of_each_cell_and_a_collapse_under_a_pattern_is_red(
    project, qbench, fill_once
):
    fill_once(project, accept_all)
    red_run(qbench, "--select", "schema=w8a8_asym_pc backend=ort-cpu")
    assert qbench("quarantine", "*", *GIVEN)[0] == 0
    (entry,) = entries()
    ((processor, values),) = entry["values"].items()
    assert processor == str(last_record()["environment_class"]).partition("+")[0]
    assert set(values) == {CELL}
    assert 0 < values[CELL]["agreement"] < 1
    select = ("--select", "schema=w8a8_asym_pc backend=ort-cpu", "--json")
    code, out, _ = qbench("run", SUITE, *select)
    assert [one["outcome"] for one in json.loads(out)["cells"]] == ["quarantined"]
    assert code == 0
    higher = FILE.read_text().replace(
        f'"agreement" = {values[CELL]["agreement"]!r}', '"agreement" = 1.5'
    )
    FILE.write_text(higher)
    code, out, _ = qbench("run", SUITE, *select)
    (cell,) = json.loads(out)["cells"]
    assert (code, cell["outcome"]) == (1, "failed")
    assert "worse than listed" in cell["headline"]


@pytest.mark.slow
def test_the_next_command_fills_the_values_of_an_old_entry(project, qbench, fill_once):
    fill_once(project, accept_all)
    red_run(qbench, "--select", "schema=w8a8_asym_pc backend=ort-cpu")
    second = "# about another\n" + WRITTEN.partition("\n")[2]
    FILE.write_text(
        WRITTEN.replace("blobs::ort-cpu-noopt+w8a8_asym_pt", CELL).replace('when = "riscv64"\n', "")
        + "\n"
        + second
    )
    before = entries()
    code, out, err = qbench("quarantine", CELL, "--json")
    assert code == 0, err
    first, other = entries()
    assert {key: value for key, value in first.items() if key != "values"} == before[0]
    assert other == before[1]
    assert "\n\n# about another\n[[cell]]" in FILE.read_text()
    assert first["values"] == json.loads(out)["entry"]["values"] != {}
    written = FILE.read_text()
    code, _, err = qbench("quarantine", CELL)
    assert code == 2
    assert "item 1 of the file" in err
    assert FILE.read_text() == written
    code, _, err = qbench("quarantine", "blobs::ort-cpu-noopt+w8a8_asym_pc")
    assert code == 2
    assert "no --reason" in err


def last_record() -> dict[str, object]:
    newest = max(Path("reports/history").glob("*.jsonl"))
    (record,) = [
        one for one in map(json.loads, newest.read_text().splitlines()) if one["type"] == "cell"
    ]
    return record


@pytest.mark.slow
def test_runs_of_a_class_that_the_entry_excludes_give_it_no_values(project, qbench, fill_once):
    fill_once(project, accept_all)
    red_run(qbench, "--select", "schema=w8a8_asym_pc backend=ort-cpu")
    elsewhere = ("--when", "riscv64")
    code, _, err = qbench("quarantine", CELL, *GIVEN, *elsewhere)
    assert (code, "no failed run of it" in err) == (2, True)
    assert qbench("quarantine", CELL, *GIVEN, *elsewhere, "--measured", "x")[0] == 0
    assert "values" not in entries()[0]
    code, _, err = qbench("quarantine", CELL)  # the entry's own condition counts
    assert (code, "it listed until" in err) == (2, True)
    assert "values" not in entries()[0]
    here = str(last_record()["environment_class"]).partition("+")[0]
    assert qbench("quarantine", CELL, *GIVEN, "--when", here)[0] == 0
    assert set(entries()[1]["values"]) == {here}


@pytest.mark.slow
def test_an_entry_takes_values_of_each_class(project, qbench, fill_once):
    fill_once(project, accept_all)
    red_run(qbench, "--select", "schema=w8a8_asym_pc backend=ort-cpu")
    record = last_record()
    here, _, packages = str(record["environment_class"]).partition("+")
    old = {"agreement": 0.5}
    FILE.write_text(
        WRITTEN.replace("blobs::ort-cpu-noopt+w8a8_asym_pt", "*").replace('when = "riscv64"\n', "")
        + (
            f'\n[cell.values]\n"{CELL}" = {{ agreement = 0.5 }}\n\n[cell.values.{here}]\n'
            f'"x::a+b" = {{ top1 = 0.5 }}\n\n'
        )
        + WRITTEN
    )
    assert qbench("quarantine", "*", "--when", here)[0] == 0
    first, second = entries()
    assert second == tomllib.loads(WRITTEN)["cell"][0]
    assert first["values"][CELL] == old  # what was there, without a class
    assert set(first["values"][here]) == {CELL, "x::a+b"}
    newest = max(Path("reports/history").glob("*.jsonl"))
    newest.write_text(newest.read_text().replace(f"{here}+{packages}", f"riscv64+{packages}"))
    code, _, err = qbench("quarantine", "*", "--when", "riscv64")
    assert code == 0, err
    assert set(entries()[0]["values"]) == {CELL, here, "riscv64"}


@pytest.mark.slow
def test_entries_of_processes_at_once_are_all_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FILE.parent.mkdir()
    Path(SUITE).write_text(
        '[suite]\nbackends = ["ort-cpu"]\nschemas = ["w8a8_asym_pc"]\n\n[[model]]\n'
        'id = "digits_cnn"\n'
        'data = "digits_test"\ncalibration = { data = "digits_train", count = 8 }\n'
        'metrics = ["top1"]\n'
    )
    cells = [
        f"digits_cnn::*{end}"
        for end in ("_pc", "pc", "c", "*", "+*", "_asym_pc", "asym_pc", "w8a8_asym_pc")
    ]
    command = [sys.executable, "-m", "qbench", "quarantine"]

    def listed(cell):
        words = [*command, f"{SUITE}::{cell}", *GIVEN, "--measured", "x"]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(len(cells)) as threads:
        done = list(threads.map(listed, cells))
    assert [one.returncode for one in done] == [0] * len(cells), [one.stderr for one in done]
    assert sorted(one["cell"] for one in entries()) == sorted(cells)
    assert not list(FILE.parent.glob(".qbench*"))

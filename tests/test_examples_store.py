"""The example of a store from outside: pytest writes runs into it;
reports and a trend are read from it.
"""

import datetime
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qbench.errors import StoreError, UnavailableError
from qbench.tracking import FolderStore, History, HistoryIndex, RunWriter, merge_run_files

EXAMPLE = Path(__file__).parents[1] / "examples" / "own-store"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
AXES = {"suite": "s", "model": "m", "backend": "b", "schema": "s8"}


@pytest.fixture(scope="module")
def table_store():
    spec = importlib.util.spec_from_file_location("table_store", EXAMPLE / "table_store.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TableStore


def write_run(place, token, backends):
    writer = RunWriter.open(place, {"suite": "s"}, started=START, commit=None, token=token)
    for backend in backends:
        writer.write({"type": "cell", **AXES, "backend": backend, "outcome": "skipped"})
    return writer


@pytest.mark.slow
def test_pytest_writes_into_it_and_a_trend_is_read_from_it(tmp_path):
    shutil.copytree(
        EXAMPLE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST_"))
    }

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    suite = [
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--assert=plain",
        "suites/stored.qbench.toml",
    ]
    run(*suite, "--qbench-cache", "cache", "--qbench-accept-fp32", "--qbench-accept=new")
    run(*suite, "--qbench-cache", "cache", "--qbench-report=html")
    assert not (tmp_path / "reports/history").exists()
    assert "2 runs" in (tmp_path / "reports/index.html").read_text()
    fp32, int8 = sorted(line.split() for line in run("trend.py").splitlines())
    assert (fp32[0], int8[0]) == ("digits_cnn::ort-cpu+fp32", "digits_cnn::ort-cpu+w8a8_asym_pc")
    assert fp32[1:] == ["top1", "0.9917", "0.9917"]
    assert len(int8) == 4
    assert int8[2] == int8[3]


def test_it_gives_back_what_a_folder_gives_back(tmp_path, table_store):
    folder, table = FolderStore(tmp_path / "folder"), table_store(tmp_path / "history.db")
    for place in (folder, table):
        write_run(place, "t", ["a", "b"]).close(exit_code=0)
        write_run(place, "t", ["a"]).abandon()  # the same id: it gets a number
    of_folder, of_table = (History(place).runs() for place in (folder, table))
    assert [run.header for run in of_table] == [run.header for run in of_folder]
    assert [run.cells for run in of_table] == [run.cells for run in of_folder]
    assert [run.complete for run in of_table] == [True, False]
    assert History(table).problems == ()


def test_what_is_damaged_in_it_is_named(tmp_path, table_store):
    table = table_store(tmp_path / "history.db")
    write_run(table, "t", ["a"]).abandon()
    table.append("torn", b'{"type":"ru')
    table.append(table.runs()[0], b"rubbish\n")
    history = History(table)
    assert len(history.runs()) == 1
    assert [problem.split("'")[1] for problem in history.problems] == [table.runs()[0], "torn"]
    (tmp_path / "other.db").write_text("no database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        History(table_store(tmp_path / "other.db")).runs()


def test_merging_and_the_index_refuse_what_is_not_a_folder(tmp_path, table_store):
    table = table_store(tmp_path / "history.db")
    write_run(table, "t", ["a"]).close(exit_code=0)
    for act in (
        HistoryIndex(str(tmp_path / "index.sqlite")).update,
        lambda place: merge_run_files([tmp_path], place),
    ):
        with pytest.raises(UnavailableError) as caught:
            act(table)
        assert caught.value.found == "a history in a TableStore"
    assert (
        HistoryIndex(str(tmp_path / "index.sqlite")).update(FolderStore(tmp_path / "none")).runs
        == 0
    )

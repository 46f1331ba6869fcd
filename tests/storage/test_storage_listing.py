"""Listing a folder in which other processes make and remove their folders."""

import os
import shutil

import pytest

from qbench.cli import main
from qbench.storage import paths_below
from qbench.tracking import FolderStore
from qbench.tracking.store import run_files


@pytest.fixture
def held(tmp_path, monkeypatch):
    """A history whose folder of a lock is removed just before it is read, as its process may."""
    scandir = os.scandir

    def scan(place="."):
        if not isinstance(place, int) and os.path.basename(place) == ".qbench":
            shutil.rmtree(place)
        return scandir(place)

    (tmp_path / ".qbench" / "part-0").mkdir(parents=True)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.jsonl").write_text("{}\n")
    monkeypatch.setattr(os, "scandir", scan)
    return tmp_path


def test_a_folder_that_is_removed_meanwhile_holds_nothing(held):
    assert paths_below(held) == [held / ".qbench", held / "deep", held / "deep" / "a.jsonl"]
    assert not (held / ".qbench").exists()


def test_a_store_lists_its_runs_while_a_merge_ends_there(held):
    assert list(FolderStore(held).runs()) == [str(held / "deep" / "a.jsonl")]
    assert not (held / ".qbench").exists()


def test_run_files_are_listed_while_a_merge_ends_there(held):
    assert run_files(held) == ((held / "deep" / "a.jsonl",), ())
    assert not (held / ".qbench").exists()


@pytest.mark.parametrize("words", [("history", "check"), ("report", "--report", "md")])
def test_a_command_reads_the_history_while_a_merge_ends_there(held, words, capsys, monkeypatch):
    monkeypatch.chdir(held)
    main([*words, "--history", str(held)])
    assert os.strerror(2) not in capsys.readouterr().err
    assert not (held / ".qbench").exists()


def test_doctor_measures_a_cache_in_which_another_process_ends(held, monkeypatch, capsys):
    (held / "fp32" / ".qbench").mkdir(parents=True)
    monkeypatch.setenv("QBENCH_CACHE", str(held))
    monkeypatch.chdir(held)
    assert main(["doctor", "--json"]) == 0
    assert '"fp32": 0' in capsys.readouterr().out
    assert not (held / "fp32" / ".qbench").exists()


def test_what_is_not_there_or_no_folder_holds_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    assert paths_below(tmp_path / "none") == []
    assert paths_below(tmp_path / "file") == []


def test_a_link_to_a_folder_is_listed_and_not_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.jsonl").write_text("")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    assert paths_below(tmp_path / "here") == [tmp_path / "here" / "link"]


def test_another_reason_is_an_error(tmp_path, monkeypatch):
    def fails(place):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "scandir", fails)
    with pytest.raises(OSError, match="Input/output"):
        paths_below(tmp_path)

"""Every verb that takes a history takes the URL of one, and prints the same."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from trend_history import TrendHistory

pytest.importorskip("fsspec")

CELL = TrendHistory.CELL


def make_commits():
    TrendHistory(Path.cwd()).commits(16)


@pytest.fixture
def history(tmp_path, monkeypatch, fill_once):
    """A project of 16 commits whose nights are in a folder and behind ``history.url``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    fill_once(tmp_path, make_commits)
    made = TrendHistory(tmp_path)
    made.read_commits()
    made.nights([356] * 10 + [340] * 6)
    made.url = f"file://{tmp_path}/objects/nights"
    return made


@pytest.fixture
def stored(history, qbench):
    code, _, err = qbench("merge", "reports/history", "-o", history.url)
    assert (code, err) == (0, "")
    return history


VERBS = {
    "check": ("history", "check"),
    "check as JSON": ("history", "check", "--json"),
    "show": ("history", "show", CELL),
    "show as JSON": ("history", "show", CELL, "--json"),
    "compare": ("compare", "previous", "latest"),
    "compare as JSON": ("compare", "latest~8", "latest", "--json"),
    "export": ("export", "all"),
    "accept": ("accept", "latest", "--dry-run"),
    "samples": ("samples", "*"),
    "bisect": ("bisect", "commits", "--good", "latest~8", "--bad", "latest"),
    "no such run": ("compare", "latest", "ffff"),
    "no such cell": ("history", "show", "none::ort-cpu+fp32"),
}


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
def test_a_verb_prints_the_same_of_both(stored, qbench, words):
    of_folder = qbench(*words)
    of_url = qbench(*words, "--history", stored.url)
    known = [text.replace(str(stored.project), "").replace("\\", "/") for text in of_folder[1:]]
    shown = [
        text.replace(stored.url, "reports/history").replace(str(stored.project), "")
        for text in of_url[1:]
    ]
    assert (of_url[0], shown) == (of_folder[0], known)


def test_an_index_is_kept_in_the_cache_and_used(stored, qbench):
    first = qbench("history", "check", "--history", stored.url)
    code, out, _ = qbench("history", "index", "--history", stored.url, "--json")
    facts = json.loads(out)
    assert (code, facts["added"]) == (0, 16)
    assert Path(facts["index"]).is_relative_to(stored.project / "cache")
    assert qbench("history", "check", "--history", stored.url) == first
    code, out, _ = qbench("history", "index", "--history", stored.url, "--json")
    assert json.loads(out)["kept"] == 16


def test_a_store_that_went_away_is_one_sentence_next_to_an_index_too(stored, qbench, monkeypatch):
    assert qbench("history", "index", "--history", stored.url)[0] == 0

    def no_answer(*_args, **_options):
        raise TimeoutError

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.find", no_answer)
    code, out, err = qbench("history", "check", "--history", stored.url)
    assert (code, out, err.count("no answer in time")) == (2, "", 1)


def test_annotations_are_an_object_of_it(stored, qbench):
    stored.annotate(stored.hashes[10][:8], "expected")
    code, _, _ = qbench("history", "check", "--history", stored.url)
    assert code == 1
    objects = stored.project / "objects/nights"
    shutil.copy(stored.project / "reports/history/annotations.toml", objects)
    assert qbench("history", "check", "--history", stored.url)[0] == 0
    (objects / "annotations.toml").rename(objects / "other.toml")
    assert qbench("history", "check", "--history", stored.url)[0] == 1
    named = ("--annotations", f"{stored.url}/other.toml")
    assert qbench("history", "check", "--history", stored.url, *named)[0] == 0
    assert qbench("history", "check", *named)[0] == 0
    (objects / "other.toml").write_bytes(b"\xff")
    code, _, err = qbench("history", "check", *named)
    assert (code, err.count("\n"), f"{stored.url}/other.toml" in err) == (2, 1, True)


def test_a_page_is_drawn_of_it(stored, qbench):
    assert qbench("report", "--report", "md", "-o", "of-folder")[0] == 0
    assert qbench("report", "--report", "md", "-o", "of-url", "--history", stored.url)[0] == 0
    pages = [sorted(stored.project.glob(f"{one}/**/*.md")) for one in ("of-folder", "of-url")]
    assert [page.name for page in pages[0]] == [page.name for page in pages[1]] != []
    for one, other in zip(*pages, strict=True):
        assert one.read_text().replace("reports/history", stored.url) == other.read_text().replace(
            "reports/history", stored.url
        )


def test_a_folder_that_is_not_there_is_named_behind_a_url_too(history, qbench):
    for words in (("check",), ("show", CELL)):
        code, out, err = qbench("history", *words, "--history", f"{history.url}-other")
        assert (code, out) == (2, "")
        assert "found no such folder" in err


def test_one_object_is_named_as_a_run(stored, qbench):
    (first, *_) = sorted((stored.project / "objects/nights").glob("*.jsonl"))
    words = ("compare", f"{stored.url}/{first.name}", "latest", "--history", stored.url)
    code, out, err = qbench(*words, "--json")
    assert (code, err) == (1, "")
    assert json.loads(out)


def test_it_is_merged_back(stored, qbench):
    code, out, err = qbench("merge", stored.url, "-o", "copy", "--json")
    assert (code, err, len(json.loads(out)["added"])) == (0, "", 16)


def test_a_branch_takes_the_runs_of_it(stored, qbench):
    git = ("git", "-C", str(stored.project))
    subprocess.run([*git, "init", "--bare", "--quiet", "remote.git"], check=True)
    subprocess.run([*git, "remote", "add", "origin", "remote.git"], check=True)
    code, out, err = qbench("history", "push", "--history", stored.url, "--json")
    assert (code, json.loads(out)["added"]) == (0, 16), err
    code, out, err = qbench("history", "pull", "--history", "pulled", "--json")
    assert (code, len(json.loads(out)["added"])) == (0, 16), err


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://KEY:SeCrEt@bucket/x", "file://x", "s3:/x/y"])
@pytest.mark.parametrize(
    "words",
    [
        ("history", "check", "--history"),
        ("compare", "latest", "previous", "--history"),
        ("report", "--history"),
        ("plan", "s.qbench.toml", "--jobs", "2", "-o", "plan.json", "--history"),
        ("merge", "reports/history", "-o"),
        ("merge", "-o", "copy"),
    ],
    ids=" ".join,
)
def test_another_url_is_one_sentence(history, qbench, words, url):
    (history.project / "s.qbench.toml").write_text("[suite]\n")
    code, out, err = qbench(*words, url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "SeCrEt" not in err

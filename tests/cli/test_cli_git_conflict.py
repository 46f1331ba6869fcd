"""Files that git could not join: named by every reader, and joined by ``qbench merge
--conflict``.
"""

import dataclasses
import json
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest

from qbench.errors import IncomparableError, QbenchError
from qbench.judging import Accepted
from qbench.metrics import Answers
from qbench.storage import read_toml
from qbench.tracking import (
    AcceptedCell,
    Baseline,
    StoredData,
    find_baseline,
    joined_baselines,
    save_baseline,
)

RANKED = Answers(np.arange(20, dtype=np.int32).reshape(10, 2) % 4)
BASE = Baseline(
    model="net",
    model_digest="1" * 64,
    preprocessing="2" * 64,
    backend="ort-cpu",
    environment_class="here",
    metrics={"top1": 7},
    data={"points": StoredData(samples=10, digest="3" * 64, reference=RANKED.digest)},
    stored={"points": RANKED},
)


def result(value):
    return Accepted(predictions={"points": f"{value:064x}"}, metrics={"agreement": value})


def holding(classes, *, floors=None, slug="ort-cpu+w8a8", **more):
    cell = AcceptedCell(
        accepted={name: result(value) for name, value in classes.items()}, floors=floors or {}
    )
    return dataclasses.replace(BASE, cells={slug: cell}, **more)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@b"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.replace("AUTHOR", "COMMITTER"), value)
    git("init", "-q", "-b", "main")
    return tmp_path


def git(*words, code=0):
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def conflict(path, write, sides):
    """Two branches that change the file at ``path`` after a first commit of it,
    merged into a conflict.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for branch, side in zip((None, "theirs", "main"), sides, strict=True):
        if branch is not None:
            git("checkout", "-q", *([] if branch == "main" else ["-b"]), branch)
        write(side)
        git("add", ".")
        git("commit", "-q", "-m", "x")
    git("merge", "theirs", code=1)
    assert b"<<<<<<<" in path.read_bytes()


def test_both_sides_of_a_baseline_are_kept(repository, qbench):
    path = repository / "baselines" / "s" / "net.json"
    sides = [
        holding(
            {"a": 5, "z": 2}, floors={"agreement": 4}, calibrations={"default": {"x": (0.0, 1.0)}}
        ),
        holding(
            {"a": 5, "c": 7, "z": 2},
            floors={"agreement": 3},
            calibrations={"default": {"x": (0.0, 1.0)}},
        ),
        holding(
            {"a": 6, "b": 8, "z": 2},
            floors={"agreement": 5},
            calibrations={"default": {"x": (0.0, 2.0)}},
        ),
    ]
    conflict(path, lambda side: save_baseline(path, side), sides)
    with pytest.raises(QbenchError, match="conflict markers of git"):
        find_baseline(path)
    with pytest.raises(QbenchError, match="qbench merge --conflict") as caught:
        find_baseline(path, keep_whole_parts=True)
    command = caught.value.remedy.rpartition("qbench ")[2].rstrip(".").split()
    code, out, err = qbench(*command)
    assert code == 0, err
    joined = find_baseline(path)
    (cell,) = joined.cells.values()
    assert cell.accepted == {"a": result(6), "b": result(8), "c": result(7), "z": result(2)}
    assert cell.floors == {"agreement": 3}
    assert joined.calibrations == {"default": {"x": (0.0, 2.0)}}
    assert "git add" in out
    git(*out.partition("git ")[2].split())
    git("commit", "-q", "-m", "joined")


def test_one_class_that_both_sides_changed_is_refused_and_left_alone(repository, qbench):
    path = repository / "baselines" / "s" / "net.json"
    conflict(
        path, lambda side: save_baseline(path, side), [holding({"a": value}) for value in (5, 6, 7)]
    )
    before = path.read_bytes()
    code, _, err = qbench("merge", "--conflict", str(path))
    assert code == 3
    assert "ort-cpu+w8a8 in a" in err
    assert path.read_bytes() == before


@pytest.mark.parametrize("without_base", [False, True])
def test_what_one_side_deleted_or_added(without_base):
    base = None if without_base else holding({"a": 1, "b": 2})
    joined = joined_baselines(base, holding({"a": 1}), holding({"a": 1, "b": 2}), "Joining")
    assert joined.cells["ort-cpu+w8a8"].accepted.keys() == ({"a", "b"} if without_base else {"a"})
    other = dataclasses.replace(BASE, model_digest="9" * 64)
    with pytest.raises(IncomparableError):
        joined_baselines(base, holding({"a": 1}), other, "Joining")


def entry(name, reason="r"):
    return (
        f'[[cell]]\ncell = "{name}"\nmeasured = "m"\nreason = "{reason}"\nowner = "o"\n'
        'expires = "2030-01-01"\n'
    )


HEAD = "# known to be bad\n\n"


@pytest.mark.parametrize("name", ["s.quarantine.toml", "annotations.toml"])
def test_both_sides_of_entries_are_kept(name, repository, qbench):
    path = repository / "suites" / name
    texts = [
        HEAD + entry("gone") + "\n" + entry("changed") + "\n" + entry("a"),
        HEAD + entry("changed", "theirs") + "\n" + entry("a") + "\n" + entry("c"),
        HEAD + entry("gone") + "\n" + entry("changed") + "\n" + entry("a") + "\n" + entry("b"),
    ]
    conflict(path, path.write_text, texts)
    with pytest.raises(QbenchError, match="conflict markers of git"):
        read_toml(path)
    code, _, err = qbench("merge", "--conflict", str(path))
    assert code == 0, err
    found = {one["cell"]: one["reason"] for one in tomllib.loads(path.read_text())["cell"]}
    assert found == {"a": "r", "changed": "theirs", "b": "r", "c": "r"}
    assert path.read_text().startswith(HEAD.rstrip())
    assert not list(path.parent.glob(".qbench*"))


@pytest.mark.parametrize("file", ["suites/s.qbench.toml", "schemas/x.toml", "pyproject.toml"])
def test_a_file_without_a_merge_is_one_sentence(file, repository, qbench):
    path = repository / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("<<<<<<< HEAD\na = 1\n=======\na = 2\n>>>>>>> theirs\n")
    with pytest.raises(QbenchError, match="conflict markers of git"):
        read_toml(path)
    code, _, err = qbench("merge", "--conflict", file)
    assert code == 3  # one setting with two values
    assert err.count("\n") == 1
    path.write_text("<<<<<<< HEAD\na = 1\n>>>>>>> theirs\n")
    code, _, err = qbench("merge", "--conflict", file)
    assert (code, err.count("\n")) == (2, 1)
    assert "no two sides" in err


@pytest.mark.parametrize("style", ["merge", "diff3"])
def test_markers_that_were_committed_are_joined_from_the_file(style, repository, qbench):
    git("config", "merge.conflictStyle", style)
    baseline = repository / "baselines" / "s" / "net.json"
    sides = [holding({"z": 2}), holding({"c": 7, "z": 2}), holding({"b": 8, "z": 2})]
    conflict(baseline, lambda side: save_baseline(baseline, side), sides)
    git("commit", "-q", "-a", "-m", "with its markers")
    code, _, err = qbench("merge", "--conflict", str(baseline))
    assert code == 0, err
    assert find_baseline(baseline).cells["ort-cpu+w8a8"].accepted == {
        "b": result(8),
        "c": result(7),
        "z": result(2),
    }
    git("commit", "-q", "-a", "-m", "joined")
    listed = repository / "suites" / "s.quarantine.toml"
    git("branch", "-D", "theirs")
    texts = [
        HEAD + entry("a"),
        HEAD + entry("a") + "\n" + entry("c"),
        HEAD + entry("a") + "\n" + entry("b"),
    ]
    conflict(listed, listed.write_text, texts)
    git("commit", "-q", "-a", "-m", "with its markers")
    code, _, err = qbench("merge", "--conflict", str(listed))
    assert code == 0, err
    assert {one["cell"] for one in tomllib.loads(listed.read_text())["cell"]} == {"a", "b", "c"}


def test_words_that_look_like_markers_are_none(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('text = """\n=======\n<<<<<<<< eight\n"""\n')
    assert read_toml(Path(path)) == {"text": "=======\n<<<<<<<< eight\n"}


def test_a_baseline_of_a_newer_qbench_is_refused_by_name(tmp_path):
    path = tmp_path / "net.json"
    save_baseline(path, holding({"a": 1}))
    table = json.loads(path.read_text())
    path.write_text(json.dumps(table | {"format": "qbench-baseline/99"}))
    for keeps in (False, True):
        with pytest.raises(QbenchError, match="made by a newer qbench"):
            find_baseline(path, keep_whole_parts=keeps)

"""The main line of a repository, and a second working tree of it."""

import subprocess
from pathlib import Path

import pytest

from qbench.errors import StoreError
from qbench.host import Worktree, first_parents, subject_line, tree_hash, whole_hash


def git(folder: Path, *arguments: str) -> str:
    names = [
        "-c",
        "user.name=ann",
        "-c",
        "user.email=ann@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    done = subprocess.run(
        ["git", "-C", str(folder), *names, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits on the line, the last of them a merge of a branch with one of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "rule.txt").write_text("even")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "checkout", "-q", "-b", "side")
    git(folder, "commit", "-q", "--allow-empty", "-m", "aside")
    git(folder, "checkout", "-q", "main")
    (folder / "rule.txt").write_text("away")
    git(folder, "commit", "-q", "-a", "-m", "second")
    git(folder, "merge", "-q", "--no-ff", "-m", "merged", "side")
    return folder


def test_the_main_line_leaves_branches_out(repository: Path) -> None:
    line = first_parents(repository)
    assert [subject_line(commit, repository) for commit in line] == ["first", "second", "merged"]
    assert first_parents(repository, behind=line[0]) == line[1:]
    assert first_parents(repository, until=line[1]) == line[:2]


def test_names_become_hashes(repository: Path) -> None:
    assert whole_hash("main", repository) == git(repository, "rev-parse", "HEAD")
    assert whole_hash("main~9", repository) == whole_hash("--all", repository) == ""
    assert (
        tree_hash("main", repository)
        == tree_hash("main~1", repository)
        != tree_hash("main~2", repository)
    )


def test_elsewhere_there_is_no_line(tmp_path: Path) -> None:
    assert first_parents(tmp_path) == ()
    assert (
        whole_hash("HEAD", tmp_path)
        == subject_line("HEAD", tmp_path)
        == tree_hash("HEAD", tmp_path)
        == ""
    )


def test_a_working_tree_holds_one_commit_and_leaves_the_checkout_alone(
    repository: Path, tmp_path: Path
) -> None:
    line = first_parents(repository)
    (repository / "mine.txt").write_text("not committed")
    with Worktree(repository, tmp_path / "tree") as tree:
        tree.check_out(line[0])
        assert (tree.folder / "rule.txt").read_text() == "even"
        (tree.folder / "built.o").write_text("of the first")
        (tree.folder / "rule.txt").write_text("changed by a build")
        tree.check_out(line[1])
        assert [p.name for p in tree.folder.iterdir() if p.name != ".git"] == ["rule.txt"]
        assert (tree.folder / "rule.txt").read_text() == "away"
        with pytest.raises(StoreError, match="Checking out"):
            tree.check_out("f" * 40)
    assert not tree.folder.exists()
    assert (repository / "mine.txt").exists()
    assert git(repository, "worktree", "list").count("\n") == 0


def test_without_a_repository_there_is_no_working_tree(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match="Making a working tree"),
        Worktree(tmp_path, tmp_path / "tree"),
    ):
        pass

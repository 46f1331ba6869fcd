"""The workflows that users copy: their keys, and their shell steps run on a scratch repository
with a bare remote.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
STARTERS = ROOT / "qbench" / "cli" / "starter"
WORKFLOWS = ("nightly.yml", "pull-request.yml")
BRANCH = "qbench-history"
PUSH, COMMENT = "Add this night to the history", "Comment on the pull request"

PYTHON = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
"""
"""The first lines of a program in Python whose path may hold blanks, which a shebang may not:
a shell starts it.
"""

GH = """
import json, os, shutil, subprocess, sys

arguments = sys.argv[1:]
folder = os.environ["FORGE"]
if os.path.exists(f"{folder}/read-only") and "--method" in arguments:
    sys.exit("gh: Resource not accessible by integration (HTTP 403)")
place = next(one for one in arguments if one.startswith("repos/"))
file = f"{folder}/comments.json"
comments = json.load(open(file)) if os.path.exists(file) else []
if "--method" in arguments:
    body = next(one for one in arguments if one.startswith("body=@")).removeprefix("body=@")
    number = int(place.rpartition("/")[2]) if "PATCH" in arguments else len(comments) + 1
    ours = {"id": number, "user": {"type": "Bot"}, "body": open(body).read()}
    comments = [one for one in comments if one["id"] != number] + [ours]
    json.dump(comments, open(file, "w"))
if "--jq" in arguments:
    query = arguments[arguments.index("--jq") + 1]
    people = [{"id": 99, "user": {"type": "User"}, "body": "<!-- qbench --> not ours"}]
    if shutil.which("jq"):
        text = json.dumps(people + comments)
        subprocess.run(["jq", "-r", query], input=text, text=True, check=True)
    else:
        ours = [one["id"] for one in comments if one["body"].startswith("<!-- qbench -->")]
        print(*ours, sep="\\n")
"""
"""A forge with one pull request, on which a person has written a comment that looks like ours."""


def read_yaml(path):
    # YAML 1.1 reads the key "on" as true; GitHub reads YAML 1.2
    text = re.sub(r"^on:", '"on":', path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return yaml.safe_load(text)


def shell_steps(path):
    """Name → command of the steps that run a shell, in their order."""
    (job,) = (job for name, job in read_yaml(path)["jobs"].items() if name == "bench")
    return {step["name"]: step for step in job["steps"] if "run" in step}


class Machine:
    """A runner: it checks out a branch of the remote,
    and runs the shell steps of a workflow as GitHub does.
    """

    def __init__(self, root, remote, cache):
        self.root, self.remote, self.cache = root, remote, cache
        self.forge = root / "forge"
        programs = root / "bin"
        self.forge.mkdir()
        programs.mkdir()
        modules = {
            "pip": "raise SystemExit(0)",
            "qbench": "import qbench.cli; raise SystemExit(qbench.cli.main())",
        }
        modules["pytest"] = "import pytest; raise SystemExit(pytest.main())"
        for name, text in modules.items():
            self.program(programs / name, f"{PYTHON}{text}\n")
        self.program(programs / "gh", PYTHON + GH)
        self.path = f"{programs}{os.pathsep}{os.environ['PATH']}"

    @staticmethod
    def program(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def check_out(self, number, branch="main"):
        """A fresh checkout of ``branch``, and its temporary folder."""
        place = self.root / f"run{number}"
        git(
            self.root,
            "clone",
            "-q",
            "--depth=1",
            f"--branch={branch}",
            self.remote.as_uri(),
            str(place),
        )
        (self.root / f"temp{number}").mkdir()
        return place

    def run(self, workflow, number, branch="main"):
        """Run the steps in a fresh checkout; (checkout, outcome and output of each step)."""
        place = self.check_out(number, branch)
        return place, self.steps(workflow, place)

    def steps(self, workflow, place, only=None):
        """Run the steps, or the step ``only``, in the checkout ``place``."""
        number = place.name.removeprefix("run")
        environment = {
            "PATH": self.path,
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_REPOSITORY": "somebody/nets",
            "GITHUB_SERVER_URL": "https://example.org",
            "GITHUB_RUN_ID": number,
            "GITHUB_STEP_SUMMARY": str(place.parent / f"summary{number}.md"),
            "RUNNER_TEMP": str(place.parent / f"temp{number}"),
            "FORGE": str(self.forge),
            "PYTEST_ADDOPTS": (
                f"--qbench-cache={self.cache} -p no:xdist -p no:hypothesispytest --assert=plain"
            ),
            "PULL": "7",
            "GH_TOKEN": "token",
        }
        done, failed = {}, False
        for name, step in shell_steps(STARTERS / workflow).items():
            if only not in (None, name):
                continue
            if failed and "always()" not in str(step.get("if", "")):
                continue
            if (
                "comment.md" in str(step.get("if", ""))
                and not (place / "site" / "comment.md").is_file()
            ):
                continue
            assert "${{" not in step["run"], (
                "an expression in a script can be a script of a stranger"
            )
            one = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=place,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            failed = failed or one.returncode != 0
            done[name] = one
        return done


def git(folder, *words):
    identity = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def machine(project, tmp_path_factory):
    """The scratch project, accepted and pushed, as its repository on a forge, and a runner."""
    project.accept()
    (project.path / ".gitignore").write_text("reports/\n__pycache__/\n.pytest_cache/\n")
    (project.path / "pytest.ini").write_text("[pytest]\nqbench_localize = 0\n")
    (project.path / "tox.ini").unlink()
    root = tmp_path_factory.mktemp("machines")
    git(root, "init", "-q", "--bare", "remote")
    git(project.path, "init", "-q")
    git(project.path, "add", ".")
    git(project.path, "commit", "-q", "-m", "suite and baselines")
    git(project.path, "push", "-q", str(root / "remote"), "HEAD:main")
    return Machine(root, root / "remote", project.cache)


def on_branch(machine):
    if BRANCH not in git(machine.remote, "branch", "--list", BRANCH):
        return []
    return git(machine.remote, "ls-tree", "--name-only", BRANCH).split()


@pytest.mark.slow
def test_nights_are_kept_on_a_branch_that_the_first_one_makes(machine, project):
    place, first = machine.run("nightly.yml", 1)
    assert {name: one.returncode for name, one in first.items()} == dict.fromkeys(first, 0), first
    names = on_branch(machine)
    assert sorted(name.rpartition(".")[2] for name in names) == ["json", "jsonl"]
    badge = json.loads(git(machine.remote, "show", f"{BRANCH}:badge.json"))
    assert badge == {
        "schemaVersion": 1,
        "label": "qbench",
        "message": "8 cells green",
        "color": "brightgreen",
    }
    assert json.loads((place / "site" / "badge.json").read_text()) == badge
    assert (place / "site" / "index.html").is_file()
    assert "# qbench scratch" in (machine.root / "summary1.md").read_text()
    assert git(place, "status", "--porcelain").split() == [
        "??",
        "site/",
    ]  # neither index nor tree was touched

    push_in_between(machine, project)
    place, second = machine.run("nightly.yml", 2)
    assert {one.returncode for one in second.values()} == {0}, second[PUSH].stderr
    assert len(list((place / "reports" / "history").glob("*.jsonl"))) == 2
    assert {*names, "other.jsonl"} < set(on_branch(machine))
    assert len(on_branch(machine)) == 4
    assert git(machine.remote, "rev-list", "--count", BRANCH).strip() == "3"
    assert git(machine.remote, "rev-list", "--count", "main").strip() == "1"


def push_in_between(machine, project):
    """A hook of the remote: between fetch and push
    of the next night another night is pushed, once.
    """
    (other,) = project.run_files
    hook = machine.remote / "hooks" / "pre-receive"
    machine.program(
        hook,
        f"""#!/bin/sh
        rm "$0"
        unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
        blob=$(git hash-object -w '{other}')
        tree=$( (git ls-tree {BRANCH}; printf '100644 blob %s\\tother.jsonl\\n' $blob) | git mktree)
        commit=$(git -c user.name=t -c user.email=t commit-tree $tree -p {BRANCH} -m other)
        git update-ref refs/heads/{BRANCH} $commit
        """,
    )


@pytest.mark.slow
def test_a_night_that_may_not_push_ends_with_one_sentence(machine, project):
    hook = machine.remote / "hooks" / "pre-receive"
    machine.program(
        hook,
        "#!/bin/sh\n"
        "echo 'Permission to somebody/nets.git denied to github-actions[bot].'\n"
        "exit 1\n",
    )
    place = machine.check_out(1)
    shutil.copytree(project.path / "reports", place / "reports")
    push = machine.steps("nightly.yml", place, PUSH)[PUSH]
    assert push.returncode == 2
    assert "contents: write" in push.stderr
    assert "denied" in push.stderr
    assert [
        line for line in push.stderr.splitlines() if "does not exist: left out" not in line
    ] == [push.stderr.splitlines()[-1]]
    assert on_branch(machine) == []
    assert len(list((place / "reports" / "history").glob("*.jsonl"))) == 1


@pytest.mark.slow
def test_a_pull_request_is_compared_with_the_newest_night_in_one_comment(machine, project):
    machine.run("nightly.yml", 1)
    project.write_suite(project.suite_path.read_text().replace("count = 64", "count = 2", 1))
    git(project.path, "checkout", "-q", "-b", "less")
    git(project.path, "commit", "-q", "-a", "-m", "less calibration")
    git(project.path, "push", "-q", str(machine.remote), "less")
    before = on_branch(machine)

    place, done = machine.run("pull-request.yml", 2, branch="less")
    assert [name for name, one in done.items() if one.returncode] == ["Run the suites"]
    (comment,) = json.loads((machine.forge / "comments.json").read_text())
    rows = [line for line in comment["body"].splitlines() if line.startswith("| `tiny")]
    assert len(rows) == 2
    assert all("`tiny_a::ort-cpu" in row and "✓ passed → " in row for row in rows)
    assert "2 of 8 cells differ" in comment["body"]
    night = git(project.path, "rev-parse", "--short=9", "main").strip()
    assert f"commit `{night}`" in comment["body"]
    assert on_branch(machine) == before  # a pull request is no night

    again = machine.steps("pull-request.yml", place, COMMENT)
    assert again[COMMENT].returncode == 0
    (second,) = json.loads((machine.forge / "comments.json").read_text())
    assert second["id"] == comment["id"]

    (machine.forge / "read-only").touch()  # as of a pull request from a fork
    refused = machine.steps("pull-request.yml", place, COMMENT)[COMMENT]
    assert refused.returncode == 0
    (line,) = refused.stdout.splitlines()
    assert line.startswith("::notice title=qbench::")
    assert "Resource not accessible by integration" in line
    assert "https://example.org/somebody/nets/actions/runs/2" in comment["body"]
    assert (place / "site" / "comment.md").read_text().startswith(comment["body"])


WORKFLOW_KEYS = {"name", "on", "concurrency", "permissions", "defaults", "jobs"}
JOB_KEYS = {"runs-on", "timeout-minutes", "permissions", "steps", "needs", "if", "environment"}
STEP_KEYS = {"name", "id", "if", "uses", "with", "run", "env", "shell"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_have_the_keys_of_workflows_and_ask_for_little(name):
    workflow = read_yaml(STARTERS / name)
    assert set(workflow) <= WORKFLOW_KEYS
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["defaults"]["run"]["shell"] == "bash"
    assert "pull_request_target" not in workflow["on"]
    for job in workflow["jobs"].values():
        assert set(job) <= JOB_KEYS
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert set(step) <= STEP_KEYS
            assert ("uses" in step) is not ("run" in step)
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/x@v1"))


def test_each_job_asks_for_what_it_writes_and_no_more():
    asked = {
        (name, job): fields.get("permissions")
        for name in WORKFLOWS
        for job, fields in read_yaml(STARTERS / name)["jobs"].items()
    }
    assert asked == {
        ("nightly.yml", "bench"): {"contents": "write"},
        ("nightly.yml", "publish"): {"pages": "write", "id-token": "write"},
        ("pull-request.yml", "bench"): {"contents": "read", "pull-requests": "write"},
    }


def test_workflows_name_nothing_that_only_this_repository_has():
    for name in WORKFLOWS:
        text = (STARTERS / name).read_text(encoding="utf-8")
        assert not re.search(r"\bmake\b|constraints\.txt|benchmarks/|qbench-zoo", text)


def test_the_action_does_what_the_workflows_do():
    action = read_yaml(ROOT / "action.yml")
    assert set(action) == {"name", "description", "inputs", "runs"}
    assert action["runs"]["using"] == "composite"
    steps = {step["name"]: step for step in action["runs"]["steps"]}
    assert all(
        set(step) <= STEP_KEYS and ("uses" in step or step["shell"] == "bash")
        for step in steps.values()
    )
    assert not any("${{" in step.get("run", "") for step in steps.values())
    assert set(action["inputs"]) == set(
        re.findall(r"\$\{\{ inputs\.(\w+) \}\}", (ROOT / "action.yml").read_text())
    )
    of_workflows = {
        **shell_steps(STARTERS / "nightly.yml"),
        **shell_steps(STARTERS / "pull-request.yml"),
    }
    assert {name for name, step in steps.items() if "run" in step} == set(of_workflows)
    assert steps[COMMENT]["run"] == of_workflows[COMMENT]["run"]
    for name in (PUSH, "Get the history"):
        assert steps[name]["run"].replace(' --branch "$BRANCH"', "") == of_workflows[name]["run"]
    runs = [shell_steps(STARTERS / name)["Run the suites"]["run"] for name in WORKFLOWS]
    assert set(steps["Run the suites"]["run"].split()) - {"$SUITES"} == set(
        " ".join(runs).split()
    ) - {"suites"}


@pytest.mark.parametrize("action", ["pull", "push"])
@pytest.mark.parametrize("place", ["no repository", "no remote", "a remote that is gone"])
def test_a_history_that_cannot_be_fetched_is_one_sentence(
    action, place, tmp_path, monkeypatch, capsys, project
):
    monkeypatch.chdir(tmp_path)
    history = tmp_path / "reports" / "history"
    history.mkdir(parents=True)
    if place != "no repository":
        git(tmp_path, "init", "-q")
    if place == "a remote that is gone":
        git(tmp_path, "remote", "add", "origin", str(tmp_path / "gone"))
    from qbench.cli import main

    assert main(["history", action]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "--remote" in error
    assert not list(history.iterdir())


def test_a_whole_clone_stays_whole_when_it_gets_the_history(machine, project, monkeypatch, capsys):
    from qbench.cli import main

    monkeypatch.chdir(project.path)
    git(project.path, "remote", "add", "origin", machine.remote.as_uri())
    for _ in range(2):
        git(project.path, "commit", "-q", "--allow-empty", "-m", "more")
    assert main(["history", "push", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 1
    assert main(["history", "push", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 0
    assert git(machine.remote, "rev-list", "--count", BRANCH).strip() == "1"
    (file,) = project.run_files
    data = file.read_bytes()
    file.unlink()
    assert main(["history", "pull"]) == 0
    assert file.read_bytes() == data
    assert git(project.path, "rev-parse", "--is-shallow-repository").strip() == "false"
    assert git(project.path, "rev-list", "--count", "HEAD").strip() == "3"

"""What ``qbench init --ci`` writes for a night on many machines: its YAML is read, and its shell
steps are run on a scratch repository, with what the scheduler does made of copies of files.
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

JOBS = 3
CELLS = 8
PROGRAMS = {
    "pip": "raise SystemExit(0)",
    "qbench": "import qbench.cli; raise SystemExit(qbench.cli.main())",
    "pytest": "import pytest; raise SystemExit(pytest.main())",
}
PYTHON = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
"""
SBATCH = """
import json, os, subprocess, sys

state = os.path.join(os.environ["SLURM_STUB"], "jobs.json")
jobs = json.load(open(state)) if os.path.exists(state) else []
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:] if word.startswith("--"))
script, *arguments = [word for word in sys.argv[1:] if not word.startswith("--")]
kind, _, waits_for = options.get("dependency", ":").partition(":")
before = [jobs[int(name) - 1] for name in waits_for.split(":") if name]
failed = [job for job in before if job["state"] != "COMPLETED"]
job = {"script": script, "dependency": kind, "array": options.get("array", ""), "codes": {}}
if kind == "afternotok" and len(failed) < len(before):
    job["state"] = "CANCELLED"  # --kill-on-invalid-dep
else:
    first, _, last = options.get("array", "").partition("-")
    for index in range(int(first), int(last) + 1) if first else [0]:
        more = {"SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_TASK_MIN": first} if first else {}
        killed = json.loads(os.environ.get("SLURM_KILLS", "{}"))
        if str(index) in killed and kind != "afternotok":
            more["PYTEST_ADDOPTS"] = os.environ["PYTEST_ADDOPTS"] + " -p killer"
        done = subprocess.run(["bash", script, *arguments], env={**os.environ, **more}, stdout=2)
        job["codes"][index] = done.returncode
    job["state"] = "FAILED" if any(job["codes"].values()) else "COMPLETED"
json.dump([*jobs, job], open(state, "w"))
print(len(jobs) + 1)
"""
"""Runs a job at once, in the order of submission, as a cluster with one free node would."""
KILLER = """
import os, signal


def pytest_runtest_logreport(report):
    if report.when == "call":
        os.kill(os.getpid(), signal.SIGKILL)  # as a node that is lost
"""


def git(folder, *words):
    identity = ("-c", "user.name=t", "-c", "user.email=t@e.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, check=True)


class Site:
    """A bare remote of the scratch project with the files of ``scheduler``, and the machines that
    check it out.
    """

    def __init__(self, project, root, scheduler):
        self.root, self.cache = root, project.cache
        self.folder = project.path
        write = "import sys, qbench.cli; sys.exit(qbench.cli.main(sys.argv[1:]))"
        words = ["init", "--ci", scheduler, "--jobs", str(JOBS), "--package", "0.1.0"]
        subprocess.run([sys.executable, "-c", write, *words], cwd=project.path, check=True)
        (project.path / ".gitignore").write_text("reports/\n__pycache__/\n.pytest_cache/\n")
        (project.path / "pytest.ini").write_text("[pytest]\nqbench_localize = 0\n")
        (project.path / "tox.ini").unlink()
        git(root, "init", "-q", "--bare", "remote")
        git(project.path, "init", "-q")
        git(project.path, "add", ".")
        git(project.path, "commit", "-q", "-m", "suite, baselines and jobs")
        git(project.path, "push", "-q", str(root / "remote"), "HEAD:main")
        programs = root / "bin"
        programs.mkdir()
        for name, text in {**PROGRAMS, "sbatch": SBATCH}.items():
            (programs / name).write_text(f"{PYTHON}{text}\n")
            (programs / name).chmod(0o755)

    def check_out(self, name):
        remote = (self.root / "remote").as_uri()
        git(self.root, "clone", "-q", "--branch=main", remote, name)
        return self.root / name

    def run(self, place, script, **more):
        """The shell ``script`` in the checkout ``place``, as CI runs it."""
        options = f"--qbench-cache={self.cache} -p no:xdist -p no:hypothesispytest --assert=plain"
        environment = {
            "PATH": f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "CI": "true",
            "PYTEST_ADDOPTS": options,
            **more,
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def site(project, tmp_path_factory):
    def make(scheduler):
        project.accept()
        shutil.rmtree(project.path / "reports")
        return Site(project, tmp_path_factory.mktemp("machines"), scheduler)

    return make


def read_yaml(path):
    # YAML 1.1 reads the key "on" as true; GitHub reads YAML 1.2
    text = re.sub(r"^on:", '"on":', path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return yaml.safe_load(text)


def cells_of(folder):
    """The cells in all run files below ``folder``."""
    lines = [
        json.loads(line)
        for path in folder.rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [
        (line["model"], line["backend"], line["schema"]) for line in lines if line["type"] == "cell"
    ]


class Github:
    """Runs the jobs of a workflow on a ``site``; artifacts are folders."""

    def __init__(self, site, workflow):
        self.site, self.jobs = site, workflow["jobs"]
        self.artifacts = site.root / "artifacts"
        self.outputs = {}
        self.attempt = 1

    def run(self, name, number="", skip=()):
        """The job called ``name`` (``number`` of its matrix): outcome of each step that ran."""
        place = self.site.check_out(f"{name}{number}")
        done, failed = {}, False
        for step in self.jobs[name]["steps"]:
            called = step.get("name", step.get("uses"))
            if called in skip or (failed and "always()" not in str(step.get("if", ""))):
                continue
            if "run" in step:
                done[called] = one = self.shell(place, step, number)
                failed = failed or one.returncode != 0
            else:
                self.action(place, step["uses"], self.filled(step.get("with", {}), number))
        return place, done

    def shell(self, place, step, number):
        assert "${{" not in step["run"]
        output = place.parent / f"{place.name}.output"
        more = self.filled(step.get("env", {}), number)
        done = self.site.run(place, step["run"], GITHUB_OUTPUT=str(output), **more)
        if output.exists():
            self.outputs |= dict(
                line.split("=", 1) for line in output.read_text().splitlines() if line
            )
        return done

    def filled(self, table, number):
        texts = {"matrix.job": str(number), "github.run_attempt": str(self.attempt)}
        return {
            key: re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: texts[found[1]], str(value))
            for key, value in table.items()
        }

    def action(self, place, uses, given):
        if uses.startswith("actions/upload-artifact"):
            for path in given["path"].split():
                if (place / path).exists():
                    target = self.artifacts / given["name"] / Path(path).name
                    assert not target.exists(), "an artifact is written once"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    copy = shutil.copytree if (place / path).is_dir() else shutil.copy
                    copy(place / path, target)
        elif uses.startswith("actions/download-artifact"):
            for artifact in sorted(self.artifacts.glob(given.get("name", given.get("pattern")))):
                target = place / given.get("path", ".") / ("" if "name" in given else artifact.name)
                shutil.copytree(artifact, target, dirs_exist_ok=True)


@pytest.mark.slow
def test_a_matrix_of_github_measures_each_cell_once_and_names_what_is_missing(site):
    machines = site("github")
    path = machines.folder / ".github" / "workflows" / "nightly.yml"
    github = Github(machines, read_yaml(path))
    _, planned = github.run("plan")
    assert {one.returncode for one in planned.values()} == {0}, planned
    numbers = json.loads(github.outputs["jobs"])
    assert numbers == [1, 2, 3]
    for number in numbers[:2]:
        _, done = github.run("measure", number)
        assert {one.returncode for one in done.values()} == {0}, done
    push = "Add this night to the history"
    _, done = github.run("bench", skip=[push])
    assert done["Put the jobs together"].returncode == 4
    assert done["Write the report"].returncode == 0
    github.attempt = 2  # 'Re-run failed jobs'
    github.run("measure", 3)
    shutil.rmtree(machines.root / "bench")
    place, done = github.run("bench")
    assert {one.returncode for one in done.values()} == {0}, done
    measured = cells_of(place / "reports" / "history")
    assert len(measured) == len(set(measured)) == CELLS
    assert (place / "site" / "index.html").is_file()


@pytest.mark.slow
def test_parallel_jobs_of_gitlab(site):
    machines = site("gitlab")
    pipeline = read_yaml(machines.folder / ".gitlab-ci.yml")
    kept = machines.root / "artifacts"
    kept.mkdir()

    def run(name, number=0):
        """A job, with the artifacts of those it needs."""
        job = pipeline[name]
        place = machines.check_out(f"{name}{number}")
        shutil.copytree(kept, place, dirs_exist_ok=True)
        script = "\n".join([*pipeline["default"]["before_script"], *job["script"]])
        more = {"CI_NODE_INDEX": str(number), "CI_NODE_TOTAL": str(JOBS)} if number else {}
        done = machines.run(place, script, **more)
        for path in job["artifacts"]["paths"]:
            if (place / path).is_dir():
                shutil.copytree(place / path, kept / path, dirs_exist_ok=True)
            elif (place / path).exists():
                shutil.copy(place / path, kept / path)
        return place, done

    assert run("plan")[1].returncode == 0
    for number in (1, 3):
        assert run("measure", number)[1].returncode == 0
    place, merged = run("merge")
    assert merged.returncode == 4, merged.stderr
    assert (place / "site" / "index.html").is_file()
    assert run("measure", 2)[1].returncode == 0
    shutil.rmtree(place)
    place, merged = run("merge")
    assert merged.returncode == 0, merged.stderr
    measured = cells_of(place / "reports" / "history")
    assert len(set(measured)) == CELLS


@pytest.mark.slow
def test_an_array_of_slurm_goes_on_where_a_lost_node_ended(site):
    machines = site("slurm")
    place = machines.check_out("bench")
    (place / "killer.py").write_text(KILLER)
    stub = machines.root / "slurm"
    stub.mkdir()
    more = {"SLURM_STUB": str(stub), "SLURM_KILLS": '{"2": 1}', "PYTHONPATH": str(place)}
    done = machines.run(place, "bash slurm/night.sh", **more)
    assert done.returncode == 0, done.stderr
    first, second, third, fourth, merge = json.loads((stub / "jobs.json").read_text())
    assert first["array"] == second["array"] == f"1-{JOBS}"
    assert first["codes"] == {"1": 0, "2": 137, "3": 0}
    assert (second["dependency"], second["codes"]) == ("afternotok", {"1": 0, "2": 0, "3": 0})
    assert third["state"] == fourth["state"] == "CANCELLED"
    assert (merge["dependency"], merge["codes"]) == ("afterany", {"0": 0})
    (night,) = (place / "reports" / "nights").iterdir()
    assert {path.name: path.read_text().strip() for path in night.glob("exit*")} == {
        "exit": "0",
        **{f"exit-{number}": "0" for number in range(1, JOBS + 1)},
    }
    assert len(set(cells_of(place / "reports" / "history"))) == CELLS


@pytest.mark.slow
def test_an_indexed_job_of_kubernetes(site):
    machines = site("kubernetes")
    place = machines.check_out("bench")
    job = read_yaml(place / "kubernetes" / "night.yaml")
    merge = read_yaml(place / "kubernetes" / "merge.yaml")
    (command,) = re.findall(r"bash -c '(qbench plan [^']*)'", _comments(place))
    plan = machines.run(place, command.replace("/out/", ""))
    assert plan.returncode == 0, plan.stderr
    more = {"PLAN": "plan.json", "RUNS": "runs"}

    def run(text, **index):
        (container,) = text["spec"]["template"]["spec"]["containers"]
        assert {one["name"] for one in container["env"]} == set(more)
        (script,) = container["args"]
        words = " ".join(container["command"])
        assert words == "bash -uo pipefail -c"
        return machines.run(place, f"set +e; {script}", **more, **index)

    for index in (0, 2):
        assert run(job, JOB_COMPLETION_INDEX=str(index)).returncode == 0
    assert run(merge).returncode == 4
    assert run(job, JOB_COMPLETION_INDEX=str(JOBS)).returncode == 42  # never tried again
    assert run(job, JOB_COMPLETION_INDEX="1").returncode == 0
    assert run(merge).returncode == 0
    assert len(set(cells_of(place / "runs" / "history"))) == CELLS
    assert (place / "runs" / "site" / "index.html").is_file()


def _comments(place):
    return (place / "kubernetes" / "night.yaml").read_text()

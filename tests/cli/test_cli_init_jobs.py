"""``qbench init --ci``: which files are written for each scheduler, and what they ask of it.

Their shell steps are run in ``tests/plugin/test_plugin_ci_jobs.py``.
"""

import json
import re
import subprocess

import pytest
import yaml

FILES = {
    "github": [".github/workflows/nightly.yml"],
    "gitlab": [".gitlab-ci.yml"],
    "slurm": ["slurm/job.sh", "slurm/merge.sh", "slurm/night.sh"],
    "kubernetes": ["kubernetes/merge.yaml", "kubernetes/night.yaml"],
}
WORKFLOW_KEYS = {"name", "on", "concurrency", "permissions", "defaults", "jobs"}
JOB_KEYS = {"name", "runs-on", "timeout-minutes", "permissions", "steps", "needs", "if"}
JOB_KEYS |= {"environment", "strategy", "outputs"}
STEP_KEYS = {"name", "id", "if", "uses", "with", "run", "env", "continue-on-error"}


@pytest.fixture
def bench(project):
    """A folder with a suite, in a repository of git."""
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    return project


@pytest.fixture
def init(qbench, bench):
    def write(scheduler, *more):
        words = ("init", "--ci", scheduler, "--package", "0.1.0", "--json", *more)
        code, out, err = qbench(*words)
        assert code == 0, err
        return sorted(json.loads(out)["written"])

    return write


def _yaml(path):
    # YAML 1.1 reads the key "on" as true; GitHub reads YAML 1.2
    text = re.sub(r"^on:", '"on":', path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return yaml.safe_load(text)


@pytest.mark.parametrize("scheduler", FILES)
def test_the_files_of_a_scheduler_have_the_number_of_jobs(init, bench, scheduler):
    assert init(scheduler, "--jobs", "37") == FILES[scheduler]
    texts = [(bench / name).read_text() for name in FILES[scheduler]]
    assert not any("@" in re.sub(r"@v\d+|\[@\]", "", text) for text in texts)
    assert any(re.search(r"\b37\b", text) for text in texts)


def test_github_without_jobs_is_one_machine(init):
    names = [".github/workflows/nightly.yml", ".github/workflows/pull-request.yml"]
    assert init("github") == names


@pytest.mark.parametrize("scheduler", ["gitlab", "slurm", "kubernetes"])
def test_the_others_have_eight_jobs_where_nothing_is_said(init, bench, scheduler):
    text = "".join((bench / name).read_text() for name in init(scheduler))
    assert re.search(r"(--jobs|jobs=|completions:) ?8\b", text)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--ci", "github", "--jobs", "257"), "at most 256"),
        (("--ci", "gitlab", "--jobs", "201"), "at most 200"),
        (("--ci", "slurm", "--jobs", "1001"), "at most 1000"),
        (("--ci", "kubernetes", "--jobs", "10000"), "at most 9999"),
        (("--ci", "slurm", "--jobs", "0"), "a whole number from 1"),
        (("--jobs", "3"), "--jobs without --ci"),
        (("--ci", "jenkins"), "jenkins"),
    ],
)
def test_what_cannot_be_written(qbench, bench, arguments, found):
    before = {path for path in bench.rglob("*") if ".git" not in path.parts}
    code, _, err = qbench("init", "--package", "0.1.0", *arguments)
    assert code == 2
    assert found in err
    assert {path for path in bench.rglob("*") if ".git" not in path.parts} == before


def test_the_matrix_of_github(init, bench):
    (name,) = init("github", "--jobs", "256")
    workflow = _yaml(bench / name)
    assert set(workflow) <= WORKFLOW_KEYS
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow["on"]
    jobs = workflow["jobs"]
    for job in jobs.values():
        assert set(job) <= JOB_KEYS
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert set(step) <= STEP_KEYS
            assert ("uses" in step) is not ("run" in step)
            assert "${{" not in step.get("run", "")
    assert jobs["measure"]["strategy"]["fail-fast"] is False
    assert "permissions" not in jobs["measure"]
    assert jobs["bench"]["permissions"] == {"contents": "write"}
    names = [step["with"]["name"] for step in jobs["measure"]["steps"] if _uploads(step)]
    assert len(names) == 1  # an artifact is written once: each attempt has its own
    assert all(word in names[0] for word in ("matrix.job", "github.run_attempt"))


def _uploads(step):
    return step.get("uses", "").startswith("actions/upload-artifact")


def test_parallel_of_gitlab(init, bench):
    init("gitlab", "--jobs", "200")
    pipeline = _yaml(bench / ".gitlab-ci.yml")
    assert pipeline["measure"]["parallel"] == 200
    assert "script_failure" not in pipeline["measure"]["retry"]["when"]  # red is red
    for name in ("measure", "merge"):
        assert pipeline[name]["artifacts"]["when"] == "always"
    assert {pipeline[name]["stage"] for name in ("plan", "measure", "merge")} == set(
        pipeline["stages"]
    )


def test_an_indexed_job_of_kubernetes(init, bench):
    init("kubernetes", "--jobs", "9")
    job = _yaml(bench / "kubernetes" / "night.yaml")
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", 9)
    assert spec["backoffLimitPerIndex"] == 3
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # podFailurePolicy needs it
    rules = {rule["action"]: rule for rule in spec["podFailurePolicy"]["rules"]}
    assert rules["Ignore"]["onPodConditions"] == [{"type": "DisruptionTarget"}]
    codes = rules["FailIndex"]["onExitCodes"]
    (container,) = spec["template"]["spec"]["containers"]
    assert codes == {"containerName": container["name"], "operator": "In", "values": [42]}
    assert "exit 42" in container["args"][0]


def test_what_a_night_of_kubernetes_makes_is_removed_before_the_next(init, bench):
    """``kubectl apply`` of a finished Job starts nothing: the second night never ran."""
    init("kubernetes", "--jobs", "9")
    text = (bench / "kubernetes" / "night.yaml").read_text(encoding="utf-8")
    applied = set(re.findall(r"kubectl apply -f ([\w./-]+)", text))
    removed = next(line for line in text.splitlines() if "kubectl delete -f" in line)
    assert applied == set(re.findall(r"-f (\S+)", removed))
    assert len(applied) == 2
    made = re.findall(r"kubectl create configmap (\S+)", text)
    assert made == re.findall(r"kubectl delete configmap (\S+)", text)


def test_schedulers_need_no_repository_and_say_what_to_type(qbench, project):
    code, out, _ = qbench("init", "--ci", "slurm")
    assert code == 0
    assert out.rstrip().endswith("bash slurm/night.sh")

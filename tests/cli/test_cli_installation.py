"""What the workflows of ``qbench init`` install: every form that a user can have qbench in,
and what no job has.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import qbench as package
from qbench.cli import installation
from qbench.cli.installation import package_of_text, package_of_this_computer
from qbench.errors import InputError

ROOT = Path(__file__).parents[2]
SHA = re.compile(r"[0-9a-f]{40}")


class Distribution:
    """An installed distribution whose origin is ``origin``."""

    version = "1.2.3"

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.fixture
def installed_from(monkeypatch):
    def set_origin(origin):
        monkeypatch.setattr(installation.metadata, "distribution", lambda _: Distribution(origin))

    return set_origin


def git(folder, *words):
    identity = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def checkout(folder, address, *, pushed=True):
    """A checkout in ``folder`` whose remote is ``address``; its commit is on a remote branch
    where it was pushed.
    """
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text("x")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "remote", "add", "origin", address)
    if pushed:
        git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (None, "pytest-qbench==1.2.3"),
        (
            {"url": "https://example.org/q.git", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}},
            f"git+https://example.org/q.git@{'a' * 40}",
        ),
        (
            {
                "url": "https://token@example.org/q.git",
                "vcs_info": {"vcs": "git", "commit_id": "b" * 40},
            },
            f"git+https://example.org/q.git@{'b' * 40}",
        ),
        ({"url": "https://example.org/q.whl", "archive_info": {}}, "https://example.org/q.whl"),
    ],
)
def test_an_origin_that_means_the_same_everywhere_is_written_as_it_is(
    tmp_path, installed_from, origin, words
):
    installed_from(origin)
    assert package_of_this_computer(tmp_path).words == words
    assert package_of_this_computer(tmp_path).files == {}


def test_a_wheel_is_copied_into_the_repository(tmp_path, installed_from):
    wheel = tmp_path / "my wheels" / "q-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"wheel")
    installed_from({"url": wheel.as_uri(), "archive_info": {}})
    bench = tmp_path / "bench"
    found = package_of_this_computer(bench)
    assert found.words == "./wheels/q-1-py3-none-any.whl"
    assert found.files == {Path("wheels/q-1-py3-none-any.whl"): b"wheel"}
    assert package_of_text(str(wheel), bench, "here") == found


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("https://example.org/o/q.git", "git+https://example.org/o/q.git@{sha}"),
        ("https://me:secret@example.org/o/q.git", "git+https://example.org/o/q.git@{sha}"),
        ("git@example.org:o/q.git", "git+ssh://git@example.org/o/q.git@{sha}"),
        ("ssh://git@example.org/o/q.git", "git+ssh://git@example.org/o/q.git@{sha}"),
    ],
)
@pytest.mark.parametrize("below", ["", "sub"])
def test_a_checkout_is_its_published_commit(tmp_path, installed_from, address, written, below):
    sha = checkout(tmp_path / "source", address)
    installed_from({"url": (tmp_path / "source" / below).as_uri(), "dir_info": {"editable": True}})
    expected = written.format(sha=sha) + (f"#subdirectory={below}" if below else "")
    # the word of the shell, without its quotes
    assert package_of_this_computer(tmp_path / "bench").words.strip("'") == expected
    assert "secret" not in package_of_this_computer(tmp_path / "bench").words


@pytest.mark.parametrize(
    ("address", "pushed"),
    [("https://example.org/q.git", False), ("/srv/q.git", True), ("file:///srv/q.git", True)],
)
def test_a_commit_that_no_other_computer_has_is_unknown(tmp_path, installed_from, address, pushed):
    checkout(tmp_path / "source", address, pushed=pushed)
    installed_from({"url": (tmp_path / "source").as_uri(), "dir_info": {}})
    assert package_of_this_computer(tmp_path / "bench") is None
    with pytest.raises(InputError, match="no published commit"):
        package_of_text(str(tmp_path / "source"), tmp_path / "bench", "here")


def test_a_folder_of_the_repository_is_relative(tmp_path, installed_from):
    (tmp_path / "vendor" / "q b").mkdir(parents=True)
    installed_from({"url": (tmp_path / "vendor" / "q b").as_uri(), "dir_info": {}})
    assert package_of_this_computer(tmp_path).words == "'./vendor/q b'"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.1.0", "pytest-qbench==0.1.0"),
        (">=0.1", "'pytest-qbench>=0.1'"),
        ("pytest-qbench[openvino]==0.1", "'pytest-qbench[openvino]==0.1'"),
        ("git+https://example.org/q.git@v1", "git+https://example.org/q.git@v1"),
        ("https://example.org/o/q", "git+https://example.org/o/q"),
        ("https://example.org/q-1.tar.gz", "https://example.org/q-1.tar.gz"),
        (
            "https://example.org/q.whl#sha256=1;rm -r x",
            "'https://example.org/q.whl#sha256=1;rm -r x'",
        ),
    ],
)
def test_what_the_user_names_is_one_word_of_the_shell(tmp_path, text, words):
    assert package_of_text(text, tmp_path, "here").words == words


def test_a_path_that_does_not_exist_is_refused(words, qbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = qbench("init", "--package", "nowhere.whl")
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    words(err)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "written"), [("0.1.0\n", True), ("\n", False)])
def test_a_person_is_asked_where_it_cannot_know(
    qbench, tmp_path, monkeypatch, installed_from, answer, written
):
    installed_from({"url": tmp_path.joinpath("gone").as_uri(), "dir_info": {}})
    bench = tmp_path / "bench"
    bench.mkdir()
    monkeypatch.chdir(bench)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert qbench("init")[0] == 0
    assert (bench / ".github").exists() is written


def test_a_program_is_not_asked_and_the_workflows_come_later(
    qbench, tmp_path, monkeypatch, installed_from
):
    installed_from({"url": tmp_path.joinpath("gone").as_uri(), "dir_info": {}})
    bench = tmp_path / "bench"
    bench.mkdir()
    monkeypatch.chdir(bench)
    code, out, _ = qbench("init", "--json")
    (note,) = json.loads(out)["notes"]
    assert code == 0
    assert "--ci github --package P" in note
    assert not (bench / ".github").exists()
    code, _, err = qbench("init", "--ci", "github")
    assert (code, err.count("--package P")) == (2, 1)
    code, out, _ = qbench("init", "--ci", "github", "--package", "0.1.0", "--json")
    assert code == 0
    assert set(json.loads(out)["written"]) == {
        f".github/workflows/{name}.yml" for name in ("nightly", "pull-request")
    }
    assert qbench("init", "--ci", "github", "--package", "0.1.0")[0] == 2  # they are there


def install_step(workflow):
    (job,) = (
        job for name, job in yaml.safe_load(workflow.read_text())["jobs"].items() if name == "bench"
    )
    (step,) = (step for step in job["steps"] if step.get("name") == "Install")
    return step["run"]


def of_package_client():
    """The settings of the package client in this process's environment,
    which a container has as well.
    """
    names = ("PIP_", "SSL_", "REQUESTS_CA", "HTTP", "http", "NO_PROXY", "no_proxy")
    return {name: value for name, value in os.environ.items() if name.startswith(names)}


class Container:
    """A computer that has Python, git and a shell: an empty home, an environment of its own, no
    checkout of qbench.
    """

    def __init__(self, root):
        self.root = root
        subprocess.run([sys.executable, "-m", "venv", str(root / "venv")], check=True)
        (root / "home").mkdir()
        self.environment = {
            **of_package_client(),
            "PATH": os.pathsep.join(
                (str(root / "venv" / "bin"), "/usr/local/bin", "/usr/bin", "/bin")
            ),
            "HOME": str(root / "home"),
            "LANG": "C.UTF-8",
        }

    def run(self, command, folder, **more):
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
            cwd=folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def container(tmp_path_factory, wheel):
    container = Container(tmp_path_factory.mktemp("container"))
    container.run(f"pip install -q -c '{ROOT / 'constraints.txt'}' '{wheel}'", container.root)
    return container


@pytest.mark.slow
@pytest.mark.parametrize("form", ["version", "wheel", "path", "repository"])
def test_the_install_step_works_without_this_checkout(container, wheel, tmp_path, form):
    """``qbench init`` where qbench is installed in ``form``;
    the written step then installs it in another job.
    """
    source, bench = tmp_path / "source", tmp_path / "bench"
    bench.mkdir()
    more = {}
    if form == "version":
        # an index that has the version: published, one day
        more["PIP_FIND_LINKS"] = f"{wheel.parent} {os.environ.get('PIP_FIND_LINKS', '')}".strip()
        installed = f"pytest-qbench=={package.__version__}"
    elif form == "wheel":
        installed = str(wheel)
    else:
        place = bench / "vendor" / "qbench" if form == "path" else source
        git(tmp_path, "clone", "-q", "--depth=1", ROOT.as_uri(), str(place))
        installed = str(place)
    if form == "repository":
        git(source, "remote", "set-url", "origin", "https://example.invalid/o/q.git")
        # a computer that reaches the address, by a mirror
        container.run(
            f"git config --global url.{ROOT.as_uri()}.insteadOf https://example.invalid/o/q.git",
            bench,
        )
    container.run(f"pip install -q --force-reinstall --no-deps '{installed}'", tmp_path, **more)
    container.run("qbench init", bench)
    container.run("pip uninstall -q -y pytest-qbench", tmp_path)
    if form == "repository":
        shutil.rmtree(source)
    job = tmp_path / "job"
    shutil.copytree(bench, job)
    container.run(install_step(job / ".github" / "workflows" / "nightly.yml"), job, **more)
    where = container.run("python -c 'import qbench; print(qbench.__file__)'", job).strip()
    assert where.startswith(str(container.root))
    if form == "wheel":  # what is installed is the same in every form
        container.run("pytest suites --qbench-accept-fp32 --qbench-accept=new -q", job)
        assert "6 passed" in container.run("pytest suites -q", job)

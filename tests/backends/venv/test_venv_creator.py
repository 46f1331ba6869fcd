"""Environments with given packages: real releases by pip where it can be asked, and what
happens where it cannot.
"""

import subprocess
import sys

import numpy as np
import pytest
from test_venv_another_python import FEEDS, net

from qbench.backends import (
    EnvironmentMaker,
    get_backend,
    installed_version,
    offered_versions,
    python_backend,
)
from qbench.errors import InputError, NotFetchedError, StoreError
from qbench.storage import Cache


@pytest.fixture
def unreachable(monkeypatch):
    """A pip that knows no package at all."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nonexistent")


def test_what_pip_cannot_get_leaves_nothing_half_made(tmp_path, unreachable):
    maker = EnvironmentMaker(cache=Cache(tmp_path))
    with pytest.raises(NotFetchedError, match=r"No matching distribution found for toy==1\.0"):
        maker.make(["toy==1.0"])
    assert list((tmp_path / "pythons").glob("*/bin/python")) == []
    assert [path.suffix for path in (tmp_path / "pythons").iterdir()] in ([], [".lock"])


def test_one_without_packages_is_made_once_and_again_when_its_python_has_gone(
    tmp_path, unreachable, monkeypatch
):
    maker = EnvironmentMaker(cache=Cache(tmp_path))
    from qbench.backends.venv import creator

    fetched = []
    monkeypatch.setattr(creator, "_fetch", lambda *arguments: fetched.append(arguments))
    program = maker.make([])
    assert maker.make([]) == program
    assert len(fetched) == 1
    program.unlink()
    program.symlink_to(tmp_path / "uninstalled")
    assert maker.make([]) == program
    assert (len(fetched), program.exists()) == (2, True)


def test_scripts_of_an_environment_name_the_place_that_it_has_in_the_end(
    tmp_path, unreachable, monkeypatch
):
    from qbench.backends.venv import creator

    def fetch(doing, python, words, **settings):
        script = python.with_name("tool")
        script.write_text(f"#!{python}\nimport sys\nprint(sys.prefix)\n")
        script.chmod(0o755)

    monkeypatch.setattr(creator, "_fetch", fetch)
    program = EnvironmentMaker(cache=Cache(tmp_path)).make_locked(["toy==1.0"], "Testing")
    tool = program.with_name("tool")
    assert tool.read_text().splitlines()[0] == f"#!{program}"
    done = subprocess.run([tool], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(program.parent.parent)
    assert str(program.parent.parent) in program.with_name("activate").read_text()


def test_no_python_and_no_room_are_sentences(tmp_path):
    with pytest.raises(InputError, match="the program of a Python"):
        EnvironmentMaker(cache=Cache(tmp_path), base=tmp_path / "none").make(["toy"])
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="QBENCH_CACHE"):
        EnvironmentMaker(cache=Cache(tmp_path / "file")).make(["toy"])


def test_pip_that_knows_no_versions_is_a_sentence(unreachable):
    with pytest.raises(NotFetchedError, match="--versions"):
        offered_versions("toy")


def test_an_installed_version_is_found(small_python):
    folder = small_python("1.4")
    assert installed_version(folder, "toy") == "1.4"
    with pytest.raises(InputError, match="an-other"):
        installed_version(folder, "an-other")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.17.3", "1.23.2"])
def test_a_real_release_runs_our_files(version):
    try:
        program = EnvironmentMaker().make([f"onnxruntime=={version}"])
    except NotFetchedError as error:
        pytest.skip(str(error))
    backend = python_backend(program)
    assert dict(backend.versions)["onnxruntime"] == version
    assert int(dict(backend.versions)["numpy"].partition(".")[0]) == (
        1 if version == "1.17.3" else 2
    )
    assert installed_version(program, "onnxruntime") == version
    # opset 21, IR 10: newer than 1.17 takes
    for like in ("ort-cpu", "ort-cpu-precise", "ort-cpu-qoperator"):
        backends = python_backend(program, like), get_backend(like)
        far, near = (backend.prepare(net(), taps=["p"]) for backend in backends)
        with far, near:
            theirs, ours = far.run(FEEDS), near.run(FEEDS)
        assert np.array_equal(theirs["y"], ours["y"]), sys.version

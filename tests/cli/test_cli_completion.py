"""Words are completed in real shells, from the names that suites and commands know."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not any(
        one.startswith("argcomplete") for one in importlib.metadata.requires("pytest-qbench") or ()
    ),
    reason="qbench was installed here before it needed argcomplete",
)
BASH = """
eval "$(qbench completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete qbench
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { }
eval "$(qbench completion zsh)"
_describe() { print -l -- $completions }
BUFFER=$1 CURSOR=${#1} words=(qbench)
_python_argcomplete
"""
FISH = """
qbench completion fish | source
complete -C $argv[1]
"""
START = {
    "bash": ["bash", "--norc", "-c", BASH, "-"],
    "zsh": ["zsh", "-f", "-c", ZSH, "-"],
    "fish": ["fish", "-N", "-c", FISH],
}
SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "my_net"
data = "my_photos"
calibration = { data = "my_calibration", count = 64 }
metrics = ["top1"]
"""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """What a shell offers behind a line, in a folder with a suite."""
    program = tmp_path / "bin" / "qbench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qbench "$@"\n')
    program.chmod(0o755)
    (tmp_path / "suites/schemas").mkdir(parents=True)
    (tmp_path / "suites/mine.qbench.toml").write_text(SUITE)
    (tmp_path / "suites/broken.qbench.toml").write_text("[")
    (tmp_path / "suites/schemas/mine.toml").write_text("")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('pytest_qbench_extension: slow')")
    (tmp_path / "net.onnx").touch()
    monkeypatch.chdir(tmp_path)
    environment = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }

    def offered(line: str, name: str = "bash") -> list[str]:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
        done = subprocess.run(
            [*START[name], line], capture_output=True, text=True, check=True, env=environment
        )
        assert not done.stderr
        return [
            text.partition("\t")[0].partition(":")[0].strip()
            for text in done.stdout.splitlines()
            if text
        ]

    return offered


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("name", START)
def test_real_shells_complete(shell, name):
    assert shell("qbench quar", name) == ["quarantine"]
    assert shell("qbench eval net.onnx --backend ort-cpu-p", name) == ["ort-cpu-precise"]


@pytest.mark.slow
def test_every_kind_of_name(shell):
    assert {"my_net", "digits_cnn", "net.onnx", "suites/"} <= set(shell("qbench eval "))
    assert shell("qbench eval net.onnx --da") == ["--data"]
    assert {"my_photos", "my_calibration", "digits_test"} <= set(
        shell("qbench eval net.onnx --data ")
    )
    assert {"mine", "w8a8_asym_pc"} <= set(shell("qbench localize my_net --schema "))
    assert shell("qbench eval net.onnx --metrics top1,agree") == ["top1,agreement"]
    assert set(shell("qbench run suites/")) == {
        "suites/broken.qbench.toml",
        "suites/mine.qbench.toml",
        "suites/schemas/",
    }
    assert set(shell("qbench rewrite net.onnx --policy ")) == {"exact", "rounding", "fast"}
    assert shell("qbench quarantine my_net::ort-cpu+w") == [
        "ort-cpu+w8a8_asym_pc"
    ]  # bash replaces what is behind ::
    assert shell("qbench prove suites/mi") == ["suites/mine.qbench.toml"]
    for option in ("--budget", "--detect", "--faults"):
        assert shell(f"qbench prove mine {option} ") == []  # no file is one
    assert "merge-requantize" in shell("qbench rewrite net.onnx --passes merge-r")


def test_the_words_are_found_without_heavy_modules():
    code = """
import sys
from qbench.cli.completion import _TAKEN
found = {name: list(words("")) for name, words in _TAKEN.items()}
kinds = ("model", "data", "backend", "schema", "metrics", "passes", "arithmetic")
assert all(found[kind] for kind in kinds)
heavy = ("numpy", "onnx", "onnx_ir", "onnxruntime", "pandas", "rich", "pytest")
sys.exit([name for name in heavy if name in sys.modules] or 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])

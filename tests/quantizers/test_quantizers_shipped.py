"""The quantizers that the guest ships: manifests, scripts and locks agree, without running one."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import qbench_engines

FOLDER = Path(qbench_engines.__file__).parent / "quantizers"
MANIFESTS = sorted(FOLDER.glob("*.toml"))
KEYS = {
    "title": str,
    "package": str,
    "takes": str,
    "gives": str,
    "lock": str,
    "command": list,
    "timeout_s": int,
    "memory_mb": int,
}
OPTIONAL = {"python": str, "environment": dict}
FORMS = {"takes": {"onnx", "tflite", "module"}, "gives": {"onnx", "tflite"}}
PLACES = {"{python}", "{here}", "{fp32}", "{calibration}", "{out}"}
PINNED = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)((?: --hash=sha256:[0-9a-f]{64})+)")


def names() -> list[str]:
    return [path.stem for path in MANIFESTS]


@pytest.fixture(params=names())
def manifest(request: pytest.FixtureRequest) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{request.param}.toml").read_text())


def script_of(manifest: dict[str, Any]) -> Path:
    named = [word for word in manifest["quantizer"]["command"] if word.startswith("{here}/")]
    assert len(named) == 1
    return FOLDER / named[0].removeprefix("{here}/")


def requirements(manifest: dict[str, Any]) -> dict[str, str]:
    """Package → version, of a lock whose every line is a pinned package with hashes."""
    text = (FOLDER / manifest["quantizer"]["lock"]).read_text()
    found = {}
    for line in text.replace("\\\n    ", "").splitlines():
        one = PINNED.fullmatch(line)
        assert one, line
        found[one[1]] = one[2]
    return found


def test_each_manifest_has_the_keys_of_the_contract(manifest: dict[str, Any]) -> None:
    table = manifest["quantizer"]
    assert table.keys() >= KEYS.keys()
    assert table.keys() <= KEYS.keys() | OPTIONAL.keys()
    for key, kind in (KEYS | OPTIONAL).items():
        assert isinstance(table.get(key, kind()), kind), key
    for key, forms in FORMS.items():
        assert table[key] in forms
    assert manifest.keys() <= {"quantizer", "variant"}


def test_each_command_names_its_script_and_every_place(manifest: dict[str, Any]) -> None:
    command = manifest["quantizer"]["command"]
    assert set(re.findall(r"\{\w+\}", " ".join(command))) == PLACES
    assert command[0] == "{python}"


def test_each_variant_is_an_argument_that_the_script_knows(manifest: dict[str, Any]) -> None:
    words = {
        node.value
        for node in ast.walk(ast.parse(script_of(manifest).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for name, variant in manifest.get("variant", {}).items():
        assert re.fullmatch(r"[a-z0-9_]+", name)
        assert variant.keys() <= {"arguments", "timeout_s", "memory_mb"}
        assert variant["arguments"]
        assert set(variant["arguments"]) <= words


def test_no_script_is_called_like_a_package(manifest: dict[str, Any]) -> None:
    script = script_of(manifest)
    compile(script.read_text(), str(script), "exec")
    assert script.stem.endswith("_quantize")


def test_each_lock_pins_every_package_by_hash(manifest: dict[str, Any]) -> None:
    pinned = requirements(manifest)
    assert manifest["quantizer"]["package"] in pinned


def test_every_file_of_the_folder_belongs_to_a_manifest() -> None:
    read = [tomllib.loads(path.read_text()) for path in MANIFESTS]
    known = {path.name for path in MANIFESTS}
    known |= {one["quantizer"]["lock"] for one in read} | {script_of(one).name for one in read}
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} == known


LOGS_AND_GOES_ON = """
import logging

def run(_):
    try:
        try:
            raise ValueError("a scale of 0")
        except ValueError as error:
            raise RuntimeError("quantize_static failed") from error
    except RuntimeError:
        logging.getLogger("olive.engine").exception("a pass failed")
"""
REGISTRY = """
class Registry:
    def register_dataset(name):
        return lambda made: made
"""


def test_an_error_that_olive_logs_is_the_last_word_of_its_script(tmp_path: Path) -> None:
    """Olive goes on after a pass that failed, and writes no model."""
    (tmp_path / "olive" / "data").mkdir(parents=True)
    (tmp_path / "olive" / "__init__.py").write_text(LOGS_AND_GOES_ON)
    (tmp_path / "olive" / "data" / "registry.py").write_text(REGISTRY)
    command = [
        sys.executable,
        FOLDER / "olive_quantize.py",
        "model.onnx",
        "samples.npz",
        "out.onnx",
    ]
    ended = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last == "Olive wrote no model: ValueError: a scale of 0"

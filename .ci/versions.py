"""Runs tests with the lowest declared versions of the required packages, or with the newest.

    python .ci/versions.py lowest|newest [--python PYTHON]

The environment is below .venvs, made anew where pyproject.toml changed. The tests are of the parts
that touch other packages: files and graphs (onnx, onnx-ir), storage (msgspec, filelock), writing
Q/DQ (numpy), checks in tests (pytest), and the digits of the smoke suite from the model to the
verdict (onnxruntime). The full tests run with what constraints.txt pins: make test.
"""

import argparse
import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/graph/test_graph_model_files.py",
    "tests/storage",
    "tests/quantization/test_quantization_writing.py",
    "tests/plugin/test_plugin_check.py",
    *("-q", "-m", "not slow and not oracle", "--few-examples", "-W", "default"),
)
SUITE = ("suites/smoke.qbench.toml", "-k", "digits_cnn", "--qbench-history=off")
SHOWN = ("numpy", "onnx", "onnx-ir", "onnxruntime", "pytest", "pandas", "matplotlib")
SAY = """
import sys
from importlib.metadata import version
print("Python", sys.version.split()[0], *(f"{name} {version(name)}" for name in sys.argv[1:]))
"""


def lowest() -> str:
    """The required packages at the lowest versions that pyproject.toml declares, as constraints."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)["project"]["dependencies"]
    return "".join(f"{one.replace('>=', '==')}\n" for one in declared)


def make_environment(versions: str, python: str) -> Path:
    """The Python of an environment with these versions."""
    constraints = lowest() if versions == "lowest" else ""
    made_of = [python, constraints, (ROOT / "pyproject.toml").read_text(encoding="utf-8")]
    key = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:8]
    folder = ROOT / ".venvs" / f"{versions}-{key}"
    inside, made = folder / "bin" / "python", folder / "made"
    if made.exists():
        return inside
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    pins = folder / "constraints.txt"
    pins.write_text(constraints, encoding="utf-8")
    options = ("--quiet", "--disable-pip-version-check", "--no-input", "-c", pins)
    packages = (f"-e{ROOT}", f"-e{ROOT / 'zoo'}", "hypothesis")
    subprocess.run([inside, "-m", "pip", "install", *options, *packages], check=True)
    made.touch()
    return inside


def main() -> int:
    """The exit code: 0 where the tests and the suite pass."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", choices=("lowest", "newest"))
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    python = make_environment(options.versions, options.python)
    subprocess.run([python, "-c", SAY, *SHOWN], check=True)
    runs = [[python, "-m", "pytest", *arguments] for arguments in (TESTS, SUITE)]
    return max([subprocess.run(one, cwd=ROOT, check=False).returncode for one in runs])


if __name__ == "__main__":
    sys.exit(main())

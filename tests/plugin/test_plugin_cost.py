"""The installed plugin is almost free where nobody uses it, and thousands of cells are
collected in no time.
"""

import subprocess
import sys

import pytest

HEAVY = (
    "numpy",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "pandas",
    "matplotlib",
    "rich",
    "jinja2",
    "tomllib",
    "qbench.suite",
)


def loaded_after(*code, folder=None):
    text = (
        f"import sys; {'; '.join(code)}; print(*(name for name in {HEAVY} if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout.splitlines()[-1].split()


def test_importing_the_plugin_loads_nothing_heavy():
    assert loaded_after("import qbench.plugin") == []


@pytest.mark.slow
def test_a_session_without_cells_loads_nothing_heavy(tmp_path):
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    run = (
        "import pytest; pytest.main(['-q', '-p', 'no:hypothesispytest', '-p', 'no:cacheprovider', "
        f"{str(tmp_path)!r}])"
    )
    assert loaded_after(run) == []


def test_collecting_loads_neither_arrays_nor_graphs(tmp_path):
    (tmp_path / "real.qbench.toml").write_text(
        '[suite]\nbackends = ["ort-cpu", "onnx-reference"]\nschemas = ["w8a8_asym_pc", "own"]\n'
        '[[model]]\nid = "mobilenet_v2"\ndata = "photo_crops"\n'
        'metrics = ["top1", "agreement@imagenet_photos"]\n'
        'calibration = { data = "calibration_crops", count = 8 }\n'
    )
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "own.toml").write_text("[[rules]]\n")
    options = ["-q", "-p", "no:hypothesispytest", "-p", "no:cacheprovider", "--collect-only"]
    run = (
        f"import pytest; assert pytest.main([*{options}, '--qbench-select=backend=ort-cpu', "
        "'real.qbench.toml']) == 0"
    )
    assert loaded_after(run, folder=tmp_path) == ["tomllib", "qbench.suite"]


def test_cells_are_collected_by_the_thousand(project):
    models, engines = [f"net{i}" for i in range(50)], [f"engine{i}" for i in range(5)]
    more = f"MORE = {{'backends': dict.fromkeys({engines}, object)}}"
    project.write_conftest(more, f"WEIGHTS.update(dict.fromkeys({models}, 1))")
    schemas = ["w8a8_asym_pc", "w8a8_asym_pt", "w8a8_sym_pc", "w8a8_sym_pt"]
    table = (
        '[[model]]\nid = "{}"\ndata = "points"\ncalibration = {{ data = "spare", count = 9 }}\n'
        'metrics = ["top1"]\n'
    )
    project.write_suite(
        f"[suite]\nbackends = {engines}\nschemas = {schemas}\n" + "".join(map(table.format, models))
    )
    result = project.run("--collect-only", "-qq")  # what it costs: benchmarks/plugin_cost.py
    result.stdout.fnmatch_lines(["suites/scratch.qbench.toml: 1250"])

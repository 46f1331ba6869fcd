"""Whatever is wrong with a suite, a model, data or a name: one sentence, the right exit code,
and no traceback.
"""

import pytest

MODEL = """
[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1"]
"""
HEAD = '[suite]\nbackends = ["ort-cpu"]\nschemas = ["w8a8_asym_pc"]\n'


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            HEAD + "tolerence = 0.1\n" + MODEL,
            "*found an unknown key 'tolerence';*Did you mean 'tolerance'?",
        ),
        (
            HEAD + 'tolerance = "much"\n' + MODEL,
            "*'tolerance'*found a string ('much'); expected a number*",
        ),
        (HEAD + "tolerance = 1.5\n" + MODEL, "*found a tolerance of 1.5 is impossible*"),
        (HEAD + "tolerance = -0.1\n" + MODEL, "*found a tolerance of -0.1 is impossible*"),
        (
            HEAD + MODEL.replace("tiny_a", "tiny_x"),
            "*found unknown model 'tiny_x';*Did you mean 'tiny_*'?",
        ),
        (
            HEAD.replace("ort-cpu", "ort-cqu") + MODEL,
            "*found unknown backend 'ort-cqu';*Did you mean 'ort-cpu*'?",
        ),
        (
            HEAD.replace("asym_pc", "asim_pc") + MODEL,
            "*found unknown schema 'w8a8_asim_pc';*Did you mean 'w8a8_asym_pc'?",
        ),
        (
            HEAD + MODEL.replace('"top1"', '"top_1"'),
            "*found unknown metric 'top_1';*Did you mean 'top1'?",
        ),
        (
            HEAD + MODEL.replace('"points"', '"point"'),
            "*found unknown dataset 'point';*Did you mean 'points'?",
        ),
        (
            HEAD.replace('"ort-cpu"', '"ort-cpu", "ort-cpu"') + MODEL,
            "*found 'ort-cpu' twice among the backends;*",
        ),
        (HEAD + MODEL + MODEL, "*found the model 'tiny_a' 2 times;*"),
        (HEAD + MODEL.replace("count = 64", "count = 0"), "*found a calibration count of 0*"),
        (HEAD + MODEL.replace("calibration =", "#"), "*found no key 'calibration'*"),
        (HEAD + 'x = "\n', "Reading '*scratch.qbench.toml': found *expected a TOML file*"),
        (
            HEAD + MODEL + 'tolerance = { "w8a8_sym_pt" = 0.1 }\n',
            "*tolerances of 'tiny_a': found unknown cell 'w8a8_sym_pt'*",
        ),
    ],
)
def test_a_suite_that_makes_no_sense_is_a_collection_error(project, text, sentence):
    project.write_suite(text)
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*ERROR collecting suites/scratch.qbench.toml*", sentence])
    assert "Traceback" not in result.stdout.str()
    assert ".py:" not in result.stdout.str()
    assert not project.run_files


@pytest.mark.slow
def test_a_suite_under_another_name_is_named_and_other_files_are_left_alone(project):
    project.suite_path.rename(project.path / "suites/mine.toml")
    result = project.run("suites/mine.toml", suite=False)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["Collecting 'mine.toml': found *ends in .qbench.toml. Rename it*"])
    assert project.run("suites", suite=False).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    (project.path / "suites/other.toml").write_text("[tool]\n")
    assert project.run("suites/other.toml", suite=False).ret == pytest.ExitCode.USAGE_ERROR


def test_a_name_with_two_owners_names_both(project):
    project.write_conftest('MORE = {"backends": {"ort-cpu": object}}')
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["Adding the backend 'ort-cpu' of 'scratch conftest': found that 'qbench' defines*"]
    )


def test_a_hook_that_returns_no_extension_is_one_sentence(project):
    project.write_conftest(extra="def pytest_qbench_extension(config):\n    return 1\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "Reading what the hook pytest_qbench_extension of *'conftest.py' returned: found a "
            "int; expected a *"
        ]
    )
    result.stdout.no_fnmatch_line("*AttributeError*")


FAULTS = """
from dataclasses import replace
from pathlib import Path


def faulty(change):
    def make():
        return change(model("tiny_a", 1)())
    return make


def with_graph(load):
    return faulty(lambda m: replace(m, graphs={"model": load}))


def truncated():
    from qbench.graph import load_model, save_model
    save_model(network(1), "net.onnx")
    Path("net.onnx").write_bytes(Path("net.onnx").read_bytes()[:900])
    return load_model("net.onnx")


def no_model():
    from qbench.graph import load_model
    Path("net.onnx").write_text("hello")
    return load_model("net.onnx")


def other_input():
    graph = network(1)
    graph.graph.inputs[0].name = "y"
    return graph


def not_a_number():
    graph = network(1)
    constant = graph.graph.initializers["b2"]
    constant.const_value = ir.tensor(np.full(CLASSES, np.nan, np.float32), name="b2")
    return graph


def nan_data():
    found = data("points", 10)()
    return replace(found, content="nan",
                   load=lambda i: np.full(FEATURES, np.nan if i == 7 else 1, np.float32))


def wide_data():
    found = data("points", 10)()
    return replace(found, content="wide", load=lambda i: np.ones(FEATURES + 1, np.float32))


class MORE_TABLE(dict):
    pass


MORE = {}
FAULTY = {
    "truncated": {"models": {"bad": with_graph(truncated)}},
    "no_model": {"models": {"bad": with_graph(no_model)}},
    "other_input": {"models": {"bad": with_graph(other_input)}},
    "nan_output": {"models": {"bad": with_graph(not_a_number)}},
    "nan_data": {"models": {"bad": model("bad", 1)}, "datasets": {"bad_points": nan_data}},
    "wide_data": {"models": {"bad": model("bad", 1)}, "datasets": {"bad_points": wide_data}},
    "overlap": {"models": {"bad": model("bad", 1)},
                "datasets": {"bad_points": data("spare", 11, 64)}},
    "too_few": {"models": {"bad": model("bad", 1)},
                "datasets": {"bad_points": data("few", 12, 30)}},
}


def pytest_qbench_extension(config, _first=pytest_qbench_extension):
    chosen = FAULTY[os.environ["FAULT"]]
    base = _first(config)
    return replace(
        base,
        models={**base.models, **chosen["models"]},
        datasets={**base.datasets, **chosen.get("datasets", {"bad_points": data("points", 10)})},
    )
"""


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("truncated", "*net.onnx*: found *"),
        ("no_model", "*net.onnx*: found *"),
        ("other_input", "*found no input 'y';*"),
        ("nan_output", "*found NaN or Inf*"),
        ("nan_data", "*sample 'points-7'*found NaN or Inf*"),
        ("wide_data", "*found *17*"),
        (
            "overlap",
            "Calibrating *found 64 sources that *expected calibration "
            "samples that are never scored*",
        ),
    ],
)
def test_a_model_or_data_that_cannot_be_measured_is_one_sentence(
    project, monkeypatch, fault, sentence
):
    monkeypatch.setenv("FAULT", fault)
    project.write_suite(HEAD + MODEL.replace("tiny_a", "bad").replace('"points"', '"bad_points"'))
    project.write_conftest(extra=FAULTS)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"failed": 2}
    result.stdout.fnmatch_lines([sentence, "  cell: bad::ort-cpu+*is error"])
    assert "Traceback" not in result.stdout.str()
    assert ".py:" not in result.stdout.str()
    assert set(project.outcomes().values()) == {"error"}


def test_more_samples_than_there_are(project):
    project.write_suite(HEAD + MODEL.replace("count = 64", "count = 65"))
    result = project.run()
    assert result.parseoutcomes() == {"failed": 2}
    result.stdout.fnmatch_lines(["*Taking 65 samples of 'spare': found 64 in it;*"])


@pytest.mark.slow
def test_a_full_disk_of_the_cache_is_a_sentence_and_no_traceback(project):
    full = (
        "import errno, os\nfrom qbench.evaluation import artifacts\n"
        "def refuse(*arguments, **named):\n"
        "    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "artifacts.run_arrays = refuse\n"
    )
    project.write_ini(f"qbench_cache = {project.path / 'cache'}", "qbench_localize = 0")
    project.write_conftest("MORE = {}", full)
    result = project.run("-k", "tiny_a and fp32 and not noopt", process=True)
    assert result.ret == 1
    text = result.stdout.str()
    assert "No space left on device; expected room below" in text
    assert "Traceback" not in text
    assert "OSError" not in text
    assert not list((project.path / "cache" / "fp32").iterdir())


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("hook", "sentence"),
    [
        (
            "Extension(name='mine')",
            "Expanding suite *found unknown model 'tiny_a', and that the hook *returned None;*",
        ),
        (
            "return 1 // 0",
            "Calling the hook *'conftest.py'*found ZeroDivisionError: *conftest.py', line 5*",
        ),
        (
            "return Extension(name='mine', models=['tiny_a'])",
            "Reading 'models' of *conftest.py', line 5*found a list*",
        ),
        (
            "return get_model('nothing')",
            "Looking up a model*conftest.py', line 5*found unknown model 'nothing'*",
        ),
    ],
)
def test_a_hook_that_fails_is_one_sentence_with_its_file(project, hook, sentence):
    project.write_suite(HEAD + MODEL)
    head = "from qbench.extension import Extension\nfrom qbench.subjects import get_model\n\n"
    (project.path / "conftest.py").write_text(
        f"{head}def pytest_qbench_extension(config):\n    {hook}\n"
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([sentence])
    assert "Traceback" not in result.stdout.str()

"""``--extension``: what a conftest names is known to ``run``, ``doctor`` and ``list``, too."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

SUITE = "suites/tiny.qbench.toml"
HOOK = "conftest:pytest_qbench_extension"


@pytest.fixture
def uninstalled(project, shapes_package, monkeypatch):
    """The project with its extension in a conftest.py instead of an installed package."""
    from qbench.extension import read_entry_points

    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(shapes_package)])
    read_entry_points.cache_clear()
    shutil.copy(shapes_package / "qbench_shapes.py", project / "conftest.py")
    with Path("conftest.py").open("a") as file:
        file.write(
            "\ndef pytest_qbench_extension(config):\n    assert config is None\n"
            "    return EXTENSION\n"
            "\ndef bare():\n    return EXTENSION\n\nnumber = 3\n"
        )
    Path("broken.py").write_text("1 / 0\n")
    monkeypatch.delitem(sys.modules, "conftest", raising=False)
    yield project
    sys.modules.pop("conftest", None)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("name", ["pytest_qbench_extension", "bare", "EXTENSION"])
def test_a_conftest_is_run_as_under_pytest(uninstalled, qbench, name):
    code, out, err = qbench(
        "run", SUITE, "--select", "schema=fp32", "--extension", f"conftest:{name}", "--json"
    )
    assert code == 1, err  # nothing is accepted yet
    assert {cell["outcome"] for cell in json.loads(out)["cells"]} == {"missing"}


def test_list_and_doctor_know_it(uninstalled, qbench):
    assert "blobs " in qbench("list", "models")[1]
    code, out, _ = qbench("doctor", "--json")
    assert code == 1
    assert "shapes" in json.loads(out)["machine"]["extensions"]  # the zoo may be installed, too


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("command", ["run", "doctor"])
def test_an_unknown_name_ends_with_the_hint(uninstalled, qbench, command):
    Path("conftest.py").rename("adder.py")
    code, out, err = qbench(command, SUITE)
    assert (code, out) == (2, "")
    assert "unknown model 'blobs'" in err
    assert err.endswith("--extension MODULE:NAME; that of this folder is read anyway.\n")
    assert (
        qbench(command, SUITE, "--extension", "adder:EXTENSION")[0] == 1
    )  # nothing is accepted yet


@pytest.mark.slow
def test_every_verb_knows_the_names_of_the_folder(uninstalled, qbench):
    axes = ("--backend", "ort-cpu", "--schema", "w8a8_asym_pc", "--calib", "blobs_train")
    assert qbench("eval", "blobs", "--data", "blobs_test", *axes)[0] == 0
    assert qbench("localize", "blobs", "--data", "blobs_test", *axes)[0] in (0, 1)
    assert qbench("profile", "blobs", "--data", "blobs_train", "-o", "p.json")[0] == 0
    assert qbench("diff", "blobs", "--data", "blobs_test", "--right", "backend=ort-cpu-noopt")[
        0
    ] in (0, 1)


def test_pyproject_names_extensions_or_none(uninstalled, qbench):
    Path("conftest.py").rename("adder.py")
    Path("pyproject.toml").write_text('[tool.qbench]\nextensions = ["adder:bare"]\n')
    assert "blobs " in qbench("list", "models")[1]
    Path("adder.py").rename("conftest.py")
    Path("pyproject.toml").write_text("[tool.qbench]\nextensions = []\n")
    assert "blobs " not in qbench("list", "models")[1]
    Path("pyproject.toml").write_text('[tool.qbench]\nextensions = "adder:bare"\n')
    code, _, err = qbench("list", "models")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "extensions = 'adder:bare'" in err
    Path("pyproject.toml").write_text('[tool.qbench]\nextension = ["adder:bare"]\n')
    code, _, err = qbench("list", "models")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "Did you mean 'extensions'?" in err


def test_a_conftest_that_fails_is_one_sentence_with_its_line(uninstalled, qbench):
    with Path("conftest.py").open("a") as file:
        file.write("\n1 / 0\n")
    line = len(Path("conftest.py").read_text().splitlines())
    code, out, err = qbench("list", "models")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "ZeroDivisionError" in err
    assert f"'conftest.py', line {line}" in err


def test_a_name_of_the_folder_is_suggested_first(uninstalled, qbench):
    err = qbench("eval", "blobz", "--data", "blobs_test")[2]
    assert "Did you mean 'blobs'?" in err


def test_no_hint_for_other_mistakes(uninstalled, qbench):
    assert (
        "--extension"
        not in qbench("run", SUITE, "--extension", HOOK, "--select", "modell=blobs")[2]
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conftest", "MODULE:NAME"),
        ("nowhere:EXTENSION", "ModuleNotFoundError"),
        ("broken:EXTENSION", "ZeroDivisionError"),
        ("conftest:EXTENSIONS", "no name 'EXTENSIONS'"),
        ("conftest:number", "found a int"),
    ],
)
def test_what_is_no_extension_is_one_sentence_and_2(uninstalled, qbench, text, says):
    code, out, err = qbench("list", "models", "--extension", text)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_one_name_of_two_owners_is_refused(uninstalled, qbench):
    Path("other.py").write_text(
        "from qbench import Extension\nOTHER = Extension(name='o', models={'blobs': None})\n"
    )
    assert qbench("list", "models", "--extension", HOOK)[0] == 0
    assert qbench("list", "models", "--extension", "other:OTHER")[0] == 2


def test_an_installed_one_may_be_named_too(project, qbench):
    code, out, err = qbench("list", "models", "--extension", "qbench_shapes:EXTENSION", "--json")
    assert code == 0, err
    assert [row["name"] for row in json.loads(out)].count("blobs") == 1


HEAD = """
from pathlib import Path
from qbench import Extension
from qbench.subjects import model_from_file

def pytest_qbench_extension(config):
    path = Path(__file__).with_name('net.onnx')
"""
MISTAKES = {
    "a list": "    return Extension(name='mine', models=['net'])",
    "a value": "    return Extension(name='mine', models={'net': model_from_file(path)})",
    "a factory with arguments": (
        "    return Extension(name='mine', models={'net': model_from_file})"
    ),
    "no return": "    Extension(name='mine', models={'net': lambda: model_from_file(path)})",
    "a table": "    return {'net': path}",
    "an error": "    return 1 // 0",
    "a missing file": (
        "    return Extension(name='mine', models={'net': model_from_file('nowhere.onnx')})"
    ),
    "a task that is a text": "    model_from_file(path, task='classification')",
    "an unknown table": "    return Extension(name='mine', model={'net': dict})",
}
VERBS = {
    "list": ("list", "models"),
    "doctor": ("doctor",),
    "run": ("run", SUITE),
    "eval": ("eval", "net", "--data", "val.npz"),
    "localize": ("localize", "net", "--data", "val.npz", "--schema", "w8a8_asym_pc"),
    "lint": ("lint", "net", "--schema", "w8a8_asym_pc"),
    "init": ("init", "there", "--model", "net.onnx", "--data", "val.npz"),
}


@pytest.fixture
def own_hook(project, qbench, monkeypatch):
    """Writes conftest.py with the given end of the hook; ``net.onnx`` and data are next to it."""
    from qbench.subjects.digits import WEIGHTS

    shutil.copy(WEIGHTS, "net.onnx")
    inputs = np.random.default_rng(1).normal(size=(12, 1, 8, 8)).astype(np.float32)
    np.savez("val.npz", x=inputs, y=np.arange(12) % 10)

    def write(end):
        monkeypatch.delitem(sys.modules, "conftest", raising=False)
        Path("conftest.py").write_text(f"{HEAD}{end}\n")

    yield write
    sys.modules.pop("conftest", None)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_hook_is_one_sentence_with_its_file(own_hook, qbench, mistake):
    for words in VERBS.values():
        own_hook(MISTAKES[mistake])
        code, out, err = qbench(*words)
        assert (code, out, len(err.splitlines())) == (2, "", 1), words
        assert "conftest.py" in err
        assert len(err) < 600


def test_a_hook_may_build_its_model_itself(own_hook, qbench):
    own_hook(
        "    net = model_from_file(path)\n"
        "    return Extension(name='mine', models={'net': lambda: net})"
    )
    assert "net " in qbench("list", "models")[1]
    assert qbench("eval", "net", "--data", "val.npz")[0] == 0


@pytest.mark.parametrize(
    "making",
    [
        "model_from_file(path, task='classification')",
        "1 // 0",
        "path",
        "None",
        "model_from_file('no.onnx')",
    ],
)
def test_a_wrong_factory_is_one_sentence(own_hook, qbench, making):
    own_hook(f"    return Extension(name='mine', models={{'net': lambda: {making}}})")
    code, out, err = qbench("eval", "net", "--data", "val.npz")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "conftest.py" in err or "'net' of 'mine'" in err


ENDS = {
    "exits with 0": "sys.exit(0)",
    "skips": "pytest.skip('no torch here')",
    "fails": "pytest.fail('no')",
    "raises": "raise ValueError('boom')",
}


@pytest.mark.parametrize("how", ENDS)
def test_a_hook_that_ends_the_process_is_one_sentence_and_2(own_hook, qbench, how):
    own_hook(f"    import sys, pytest\n    {ENDS[how]}")
    code, out, err = qbench("list", "models")
    assert (code, out) == (2, "")
    assert "conftest.py', line" in err
    assert err.count("\n") == 1


PREPARED = {
    "nothing": ("None", "type NoneType"),
    "an array": ("sample", "type ndarray"),
    "a list": ("{'x': [1.0]}", "no numbers under 'x'"),
    "objects": ("{'x': np.array([None])}", "no numbers under 'x'"),
    "no input": ("{}", "no input at all"),
}


@pytest.mark.parametrize("what", PREPARED)
def test_what_a_preprocessing_returns_is_checked(what, tmp_path):
    from qbench.errors import InputError
    from qbench.storage import Cache
    from qbench.subjects import Dataset, prepare_samples

    text, found = PREPARED[what]

    class Step:
        name, kinds = "step", ("array",)
        prepare = staticmethod(lambda sample: eval(text))
        finish = staticmethod(lambda batch: batch)

    data = Dataset.from_arrays("points", np.zeros((2, 3), np.float32))
    with pytest.raises(InputError) as caught:
        prepare_samples(data, Step(), Cache(tmp_path))
    assert found in caught.value.found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lambda: str(path)", "found something of type str; expected an onnx_ir.Model"),
        ("lambda: 1 / 0", "found ZeroDivisionError: division by zero"),
    ],
)
def test_a_loader_of_a_graph_is_one_sentence(own_hook, qbench, text, says):
    own_hook(
        "    from qbench.subjects import ReadyArray, ZooModel\n"
        "    from qbench.subjects.tasks import Classification\n"
        f"    net = ZooModel(id='net', graphs={{'model': {text}}}, origin='me',\n"
        "        preprocess=ReadyArray(input='input'), task=Classification(k=1))\n"
        "    return Extension(name='mine', models={'net': lambda: net})"
    )
    code, _, err = qbench("eval", "net", "--data", "val.npz")
    assert code == 2
    assert says in err
    assert "Traceback" not in err


OWN_TASK = """
    class Task:
        name, graphs = 'own', ('model',)
        def answer(self, runners, samples):
            for feeds in samples.batches(): runners['model'].run(feeds)
            return ANSWERS
    net = model_from_file(path, task=Task())
    return Extension(name='mine', models={'net': lambda: net}, datasets={'own': lambda: data()})

def data():
    import numpy as np
    from qbench.subjects import Dataset
    feeds = np.random.default_rng(3).normal(size=(6, 1, 8, 8)).astype('float32')
    given = dict(id='own', kind='array', sample_ids=tuple('abcdef'), sources=tuple('abcdef'),
                 labels=((1,),) * 6, content='own', load=lambda at: feeds[at])
    return Dataset(**{**given, **DATA})
"""
GIVEN = {
    "no answers": ("None", "{}", "found None; expected qbench.metrics.Answers"),
    "an array": ("np.zeros(6)", "{}", "expected qbench.metrics.Answers"),
    "too few answers": (
        "Answers(np.zeros((2, 1), np.int32))",
        "{}",
        "found 2 answers to 6 samples",
    ),
    "no samples": ("None", "dict(sample_ids=(), sources=(), labels=())", "no samples"),
    "numbers as ids": ("None", "dict(sample_ids=tuple(range(6)))", "type int"),
    "fractions": ("None", "dict(labels=((1.5,),) * 6)", "numbers of type float"),
}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("verb", ["eval", "localize", "diff"])
@pytest.mark.parametrize("what", GIVEN)
def test_data_and_answers_of_own_code_are_checked(own_hook, qbench, verb, what):
    answers, changed, says = GIVEN[what]
    text = OWN_TASK.replace("ANSWERS", answers).replace("DATA", changed)
    own_hook(f"    import numpy as np\n    from qbench.metrics import Answers{text}")
    options = {"eval": (), "localize": ("--schema", "w8a8_asym_pc", "--calib", "val.npz")}
    more = options.get(verb, ("--right", "backend=ort-cpu-noopt"))
    code, _, err = qbench(verb, "net", "--data", "own", *more)
    assert code == 2
    assert says in err
    assert "Traceback" not in err


def test_a_plan_for_workers_knows_the_models_of_the_folder(uninstalled, qbench):
    Path("farm.py").write_text(
        "class Full:\n    def submit(self, function, order):\n"
        "        raise RuntimeError('no room')\n"
    )
    code, _, err = qbench("run", SUITE, "--executor", "farm:Full", "--jobs", "2")
    assert code == 4, err
    assert "6 cells missing: tiny::blobs::" in err

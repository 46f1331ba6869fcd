"""The program around the commands: help, exit codes, one sentence instead of a traceback, light imports."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx_ir as ir
import pytest

from qbench.cli.program import COMMANDS, build_parser
from qbench.errors import IncomparableError, IncompleteError, InputError


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)


@pytest.mark.parametrize("command", ["", *(command.name for command in COMMANDS)])
def test_help(qbench, monkeypatch, golden, command):
    """It fits a terminal; every word, one option a line: Pythons differ in how they break and indent the lines."""
    asked = (*filter(None, [command]), "--help")
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, qbench(*asked)[1].splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "1000")
    code, out, _ = qbench(*asked)
    assert code == 0
    words = re.sub(r"(-\w) \S+, (--\w+ \S+)", r"\1, \2", out)
    golden(f"help/{command or 'qbench'}.txt", re.sub(r"(?<=\S)(\n {7,}| {2,})", "  ", words))


def test_python_runs_it_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "qbench", "--version"], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.startswith("qbench ")


@pytest.mark.parametrize("action", ["show", "check", "index", "pull", "push"])
def test_the_help_of_an_action_of_history_has_its_exit_codes(qbench, action):
    assert "exit codes: 0 " in qbench("history", action, "--help")[1]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_example_is_understood(command):
    import shlex

    program, *words = shlex.split(command.example)
    assert program == "qbench"
    assert build_parser().parse_args(words).execute is command.execute


@pytest.mark.parametrize(
    "arguments", [[], ["frobnicate"], ["list"], ["list", "moddels"], ["run"], ["list", "models", "--jso"]]
)
def test_what_it_cannot_read_is_usage(qbench, arguments):
    code, out, err = qbench(*arguments)
    assert code == 2
    assert "usage: qbench" in err
    assert not out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["evel"], "unknown command 'evel'; did you mean 'eval'?"),
        (["history", "shw"], "unknown command 'shw'; did you mean 'show'?"),
        (["eval", "net.onnx", "--dat", "val.npz"], "unknown option '--dat'; did you mean '--data'?"),
        (["localize", "net", "--foo=1"], "unknown option '--foo'; 'qbench localize --help' lists what there is"),
        (["--verson"], "unknown option '--verson'; did you mean '--version'?"),
    ],
)
def test_a_mistyped_word_is_named_with_the_nearest(qbench, words, says):
    code, out, err = qbench(*words)
    assert (code, out) == (2, "")
    assert err.endswith(f"{says}\n")


def test_help_of_a_verb(qbench):
    assert qbench("help", "eval") == qbench("eval", "--help")
    assert qbench("help") == qbench("--help")


def test_version(qbench):
    import qbench as package

    assert qbench("-V") == qbench("--version")
    assert qbench("--version")[:2] == (0, f"qbench {package.__version__}\n")


@pytest.mark.parametrize(("kind", "code"), [(InputError, 2), (IncomparableError, 3), (IncompleteError, 4)])
def test_an_error_is_one_sentence_with_its_exit_code(qbench, monkeypatch, kind, code):
    def refuse(*_, **__):
        raise kind("Doing it", found="this", expected="that", remedy="Do so.")

    monkeypatch.setattr("qbench.suite.gather", refuse)
    assert qbench("list", "models") == (code, "", "qbench: Doing it: found this; expected that. Do so.\n")


def test_a_fault_of_ours_keeps_its_traceback(qbench, monkeypatch):
    def break_down(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("qbench.suite.gather", break_down)
    with pytest.raises(ZeroDivisionError):
        qbench("list", "models")


def test_importing_qbench_loads_nothing_heavy():
    heavy = ["numpy", "onnx", "onnx_ir", "onnxruntime", "pandas", "matplotlib", "rich", "jinja2", "pytest"]
    found = run_python(f"import sys, json, qbench; print(json.dumps([m for m in {heavy} if m in sys.modules]))").stdout
    assert json.loads(found) == []


def test_help_loads_nothing_heavy():
    heavy = ["numpy", "onnx", "onnxruntime", "pandas", "rich"]
    code = (
        f"import sys; from qbench.cli import main; main(['--help']); sys.exit([m for m in {heavy} if m in sys.modules])"
    )
    run_python(f"{code[: -len(')')]} or 0)")


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    """A folder with a float model and data for it."""
    folder = tmp_path_factory.mktemp("small")
    weight = ir.tensor(np.eye(4, 3, dtype=np.float32), name="w")
    x = ir.Value(name="x", shape=ir.Shape(["N", 4]), type=ir.TensorType(ir.DataType.FLOAT))
    product = ir.node("MatMul", [x, ir.Value(name="w", const_value=weight)], name="fc")
    (y,) = product.outputs
    y.name, y.shape, y.type = "y", ir.Shape(["N", 3]), ir.TensorType(ir.DataType.FLOAT)
    constants = [product.inputs[1]]
    graph = ir.Graph([x], [y], nodes=[product], opset_imports={"": 21}, initializers=constants, name="small")
    ir.save(ir.Model(graph, ir_version=10), folder / "net.onnx")
    np.savez(folder / "data.npz", x=np.eye(4, dtype=np.float32), y=[0, 1, 2, 0])
    return folder


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        ("list schemas", ["sympy", "onnxruntime", "pandas", "PIL", "filelock", "difflib"]),
        ("lint net.onnx --schema w8_sym_pc", ["sympy", "onnxruntime", "pandas", "PIL", "filelock", "qbench.judging"]),
        (
            "eval net.onnx --data data.npz",
            [
                "sympy",
                "pandas",
                "PIL",
                "matplotlib",
                "scipy",
                "numba",
                "qbench.quantization.plan",
                "qbench.backends.integer",
                "qbench.calibration",
            ],
        ),
    ],
)
def test_a_verb_loads_what_it_uses(small_files, words, unused):
    """Modules that cost a tenth of a second or more, and those of ours that many others hang on."""
    code = (
        f"import os, sys; os.chdir({str(small_files)!r}); from qbench.cli import main; code = main({words.split()});"
        f"print(code, *(name for name in {unused} if name in sys.modules), file=sys.stderr)"
    )
    environment = {**os.environ, "QBENCH_CACHE": str(small_files / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.stderr.splitlines()[-1] == "0"


def test_a_reader_that_goes_away_is_no_error():
    code = "import sys; from qbench.cli import main; sys.exit(main(['list', 'schemas']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode not in (0, 1)


def test_public_names_are_those_of_the_rooms():
    import qbench as package

    for name in package.__all__:
        value = getattr(package, name)
        assert value is not None
        assert not isinstance(value, type(sys)), f"{name} is a module"
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        package.quantise  # noqa: B018


@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "there"), MemoryError(), RecursionError()])
def test_what_the_system_refuses_is_a_sentence(monkeypatch, capsys, error):
    from dataclasses import replace

    from qbench.cli import program

    def refused(_):
        raise error

    monkeypatch.setattr(program, "COMMANDS", tuple(replace(one, execute=refused) for one in program.COMMANDS))
    assert program.main(["doctor"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("qbench: Running 'qbench doctor': found ")

"""The program around the commands: help, exit codes, one sentence instead of a traceback,
light imports.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import onnx_ir as ir
import pytest

from qbench.cli.program import COMMANDS, build_parser
from qbench.errors import IncomparableError, IncompleteError, InputError


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )


@pytest.mark.parametrize("command", ["", *(command.name for command in COMMANDS)])
def test_help(qbench, monkeypatch, golden, command):
    """It fits a terminal; every word, one option a line: Pythons differ in how they break and
    indent the lines.
    """
    asked = (*filter(None, [command]), "--help")
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, qbench(*asked)[1].splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "1000")
    code, out, _ = qbench(*asked)
    assert code == 0
    words = re.sub(r"(-\w) \S+, (--\w+ \S+)", r"\1, \2", out)
    golden(f"help/{command or 'qbench'}.txt", re.sub(r"(?<=\S)(\n {7,}| {2,})", "  ", words))


def test_only_the_commands_that_are_named_have_options():
    def options(parser):
        (verbs,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
        return {name: sorted(one._option_string_actions) for name, one in verbs.choices.items()}

    everything, of_one = options(build_parser()), options(build_parser(["eval", "net.onnx"]))
    assert of_one == {name: [] for name in everything} | {"eval": everything["eval"]}


def test_python_runs_it_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "qbench", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
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
    "arguments",
    [[], ["frobnicate"], ["list"], ["list", "moddels"], ["eval"], ["list", "models", "--jso"]],
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
        (
            ["eval", "net.onnx", "--dat", "val.npz"],
            "unknown option '--dat'; did you mean '--data'?",
        ),
        (
            ["localize", "net", "--foo=1"],
            "unknown option '--foo'; 'qbench localize --help' lists what there is",
        ),
        (["--verson"], "unknown option '--verson'; did you mean '--version'?"),
    ],
)
def test_a_mistyped_word_is_named_with_the_nearest(qbench, words, says):
    code, out, err = qbench(*words)
    assert (code, out) == (2, "")
    assert err.endswith(f"{says}\n")


def _verbs(parser):
    """Every verb and action: its parser and the words that lead to it."""
    actions = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    for name, one in ((name, one) for action in actions for name, one in action.choices.items()):
        yield from ((f"{name} {words}".strip(), verb) for words, verb in _verbs(one))
    if not actions:
        yield "", parser


VERBS = dict(_verbs(build_parser()))


@pytest.mark.parametrize("verb", VERBS)
def test_an_option_with_one_value_is_given_once(capsys, verb):
    """Of two values the last would be used in silence; a list takes both."""
    for action in VERBS[verb]._actions:
        if not action.option_strings or action.nargs == 0:
            continue
        option = action.option_strings[-1]
        words = [
            option,
            *[_value_for(action)] * (action.nargs if isinstance(action.nargs, int) else 1),
        ]
        with contextlib.suppress(SystemExit):
            VERBS[verb].parse_args([*words, *words])
        said = f"{option} was given twice" in capsys.readouterr().err
        assert said == (type(action).__name__ == "_Once"), option


def _value_for(action):
    if action.choices:
        return next(iter(action.choices))
    for text in ("1", "0.01", "1/2", "H=2"):
        with contextlib.suppress(argparse.ArgumentTypeError, ValueError):
            (action.type or str)(text)
            return text
    raise AssertionError(f"no value for {action.option_strings}")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["localize", "n", "--backend", "a", "--backend", "b"],
            "'a' and 'b'; it takes one. Run the command",
        ),
        (["eval", "n", "--data", "d", "--metrics", "a", "b"], "--metrics a,b"),
        (["optimizers", "n", "--limit", "64"], "did you mean '--samples'?"),
        (["eval", "n", "--limit", "64"], "unknown option '--limit'; all samples of --data are"),
        (["report", "--report", "html,nothing"], "invalid choice: 'nothing'"),
        (["quantize", "n", "--size", "H=2,W"], "found 'W'"),
    ],
)
def test_several_values_are_never_dropped(qbench, words, says):
    code, out, err = qbench(*words)
    assert (code, out) == (2, "")
    assert says in err


def test_lists_take_commas_and_repeats():
    parse = build_parser().parse_args
    assert (
        parse(["eval", "n", "--data", "d", "--metrics", "a,b", "--metrics", "c"]).metrics == "a,b,c"
    )
    for verb in ("eval", "sweep"):
        several = parse([verb, "n", "--data", "d", "--backend", "a,b", "--backend", "c"])
        assert several.backend == "a,b,c"
        several = parse([verb, "n", "--data", "d", "--schema", "a", "--schema", "b"])
        assert several.schema == "a,b"
    assert parse(["report", "--report", "html,md", "--report", "png"]).report == [
        "html",
        "md",
        "png",
    ]
    assert parse(["lint", "n", "--arithmetic", "a,b", "--arithmetic", "c"]).arithmetic == [
        "a",
        "b",
        "c",
    ]
    assert parse(["report", "--report", "html,md"]).report == [
        "html",
        "md",
    ]  # nothing is kept between two parses


@pytest.mark.parametrize("option", ["--backend", "--schema"])
def test_several_names_of_one_option_are_refused_by_their_number(qbench, option):
    words = ["--data", "digits_test", "--calib", "digits_train"]
    words += ["--backend", "ort-cpu"] if option == "--schema" else ["--schema", "w8a8_asym_pc"]
    code, out, err = qbench("localize", "digits_cnn", *words, option, "one,two")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "found the 2 names 'one,two'; expected one" in err


def test_help_of_a_verb(qbench):
    assert qbench("help", "eval") == qbench("eval", "--help")
    assert qbench("help") == qbench("--help")


def test_version(qbench):
    import qbench as package

    assert qbench("-V") == qbench("--version")
    assert qbench("--version")[:2] == (0, f"qbench {package.__version__}\n")


@pytest.mark.parametrize(
    ("kind", "code"), [(InputError, 2), (IncomparableError, 3), (IncompleteError, 4)]
)
def test_an_error_is_one_sentence_with_its_exit_code(qbench, monkeypatch, kind, code):
    def refuse(*_, **__):
        raise kind("Doing it", found="this", expected="that", remedy="Do so.")

    monkeypatch.setattr("qbench.suite.gather", refuse)
    assert qbench("list", "models") == (
        code,
        "",
        "qbench: Doing it: found this; expected that. Do so.\n",
    )


def test_a_fault_of_ours_keeps_its_traceback(qbench, monkeypatch):
    monkeypatch.setattr("qbench.suite.gather", None)
    with pytest.raises(TypeError, match="not callable"):
        qbench("list", "models")


def test_importing_qbench_loads_nothing_heavy():
    heavy = [
        "numpy",
        "onnx",
        "onnx_ir",
        "onnxruntime",
        "pandas",
        "matplotlib",
        "rich",
        "jinja2",
        "pytest",
    ]
    found = run_python(
        f"import sys, json, qbench; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    ).stdout
    assert json.loads(found) == []


def test_help_loads_nothing_heavy():
    heavy = ["numpy", "onnx", "onnxruntime", "pandas", "rich"]
    code = (
        f"import sys; from qbench.cli import main; main(['--help']); sys.exit([m for m in {heavy} "
        "if m in sys.modules])"
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
    graph = ir.Graph(
        [x], [y], nodes=[product], opset_imports={"": 21}, initializers=constants, name="small"
    )
    ir.save(ir.Model(graph, ir_version=10), folder / "net.onnx")
    np.savez(folder / "data.npz", x=np.eye(4, dtype=np.float32), y=[0, 1, 2, 0])
    return folder


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        ("list schemas", ["sympy", "onnxruntime", "pandas", "PIL", "filelock", "difflib"]),
        (
            "lint net.onnx --schema w8_sym_pc",
            ["sympy", "onnxruntime", "pandas", "PIL", "filelock", "qbench.judging"],
        ),
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
        f"import os, sys; os.chdir({str(small_files)!r}); from qbench.cli import main; code = "
        f"main({words.split()});"
        f"print(code, *(name for name in {unused} if name in sys.modules), file=sys.stderr)"
    )
    environment = {**os.environ, "QBENCH_CACHE": str(small_files / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert done.stderr.splitlines()[-1] == "0"


def test_comparing_runs_loads_no_arrays(tmp_path):
    cell = {"type": "cell", "suite": "s", "model": "m", "backend": "b", "schema": "w8"}
    counts = dict.fromkeys(("n", "hits", "out_of", "reference_hits"), 4) | {"losses": 0, "gains": 0}
    cell |= {"outcome": "passed", "metrics": {"top1": {"against": "labels", **counts}}}
    for place in range(2):
        first = {"type": "run", "format": "qbench-run/1", "id": f"r{place}", "suite": "s"}
        first["started"] = f"2026-01-0{place + 1}T00:00:00Z"
        lines = (first, cell, {"type": "end"})
        (tmp_path / f"r{place}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    code = (
        "import sys; from qbench.cli import main; "
        f"print(main(['compare', 'r0', 'r1', '--history', {str(tmp_path)!r}]), "
        "'numpy' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=600
    )
    assert done.stderr.splitlines()[-1] == "0 False"


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("unbuffered", [None, "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "words", [["list", "schemas"], ["list", "models", "--json"], ["--help"], ["eval", "--help"]]
)
def test_a_reader_that_goes_away_is_no_error(words, unbuffered):
    """Buffered output fails at the last flush, after what standard error gets; unbuffered
    output at the first line.
    """
    code = f"import sys; from qbench.cli import main; sys.exit(main({words}))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    if unbuffered is not None:
        environment["PYTHONUNBUFFERED"] = unbuffered
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert all(line.startswith("qbench: and every other name") for line in said.splitlines()), said
    swallowed = (
        {0} if "--help" in words else set()
    )  # argparse drops errors of the stream that it writes help to
    assert process.returncode in {128 + signal.SIGPIPE, *swallowed}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize(
    "words", [["eval", "--help"], ["init", "--help"], ["list", "schemas"], ["eval", "…"]]
)
def test_no_encoding_of_the_terminal_is_an_error(words, encoding):
    code = f"import sys; from qbench.cli import main; sys.exit(main({words}))"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, env=environment
    )
    assert done.returncode == (2 if words == ["eval", "…"] else 0), done.stderr
    assert b"Traceback" not in done.stderr


def test_public_names_are_those_of_the_rooms():
    import qbench as package

    for name in package.__all__:
        value = getattr(package, name)
        assert value is not None
        assert not isinstance(value, type(sys)), f"{name} is a module"
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        package.quantise  # noqa: B018


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device", "there"), MemoryError(), RecursionError()]
)
def test_what_the_system_refuses_is_a_sentence(monkeypatch, capsys, error):
    from dataclasses import replace

    from qbench.cli import program

    def refused(_):
        raise error

    monkeypatch.setattr(
        program, "COMMANDS", tuple(replace(one, execute=refused) for one in program.COMMANDS)
    )
    assert program.main(["doctor"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("qbench: Running 'qbench doctor': found ")

"""The names of tests with ``qbench_check``, and tests that are renamed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.cli import main
from qbench.errors import InputError
from qbench.judging import Cell
from qbench.suite import check_name, load_suite

ONE = "def test_int8(qbench_check): qbench_check('int8.onnx', **GOOD)"


@given(st.lists(st.text(max_size=150), min_size=2, max_size=6, unique=True))
def test_tests_have_names_of_their_own(tests):
    names = [check_name(f"tests/test_a.py::{one}") for one in tests]
    assert len(set(names)) == len(names)
    for name in names:
        assert Cell("checks", name, "ort-cpu", "given").model == name
        assert len(name) < 120


def test_plain_names_can_be_read():
    assert check_name("tests/test_net.py::test_int8") == "tests.test_net--test_int8"
    alike = ["a/b.py::c", "a.b.py::c", "a.py::b::c", "a.py::b--c", "A/b.py::c", "a/b.py::c[x]"]
    assert len({check_name(one) for one in alike}) == len(alike)


def test_parameters_classes_and_folders(checks):
    checks.write(
        """
        class TestNet:
            @pytest.mark.parametrize("file", ["int8.onnx", "./int8.onnx", "Größe [a::b]"])
            def test_it(self, qbench_check, file):
                qbench_check(file if "onnx" in file else "int8.onnx", **GOOD)
        """,
        "tests/deep/test_net",
    )
    assert checks.run("--qbench-accept=new").parseoutcomes() == {"accepted": 3}
    assert len(checks.baselines) == 3
    assert checks.run().parseoutcomes() == {"passed": 3}
    assert {line["test"] for line in checks.lines()} == {
        "tests/deep/test_net.py::TestNet::test_it[int8.onnx]",
        "tests/deep/test_net.py::TestNet::test_it[./int8.onnx]",
        "tests/deep/test_net.py::TestNet::test_it[Gr\\xf6\\xdfe [a::b]]",
    }


def test_a_second_check_in_one_test_is_refused(checks):
    checks.write("""
        def test_two(qbench_check):
            qbench_check("int8.onnx", **GOOD)
            qbench_check("other.onnx", **GOOD)
    """)
    result = checks.run()
    assert result.parseoutcomes() == {"failed": 1}
    result.stdout.fnmatch_lines(
        [
            "Checking in 'test_net.py::test_two': found a second qbench_check; expected one for "
            "each test*parametrize the test."
        ]
    )


def test_two_tests_of_one_file_are_named_and_have_results_of_their_own(checks):
    checks.write(ONE + "\ndef test_again(qbench_check): qbench_check('int8.onnx', **GOOD)")
    result = checks.run("-q", "--qbench-accept=new")
    assert checks.baselines == ["test_net--test_again.json", "test_net--test_int8.json"]
    result.stdout.fnmatch_lines(
        ["*'test_net.py::test_again' and 'test_net.py::test_int8' check the same file*2 times*"]
    )
    checks.write(ONE + "\ndef test_again(qbench_check): qbench_check('same.onnx', **GOOD)")
    checks.run("-q").stdout.no_fnmatch_line("*check the same file*")


@pytest.fixture
def renamed(checks, monkeypatch):
    """A project whose accepted test has another name since."""
    monkeypatch.chdir(checks.path)
    checks.write(ONE)
    checks.run("--qbench-accept=new")
    checks.write(ONE.replace("test_int8", "test_eight"))
    return checks


OLD, NEW = "test_net.py::test_int8", "test_net.py::test_eight"


def test_a_renamed_test_is_red_until_its_result_is_moved(renamed, capsys):
    result = renamed.run()
    assert result.parseoutcomes() == {"failed": 1}
    result.stdout.fnmatch_lines(
        [
            f"Checking '{NEW}': found no accepted result, and one of the same model and data for "
            f"'{OLD}', a test that is gone (baselines/checks/test_net--test_int8.json)*"
            f'qbench accept --rename "{OLD}" "{NEW}"*'
        ]
    )
    assert renamed.lines()[0]["outcome"] == "error"
    assert main(["accept", "--rename", OLD, NEW, "--dry-run"]) == 0
    assert renamed.baselines == ["test_net--test_int8.json"]
    assert main(["accept", "--rename", OLD, NEW]) == 0
    assert "test_net--test_eight.json" in capsys.readouterr().out
    assert renamed.baselines == ["test_net--test_eight.json"]
    assert sorted(path.name for path in (renamed.path / "baselines/checks").glob("*.npz")) == [
        "test_net--test_eight.fp32.npz"
    ]
    passed = renamed.run("-q")
    assert passed.parseoutcomes() == {"passed": 1}
    passed.stdout.no_fnmatch_line("*nothing is accepted*")
    renamed.quantize("other.onnx")
    assert renamed.run().parseoutcomes() == {"failed": 1}


def test_a_renamed_test_stays_red_where_only_changes_are_accepted(renamed):
    result = renamed.run("--qbench-accept=changed", "--qbench-reason=another day")
    assert result.parseoutcomes() == {"failed": 1}
    assert renamed.baselines == ["test_net--test_int8.json"]


def test_a_renamed_test_may_be_accepted_as_new(renamed):
    assert renamed.run("--qbench-accept=new").parseoutcomes() == {"accepted": 1}
    assert renamed.baselines == ["test_net--test_eight.json", "test_net--test_int8.json"]
    kept = (
        "*'baselines/checks/test_net--test_int8.json' is of 'test_net.py::test_int8', a test*gone*"
    )
    renamed.run("-q").stdout.fnmatch_lines([kept])


def test_a_file_or_a_parameter_is_renamed(checks):
    marked = (
        "@pytest.mark.parametrize('a', ['{}'])\n"
        "def test_it(qbench_check, a): qbench_check(a, **GOOD)"
    )
    checks.write(marked.format("int8.onnx"))
    checks.run("--qbench-accept=new")
    checks.write(marked.format("same.onnx"))
    assert checks.run().parseoutcomes() == {"failed": 1}
    (checks.path / "test_net.py").rename(checks.path / "test_moved.py")
    assert checks.run().parseoutcomes() == {"failed": 1}


def test_a_test_that_is_only_left_out_is_not_gone(checks):
    checks.write(ONE)
    checks.run("--qbench-accept=new")
    checks.write(ONE + "\ndef test_more(qbench_check): qbench_check('int8.onnx', **GOOD)")
    assert checks.run("-k", "more").parseoutcomes() == {"passed": 1, "deselected": 1}
    assert checks.run("test_net.py::test_more").parseoutcomes() == {"passed": 1}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], "found no run"),
        (["latest", "--rename", OLD, NEW], "found runs and --rename"),
        (["--rename", "test_net.py::test_int", NEW], "Did you mean 'test_net.py::test_int8'?"),
        (["--rename", OLD, OLD], "found the same name twice"),
    ],
)
def test_what_cannot_be_moved(renamed, capsys, arguments, found):
    assert main(["accept", *arguments]) == 2
    assert found in capsys.readouterr().err
    assert renamed.baselines == ["test_net--test_int8.json"]


def test_nothing_is_moved_over_another_result(renamed, capsys):
    renamed.run("--qbench-accept=new")
    before = {path: path.read_bytes() for path in (renamed.path / "baselines/checks").iterdir()}
    assert main(["accept", "--rename", OLD, NEW]) == 2
    assert "there already" in capsys.readouterr().err
    assert before == {
        path: path.read_bytes() for path in (renamed.path / "baselines/checks").iterdir()
    }


def test_no_suite_has_the_name_of_checks(tmp_path):
    path = tmp_path / "checks.qbench.toml"
    path.write_text("[suite]\n")
    with pytest.raises(InputError, match="the name 'checks'"):
        load_suite(path)

"""``qbench_check`` in a plain test: measured, judged, remembered; no suite file, no conftest."""

import re
from pathlib import Path

import pytest

from qbench.cli import main

ONE = "def test_int8(qbench_check): qbench_check('int8.onnx', **GOOD)"
ID = "test_net.py::test_int8"
NAME = "test_net--test_int8"


def test_without_an_accepted_result_it_passes_by_its_loss_and_says_so(checks):
    checks.write(ONE)
    result = checks.run("-q")
    assert result.parseoutcomes() == {"passed": 1}
    accept = f'accept with: pytest "{ID}" --qbench-accept=new'
    result.stdout.fnmatch_lines([f"*nothing is accepted yet for '{ID}'*{accept}"])
    (line,) = checks.lines()
    assert {
        key: line[key] for key in ("suite", "model", "backend", "schema", "test", "outcome")
    } == {
        "suite": "checks",
        "model": NAME,
        "backend": "ort-cpu",
        "schema": "given",
        "test": ID,
        "outcome": "passed",
    }
    assert checks.lines("end")[0]["exit_code"] == 0
    assert not checks.baselines


def test_the_first_code_of_the_readme_runs(checks):
    text = (Path(__file__).parents[2] / "README.md").read_text()
    blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
    assert "make bench" in blocks[0][1]
    language, code = blocks[1]
    assert language == "python"
    (checks.path / "test_net.py").write_text(code)
    checks.write_ini(*checks.settings, "qbench_tolerance = 0.5")
    assert checks.run().parseoutcomes() == {"passed": 1}


def test_a_loss_beyond_the_tolerance_is_a_failure_that_says_what_to_do(checks):
    checks.write(
        "def test_int8(qbench_check):\n"
        "    qbench_check('other.onnx', fp32='net.onnx', data='val.npz', tolerance=0.01)"
    )
    result = checks.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "top1 100.00 → * %: drop * pp, margin 1.00 pp: tolerance 1 % (argument 'tolerance')",
            f"  cell: {ID} (ort-cpu+given) is failed",
            "  ✗ loss: top1 * against fp32 200/200 = 100.00 %*",
            "  rule: tolerance 1 % (argument 'tolerance')",
            "  cause: qbench localize other.onnx --fp32 net.onnx --backend ort-cpu --data val.npz "
            "--tolerance 0.01",
            "  next: this stays red: find the cause, or give the check another 'tolerance'*",
        ]
    )
    assert "checks.py" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    assert checks.lines()[0]["outcome"] == "failed"


def test_what_is_accepted_is_what_it_is_held_to(checks):
    checks.write(ONE)
    assert checks.run("--qbench-accept=new").parseoutcomes() == {"accepted": 1}
    assert checks.baselines == [f"{NAME}.json"]
    again = checks.run("-q")
    assert again.parseoutcomes() == {"passed": 1}
    again.stdout.no_fnmatch_line("*nothing is accepted*")
    checks.quantize("close.onnx")
    moved = checks.run()
    assert checks.lines()[0]["outcome"] == "drifted"
    moved.stdout.fnmatch_lines(
        [f'*pytest "{ID}" --qbench-accept=changed --qbench-reason "…" if it is intended*']
    )
    assert moved.parseoutcomes() == {"failed": 1}
    done = checks.run("--qbench-accept=changed", "--qbench-reason=four bits")
    assert done.parseoutcomes() == {"accepted": 1}
    assert checks.run().parseoutcomes() == {"passed": 1}
    assert '"reason": "four bits"' in (checks.path / f"baselines/checks/{NAME}.json").read_text()


def test_another_float_model_is_a_stale_reference_until_it_is_accepted(checks, check_files):
    checks.write(
        "def test_w(qbench_check): qbench_check('net.onnx', schema='w8_sym_pc', "
        "data='val.npz', tolerance=0.5)"
    )
    checks.run("--qbench-accept=new")
    (checks.path / "net.onnx").write_bytes(check_files["again.onnx"])
    stale = checks.run()
    assert checks.lines()[0]["outcome"] == "stale"
    stale.stdout.fnmatch_lines(
        ['*pytest "test_net.py::test_w" --qbench-accept-fp32 --qbench-accept=all*']
    )
    checks.run("--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason=trained again")
    assert checks.run().parseoutcomes() == {"passed": 1}


def test_a_float_file_is_quantized_by_a_schema(checks):
    checks.write("""
        @pytest.mark.parametrize(
            ("backend", "schema"), [("ort-cpu", "w8a8_asym_pc"), ("onnx-reference", "w8_sym_pc")]
        )
        def test_schema(qbench_check, schema, backend):
            qbench_check("net.onnx", schema=schema, calibration="calibration.npz",
                         data="val.npz", backend=backend, tolerance=0.5)
    """)
    assert checks.run("--qbench-accept=new").parseoutcomes() == {"accepted": 2}
    assert len(checks.baselines) == 2
    assert checks.run().parseoutcomes() == {"passed": 2}
    assert [f"{one['backend']}+{one['schema']}" for one in checks.lines()] == [
        "ort-cpu+w8a8_asym_pc",
        "onnx-reference+w8_sym_pc",
    ]


def test_a_schema_in_a_file_and_the_command_that_looks_for_the_cause(checks):
    (checks.path / "mine.toml").write_text(
        '[[rules]]\nweight = { qtype = "int4", symmetry = "symmetric" }\n'
        'activation = { qtype = "uint8", symmetry = "asymmetric" }\n'
    )
    checks.write("""
        def test_mine(qbench_check):
            qbench_check("net.onnx", schema="mine.toml", calibration="calibration.npz",
                         data="val.npz")
    """)
    result = checks.run()
    result.stdout.fnmatch_lines(
        [
            "  cause: qbench localize net.onnx --schema mine.toml --backend ort-cpu --data val.npz "
            "--calib calibration.npz"
        ]
    )


def test_the_command_line_wins_over_the_argument_and_that_over_the_ini(checks):
    body = (
        "def test_it(qbench_check): qbench_check('other.onnx', fp32='net.onnx', data='val.npz'{})"
    )
    checks.write(body.format(""))
    checks.write_ini(*checks.settings, "qbench_tolerance = 0.6")
    assert checks.run().parseoutcomes() == {"passed": 1}
    checks.write(body.format(", tolerance=0.001"))
    assert checks.run().parseoutcomes() == {"failed": 1}
    assert checks.run("--qbench-tolerance=0.6").parseoutcomes() == {"passed": 1}
    assert "option --qbench-tolerance" in checks.lines()[0]["rule"]


def test_the_test_decides_what_a_red_check_means(checks):
    checks.write("""
        BAD = dict(fp32="net.onnx", data="val.npz", tolerance=0.001)

        @pytest.mark.xfail(strict=True, reason="four bits are too few")
        def test_known(qbench_check): qbench_check("other.onnx", **BAD)

        def test_raises(qbench_check):
            with pytest.raises(pytest.fail.Exception, match="margin"):
                qbench_check("other.onnx", **BAD)

        @pytest.fixture
        def checked(qbench_check): qbench_check("int8.onnx", **GOOD)

        def test_by_a_fixture(checked): pass

        def test_not_called(qbench_check): pass
    """)
    assert checks.run().parseoutcomes() == {"passed": 3, "xfailed": 1}
    assert [line["outcome"] for line in checks.lines()] == ["failed", "failed", "passed"]


def test_a_fixture_that_is_not_called_leaves_no_file(checks):
    checks.write("def test_nothing(qbench_check): pass")
    assert checks.run().parseoutcomes() == {"passed": 1}
    assert not (checks.path / "reports").exists()


def test_a_backend_that_is_not_there_skips_and_is_red_once_it_was(checks):
    conftest = """
        from qbench import Extension
        from qbench.backends import get_backend
        from qbench.errors import UnsupportedError

        def make():
            {}

        def pytest_qbench_extension(config):
            return Extension(name="here", backends={{"device": make}})
    """
    away = (
        "raise UnsupportedError('Opening the device', found='none', expected='one', remedy='Plug.')"
    )
    checks.write("def test_it(qbench_check): qbench_check('int8.onnx', **GOOD, backend='device')")
    checks.pytester.makeconftest(conftest.format(away))
    result = checks.run("-rs")
    assert result.ret == 0
    assert result.parseoutcomes() == {"skipped": 1}
    result.stdout.fnmatch_lines(["SKIPPED*test_net.py:4*Opening the device: found none*"])
    checks.pytester.makeconftest(conftest.format("return get_backend('onnx-reference')"))
    assert checks.run("--qbench-accept=new").parseoutcomes() == {"accepted": 1}
    checks.pytester.makeconftest(conftest.format(away))
    assert checks.run().parseoutcomes() == {"failed": 1}
    assert checks.lines()[0]["outcome"] == "drifted"
    assert "suite" not in checks.lines()[0]["remedy"]


def test_names_of_a_conftest(checks):
    checks.pytester.makeconftest("""
        import numpy as np
        from qbench import Extension
        from qbench.subjects import Dataset, model_from_file

        def points():
            arrays = np.load("val.npz")
            return Dataset.from_arrays("points", arrays["x"], arrays["y"])

        def pytest_qbench_extension(config):
            return Extension(
                name="mine",
                models={"mine": lambda: model_from_file("net.onnx", name="mine")},
                datasets={"points": points},
            )
    """)
    checks.write("""
        def test_it(qbench_check):
            qbench_check("mine", schema="w8_sym_pc", data="points", tolerance=0.5)
    """)
    assert checks.run("--qbench-accept=new").parseoutcomes() == {"accepted": 1}
    assert checks.run().parseoutcomes() == {"passed": 1}


def test_a_test_that_works_in_a_folder_of_its_own_is_accepted_too(checks):
    checks.write("""
        import shutil

        def test_there(qbench_check, tmp_path, monkeypatch):
            for name in ("int8.onnx", "net.onnx", "val.npz"):
                shutil.copy(name, tmp_path)
            monkeypatch.chdir(tmp_path)
            qbench_check("int8.onnx", **GOOD)
    """)
    assert checks.run("--qbench-accept=new").parseoutcomes() == {"accepted": 1}
    assert checks.run().parseoutcomes() == {"passed": 1}
    assert checks.baselines == ["test_net--test_there.json"]


def test_an_accepted_run_file(checks, monkeypatch, capsys):
    monkeypatch.chdir(checks.path)
    checks.write(ONE)
    checks.run()
    assert main(["accept", "latest"]) == 2
    assert f'pytest "{ID}" --qbench-accept-fp32 --qbench-accept=new' in capsys.readouterr().err
    checks.run("--qbench-accept=new")
    checks.quantize("other.onnx")
    checks.run()
    capsys.readouterr()
    assert main(["accept", "latest", "--what", "changed", "--reason", "four bits"]) == 0
    assert f"{NAME}::ort-cpu+given" in capsys.readouterr().out
    assert checks.run().parseoutcomes() == {"passed": 1}


def test_only_failed_ones_again_and_no_cache_of_pytest(checks):
    checks.write("""
        def test_good(qbench_check): qbench_check("int8.onnx", **GOOD)
        def test_bad(qbench_check): qbench_check("other.onnx", **(GOOD | {"tolerance": 0.001}))
    """)
    assert checks.run().parseoutcomes() == {"passed": 1, "failed": 1}
    assert checks.lines("run")[0]["complete_selection"] is True
    assert checks.run("--lf").parseoutcomes() == {"failed": 1}
    assert checks.lines("run")[0]["complete_selection"] is False
    assert checks.run("-p", "no:cacheprovider").parseoutcomes() == {"passed": 1, "failed": 1}


def test_accepted_tests_of_other_files_make_a_run_a_part(checks):
    checks.write(ONE)
    checks.write(ONE, "test_other")
    checks.run("--qbench-accept=new")
    checks.run("test_net.py")
    assert checks.lines("run")[0]["complete_selection"] is False
    checks.run()
    assert checks.lines("run")[0]["complete_selection"] is True


def test_a_session_that_stops_accepts_nothing(checks):
    checks.write("""
        def test_bad(qbench_check): qbench_check("other.onnx", **(GOOD | {"tolerance": 0.001}))
        def test_good(qbench_check): qbench_check("int8.onnx", **GOOD)
    """)
    result = checks.run("-x", "--qbench-accept=new")
    assert result.parseoutcomes() == {"failed": 1}
    result.stdout.fnmatch_lines(["*Nothing was accepted: the run is not whole*"])
    assert not checks.lines("end")
    assert not checks.baselines


def test_a_report(checks):
    checks.write(ONE)
    result = checks.run("--qbench-report=html", "--qbench-report=md", "--qbench-report=github")
    assert result.ret == 0
    assert "The one cell passes" in (checks.path / "reports" / "report.md").read_text()
    assert "✓ passed" in (checks.path / "reports" / "models" / f"{NAME}.html").read_text()


@pytest.mark.slow
def test_workers_measure_and_the_controller_accepts(checks):
    checks.write("""
        @pytest.mark.parametrize("number", range(4))
        def test_many(qbench_check, number): qbench_check("int8.onnx", **GOOD)
    """)
    result = checks.run("--qbench-accept=new", workers=2)
    assert result.parseoutcomes() == {"accepted": 4}
    assert len(checks.baselines) == 4
    again = checks.run("-q", workers=2)
    assert again.parseoutcomes() == {"passed": 4}
    again.stdout.fnmatch_lines(["*check the same file on the same data: it is measured 4 times*"])
    assert len(checks.lines()) == 4
    assert checks.lines("end")


@pytest.mark.slow
def test_no_network_and_nothing_but_the_files(checks):
    checks.write(
        "import socket\n"
        "def refuse(*_, **__): raise OSError('no network here')\n"
        "socket.socket.connect = refuse\n" + ONE
    )
    assert checks.run(process=True).parseoutcomes() == {"passed": 1}

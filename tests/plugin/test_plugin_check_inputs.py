"""What ``qbench_check`` refuses: one sentence each, without a traceback."""

import pytest

INPUTS = {
    "missing_model": ("'nope.onnx', **GOOD", "Loading the model 'nope.onnx': found No such file*"),
    "missing_fp32": (
        "'int8.onnx', fp32='nope.onnx', data='val.npz'",
        "*'nope.onnx'*Paths start from*",
    ),
    "missing_data": (
        "'int8.onnx', fp32='net.onnx', data='nope.npz'",
        "*'nope.npz': found No such*",
    ),
    "label": (
        "'int8.onnx', fp32='net.onnx', data='wrong.npz'",
        "*'wrong.npz', sample 'x[[]3]': found label 12; expected labels from 0 to 6*",
    ),
    "no_calibration": (
        "'net.onnx', schema='w8a8_asym_pc', data='val.npz'",
        "*found the schema 'w8a8_asym_pc' without 'calibration'*",
    ),
    "scored_calibration": (
        "'net.onnx', schema='w8a8_asym_pc', data='val.npz', calibration='val.npz'",
        "Calibrating 'net' on 'val.npz': found 200 sources*",
    ),
    "nothing": ("'net.onnx', data='val.npz'", "*found neither 'fp32' nor 'schema'*"),
    "both": ("'int8.onnx', schema='w8a8_asym_pc', **GOOD", "*found 'fp32' with 'schema'*"),
    "idle": ("'int8.onnx', calibration='x.npz', **GOOD", "*found 'fp32' with 'calibration'*"),
    "backend": (
        "'int8.onnx', backend='ort-cpo', **GOOD",
        "*unknown backend*Did you mean 'ort-cpu'*",
    ),
    "schema": (
        "'net.onnx', schema='w8a8_asim_pc', data='val.npz'",
        "*unknown schema*Did you mean 'w8a8_asym_pc'*",
    ),
    "schema_file": (
        "'net.onnx', schema='mine.toml', data='val.npz'",
        "*'mine.toml': found No such*",
    ),
    "tolerance": (
        "'int8.onnx', **(GOOD | {'tolerance': 1})",
        "*'tolerance'*found 1; expected a number*",
    ),
    "no_number": (
        "'int8.onnx', **(GOOD | {'tolerance': '1 %'})",
        "*found '1 %'; expected a number*",
    ),
    "model": ("3, **GOOD", "Reading 'model' of the check in *found 3; expected a name or a path*"),
    "float": ("'net.onnx', **GOOD", "*found a float model; expected a quantized one*"),
    "quantized": (
        "'int8.onnx', schema='w8_sym_pc', data='val.npz'",
        "*found a model that is quantized already*",
    ),
}


def test_what_is_refused(checks):
    body = "".join(
        f"def test_{name}(qbench_check): qbench_check({arguments})\n"
        for name, (arguments, _) in INPUTS.items()
    )
    checks.write(body)
    result = checks.run("--qbench-accept=new")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"failed": len(INPUTS)}
    result.stdout.fnmatch_lines_random([sentence for _, sentence in INPUTS.values()])
    text = result.stdout.str()
    assert "Traceback" not in text
    assert "checks.py:" not in text
    assert not checks.baselines


def test_a_damaged_baseline_is_an_error_and_stays(checks):
    checks.write("def test_int8(qbench_check): qbench_check('int8.onnx', **GOOD)")
    checks.run("--qbench-accept=new")
    file = checks.path / "baselines/checks/test_net--test_int8.json"
    file.write_text("{")
    result = checks.run()
    assert result.parseoutcomes() == {"failed": 1}
    result.stdout.fnmatch_lines(["Reading the baseline*test_net--test_int8.json*not JSON*"])
    assert file.read_text() == "{"

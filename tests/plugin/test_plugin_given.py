"""A model that came quantized: its cells, its partner's baseline, accepting,
and the wrong ways to write it.
"""

import json

import pytest

GIVEN = """
import tempfile, pathlib
from onnxruntime import quantization


def quantized(kind):
    def make():
        folder = pathlib.Path(tempfile.mkdtemp())
        ir.save(network(1), folder / "float.onnx")
        if kind == "dynamic":
            quantization.quantize_dynamic(folder / "float.onnx", folder / "int8.onnx")
        else:
            points = np.random.default_rng(3).normal(0, 1, (64, FEATURES)).astype(np.float32)

            class Reader(quantization.CalibrationDataReader):
                batches = iter([{"x": points}])

                def get_next(self):
                    return next(self.batches, None)

            quantization.quantize_static(
                folder / "float.onnx",
                folder / "int8.onnx",
                Reader(),
                quant_format=quantization.QuantFormat["QDQ" if kind == "partly" else kind],
                nodes_to_quantize=["gemm0"] if kind == "partly" else None,
                per_channel=True,
            )
        return ir.load(folder / "int8.onnx")

    return lambda: ZooModel(
        id=f"tiny_{kind.lower()}",
        graphs={"model": make},
        preprocess=ReadyArray(input="x"),
        task=Classification(k=PARTNER_K),
        origin="quantized by ONNX Runtime",
    )


PARTNER_K = int(os.environ.get("GIVEN_K", "3"))
pytest_plugins = []


def _more(found):
    for kind in ("QDQ", "QOperator", "dynamic", "partly"):
        found.models[f"tiny_{kind.lower()}"] = quantized(kind)
    found.models["tiny_float"] = lambda: quantized("QDQ")().__class__(
        id="tiny_float",
        graphs={"model": lambda: network(1)},
        preprocess=ReadyArray(input="x"),
        task=Classification(k=3),
        origin="random numbers",
    )
    return found


_plain = pytest_qbench_extension


def pytest_qbench_extension(config):
    return _more(_plain(config))
"""

SUITE = """
[suite]
tolerance = 0.2
agreement = 0.5
backends = ["ort-cpu-noopt"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]

[[model]]
id = "tiny_qdq"
fp32 = "tiny_a"

[[model]]
id = "tiny_qoperator"
fp32 = "tiny_a"
metrics = ["agreement"]

[[model]]
id = "tiny_dynamic"
fp32 = "tiny_a"
"""


@pytest.fixture
def given(project):
    project.write_suite(SUITE)
    project.write_conftest(extra=GIVEN)
    return project


@pytest.mark.slow
def test_it_is_measured_as_it_is_against_its_partner(given):
    result = given.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "no baseline of 'tiny_a' in suite 'scratch'",
            "  cell: tiny_qdq::ort-cpu-noopt+given is missing",
            (
                '  next: pytest "suites/scratch.qbench.toml::tiny_a" --qbench-accept-fp32 '
                "--qbench-accept=new"
            ),
        ]
    )
    assert given.accept().parseoutcomes() == {"accepted": 5}
    assert given.run().parseoutcomes() == {"passed": 5}
    assert list(given.outcomes()) == [
        "tiny_a::ort-cpu-noopt+fp32",
        "tiny_a::ort-cpu-noopt+w8a8_asym_pc",
        "tiny_qdq::ort-cpu-noopt+given",
        "tiny_qoperator::ort-cpu-noopt+given",
        "tiny_dynamic::ort-cpu-noopt+given",
    ]
    cells = {
        cell["model"]: cell
        for cell in given.lines(kind="cell")
        if cell["schema"] in ("given", "fp32")
    }
    float_model = cells["tiny_a"]["digests"]
    for name in ("tiny_qdq", "tiny_qoperator", "tiny_dynamic"):
        digests = cells[name]["digests"]
        assert digests["model"] == float_model["model"]
        assert digests["reference:points"] == float_model["predictions:points"]
        assert digests["predictions:points"] != float_model["predictions:points"]
        assert cells[name]["integer_macs"] == 1.0
        assert cells[name]["refusals"] == []
    assert cells["tiny_qdq"]["losses"] > 0
    assert cells["tiny_qdq"]["fp32_correct"] == 400  # labels are what the float model answers


@pytest.mark.slow
def test_accepting_it_alone_waits_for_its_partner(given):
    assert given.accept("-k", "tiny_qdq").parseoutcomes() == {"accepted": 1, "deselected": 4}
    result = given.run("-k", "tiny_qdq")
    result.stdout.fnmatch_lines(["no baseline of 'tiny_a' in suite 'scratch'"])
    assert given.accept("-k", "tiny_a").parseoutcomes() == {"accepted": 2, "deselected": 3}
    assert given.run("-k", "tiny_qdq").parseoutcomes() == {"passed": 1, "deselected": 4}


@pytest.mark.slow
def test_its_share_in_integers_is_shown_and_no_gate(given):
    given.write_suite(SUITE.replace('"tiny_qdq"', '"tiny_partly"'))
    assert given.accept().parseoutcomes() == {"accepted": 5}
    assert given.run().parseoutcomes() == {"passed": 5}
    (cell,) = (cell for cell in given.lines(kind="cell") if cell["model"] == "tiny_partly")
    assert 0.3 < cell["integer_macs"] < 0.4
    assert [refusal.partition(" ")[0] for refusal in cell["refusals"]] == ["gemm1", "gemm2"]


@pytest.mark.slow
def test_it_may_stand_before_its_partner(given, monkeypatch):
    head, partner, *others = SUITE.split("[[model]]")
    given.write_suite("[[model]]".join([head, *others, partner]))
    assert given.accept().parseoutcomes() == {"accepted": 5}
    assert given.run().parseoutcomes() == {"passed": 5}
    path = given.path / "baselines/scratch/tiny_a.json"
    path.write_text(path.read_text().replace('"preprocessing": "', '"preprocessing": "0'))
    assert given.run().parseoutcomes() == {"failed": 5}
    assert set(given.outcomes().values()) == {"stale"}
    assert (
        given.run("--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason", "mended").ret
        == 0
    )
    assert given.run().parseoutcomes() == {"passed": 5}


def test_a_drift_of_the_file_is_seen(given):
    given.accept()
    path = given.path / "baselines/scratch/tiny_qdq.json"
    stored = json.loads(path.read_text())
    (accepted,) = stored["cells"]["ort-cpu-noopt+given"]["accepted"].values()
    accepted["predictions"]["points"] = "0" * 64
    path.write_text(json.dumps(stored))
    assert given.run("-k", "tiny_qdq").parseoutcomes() == {"failed": 1, "deselected": 4}
    assert given.outcomes() == {"tiny_qdq::ort-cpu-noopt+given": "drifted"}


@pytest.mark.slow
def test_results_of_a_run_are_accepted_later(given):
    given.accept("-k", "tiny_a")
    given.run()
    from qbench.cli import main

    run = str(given.run_files[-1])
    assert main(["accept", run, "--cell", "tiny_q*", "--in-ci"]) == 0
    assert given.run().parseoutcomes() == {"passed": 4, "failed": 1}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'fp32 = "tiny_a"\n\n',
            'fp32 = "tiny_c"\n\n',
            "found unknown model 'tiny_c'*Did you mean 'tiny_a'*",
        ),
        (
            'fp32 = "tiny_a"\n\n',
            'fp32 = "tiny_dynamic"\n\n',
            "which came quantized itself*fp32 = 'tiny_a'*",
        ),
        (
            'fp32 = "tiny_a"\n\n',
            'fp32 = "tiny_a"\nschemas = ["w8a8_asym_pc"]\n\n',
            "found the key 'schemas' together*",
        ),
        (
            'fp32 = "tiny_a"\n\n',
            'fp32 = "tiny_a"\ndata = "spare"\n\n',
            "found data 'spare', where 'tiny_a' has*",
        ),
        (
            'fp32 = "tiny_a"\n\n',
            'fp32 = "tiny_a"\nsamples = 5\n\n',
            "found samples = 5, where 'tiny_a' has all*",
        ),
        (
            'fp32 = "tiny_a"\n\n',
            'fp32 = "tiny_a"\nmetrics = ["agreement@spare"]\n\n',
            "found a metric on 'spare', for which 'tiny_a' has no answers*",
        ),
    ],
)
def test_wrong_partners_are_one_sentence(given, old, new, said):
    given.write_suite(SUITE.replace(old, new, 1))
    result = given.run()
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*model 'tiny_qdq'*{said}"])


@pytest.mark.slow
def test_models_that_do_not_fit_their_key_are_one_sentence(given, monkeypatch):
    given.write_suite(SUITE.replace('"tiny_qdq"\nfp32 = "tiny_a"', '"tiny_float"\nfp32 = "tiny_a"'))
    given.run("-k", "tiny_float").stdout.fnmatch_lines(
        ["*'tiny_float' as it is: found a float model*a schema in place of 'fp32'*"]
    )
    keys = 'data = "points"\ncalibration = { data = "spare", count = 64 }\nmetrics = ["agreement"]'
    given.write_suite(SUITE.replace('"tiny_qdq"\nfp32 = "tiny_a"', f'"tiny_qdq"\n{keys}'))
    given.run("-k", "tiny_qdq").stdout.fnmatch_lines(
        ["*quantized already (qdq)*Name its fp32 partner*"]
    )
    given.write_suite(SUITE)
    monkeypatch.setenv("GIVEN_K", "2")
    given.run("-k", "tiny_qdq").stdout.fnmatch_lines(
        ["*against its fp32 partner 'tiny_a': found the task*k=2*"]
    )


def test_python_tests_can_ask_for_it(given):
    given.accept()
    (given.path / "test_given.py").write_text(
        "import pytest\n"
        '@pytest.mark.qbench(models=["tiny_a", "tiny_qdq"], schemas=["given"], '
        'suite="suites/scratch.qbench.toml")\n'
        "def test_it(qbench_cell):\n"
        '    assert qbench_cell.measure().cell.schema == "given"\n'
    )
    assert given.run("test_given.py", suite=False).parseoutcomes() == {"passed": 1}


DIGITS = """
import pathlib, tempfile
import onnx_ir as ir
from onnxruntime import quantization
from qbench.extension import Extension
from qbench.storage import Cache
from qbench.subjects import ZooModel, get_dataset, get_model, prepare_samples

PARTNER = get_model("digits_cnn")


def int8():
    folder = pathlib.Path(tempfile.mkdtemp())
    ir.save(PARTNER.graphs["model"](), folder / "float.onnx")
    learned = prepare_samples(
        get_dataset("digits_train").take(64), PARTNER.preprocess, Cache(folder / "cache"))

    class Reader(quantization.CalibrationDataReader):
        batches = learned.batches()

        def get_next(self):
            return next(self.batches, None)

    quantization.quantize_static(
        folder / "float.onnx", folder / "int8.onnx", Reader(), per_channel=True)
    return ir.load(folder / "int8.onnx")


def model():
    return ZooModel(
        id="digits_int8",
        graphs={"model": int8},
        preprocess=PARTNER.preprocess,
        task=PARTNER.task,
        origin="digits_cnn, quantized by ONNX Runtime",
    )


def pytest_qbench_extension(config):
    return Extension(name="int8 digits", models={"digits_int8": model})
"""

OF_DIGITS = """
[suite]
tolerance = 0.01
agreement = 0.95
backends = ["ort-cpu-noopt"]

[[model]]
id = "digits_cnn"
data = "digits_test"
calibration = { data = "digits_train", count = 16 }
metrics = ["top1", "top5", "agreement"]

[[model]]
id = "digits_int8"
fp32 = "digits_cnn"
"""


@pytest.mark.slow
def test_a_trained_network_quantized_by_onnxruntime(project):
    (project.path / "conftest.py").write_text(DIGITS)
    project.write_suite(OF_DIGITS)
    assert project.accept().parseoutcomes() == {"accepted": 2}
    assert project.run().parseoutcomes() == {"passed": 2}
    cells = {cell["model"]: cell for cell in project.lines(kind="cell")}
    stored = json.loads((project.path / "baselines/scratch/digits_cnn.json").read_text())
    given = cells["digits_int8"]
    assert (
        given["fp32_correct"] == stored["fp32"]["metrics"]["top1"] == cells["digits_cnn"]["correct"]
    )
    assert given["correct"] == given["fp32_correct"] - given["losses"] + given["gains"]
    assert given["correct"] > 0.97 * given["n"]
    assert given["integer_macs"] == 1.0
    assert given["digests"]["quantized"] != cells["digits_cnn"]["digests"]["model"]

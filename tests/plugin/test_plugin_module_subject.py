"""``subject = "module:factory"`` of a suite's model, by an exporter that the conftest brings: no
library of modules is needed.
"""

import pytest

NETS = """
from conftest import network


class Net:
    def __init__(self, seed):
        self.seed = seed


class Odd(Net):
    pass


def net():
    return Net(1), None


def odd():
    return Odd(1), None
"""

EXPORTER = """
from qbench.errors import UnsupportedError


class Exporter:
    def export(self, module, example, doing):
        if type(module).__name__ == "Odd":
            raise UnsupportedError(
                doing,
                found="the operator bessel_j0",
                expected="operators with an ONNX form",
                remedy="Replace it in the module.",
            )
        return network(module.seed)


_plain = pytest_qbench_extension


def pytest_qbench_extension(config):
    found = _plain(config)
    found.exporters["tiny_nets"] = Exporter
    return found
"""

MODEL = """
[[model]]
id = "{name}"
subject = "tiny_nets:{factory}"
data = "points"
calibration = {{ data = "spare", count = 64 }}
metrics = ["top1", "agreement"]
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
"""


@pytest.fixture
def nets(project):
    (project.path / "tiny_nets.py").write_text(NETS)
    project.write_conftest(extra=EXPORTER)
    return project


def test_a_module_is_measured_as_the_file_of_its_graph_would_be(nets):
    nets.write_suite(SUITE + MODEL.format(name="mine", factory="net"))
    assert nets.accept().parseoutcomes() == {"accepted": 4}
    assert nets.run().parseoutcomes() == {"passed": 4}
    cells = {(one["model"], one["schema"]): one for one in nets.lines(kind="cell")}
    for schema in ("fp32", "w8a8_asym_pc"):
        by_name, by_factory = cells["tiny_a", schema], cells["mine", schema]
        assert by_factory["digests"]["model"] == by_name["digests"]["model"]
        for key in ("n", "losses", "gains"):
            assert by_factory[key] == by_name[key]
    assert cells["mine", "w8a8_asym_pc"]["integer_macs"] == 1.0


def test_a_red_cell_is_taken_apart_by_the_name_of_its_factory(nets):
    nets.write_suite(
        SUITE.replace("agreement = 0.5", "agreement = 1.0")
        + MODEL.format(name="mine", factory="net")
    )
    nets.accept("-k", "mine")
    said = nets.run("-k", "mine").stdout.str()
    assert "qbench localize tiny_nets:net --backend ort-cpu-noopt --schema w8a8_asym_pc" in said


def test_a_module_that_cannot_be_exported_is_named_with_its_operator(nets):
    nets.write_suite(SUITE + MODEL.format(name="mine", factory="odd"))
    result = nets.run("-k", "mine", "-rs")
    assert "bessel_j0" in result.stdout.str()
    assert result.parseoutcomes() == {"skipped": 2, "deselected": 2}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (MODEL.format(name="tiny_b", factory="net"), "a model 'tiny_b' of scratch conftest"),
        (MODEL.format(name="mine", factory="net").replace("tiny_nets:", ""), "module:factory"),
    ],
    ids=["a name that an extension has", "a subject that is no factory"],
)
def test_what_is_no_subject_is_a_sentence(nets, table, says):
    nets.write_suite(SUITE + table)
    result = nets.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert says in result.stdout.str()

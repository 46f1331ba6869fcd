"""Modules of PyTorch, written ``module:factory``, as models: float, eager-mode QAT, and refused."""

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.cli import main
from qbench.errors import InputError, NotFetchedError, UnsupportedError
from qbench.evaluation import build_subject, measure_cell
from qbench.extension import Extension
from qbench.graph import Form, form_of
from qbench.subjects import Dataset, model_from_file
from qbench.suite import expand, gather, load_suite, make_subject

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.usefixtures("torch"),
    *(  # what torch warns of, in code of users and in its own
        pytest.mark.filterwarnings(f"ignore::{one}Warning")
        for one in ("Deprecation", "Future", "User", "PendingDeprecation")
    ),
]

NETS = '''
import torch
import torch.ao.quantization as quantization
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.pool, self.fc = nn.MaxPool2d(2), nn.Linear(8 * 4 * 4, 5)

    def forward(self, x):
        x = self.pool(self.relu(self.bn(self.conv(self.quant(x)))))
        return self.dequant(self.fc(torch.flatten(x, 1)))


class Odd(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


EXAMPLE = (torch.zeros(1, 3, 8, 8),)


def net():
    torch.manual_seed(0)
    return Net().eval(), EXAMPLE


def trained():
    """As QAT leaves it: prepared, and not converted."""
    torch.backends.quantized.engine = "fbgemm"
    module = net()[0].train()
    module.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    quantization.fuse_modules_qat(module, [["conv", "bn", "relu"]], inplace=True)
    quantization.prepare_qat(module, inplace=True)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        module(torch.randn(16, 3, 8, 8, generator=generator))
    return module, EXAMPLE


def converted():
    return quantization.convert(trained()[0].eval()), EXAMPLE


class Spare(Net):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(4, 4)


def _prepared(kind):
    torch.manual_seed(0)
    torch.backends.quantized.engine = "fbgemm"
    module = quantization.fuse_modules(kind().eval(), [["conv", "bn", "relu"]])
    module.qconfig = quantization.get_default_qconfig("fbgemm")
    return quantization.prepare(module)


def uncalibrated():
    return _prepared(Net), EXAMPLE


def untrained():
    torch.backends.quantized.engine = "fbgemm"
    module = net()[0].train()
    module.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return quantization.prepare_qat(module), EXAMPLE


def calibrated():
    module = _prepared(Spare)
    module(torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(1)))
    return module, EXAMPLE


def odd():
    return Odd(), EXAMPLE


class Two(nn.Module):
    def forward(self, a, b):
        return a - 2 * b


def reversed_names():
    return Two(), {"b": torch.ones(2, 3), "a": torch.zeros(2, 3)}


def unknown_name():
    return Two(), {"a": torch.zeros(2, 3), "c": torch.zeros(2, 3)}


def script():
    return torch.jit.trace(net()[0], EXAMPLE), EXAMPLE


def alone():
    return net()[0]
'''


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """The name of a module with ``NETS`` in the current folder; each test has its own."""
    name = f"nets_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(NETS)
    x = np.random.default_rng(2).normal(size=(40, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    monkeypatch.chdir(tmp_path)
    return name


def graph_of(text):
    (graph,) = model_from_file(text).loaded().values()
    return graph


def test_a_float_module_is_measured_as_its_file_would_be(nets, torch, capsys):
    assert main(["eval", f"{nets}:net", "--data", "x.npz", "--json"]) == 0
    capsys.readouterr()
    graph = graph_of(f"{nets}:net")
    assert form_of(graph) is Form.FLOAT
    assert [value.name for value in graph.graph.inputs] == ["x"]
    assert not isinstance(graph.graph.inputs[0].shape[0], int)


@pytest.mark.parametrize("factory", ["trained", "converted"])
def test_what_eager_mode_makes_is_a_given_model_with_q_and_dq(nets, factory):
    subject = build_subject(
        f"{nets}:net", "x.npz", None, ["cosine"], None, given=f"{nets}:{factory}"
    )
    found = measure_cell(subject, "ort-cpu", None)
    assert found.integer_macs == 1.0
    assert found.executed_macs == 1.0
    assert found.score("cosine").value > 0.5  # its batch norms have seen other statistics


@pytest.mark.parametrize("factory", ["uncalibrated", "untrained"])
def test_observers_that_have_seen_no_data_are_refused(nets, factory):
    with pytest.raises(UnsupportedError, match="has seen no data") as caught:
        graph_of(f"{nets}:{factory}")
    assert "calibration samples" in caught.value.remedy


def test_an_observer_of_a_layer_that_is_not_used_needs_no_data(nets):
    assert form_of(graph_of(f"{nets}:calibrated")) is Form.QDQ


def test_examples_by_name_are_those_arguments_whatever_their_order(nets):
    graph = graph_of(f"{nets}:reversed_names")
    assert [value.name for value in graph.graph.inputs] == ["a", "b"]
    feeds = {"a": np.ones((2, 3), np.float32), "b": np.full((2, 3), 5, np.float32)}
    with get_backend("ort-cpu").prepare(graph) as executor:
        (found,) = executor.run(feeds).values()
    np.testing.assert_array_equal(found, np.full((2, 3), -9))
    with pytest.raises(InputError, match="a, b"):
        graph_of(f"{nets}:unknown_name")


def test_a_package_that_the_exporter_lacks_is_named_with_what_installs_it():
    from qbench_engines.torch_export import _refused

    error = RuntimeError("export failed")
    error.__cause__ = ModuleNotFoundError("No module named 'helper'", name="helper.deep")
    refused = _refused(error, "Exporting 'nets:net'")
    assert isinstance(refused, NotFetchedError)
    assert "'helper'" in refused.found
    assert "install" in refused.remedy


def test_a_module_that_cannot_be_exported_is_a_sentence_with_the_operator(nets):
    with pytest.raises(UnsupportedError) as caught:
        graph_of(f"{nets}:odd")
    assert "bessel_j0" in caught.value.found
    with pytest.raises(UnsupportedError, match="TorchScript"):
        graph_of(f"{nets}:script")


@pytest.mark.parametrize(("factory", "says"), [("alone", "Net"), ("none", "AttributeError")])
def test_what_is_no_module_with_examples_is_refused(nets, factory, says):
    with pytest.raises(InputError, match=says):
        graph_of(f"{nets}:{factory}")


SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc"]

[[model]]
id = "float"
subject = "{nets}:net"
data = "scored"
calibration = {{ data = "seen", count = 16 }}
metrics = ["cosine"]

[[model]]
id = "{factory}"
subject = "{nets}:{factory}"
fp32 = "float"
"""


def measured_by_suite(folder, nets, factory):
    """The cells of a suite with a float module and one that is quantized, schema → measurement."""
    path = folder / "suites" / "own.qbench.toml"
    path.parent.mkdir()
    path.write_text(SUITE.format(nets=nets, factory=factory))
    x = np.random.default_rng(3).normal(size=(56, 3, 8, 8)).astype(np.float32)
    datasets = {
        "scored": lambda: Dataset.from_arrays("scored", x[:40], np.zeros(40, np.int64)),
        "seen": lambda: Dataset.from_arrays("seen", x[40:], np.zeros(16, np.int64)),
    }
    known = gather([Extension(name="mine", datasets=datasets)], suites=path.parent)
    found = {}
    for one in expand(load_suite(path), known):
        subject = make_subject(one.model, one.calibration, known, limit=None, partner=one.partner)
        schema = None if one.cell.schema in ("fp32", "given") else one.cell.schema
        found[one.cell.schema] = measure_cell(subject, one.cell.backend, schema)
    return found


@pytest.mark.parametrize("factory", ["trained", "converted"])
def test_a_suite_names_modules_by_their_factories(nets, factory, tmp_path):
    found = measured_by_suite(tmp_path, nets, factory)
    assert list(found) == ["fp32", "w8a8_asym_pc", "given"]
    assert found["w8a8_asym_pc"].integer_macs == 1.0
    assert found["given"].integer_macs == 1.0
    assert found["w8a8_asym_pc"].score("cosine").value > 0.9
    assert found["given"].score("cosine").value > 0.5  # its batch norms have seen other statistics


PT2E = """
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

from {nets} import EXAMPLE, Net


def _prepared(is_qat):
    torch.manual_seed(0)
    example = (torch.zeros(2, 3, 8, 8),)
    shapes = ({{0: torch.export.Dim.AUTO}},)
    module = torch.export.export(Plain().eval(), example, dynamic_shapes=shapes).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_qat=is_qat))
    prepared = (prepare_qat_pt2e if is_qat else prepare_pt2e)(module, quantizer)
    prepared(torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(1)))
    return prepared


class Plain(Net):
    def forward(self, x):
        x = self.pool(self.relu(self.conv(x)))
        return self.fc(torch.flatten(x, 1))


def plain():
    torch.manual_seed(0)
    return Plain().eval(), EXAMPLE


def observed():
    return _prepared(is_qat=False), EXAMPLE


def observed_in_training():
    return _prepared(is_qat=True), EXAMPLE


def converted():
    return convert_pt2e(_prepared(is_qat=False)), EXAMPLE


def trained():
    return convert_pt2e(_prepared(is_qat=True)), EXAMPLE
"""


@pytest.fixture
def pt2e(nets, tmp_path):
    """The name of a module with ``PT2E``."""
    pytest.importorskip("torchao", reason="torchao has PT2E")
    (tmp_path / f"pt2e_{nets}.py").write_text(PT2E.format(nets=nets))
    return f"pt2e_{nets}"


@pytest.mark.parametrize("factory", ["converted", "trained"])
def test_what_pt2e_converts_is_a_given_model_with_q_and_dq(pt2e, factory):
    subject = build_subject(
        f"{pt2e}:plain", "x.npz", None, ["cosine"], None, given=f"{pt2e}:{factory}"
    )
    found = measure_cell(subject, "ort-cpu", None)
    assert found.integer_macs == 1.0
    assert found.score("cosine").value > 0.9


@pytest.mark.parametrize("factory", ["observed", "observed_in_training"])
def test_what_pt2e_prepared_and_did_not_convert_names_the_next_step(pt2e, factory):
    with pytest.raises(UnsupportedError) as caught:
        graph_of(f"{pt2e}:{factory}")
    assert "call convert_pt2e" in caught.value.remedy

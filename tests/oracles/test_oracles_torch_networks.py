"""Whole networks on PyTorch's quantized engines: what the integer interpreter computes,
value by value.
"""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import arithmetic_of, executed_by, get_backend
from qbench.errors import InputError, UnsupportedError
from qbench.evaluation import build_subject, measure_cell, subject_artifacts
from qbench.passes import lower_to_integers
from qbench.quantization import GraphOutputs, as_schema

pytestmark = pytest.mark.oracle

ENGINES = ("torch-fbgemm", "torch-qnnpack", "torch-onednn")
NETWORKS = {
    "digits_cnn": ("digits_test", "digits_train", 64),
    "fashion_preact": ("fashion_test", "fashion_calibration", 64),
    "squeezenet": ("labelled_photos", "calibration_crops", 16),
    "mobilenet_v2": ("labelled_photos", "calibration_crops", 16),
    "efficientnet_lite0": ("labelled_photos", "calibration_crops", 16),
}
"""Network → scored data, calibration data, samples for calibration."""


def known(name: str) -> Any:
    backend = get_backend(name)
    if arithmetic_of(backend) is None:
        pytest.skip(f"the arithmetic of {name} is not known on this processor")
    return backend


def compared(model: ir.Model, feeds: dict[str, Any], name: str) -> dict[str, tuple[Any, Any]]:
    """Each value of the lowered graph: PyTorch's and the interpreter's,
    the network run once by each.
    """
    backend = known(name)
    taps = [value.name or "" for node in lower_to_integers(model).graph for value in node.outputs]
    with backend.prepare(model, taps=taps) as executor:
        theirs = executor.run(feeds)
    with get_backend(f"integer-{arithmetic_of(backend).name}").prepare(
        model, taps=taps
    ) as executor:
        ours = executor.run(feeds)
    return {name: (theirs[name], ours[name]) for name in taps}


@pytest.fixture(scope="module")
def networks() -> Any:
    made: dict[str, Any] = {}

    def artifacts(name: str) -> Any:
        if name not in made:
            data, calibration, count = NETWORKS[name]
            subject = build_subject(name, data, calibration, ["agreement"], count)
            made[name] = subject_artifacts(subject, get_backend("ort-cpu"))
        return made[name]

    return artifacts


@pytest.mark.parametrize("schema", ["w8a8_asym_pt", "w8a8_asym_pc", "w8a8_symu8_pc"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_quantized_value_is_that_of_the_interpreter(
    network: str, engine: str, schema: str, networks: Any, torch: ModuleType
) -> None:
    shared = networks(network)
    (model,) = shared.quantized(as_schema(schema), known(engine).capabilities).models.values()
    (data,) = shared.subject.data.values()
    feeds = next(iter(shared.samples(data).batches(2)))
    before = torch.backends.quantized.engine, torch.get_num_threads()
    found = compared(model, feeds, engine)
    assert (torch.backends.quantized.engine, torch.get_num_threads()) == before
    integers = {name: pair for name, pair in found.items() if pair[1].dtype == np.uint8}
    assert len(integers) >= 5
    for name, (theirs, ours) in integers.items():
        np.testing.assert_array_equal(theirs, ours, err_msg=name)
    for name in (
        found.keys() - integers.keys()
    ):  # a Gemm whose result is real is a product of floats in PyTorch
        theirs, ours = found[name]
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-4, err_msg=name)


def graph(body: str, result: str) -> ir.Model:
    """``body`` between the quantized input ``d``, (N, 8, 6, 6), and ``r``, quantized with the
    parameters ``result``.
    """
    scale, zero = result.split()
    return ir.from_onnx_text(f"""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N, 8, 6, 6] x) => (float[N, C, H, W] y)
    <float s = {{0.03}}, uint8 z = {{101}}, float t = {{{scale}}}, uint8 u = {{{zero}}},
     float st = {{0.05}}, uint8 zt = {{77}}, float low = {{-0.25}}, float high = {{1.5}},
     int64[1] axis = {{-1}}, int64[3] rows = {{0, 8, -1}}, int64[4] back = {{0, 8, 6, 6}}> {{
      q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
      {body}
      p = QuantizeLinear(r, t, u) y = DequantizeLinear(p, t, u)
    }}""")


_OTHER = (
    "e = LeakyRelu<alpha = 0.1>(d) g = QuantizeLinear(e, st, zt) h = DequantizeLinear(g, st, zt)"
)
_UNIT = "0.00390625 0"
BLOCKS = {
    "add": (f"{_OTHER} r = Add(d, h)", "0.07 90"),
    "mul": (f"{_OTHER} r = Mul(d, h)", "0.07 90"),
    "concat": ("r = Concat<axis = 1>(d, d)", "0.04 99"),
    "average pool": ("r = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(d)", "0.03 101"),
    "average pool, requantized": (
        "r = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(d)",
        "0.02 90",
    ),
    "global average pool": ("r = GlobalAveragePool(d)", "0.03 101"),
    "mean": ("r = ReduceMean(d, axis)", "0.03 101"),
    "max pool": (
        "e = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(d) r = Sigmoid(e)",
        _UNIT,
    ),
    "max pool padded behind": (
        "e = MaxPool<kernel_shape = [3, 3], pads = [0, 0, 1, 1]>(d) r = Sigmoid(e)",
        _UNIT,
    ),
    "sigmoid": ("r = Sigmoid(d)", _UNIT),
    "tanh": ("r = Tanh(d)", "0.0078125 128"),
    "leaky relu": ("r = LeakyRelu<alpha = 0.2>(d)", "0.02 40"),
    "hard swish": ("r = HardSwish(d)", "0.02 40"),
    "elu": ("r = Elu(d)", "0.02 60"),
    "softmax": ("r = Softmax(d)", _UNIT),
    "relu": ("r = Relu(d)", "0.02 40"),
    "clip": ("r = Clip(d, low, high)", "0.02 40"),
    "moves": (
        "e = Transpose<perm = [0, 1, 3, 2]>(d) g = Reshape(e, rows) "
        "h = Reshape(g, back) r = Sigmoid(h)",
        _UNIT,
    ),
    "requantize": ("r = Identity(d)", "0.02 40"),
    "softplus, which PyTorch lacks": ("r = Softplus(d)", "0.02 0"),
}
DIFFERING = {
    # Fewer channels than a vector has elements: all of them are rounded as the end of an array is.
    ("average pool", "torch-fbgemm"): 0.3,
    ("average pool", "torch-onednn"): 0.3,
    # PyTorch's pools keep the parameters of their input; with others it is a pool of floats.
    **{("average pool, requantized", engine): 0.02 for engine in ENGINES},
    # QNNPACK has means over height and width; others are PyTorch's own.
    ("mean", "torch-qnnpack"): 0.2,
    # x · min(max(x + 3, 0), 6) / 6 above 3, where ONNX has x: ties of x / s.
    **{("hard swish", engine): 0.005 for engine in ENGINES},
}
"""Block and engine → the largest share of elements that differ, by one level;
of others none does.
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("block", BLOCKS)
def test_operators(block: str, engine: str, torch: ModuleType) -> None:
    model = graph(*BLOCKS[block])
    x = np.random.default_rng(3).normal(0, 2, (8, 8, 6, 6)).astype(np.float32)
    backend = known(engine)
    with backend.prepare(model, taps=["p"]) as executor:
        theirs = executor.run({"x": x})["p"].astype(int)
        precisions = {one.precision for one in executed_by(executor).values()}
    with get_backend(f"integer-{arithmetic_of(backend).name}").prepare(
        model, taps=["p"]
    ) as executor:
        ours = executor.run({"x": x})["p"].astype(int)
    assert np.abs(theirs - ours).max() <= 1
    assert np.count_nonzero(theirs != ours) <= theirs.size * DIFFERING.get((block, engine), 0)
    assert "uint8" in precisions


def test_the_model_may_be_refused(torch: ModuleType) -> None:
    backend = get_backend("torch-fbgemm")
    with pytest.raises(UnsupportedError, match="a float graph"):
        backend.prepare(
            ir.from_onnx_text(
                '<ir_version: 10, opset_import: ["" : 21]> n (float[2] x) => (float[2] y) '
                "{ y = Relu(x) }"
            )
        )
    where = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    net (bool[N] c, uint8[N] x) => (uint8[N] y) <float s = {1.0}, uint8 z = {0}> {
      y = com.microsoft.QLinearWhere(c, x, s, z, x, s, z, s, z)
    }"""
    with pytest.raises(UnsupportedError) as caught:
        backend.prepare(ir.from_onnx_text(where))
    assert "QLinearWhere" in caught.value.found
    signed = """<ir_version: 10, opset_import: ["" : 21]>
    net (int8[N, 1, 4, 4] x) => (int8[N, 1, 4, 4] y)
    <float s = {1.0}, int8 z = {0}, int8[1, 1, 1, 1] w = {3}>
    { y = QLinearConv(x, s, z, w, s, z, s, z) }"""
    with pytest.raises(UnsupportedError, match="signed activations"):
        backend.prepare(ir.from_onnx_text(signed))


def test_taps_and_feeds(torch: ModuleType) -> None:
    backend, model = (
        get_backend("torch-fbgemm"),
        graph("e = LeakyRelu<alpha = 0.2>(d) r = Sigmoid(e)", "0.00390625 0"),
    )
    x = np.ones((2, 8, 6, 6), np.float32)
    with backend.prepare(model, taps=["e", "q"]) as executor:
        found = executor.run({"x": x})
        assert list(found) == ["y", "e", "q"]
        assert found["e"].dtype == np.float32
        with pytest.raises(InputError, match="unknown input 'z2'"):
            executor.run({"x": x, "z2": x})
    with pytest.raises(RuntimeError, match="closed"):
        executor.run({"x": x})
    with pytest.raises(InputError, match="no value 'ee'"):
        backend.prepare(model, taps=["ee"])


def test_a_measured_cell(torch: ModuleType) -> None:
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["top1", "agreement"], 64)
    for name in ENGINES:
        measured = measure_cell(subject, name, "w8a8_asym_pc")
        top1 = measured.score("top1")
        assert top1.n == 360
        assert top1.value > 0.95


@pytest.mark.parametrize(("outputs", "last"), [("auto", "uint8"), ("float", "float32")])
def test_executed_precisions(torch: ModuleType, outputs: str, last: str) -> None:
    """PyTorch has no operator on integers with a real result:
    the last Gemm needs a quantized output.
    """
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["agreement"], 64)
    backend = get_backend("torch-fbgemm")
    shared = subject_artifacts(subject, get_backend("ort-cpu"))
    schema = replace(as_schema("w8a8_asym_pc"), outputs=GraphOutputs(outputs))
    (model,) = shared.quantized(schema, backend.capabilities).models.values()
    with backend.prepare(model) as executor:
        found = executed_by(executor)
    products = [found[node.name or ""] for node in model.graph if node.op_type in ("Conv", "Gemm")]
    assert [one.precision for one in products] == ["uint8"] * 3 + [last]

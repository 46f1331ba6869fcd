"""``partitioned-<device>``: equal to the integer machine where a device takes all,
and to a cut made by hand.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.backends import (
    Backend,
    Counting,
    HasRuleDigests,
    PartitionedBackend,
    get_backend,
    integer_backends,
)
from qbench.calibration import calibrate
from qbench.errors import InputError, UnsupportedError
from qbench.numerics import get_arithmetic
from qbench.passes import Device, get_device, partition_model
from qbench.quantization import make_plan, quantize_model
from qbench.subjects import get_model
from qbench.suite import gather

ALL = (
    "Conv",
    "Gemm",
    "MatMul",
    "Add",
    "Relu",
    "Clip",
    "MaxPool",
    "GlobalAveragePool",
    "Flatten",
    "Reshape",
    "Requantize",
)
WEIGHT = np.random.default_rng(9).integers(-127, 128, (3, 3, 1, 1)).astype(np.int8)
CONV = (
    "{i}q = QuantizeLinear({i}, s, z) {i}d = DequantizeLinear({i}q, s, z) {i}w = "
    "DequantizeLinear(w, sw, zw) "
    "[{n}] {i}c = Conv({i}d, {i}w) {i}r = QuantizeLinear({i}c, s, z) "
    "{o} = DequantizeLinear({i}r, s, z)"
)
FIRST, SECOND = CONV.format(i="x", o="a", n="first"), CONV.format(i="b", o="y", n="second")


def device(arithmetic: str, *operators: str) -> Device:
    return Device(
        name="here", source="this test", arithmetic=get_arithmetic(arithmetic), operators=operators
    )


def graph(body: str, given: str, result: str) -> ir.Model:
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[N, 3, 4, 4] {given}) => (float[N, 3, '
        f"4, 4] {result})"
        f"<float s = {{0.05}}, uint8 z = {{120}}, float sw = {{0.004}}, "
        f"int8 zw = {{0}}>{{ {body} }}"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHT, "w"))
    return ir.from_proto(proto)


WHOLE = graph(f"{FIRST} [host] b = Sin(a) {SECOND}", "x", "y")
X = np.random.default_rng(2).normal(0, 3, (5, 3, 4, 4)).astype(np.float32)
X.reshape(-1)[:40] = 0.05 * (
    np.arange(40, dtype=np.float32) + 0.5
)  # ties, which machines round apart


def ran(
    backend: Backend, model: ir.Model, feeds: dict[str, np.ndarray], *taps: str
) -> dict[str, np.ndarray]:
    with backend.prepare(model, taps=taps) as executor:
        return executor.run(feeds)


def with_levels_out(model: ir.Model) -> ir.Model:
    """``model`` with its last result on a grid: what is left real is not a device's."""
    (old,) = model.graph.outputs
    parameters = [ir.tensor(np.float32(0.25)), ir.tensor(np.uint8(128))]
    values = [
        ir.val(name, const_value=tensor)
        for name, tensor in zip(("out_s", "out_z"), parameters, strict=True)
    ]
    for value, tensor in zip(values, parameters, strict=True):
        value.dtype, value.shape, tensor.name = tensor.dtype, tensor.shape, value.name
        model.graph.register_initializer(value)
    quantize = ir.node("QuantizeLinear", [old, *values], name="out_quantize")
    dequantize = ir.node("DequantizeLinear", [quantize.outputs[0], *values], name="out_dequantize")
    quantize.outputs[0].name, dequantize.outputs[0].name = "out_q", "out"
    quantize.outputs[0].dtype, dequantize.outputs[0].dtype = ir.DataType.UINT8, ir.DataType.FLOAT
    model.graph.extend([quantize, dequantize])
    model.graph.outputs[:] = [dequantize.outputs[0]]
    return model


def quantized(name: str, schema: str) -> tuple[ir.Model, dict[str, np.ndarray]]:
    """A trained network of the zoo, and 16 made-up samples that it was calibrated on."""
    (make,) = get_model(name).graphs.values()
    model = make()
    draw = np.random.default_rng(7)
    shapes = {
        str(v.name): [d if isinstance(d, int) else 16 for d in v.shape or ()]
        for v in model.graph.inputs
    }
    feeds = {key: draw.random(shape).astype(np.float32) for key, shape in shapes.items()}
    return quantize_model(model, make_plan(model, calibrate(model, [feeds]), schema)), feeds


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ["ort-x64", "gemmlowp", "tflite-single", "fbgemm"])
@pytest.mark.parametrize("name", ["digits_cnn", "fashion_mobile"])
def test_a_device_that_takes_all_is_the_integer_machine(name: str, arithmetic: str) -> None:
    model, feeds = quantized(name, "w8a8_asym_pc")
    model = with_levels_out(model)
    taking = device(arithmetic, *ALL)
    assert partition_model(model, taking).off == {}
    ours = ran(PartitionedBackend(accelerator=taking), model, feeds)
    theirs = ran(get_backend(f"integer-{arithmetic}"), model, feeds)
    assert list(ours) == list(theirs)
    for key, array in ours.items():
        np.testing.assert_array_equal(array, theirs[key])


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("arithmetic", ["ort-x64", "gemmlowp", "tvm-upward"])
def test_a_cut_by_hand(arithmetic: str) -> None:
    """Three models, handed from backend to backend, against one that was cut here."""
    machine, host = get_backend(f"integer-{arithmetic}"), get_backend("ort-cpu")
    a = ran(machine, graph(FIRST, "x", "a"), {"x": X})["a"]
    b = ran(host, graph("b = Sin(a)", "a", "b"), {"a": a})["b"]
    y = ran(machine, graph(SECOND, "b", "y"), {"b": b})["y"]
    backend = PartitionedBackend(accelerator=device(arithmetic, "Conv"))
    np.testing.assert_array_equal(ran(backend, WHOLE, {"x": X})["y"], y)


def test_borders_count_as_the_device_does() -> None:
    """Otherwise the machines, which round ties apart, would get the same levels."""
    found = [
        ran(PartitionedBackend(accelerator=device(a, "Conv")), WHOLE, {"x": X}, "xq")["xq"]
        for a in ("ort-x64", "gemmlowp")
    ]
    assert (found[0] != found[1]).any()


@pytest.mark.slow
def test_what_a_device_has_not_runs_on_the_host() -> None:
    model, feeds = quantized("fashion_mobile", "w8a8_asym_pc")
    backend = PartitionedBackend(accelerator=get_device("conv-engine"))
    partition = partition_model(model, backend.accelerator)
    assert partition.off == {"classifier": "the device has no Gemm"}
    (given,) = (value.name or "" for value in partition.islands[-1].gives)
    (read,) = (value.name or "" for value in partition.sections[-1].reads)
    ours = ran(backend, model, feeds, given, read)
    machine = ran(get_backend("integer-tflite-single"), model, feeds, given)
    np.testing.assert_array_equal(ours[given], machine[given])
    last = ran(
        get_backend("ort-cpu"), partition.sections[-1].model(partition.model), {read: ours[read]}
    )
    np.testing.assert_array_equal(ours["logits"], last["logits"])


def test_taps_are_values_of_any_section_and_change_nothing() -> None:
    backend = PartitionedBackend(accelerator=device("gemmlowp", "Conv"))
    plain = ran(backend, WHOLE, {"x": X})
    tapped = ran(backend, WHOLE, {"x": X}, "xq", "xr", "a", "b", "x")
    assert list(tapped) == ["y", "xq", "xr", "a", "b", "x"]
    assert (tapped["xq"].dtype, tapped["xr"].dtype, tapped["b"].dtype) == (
        np.uint8,
        np.uint8,
        np.float32,
    )
    np.testing.assert_array_equal(tapped["y"], plain["y"])
    np.testing.assert_array_equal(tapped["x"], X)
    with pytest.raises(
        InputError, match=r"no value 'xrr' in the partitioned graph.* Did you mean 'xr'"
    ):
        backend.prepare(WHOLE, taps=["xrr"])


def test_the_protocol() -> None:
    backend = get_backend("partitioned-conv-engine")
    assert isinstance(backend, Backend)
    assert isinstance(backend, HasRuleDigests)
    assert isinstance(backend, PartitionedBackend)
    assert backend.packages == ("onnxruntime",)
    assert dict(backend.digests) == dict(get_device("conv-engine").digests)
    executor = backend.prepare(WHOLE)
    assert isinstance(executor, Counting)
    executor.run({"x": X})
    assert set(executor.counters) >= {"first", "second"}
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.run({"x": X})


def test_wrong_batches_and_models_are_refused_in_a_sentence() -> None:
    backend = get_backend("partitioned-conv-engine")
    with (
        backend.prepare(WHOLE) as executor,
        pytest.raises(InputError, match="Running 'g' on 'partitioned-conv-engine'"),
    ):
        executor.run({"x": X[:, :2]})
    with pytest.raises(UnsupportedError, match="the form float"):
        backend.prepare(graph("b = Sin(a)", "a", "b"))


@pytest.mark.slow
def test_a_result_that_is_an_input_or_a_constant() -> None:
    model = graph(FIRST, "x", "a")
    values = {
        value.name: value for value in (*model.graph.inputs, *model.graph.initializers.values())
    }
    model.graph.outputs.extend([values["x"], values["s"]])
    found = ran(PartitionedBackend(accelerator=device("ideal", "Conv")), model, {"x": X})
    np.testing.assert_array_equal(found["x"], X)
    assert found["s"] == np.float32(0.05)


@pytest.mark.slow
def test_devices_beside_suites_are_backends_and_may_count_as_machines_there(tmp_path: Path) -> None:
    for folder in ("devices", "arithmetics"):
        (tmp_path / folder).mkdir()
    scaling = (
        'scaling = { form = "float32", precision = "single", stages = [{ rounding = "half_up" }] }'
    )
    (tmp_path / "arithmetics" / "house.toml").write_text(f'source = "a data sheet"\n{scaling}\n')
    (tmp_path / "devices" / "mine.toml").write_text(
        'source = "a data sheet"\narithmetic = "house"\noperators = ["Conv"]'
    )
    found = gather(suites=tmp_path)
    assert "partitioned-mine" in found.integer_backends > integer_backends()
    backend = found.backends.get("partitioned-mine")
    assert backend.name == "partitioned-mine"
    assert found.backends.owner("partitioned-mine") == "devices/*.toml"
    y, machine = (
        ran(b, graph(FIRST, "x", "a"), {"x": X})["a"]
        for b in (backend, found.backends.get("integer-house"))
    )
    np.testing.assert_array_equal(y, machine)

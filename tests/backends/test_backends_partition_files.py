"""The files of a cut: they equal the whole bit for bit, stand for themselves, and say what crosses
the borders of islands.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from qbench.backends import PartitionedBackend, get_backend, run_partition
from qbench.calibration import calibrate
from qbench.errors import QbenchError, StoreError
from qbench.numerics import get_arithmetic
from qbench.passes import get_device, partition_files, partition_model, write_partition
from qbench.quantization import GraphOutputs, get_schema, make_plan, quantize_model
from qbench.subjects import get_model, only_graph

CONVOLUTIONS = replace(
    get_device("conv-engine"), name="conv-alone", operators=("Conv", "Relu", "Clip")
)


def quantized(
    name: str, shape: tuple[int, ...], outputs: GraphOutputs = GraphOutputs.AUTO
) -> tuple[ir.Model, dict[str, np.ndarray]]:
    """A network of the zoo, quantized on random numbers, and such numbers."""
    model = only_graph(get_model(name))
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    feeds = {str(model.graph.inputs[0].name): x}
    schema = replace(get_schema("w8a8_asym_pc"), outputs=outputs)
    plan = make_plan(model, calibrate(model, [feeds]), schema)
    return quantize_model(model, plan), feeds


@pytest.fixture(scope="module")
def digits():
    return quantized("digits_cnn", (8, 1, 8, 8))


@pytest.fixture
def cut(digits, tmp_path):
    model, _ = digits
    device = get_device("conv-engine")
    write_partition(partition_files(partition_model(model, device), "digits"), tmp_path / "cut")
    return tmp_path / "cut"


def whole(model, device, feeds):
    with PartitionedBackend(accelerator=device).prepare(model) as run:
        return run.run(feeds)


@pytest.mark.slow
@pytest.mark.parametrize("device", [get_device("conv-engine"), CONVOLUTIONS])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("digits_cnn", (8, 1, 8, 8)),
        ("fashion_mobile", (4, 1, 28, 28)),
        ("fashion_preact", (4, 1, 28, 28)),
    ],
)
def test_files_equal_the_whole(name, shape, device, tmp_path):
    model, feeds = quantized(name, shape)
    partition = partition_model(model, device)
    write_partition(partition_files(partition), tmp_path / "cut")
    assert len(partition.islands) == len(list((tmp_path / "cut").glob("island_*.onnx")))
    found = run_partition(tmp_path / "cut", feeds)
    for output, array in whole(model, device, feeds).items():
        assert found[output].tobytes() == array.tobytes()
    onnx.checker.check_model(str(tmp_path / "cut" / "host.onnx"))


@pytest.mark.slow
def test_several_islands_are_called(tmp_path):
    model, _ = quantized("fashion_preact", (4, 1, 28, 28))
    partition = partition_model(model, CONVOLUTIONS)
    assert len(partition.islands) > 3
    host = partition_files(partition).host
    calls = [node.op_type for node in host.graph if node.domain == "qbench.island"]
    assert sorted(calls) == sorted(f"island_{at + 1}" for at in range(len(partition.islands)))


def test_the_whole_without_a_device_gives_the_same_where_it_takes_all(tmp_path):
    """``integer-<arithmetic>`` knows nothing of islands."""
    model, feeds = quantized("digits_cnn", (8, 1, 8, 8), GraphOutputs.QUANTIZED)
    device = replace(
        get_device("conv-engine"),
        name="all",
        operators=("Conv", "Relu", "Clip", "MaxPool", "Flatten", "Gemm"),
    )
    partition = partition_model(model, device)
    assert not partition.off
    write_partition(partition_files(partition), tmp_path / "cut")
    found = run_partition(tmp_path / "cut", feeds)
    with get_backend(f"integer-{device.arithmetic.name}").prepare(model) as run:
        for output, array in run.run(feeds).items():
            assert found[output].tobytes() == array.tobytes()


def test_a_changed_island_is_seen(digits, cut):
    model, feeds = digits
    path = cut / "island_1.onnx"
    island = onnx.load(path)
    weight = max(
        (one for one in island.graph.initializer if one.data_type == onnx.TensorProto.INT8),
        key=lambda one: len(one.raw_data),
    )
    weight.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weight), weight.name))
    onnx.save(island, path)
    ours = run_partition(cut, feeds)["logits"]
    assert not np.array_equal(ours, whole(model, get_device("conv-engine"), feeds)["logits"])


def test_a_plain_runtime_loads_the_host_graph(digits, cut):
    model, feeds = digits
    with get_backend("ort-cpu-precise").prepare(cut / "host.onnx") as run:
        found = run.run(feeds)["logits"]
    np.testing.assert_allclose(
        found, whole(model, get_device("conv-engine"), feeds)["logits"], atol=0.5
    )


def test_the_manifest_and_the_files_have_the_parameters_of_borders(digits, cut):
    model, _ = digits
    constants = {
        name: value.const_value.numpy() for name, value in model.graph.initializers.items()
    }
    manifest = json.loads((cut / "partition.json").read_text())
    assert (manifest["format"], manifest["device"]) == ("qbench-partition/1", "conv-engine")
    (island,) = manifest["islands"]
    (read,), (given,) = island["inputs"], island["outputs"]
    assert (read["name"], read["qtype"], read["bytes"]) == ("x_quantized", "uint8", 64)
    assert read["scale"] == float(constants["x_scale"])
    assert read["zero_point"] == int(constants["x_zero_point"])
    # what only moves codes has the parameters of what it moves
    assert given["name"] == "flatten_quantized"
    assert given["scale"] == float(constants["relu2_scale"])
    file = onnx.load(cut / island["file"])
    facts = {one.key: one.value for one in file.graph.input[0].metadata_props}
    assert facts["qbench.qtype"] == "uint8"
    assert float(facts["qbench.scale"]) == read["scale"]
    assert {node.op_type for node in file.graph.node} == {"QLinearConv", "MaxPool", "Flatten"}


def spoiled(folder: Path, **changes: object) -> None:
    path = folder / "partition.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"format": "other/1"}, "other/1"),
        ({"format": "qbench-partition/2"}, "qbench-partition/2"),
        ({"arithmetic": "gemmlowp"}, "another digest"),
        ({"arithmetic": "nothing"}, "nothing"),
        ({"digests": 3}, "another digest"),
    ],
)
def test_a_folder_that_is_none_is_refused(changes, found, digits, cut):
    spoiled(cut, **changes)
    with pytest.raises(QbenchError, match=found):
        run_partition(cut, digits[1])


def test_another_arithmetic_is_refused(digits, cut):
    with pytest.raises(QbenchError, match="another digest"):
        run_partition(cut, digits[1], arithmetic=get_arithmetic("gemmlowp"))


def test_a_missing_file_is_refused(digits, cut):
    (cut / "island_1.onnx").unlink()
    with pytest.raises(QbenchError, match="island_1"):
        run_partition(cut, digits[1])


def test_a_call_names_no_file_elsewhere(digits, cut):
    host = onnx.load(cut / "host.onnx")
    for node in host.graph.node:
        if node.domain == "qbench.island":
            node.op_type = "../island_1"
    for function in host.functions:
        function.name = "../island_1"
    onnx.save(host, cut / "host.onnx")
    with pytest.raises(QbenchError, match="island"):
        run_partition(cut, digits[1])


@pytest.mark.parametrize(
    ("domain", "place"), [("qbench.island", "host"), ("", "device"), ("", "?")]
)
def test_a_node_at_an_impossible_place_is_refused(digits, cut, domain, place):
    host = onnx.load(cut / "host.onnx")
    node = next(one for one in host.graph.node if one.domain == domain)
    (entry,) = (one for one in node.metadata_props if one.key == "qbench.place")
    entry.value = place
    onnx.save(host, cut / "host.onnx")
    with pytest.raises(QbenchError, match=f"found qbench.place = '[{place}]+' at "):
        run_partition(cut, digits[1])


def test_half_a_cut_is_not_read(digits, cut, monkeypatch):
    """Over an earlier cut, whose manifest would fit the files of both; it can be written again."""
    files = partition_files(partition_model(digits[0], get_device("conv-engine")))

    def full(*_):
        raise StoreError("Writing", found="no room", expected="room", remedy="Make room.")

    with monkeypatch.context() as patched:
        patched.setattr("qbench.passes.partition.files.save_model", full)
        with pytest.raises(StoreError):
            write_partition(files, cut)
    with pytest.raises(QbenchError, match="found the format None"):
        run_partition(cut, digits[1])
    write_partition(files, cut)
    assert run_partition(cut, digits[1])


def test_islands_of_an_earlier_cut_are_removed(digits, cut):
    (cut / "island_7.onnx").write_bytes(b"old")
    model, _ = digits
    partition = partition_model(model, get_device("conv-engine"))
    write_partition(partition_files(partition), cut)
    assert not (cut / "island_7.onnx").exists()

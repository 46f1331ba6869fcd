"""A network exported with a fixed batch is the network: the same profile, plan, answers and
cost as its free twin.
"""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.evaluation import MetricUse, Subject, SubjectArtifacts, measure_cell
from qbench.judging import FP32, Cell, EnvironmentClass
from qbench.metrics import get_metric
from qbench.storage import Cache
from qbench.subjects import Classification, Dataset, ReadyArray, ZooModel

SCORED, SPARE = 21, 11  # neither fills its last slice of 4, nor its last batch of 8
HERE = EnvironmentClass("here", ())


def network(batch):
    rng = np.random.default_rng(7)
    arrays = {
        "k": rng.normal(size=(4, 1, 3, 3)),
        "w": rng.normal(size=(64, 5)),
        "b": rng.normal(size=5),
    }
    # a reshape that fixes the batch, as exporters write it: freeing the input would not free the
    # graph
    shape = np.array([batch if isinstance(batch, int) else 0, 64], np.int64)
    nodes = [
        helper.make_node(
            "Conv", ["x", "k"], ["c"], name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "s"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"], name="classes"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
        + [numpy_helper.from_array(shape, "s")],
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def pictures(name, count):
    x = np.random.default_rng(len(name)).normal(size=(count, 1, 8, 8)).astype(np.float32)
    ids = tuple(f"{name}{i}" for i in range(count))
    labels = tuple((i % 5,) for i in range(count))
    return Dataset(
        id=name,
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=labels,
        content=name,
        load=lambda i: x[i],
    )


def subject(batch):
    net = ZooModel(
        id="net",
        graphs={"model": lambda: network(batch)},
        preprocess=ReadyArray(),
        task=Classification(),
        origin="drawn",
    )
    metrics = (MetricUse("top1", get_metric("top1"), "scored"),)
    return Subject(
        model=net,
        data={"scored": pictures("scored", SCORED)},
        metrics=metrics,
        calibration=pictures("spare", SPARE),
    )


def measured(batch, name, schema, folder):
    backend = get_backend(name)
    one = subject(batch)
    shared = SubjectArtifacts(one, Cache(folder), backend, "here")
    cell = Cell("test", "net", name, FP32 if schema is None else schema)
    return shared, measure_cell(shared, name, schema, cell=cell, environment=HERE)


def same_statistics(found, expected):
    assert (found.samples, found.rows, list(found.values)) == (
        expected.samples,
        expected.rows,
        list(expected.values),
    )
    for name, value in expected.values.items():
        other = found.values[name]
        assert (other.count, other.zeros) == (value.count, value.zeros), name
        for field in ("low", "high", "sample_lows", "sample_highs"):
            np.testing.assert_allclose(
                getattr(other, field), getattr(value, field), rtol=1e-5, atol=1e-6
            )


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("schema", [None, "w8a8_asym_pc"])
@pytest.mark.parametrize("name", ["ort-cpu", "onnx-reference"])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_cell_measures_the_same(batch, name, schema, tmp_path):
    free_work, free = measured("N", name, schema, tmp_path)
    work, fixed = measured(batch, name, schema, tmp_path)
    assert fixed.macs == free.macs == 64 * 4 * 9 + 64 * 5
    assert fixed.integer_macs == free.integer_macs
    assert fixed.scores == free.scores
    assert fixed.changed == free.changed
    np.testing.assert_array_equal(
        work.reference()["scored"].ids, free_work.reference()["scored"].ids
    )
    assert fixed.digests["model"] != free.digests["model"]
    if schema is not None:
        same_statistics(work.profiles()["model"], free_work.profiles()["model"])


@pytest.mark.parametrize("batch", [1, 4])
def test_calibrating_with_an_executor_of_ones_own(batch):
    x = np.random.default_rng(3).normal(size=(7, 1, 8, 8)).astype(np.float32)
    given = {"sample_ids": [f"s{i}" for i in range(7)], "values": ["x", "y"]}
    with get_backend("ort-cpu").prepare(network(batch)) as executor:
        profile = calibrate(
            network(batch), [{"x": x[:5]}, {"x": x[5:]}], executor=executor, **given
        )
    same_statistics(profile, calibrate(network("N"), [{"x": x}], **given))

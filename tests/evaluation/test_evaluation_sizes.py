"""A network that takes pictures of any size costs what the data makes it cost."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import get_backend
from qbench.evaluation import Subject, SubjectArtifacts
from qbench.graph import declare_dims, graph_digest
from qbench.quantization import get_schema
from qbench.storage import Cache
from qbench.subjects import Classification, Dataset, ReadyArray, ZooModel

CONV, CLASSES = 8 * 6 * 6 * 3 * 7 * 7, 8 * 10  # 12 × 12 pictures, a 7 × 7 kernel without padding


def network(height="H", width="W"):
    kernel = numpy_helper.from_array(np.ones((8, 3, 7, 7), np.float32), "k")
    weight = numpy_helper.from_array(np.ones((8, 10), np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], name="conv", kernel_shape=[7, 7]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="classes"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, height, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        [kernel, weight],
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def points(name, count):
    x = np.random.default_rng(len(name)).normal(size=(count, 3, 12, 12)).astype(np.float32)
    ids = tuple(f"{name}{i}" for i in range(count))
    return Dataset(
        id=name,
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=None,
        content=name,
        load=lambda i: x[i],
    )


@pytest.fixture
def shared(tmp_path):
    def make(model):
        zoo_model = ZooModel(
            id="net",
            graphs={"model": lambda: model},
            preprocess=ReadyArray(),
            task=Classification(),
            origin="ones",
        )
        subject = Subject(
            model=zoo_model,
            data={"scored": points("scored", 3)},
            metrics=(),
            calibration=points("spare", 2),
        )
        return SubjectArtifacts(subject, Cache(tmp_path), get_backend("ort-cpu"), "here")

    return make


def test_free_sizes_are_those_of_the_data(shared):
    assert shared(network()).macs == shared(network(12, 12)).macs == CONV + CLASSES


def test_plans_count_with_them_too(shared):
    backend = get_backend("ort-cpu")
    quantized = shared(network()).quantized(get_schema("w8a8_asym_pc"), backend.capabilities)
    assert quantized.plans["model"].macs == CONV + CLASSES


def test_a_declared_size_wins_and_the_model_stays_the_same(shared):
    model = network()
    declare_dims(model, {"H": 9, "W": 9})
    work = shared(model)
    assert work.macs == 8 * 3 * 3 * 3 * 7 * 7 + CLASSES
    assert graph_digest(shared(network()).graphs["model"]) == graph_digest(network())

"""A metric that does not fit the answers ends in a sentence: which model, which metric,
and what to choose.
"""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.evaluation import MetricUse, Subject, SubjectArtifacts, measure_cell
from qbench.judging import EnvironmentClass
from qbench.metrics import Answers, get_metric
from qbench.storage import Cache
from qbench.subjects import Classification, Dataset, ReadyArray, ZooModel


def network():
    weight = numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="y")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [weight],
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def rows(name, labels):
    ids = tuple(f"{name}{i}" for i in range(3))
    x = np.eye(3, dtype=np.float32)
    return Dataset(
        id=name,
        kind="array",
        sample_ids=ids,
        sources=ids,
        labels=labels,
        content=name,
        load=lambda i: x[i],
    )


def subject_of(scored, *metrics):
    model = ZooModel(
        id="net",
        graphs={"model": network},
        preprocess=ReadyArray(),
        task=Classification(),
        origin="a unit matrix",
    )
    uses = tuple(MetricUse(name, get_metric(name), "scored") for name in metrics)
    return Subject(
        model=model, data={"scored": scored}, metrics=uses, calibration=rows("spare", None)
    )


def measure(tmp_path, *metrics, labels=((0,), (1,), (2,)), sources=None, reference=None):
    scored = rows("scored", labels)
    subject = subject_of(scored if sources is None else scored.with_sources(sources), *metrics)
    backend = get_backend("ort-cpu")
    environment = EnvironmentClass("x64-test")
    shared = SubjectArtifacts(subject, Cache(tmp_path / "cache"), backend, str(environment))
    return measure_cell(
        shared, backend, None, reference=reference, environment=environment, timer=lambda: 0.0
    )


def test_a_metric_that_fits_is_counted(tmp_path):
    assert [s.hits for s in measure(tmp_path, "top1", "agreement").scores] == [3, 3]


@pytest.mark.parametrize("name", ["per", "exact"])
def test_a_metric_of_sequences_on_a_classifier(words, tmp_path, name):
    with pytest.raises(InputError, match=f"'net' on 'scored' with metric '{name}'") as caught:
        measure(tmp_path, "top1", name)
    assert "answers are rankings" in caught.value.found
    words(caught.value.remedy)


def test_a_metric_of_labels_on_data_without(tmp_path):
    with pytest.raises(InputError, match="no labels in data set 'scored'"):
        measure(tmp_path, "top1", labels=None)


def test_the_example_of_measure_cell_runs():
    import doctest

    from qbench.evaluation import measure

    found = doctest.testmod(measure)
    assert (found.failed, found.attempted) == (0, 7)


def test_samples_that_were_drawn_together_are_counted_so(tmp_path):
    before = {"scored": Answers(np.array([[1, 0, 2], [1, 0, 2], [2, 1, 0]], np.int32))}
    alone = measure(tmp_path, "top1", reference=before).score("top1")
    found = measure(tmp_path, "top1", reference=before, sources=["a", "b", "b"]).score("top1")
    assert (found.losses, found.gains) == (alone.losses, alone.gains) == (0, 1)
    assert alone.clusters is None
    assert found.clusters is not None
    assert found.clusters.sources == 2

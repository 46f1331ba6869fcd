"""What outlives the process is found again only by whoever would have made the same."""

from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import qbench.subjects.samples
from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.evaluation import Subject, SubjectArtifacts
from qbench.graph import Capabilities
from qbench.storage import Cache
from qbench.subjects import Classification, Dataset, ReadyArray, ZooModel

HERE = "x64-test+onnxruntime-1"
BOTH = ["net", "net"]
"""The float model for the reference, and the canonical one for the profile."""


@dataclass(frozen=True)
class Engine:
    """ONNX Runtime under another name; notes the models it was given."""

    name: str = "one"
    packages: tuple[str, ...] = ("onnxruntime",)
    capabilities: Capabilities = field(default_factory=Capabilities)
    prepared: list[str] = field(default_factory=list)

    def prepare(self, model, *, taps=(), threads=1):
        self.prepared.append(model.graph.name)
        return get_backend("ort-cpu").prepare(model, taps=taps, threads=threads)


def network():
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="h"),
            helper.make_node("Relu", ["h"], ["y"], name="y"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [weight],
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def points(name, count):
    x = np.random.default_rng(len(name)).normal(size=(count, 4)).astype(np.float32)
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


def subject():
    model = ZooModel(
        id="net",
        graphs={"model": network},
        preprocess=ReadyArray(),
        task=Classification(k=2),
        origin="numbers in a row",
    )
    return Subject(
        model=model,
        data={"scored": points("scored", 9)},
        metrics=(),
        calibration=points("spare", 5),
    )


def made(cache, engine, environment=HERE, what=None):
    """What ``engine`` had to run for the reference and the profiles of ``what``."""
    engine = replace(engine, prepared=[])
    shared = SubjectArtifacts(what or subject(), cache, engine, environment)
    shared.reference()
    assert shared.profiles()["model"].rows == 5
    return engine.prepared


@pytest.fixture
def cache(tmp_path):
    cache = Cache(tmp_path / "cache")
    assert made(cache, Engine()) == BOTH
    return cache


def test_the_same_again_runs_nothing(cache):
    assert made(cache, Engine()) == []


def test_a_cached_run_beyond_the_limit_is_refused_with_the_factor_that_admits_it(
    cache, monkeypatch
):
    from qbench.storage import limits_times, size_limits

    monkeypatch.setattr(
        size_limits, "_DEFAULTS", replace(size_limits.SizeLimits(), tensor_bytes=60)
    )
    with pytest.raises(InputError) as caught:
        made(cache, Engine())
    factor = int(caught.value.remedy.split("--size-limits ")[1].split()[0])
    with limits_times(factor):
        assert made(cache, Engine()) == []


def test_another_backend_of_the_same_packages_makes_its_own(cache):
    assert made(cache, Engine(name="another")) == BOTH


def test_another_class_makes_its_own(cache):
    assert made(cache, Engine(), "x64-test+onnxruntime-2") == BOTH


def test_another_task_makes_its_own(cache):
    former = subject()
    other = replace(former, model=replace(former.model, task=Classification(k=1)))
    assert made(cache, Engine(), what=other) == BOTH


def test_another_decoder_of_pictures_makes_all_anew(cache, monkeypatch):
    monkeypatch.setattr(
        qbench.subjects.samples, "package_versions", lambda names: dict.fromkeys(names, "0.0")
    )
    assert made(cache, Engine()) == BOTH

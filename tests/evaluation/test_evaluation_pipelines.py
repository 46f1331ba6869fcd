"""One profile for all schemas whose canonical passes do the same before profiling,
and one for each other kind.
"""

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_evaluation_cache import HERE, Engine, subject

from qbench.backends import get_backend
from qbench.evaluation import SubjectArtifacts
from qbench.graph import Capabilities
from qbench.passes import CANONICAL, Canonical
from qbench.passes.canonical_pipeline import RemoveDead
from qbench.quantization import Granularity, Rule, Schema, Spec, get_schema
from qbench.storage import Cache

ANYTHING = Capabilities(weight_qtypes=frozenset({"int4", "int8"}))


@pytest.fixture
def pipelines(monkeypatch):
    """Two further pipelines: ``later`` differs from the default after profiling only,
    ``twice`` before it.
    """
    default = CANONICAL["default"]
    more = {
        **CANONICAL,
        "later": Canonical(default.watched, (RemoveDead(),)),
        "twice": Canonical((*default.watched, RemoveDead())),
    }
    for module in ("evaluation.artifacts", "passes.canonical_pipeline", "quantization.schema"):
        monkeypatch.setattr(f"qbench.{module}.CANONICAL", MappingProxyType(more))


def test_schemas_of_one_pipeline_share_a_profile(tmp_path, pipelines):
    engine = Engine(prepared=[])
    shared = SubjectArtifacts(subject(), Cache(tmp_path), engine, HERE)
    first = get_schema("w8a8_asym_pc")
    for schema in (
        first,
        get_schema("w8a8_sym_pt"),
        replace(first, canonical="later", name="late"),
    ):
        assert (
            shared.quantized(schema, engine.capabilities).plans["model"].canonical
            == schema.canonical
        )
    assert len(engine.prepared) == 1
    shared.quantized(replace(first, canonical="twice", name="other"), engine.capabilities)
    assert len(engine.prepared) == 2
    assert shared.profiles("later") is shared.profiles()
    again = Engine(prepared=[])
    other = SubjectArtifacts(subject(), Cache(tmp_path), again, HERE)
    assert {name: other.profiles(name)["model"] for name in ("default", "later", "twice")} == {
        name: shared.profiles(name)["model"] for name in ("default", "later", "twice")
    }
    assert again.prepared == []


def test_equal_schemas_are_written_once(tmp_path):
    engine = Engine(prepared=[])
    shared = SubjectArtifacts(subject(), Cache(tmp_path), engine, HERE)
    schema = get_schema("w8a8_asym_pc")
    once = shared.quantized(schema, engine.capabilities)
    assert shared.quantized(get_schema("w8a8_asym_pc"), replace(engine.capabilities)) is once
    assert once.idle_rules == ()


def test_channels_are_profiled_for_those_who_ask(tmp_path):
    engine = Engine(prepared=[])
    shared = SubjectArtifacts(subject(), Cache(tmp_path), engine, HERE)
    spec = Spec(qtype="uint8", symmetry="asymmetric", granularity=Granularity.CHANNEL)
    weight = Spec(qtype="int8", symmetry="symmetric")
    plain = get_schema("w8a8_asym_pc")
    asking = Schema(name="channels", rules=(Rule(input=spec, output=spec, weight=weight),))
    assert asking.wants_channels
    assert not plain.wants_channels
    shared.quantized(plain, engine.capabilities)
    assert all(seen.channel_lows is None for seen in shared.profiles()["model"].values.values())
    assert len(engine.prepared) == 1
    everything = replace(engine.capabilities, activation_per_channel=True)
    plan = shared.quantized(asking, everything).plans["model"]
    assert len(engine.prepared) == 2
    assert any(qparams.axis == 1 for qparams in plan.values.values())


def with_bias():
    """The subject's network as a Gemm with a bias, and weights that four bits miss."""
    rng = np.random.default_rng(4)
    constants = [
        numpy_helper.from_array(rng.normal(1, 1, (4, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(rng.normal(size=3).astype(np.float32), "b"),
    ]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="y")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        constants,
    )
    return ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def test_biases_are_corrected_on_what_the_task_feeds(tmp_path):
    engine = Engine(prepared=[])
    plain_subject = subject()
    of_gemm = replace(
        plain_subject, model=replace(plain_subject.model, graphs={"model": with_bias})
    )
    shared = SubjectArtifacts(of_gemm, Cache(tmp_path), engine, HERE)
    schema = get_schema("w4a8_asym_pc")
    plain = shared.quantized(schema, ANYTHING)
    corrected = shared.quantized(replace(schema, bias_correction=True), ANYTHING)
    fed = np.concatenate([feeds["x"] for feeds in shared.samples(of_gemm.calibration).batches()])

    def mean_output(model):
        with get_backend("ort-cpu-noopt").prepare(model) as executor:
            return executor.run({"x": fed})["y"].mean(axis=0)

    real = mean_output(shared.graphs["model"])
    off, left = (np.abs(mean_output(q.models["model"]) - real).max() for q in (plain, corrected))
    assert plain.digest != corrected.digest
    assert left < off / 10

"""Schemas of weights alone are asked how many weights lie on grids,
not how much is multiplied in integers.
"""

import pytest

from qbench.backends import get_backend
from qbench.backends.block_products import rounds_data
from qbench.evaluation import SubjectArtifacts, build_subject, measure_cell
from qbench.judging import EnvironmentClass, Measurement
from qbench.quantization import Granularity, Rule, Schema, Spec
from qbench.storage import Cache

WEIGHT = Spec(qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL)
_IN_BLOCKS = {"dense2"}
"""What ONNX Runtime runs with weights in blocks: no convolution, and no product before a Relu."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SubjectArtifacts:
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["agreement"], 32)
    return SubjectArtifacts(
        subject, Cache(tmp_path_factory.mktemp("cache")), get_backend("ort-cpu"), "here"
    )


def measured(shared: SubjectArtifacts, *rules: Rule) -> Measurement:
    backend = get_backend("ort-cpu")
    schema = Schema(name="own", rules=rules)
    return measure_cell(shared, backend, schema, environment=EnvironmentClass("here", ()))


def test_all_weights_on_grids(shared: SubjectArtifacts) -> None:
    found = measured(shared, Rule(weight=WEIGHT))
    assert (found.integer_macs, found.weight_macs, found.planned_share) == (0.0, 1.0, 1.0)
    assert found.planned_words == "by quantized weights"


def test_the_weights_of_one_operator_alone(shared: SubjectArtifacts) -> None:
    found = measured(shared, Rule(operators=("Gemm",), weight=WEIGHT))
    assert found.weight_macs is not None
    assert 0.0 < found.weight_macs < 0.5


def test_a_schema_of_activations_too_is_asked_for_integers(shared: SubjectArtifacts) -> None:
    found = measured(
        shared, Rule(weight=WEIGHT, activation=Spec(qtype="uint8", symmetry="asymmetric"))
    )
    assert found.weight_macs is None
    assert found.planned_share == found.integer_macs > 0.9


def test_an_engine_that_rounds_the_data_itself_is_asked_what_it_ran(
    shared: SubjectArtifacts,
) -> None:
    schema = Schema(name="own", rules=(Rule(weight=WEIGHT),))
    found = measure_cell(
        shared, "ort-cpu-default", schema, environment=EnvironmentClass("here", ())
    )
    rounded = [layer.partition(" ")[0] for layer in found.rounded_data]
    assert set(rounded) == (_IN_BLOCKS if rounds_data(8, 32) else set())
    assert found.integer_macs == 0.0
    assert ((found.executed_macs or 0.0) > 0) == bool(rounded)
    assert not found.misread


@pytest.mark.slow
def test_the_engine_reports_what_it_ran_in_integers(shared: SubjectArtifacts) -> None:
    def found(backend: str, schema: str) -> Measurement:
        return measure_cell(
            shared, get_backend(backend), schema, environment=EnvironmentClass("here", ())
        )

    assert found("ort-cpu", "w8a8_asym_pc").executed_macs == 1.0
    assert found("integer-ort-x64", "w8a8_asym_pc_dyn").executed_macs == 1.0
    assert found("ort-cpu-noopt", "w8a8_asym_pc").executed_macs == 0.0
    assert found("ort-cpu", "w8_sym_pc").executed_macs is None
    # signed activations with a clip behind QuantizeLinear are not fused, which only the engine
    # knows
    signed = found("ort-cpu", "w8a8_sym_pc")
    assert (signed.integer_macs, round(signed.executed_macs or 0.0, 3)) == (1.0, 0.002)
    assert [layer.partition(" ")[0] for layer in signed.executed_in_float] == [
        "conv2",
        "dense1",
        "conv1",
    ]

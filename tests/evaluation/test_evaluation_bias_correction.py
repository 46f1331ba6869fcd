"""A schema that corrects biases, on real digits: the cell uses the calibration samples, and
more answers stay.
"""

from dataclasses import replace

import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.evaluation import SubjectArtifacts, build_subject, measure_cell
from qbench.judging import EnvironmentClass
from qbench.quantization import Rule, Schema, Spec, bias_correction_of
from qbench.storage import Cache

COARSE = Schema(
    name="coarse",
    rules=(
        Rule(
            activation=Spec(qtype="uint8", symmetry="asymmetric"),
            weight=Spec(qtype="int3", symmetry="symmetric"),
        ),
    ),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SubjectArtifacts:
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["agreement"], 128)
    return SubjectArtifacts(
        subject, Cache(tmp_path_factory.mktemp("cache")), get_backend("ort-cpu"), "here"
    )


def agreement(shared: SubjectArtifacts, schema: Schema) -> float:
    measured = measure_cell(
        shared, "ort-cpu-noopt", schema, environment=EnvironmentClass("here", ())
    )
    (score,) = measured.scores
    return score.value


@pytest.mark.slow
def test_more_answers_stay_with_corrected_biases(shared: SubjectArtifacts) -> None:
    corrected = replace(COARSE, name="corrected", bias_correction=True)
    assert agreement(shared, corrected) > agreement(shared, COARSE) + 0.01


def test_the_samples_are_those_of_calibration_and_plans_are_the_same(
    shared: SubjectArtifacts,
) -> None:
    capabilities = get_backend("ort-cpu-noopt").capabilities
    plain = shared.quantized(COARSE, capabilities)
    corrected = shared.quantized(replace(COARSE, bias_correction=True), capabilities)
    report = bias_correction_of(corrected.models["model"])
    assert report is not None
    assert (report.samples, report.saturated) == (128, 0)
    assert report.biases == sum(
        node.op_type in ("Conv", "Gemm") for node in plain.models["model"].graph
    )
    assert bias_correction_of(plain.models["model"]) is None
    assert plain.digest != corrected.digest
    assert plain.plans["model"].values == corrected.plans["model"].values


@pytest.mark.parametrize("text", ["{", "[]", "3", "[1, 2, 3, 4]", "[-1, 2, 3]", '["1", 2]'])
def test_damaged_metadata_of_the_correction_are_one_sentence(text):
    model = ir.Model(ir.Graph([], [], nodes=[], name="net"), ir_version=10)
    model.metadata_props["qbench.bias_correction"] = text
    with pytest.raises(InputError, match=r"qbench\.bias_correction"):
        bias_correction_of(model)

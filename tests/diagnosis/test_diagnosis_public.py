"""What Python code calls for a cell of no suite:
``measure_cell`` and ``localize`` do what the verbs do.
"""

import pytest

import qbench
from qbench.backends import get_backend
from qbench.diagnosis import LocalizeOptions
from qbench.evaluation import build_subject, subject_artifacts


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    from qbench.storage import Cache

    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["top1", "agreement"], 64)
    return subject_artifacts(
        subject, get_backend("ort-cpu"), Cache(tmp_path_factory.mktemp("cache"))
    )


def test_a_cell_is_measured_by_names(digits):
    fp32 = qbench.measure_cell(digits, "ort-cpu", None)
    assert (fp32.cell.schema, fp32.score("agreement").value, fp32.integer_macs) == (
        "fp32",
        1.0,
        0.0,
    )
    quantized = qbench.measure_cell(digits, "ort-cpu", "w8a8_asym_pc")
    assert (quantized.cell.backend, quantized.cell.schema) == ("ort-cpu", "w8a8_asym_pc")
    assert quantized.integer_macs > 0.9
    assert quantized.environment.packages


def test_a_cell_is_localized_by_names(digits):
    finding = qbench.localize(
        digits, "ort-cpu-noopt", "w4a4_sym_pt", options=LocalizeOptions(samples=16, repairs=False)
    )
    assert (finding.model, finding.backend, finding.schema, finding.samples) == (
        "digits_cnn",
        "ort-cpu-noopt",
        "w4a4_sym_pt",
        16,
    )
    assert finding.suspects
    weights = [one for one in finding.distributions if one.place.endswith("weight[1]")]
    assert weights
    # 4 bits, also where the file has them in 8; of a Relu the half that is not negative
    assert {one.code_count for one in finding.distributions} == {8, 16}
    assert all(one.clipped == 0.0 for one in weights)
    assert {one.place.split(".")[0] for one in finding.distributions} <= {
        suspect.node for suspect in finding.suspects[:3]
    }

"""What is written computes what was planned:
engines against the float graph with a round trip at every slot.
"""

import re
from typing import Any

import numpy as np
import onnx
import pytest
from quantization_subjects import SUBJECTS, fake_quantized, feeds_of

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.graph import Form, check_convention, form_of, graph_digest, model_bytes, opset
from qbench.quantization import catalogue, insert_qdq, make_plan, quantize_model

STATIC = re.compile(r"w8a8_[a-z0-9]+_p[tc](_pow2)?")


def run(model: Any, feeds: Any, backend: str) -> dict[str, Any]:
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("schema", [name for name in catalogue().names() if STATIC.fullmatch(name)])
@pytest.mark.parametrize("name", SUBJECTS)
def test_the_engine_computes_the_plan(name: str, schema: str) -> None:
    model = SUBJECTS[name]()
    feeds = feeds_of(model)
    before = graph_digest(model)
    profile = calibrate(model, [feeds])
    plan = make_plan(model, profile, schema)
    written = quantize_model(model, plan)
    assert graph_digest(model) == before
    assert plan.refusals == ()
    assert plan.integer_macs == 1.0
    onnx.checker.check_model(onnx.load_from_string(model_bytes(written)), full_check=True)
    assert check_convention(written) == ()
    assert form_of(written) is Form.QDQ
    assert opset(written) == 21
    got = run(written, feeds, "ort-cpu-noopt")
    expected = fake_quantized(model, plan, feeds)
    floats = run(model, feeds, "ort-cpu-noopt")
    run(written, feeds, "ort-cpu")
    for output, real in floats.items():
        spread = float(np.abs(real).max())
        # Sums in another order may put a value on the other side of a tie: one step of one grid,
        # rarely.
        assert np.mean(np.abs(got[output] - expected[output]) > 1e-5 * spread) < 0.02
        assert np.abs(got[output] - expected[output]).max() < 0.1 * spread
        assert np.linalg.norm(got[output] - real) < 0.12 * np.linalg.norm(real)
        assert not np.array_equal(got[output], real)


def test_writing_twice_changes_nothing() -> None:
    model = SUBJECTS["residual"]()
    plan = make_plan(model, calibrate(model, [feeds_of(model)]), "w8a8_asym_pc")
    once = quantize_model(model, plan)
    for again in (quantize_model(once, plan), insert_qdq(once, plan)):
        assert graph_digest(again) == graph_digest(once)


def test_the_onnx_evaluator_runs_it_too() -> None:
    model = SUBJECTS["depthwise"]()
    feeds = feeds_of(model)
    written = quantize_model(
        model, make_plan(model, calibrate(model, [feeds]), "w8a8_asym_pc_pow2")
    )
    ours, theirs = run(written, feeds, "ort-cpu-noopt"), run(written, feeds, "onnx-reference")
    assert np.mean(ours["z"] != theirs["z"]) < 0.05

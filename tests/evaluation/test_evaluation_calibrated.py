"""What a measurement says of its calibration: the extremes that were seen,
for schemas that ask for any.
"""

from dataclasses import replace

import numpy as np
import pytest
from test_evaluation_cache import HERE, Engine, points, subject

from qbench.evaluation import Request, SubjectArtifacts, measure_request
from qbench.judging import Cell, EnvironmentClass
from qbench.quantization import get_schema
from qbench.storage import Cache


def calibrated(tmp_path, schema, *, variant="", recalibrated="", **changes):
    engine = Engine()
    shared = SubjectArtifacts(subject(), Cache(tmp_path), engine, HERE)
    request = Request(
        cell=Cell("smoke", "net", "one", "fp32" if schema is None else schema, variant),
        shared=shared,
        backend=engine,
        schema=None if schema is None else replace(get_schema(schema), **changes),
        reference=shared.reference(),
        environment=EnvironmentClass("x64-test"),
        recalibrated=recalibrated,
        timer=lambda: 0.0,
    )
    return measure_request(request).calibrated


def test_the_extremes_of_every_value_in_the_order_of_the_graph(tmp_path):
    found = calibrated(tmp_path, "w8a8_asym_pc")
    x = np.stack([points("spare", 5).load(i) for i in range(5)])
    h = x @ np.arange(12, dtype=np.float32).reshape(4, 3)
    assert found.key == "default"
    assert list(found.ranges) == ["x", "y"]
    assert found.ranges["x"] == pytest.approx((x.min(), x.max()), rel=1e-4)
    assert found.ranges["y"] == pytest.approx(
        (np.maximum(h, 0).min(), np.maximum(h, 0).max()), rel=1e-4
    )
    assert all(end == float(f"{end:.5g}") for ends in found.ranges.values() for end in ends)


def test_schemas_share_them_and_variants_are_told_apart(tmp_path):
    first = calibrated(tmp_path, "w8a8_asym_pc")
    assert calibrated(tmp_path, "w8a8_sym_pt") == first
    assert calibrated(tmp_path, "w8a8_asym_pc", variant="exact") == first
    other = calibrated(tmp_path, "w8a8_asym_pc", variant="few", recalibrated="few")
    assert (other.key, other.ranges) == ("default+few", first.ranges)


@pytest.mark.parametrize("schema", [None, "w8_sym_pc", "w8a8_asym_pc_dyn"])
def test_what_asks_for_no_range_has_none(tmp_path, schema):
    assert calibrated(tmp_path, schema) is None

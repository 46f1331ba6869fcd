"""Bytes that are read with the other sign."""

import numpy as np
from hypothesis_units import gemm

from qbench.judging import Cause


def test_weights_read_as_unsigned_are_named():
    one = gemm()
    of = {
        name: value.const_value.numpy() for name, value in one.unit.graph.graph.initializers.items()
    }
    apart = np.where(of["w_q"] < 0, 256, 0) * of["w_s"].astype(np.float64)
    x = (one.feeds["x_q"].astype(np.float64) - of["x_z"]) * of["x_s"]
    named = one.cause(one.rounded(one.real() + x @ apart / one.unit.scale))
    assert named.cause is Cause.LAYOUT
    assert "weights of which the bytes are read as unsigned" in named.evidence
    assert named.weight > 0.95

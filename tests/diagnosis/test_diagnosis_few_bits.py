"""A node of few bits is coarse, and the bits are said."""

import pytest
from digits_targets import batches, capture, examine, target

from qbench.diagnosis.hypotheses import name_cause
from qbench.judging import Cause
from qbench.numerics import get_arithmetic


@pytest.mark.parametrize(("schema", "bits"), [("w4a8_sym_pc", 4), ("w3a8_sym_pc", 3)])
def test_weights_of_few_bits_are_said(schema, bits):
    of = target(schema=schema)
    (feeds,) = batches(1, 8)
    nodes = [node for node in examine(of, [feeds]).nodes if node.node in ("conv1", "conv2")]
    found = [
        name_cause(one, get_arithmetic("ort-x64"), original=of.original)
        for one in capture(of, nodes, feeds)
    ]
    assert {one.cause for one in found} == {Cause.COARSE}
    assert all(f"the weights have {bits} bits, and their rounding" in one.evidence for one in found)

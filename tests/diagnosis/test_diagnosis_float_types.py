"""Weights in floats of few bits are examined unit by unit, as those in integers; values are not."""

import numpy as np
import pytest
from digits_targets import batches, examine, put, target

from qbench.errors import UnsupportedError

LAYERS = {"conv1", "conv2", "dense1", "dense2"}


@pytest.mark.parametrize(
    "schema",
    ["wf8e4m3_sym_pc", "wf6e3m2_sym_pt", "wmxfp4_sym_b32", "wnvfp4_sym_b16"],
)
def test_every_layer_by_weights_of_floats_is_a_row_with_the_error_of_its_rounding(schema):
    of = target(schema=schema)
    nodes = {node.node: node for node in examine(of, batches(1)).nodes}
    assert nodes.keys() == LAYERS
    for node in nodes.values():
        # the graph and its arithmetic are right: nothing beyond what rounding the weights explains
        assert node.isolated.sqnr_db == pytest.approx(node.explained.sqnr_db, abs=0.1)
        assert 5 < node.isolated.sqnr_db < 60


def test_a_wrong_weight_of_floats_is_beyond_what_its_rounding_explains():
    model = target(schema="wf8e4m3_sym_pc").quantized.clone()
    (product,) = (node for node in model.graph if node.name == "conv2")
    scales = product.inputs[1].producer().inputs[1]
    put(scales, scales.const_value.numpy() * np.float32(1.5))
    nodes = {node.node: node for node in examine(target(model=model), batches(1)).nodes}
    assert nodes["conv2"].isolated.sqnr_db < nodes["conv2"].explained.sqnr_db - 5
    right = nodes["dense1"]
    assert right.isolated.sqnr_db == pytest.approx(right.explained.sqnr_db, abs=0.1)


def test_values_in_floats_are_refused_in_a_sentence():
    with pytest.raises(UnsupportedError) as caught:
        examine(target(schema="wf8e4m3af8e4m3_sym_pc"), batches(1))
    assert "float8e4m3fn" in caught.value.found
    assert "without 'af…'" in caught.value.remedy

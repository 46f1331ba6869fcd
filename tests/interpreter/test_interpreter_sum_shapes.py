"""The shapes of sums that engines choose kernels by, as attributes spell them."""

from typing import Any

import onnx_ir as ir
import pytest
from onnx import helper

from qbench.interpreter import sum_shape

USUAL: dict[str, Any] = {"group": 16, "pads": [1] * 4}


def shape(weight: tuple[int, ...], attributes: dict[str, Any]):
    node = ir.serde.deserialize_node(helper.make_node("QLinearConv", ["x"], ["y"], **attributes))
    return sum_shape(node, weight)


@pytest.mark.parametrize(
    ("weight", "attributes", "fast"),
    [
        ((16, 1, 3, 3), {}, True),
        ((32, 1, 3, 3), {}, True),
        ((48, 1, 3, 3), {}, False),
        ((16, 1, 5, 5), {"pads": [2] * 4}, True),
        ((16, 1, 3, 3, 3), {"pads": [1] * 6}, True),
        ((16, 1, 5, 3, 3), {"pads": [2, 1, 1, 2, 1, 1]}, True),
        ((16, 1, 9, 9), {"pads": [4] * 4}, False),
        ((16, 1, 3, 5), {"pads": [1, 2, 1, 2]}, False),
        ((16, 1, 3), {"pads": [1] * 2}, False),
        ((16, 1, 3, 3), {"pads": [0] * 4}, False),
        ((16, 1, 3, 3), {"pads": [1, 1, 0, 1]}, False),
        ((16, 1, 3, 3), {"strides": [2, 1]}, True),
        ((16, 1, 3, 3), {"strides": [3, 1]}, False),
        ((16, 1, 3, 3), {"dilations": [1, 2]}, False),
        ((12, 1, 3, 3), {"group": 12}, False),
        ((16, 2, 3, 3), {"group": 8}, False),
        ((16, 1, 3, 3), {"pads": None, "auto_pad": "SAME_UPPER"}, True),
        ((16, 1, 3, 3), {"pads": None, "auto_pad": "SAME_UPPER", "strides": [2, 2]}, False),
        ((16, 1, 3, 3), {"pads": None, "auto_pad": "VALID"}, False),
    ],
)
def test_what_fbgemms_depthwise_kernels_take(
    weight: tuple[int, ...], attributes: dict[str, Any], fast: bool
) -> None:
    given = {name: value for name, value in {**USUAL, **attributes}.items() if value is not None}
    found = shape(weight, given)
    assert found.fast_depthwise == fast
    assert found.depthwise == (weight[:2] == (given["group"], 1))

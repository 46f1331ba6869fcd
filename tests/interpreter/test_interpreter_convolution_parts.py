"""A batch whose sums would not stay in the cache is convolved part by part: of any size,
with the same levels.
"""

import numpy as np
import pytest
from one_node import counted, levels_of, model_of

from qbench.interpreter.integer_kernels import convolutions


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("samples", [0, 1, 2, 7])
def test_parts_of_a_batch_are_the_batch(
    samples: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = levels_of(0, "uint8", samples, 4, 9, 8), levels_of(1, "int8", 8, 4 // group, 3, 3)
    constants = {
        "w": w, "sx": np.float32(1), "zx": np.uint8(9),
        "sw": np.linspace(1, 2, 8, dtype=np.float32), "zw": np.zeros(8, np.int8),
        "sy": np.float32(190), "zy": np.uint8(100),
    }  # fmt: skip
    order = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    model = model_of(
        "QLinearConv", order, {"x": x}, constants, group=group, kernel_shape=[3, 3], strides=[2, 1]
    )
    (whole,) = counted(model, "ort-x64", {"x": x})
    each = 8 * whole.shape[2] * whole.shape[3]
    for at_once in (1, 3 * each):
        monkeypatch.setattr(convolutions, "_SUMS_AT_ONCE", at_once)
        np.testing.assert_array_equal(counted(model, "ort-x64", {"x": x})[0], whole)
    assert whole.shape == (samples, 8, 4, 6)
    assert not samples or len(np.unique(whole)) > 20

"""Equalization within Clips: the same function on the samples, factors only where the upper end
leaves room.
"""

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.graph import constant_value
from qbench.passes import equalized_by_peaks, plannable
from qbench.passes.canonical.equalize_clips import MARGIN

Array = np.ndarray
X = np.random.default_rng(1).normal(size=(3, 4, 5, 5)).astype(np.float32)


def clipped(end: float | None = 6.0) -> ir.Model:
    """Conv, Clip from 0, Conv, with channels from 0.05 to beyond 6; no end: a Relu."""
    rng = np.random.default_rng(0)
    sizes = np.array([0.01, 0.1, 1.0, 4.0, 8.0, 20.0]).reshape(-1, 1, 1, 1)
    weights = {
        "w": (rng.normal(size=(6, 4, 1, 1)) * sizes / 4).astype(np.float32),
        "b": rng.normal(size=6).astype(np.float32) / 100,
        "v": rng.normal(size=(5, 6, 1, 1)).astype(np.float32),
        "low": np.float32(0),
        "high": np.float32(end or 0),
    }
    middle = "r = Relu(c)" if end is None else "r = Clip(c, low, high)"
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> net (float[N,4,5,5] x) => (float[N,5,5,5] y) '
        f"{{ c = Conv(x, w, b) {middle} y = Conv(r, v) }}"
    )
    declared = "".join(f", float[] {name}" for name in weights)
    model = ir.from_onnx_text(text.replace("] x)", f"] x{declared})"))
    for value in list(model.graph.inputs)[1:]:
        model.graph.inputs.remove(value)
        tensor = ir.tensor(np.asarray(weights[str(value.name)]), name=value.name)
        value.const_value, value.shape, value.dtype = tensor, tensor.shape, tensor.dtype
        model.graph.register_initializer(value)
    return plannable(model)


def values(model: ir.Model) -> tuple[Array, Array]:
    """The result of the clip, and of the graph."""
    with get_backend("ort-cpu-noopt").prepare(model, taps=("r",)) as executor:
        results = executor.run({"x": X})
    return results["r"], results["y"]


def sizes(model: ir.Model) -> tuple[Array, Array]:
    """The largest weight that makes each channel, and that reads it."""
    first, _, second = model.graph
    made, read = (np.abs(constant_value(node.inputs[1])) for node in (first, second))
    return made.max(axis=(1, 2, 3)), read.max(axis=(0, 2, 3))


def test_channels_with_room_get_like_ranges_and_others_stay() -> None:
    model = clipped()
    inner, before = values(model)
    peaks = inner.max(axis=(0, 2, 3))
    copy, has_changed = equalized_by_peaks(model, {"r": peaks})
    assert has_changed
    inner, after = values(copy)
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())
    (was_made, was_read), (made, read) = sizes(model), sizes(copy)
    stays = peaks * MARGIN >= 6
    assert 0 < stays.sum() < 6
    np.testing.assert_array_equal(made[stays], was_made[stays])
    np.testing.assert_array_equal(read[stays], was_read[stays])
    reached = inner.max(axis=(0, 2, 3))[~stays]
    assert (reached * MARGIN <= 6 * (1 + 1e-5)).all()
    at_end = np.isclose(reached * MARGIN, 6, rtol=1e-3)
    np.testing.assert_allclose(made[~stays][~at_end], read[~stays][~at_end], rtol=2e-3)
    assert not at_end.all()
    assert [node.op_type for node in copy.graph] == ["Conv", "Clip", "Conv"]


def test_the_model_that_was_given_is_not_touched() -> None:
    model = clipped()
    before = sizes(model)
    equalized_by_peaks(model, {"r": np.ones(6)})
    np.testing.assert_array_equal(sizes(model), before)


@pytest.mark.parametrize("peaks", [{}, {"r": np.full(6, 6.0)}, {"other": np.zeros(6)}])
def test_without_room_or_without_peaks_nothing_changes(peaks: dict[str, Array]) -> None:
    model = clipped()
    copy, has_changed = equalized_by_peaks(model, peaks)
    assert not has_changed
    np.testing.assert_array_equal(sizes(copy), sizes(model))


def test_a_pair_without_an_end_needs_no_peaks() -> None:
    copy, has_changed = equalized_by_peaks(clipped(None), {})
    assert has_changed
    made, read = sizes(copy)
    np.testing.assert_allclose(made, read, rtol=2e-3)

"""A plan as a task for a fitter and back: here with fitters of a line, which need no torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from qbench.errors import UnsupportedError
from qbench.graph import FitJob, FitSettings, FitTask, Fitted
from qbench.numerics import QParams, quantize
from qbench.quantization import (
    HandRange,
    HandRanges,
    fit_model,
    load_ranges,
    qparams_of,
    ranges_text,
)
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples

Array = npt.NDArray[Any]


class Stub:
    """A fitter that does what it is told, and keeps its task."""

    def __init__(self, change: Callable[[FitTask], Fitted]) -> None:
        self._change = change
        self.task: FitTask

    def fit(self, job: FitJob) -> Fitted:
        self.task = job.task
        return self._change(job.task)


def doubled(task: FitTask) -> Fitted:
    """All scales twice as large."""
    qparams = {
        name: QParams(
            one.qparams.scale * 2,
            one.qparams.zero_point,
            one.qparams.qtype,
            axis=one.qparams.axis,
            narrow_range=one.qparams.narrow_range,
        )
        for name, one in task.moving.items()
    }
    return Fitted(qparams=qparams, losses=(2.0, 1.0))


def one_code_up(task: FitTask) -> Fitted:
    """Every weight one code higher, as floats on their codes."""
    changed = {}
    for name in task.constants.values():
        qparams = task.qparams[name]
        array = task.model.graph.initializers[name].const_value.numpy()
        scale, point = qparams.expanded(array.shape)
        codes = np.minimum(quantize(array, qparams).astype(np.int64) + 1, qparams.qmax)
        changed[name] = ((codes - point) * scale).astype(np.float32)
    kept = {name: one.qparams for name, one in task.moving.items()}
    return Fitted(qparams=kept, constants=changed, losses=(1.0, 1.0))


def digits() -> tuple[ir.Model, dict[str, Array]]:
    network = get_model("digits_cnn")
    data = get_dataset("digits_train").take(6)
    samples = prepare_samples(data, network.preprocess, Cache.default())
    return network.graphs["model"](), next(iter(samples.batches()))


def fitted(change: Callable[[FitTask], Fitted], schema: Any = "w8a8_asym_pc") -> Any:
    model, feeds = digits()
    stub = Stub(change)
    return fit_model(model, feeds, schema, stub, FitSettings()), stub.task


@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w4a4_sym_pt_pow2", "w8a8_symu8_pt"])
def test_the_plan_has_what_was_fitted(schema: str) -> None:
    done, task = fitted(doubled, schema)
    for slot, decision in done.plan.decisions.items():
        if slot.role.value == "bias" or qparams_of(decision) is None:
            continue
        name = task.values.get(slot.value, slot.value)
        assert np.array_equal(
            qparams_of(decision).scale, task.moving[name].qparams.scale * np.float32(2)
        )
    assert done.loss == (2.0, 1.0)


def test_a_value_that_shares_parameters_is_no_task_of_its_own() -> None:
    _, task = fitted(doubled)
    shared = {value: name for value, name in task.values.items() if value != name}
    assert shared
    assert not shared.keys() & task.moving.keys()
    assert set(shared.values()) <= task.moving.keys() | task.fixed.keys()


def test_biases_name_the_parameters_of_data_and_weight() -> None:
    _, task = fitted(doubled)
    assert task.biases
    for data, weight in task.biases.values():
        assert data in task.values.values()
        assert weight in task.constants.values()


def test_other_weights_keep_their_codes() -> None:
    done, task = fitted(one_code_up)
    moved = 0
    for slot, qparams in done.plan.constants.items():
        if slot.role.value != "weight":
            continue
        before = task.model.graph.initializers[slot.value].const_value.numpy()
        after = done.model.graph.initializers[slot.value].const_value.numpy()
        old = quantize(before, qparams).astype(np.int64)
        assert np.array_equal(quantize(after, qparams), np.minimum(old + 1, qparams.qmax))
        moved += old.size
    assert moved


def test_the_file_of_ranges_is_read_as_they_are(tmp_path: Path) -> None:
    done, _ = fitted(doubled)
    path = tmp_path / "fitted.toml"
    path.write_text(ranges_text(done.ranges, ["digits_cnn"]))
    assert load_ranges(path).values == done.ranges.values


def test_ends_are_written_as_they_are(tmp_path: Path) -> None:
    ranges = HandRanges(file="x", values=(("a.b", HandRange(low=-0.1, high=(0.3, 1e-7))),))
    path = tmp_path / "ends.toml"
    path.write_text(ranges_text(ranges))
    assert load_ranges(path).values == ranges.values


def test_what_is_given_by_hand_stays() -> None:
    from qbench.quantization import get_schema

    given = HandRanges(file="mine.toml", values=(("relu1", HandRange(low=0.0, high=5.0)),))
    done, task = fitted(doubled, get_schema("w8a8_asym_pt").with_ranges(given))
    assert "relu1" in task.fixed
    assert done.plan.values["relu1"] == task.fixed["relu1"]


@pytest.mark.parametrize(
    "schema",
    [
        "w8a8_asym_pc_dyn",
        "w4a8_asym_b32",
        "w8a8_sym_pt_pow2_bias8",
        "wf8e4m3_sym_pc",
        "wf8e4m3af8e4m3_sym_pc",
    ],
)
def test_parameters_that_cannot_be_fitted_are_refused(schema: str) -> None:
    with pytest.raises(UnsupportedError):
        fitted(doubled, schema)

"""Mistakes in calls of the public functions: one InputError, before any work."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest

import qbench
from qbench.errors import InputError, QbenchError
from qbench.evaluation import Subject, build_subject
from qbench.subjects.digits import WEIGHTS


def test_the_error_keeps_its_four_parts_where_a_value_error_is_worded_anew():
    assert not issubclass(InputError, ValueError)
    assert issubclass(InputError, QbenchError)


@dataclass(frozen=True)
class Right:
    """Right arguments, of which each call replaces one."""

    model: ir.Model
    subject: Subject

    @property
    def batches(self) -> list[dict[str, np.ndarray]]:
        return [{"x": np.zeros((2, 1, 8, 8), np.float32)}]


@pytest.fixture(scope="module")
def right() -> Right:
    return Right(
        qbench.load_model(WEIGHTS),
        build_subject("digits_cnn", "digits_test", None, ["agreement"], None),
    )


SCHEMA = "w8a8_asym_pc"
CALLS: dict[str, tuple[Callable[[Right], object], str]] = {
    "a path as subject": (
        lambda _: qbench.measure_cell("net.onnx", "ort-cpu", SCHEMA),
        "'net.onnx'",
    ),  # type: ignore[arg-type]
    "no subject": (lambda _: qbench.measure_cell(None, "ort-cpu", None), "None"),  # type: ignore[arg-type]
    "no backend": (lambda r: qbench.measure_cell(r.subject, None, None), "NoneType"),  # type: ignore[arg-type]
    "a number as schema": (
        lambda r: qbench.measure_cell(r.subject, "ort-cpu", 3),
        "3 for a schema",
    ),  # type: ignore[arg-type]
    "no threads": (
        lambda r: qbench.measure_cell(r.subject, "ort-cpu", None, threads=0),
        "threads=0",
    ),
    "a name as passes": (
        lambda r: qbench.measure_cell(r.subject, "ort-cpu", SCHEMA, passes="all"),
        "'all'",
    ),  # type: ignore[arg-type]
    "no calibration": (
        lambda r: qbench.measure_cell(r.subject, "ort-cpu", SCHEMA),
        "without calibration samples",
    ),
    "localize a path": (
        lambda _: qbench.localize("net.onnx", "integer-ideal", SCHEMA),
        "'net.onnx'",
    ),  # type: ignore[arg-type]
    "localize no schema": (
        lambda r: qbench.localize(r.subject, "integer-ideal", None),
        "a cell without a schema",
    ),  # type: ignore[arg-type]
    "no seconds": (
        lambda r: qbench.localize(r.subject, "integer-ideal", SCHEMA, seconds=-1),
        "seconds=-1",
    ),
    "seconds that are none": (
        lambda r: qbench.localize(r.subject, "integer-ideal", SCHEMA, seconds=float("nan")),
        "seconds=nan",
    ),
    "a bare tolerance": (
        lambda r: qbench.localize(r.subject, "integer-ideal", SCHEMA, tolerance=0.01),
        "0.01",
    ),  # type: ignore[arg-type]
    "localize, no threads": (
        lambda r: qbench.localize(r.subject, "integer-ideal", SCHEMA, threads=0),
        "threads=0",
    ),
    "a schema as plan": (lambda r: qbench.quantize_model(r.model, SCHEMA), f"'{SCHEMA}'"),  # type: ignore[arg-type]
    "no plan": (lambda r: qbench.quantize_model(r.model, None), "None"),  # type: ignore[arg-type]
    "no batches": (lambda r: qbench.calibrate(r.model, None), "NoneType"),  # type: ignore[arg-type]
    "calibrate, no threads": (
        lambda r: qbench.calibrate(r.model, r.batches, threads=-1),
        "threads=-1",
    ),
    "an engine, no threads": (
        lambda r: qbench.get_backend("ort-cpu").prepare(r.model, threads=0),
        "threads=0",
    ),
    "no path": (lambda _: qbench.load_model(None), "None"),  # type: ignore[arg-type]
    "path first": (lambda r: qbench.save_model("net.onnx", r.model), "'net.onnx'"),  # type: ignore[arg-type]
    "a model as name": (lambda r: build_subject(r.model, "digits_test", None, [], None), "Model"),  # type: ignore[arg-type]
    "no data": (lambda _: build_subject("digits_cnn", None, None, [], None), "None"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", CALLS)
def test_a_mistake_is_one_sentence_that_shows_what_was_found(case: str, right: Right) -> None:
    call, found = CALLS[case]
    with pytest.raises(InputError, match=re.escape(found)) as caught:
        call(right)
    assert found in caught.value.found


@pytest.mark.parametrize(
    "name",
    ["quantize", "dequantize", "fake_quantize", "requantize", "add_quantized", "choose_qparams"],
)
def test_the_help_of_the_arithmetic_shows_types_by_their_names(name: str) -> None:
    """Without strings as annotations, help() shows the union of ten types that
    ``npt.ArrayLike`` stands for.
    """
    assert "numpy._typing" not in str(inspect.signature(getattr(qbench, name)))

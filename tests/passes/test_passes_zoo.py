"""Real networks, as ONNX Runtime's own quantizer writes them: every pass removes what it
removes and moves no bit.
"""

import logging
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from qbench.graph import load_model, save_model
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic
from qbench.passes import (
    Pipeline,
    Policy,
    canonicalize,
    lower_to_integers,
    run_pipeline,
    standard_pipeline,
)
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples

pytestmark = pytest.mark.slow


class Once(CalibrationDataReader):
    def __init__(self, feeds: dict[str, np.ndarray]) -> None:
        self._left = [feeds]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def quantized(name: str, data: str, folder: Path) -> tuple[ir.Model, dict[str, np.ndarray]]:
    zoo = get_model(name)
    samples = prepare_samples(get_dataset(data), zoo.preprocess, Cache.default())
    feeds = next(iter(samples.batches(2)))
    model = canonicalize(next(iter(zoo.graphs.values()))())
    save_model(model, folder / "float.onnx")
    logging.disable(logging.WARNING)  # advice about preprocessing
    try:
        quantize_static(
            folder / "float.onnx",
            folder / "qdq.onnx",
            Once(dict(feeds)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            extra_options={"QDQKeepRemovableActivations": True, "DedicatedQDQPair": True},
        )
    finally:
        logging.disable(logging.NOTSET)
    return load_model(folder / "qdq.onnx"), feeds


def bits(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[bytes]:
    """Every output node by node in float, and as the ideal machine counts it."""
    ideal = get_arithmetic("ideal")
    runs = (Program(model, ideal), Program(lower_to_integers(model), ideal))
    return [array.tobytes() for run in runs for _, array in sorted(run.run(feeds).items())]


@pytest.mark.parametrize(
    ("name", "data", "least"),
    [("magika", "magika_files", 10), ("mobilenet_v2", "photo_crops_128", 100)],
)
def test_no_bit_moves_by_any_pass_nor_by_all_of_them(
    name: str, data: str, least: int, tmp_path: Path
) -> None:
    model, feeds = quantized(name, data, tmp_path)
    before, standard = bits(model, feeds), standard_pipeline(Policy.EXACT)
    for one in standard.passes:
        done = run_pipeline(model, Pipeline((one,)))
        assert (
            not done.accounts or not done.accounts[0].changed or bits(done.model, feeds) == before
        ), one.name
    done = run_pipeline(model, standard)
    assert bits(done.model, feeds) == before
    assert done.removed >= least

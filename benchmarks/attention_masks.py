"""What attention masks cost: signal over quantization noise of one attention with four heads,
for each form of mask.

    python benchmarks/attention_masks.py

Columns: ONNX Runtime's ``quantize_static`` (QDQ, per channel) run precisely; qbench's
``w8a8_asym_pc`` on ``ort-cpu-precise``, ``integer-ort-x64`` and ``onnx-reference``. Calibrated on
32 samples, measured on 16 others.
"""

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from qbench import calibrate, get_backend, load_model, make_plan, quantize_model

Array = npt.NDArray[Any]
Feeds = dict[str, Array]

HEADS, LENGTH, WIDTH = 4, 12, 32
LEAST = float(np.finfo(np.float32).min)
CAUSAL = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
_PADDING = (
    "u = Cast<to=1>(mask)\n a = Unsqueeze(u, axes)\n i = Sub(one, a)\n j = Mul(i, far)\n"
    " m = Add(scores, j)"
)
_FED = "a = Unsqueeze(mask, axes)\n m = Add(scores, a)"
_GUARDED = (
    "b = Where(keep, nil, far)\n m = Add(scores, b)\n r = Softmax(m)\n n = IsNaN(r)\n"
    " p = Where(n, nil, r)"
)

Form = tuple[str, str, float, Callable[[Array], Array] | None]
FORMS: dict[str, Form] = {
    "none": ("m = Identity(scores)", "", 0.0, None),
    "Add, constant −1e9": ("m = Add(scores, added)", "", -1e9, None),
    "Add, constant −65504": ("m = Add(scores, added)", "", -65504.0, None),
    "Add, constant −Inf": ("m = Add(scores, added)", "", -np.inf, None),
    "Where, −1e9": ("m = Where(keep, scores, far)", "", -1e9, None),
    "Where, −Inf, guarded by IsNaN": (_GUARDED, "", -np.inf, None),
    "Min with ±1e9, then Max": ("n = Min(scores, both)\n m = Max(n, far)", "", -1e9, None),
    "(1 − mask) · −10000": (
        _PADDING,
        ", int64[N,L] mask",
        -1e4,
        lambda kept: kept.astype(np.int64),
    ),
    "(1 − mask) · least float": (
        _PADDING,
        ", int64[N,L] mask",
        LEAST,
        lambda kept: kept.astype(np.int64),
    ),
    "fed, −1e9": (
        _FED,
        ", float[N,L] mask",
        -1e9,
        lambda kept: np.where(kept, 0, -1e9).astype(np.float32),
    ),
    "fed, least float": (
        _FED,
        ", float[N,L] mask",
        LEAST,
        lambda kept: np.where(kept, 0, LEAST).astype(np.float32),
    ),
}


def model_of(body: str, fed: str, far: float) -> onnx.ModelProto:
    """The network, whose ``body`` makes m (or p) of scores."""
    text = '<ir_version: 10, opset_import: ["" : 21]>\n'
    text += f"masks (float[N,{LENGTH},{WIDTH}] x{fed}) => (float[N,{LENGTH},{WIDTH}] z) {{\n"
    for name, order in (("q", "0,2,1,3"), ("k", "0,2,3,1"), ("v", "0,2,1,3")):
        text += f"{name}0 = MatMul(x, w{name})\n {name}1 = Reshape({name}0, heads)\n"
        text += f"{name} = Transpose<perm=[{order}]>({name}1)\n"
    text += f"s = MatMul(q, k)\n scores = Mul(s, root)\n {body}\n"
    text += "" if "p = " in body else "p = Softmax(m)\n"
    text += (
        "o = MatMul(p, v)\n t = Transpose<perm=[0,2,1,3]>(o)\n y = Reshape(t, joined)\n"
        " z = MatMul(y, w)\n}"
    )
    rng = np.random.default_rng(0)
    constants: Feeds = {
        **{
            f"w{n}": (rng.normal(size=(WIDTH, WIDTH)) * 1.5 / WIDTH**0.5).astype(np.float32)
            for n in "qkv"
        },
        "w": (rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32),
        "heads": np.array([0, LENGTH, HEADS, WIDTH // HEADS]),
        "joined": np.array([0, LENGTH, WIDTH]),
        "axes": np.array([1, 2]),
        "root": np.array((WIDTH // HEADS) ** -0.5, np.float32),
        "one": np.ones((), np.float32),
        "nil": np.zeros((), np.float32),
        "far": np.array(far, np.float32),
        "keep": ~CAUSAL,
        "added": np.where(CAUSAL, np.float32(far), np.float32(0)),
        "both": np.where(CAUSAL, np.float32(far), np.float32(-far)),
    }
    model = onnx.parser.parse_model(text)
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(array), name)
        for name, array in constants.items()
        if name in read
    )
    return model


def feeds_of(form: Form, count: int, seed: int) -> Feeds:
    """Samples of 6 to 12 positions that are no padding."""
    rng = np.random.default_rng(seed)
    feeds = {"x": rng.normal(size=(count, LENGTH, WIDTH)).astype(np.float32)}
    kept = np.arange(LENGTH) < rng.integers(LENGTH // 2, LENGTH + 1, count)[:, np.newaxis]
    return feeds | ({"mask": form[3](kept)} if form[3] else {})


def sqnr(real: Array, found: Array) -> float:
    """Signal over noise, in dB."""
    noise = float(((real.astype(np.float64) - found) ** 2).sum())
    return float(10 * np.log10((real.astype(np.float64) ** 2).sum() / max(noise, 1e-30)))


def theirs(path: Path, batches: list[Feeds], test: Feeds) -> Array:
    """What the graph of ``quantize_static`` gives."""

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = iter(batches)

        def get_next(self) -> Feeds | None:
            return next(self._batches, None)

    written = path.with_name("theirs.onnx")
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(
        path, written, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, **types
    )
    with get_backend("ort-cpu-precise").prepare(written) as executor:
        return executor.run(test)["z"]


def row(form: Form) -> list[float]:
    """The dB of every column."""
    batches, test = [feeds_of(form, 8, seed) for seed in range(4)], feeds_of(form, 16, 99)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model_of(*form[:3]), path)
        model = load_model(path)
        with get_backend("ort-cpu-precise").prepare(path) as executor:
            real = executor.run(test)["z"]
        found = [sqnr(real, theirs(path, batches, test))]
    profile = calibrate(model, batches)
    for name in ("ort-cpu-precise", "integer-ort-x64", "onnx-reference"):
        plan = make_plan(model, profile, "w8a8_asym_pc", capabilities=name)
        with get_backend(name).prepare(quantize_model(model, plan)) as executor:
            found.append(sqnr(real, executor.run(test)["z"]))
    return found


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    print(
        "| mask | quantize_static | ort-cpu-precise | integer-ort-x64 | onnx-reference |\n"
        "|---|---|---|---|---|"
    )
    for name, form in FORMS.items():
        print(f"| {name} | " + " | ".join(f"{db:.1f}" for db in row(form)) + " |", flush=True)

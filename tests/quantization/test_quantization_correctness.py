"""Where onnxruntime's own quantizer is wrong without a word, and what ours does there: both are
run, both are asserted.

Every test takes one small float graph, quantizes it with
``onnxruntime.quantization.quantize_static`` as its users call it and with ours, on the same
calibration data, runs both in ONNX Runtime, with its optimizer (``ort-cpu``) and without
(``ort-cpu-noopt``), and holds both results against the float graph. The lines about theirs say what
it does in the version that is pinned: when one of them fails, onnxruntime got better, and the line
goes.

Weights along what is summed over have alternating signs, so that no pair of products saturates on a
processor without the dot product: what differs here is what was decided and written, on every
machine.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from quantization_subjects import SUBJECTS, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.errors import InputError
from qbench.graph import constant_value, load_model, values_by_name
from qbench.quantization import (
    Granularity,
    Plan,
    Role,
    Rule,
    Schema,
    Spec,
    make_plan,
    quantize_model,
)

Array = np.ndarray[Any, Any]
Batches = list[dict[str, Array]]

BETTER = (
    f"onnxruntime {onnxruntime.__version__} does this better than 1.31.1 did: "
    "strike it from this page"
)
QDQ, OPERATORS = QuantFormat.QDQ, QuantFormat.QOperator
ENGINES = ("ort-cpu", "ort-cpu-noopt")

CHANNELS = Spec(
    qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL, narrow_range=True
)
INT8_ASYMMETRIC = Schema(
    name="int8_asymmetric",
    rules=(Rule(activation=Spec(qtype="int8", symmetry="asymmetric"), weight=CHANNELS),),
)
"""No name of the grammar asks for it; it is what theirs does with ``activation_type=QInt8``."""

engines = pytest.mark.parametrize("engine", ENGINES)


def theirs(model: ir.Model, batches: Iterable[dict[str, Array]], **options: Any) -> ir.Model:
    """``model`` quantized by onnxruntime; ``options`` are those of ``quantize_static``."""

    class Reader(CalibrationDataReader):
        remaining = iter(batches)

        def get_next(self) -> Any:
            return next(self.remaining, None)

    with tempfile.TemporaryDirectory() as folder:
        ir.save(model, Path(folder, "float.onnx"))
        quantize_static(Path(folder, "float.onnx"), Path(folder, "int8.onnx"), Reader(), **options)
        return load_model(Path(folder, "int8.onnx"))


def planned(model: ir.Model, batches: Batches, schema: str | Schema) -> Plan:
    return make_plan(model, calibrate(model, batches), schema)


def ours(model: ir.Model, batches: Batches, schema: str | Schema) -> ir.Model:
    return quantize_model(model, planned(model, batches, schema))


def answer(model: ir.Model, feeds: dict[str, Array], engine: str = "ort-cpu-noopt") -> Array:
    with get_backend(engine).prepare(model) as executor:
        return executor.run(feeds)["z"]


def scale_of(model: ir.Model, name: str) -> float:
    """The scale that theirs writes for the value ``name``."""
    found = constant_value(values_by_name(model)[f"{name}_scale"])
    assert found is not None
    return float(found.reshape(-1)[0])


def alternating(seed: int, *shape: int, size: float = 0.4) -> Array:
    """Weights whose signs alternate along axis 1:
    a positive product beside a negative one never saturates.
    """
    signs = np.where(np.arange(shape[1]) % 2, -1, 1).reshape(-1, *[1] * (len(shape) - 2))
    return (np.abs(weights(seed, *shape, size=size)) * signs).astype(np.float32)


def conv_clip_mul(clip: str, w: Array, b: Array, **constants: Array) -> ir.Model:
    """z = 0.5 · clip(conv(x)): the clip lies between two operators that are quantized."""
    return model_of(
        "float[N,4,5,5] x",
        f"float[N,{len(w)},5,5] z",
        f"c = Conv(x, w, b)\n{clip}\nz = Mul(y, half)",
        w=w,
        b=b,
        half=np.array(0.5, np.float32),
        **constants,
    )


@pytest.mark.slow_but(3)
@engines
@pytest.mark.parametrize(
    "schema", ["w8a8_asym_pt", "w8a8_asym_pc", "w8a8_sym_pt", "w8a8_asym_pt_pow2"]
)
def test_a_clip_with_a_lower_bound_above_zero_keeps_it(schema: str, engine: str) -> None:
    """z ≥ 0.5. Theirs deletes the Clip, because the grid of its result ends near 4; but that
    grid begins at 0.
    """
    ends = {"low": np.array(1, np.float32), "high": np.array(4, np.float32)}
    model = conv_clip_mul(
        "y = Clip(c, low, high)", alternating(0, 4, 4, 1, 1, size=1), weights(1, 4, size=2), **ends
    )
    feeds = feeds_of(model)
    assert answer(model, feeds).min() == 0.5
    for form in (QDQ, OPERATORS):
        assert answer(theirs(model, [feeds], quant_format=form), feeds, engine).min() == 0, BETTER
    plan = planned(model, [feeds], schema)
    got = answer(quantize_model(model, plan), feeds, engine)
    assert got.min() == pytest.approx(0.5, abs=float(plan.values["y"].scale) / 2)
    assert np.unique(got).size > 10


@engines
@pytest.mark.parametrize(
    ("factors", "wrong"),
    [
        ("alpha=0.5", [OPERATORS]),
        ("beta=2.0", [QDQ, OPERATORS]),
        ("alpha=3.0, beta=0.25", [QDQ, OPERATORS]),
    ],
)
def test_a_gemm_with_factors(factors: str, wrong: list[QuantFormat], engine: str) -> None:
    """z = α·x·w + β·b. Theirs forgets β or divides by it;
    in operator form α multiplies the bias, too.
    """
    model = model_of(
        "float[N,6] x",
        "float[N,4] z",
        f"z = Gemm<transB=1, {factors}>(x, w, b)",
        w=alternating(0, 4, 6),
        b=weights(1, 4, size=3),
    )
    feeds = feeds_of(model)
    real = answer(model, feeds)
    for form in wrong:
        error = np.abs(
            answer(theirs(model, [feeds], quant_format=form), feeds, engine) - real
        ).max()
        assert error > 0.25 * np.abs(real).max(), BETTER
    plan = planned(model, [feeds], "w8a8_asym_pc")
    assert plan.integer_macs == 1.0
    assert (
        np.abs(answer(quantize_model(model, plan), feeds, engine) - real).max()
        < 0.01 * np.abs(real).max()
    )


@pytest.mark.slow_but(3)
@engines
@pytest.mark.parametrize(
    "schema",
    ["w8a8_sym_pt", "w8a8_sym_pc_pow2", "w8a8_asym_pc", INT8_ASYMMETRIC],
    ids=lambda schema: getattr(schema, "name", schema),
)
def test_a_relu_dead_in_calibration_outputs_zero(schema: str | Schema, engine: str) -> None:
    """z = 0. Theirs takes scale 1 and zero point 0 for a range of nothing, which on int8
    reaches down to −128, and deletes the Relu all the same.
    """
    model = conv_clip_mul("y = Relu(c)", alternating(0, 4, 4, 1, 1), np.full(4, -50, np.float32))
    feeds = feeds_of(model)
    assert not answer(model, feeds).any()
    for form in (QDQ, OPERATORS):
        dead = theirs(model, [feeds], quant_format=form, activation_type=QuantType.QInt8)
        assert answer(dead, feeds, engine).max() < -20, BETTER
    assert not answer(ours(model, [feeds], schema), feeds, engine).any()


@pytest.mark.slow_but(4)
@engines
@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_asym_pc_pow2", "w8a8_asym_pt"])
@pytest.mark.parametrize("dead", [[2], [0, 1, 2, 3]])
def test_a_weight_channel_of_zeros_keeps_its_bias(
    dead: list[int], schema: str, engine: str
) -> None:
    """z of a dead channel is its bias. Theirs has scale 1 for a channel of zeros, so that its
    bias is a multiple of the input's scale: 0.013 becomes 0 or 0.025.
    """
    w, b = alternating(0, 4, 4, 1, 1), np.array([0.013, -0.7, 0.013, 3.0], np.float32)
    w[dead] = 0
    model = model_of("float[N,4,5,5] x", "float[N,4,5,5] z", "z = Conv(x, w, b)", w=w, b=b)
    feeds = feeds_of(model)
    for form in (QDQ, OPERATORS):
        got = answer(theirs(model, [feeds], quant_format=form, per_channel=True), feeds, engine)[
            :, 2
        ]
        assert np.abs(got - b[2]).min() > 0.5 * b[2], BETTER
    got = answer(ours(model, [feeds], schema), feeds, engine)
    for channel in dead:
        assert np.abs(got[:, channel] - b[channel]).max() < 0.005 * abs(float(b[channel]))


@engines
def test_a_bias_shared_by_two_convolutions(engine: str) -> None:
    """z = conv(x, w, b) + conv(x, v, b). Theirs, in operator form, has b once,
    at the scale of the first.
    """
    model = model_of(
        "float[N,4,5,5] x",
        "float[N,4,5,5] z",
        "a = Conv(x, w, b)\nc = Conv(x, v, b)\nz = Add(a, c)",
        w=alternating(0, 4, 4, 1, 1),
        v=alternating(1, 4, 4, 1, 1, size=4),
        b=weights(2, 4),
    )
    feeds = feeds_of(model)
    real = answer(model, feeds)
    largest = np.abs(real).max()
    assert (
        np.abs(answer(theirs(model, [feeds], quant_format=QDQ), feeds, engine) - real).max()
        < 0.02 * largest
    )
    wrong = answer(theirs(model, [feeds], quant_format=OPERATORS), feeds, engine)
    assert np.abs(wrong - real).max() > 0.2 * largest, BETTER
    plan = planned(model, [feeds], "w8a8_asym_pt")
    assert (
        len({float(q.scale) for slot, q in plan.constants.items() if slot.role is Role.BIAS}) == 2
    )
    assert np.abs(answer(quantize_model(model, plan), feeds, engine) - real).max() < 0.02 * largest


def test_a_certain_class_is_as_certain_with_the_optimizer_as_without() -> None:
    """z = softmax(x). Theirs has scale 1/255 for it; the engine's integer kernel counts ⌊1 /
    scale⌋ levels, which in float32 are 254: a probability of 1 becomes 0.996 when the graph is
    optimized and stays 1 when it is not. Ours has 1/256, on which the engine is the same either
    way.
    """
    model = model_of(
        "float[N,6] x",
        "float[N,6] z",
        "s = Softmax<axis=-1>(x)\nz = Mul(s, one)",
        one=np.float32(1),
    )
    feeds = {"x": 80 * np.eye(6, dtype=np.float32)}
    certain = {engine: answer(theirs(model, [feeds]), feeds, engine).max() for engine in ENGINES}
    assert certain == {"ort-cpu": pytest.approx(254 / 255), "ort-cpu-noopt": 1}, BETTER
    certain = {
        engine: answer(ours(model, [feeds], "w8a8_asym_pt"), feeds, engine).max()
        for engine in ENGINES
    }
    assert certain == {"ort-cpu": 255 / 256, "ort-cpu-noopt": 255 / 256}


def heavy_tailed() -> tuple[ir.Model, Batches]:
    """Student's t with 3 degrees of freedom, 8 batches of 8."""
    x = np.random.default_rng(0).standard_t(3, size=(64, 3, 8, 8)).astype(np.float32)
    return SUBJECTS["conv_relu"](), [{"x": x[start : start + 8]} for start in range(0, 64, 8)]


def ranged(method: str, qtype: str = "uint8") -> Schema:
    """Per channel, with a range method for activations; the name is the same for all, so that
    plans can be equal.
    """
    symmetry = "asymmetric" if qtype == "uint8" else "symmetric"
    return Schema(
        name="ranged",
        rules=(
            Rule(
                activation=Spec(qtype=qtype, symmetry=symmetry, range_method=method),
                weight=CHANNELS,
            ),
        ),
    )


@pytest.mark.parametrize("qtype", ["uint8", "int8"])
def test_percentile_100_is_min_and_max(qtype: str) -> None:
    """Nothing lies above it. Theirs takes the left edge of the bin in which the counts reach
    100 %: the top is cut.
    """
    model, batches = heavy_tailed()
    extremes, percentile = (
        theirs(model, batches, calibrate_method=method, extra_options={"CalibPercentile": 100.0})
        for method in (CalibrationMethod.MinMax, CalibrationMethod.Percentile)
    )
    assert scale_of(percentile, "x") < scale_of(extremes, "x"), BETTER
    plans = [
        planned(model, batches, ranged(method, qtype)) for method in ("minmax", "percentile(100)")
    ]
    assert plans[0].decisions == plans[1].decisions
    cut = planned(model, batches, ranged("percentile(99)", qtype))
    assert cut.values["x"].scale < 0.5 * plans[0].values["x"].scale


def test_entropy_is_not_min_and_max_on_heavy_tails() -> None:
    """Theirs has as many bins as levels by default, which leaves one window to choose from:
    all of it.
    """
    model, batches = heavy_tailed()
    extremes, entropy = (
        theirs(model, batches, calibrate_method=method)
        for method in (CalibrationMethod.MinMax, CalibrationMethod.Entropy)
    )
    assert [scale_of(entropy, name) for name in "xyz"] == [
        scale_of(extremes, name) for name in "xyz"
    ], BETTER
    wide, narrow = (planned(model, batches, ranged(method)) for method in ("minmax", "entropy"))
    assert narrow.values["x"].scale < 0.6 * wide.values["x"].scale
    feeds = batches[0]
    real = answer(model, feeds)
    middle = np.abs(real) < np.quantile(np.abs(real), 0.9)
    errors = [
        np.abs(answer(quantize_model(model, plan), feeds) - real)[middle].mean()
        for plan in (narrow, wide)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_too_few_bins_for_entropy_are_told() -> None:
    model, batches = heavy_tailed()
    with pytest.warns(UserWarning, match="found 128 bins; expected at least the 256 groups"):
        few = planned(model, batches, ranged("entropy(128)"))
    assert few.values == planned(model, batches, ranged("minmax")).values


@pytest.mark.parametrize("method", [CalibrationMethod.MinMax, CalibrationMethod.Entropy])
def test_nan_in_calibration_data_names_the_sample(method: CalibrationMethod) -> None:
    """Theirs quantizes as if that image had not been there
    (by Percentile it raises, and names none).
    """
    model = SUBJECTS["conv_relu"]()
    x = feeds_of(model)["x"]
    x[3, 1, 2, 2] = np.nan
    samples = [{"x": image[None]} for image in x]
    with_nan, without = (
        theirs(model, batches, calibrate_method=method)
        for batches in (samples, samples[:3] + samples[4:])
    )
    assert [scale_of(with_nan, name) for name in "xyz"] == [
        scale_of(without, name) for name in "xyz"
    ], BETTER
    with pytest.raises(ValueError, match="autodetected range of"):
        theirs(model, samples, calibrate_method=CalibrationMethod.Percentile)
    with pytest.raises(InputError, match=r"calibration sample 'cat\.jpg'"):
        calibrate(
            model,
            samples,
            sample_ids=["cat.jpg" if i == 3 else f"{i}.jpg" for i in range(len(samples))],
        )

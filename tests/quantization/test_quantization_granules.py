"""Weights per tensor, channel and block: parameters against loops,
and what is written against ONNX Runtime.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quantization_subjects import fake_quantized, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate, units_of
from qbench.graph import OpSpec, weight_summed_axis
from qbench.numerics import choose_qparams, fake_quantize
from qbench.quantization import (
    BiasKind,
    BiasSpec,
    Given,
    Granularity,
    KeptFloat,
    Plan,
    Role,
    Rule,
    Schema,
    SlotOptions,
    Spec,
    Static,
    make_plan,
    quantize_model,
)
from qbench.quantization.candidates import Candidate
from qbench.quantization.constant_qparams import constant_qparams, plan_constants


def spec_of(qtype: str, symmetry: str, size: int | None) -> Spec:
    granularity = Granularity.TENSOR if size is None else Granularity.BLOCK
    return Spec(qtype=qtype, symmetry=symmetry, granularity=granularity, block_size=size)


@settings(max_examples=40)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 3)),
    st.integers(0, 2),
    st.integers(1, 10),
    st.sampled_from(
        [
            ("int4", "symmetric"),
            ("uint4", "asymmetric"),
            ("int8", "asymmetric"),
            ("int2", "symmetric"),
        ]
    ),
    st.integers(0, 99),
)
def test_every_block_has_the_parameters_of_its_elements_alone(
    shape: tuple[int, ...], axis: int, size: int, grid: tuple[str, str], seed: int
) -> None:
    array = weights(seed, *shape)
    spec = spec_of(*grid, size)
    found = constant_qparams(array, spec, axis=axis, block_size=size)
    assert (found.axis, found.block_size) == (axis, size)
    for index in np.ndindex(found.scale.shape):
        where: Any = tuple(
            slice(i * size, (i + 1) * size) if dimension == axis else i
            for dimension, i in enumerate(index)
        )
        part = array[where]
        one = choose_qparams(part.min(), part.max(), spec.kind.qtype, symmetry=spec.kind.symmetry)
        assert (found.scale[index], found.zero_point[index]) == (one.scale, one.zero_point)
        assert np.array_equal(fake_quantize(array, found)[where], fake_quantize(part, one))


def planned(
    model: ir.Model, weight: Spec, bias: BiasSpec | None = None, activation: Spec | None = None
) -> Any:
    feeds = feeds_of(model)
    rule = Rule(weight=weight, activation=activation, bias=bias or BiasSpec(kind=BiasKind.FLOAT))
    return make_plan(model, calibrate(model, [feeds]), Schema(name="ours", rules=(rule,))), feeds


MATMUL = ("float[N,40] x", "float[N,6] z", "z = MatMul(x, w)", (40, 6), 0)
GEMM = ("float[N,40] x", "float[N,6] z", "z = Gemm<transB=1>(x, w)", (6, 40), 1)
GEMM_PLAIN = ("float[N,40] x", "float[N,6] z", "z = Gemm(x, w)", (40, 6), 0)
CONV = ("float[N,10,4,4] x", "float[N,6,4,4] z", "z = Conv<pads=[1,1,1,1]>(x, w)", (6, 10, 3, 3), 1)
TRANSPOSED = (
    "float[N,10,4,4] x",
    "float[N,6,8,8] z",
    "z = ConvTranspose<strides=[2,2]>(x, w)",
    (10, 6, 2, 2),
    0,
)
BATCHED = ("float[N,3,5,40] x", "float[N,3,5,6] z", "z = MatMul(x, w)", (3, 40, 6), 1)


@pytest.mark.slow_but(6)
@pytest.mark.parametrize("subject", [MATMUL, GEMM, GEMM_PLAIN, CONV, TRANSPOSED])
@pytest.mark.parametrize(
    "grid", [("int4", "symmetric"), ("uint4", "asymmetric"), ("int8", "symmetric")]
)
@pytest.mark.parametrize("size", [4, 16, 64])
def test_blocks_lie_along_what_is_summed_over_and_run_in_onnxruntime(
    subject: tuple[Any, ...], grid: tuple[str, str], size: int
) -> None:
    inputs, results, body, shape, axis = subject
    model = model_of(inputs, results, body, w=weights(0, *shape))
    plan, feeds = planned(model, spec_of(*grid, size))
    ((slot, qparams),) = plan.constants.items()
    want = list(shape)
    want[axis] = -(-shape[axis] // size)
    assert (qparams.axis, qparams.block_size, list(qparams.scale.shape)) == (axis, size, want)
    decision = plan.decisions[slot]
    assert isinstance(decision, Static)
    short = shape[axis] % size
    assert decision.note == (f"the last block of a row has {short} elements" if short else "")
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        got = executor.run(feeds)["z"]
    np.testing.assert_allclose(got, fake_quantized(model, plan, feeds)["z"], rtol=0, atol=2e-5)


def test_the_axis_of_a_stack_of_matrices() -> None:
    inputs, results, body, shape, axis = BATCHED
    model = model_of(inputs, results, body, w=weights(0, *shape))
    assert weight_summed_axis(model.graph[0], len(shape)) == axis
    plan, feeds = planned(model, spec_of("int8", "symmetric", 16))
    ((_, qparams),) = plan.constants.items()
    assert qparams.scale.shape == (3, 3, 6)
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        np.testing.assert_allclose(
            executor.run(feeds)["z"], fake_quantized(model, plan, feeds)["z"], atol=2e-5
        )


def test_smaller_blocks_are_closer() -> None:
    w = weights(0, 6, 40) * np.exp(weights(1, 40, size=2))
    errors = []
    for size in (40, 20, 8, 2):
        q = constant_qparams(w, spec_of("int4", "symmetric", size), axis=1, block_size=size)
        errors.append(float(((fake_quantize(w, q) - w) ** 2).mean()))
    assert errors == sorted(errors, reverse=True)


def test_a_derived_bias_needs_one_scale_a_product() -> None:
    model = model_of(
        "float[N,10,4,4] x",
        "float[N,6,4,4] z",
        "z = Conv(x, w, b)",
        w=weights(0, 6, 10, 1, 1),
        b=weights(1, 6),
    )
    int8 = Spec(qtype="int8", symmetry="symmetric")
    plan, _ = planned(model, spec_of("int8", "symmetric", 5), BiasSpec(), int8)
    reasons = [d for slot, d in plan.decisions.items() if slot.role is Role.BIAS]
    assert reasons == [KeptFloat("the products of its blocks have different scales")]
    plan, feeds = planned(
        model, spec_of("int8", "symmetric", 5), BiasSpec(kind=BiasKind.OWN, qtype="int16"), int8
    )
    assert [q.qtype.name for slot, q in plan.constants.items() if slot.role is Role.BIAS] == [
        "int16"
    ]
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        np.testing.assert_allclose(
            executor.run(feeds)["z"], fake_quantized(model, plan, feeds)["z"], atol=1e-5
        )


@pytest.mark.parametrize("qtype", ["int4", "uint4", "int8", "uint8", "int16"])
def test_asymmetric_weights_have_a_zero_point_a_channel(qtype: str) -> None:
    w = weights(0, 4, 3, 3, 3) + np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1) / 4
    model = model_of(
        "float[N,3,6,6] x", "float[N,4,4,4] z", "z = Conv(x, w, b)", w=w, b=weights(1, 4)
    )
    weight = Spec(qtype=qtype, symmetry="asymmetric", granularity=Granularity.CHANNEL)
    plan, feeds = planned(model, weight, BiasSpec(), Spec(qtype="uint8", symmetry="asymmetric"))
    q = next(q for slot, q in plan.constants.items() if slot.role is Role.WEIGHT)
    for channel, part in enumerate(w):
        one = choose_qparams(part.min(), part.max(), weight.kind.qtype, symmetry="asymmetric")
        assert (q.scale[channel], q.zero_point[channel]) == (one.scale, one.zero_point)
    assert len(set(q.zero_point.tolist())) > 1
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        np.testing.assert_allclose(
            executor.run(feeds)["z"], fake_quantized(model, plan, feeds)["z"], atol=1e-5
        )


def test_fixed_weights() -> None:
    model = model_of("float[N,40] x", "float[N,6] z", "z = MatMul(x, w)", w=weights(0, 40, 6))

    def decided(weight: Spec) -> Any:
        plan: Plan = planned(model, weight)[0]
        return next(d for slot, d in plan.decisions.items() if slot.role is Role.WEIGHT)

    fixed = decided(Spec(qtype="int8", symmetry="symmetric", scale=0.25, zero_point=0))
    assert isinstance(fixed, Given)
    assert float(fixed.qparams.scale) == 0.25


def test_a_weight_without_the_axis_says_so(words) -> None:
    model = model_of("float[N,4,6] x", "float[N,4] z", "z = MatMul(x, w)", w=weights(0, 6))
    plan, _ = planned(
        model, Spec(qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL)
    )
    (decision,) = plan.decisions.values()
    assert isinstance(decision, Static)
    words(decision.note)


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_weights_have_a_scale_for_every_gate_of_a_unit(
    operator: str, gates: int, directions: int
) -> None:
    w, r = weights(0, directions, gates * 5, 7), weights(1, directions, gates * 5, 5)
    direction = "bidirectional" if directions == 2 else "forward"
    model = model_of(
        "float[4,N,7] x",
        "float[4,D,N,5] z",
        f'z = {operator}<hidden_size=5, direction="{direction}">(x, w, r)',
        w=w,
        r=r,
    )
    (unit,) = units_of(model.graph)
    weight = Spec(qtype="int8", symmetry="symmetric", granularity=Granularity.CHANNEL)
    decided = plan_constants(Candidate(unit, OpSpec(data=(0,)), SlotOptions(weight=weight)), None)
    assert [(slot.role, slot.index, slot.value) for slot in decided] == [
        (Role.WEIGHT, 1, "w"),
        (Role.WEIGHT, 2, "r"),
    ]
    for decision, array in zip(decided.values(), (w, r), strict=True):
        assert isinstance(decision, Static)
        assert decision.qparams.axis == 1
        for row in range(gates * 5):
            low, high = array[:, row].min(), array[:, row].max()
            one = choose_qparams(low, high, weight.kind.qtype, symmetry="symmetric")
            assert decision.qparams.scale[row] == one.scale
    blocks = Spec(qtype="int4", symmetry="symmetric", granularity=Granularity.BLOCK, block_size=4)
    decided = plan_constants(Candidate(unit, OpSpec(data=(0,)), SlotOptions(weight=blocks)), None)
    shapes = [d.qparams.scale.shape for d in decided.values() if isinstance(d, Static)]
    assert shapes == [(directions, gates * 5, 2), (directions, gates * 5, 2)]


@pytest.mark.parametrize("backend", ["ort-cpu", "ort-cpu-precise"])
@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_asym_pc_dyn", "w8_sym_pc", "w8_sym_b32"])
@pytest.mark.parametrize("shape", [(3, 8, 6), (32,)])
def test_what_onnxruntime_cannot_multiply_by_is_one_row(
    backend: str, schema: str, shape: tuple[int, ...]
) -> None:
    """Its integer MatMul fails at run time on a scale per column of a matrix per batch; a
    vector has no blocks.
    """
    rank = len(shape)
    fed = "float[N,3,4,8] x" if rank > 1 else "float[N,32] x"
    model = model_of(
        fed,
        "float[N,M,K,L] z" if rank > 1 else "float[N] z",
        "z = MatMul(x, w)",
        w=weights(0, *shape),
    )
    feeds = {"x": weights(1, 5, *((3, 4, 8) if rank > 1 else (32,)))}
    plan = make_plan(model, calibrate(model, [feeds]), schema, capabilities=backend)
    (decision,) = [d for s, d in plan.decisions.items() if s.role is Role.WEIGHT]
    assert isinstance(decision, Static)
    whole = (rank > 1 and "a8" in schema) or rank == 1
    assert (decision.qparams.scale.size == 1) == whole
    assert decision.note.startswith("per tensor") == (whole and "per tensor" in decision.note)
    with get_backend(backend).prepare(quantize_model(model, plan)) as executor:
        assert np.isfinite(executor.run(feeds)["z"]).all()

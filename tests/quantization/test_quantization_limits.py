"""What a backend or ONNX cannot do is refused in a sentence that names it, and nothing is
planned in its place.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from quantization_subjects import SUBJECTS, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import Profile, calibrate
from qbench.graph import Capabilities, ZeroPoints
from qbench.quantization import (
    Granularity,
    KeptFloat,
    Plan,
    Role,
    Rule,
    Schema,
    Spec,
    get_schema,
    make_plan,
    quantize_model,
)

INT8 = Spec(qtype="int8", symmetry="symmetric")
EVERYTHING = frozenset({"int8", "uint8"})


def planned(model: ir.Model, schema: Any, **more: Any) -> tuple[Plan, Any]:
    feeds = feeds_of(model)
    chosen = Schema(name="ours", rules=schema) if isinstance(schema, tuple) else schema
    return make_plan(
        model, calibrate(model, [feeds]), chosen, capabilities=Capabilities(**more)
    ), feeds


@lru_cache
def profiled(name: str) -> tuple[ir.Model, Profile]:
    model = SUBJECTS[name]()
    return model, calibrate(model, [feeds_of(model)])


@pytest.mark.slow_but(6)
@pytest.mark.parametrize("allowed", list(ZeroPoints))
@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_sym_pc", "w8a8_symu8_pc"])
@pytest.mark.parametrize("name", ["conv_relu", "gates"])
def test_zero_points(allowed: ZeroPoints, schema: str, name: str) -> None:
    plan = make_plan(*profiled(name), schema, capabilities=Capabilities(zero_points=allowed))
    free = make_plan(*profiled(name), schema)
    if allowed is ZeroPoints.ANY:
        assert plan.values == free.values
    points = {"zero": {0}, "zero or qmin": {0, *(q.qtype.qmin for q in free.values.values())}}.get(
        allowed.value
    )
    grids = [
        *plan.values.values(),
        *(q for s, q in plan.constants.items() if s.role is Role.WEIGHT),
    ]
    assert points is None or {int(p) for q in grids for p in q.zero_point.reshape(-1)} <= points
    if schema == "w8a8_sym_pc":
        assert plan.values == free.values
    elif allowed is not ZeroPoints.ANY and any(
        int(q.zero_point) not in (points or {}) for q in free.values.values()
    ):
        assert any(
            f"and the backend counts with {allowed.value} only" in refusal
            for refusal in plan.refusals
        )


def test_a_family_that_makes_the_zero_point_is_accepted() -> None:
    """Behind a ReLU symmetric_unsigned stands at the lowest level; elsewhere in the middle:
    128 of uint8.
    """
    schema = (Rule(activation=Spec(qtype="int8", symmetry="symmetric_unsigned"), weight=INT8),)
    plan, feeds = planned(SUBJECTS["conv_relu"](), schema, zero_points=ZeroPoints.ZERO_OR_QMIN)
    assert plan.refusals == ()
    assert {name: int(q.zero_point) for name, q in plan.values.items()} == {"x": 0, "y": -128}
    with get_backend("ort-cpu-noopt").prepare(
        quantize_model(SUBJECTS["conv_relu"](), plan)
    ) as executor:
        executor.run(feeds)
    plan, _ = planned(SUBJECTS["conv_relu"](), "w8a8_symu8_pc", zero_points=ZeroPoints.ZERO_OR_QMIN)
    assert any(
        "'x' as uint8 symmetric_unsigned: its zero point is 128" in refusal
        for refusal in plan.refusals
    )


TABLED = ["Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "Elu", "Selu", "Mish", "Softplus"]


@pytest.mark.slow_but(3)
@pytest.mark.parametrize("operator", TABLED)
def test_functions_need_tables(operator: str) -> None:
    model = model_of(
        "float[N,6] x", "float[N,3] z", f"a = MatMul(x, w)\n f = {operator}(a)\n z = MatMul(f, v)",
        w=weights(0, 6, 4), v=weights(1, 4, 3),
    )  # fmt: skip
    plan, feeds = planned(model, "w8a8_asym_pc", tables=False)
    (refusal,) = plan.refusals
    assert refusal.endswith(f"the backend has no tables, hence computes {operator} in float")
    assert plan.integer_macs == 1.0
    plan, _ = planned(model, "w8a8_asym_pc")
    assert plan.refusals == ()
    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        real = executor.run(feeds)["z"]
    with get_backend("ort-cpu-noopt").prepare(quantize_model(model, plan)) as executor:
        assert np.abs(executor.run(feeds)["z"] - real).max() < 0.05 * np.abs(real).max()


@pytest.mark.parametrize(
    ("schema", "more", "words"),
    [
        ("w4_sym_b32", {"weight_qtypes": frozenset({"int4"})}, "no weights per block"),
        ("w4_sym_pc", {}, "no int4 weights"),
        ("w8_sym_pc", {"weight_per_channel": False}, "no weights per channel"),
        ("w8a16_sym_pc", {}, "no int16 activations"),
        ("w8a8_asym_pc_dyn", {}, "no parameters that are computed at run time"),
    ],
)
def test_words(schema: str, more: dict[str, Any], words: str) -> None:
    plan, _ = planned(SUBJECTS["depthwise"](), get_schema(schema), **more)
    assert plan.integer_macs == 0.0
    assert not plan.constants
    assert any(words in refusal for refusal in plan.refusals)


def test_channels_of_activations_where_the_backend_has_none() -> None:
    spec = Spec(qtype="uint8", symmetry="asymmetric", granularity=Granularity.CHANNEL)
    plan, _ = planned(SUBJECTS["conv_relu"](), (Rule(activation=spec, weight=INT8),))
    assert all("theirs is one grid a tensor" in refusal for refusal in plan.refusals)
    assert len(plan.refusals) == 2


@pytest.mark.slow_but(3)
@pytest.mark.parametrize(
    ("qtype", "stored", "known"),
    [
        ("int5", "int8", True),
        ("uint3", "uint8", True),
        ("int4", "int8", True),
        ("int8", "int8", True),
        ("int9", "int16", False),
        ("uint12", "uint16", False),
        ("int16", "int16", False),
    ],
)
def test_a_width_between_two_types_is_stored_in_the_wider(
    qtype: str, stored: str, known: bool
) -> None:
    symmetry = "asymmetric" if qtype.startswith("u") else "symmetric"
    schema = (Rule(activation=Spec(qtype=qtype, symmetry=symmetry), weight=INT8),)
    plan, _ = planned(SUBJECTS["conv_relu"](), schema)
    assert bool(plan.values) is known
    assert known or all(f"no {qtype} activations" in refusal for refusal in plan.refusals)
    plan, _ = planned(SUBJECTS["conv_relu"](), schema, activation_qtypes=frozenset({stored}))
    assert {q.qtype.name for q in plan.values.values()} == {qtype}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "backend", ["ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "onnx-reference"]
)
@pytest.mark.parametrize("name", ["depthwise", "residual"])
def test_what_a_backend_says_it_runs_it_runs(backend: str, name: str) -> None:
    engine = get_backend(backend)
    model, profile = profiled(name)
    feeds = feeds_of(model)
    with get_backend("ort-cpu").prepare(model) as executor:
        real = executor.run(feeds)["z"]
    for schema in (
        "w4a8_asym_pc",
        "w8a16_asym_pc",
        "w8a16_sym_pc",
        "w8a8_asym_pc_dyn",
        "w8_sym_pc",
        "w4_asym_b32",
    ):
        plan = make_plan(model, profile, schema, capabilities=engine.capabilities)
        assert plan.refusals == ()
        with engine.prepare(quantize_model(model, plan)) as executor:
            got = executor.run(feeds)["z"]
        assert np.linalg.norm(got - real) < (0.25 if "w4" in schema else 0.04) * np.linalg.norm(
            real
        ), schema


def test_a_constant_without_elements_has_no_grid() -> None:
    model = model_of(
        "float[3,4] x",
        "float[3,2] z",
        "a = Relu(x)\n c = Concat<axis=1>(a, e)\n r = MatMul(c, w)\n z = Relu(r)",
        e=np.zeros((3, 0), np.float32),
        w=weights(0, 4, 2),
    )
    feeds = feeds_of(model)
    plan = make_plan(model, calibrate(model, [feeds]), "w8a8_asym_pc")
    assert [d for s, d in plan.decisions.items() if s.value == "e"] == [
        KeptFloat("it has no elements")
    ]
    with get_backend("ort-cpu").prepare(quantize_model(model, plan)) as executor:
        assert executor.run(feeds)["z"].shape == (3, 2)


def test_a_weight_without_elements_has_no_grid() -> None:
    model = model_of(
        "float[3,4] x", "float[3,0] z", "z = MatMul(x, w)", w=np.zeros((4, 0), np.float32)
    )
    for schema in ("w8a8_asym_pc", "w8_sym_pc", "w4_sym_b32"):
        plan = make_plan(model, calibrate(model, [feeds_of(model)]), schema)
        assert not plan.constants

"""Mixtures of precisions: the order of steps, and schemas that plan what was chosen."""

import math
from dataclasses import replace

import pytest

from qbench.backends import get_backend
from qbench.diagnosis import mixed_schemas
from qbench.diagnosis.mixed import COSTS, Weight, greedy_walk
from qbench.errors import InputError
from qbench.evaluation import SubjectArtifacts, build_subject
from qbench.quantization import Role, Schema, get_schema
from qbench.storage import Cache

A, B, C = ("model", "a"), ("model", "b"), ("model", "c")


def test_the_step_that_wins_most_for_its_cost_comes_first() -> None:
    noise = [{A: 1.0, B: 8.0, C: 0.0}, {A: 0.1, B: 4.0, C: 0.0}, {}]
    sizes = [{A: 4.0, B: 4.0, C: 4.0}, {A: 8.0, B: 8.0, C: 8.0}, {A: 32.0, B: 32.0, C: 32.0}]
    walk = greedy_walk([A, B, C], noise, sizes)
    assert [(step.unit, step.width) for step in walk] == [
        (B, 1),
        (A, 1),
        (B, 2),
        (A, 2),
        (C, 1),
        (C, 2),
    ]
    assert walk[0].won == 4.0
    assert walk[0].cost == 4.0


def test_more_noise_with_more_bits_is_no_gain() -> None:
    noise = [{A: 1.0}, {A: 2.0}, {}]
    walk = greedy_walk([A], noise, [{A: 1.0}, {A: 1.0}, {A: 3.0}])
    assert [step.won for step in walk] == [0.0, 2.0]
    assert all(step.cost > 0 for step in walk)


def test_costs_weigh_bytes_time_and_products_in_float() -> None:
    convolution = Weight(bits=8, weights=0.1, products=0.9)
    classifier = replace(convolution, weights=0.9, products=0.1)
    found = {name: (cost(convolution), cost(classifier)) for name, cost in COSTS.items()}
    assert found == {
        "both": pytest.approx((8.0, 8.0)),
        "bytes": pytest.approx((0.8, 7.2)),
        "time": pytest.approx((7.2, 0.8)),
        "integers": (0.0, 0.0),
    }
    assert COSTS["integers"](replace(convolution, is_float=True)) == 0.9


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SubjectArtifacts:
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["agreement"], 64)
    return SubjectArtifacts(
        subject, Cache(tmp_path_factory.mktemp("cache")), get_backend("ort-cpu"), "here"
    )


@pytest.mark.slow
def test_schemas_give_every_unit_the_width_that_was_chosen(shared: SubjectArtifacts) -> None:
    backend = get_backend("ort-cpu-noopt")
    widths = [get_schema("w4a8_asym_pc"), get_schema("w8a8_asym_pc")]
    found = mixed_schemas(shared, widths, backend, points=4)
    assert [schema.name for schema in found.schemas] == [
        f"w4a8_asym_pc_mixed{number}" for number in (1, 2, 3, 4)
    ]
    assert found.schemas == mixed_schemas(shared, widths[::-1], backend, points=4).schemas
    wide = []
    for schema in found.schemas:
        plan = shared.quantized(schema, backend.capabilities).plans["model"]
        bits = [one.qtype.bits for slot, one in plan.constants.items() if slot.role is Role.WEIGHT]
        assert set(bits) <= {4, 8}
        assert not plan.idle_rules
        wide.append(bits.count(8) + 2 * (found.units - len(bits)))
    assert wide == sorted(wide)
    assert wide[0] >= 1


def test_widths_that_do_not_fit_each_other_are_an_error(shared: SubjectArtifacts) -> None:
    widths = [get_schema("w4a8_asym_pc"), get_schema("w8a8_asym_pc_fit")]
    with pytest.raises(InputError, match="other canonical passes or settings"):
        mixed_schemas(shared, widths, get_backend("ort-cpu"), points=4)


@pytest.mark.slow
def test_no_mixture_has_the_graphs_of_a_width_or_of_another_one(
    shared: SubjectArtifacts,
) -> None:
    backend = get_backend("ort-cpu-noopt")
    widths = [get_schema("w4a8_asym_pc"), get_schema("w8a8_asym_pc")]
    schemas = (*widths, *mixed_schemas(shared, widths, backend, points=100).schemas)
    digests = {shared.quantized(one, backend.capabilities).digest for one in schemas}
    assert len(digests) == len(schemas)


@pytest.mark.slow
def test_a_mixture_that_leaves_everything_in_float_is_no_point(shared: SubjectArtifacts) -> None:
    backend = get_backend("ort-cpu-noopt")
    widths = [get_schema("w4a8_asym_pc"), get_schema("w8a8_asym_pc")]
    found = mixed_schemas(shared, widths, backend, points=8).schemas
    for schema in found:
        plans = shared.quantized(schema, backend.capabilities).plans
        assert any(plan.quantized_units for plan in plans.values()), schema.name


@pytest.mark.slow
def test_the_first_step_that_is_good_enough_is_found_by_halving(
    shared: SubjectArtifacts,
) -> None:
    backend = get_backend("ort-cpu-noopt")
    widths = [get_schema("w4a8_asym_pc"), get_schema("w8a8_asym_pc")]
    order = mixed_schemas(shared, widths, backend, points=100).schemas

    def digest(schema: Schema) -> str:
        return shared.quantized(schema, backend.capabilities).digest

    for first in (0, 5, len(order) - 1):
        good, measured = {digest(one) for one in order[first:]}, []

        def accepts(schema: Schema, good=good, measured=measured) -> bool:
            measured.append(schema)
            return digest(schema) in good

        found = mixed_schemas(shared, widths, backend, points=100, accepts=accepts).schemas
        assert list(found) == measured[2:]
        assert digest(order[first]) in {digest(one) for one in found}
        assert len(found) <= math.ceil(math.log2(len(order) + 1))


@pytest.mark.slow
def test_no_unit_is_finer_than_a_width_that_is_good_enough_as_a_whole(
    shared: SubjectArtifacts,
) -> None:
    backend = get_backend("ort-cpu-noopt")
    widths = [get_schema("w4a8_asym_pc"), get_schema("w8a8_asym_pc")]
    found = mixed_schemas(shared, widths, backend, points=8, accepts=lambda one: one is widths[1])
    assert found.schemas
    for schema in found.schemas:
        plan = shared.quantized(schema, backend.capabilities).plans["model"]
        assert not plan.floats, schema.name


@pytest.mark.slow
def test_nothing_is_mixed_where_the_coarsest_width_is_good_enough(
    shared: SubjectArtifacts,
) -> None:
    widths = [get_schema("w4a8_asym_pc"), get_schema("w8a8_asym_pc")]
    found = mixed_schemas(
        shared, widths, get_backend("ort-cpu-noopt"), points=8, accepts=lambda _: True
    )
    assert found.schemas == ()
    assert found.runs == 0


@pytest.mark.slow
def test_sensitivities_are_those_of_the_widths_that_steps_lead_to(
    shared: SubjectArtifacts,
) -> None:
    widths = [get_schema(name) for name in ("w2a8_asym_pc", "w4a8_asym_pc", "w8a8_asym_pc")]
    backend = get_backend("ort-cpu-noopt")
    found = mixed_schemas(shared, widths, backend, points=1, accepts=lambda one: one is widths[1])
    assert found.units > 0
    assert found.runs == 2 * found.units

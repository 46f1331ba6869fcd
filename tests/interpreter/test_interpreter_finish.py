"""The last step of every machine: one compiled pass gives the bits of the steps in numpy, ties
and ends included.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.interpreter.finish import Epilogue, Finish, finish
from qbench.interpreter.kernel import Counters
from qbench.numerics import (
    Accumulator,
    Arithmetic,
    MultiplierForm,
    QParams,
    QType,
    Rounding,
    Scaling,
    Stage,
    ZeroPoint,
    get_arithmetic,
    list_arithmetics,
)

Array = np.ndarray[Any, Any]

ALL = [
    pytest.param(machine, id=f"{name}-{operator}")
    for name in list_arithmetics()
    for operator in ("Conv", "Gemm")
    for machine in (get_arithmetic(name).at(operator, "any"),)
    if operator == "Conv" or machine.scaling != get_arithmetic(name).scaling
]
TOP = 2**31 - 1


@dataclass(frozen=True)
class Case:
    """One node: the magnitude of its multipliers, and what its sums,
    its bias and its grid are drawn from.
    """

    exponent: int
    kind: str
    columns: int
    per_channel: bool
    zero: float
    bias: int
    largest: int
    seed: int


def cases(exponents: tuple[int, int] = (-24, 3)) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        exponent=st.integers(*exponents),
        kind=st.sampled_from(["powers", "singles", "doubles", "next to powers"]),
        columns=st.sampled_from([1, 3, 33]),
        per_channel=st.booleans(),
        zero=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        bias=st.sampled_from([-1, 0, 7, 2**20, 2**30]),
        largest=st.integers(3, 31).map(lambda bits: 2**bits - 1),
        seed=st.integers(0, 2**32 - 1),
    )


def mantissas(kind: str, count: int, random: np.random.Generator) -> Array:
    match kind:
        case "powers":
            return np.ones(count)
        case "singles":
            return random.uniform(1, 2, count).astype(np.float32).astype(np.float64)
        case "doubles":
            return random.uniform(1, 2, count)
    return np.nextafter(np.ones(count, np.float32), np.float32(random.choice([0, 2]))).astype(
        np.float64
    )


def sums_of(case: Case, multiplier: Array, node: Epilogue, random: np.random.Generator) -> Array:
    """At ties and next to them, with the bias and wherever a zero point joins; the ends;
    small ones; any.
    """
    grid, reach = node.output, case.largest
    levels = random.integers(grid.qmin - 3, grid.qmax + 4, (12, case.columns)) - int(
        grid.zero_point
    )
    ties = np.rint((levels + 0.5) / multiplier) + random.integers(-1, 2, levels.shape)
    ties -= 0 if node.bias is None else node.bias
    ends = np.tile(
        np.array([-reach, -reach + 1, -1, 0, 1, reach - 1, reach])[:, None], case.columns
    )
    small = random.integers(-300, 301, (6, case.columns))
    everywhere = random.integers(-reach, reach + 1, (6, case.columns))
    drawn = np.concatenate([ties, ends, small, everywhere])
    return np.asarray(np.clip(drawn, -reach, reach), np.int32)


def node_of(case: Case, machine: Arithmetic, kind: str) -> tuple[Epilogue, Array]:
    """The node, and sums for it."""
    random, qtype = np.random.default_rng(case.seed), QType.parse(kind)
    form = "powers" if machine.scaling.form is MultiplierForm.POWER else case.kind
    x, y = random.uniform(0.01, 2, 2).astype(np.float32).tolist()
    y = (
        x if form == "powers" else y
    )  # so that the multiplier is a power, and the scale of a bias is none
    parts = mantissas(form, case.columns if case.per_channel else 1, random)
    weight = parts * 2.0 ** (case.exponent + random.integers(0, 3, parts.shape))
    grid = QParams(y, int(qtype.qmin + case.zero * (qtype.qmax - qtype.qmin)), qtype)
    bound = min(case.bias, TOP - case.largest)
    bias = None if bound < 0 else random.integers(-bound, bound + 1, case.columns)
    low, high = machine.limits(grid)
    node = Epilogue(
        scales=(x, weight if weight.size > 1 else weight.reshape(()), y),
        output=grid,
        bias=bias,
        limits=(max(low, int(grid.zero_point)) if case.seed % 4 == 0 else low, high),
        columns=case.columns,
        largest=case.largest,
    )
    return node, sums_of(case, x * weight / y, node, random)


def both(node: Epilogue, machine: Arithmetic, sums: Array) -> Counters:
    """Holds the two against each other; the counters of the compiled one,
    which counts nothing by itself.
    """
    counters = Counters()
    try:
        steps = finish(node, machine, Counters(), compiled=False)
    except InputError:
        with pytest.raises(InputError):
            finish(node, machine, counters, compiled=True)
        return counters
    expected, found = steps(sums), finish(node, machine, counters, compiled=True)(sums)
    assert found.dtype == expected.dtype == node.output.qtype.storage_dtype
    np.testing.assert_array_equal(found, expected)
    return counters


@pytest.mark.slow_but(4)
@pytest.mark.parametrize("kind", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("machine", ALL)
@settings(max_examples=10)
@given(case=cases())
@example(Case(-9, "powers", 3, per_channel=True, zero=0.5, bias=7, largest=2**20, seed=1))
@example(Case(-13, "powers", 33, per_channel=False, zero=0.5, bias=2**20, largest=2**22, seed=1))
@example(Case(-8, "singles", 3, per_channel=False, zero=0.5, bias=0, largest=TOP, seed=1))
@example(
    Case(-22, "next to powers", 33, per_channel=True, zero=0.0, bias=2**30, largest=2**30, seed=1)
)
def test_every_machine_compiled_gives_the_bits_of_its_steps(
    machine: Arithmetic, kind: str, case: Case
) -> None:
    node, sums = node_of(case, machine, kind)
    counters = both(node, machine, sums)
    if machine.name != "ideal":
        assert counters == Counters()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fbgemm", "nvdla", "gemmlowp", "glow-cpu", "ideal", "onednn"])
@settings(max_examples=10)
@given(case=cases((-16, 3)), kind=st.sampled_from(["int16", "uint16"]))
def test_levels_of_16_bits_and_what_a_register_within_takes_from_them(
    name: str, case: Case, kind: str
) -> None:
    machine = get_arithmetic(name)
    both(*with_machine(case, machine, kind))


def with_machine(case: Case, machine: Arithmetic, kind: str) -> tuple[Epilogue, Arithmetic, Array]:
    node, sums = node_of(case, machine, kind)
    return node, machine, sums


FIXED = MultiplierForm.FIXED
EVEN, AWAY, UP, TRUNCATE, FLOOR = Rounding
OWN = (
    Scaling(form=FIXED, bits=9, stages=(Stage(TRUNCATE, 3), Stage(EVEN, 2), Stage(FLOOR))),
    Scaling(
        form=FIXED,
        bits=24,
        stages=(Stage(AWAY, 8), Stage(TRUNCATE)),
        inner_bits=8,
        shift_powers=True,
    ),
    Scaling(form=MultiplierForm.FRACTION, bits=20, stages=(Stage(EVEN),), inner_bits=5),
    Scaling(
        form=MultiplierForm.POWER, stages=(Stage(UP, 2), Stage(UP, 1), Stage(UP, 3), Stage(UP))
    ),
    Scaling(
        form=MultiplierForm.FLOAT64, stages=(Stage(UP),), zero_point=ZeroPoint.BEFORE, inner_bits=7
    ),
    Scaling(form=MultiplierForm.FLOAT32, stages=(Stage(TRUNCATE),)),
    Scaling(form=MultiplierForm.FLOAT32, stages=(Stage(FLOOR),), zero_point=ZeroPoint.BEFORE),
    Scaling(form=MultiplierForm.SHORT, inner_bits=4),
    Scaling(form=MultiplierForm.SHORT, product_bits=20),
    Scaling(
        form=MultiplierForm.EXACT, stages=(Stage(AWAY),), zero_point=ZeroPoint.BEFORE, inner_bits=6
    ),
    Scaling(form=MultiplierForm.EXACT, stages=(Stage(UP),)),
    Scaling(form=MultiplierForm.EXACT, stages=(Stage(FLOOR),)),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scaling", OWN, ids=lambda one: f"{one.form.value}-{len(one.stages)}-{one.stages[-1].rounding}"
)
@settings(max_examples=10)
@given(case=cases((-20, 12)))
def test_machines_of_ones_own_are_compiled_too(scaling: Scaling, case: Case) -> None:
    machine = replace(
        get_arithmetic("ideal"), name="own", scaling=scaling, accumulator=Accumulator()
    )
    both(*with_machine(case, machine, "int8"))


def test_numbers_for_all_columns_or_for_each_are_compiled_once() -> None:
    from qbench.interpreter.compiled import shifted_codes

    machine = get_arithmetic("gemmlowp").at("Conv", "any")
    sums, grid = np.zeros((2, 3), np.int32), QParams(1.0, 0, QType.parse("int8"))
    compiled = set()
    for weight in (np.array(0.004), np.full(3, 0.004)):
        for bias in (None, np.ones(3, np.int64), np.ones(3, np.int64)[::-1]):
            finish(
                Epilogue((1.0, weight, 1.0), grid, bias, (-128, 127), 3, 999),
                machine,
                Counters(),
                compiled=True,
            )(sums)
            places = tuple(
                tuple(Rounding).index(stage.rounding) for stage in machine.scaling.stages
            )
            compiled.add(len(shifted_codes(places).signatures))
    assert len(compiled) == 1


def ideal(
    scales: tuple[float, Any, float], zero: int = 0, largest: int = 2**24, columns: int = 1
) -> Epilogue:
    grid = QParams(scales[2], zero, QType.parse("int8"))
    return Epilogue(scales, grid, None, (-128, 127), columns, largest)


@pytest.mark.parametrize(
    ("weight", "output"),
    [
        (2.0**-9, 1.0),
        (3 * 2.0**-12, 1.0),
        (5 / 1024 + 2.0**-23, 1.0),
        (1.0, 6.0),
        (3.0, 14.0),
        (1.0, 98.0),
    ],
)
def test_ties_of_a_rational_multiplier_are_certain_where_its_denominator_is_small(
    weight: float, output: float
) -> None:
    multiplier = Fraction(weight) / Fraction(output)
    half = multiplier.denominator // 2
    sums = np.arange(-half * 121, half * 122, half).reshape(-1, 1)
    assert any((int(one) * multiplier * 2) % 2 == 1 for one in sums.reshape(-1))
    node = ideal((1.0, weight, output), zero=3, largest=half * 122)
    assert both(node, get_arithmetic("ideal"), sums.astype(np.int32)).levels == 0


@settings(max_examples=60)
@given(
    st.integers(1, 2**24), st.integers(-60, 60), st.integers(-2, 2), st.sampled_from([0, -5, 100])
)
def test_what_lies_within_an_ulp_of_a_tie_is_counted_by_rationals(
    acc: int, level: int, ulps: int, zero: int
) -> None:
    weight = float((abs(level) + 0.5) / acc)
    for _ in range(abs(ulps)):
        weight = float(np.nextafter(weight, np.inf if ulps > 0 else 0.0))
    sums = np.array([[acc], [-acc], [acc - 1], [1 - acc]], np.int32)
    both(ideal((1.0, weight, 1.0), zero), get_arithmetic("ideal"), sums)


def test_the_scales_of_models_leave_no_level_in_doubt() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        weight = random.uniform(1e-3, 2e-3, 64).astype(np.float32).astype(np.float64)
        node = ideal(
            (float(np.float32(0.0123)), weight, float(np.float32(0.047))), zero=-7, columns=64
        )
        sums = random.integers(-(2**18), 2**18, (200, 64)).astype(np.int32)
        assert both(node, get_arithmetic("ideal"), sums).levels == 0


def test_a_level_in_doubt_is_one() -> None:
    """3 · M is an ulp above a tie, which float64 cannot tell from one:
    the steps count that batch.
    """
    weight = 0.5 / 3 * (1 + 2.0**-52)
    counters = both(
        ideal((1.0, weight, 1.0)), get_arithmetic("ideal"), np.array([[3], [4]], np.int32)
    )
    assert counters.levels == 2


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("name", ["gemmlowp", "neon"])
def test_sums_next_to_the_ends_of_their_register_are_rounded_twice_without_leaving_it(
    name: str,
) -> None:
    node = ideal((1.0, 0.999 * 2.0**-24, 1.0), largest=TOP)
    sums = np.array([[TOP], [-TOP], [TOP - 2**23], [2**23 - TOP]], np.int32)
    assert both(node, get_arithmetic(name), sums) == Counters()


@pytest.mark.parametrize(("largest", "kind"), [(2**31, "int8"), (1000, "int32")])
def test_sums_of_more_bits_and_levels_of_more_bits_are_counted_step_by_step(
    largest: int, kind: str
) -> None:
    qtype, counters = QType.parse(kind), Counters()
    node = Epilogue(
        (1.0, 1.0, 1.0), QParams(1.0, 0, qtype), None, (qtype.qmin, qtype.qmax), 1, largest
    )
    run: Finish = finish(node, get_arithmetic("ideal"), counters, compiled=True)
    expected: Sequence[int] = [qtype.qmax if kind == "int8" else 2**31 - 1, 5]
    np.testing.assert_array_equal(run(np.array([[2**31], [5]], np.int64)).reshape(-1), expected)
    assert counters.clipped_high == 1


def test_a_sum_that_wraps_is_not_compiled() -> None:
    counters = Counters()
    node = ideal((1.0, 1.0, 1.0), largest=2**15)
    machine = replace(
        get_arithmetic("ort-x64"),
        accumulator=replace(get_arithmetic("ort-x64").accumulator, bits=16),
    )
    run = finish(node, machine, counters, compiled=True)
    assert run(np.array([[2**15], [2**15 + 70]], np.int32)).tolist() == [[-128], [-128]]
    assert counters.overflowed == 2

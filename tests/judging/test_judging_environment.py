"""Which accepted result a class is compared with: its own, one declared equivalent,
one for any; else none.
"""

import dataclasses

import pytest
from judged_numbers import ELSEWHERE, HERE, accepted_of, agreement, expected, judged, measured, top1

from qbench.judging import ANY, EnvironmentClass, GateState, Outcome, Rules, inherited
from qbench.judging.cell import are_equivalent

PROCESSORS = (("x64-avx2", "x64-avx512-vnni"),)


def environment(text):
    return EnvironmentClass.parse(text)


@pytest.mark.parametrize(
    ("one", "other", "groups", "equivalent"),
    [
        ("x64-avx2+e-1", "x64-avx512-vnni+e-1", PROCESSORS, True),
        (
            "x64-avx2+e-1",
            "x64-avx512-vnni+e-2",
            PROCESSORS,
            False,
        ),  # processors only, with equal packages
        ("x64-avx2+e-1", "arm64-dotprod+e-1", PROCESSORS, False),
        ("x64-avx2", "x64-avx512-vnni", PROCESSORS, True),
        ("x64-avx2+e-1.31.0", "x64-avx2+e-1.31.1", (("x64-*+e-1.31.*",),), True),
        ("x64-avx2+e-1.31.0", "x64-avx2+e-1.32.0", (("x64-*+e-1.31.*",),), False),
        (
            "x64-avx2+e-1+threads-4",
            "x64-avx2+e-1",
            (("x64-avx2+e-1", "x64-avx2+e-1+threads-*"),),
            True,
        ),
        ("x64-avx2+e-1", "x64-avx2+e-2", (), False),
        ("x64-avx2+e-1", "x64-avx2+e-1+device=cuda", (("x64-*",),), False),  # never two devices
        ("x64-avx2+e-1+device=h100", "x64-avx2+e-1+device=cuda", (("x64-*",),), False),
        ("x64-avx2+e-1+device=cuda", "x64-avx512-vnni+e-1+device=cuda", PROCESSORS, True),
        (
            "x64-avx2+e-1+device=cuda",
            "x64-avx2+e-2+device=cuda",
            (("x64-*+device=cuda",),),
            True,
        ),
        ("a", "b", (("a",), ("b",)), False),  # not across groups
    ],
)
def test_equivalent_classes(one, other, groups, equivalent):
    assert are_equivalent(environment(one), environment(other), groups) == equivalent
    assert are_equivalent(environment(other), environment(one), groups) == equivalent


def test_own_class_before_an_equivalent_before_any():
    accepted = dict.fromkeys((str(HERE), str(ELSEWHERE), ANY), accepted_of(measured()))
    assert inherited(accepted, HERE, PROCESSORS) == str(HERE)
    del accepted[str(HERE)]
    assert inherited(accepted, HERE, PROCESSORS) == str(ELSEWHERE)
    assert inherited(accepted, HERE, ()) == ANY
    del accepted[ANY]
    assert inherited(accepted, HERE, ()) is None


def verdict_on(found, accepted_in, equivalents=()):
    expectation = dataclasses.replace(
        expected(measured()), accepted={accepted_in: accepted_of(measured())}
    )
    return judged(found, expectation, rules=Rules(equivalents=equivalents))


@pytest.mark.parametrize(
    ("accepted_in", "where"), [(str(ELSEWHERE), "declared equivalent"), (ANY, "for any class")]
)
def test_what_is_comparable_gates(accepted_in, where):
    same = verdict_on(measured(), accepted_in, PROCESSORS)
    assert same.outcome is Outcome.PASSED
    assert where in same.gates[-1].detail
    other = verdict_on(measured(predictions="p2"), accepted_in, PROCESSORS)
    assert other.outcome is Outcome.DRIFTED
    assert where in other.gates[-1].detail


def test_another_class_is_incomparable_and_never_a_regression():
    other = measured(top1(758), agreement(465), predictions="p2")
    found = verdict_on(other, str(ELSEWHERE))
    assert found.outcome is Outcome.PASSED
    assert found.gates[-1].state is GateState.INCOMPARABLE

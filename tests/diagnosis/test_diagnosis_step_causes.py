"""Why two levels of one value differ: against a rule written in fractions, and by hand."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.diagnosis.units import Ends, StepCauses, count_causes

UINT8 = Ends.of_codes(0, 255, 127)


def by_fractions(ours, theirs, real, low, high):
    """The definition, one level, in exact arithmetic."""
    steps, t = abs(ours - theirs), Fraction(real)
    if not steps:
        return None
    if t < low or t > high:
        return "clamp"
    if steps > 1:
        return "real"
    below = t.numerator // t.denominator
    return "tie" if abs(t - below - Fraction(1, 2)) <= Fraction(1, 1024) else "one_step"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 255),
            st.integers(-3, 3),
            st.one_of(
                st.floats(-300, 300),
                st.builds(
                    lambda level, off: level + 0.5 + off,
                    st.integers(-140, 140),
                    st.sampled_from([0.0, 2**-10, -(2**-10), 2**-9]),
                ),
            ),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_every_level_has_the_cause_of_the_definition(rows):
    ours = np.array([level for level, _, _ in rows], np.uint8)
    theirs = np.array([min(255, max(0, level + step)) for level, step, _ in rows], np.uint8)
    real = np.array([t for _, _, t in rows])
    found = count_causes(ours, theirs, real, UINT8)
    ends = Fraction(-255, 2), Fraction(257, 2)
    causes = [
        by_fractions(int(a), int(b), t, *ends) for a, b, t in zip(ours, theirs, real, strict=True)
    ]
    for name in ("tie", "one_step", "clamp", "real"):
        assert getattr(found, name) == causes.count(name)
    assert found.differing == sum(cause is not None for cause in causes)
    assert found.largest == max(abs(int(a) - int(b)) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    ("ours", "theirs", "t", "ends", "cause"),
    [
        (128, 127, 0.5, UINT8, "tie"),
        (128, 127, 0.5 + 2**-10, UINT8, "tie"),
        (128, 127, 0.5 + 2**-9, UINT8, "one_step"),
        (129, 127, 0.5, UINT8, "real"),
        (255, 254, 128.4, UINT8, "one_step"),  # it is rounded to the end, not clamped
        (255, 254, 128.6, UINT8, "clamp"),
        (0, 127, -7.0, UINT8.within(0.0, float("inf")), "clamp"),  # the Relu in front is gone
        (0, 1, -127.5, UINT8, "tie"),
    ],
)
def test_one_of_each(ours, theirs, t, ends, cause):
    found = count_causes(np.array([ours]), np.array([theirs]), np.array([t]), ends)
    assert found == StepCauses(elements=1, largest=abs(ours - theirs), **{cause: 1})


def test_unsigned_levels_do_not_wrap():
    found = count_causes(np.array([0], np.uint8), np.array([255], np.uint8), np.zeros(1), UINT8)
    assert found.largest == 255


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shapes"):
        count_causes(np.zeros(2, int), np.zeros(2, int), np.zeros(3), UINT8)

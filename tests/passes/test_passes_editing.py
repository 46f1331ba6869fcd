"""Fresh names: the first that is free, however many want one."""

from hypothesis import given
from hypothesis import strategies as st

from qbench.passes import NameScope

NAMES = st.sampled_from(["a", "a_1", "a_1_1", "a_2", "b", ""])


def first_free(wanted, taken):
    """By trying one after the other."""
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


@given(
    st.sets(NAMES),
    st.lists(st.tuples(st.sampled_from(["fresh", "take", "release", "release given"]), NAMES)),
)
def test_a_fresh_name_is_the_first_that_is_free(before, steps):
    scope, taken, given_names = NameScope(before), set(before), []
    for step, name in steps:
        match step:
            case "fresh":
                expected = first_free(name, taken)
                assert scope.fresh(name) == expected
                taken.add(expected)
                given_names.append(expected)
            case "take":
                assert scope.take(name) == (name not in taken)
                taken.add(name)
            case "release":
                scope.release(name)
                taken.discard(name)
            case _ if given_names:
                back = given_names.pop(len(name) % len(given_names))
                scope.release(back)
                taken.discard(back)


def test_thousands_that_want_one_name_try_each_number_once():
    class Counted(NameScope):
        tried = 0

        def take(self, name):
            self.tried += 1
            return super().take(name)

    scope = Counted(())
    names = [scope.fresh("n") for _ in range(3000)]
    assert names == ["n", *(f"n_{number}" for number in range(1, 3000))]
    assert scope.tried < 3 * len(names)

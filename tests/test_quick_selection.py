"""What tests/conftest.py leaves out of the quick tests: parameters, and examples of hypothesis."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def selecting(request):
    """The functions of tests/conftest.py."""
    return request.config.pluginmanager.get_plugin(str(Path(__file__).parent / "conftest.py"))


def test_few_parameters_stay_quick(pytester, selecting):
    items = pytester.getitems(
        """
        import pytest

        letters = pytest.mark.parametrize(
            "letter", [pytest.param("z", marks=pytest.mark.slow), *"abcdef"]
        )

        @pytest.mark.slow_but(1)
        @letters
        def test_one(letter):
            pass

        @pytest.mark.slow_but(3)
        @letters
        def test_three(letter):
            pass

        @pytest.mark.slow_but(4)
        @letters
        def test_four(letter):
            pass

        def test_other():
            pass
        """
    )
    selecting.mark_all_but_few(items)
    left = [item.name for item in items if not item.get_closest_marker("slow")]
    spread = {"one": "a", "three": "ace", "four": "abde"}
    assert left == [
        *(f"test_{name}[{letter}]" for name, letters in spread.items() for letter in letters),
        "test_other",
    ]


@pytest.mark.parametrize(("examples", "tried"), [(60, 12), (3, 1)])
def test_a_fifth_of_the_examples_is_tried(selecting, examples, tried):
    seen = []

    @settings(max_examples=examples, database=None)
    @given(st.integers())
    def note(number):
        seen.append(number)

    selecting.try_few_examples(note)
    note()
    assert len(seen) == tried


def test_properties_are_run_again_with_all_examples(request):
    """``make test-slow`` finds them by their marker."""
    marked = request.config.getini("markers")
    assert any(line.startswith("property:") for line in marked)
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    quick, slow = (
        next(line for line in makefile.splitlines() if chosen in line)
        for chosen in ('-m "not slow', '-m "(slow or property)')
    )
    assert "--few-examples" in quick
    assert "--few-examples" not in slow

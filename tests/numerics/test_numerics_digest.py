"""An arithmetic's digest and its text: the same counting, the same digest; the text spells it."""

from dataclasses import replace

import pytest

from qbench.errors import InputError
from qbench.numerics import Rounding, Stage, get_arithmetic, list_arithmetics, load_arithmetic

NAMES = list_arithmetics()


def test_no_two_machines_count_alike():
    assert len({get_arithmetic(name).digest for name in NAMES}) == len(NAMES)


def test_names_and_sources_change_no_number_and_no_digest():
    one = get_arithmetic("gemmlowp")
    assert replace(one, name="other", source="nobody").digest == one.digest


@pytest.mark.parametrize(
    "change",
    [
        {"scaling": replace(get_arithmetic("gemmlowp").scaling, stages=(Stage(Rounding.HALF_UP),))},
        {"narrow": True},
        {"accumulator": replace(get_arithmetic("gemmlowp").accumulator, bits=24)},
        {"multiplying": get_arithmetic("ort-x64").scaling},
    ],
)
def test_whatever_changes_numbers_changes_it(change):
    one = get_arithmetic("gemmlowp")
    assert replace(one, **change).digest != one.digest


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_a_file_that_spells_it(name, tmp_path):
    for called in (name, "mine"):
        path = tmp_path / f"{called}.toml"
        path.write_text(str(get_arithmetic(name)))
        assert load_arithmetic(path) == replace(get_arithmetic(name), name=called)


def test_the_text_has_no_line_about_what_is_as_by_default():
    lines = [line.partition(" = ")[0] for line in str(get_arithmetic("ideal")).splitlines()]
    assert lines == ["# ideal", "source", "scaling", "accumulator"]


def test_a_machine_is_called_as_its_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('source = "a data sheet"\nscaling = { form = "float32" }\n')
    assert load_arithmetic(path).name == "mine"
    path.write_text('name = "yours"\nsource = "a data sheet"\nscaling = { form = "float32" }\n')
    with pytest.raises(InputError, match="'mine', as the file is called"):
        load_arithmetic(path)

"""Passes that are asked for by name: settings that there are, and extensions that give passes."""

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir
import pytest

from qbench import Extension
from qbench.errors import InputError
from qbench.passes import EXACT, Effect, catalogue, parse_pipeline


@dataclass(frozen=True, slots=True)
class Idle:
    """Does nothing."""

    effect: Effect = EXACT
    name: str = "idle"
    least: int = 1

    def run(self, model: ir.Model) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class NoEffect:
    """Does nothing, and promises nothing."""

    name: str = "idle"

    def run(self, model: ir.Model) -> bool:
        return False


def idle(make: Callable[[], object], name: str = "idle") -> object:
    return catalogue([Extension(name="mine", passes={name: make})]).get(name)


@pytest.mark.parametrize(
    ("passes", "found"),
    [
        ("merge-requantize{steps = -1}", "Reading the pass 'merge-requantize': found .*-1 steps"),
        ("merge-requantize{name = 'b'}", "found the setting 'name'; expected one of: steps"),
        ("merge-requantize{step = 1}", "found the setting 'step'.*Did you mean 'steps'"),
        ("remove-dead{name = 'b'}", "expected none, for it has no settings"),
    ],
)
def test_settings_are_those_that_change_what_a_pass_does(passes: str, found: str) -> None:
    with pytest.raises(InputError, match=found):
        parse_pipeline(passes, catalogue())


def test_a_setting_of_pipelines_that_were_stored_earlier_is_still_read() -> None:
    earlier = parse_pipeline('function-tables{machines = ["qdq"]}', catalogue())
    assert str(earlier) == 'function-tables{arithmetics = ["qdq"]}'


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: 5, "something of type int"),
        (lambda: Idle, "something of type type"),
        (NoEffect, "one without an effect"),
        (lambda: Idle(name="other"), "one that calls itself 'other'"),
    ],
)
def test_an_extension_gives_passes_under_their_own_names(
    make: Callable[[], object], found: str
) -> None:
    with pytest.raises(InputError, match=f"Making the pass 'idle' of 'mine': found {found}"):
        idle(make)


def test_a_name_that_is_not_the_default_is_spelled_once() -> None:
    passes = catalogue([Extension(name="mine", passes={"still": lambda: Idle(name="still")})])
    text = "still{least = 3}"
    assert str(parse_pipeline(text, passes)) == text

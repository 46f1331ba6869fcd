"""A machine may count some nodes otherwise: by operator, by name, the first that applies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.errors import InputError
from qbench.interpreter import Program
from qbench.numerics import Override, Rounding, Stage, get_arithmetic, load_arithmetic

TWO_PRODUCTS = """<ir_version: 8, opset_import: ["" : 17]>
g (uint8[1, 1] x) => (uint8[1, 1] first, uint8[1, 1] second)
<float one = {1.0}, float two = {2.0}, uint8 z = {0}, int8 w = {0}, int8[1, 1] weight = {1}> {
    [first_node] first = QLinearMatMul(x, one, z, weight, one, w, two, z)
    [second_node] second = QLinearMatMul(x, one, z, weight, one, w, two, z)
}"""
UP = replace(get_arithmetic("ideal").scaling, stages=(Stage(Rounding.HALF_UP),))


def counted(*overrides: Override) -> tuple[int, int]:
    model = ir.serde.deserialize_model(onnx.parser.parse_model(TWO_PRODUCTS))
    machine = replace(get_arithmetic("ideal"), overrides=overrides)
    results: dict[str, Any] = Program(model, machine).run({"x": np.array([[1]], np.uint8)})
    return results["first"].item(), results["second"].item()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), (0, 0)),
        ((Override(names=("second*",), scaling=UP),), (0, 1)),
        ((Override(operators=("MatMul",), scaling=UP),), (1, 1)),
        ((Override(operators=("Conv",), scaling=UP),), (0, 0)),
        ((Override(operators=("Conv",), names=("*",), scaling=UP),), (0, 0)),
        (
            (
                Override(names=("first_node",), multiplying=UP),
                Override(operators=("MatMul",), scaling=UP),
            ),
            (0, 1),
        ),
    ],
)
def test_the_first_override_that_applies_holds(
    overrides: tuple[Override, ...], expected: tuple[int, int]
) -> None:
    assert counted(*overrides) == expected


@pytest.mark.parametrize(
    ("name", "close"), [("Cnv", "Conv"), ("QLinearMatMul", "MatMul"), ("Requantise", "Requantize")]
)
def test_operators_that_nobody_has(name: str, close: str) -> None:
    with pytest.raises(
        InputError, match=f"of the arithmetic 'ideal': found unknown operator '{name}'.*'{close}'"
    ):
        counted(Override(operators=("Conv", name), scaling=UP))


def test_a_file_spells_overrides(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nsource = "here"\nscaling = { form = "exact" }\n'
        '[[overrides]]\noperators = ["Conv"]\naccumulator = { bits = 16, overflow = "saturate" }\n'
    )
    machine = load_arithmetic(path)
    assert machine.at("Conv", "any").accumulator.bits == 16
    assert machine.at("Gemm", "any").accumulator.bits == 32
    assert machine.at("Conv", "any").overrides == ()


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ('names = ["a"]', "changes nothing"),
        ("accumulator = { bits = 16 }", "names operators or nodes"),
    ],
)
def test_an_override_without_meaning_is_refused(tmp_path: Path, override: str, found: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f'name = "mine"\nsource = "here"\nscaling = {{ form = "exact" }}\n[[overrides]]\n'
        f"{override}\n"
    )
    with pytest.raises(InputError, match=found):
        load_arithmetic(path)

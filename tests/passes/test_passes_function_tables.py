"""Functions of one 8-bit value as tables: every entry is the machine's own, engines read them
alike, some refuse.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import operators, run_machine, run_qdq, text

from qbench.backends import get_backend
from qbench.graph import Capabilities, constant_value
from qbench.numerics import QParams, dequantize, quantize
from qbench.passes import Pipeline, assert_effect, run_pipeline
from qbench.passes.rewrites.function_tables import FunctionTables

CONSTANTS = [
    *("float half = {0.5}", "float six = {6.0}", "float zero = {0.0}", "float two = {2.0}"),
    *("int8 l = {-100}", "int8 h = {90}"),
]
FUNCTIONS = {
    "Sigmoid": ["r = Sigmoid(a)"],
    "Tanh": ["r = Tanh(a)"],
    "Relu": ["r = Relu(a)"],
    "HardSwish": ["r = HardSwish(a)"],
    "Erf": ["r = Erf(a)"],
    "LeakyRelu": ["r = LeakyRelu<alpha=0.3>(a)"],
    "Clip": ["r = Clip(a, zero, six)"],
    "Pow": ["r = Pow(a, two)"],
    "a chain": ["b = Abs(a)", "c = Sqrt(b)", "r = Mul(half, c)"],
}


def squashed(lines: list[str], at: str = "int8", zero: int = 5, scale: float = 0.07) -> ir.Model:
    """All 256 levels ─DQ─ lines ─Q─[−100, 90]─DQ─ y."""
    grids = [
        f"float s = {{{scale}}}",
        f"{at} z = {{{zero}}}",
        "float t = {0.0078125}",
        "int8 w = {-20}",
    ]
    whole = [
        *(
            "a = DequantizeLinear(x, s, z)",
            *lines,
            "q = QuantizeLinear(r, t, w)",
            "k = Clip(q, l, h)",
        ),
        "y = DequantizeLinear(k, t, w)",
    ]
    return text(f"{at}[256] x", "float[256] y", [*CONSTANTS, *grids], whole)


def every(at: str) -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(at)


@pytest.mark.slow_but(7)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("at", "zero"), [("int8", 5), ("int8", -128), ("uint8", 131)])
def test_the_table_gives_what_the_function_gave(name: str, at: str, zero: int) -> None:
    before = squashed(FUNCTIONS[name], at, zero)
    after = run_pipeline(before, Pipeline((FunctionTables(),))).model
    assert operators(after) == ["Cast", "Gather", "DequantizeLinear"]
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(after, x=every(at))["y"], run(before, x=every(at))["y"])
    with get_backend("ort-cpu").prepare(after) as executor:
        np.testing.assert_array_equal(
            executor.run({"x": every(at)})["y"], run_qdq(before, x=every(at))["y"]
        )


@pytest.mark.parametrize("name", ["Sigmoid", "Clip"])
def test_it_is_what_it_declares_and_settles(name: str) -> None:
    assert_effect(FunctionTables(), squashed(FUNCTIONS[name]))


def test_no_entry_is_stepped_to_from_its_neighbour() -> None:
    model = squashed(["r = Tanh(a)"], scale=0.0137)
    after = run_pipeline(model, Pipeline((FunctionTables(),))).model
    (name,) = [name for name in after.graph.initializers if str(name).endswith("_table")]
    found = constant_value(after.graph.initializers[name])
    assert found is not None
    grid, to, levels = (
        QParams(0.0137, 5, "int8"),
        QParams(0.0078125, -20, "int8"),
        np.arange(-128, 128),
    )
    right = np.clip(quantize(np.tanh(dequantize(levels.astype(np.int8), grid)), to), -100, 90)
    np.testing.assert_array_equal(found[levels % 256], right)


def test_where_machines_have_functions_of_their_own_it_is_declined_with_the_count(words) -> None:
    model = squashed(["r = LeakyRelu(a)"], scale=0.1)
    found = run_pipeline(model, Pipeline((FunctionTables(arithmetics=("qdq", "litert-x64")),)))
    assert operators(found.model) == operators(model)
    words(found.declined[0].reason)
    alone = run_pipeline(model, Pipeline((FunctionTables(arithmetics=("litert-x64",)),))).model
    for machine in ("litert-x64", "ideal"):
        after = run_machine(alone, machine, x=every("int8"))["y"]
        np.testing.assert_array_equal(after, run_machine(model, "litert-x64", x=every("int8"))["y"])


def test_no_rule_says_what_nan_becomes() -> None:
    model = squashed(["r = Sqrt(a)"])
    found = run_pipeline(model, Pipeline((FunctionTables(),)))
    assert operators(found.model) == operators(model)
    assert "NaN" in found.declined[0].reason
    positive = squashed(["r = Sqrt(a)"], "uint8", 0)
    assert "Gather" in operators(run_pipeline(positive, Pipeline((FunctionTables(),))).model)


def test_a_target_without_tables_refuses_them(words) -> None:
    model = squashed(["r = Sigmoid(a)"])
    assert FunctionTables.under(Capabilities()) == FunctionTables()
    found = run_pipeline(model, Pipeline((FunctionTables.under(Capabilities(tables=False)),)))
    assert operators(found.model) == operators(model)
    words(found.declined[0].reason)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["r = Softmax(a)"], None),
        (["r = Mul(a, a)"], None),
        (["b = Sigmoid(a)", "r = Mul(a, b)"], None),
        (["b = Sigmoid(a)", "c = Cos(b)", "r = Mul(c, b)"], None),
        (
            ["d = QuantizeLinear(a, u, v)", "e = DequantizeLinear(d, u, v)", "r = Sigmoid(e)"],
            "does not have 8 bits",
        ),
    ],
    ids=["rows", "twice", "two ways", "shared", "16 bits"],
)
def test_what_is_no_function_of_one_8_bit_value_is_left(lines: list[str], why: str | None) -> None:
    wide = ["float u = {0.01}", "int16 v = {0}"]
    grids = ["float s = {0.1}", "int8 z = {5}", "float t = {0.01}", "int8 w = {-20}"]
    whole = [
        "a = DequantizeLinear(x, s, z)",
        *lines,
        "q = QuantizeLinear(r, t, w)",
        "y = DequantizeLinear(q, t, w)",
    ]
    model = text("int8[256] x", "float[256] y", [*wide, *grids], whole)
    found = run_pipeline(model, Pipeline((FunctionTables(),)))
    assert operators(found.model) == operators(model)
    assert [one.reason for one in found.declined if why is None or why not in one.reason] == []
    assert len(found.declined) == (why is not None)


def test_levels_that_others_read_stay_and_those_that_leave_keep_their_name() -> None:
    grids = ["float s = {0.1}", "uint8 z = {5}", "float t = {0.01}", "int8 w = {-20}"]
    lines = [
        "a = DequantizeLinear(x, s, z)",
        "r = Sigmoid(a)",
        "q = QuantizeLinear(r, t, w)",
        "y = Neg(a)",
    ]
    model = text("uint8[256] x", "float[256] y, int8[256] q", grids, lines)
    after = run_pipeline(model, Pipeline((FunctionTables(),))).model
    assert sorted(operators(after)) == ["Cast", "DequantizeLinear", "Gather", "Neg"]
    for run in (run_qdq, run_machine):
        for name in ("y", "q"):
            np.testing.assert_array_equal(
                run(after, x=every("uint8"))[name], run(model, x=every("uint8"))[name]
            )

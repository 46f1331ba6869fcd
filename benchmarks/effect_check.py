"""What holding a pass to its word costs: `python benchmarks/effect_check.py`.

All 65,536 pairs of a two-input region of 8 bits, all levels of one of 16 bits, and a convolution,
which can only be tried, under both machines of an exact pass; seconds, the best of five, and the
first run in a process, which imports.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from rich.console import Console
from rich.table import Table

from qbench.graph import constant_value
from qbench.passes import EXACT, Checked, Effect, NameScope, check_pass
from qbench.passes.editing import set_constant_operand

_ADD = """<ir_version: 10, opset_import: ["" : 21]>
add (int8[1,64,56,56] x, int8[1,64,56,56] v) => (float[1,64,56,56] y)
<float s = {0.1}, float t = {0.07}, float u = {0.15}, int8 z = {7}> {
    a = DequantizeLinear(x, s, z)
    b = DequantizeLinear(v, t, z)
    c = Add(a, b)
    q = QuantizeLinear(c, u, z)
    y = DequantizeLinear(q, u, z)
}"""
_WIDE = """<ir_version: 10, opset_import: ["" : 21]>
wide (int16[64] x) => (float[64] y)
<float s = {0.001}, float u = {0.15}, int16 z = {0}, int8 n = {3}> {
    a = DequantizeLinear(x, s, z)
    q = QuantizeLinear(a, u, n)
    y = DequantizeLinear(q, u, n)
}"""


@dataclass(frozen=True)
class Respelled:
    """Writes the scale of every QuantizeLinear as a list of one: nothing changes, and every
    region has to be tried.
    """

    effect: Effect = EXACT
    name: str = "respelled"

    def run(self, model: ir.Model) -> bool:
        """Every scale that is a number yet."""
        found = False
        for node in model.graph:
            scale = constant_value(node.inputs[1]) if node.op_type == "QuantizeLinear" else None
            if scale is not None and not scale.shape:
                set_constant_operand(node, 1, scale.reshape(1), NameScope.of_values(model))
                set_constant_operand(
                    node, 2, constant_value(node.inputs[2]).reshape(1), NameScope.of_values(model)
                )  # type: ignore[union-attr]
                found = True
        return found


def convolution() -> ir.Model:
    """64 × 64 channels of 3 × 3 over 28 × 28."""
    weight = np.random.default_rng(0).integers(-127, 128, (64, 64, 3, 3)).astype(np.int8)
    text = """<ir_version: 10, opset_import: ["" : 21]>
    conv (int8[1,64,28,28] x, int8[64,64,3,3] w) => (float[1,64,28,28] y)
    <float s = {0.1}, float k = {0.01}, float u = {0.5}, int8 z = {0}> {
        a = DequantizeLinear(x, s, z)
        b = DequantizeLinear(w, k, z)
        c = Conv<pads=[1,1,1,1]>(a, b)
        q = QuantizeLinear(c, u, z)
        y = DequantizeLinear(q, u, z)
    }"""
    model = ir.from_onnx_text(text)
    value = model.graph.inputs.pop()
    value.const_value = ir.Tensor(weight, name="w")
    model.graph.register_initializer(value)
    return model


def timed(work: Callable[[], Checked]) -> tuple[float, Checked]:
    """Seconds, and what was found."""
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def main() -> None:
    """Print the table."""
    table = Table("region", "verdict", "first (s)", "best of five (s)")
    models = {
        "two inputs of 8 bits": ir.from_onnx_text(_ADD),
        "one input of 16 bits": ir.from_onnx_text(_WIDE),
        "a convolution": convolution(),
    }
    for name, model in models.items():
        runs = [timed(lambda model=model: check_pass(Respelled(), model)) for _ in range(6)]  # type: ignore[misc]
        seconds = [one for one, _ in runs]
        table.add_row(
            name, str(runs[0][1].regions[0]), f"{seconds[0]:.2f}", f"{min(seconds[1:]):.2f}"
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()

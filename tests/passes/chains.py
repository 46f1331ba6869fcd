"""Small QDQ graphs for tests of rewrites: chains of requantizations, and what runs of them give."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.backends import get_backend
from qbench.interpreter import Program
from qbench.numerics import get_arithmetic
from qbench.passes import lower_to_integers


@dataclass(frozen=True)
class Grid:
    """A grid and limits, as tests write them; None: the ends of the grid."""

    scale: float
    zero: int = 0
    low: int | None = None
    high: int | None = None
    qtype: str = "int8"


def chain(
    *grids: Grid, last: str = "y", integers_in: Grid | None = None, size: int = 16
) -> ir.Model:
    """x ─Q₁[limits]─DQ₁─Q₂[limits]─DQ₂ … → y; ``integers_in``: x is levels of that grid, behind
    a DequantizeLinear.
    """
    constants, lines, value = [], [], "x"
    if integers_in is not None:
        constants += [
            f"float s = {{{integers_in.scale!r}}}",
            f"{integers_in.qtype} z = {{{integers_in.zero}}}",
        ]
        lines.append("r = DequantizeLinear(x, s, z)")
        value = "r"
    for index, grid in enumerate(grids):
        constants += [
            f"float s{index} = {{{grid.scale!r}}}",
            f"{grid.qtype} z{index} = {{{grid.zero}}}",
        ]
        lines.append(f"q{index} = QuantizeLinear({value}, s{index}, z{index})")
        levels = f"q{index}"
        if (grid.low, grid.high) != (None, None):
            ends = []
            for word, end in (("l", grid.low), ("h", grid.high)):
                if end is not None:
                    constants.append(f"{grid.qtype} {word}{index} = {{{end}}}")
                ends.append("" if end is None else f"{word}{index}")
            lines.append(f"c{index} = Clip({levels}, {', '.join(ends)})".replace(", )", ")"))
            levels = f"c{index}"
        value = last if index == len(grids) - 1 else f"d{index}"
        lines.append(f"{value} = DequantizeLinear({levels}, s{index}, z{index})")
    of = "float" if integers_in is None else integers_in.qtype
    return text(f"{of}[{size}] x", f"float[{size}] y", constants, lines)


def text(
    inputs: str, outputs: str, constants: Sequence[str], lines: Sequence[str], domains: str = ""
) -> ir.Model:
    """A model at opset 21 whose nodes have names (the first output's)."""
    body = "\n    ".join(lines)
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 21{domains}]>\n'
        f"net ({inputs}) => ({outputs})\n<{', '.join(constants)}>\n{{\n    {body}\n}}"
    )
    for node in model.graph:
        node.name = node.name or node.outputs[0].name
    return model


def operators(model: ir.Model) -> list[str]:
    """The operators in graph order."""
    return [node.op_type for node in model.graph]


def run_qdq(model: ir.Model, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    """The QDQ graph in float32, node by node, by ONNX's own evaluator."""
    with get_backend("onnx-reference").prepare(model) as executor:
        return executor.run(feeds)


def run_machine(
    model: ir.Model, machine: str = "ideal", **feeds: np.ndarray
) -> dict[str, np.ndarray]:
    """The lowered graph as ``machine`` counts it."""
    return Program(lower_to_integers(model), get_arithmetic(machine)).run(feeds)

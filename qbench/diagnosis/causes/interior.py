"""The float operators inside a unit, with all that is dequantized as an input: other operands, run in float.

    t = operators(x_dq, w_dq, b_dq) / s_y        one session for every edit of x, w and b

An edited operand is an array of any shape that the operators take, so that a padding of another value is a wider x.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Executor
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.diagnosis.unit_runs import exact_backend
from qbench.graph import constant_value, grid_of
from qbench.numerics import QParams, dequantize

Attribute = int | str | list[int]
Floats = npt.NDArray[np.floating[Any]]
PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One dequantized input: its ``name`` inside, the ``levels`` (of a feed: None, and ``feed``), their ``grid``."""

    name: str
    grid: QParams | None
    feed: str = ""
    levels: npt.NDArray[Any] | None = None


@dataclass(slots=True, eq=False)
class Interior:
    """The float operators of a unit.

    Args:
        graph: from ``operands`` to the number in front of rounding.
        operands: by name; main: of the node that is looked at, in its order ('' where one is left out).
        node: the product in the unit, else the operator that makes the number in front of rounding.
        scale: of the result.
    """

    graph: ir.Graph
    version: int
    operands: Mapping[str, Operand]
    main: Sequence[str]
    node: ir.Node
    output: str
    scale: float
    _stack: ExitStack = field(default_factory=ExitStack)
    _executors: dict[str, Executor] = field(default_factory=dict)

    @classmethod
    def of(cls, unit: QuantizedUnit) -> "Interior | None":
        """None where no float operator stands between the pairs."""
        graph = unit.graph.graph
        pairs = [node for node in graph if _begins(node)]
        real = next((v for node in graph for v in node.outputs if v.name == unit.real), None)
        if real is None or real.producer() in pairs or real.producer() is None:
            return None
        plain = [value for value in graph.inputs if not any(use.node in pairs for use in value.uses())]
        inner = ir.convenience.extract(graph, [*(pair.outputs[0] for pair in pairs), *plain], [real])
        nodes = list(inner)
        node = next((one for one in nodes if one.op_type in PRODUCTS), nodes[-1])
        used = {str(value.name) for one in nodes for value in one.inputs if value is not None}
        operands = {str(pair.outputs[0].name): _operand(pair) for pair in pairs if str(pair.outputs[0].name) in used}
        operands |= {str(v.name): Operand(str(v.name), None, str(v.name)) for v in plain if str(v.name) in used}
        for value in inner.inputs:
            value.shape = None
        main = [str(value.name) if value is not None else "" for value in node.inputs]
        return cls(inner, unit.graph.ir_version, operands, main, node, unit.real, unit.scale)

    def values(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, Floats]:
        """Every operand, dequantized, float32."""
        found: dict[str, Floats] = {}
        for name, one in self.operands.items():
            levels = feeds[one.feed] if one.feed else one.levels
            assert levels is not None
            found[name] = levels if one.grid is None else dequantize(levels, one.grid)
        return found

    def run(self, values: Mapping[str, Floats], **attributes: Attribute) -> npt.NDArray[np.float64]:
        """The number in front of rounding in steps, with the main node's ``attributes`` changed.

        Raises:
            QbenchError: the operators do not take such operands.
        """
        known = {str(value.name) for value in self.graph.inputs}
        executor = self._prepared(attributes)
        return (
            executor.run({k: v for k, v in values.items() if k in known})[self.output].astype(np.float64) / self.scale
        )

    def constant(self, place: int) -> npt.NDArray[Any] | None:
        """The constant that the main node reads at ``place``, dequantized or as it stands; None: there is none."""
        name = self.main[place] if place < len(self.main) else ""
        if not name:
            return None
        one = self.operands.get(name)
        if one is None:
            return constant_value(self.node.inputs[place])
        if one.levels is None:
            return None
        return one.levels if one.grid is None else dequantize(one.levels, one.grid)

    def operand(self, place: int) -> Operand | None:
        """The dequantized one that the main node reads at ``place``."""
        return self.operands.get(self.main[place]) if place < len(self.main) else None

    def close(self) -> None:
        """Let the sessions go."""
        self._stack.close()

    def _prepared(self, attributes: Mapping[str, Attribute]) -> Executor:
        key = repr(sorted(attributes.items()))
        if key not in self._executors:
            graph = self.graph.clone()
            node = next(one for one in graph if one.name == self.node.name and one.op_type == self.node.op_type)
            for name, value in attributes.items():
                node.attributes[name] = ir.convenience.convert_attribute(name, value)
            for made in (made for one in graph for made in one.outputs):
                made.shape = None
            model = ir.Model(graph, ir_version=self.version)
            self._executors[key] = self._stack.enter_context(exact_backend().prepare(model))
        return self._executors[key]


def _begins(node: ir.Node) -> bool:
    """Whether ``node`` brings constants, or levels from outside, on a known grid; levels made inside are not edited."""
    if node.op_type != "DequantizeLinear":
        return False
    levels, *grid = node.inputs
    stands = levels is not None and (levels.producer() is None or constant_value(levels) is not None)
    return stands and all(part is None or constant_value(part) is not None for part in grid)


def _operand(pair: ir.Node) -> Operand:
    source = pair.inputs[0]
    assert source is not None
    levels = constant_value(source)
    feed = "" if levels is not None else str(source.name)
    return Operand(str(pair.outputs[0].name), grid_of(pair), feed, levels)

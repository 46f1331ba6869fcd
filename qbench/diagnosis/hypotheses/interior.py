"""The float operators inside a unit, with every dequantized value as an input.

They are run with other operands:

    t = operators(x_dq, w_dq, b_dq) / s_y        one session for every edit of x, w and b

An edited operand may have any shape that the operators accept. For example, padding with another
value is a wider x.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import Executor
from qbench.diagnosis.unit_runs import exact_run
from qbench.diagnosis.units import (
    QuantizedUnit,
)
from qbench.graph import PRODUCTS, constant_value, node_qparams
from qbench.numerics import QParams, dequantize

Attribute = int | str | list[int]
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One dequantized input: ``name``, ``qparams``, and the ``codes`` of a constant or the name
    of the ``feed``.
    """

    name: str
    qparams: QParams | None
    feed: str = ""
    codes: npt.NDArray[Any] | None = None


@dataclass(slots=True, eq=False)
class Interior:
    """The float operators of a unit.

    Args:
        graph: from ``operands`` to the value before rounding.
        operands: by name.
        main: names of the operands of ``node``, in order ('' where one is omitted).
        node: the product in the unit, else the operator that computes the value before rounding.
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
        """None where the unit has no float operator between Q and DQ."""
        graph = unit.graph.graph
        pairs = [node for node in graph if _begins(node)]
        real = next((v for node in graph for v in node.outputs if v.name == unit.real), None)
        if real is None or real.producer() in pairs or real.producer() is None:
            return None
        plain = [
            value for value in graph.inputs if not any(use.node in pairs for use in value.uses())
        ]
        inner = ir.convenience.extract(
            graph, [*(pair.outputs[0] for pair in pairs), *plain], [real]
        )
        nodes = list(inner)
        node = next((one for one in nodes if one.op_type in PRODUCTS), nodes[-1])
        used = {str(value.name) for one in nodes for value in one.inputs if value is not None}
        operands = {
            str(pair.outputs[0].name): _operand(pair)
            for pair in pairs
            if str(pair.outputs[0].name) in used
        }
        operands |= {
            str(v.name): Operand(str(v.name), None, str(v.name))
            for v in plain
            if str(v.name) in used
        }
        for value in inner.inputs:
            value.shape = None
        main = [str(value.name) if value is not None else "" for value in node.inputs]
        return cls(inner, unit.graph.ir_version, operands, main, node, unit.real, unit.scale)

    def values(self, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, Floats]:
        """Every operand dequantized, float32."""
        found: dict[str, Floats] = {}
        for name, one in self.operands.items():
            codes = feeds[one.feed] if one.feed else one.codes
            assert codes is not None
            found[name] = codes if one.qparams is None else dequantize(codes, one.qparams)
        return found

    def run(self, values: Mapping[str, Floats], **attributes: Attribute) -> npt.NDArray[np.float64]:
        """The value before rounding in steps, with the main node's ``attributes`` changed.

        Raises:
            QbenchError: the operators do not accept the operands.
        """
        known = {str(value.name) for value in self.graph.inputs}
        executor = self._prepared(attributes)
        result = executor.run({k: v for k, v in values.items() if k in known})[self.output]
        return result.astype(np.float64) / self.scale

    def constant(self, place: int) -> npt.NDArray[Any] | None:
        """The constant at input ``place`` of the main node, dequantized if quantized; None: it
        is not constant.
        """
        name = self.main[place] if place < len(self.main) else ""
        if not name:
            return None
        one = self.operands.get(name)
        if one is None:
            return constant_value(self.node.inputs[place])
        if one.codes is None:
            return None
        return one.codes if one.qparams is None else dequantize(one.codes, one.qparams)

    def operand(self, place: int) -> Operand | None:
        """The dequantized operand at input ``place`` of the main node."""
        return self.operands.get(self.main[place]) if place < len(self.main) else None

    def close(self) -> None:
        """Close the sessions."""
        self._stack.close()

    def _prepared(self, attributes: Mapping[str, Attribute]) -> Executor:
        key = repr(sorted(attributes.items()))
        if key not in self._executors:
            graph = self.graph.clone()
            node = next(
                one
                for one in graph
                if one.name == self.node.name and one.op_type == self.node.op_type
            )
            for name, value in attributes.items():
                node.attributes[name] = ir.convenience.convert_attribute(name, value)
            for one in graph:
                for made in one.outputs:
                    made.shape = None
            model = ir.Model(graph, ir_version=self.version)
            self._executors[key] = self._stack.enter_context(exact_run(model))
        return self._executors[key]


def _begins(node: ir.Node) -> bool:
    """Whether ``node`` dequantizes a constant or an input by constant parameters, so that the
    interior of the unit begins behind it.
    """
    if node.op_type != "DequantizeLinear":
        return False
    codes, *qparams = node.inputs
    is_given = codes is not None and (codes.producer() is None or constant_value(codes) is not None)
    return is_given and all(part is None or constant_value(part) is not None for part in qparams)


def _operand(pair: ir.Node) -> Operand:
    source = pair.inputs[0]
    assert source is not None
    codes = constant_value(source)
    feed = "" if codes is not None else str(source.name)
    return Operand(str(pair.outputs[0].name), node_qparams(pair), feed, codes)

"""Who reads the reals behind a DequantizeLinear in the end: past whatever only moves them.

    levels ─DQ─ Reshape ─ Transpose ─┬─ Add ─Q─      an operator between grids
                                     ├─ Q ─          another border
                                     └─ Softmax ─    an operator on reals; or the graph's output

Machines take a product and its sums in steps of the very grids it reads, its bias above all: what reads a product is
told apart, whether or not something moves the levels before it.
"""

import enum
from dataclasses import dataclass

import onnx_ir as ir

from qbench.graph import only_consumer, operator_facts
from qbench.passes.levels.border import border_of
from qbench.passes.lowering.machines import INTEGER_MACHINES
from qbench.passes.lowering.movers import is_mover
from qbench.passes.lowering.target import ENGINE_DOMAIN, INTEGER_DOMAIN


class Reads(enum.Enum):
    """What a reader does with reals."""

    BORDER = "puts them on a grid"
    BETWEEN_GRIDS = "computes, and what it gives is put on a grid at once"
    REAL = "computes reals, or is no operator but the graph's output"


@dataclass(frozen=True, slots=True)
class Reader:
    """One operand of one operator; ``node`` None: an output of the graph."""

    node: ir.Node | None
    reads: Reads

    @property
    def is_of_one_type(self) -> bool:
        """Whether it counts in integers only where all that it reads and gives is of one type."""
        return self.node is not None and self.reads is Reads.BETWEEN_GRIDS and is_of_one_type(self.node)

    @property
    def is_product(self) -> bool:
        """Whether it multiplies with weights."""
        return self.node is not None and operator_facts(self.node).weight is not None


def readers_behind(dequantizer: ir.Node) -> tuple[Reader, ...]:
    """Everything that reads what ``dequantizer`` gives or what movers make of it, an operand each."""
    found, waiting = [], [dequantizer.outputs[0]]
    while waiting:
        value = waiting.pop()
        if value.is_graph_output():
            found.append(Reader(None, Reads.REAL))
        for use in value.uses():
            reads = _reads(use.node)
            if reads is Reads.REAL and use.idx == 0 and is_mover(use.node):
                waiting.extend(use.node.outputs)
            else:
                found.append(Reader(use.node, reads))
    return tuple(found)


def is_of_one_type(node: ir.Node) -> bool:
    """Whether integer machines count ``node`` by an engine's operator alone, whose operands have one type."""
    name = f"QLinear{node.op_type}"
    engine, own = (INTEGER_MACHINES.lacks(name, domain) is None for domain in (ENGINE_DOMAIN, INTEGER_DOMAIN))
    return not node.domain and engine and not own


def results_of(node: ir.Node) -> tuple[ir.Value, ...]:
    """The results of ``node`` that anything reads."""
    return tuple(value for value in node.outputs if value.uses() or value.is_graph_output())


def _reads(node: ir.Node) -> Reads:
    if border_of(node) is not None:
        return Reads.BORDER
    borders = [only_consumer(value) for value in results_of(node)]
    at_once = bool(borders) and all(one is not None and border_of(one) is not None for one in borders)
    return Reads.BETWEEN_GRIDS if at_once else Reads.REAL

"""A pass that claims to be exact and is not: a fault that everybody behind the quantizer gets to see."""

from dataclasses import dataclass

import onnx_ir as ir

from qbench.errors import UnsupportedError
from qbench.evaluation import Rewriting
from qbench.faults.catalogue import get_fault
from qbench.faults.fault import GraphEdit, Placed
from qbench.faults.faulty_backend import edit_at
from qbench.graph import node_key
from qbench.passes import EXACT, Effect, Pipeline, Policy

_MARK = "qbench.faults"


@dataclass(frozen=True, slots=True)
class WrongPass:
    """Requires: QDQ. Ensures: nothing; the fault is in the graph, once.

    Args:
        fault: its name. sites: float operators. seed: of what it draws. name: of the pass.
    """

    fault: str
    sites: tuple[str, ...]
    seed: int = 0
    name: str = "wrong-pass"

    @property
    def effect(self) -> Effect:
        """What it claims."""
        return EXACT

    def run(self, model: ir.Model) -> bool:
        """Put the fault where it was not put yet; True when it was put anywhere."""
        nodes = {node_key(node): node for node in model.graph}
        mark = f"{_MARK}.{self.fault}"
        left = tuple(site for site in self.sites if site in nodes and mark not in nodes[site].metadata_props)
        done = edit_at(model, Placed(fault=get_fault(self.fault), sites=left, seed=self.seed))
        for site in done:
            nodes[site].metadata_props[mark] = str(self.seed)
        return bool(done)


def wrong_rewriting(placed: Placed) -> Rewriting:
    """The rewriting of a request whose only pass is this fault.

    Raises:
        UnsupportedError: it is no edit of a graph.
    """
    if not isinstance(placed.fault.injection, GraphEdit):
        raise UnsupportedError(
            f"Making a pass of the fault '{placed.fault.name}'",
            found=f"a fault of kind {type(placed.fault.injection).__name__}",
            expected="an edit of the graph",
            remedy="Put it into a backend (with_fault), or into the calibration (FaultyWork).",
        )
    return Rewriting(Pipeline((WrongPass(placed.fault.name, placed.sites, placed.seed),)), Policy.EXACT)

"""What a pass is: a frozen value that changes a model in place, and its record of what it declined."""

from typing import Protocol, runtime_checkable

import onnx_ir as ir

from qbench.graph import node_key
from qbench.passes.effect import Effect

# What a pass is: a small frozen value that changes a model in place and returns whether it did.


@runtime_checkable
class Pass(Protocol):
    """A named change of a graph; its class docstring says what it requires and what it ensures.

    A frozen dataclass whose fields are its settings, so that pipelines print, parse and digest. Idempotent: run again
    on its own result it returns False and changes nothing.
    """

    @property
    def name(self) -> str:
        """Short kebab; how pipelines and messages call it."""
        ...

    @property
    def effect(self) -> Effect:
        """The most it does to numbers, with its settings as they are."""
        ...

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place.

        Returns:
            Whether anything changed; a reason that was written into a node (``decline``) is no change.

        Raises:
            QbenchError: the model is one this pass cannot be applied to.
        """
        ...


@runtime_checkable
class Placed(Protocol):
    """A pass from outside that wants a place in the standard pipeline; without one it runs after all others."""

    @property
    def after(self) -> tuple[str, ...]:
        """Names of passes that it follows."""
        ...

    @property
    def before(self) -> tuple[str, ...]:
        """Names of passes that it precedes."""
        ...


# What a pass left as it was, and why: written into the metadata of the nodes, so that it outlives the run.

_KEY = "qbench.declined"


def decline(node: ir.Node, reason: str, by: str = "") -> bool:
    """Write ``reason`` into ``node``, as that of the pass called ``by``; True when it was not there already.

    Lowering is the last pass; its reasons need no name.
    """
    key = f"{_KEY}.{by}" if by else _KEY
    if node.metadata_props.get(key) == reason:
        return False
    node.metadata_props[key] = reason
    return True


def declined(model: ir.Model) -> dict[str, str]:
    """Node name → why the last lowering left it as it was, in graph order."""
    return {node_key(node): node.metadata_props[_KEY] for node in model.graph if _KEY in node.metadata_props}


def take_declined(model: ir.Model) -> dict[tuple[str, str], str]:
    """(pass, node name) → why the pass left it, in graph order; the reasons leave the model."""
    found: dict[tuple[str, str], str] = {}
    for node in model.graph:
        for key in [key for key in node.metadata_props if key.startswith(f"{_KEY}.")]:
            found[key.removeprefix(f"{_KEY}."), node_key(node)] = node.metadata_props.pop(key)
    return found

"""What a pass left as it was, and why: written into the metadata of the nodes, so that it outlives the run."""

import onnx_ir as ir

from qbench.graph import node_key

_KEY = "qbench.declined"


def decline(node: ir.Node, reason: str, by: str = "") -> bool:
    """Write ``reason`` into ``node``, as that of the pass called ``by``; True when it was not there already.

    Of lowering, which is the last pass, nobody needs the name.
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

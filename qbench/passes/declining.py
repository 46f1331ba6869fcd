"""What a pass left as it was, and why: written into the metadata of the nodes, so that it outlives the run."""

import onnx_ir as ir

from qbench.graph import node_key

_KEY = "qbench.declined"


def decline(node: ir.Node, reason: str) -> bool:
    """Write ``reason`` into ``node``; True when it was not there already."""
    if node.metadata_props.get(_KEY) == reason:
        return False
    node.metadata_props[_KEY] = reason
    return True


def declined(model: ir.Model) -> dict[str, str]:
    """Node name → why the last lowering left it as it was, in graph order."""
    return {node_key(node): node.metadata_props[_KEY] for node in model.graph if _KEY in node.metadata_props}

"""Nodes kept in float: a schema with one more rule in front, and the TOML file that spells it.

load_schema(path of override_text(kept_float(schema, nodes, name=stem))) == kept_float(schema, nodes, name=stem)
"""

import glob
from collections.abc import Iterable
from dataclasses import replace

import onnx_ir as ir

from qbench.graph import with_shapes
from qbench.quantization import Rule, Schema, wished_units
from qbench.storage import toml_text

REASON = "kept in float by qbench localize"


def kept_float(schema: Schema, nodes: Iterable[str], *, name: str = "", reason: str = REASON) -> Schema:
    """``schema`` with ``nodes`` in float, called ``name`` (empty: as before).

    Args:
        nodes: names of operators of the planned graph as they are: what is special in patterns is escaped.
        reason: why, as ``--why`` and reports show it.
    """
    patterns = tuple(glob.escape(node) for node in nodes)
    rules = (Rule(names=patterns, reason=reason),) if patterns else ()
    return replace(schema.preceded_by(rules), name=name or schema.name)


def without_idle_rules(schema: Schema, graphs: Iterable[ir.Model]) -> Schema:
    """``schema`` without the rules that speak about no operator of ``graphs``: a rule in front may have the last word.

    Args:
        graphs: what is planned on.
    """
    wished = (wishes for graph in graphs for _, wishes in wished_units(with_shapes(graph), schema))
    spoke = {index for wishes in wished for index in wishes.rules}
    return replace(schema, rules=tuple(rule for index, rule in enumerate(schema.rules) if index in spoke))


def override_text(schema: Schema, *, comment: str = "") -> str:
    """``schema`` as a file; its name is left to the file's.

    Args:
        comment: lines at the top, without their marks.
    """
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    settings = "".join(
        f"{line}\n" for line in toml_text(schema).split("\n") if line and not line.startswith(("name = ", "rules = "))
    )
    rules = [f"[[rules]]\n{toml_text(rule)}" for rule in schema.rules]
    return "\n".join(part for part in (head + settings, *rules) if part)

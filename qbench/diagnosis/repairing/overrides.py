"""Nodes kept in float: a schema with one more rule in front, and the TOML file that spells it.

load_schema(path of override_text(kept_float(schema, nodes, name=stem))) == kept_float(schema, nodes, name=stem)
"""

import glob
from collections.abc import Iterable
from dataclasses import replace

from qbench.quantization import Rule, Schema
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

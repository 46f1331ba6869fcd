"""Rules of schemas that matched nothing in a whole run: a pattern that is misspelled quantizes what it should spare.

One schema serves many models, so a rule is idle only when it spoke about no operator of any model that the suite
crosses its schema with. That is known when every such model was measured in at least one cell of the schema.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from qbench.judging import FP32


def idle_rule_errors(cells: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """A sentence for every idle rule.

    Args:
        cells: the ``cell`` lines of a run over a whole suite.
    """
    by_schema: dict[str, list[Mapping[str, Any]]] = {}
    for line in cells:
        if line["schema"] != FP32:
            by_schema.setdefault(line["schema"], []).append(line)
    return tuple(sentence for schema, lines in by_schema.items() for sentence in _of_schema(schema, lines))


def _of_schema(schema: str, lines: list[Mapping[str, Any]]) -> list[str]:
    measured = [line for line in lines if "metrics" in line]
    models = sorted({line["model"] for line in lines})
    if not measured or {line["model"] for line in measured} != set(models):
        return []
    first, *others = [line.get("idle_rules", ()) for line in measured]
    idle = [rule for rule in first if all(rule in more for more in others)]
    return [
        f"Running the schema '{schema}': found {rule}, which matches no operator of {', '.join(models)}; "
        "expected every rule to match something. Mend the rule, or remove it."
        for rule in idle
    ]

"""Rules of schemas that matched nothing in a whole run: a pattern that is misspelled quantizes what it should spare.

One schema serves many models, so a rule is idle only when it spoke about no operator of any model that the suite
crosses its schema with. That is known when every such model was measured in at least one cell of the schema.
"""

from collections.abc import Iterable

from qbench.judging import FP32
from qbench.tracking import CellRecord


def idle_rule_errors(cells: Iterable[CellRecord]) -> tuple[str, ...]:
    """A sentence for every idle rule.

    Args:
        cells: of a run over a whole suite.
    """
    by_schema: dict[str, list[CellRecord]] = {}
    for record in cells:
        if record.schema != FP32:
            by_schema.setdefault(record.schema, []).append(record)
    return tuple(sentence for schema, records in by_schema.items() for sentence in _of_schema(schema, records))


def _of_schema(schema: str, records: list[CellRecord]) -> list[str]:
    measured = [record for record in records if record.is_measured]
    models = sorted({record.model for record in records})
    if not measured or {record.model for record in measured} != set(models):
        return []
    first, *others = [record.idle_rules for record in measured]
    idle = [rule for rule in first if all(rule in more for more in others)]
    return [
        f"Running the schema '{schema}': found {rule}, which matches no operator of {', '.join(models)}; "
        "expected every rule to match something. Mend the rule, or remove it."
        for rule in idle
    ]

"""Rules of schemas and quarantine entries that are no longer needed."""

from collections.abc import Iterable, Mapping

from qbench.judging import FP32, Cell, EnvironmentClass, QuarantineEntry
from qbench.suite.suite_file import QUARANTINE_SUFFIX, Suite
from qbench.tracking import CellRecord

# Rules of schemas that matched nothing in a whole run: a misspelled pattern quantizes operators
# that it should not.
#
# One schema serves many models, so a rule is idle only if it matched no operator of any model that
# the suite measures with its schema. That is known when every such model was measured in at least
# one cell of the schema.


def idle_rule_errors(cells: Iterable[CellRecord]) -> tuple[str, ...]:
    """A sentence for every idle rule.

    Args:
        cells: of a run over a whole suite.
    """
    by_schema: dict[str, list[CellRecord]] = {}
    for record in cells:
        if record.schema != FP32:
            by_schema.setdefault(record.schema, []).append(record)
    return tuple(
        sentence
        for schema, records in by_schema.items()
        for sentence in _of_schema(schema, records)
    )


def _of_schema(schema: str, records: list[CellRecord]) -> list[str]:
    measured = [record for record in records if record.is_measured]
    models = sorted({record.model for record in records})
    if not measured or {record.model for record in measured} != set(models):
        return []
    first, *others = [record.idle_rules for record in measured]
    idle = [rule for rule in first if all(rule in more for more in others)]
    return [_idle_sentence(schema, ", ".join(models), rule) for rule in idle]


def _idle_sentence(schema: str, models: str, rule: str) -> str:
    from qbench.quantization import IDLE_CACHE, remedy_without_cache

    if rule == IDLE_CACHE:
        return (
            f"Running the schema '{schema}': found no keys and values that {models} keeps; "
            "expected a decoder, as the schema quantizes its keys and values. "
            f"{remedy_without_cache(schema)}"
        )
    return (
        f"Running the schema '{schema}': found {rule}, which matches no operator of {models}; "
        "expected every rule to match something. Correct the rule, or remove it."
    )


# Quarantine entries with a pattern that none of its cells needs any more.
#
# Some cells of a pattern may pass, on a better engine or with another schema. The entry is not
# needed only if one run, over all samples, had every cell that it matches, and none of those that
# it covers failed.


def unneeded_entry_errors(
    suite: Suite, cells: Iterable[Cell], records: Iterable[CellRecord]
) -> tuple[str, ...]:
    """A sentence for every pattern in the quarantine file of ``suite`` that no cell needs.

    Args:
        cells: all cells of the suite, run or not.
        records: of one run over all samples.
    """
    patterns = [entry for entry in suite.quarantine if entry.is_pattern]
    if not patterns:
        return ()
    ran = {record.cell: record for record in records}
    planned = tuple(cells)
    return tuple(
        _sentence(suite, entry, passed)
        for entry in patterns
        if (
            passed := _passed(
                entry, suite.quarantine, [cell for cell in planned if entry.is_about(cell)], ran
            )
        )
    )


def _passed(
    entry: QuarantineEntry,
    listed: Iterable[QuarantineEntry],
    about: Iterable[Cell],
    ran: Mapping[Cell, CellRecord],
) -> int:
    """How many of the cells ``about`` that ``entry`` covers passed; 0 if one did not, or was
    not run.
    """
    passed = 0
    entries = tuple(listed)
    for cell in about:
        record = ran.get(cell)
        if record is None:
            return 0
        if record.outcome == "unsupported":
            continue
        if not record.environment_class:  # it could not be measured
            return 0
        environment = EnvironmentClass.parse(record.environment_class)
        if next((one for one in entries if one.covers(cell, environment)), None) is not entry:
            continue  # the entry is for other machines, or an earlier entry covers the cell
        if record.outcome != "passed":
            return 0
        passed += 1
    return passed


def _sentence(suite: Suite, entry: QuarantineEntry, passed: int) -> str:
    file = suite.path.with_name(suite.name + QUARANTINE_SUFFIX).name
    which = "its one cell here passes" if passed == 1 else f"all {passed} of its cells here pass"
    return (
        f"Reading the quarantine entry '{entry.cell}': {which}; expected at least one to fail. "
        f"Remove the entry from '{file}', or narrow it."
    )

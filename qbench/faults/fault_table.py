"""The catalogue as rows of a Markdown table: what docs/faults.md shows."""

from qbench.faults.catalogue import CATALOGUE

HEAD = ("| fault | stage | what it does | a right cause | where it happened |", "|---|---|---|---|---|")


def fault_rows() -> tuple[str, ...]:
    """One row a fault, in the order of the catalogue, below its head."""
    return HEAD + tuple(
        f"| `{fault.name}` | {fault.stage.value} | {fault.summary} | {' or '.join(one.value for one in fault.causes)} "
        f"| {fault.story.thread}: {fault.story.sentence} |"
        for fault in CATALOGUE.values()
    )

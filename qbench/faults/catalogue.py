"""Every fault by its name."""

from collections.abc import Mapping
from types import MappingProxyType

from qbench.errors import unknown_name
from qbench.faults import arithmetics, biases, limits, memory, operands, profiles, small, weight_grids, windows
from qbench.faults import kernels as unwritten
from qbench.faults import values as levels
from qbench.faults import weights as weight_order
from qbench.faults.fault import Fault

_FILES = (
    *(unwritten, windows, weight_grids, weight_order, biases, operands, limits, levels, memory, arithmetics),
    *(profiles, small),
)


def _table() -> Mapping[str, Fault]:
    faults = [fault for file in _FILES for fault in file.FAULTS]
    table = {fault.name: fault for fault in faults}
    if len(table) != len(faults):
        raise ValueError("two faults of one name")
    return MappingProxyType(table)


CATALOGUE: Mapping[str, Fault] = _table()
"""Name → fault, in the order of docs/faults.md."""


def get_fault(name: str) -> Fault:
    """The fault called ``name``.

    Raises:
        InputError: no such fault; the nearest name is suggested.
    """
    if name not in CATALOGUE:
        raise unknown_name("Looking up a fault", "fault", name, CATALOGUE)
    return CATALOGUE[name]


# The catalogue as rows of a Markdown table: what docs/faults.md shows.

HEAD = ("| fault | stage | what it does | a right cause | where it happened |", "|---|---|---|---|---|")


def fault_rows() -> tuple[str, ...]:
    """One row a fault, in the order of the catalogue, below its head."""
    return HEAD + tuple(
        f"| `{fault.name}` | {fault.stage.value} | {fault.summary} | {' or '.join(one.value for one in fault.causes)} "
        f"| {fault.story.thread}: {fault.story.sentence} |"
        for fault in CATALOGUE.values()
    )

"""The first unit at which the engine of two sides leaves the arithmetic of the other, or the one that it claims."""

from collections.abc import Iterable
from dataclasses import replace

from qbench.backends import Backend, Feeds
from qbench.diagnosis.differences.sides import Side
from qbench.diagnosis.engine.contained import contained
from qbench.diagnosis.engine.partings import claimed_machine, engine_partings
from qbench.diagnosis.engine.shrinking import FailingCase, smallest_case
from qbench.diagnosis.patient import watches_itself


def first_failing_case(left: Side, right: Side, batches: Iterable[Feeds]) -> FailingCase | None:
    """The smallest input on which the first unit of an engine is not its arithmetic; None: none was seen.

    The engine is the side that is no machine of ours, and the right one where both or neither are; its arithmetic is
    the other side's machine, or without one what it claims to be. The units are those of the engine's own graph.

    Raises:
        InputError: nobody has written down how the engine counts.
    """
    left_counts, right_counts = watches_itself(left.backend), watches_itself(right.backend)
    engine, other = (left, right) if right_counts and not left_counts else (right, left)
    machine: Backend = other.backend if watches_itself(other.backend) else claimed_machine(engine.backend)
    patient = replace(engine.patient, claims=machine)
    partings = engine_partings(patient, batches)
    if not partings:
        return None
    return smallest_case(partings[0], contained(engine.backend), machine, threads=engine.threads)

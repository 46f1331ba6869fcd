"""Nodes whose calibrated range is another than the accepted one: what is known of them stands before what is inferred.

Behind a moved range many later ones move; so they come in the order of the graph, and each operator once: that which
carries a Relu or a Clip has its range too.
"""

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from qbench.diagnosis.causes import remedy_of
from qbench.diagnosis.repairing.candidates import owners_of
from qbench.graph import node_key, producer, values_by_name
from qbench.judging import Cause, MovedRange, Suspect

_KNOWN = 1e6
"""Score of the first: more than anything that numbers of one run say."""


def recalibrated_first(
    suspects: Sequence[Suspect], moved: Sequence[MovedRange], graphs: Mapping[str, ir.Model], *, most: int
) -> tuple[Suspect, ...]:
    """``suspects`` behind the first ``most`` nodes of ``graphs`` whose range ``moved``.

    Args:
        suspects: the worst first; what is said of a node that also moved is added to its evidence.
        moved: in the order of the graph, named as measurements name them. graphs: the float ones by name.
    """
    said: dict[str, list[Suspect]] = {}
    for suspect in suspects:
        said.setdefault(suspect.node, []).append(suspect)
    found = dict(list(_nodes(moved, graphs))[:most])
    first = (
        Suspect(
            node=node,
            cause=Cause.CALIBRATION,
            evidence="; ".join((f"accepted → calibrated now: {range_.text}", *map(_told, said.get(node, ())))),
            score=_KNOWN - place,
            remedy=remedy_of(Cause.CALIBRATION),
        )
        for place, (node, range_) in enumerate(found.items())
    )
    return (*first, *(suspect for suspect in suspects if suspect.node not in found))


def _nodes(moved: Iterable[MovedRange], graphs: Mapping[str, ir.Model]) -> Iterable[tuple[str, MovedRange]]:
    """(node, range), as findings call nodes; each operator once. What a graph is fed is called by its own name."""
    places = {}
    for name, model in graphs.items():
        prefix, owners = (f"{name}::" if len(graphs) > 1 else ""), owners_of(model)
        for value, made in values_by_name(model).items():
            maker = producer(made)
            key = value if maker is None else node_key(maker)
            places[prefix + value] = prefix + owners.get(key, key)
    found = ((places[one.value], one) for one in moved if one.value in places)
    seen = set[str]()
    for node, one in found:
        if node not in seen:
            seen.add(node)
            yield node, one


def _told(suspect: Suspect) -> str:
    return f"{suspect.cause.value}: {suspect.evidence}"

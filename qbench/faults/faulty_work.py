"""Shared work whose profile is wrong at some operators: a calibration fault, and all that is quantized by it."""

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from qbench.backends import Backend
from qbench.calibration import Profile
from qbench.errors import UnsupportedError
from qbench.evaluation import SharedWork, Subject
from qbench.faults.fault import Placed, ProfileFault
from qbench.graph import node_key, only_consumer
from qbench.passes import DEFAULT
from qbench.storage import Cache

_LIMITS = frozenset({"Relu", "Clip"})


class FaultyWork(SharedWork):
    """As ``SharedWork``, with a calibration fault.

    Profiles are taken, and kept on disk, as ever; the fault comes in between them and planning.

    Args:
        placed: the fault. The others as of ``SharedWork``.

    Raises:
        UnsupportedError: it is no fault of calibration.
    """

    def __init__(
        self, subject: Subject, cache: Cache, fp32_backend: Backend, environment_class: str, *, placed: Placed
    ) -> None:
        if not isinstance(placed.fault.injection, ProfileFault):
            raise UnsupportedError(
                f"Calibrating '{subject.model.id}' with the fault '{placed.fault.name}'",
                found=f"a fault of kind {type(placed.fault.injection).__name__}",
                expected="one of calibration",
                remedy="Put it into a backend (with_fault) or make a pass of it (wrong_rewriting).",
            )
        super().__init__(subject, cache, fp32_backend, environment_class)
        self._placed = placed
        self._faulty: dict[tuple[str, bool], Mapping[str, Profile]] = {}

    @classmethod
    def beside(cls, shared: SharedWork, placed: Placed) -> "FaultyWork":
        """That of the same subject as ``shared``, with the same cache behind it.

        Raises:
            UnsupportedError: the fault is none of calibration.
        """
        return cls(shared.subject, *shared.made_with, placed=placed)

    def profiles(self, pipeline: str = DEFAULT, *, channels: bool = False) -> Mapping[str, Profile]:
        """Those of ``SharedWork``, with the fault."""
        key = (pipeline, channels)
        if key not in self._faulty:
            right = super().profiles(pipeline, channels=channels)
            graphs = self.planned(pipeline)
            self._faulty[key] = {
                name: faulty_profile(profile, graphs[name], self._placed) for name, profile in right.items()
            }
        return self._faulty[key]


def faulty_profile(profile: Profile, model: ir.Model, placed: Placed) -> Profile:
    """``profile`` with the fault at those of its sites that ``model``, the float graph, has.

    What an operator's grid is taken from is its result, or that of the Relu or Clip behind; both get the fault.
    """
    injection = placed.fault.injection
    assert isinstance(injection, ProfileFault)
    values = dict(profile.values)
    nodes = {node_key(node): node for node in model.graph}
    for site in placed.among(nodes):
        for name in _results(nodes[site]):
            if name in values and values[name].count:
                values[name] = injection.profiled(profile, name, placed.random(site))
    return replace(profile, values=values)


def _results(node: ir.Node) -> tuple[str, ...]:
    own = node.outputs[0]
    reader = only_consumer(own)
    limited = reader.outputs[0] if reader is not None and reader.op_type in _LIMITS else None
    return tuple(value.name or "" for value in (own, limited) if value is not None)

"""The runs of one unit: by the patient's backend, by real arithmetic, as its grids alone would have it, as claimed."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Feeds, OrtBackend, get_backend
from qbench.diagnosis.engine.alone import Alone
from qbench.diagnosis.engine.contained import Patience, endless
from qbench.diagnosis.fresh_units import FreshUnit, fresh_unit
from qbench.diagnosis.patient import Patient
from qbench.diagnosis.quantized_units import QuantizedUnit, levels_without_unit, quantized_units, real_units
from qbench.graph import node_key, values_by_name, with_shapes
from qbench.judging import Unaligned

FLOAT_BACKEND = "ort-cpu"
"""Runs the float graph beside the quantized one."""
EXACT = "ort-cpu-noopt"
"""Runs single operators in float32 as they stand in the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The pieces of a patient, in the order of its graph.

    Args:
        units: all of them; those with real results last. by_value: the same by what they make.
        fresh: value → its counterpart in fp32. unaligned: the values without one, with reasons.
        aligned: the values that stand for an fp32 value. stands_for: levels or input → that value.
        original: the float graph, with shapes.
    """

    units: tuple[QuantizedUnit, ...]
    by_value: Mapping[str, QuantizedUnit]
    fresh: Mapping[str, FreshUnit]
    unaligned: tuple[Unaligned, ...]
    aligned: frozenset[str]
    stands_for: Mapping[str, str]
    original: ir.Model

    @classmethod
    def of(cls, patient: Patient) -> "Units":
        """Those of ``patient``.

        Raises:
            InputError: a Q or DQ of its graph means nothing.
        """
        original = with_shapes(patient.original)
        known, results = values_by_name(original), _results(original)
        found = (*quantized_units(patient.quantized), *real_units(patient.quantized))
        units = tuple(replace(unit, stands_for=results.get(unit.origin, unit.stands_for)) for unit in found)
        by_value = {unit.value: unit for unit in units}
        stands_for = {str(value.name): str(value.name) for value in patient.quantized.graph.inputs}
        stands_for |= {unit.value: unit.stands_for for unit in units}
        fresh, unaligned = (
            {},
            [
                Unaligned(
                    value=name, reason="an operator in front of it has a graph of its own, or nothing is fed to it"
                )
                for name in levels_without_unit(patient.quantized, found)
            ],
        )
        for unit in units:
            if unit.stands_for not in known:
                unaligned.append(Unaligned(value=unit.value, reason=f"fp32 has no value '{unit.stands_for}'"))
                continue
            try:
                fresh[unit.value] = fresh_unit(unit, original, stands_for)
            except LookupError as error:
                if unit.operators:
                    unaligned.append(Unaligned(value=unit.value, reason=str(error.args[0])))
        return cls(
            units=units,
            by_value=by_value,
            fresh=fresh,
            unaligned=tuple(unaligned),
            aligned=frozenset(unit.value for unit in units if unit.stands_for in known),
            stands_for=stands_for,
            original=original,
        )

    def rounded(self, unit: QuantizedUnit, floats: Mapping[str, Array]) -> dict[str, Array]:
        """fp32 numbers in front of ``unit`` on the grids there: levels, and graph inputs as they are.

        Args:
            unit: whose feeds. floats: fp32 values by their names in fp32.

        Raises:
            KeyError: a feed has no counterpart in fp32.
        """
        found = {}
        for name in unit.feeds:
            maker = self.by_value.get(name)
            found[name] = floats[name] if maker is None else levels_of(maker, floats[maker.stands_for])
        return found

    def reals(self, unit: QuantizedUnit, rounded: Mapping[str, Array]) -> dict[str, Array]:
        """What ``rounded`` stand for, by the fp32 names that the counterpart of ``unit`` is fed by."""
        fresh = self.fresh[unit.value]
        return {
            name: self.by_value[feed].reals(rounded[feed]) if feed in self.by_value else rounded[feed]
            for name, feed in zip(fresh.feeds, unit.feeds, strict=True)
        }


def _results(model: ir.Model) -> dict[str, str]:
    """Node → the one value that it gives."""
    return {node_key(node): str(node.outputs[0].name) for node in model.graph if len(node.outputs) == 1}


def levels_of(unit: QuantizedUnit, reals: Array) -> Array:
    """``reals`` on the grid of ``unit``: its integers; themselves where it has none."""
    if unit.grid is None:
        return reals
    levels = np.rint(reals.astype(np.float32) / np.float32(unit.scale)) + np.float32(unit.zero_point)
    return np.asarray(np.clip(levels, unit.lowest, unit.highest).astype(unit.grid.qtype.storage_dtype))


def exact_backend() -> Backend:
    """What computes operators in float32 as they stand in the graph, and keeps no memory between runs."""
    backend = get_backend(EXACT)
    return replace(backend, arena=False) if isinstance(backend, OrtBackend) else backend


class UnitRunner:
    """A unit prepared on all that run it alone.

    Args:
        patient: whose. unit: to be run. fresh: its counterpart in fp32; None: it has none.
        stack: closes what is prepared here. patience: how long an answer of the patient's backend is waited for.
    """

    def __init__(
        self,
        patient: Patient,
        unit: QuantizedUnit,
        fresh: FreshUnit | None,
        stack: ExitStack,
        patience: Patience = endless,
    ) -> None:
        self.unit = unit
        exact, name = exact_backend(), unit.real
        made = {str(value.name) for node in unit.graph.graph for value in node.outputs}
        self._exact = stack.enter_context(exact.prepare(unit.graph, taps=(name,) if name in made else ()))
        self._fresh = None if fresh is None else stack.enter_context(exact.prepare(fresh.graph))
        claims = patient.claims if patient.is_watched_itself else None
        self._claimed = None if claims is None else stack.enter_context(Alone(unit, claims))
        self._patient = stack.enter_context(Alone(unit, patient.backend, patience=patience))
        self._engine = patient.backend.name

    @property
    def crash(self) -> str:
        """How the patient's backend fails on the unit, in a sentence; empty: it did not."""
        found = self._patient.crash
        return f"'{self._engine}' fails on it alone: {found}" if found else ""

    def steps(self, feeds: Feeds) -> Array:
        """The number in front of rounding, by real arithmetic on ``feeds``: float32 steps, zero point left out."""
        values = {**feeds, **self._exact.run(feeds)}
        return np.asarray(np.divide(values[self.unit.real], self.unit.scale, dtype=np.float32))

    def counted(self, feeds: Feeds) -> Array | None:
        """What the patient's backend makes of ``feeds``; None where it fails, and ``crash`` says how."""
        return self._patient.run(feeds)

    def claimed(self, feeds: Feeds) -> Array | None:
        """What the machine that a watched patient claims to be makes of ``feeds``; None: it claims none, or fails."""
        return None if self._claimed is None else self._claimed.run(feeds)

    def explained(self, feeds: Feeds) -> Array | None:
        """The fp32 value that rounded operands give, rounded too: real; None: it has no counterpart."""
        if self._fresh is None:
            return None
        exact = self._fresh.run(feeds)[self.unit.stands_for]
        return self.unit.reals(levels_of(self.unit, exact)) if self.unit.grid is not None else exact

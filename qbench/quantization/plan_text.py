"""A plan as text: JSON, one slot a line, numbers that read back to the same bits.

{"format": "qbench-plan", "version": 2, "schema", "canonical", "graph", "profile", "macs", "integer_mac_count",
 "requested": {unit: words}, "clips": {node: form}, "floats": {unit: {"reason", "refused"}}, "idle_rules": [rule],
 "corrects_biases": true (where the schema wants it),
 "slots": [{"slot": [node, role, index, value],
            "kind": "static" | "fixed" | "shared" | "derived" | "given" | "dynamic" | "float",
            "qtype", "scale", "zero_point", "axis", "block_size", "narrow_range",
            "note" | "source" | "sources" | "reason",
            "saturated" (entries of a constant beyond their grid, where there are any)}]}
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics import QParams, QType
from qbench.quantization.candidates import Float
from qbench.quantization.clips import ClipForm
from qbench.quantization.decision import Decision, Derived, Dynamic, Fixed, Given, KeptFloat, Shared, Static
from qbench.quantization.plan import Plan
from qbench.quantization.slot import Role, Slot
from qbench.storage import digest_arrays, digest_bytes, read_json, value_from_table, write_text

Array = npt.NDArray[Any]

FORMAT, VERSION = "qbench-plan", 2


def save_plan(plan: Plan, path: Path | str) -> None:
    """Write ``plan`` to ``path`` as described above.

    Raises:
        StoreError: the file cannot be written.
    """
    write_text(Path(path), plan_text(plan))


def load_plan(path: Path | str) -> Plan:
    """The plan in the file at ``path``.

    Raises:
        InputError: the file is not there, or is no plan of this version.
    """
    doing = f"Loading the plan '{path}'"
    table = read_json(Path(path), doing)
    if (table.get("format"), table.get("version")) != (FORMAT, VERSION):
        raise _no_plan(doing, "another format or version")
    text = value_from_table(_PlanText, table, f"the plan '{path}'")
    try:
        return _plan(text)
    except ValueError as error:
        raise _no_plan(doing, str(error)) from error


def _no_plan(doing: str, found: str) -> InputError:
    return InputError(
        doing,
        found=f"a file in another form ({found})",
        expected=f"a {FORMAT} of version {VERSION}",
        remedy="Make the plan again, and save it with save_plan.",
    )


def plan_text(plan: Plan) -> str:
    """The text of ``plan``."""
    return _text(plan, _listed)


def plan_digest(plan: Plan) -> str:
    """The digest of ``plan``; arrays go into it as bytes, for scales per block are millions of numbers."""
    return digest_bytes(_text(plan, _digested).encode())


def _listed(array: Array) -> Any:  # noqa: ANN401 - a number or nested lists of them
    return array.tolist()


def _digested(array: Array) -> str:
    return digest_arrays({"": array})


def _text(plan: Plan, told: Callable[[Array], Any]) -> str:
    """The text in which ``told`` stands for scales and zero points."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "schema": plan.schema,
        "canonical": plan.canonical,
        "graph": plan.graph,
        "profile": plan.profile,
        "macs": plan.macs,
        "integer_mac_count": plan.integer_mac_count,
        "weight_mac_count": plan.weight_mac_count,
        "requested": dict(plan.requested),
        "clips": {name: form.value for name, form in plan.clips.items()},
        "floats": {name: {"reason": f.reason, "refused": f.refused} for name, f in plan.floats.items()},
        "idle_rules": list(plan.idle_rules),
        **({"corrects_biases": True} if plan.corrects_biases else {}),
    }
    counts = ({"saturated": plan.saturated[slot]} if slot in plan.saturated else {} for slot in plan.decisions)
    slots = zip(plan.decisions.items(), counts, strict=True)
    rows = ",\n".join(json.dumps({**_row(slot, decision, told), **count}) for (slot, decision), count in slots)
    return json.dumps(head)[:-1] + ',\n "slots": [\n' + rows + "\n]}\n"


def _row(slot: Slot, decision: Decision, told: Callable[[Array], Any]) -> dict[str, Any]:
    place: dict[str, Any] = {"slot": [slot.node, slot.role.value, slot.index, slot.value]}
    match decision:
        case Static(qparams, note):
            return {**place, "kind": "static", **_numbers(qparams, told), "note": note}
        case Fixed(qparams):
            return {**place, "kind": "fixed", **_numbers(qparams, told)}
        case Shared(qparams, source):
            return {**place, "kind": "shared", **_numbers(qparams, told), "source": source}
        case Derived(qparams, sources, note):
            return {**place, "kind": "derived", **_numbers(qparams, told), "sources": list(sources), "note": note}
        case Given(qparams, source):
            return {**place, "kind": "given", **_numbers(qparams, told), "source": source}
        case Dynamic(qtype):
            return {**place, "kind": "dynamic", "qtype": qtype.name}
        case KeptFloat(reason):
            return {**place, "kind": "float", "reason": reason}


def _numbers(qparams: QParams, told: Callable[[Array], Any]) -> dict[str, Any]:
    return {
        "qtype": qparams.qtype.name,
        "scale": told(qparams.scale),
        "zero_point": told(qparams.zero_point),
        "axis": qparams.axis,
        "block_size": qparams.block_size,
        "narrow_range": qparams.narrow_range,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _FloatText:
    reason: str
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _SlotText:
    """One row of ``slots``."""

    slot: tuple[Any, ...]
    kind: str
    qtype: str = ""
    scale: Any = None
    zero_point: Any = None
    axis: int | None = None
    block_size: int | None = None
    narrow_range: bool = False
    note: str = ""
    source: str = ""
    sources: tuple[str, ...] = ()
    reason: str = ""
    saturated: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanText:
    """The keys of a plan's file."""

    format: str
    version: int
    schema: str
    canonical: str
    graph: str
    profile: str
    macs: int
    integer_mac_count: int
    weight_mac_count: int = 0
    requested: Mapping[str, str]
    clips: Mapping[str, ClipForm]
    floats: Mapping[str, _FloatText]
    idle_rules: tuple[str, ...]
    corrects_biases: bool = False
    slots: tuple[_SlotText, ...]


def _plan(text: _PlanText) -> Plan:
    rows = {_slot(row): row for row in text.slots}
    return Plan(
        schema=text.schema,
        canonical=text.canonical,
        graph=text.graph,
        profile=text.profile,
        decisions={slot: _decision(row) for slot, row in rows.items()},
        clips=text.clips,
        floats={name: Float(one.reason, one.refused) for name, one in text.floats.items()},
        macs=text.macs,
        integer_mac_count=text.integer_mac_count,
        weight_mac_count=text.weight_mac_count,
        saturated={slot: row.saturated for slot, row in rows.items() if row.saturated is not None},
        idle_rules=text.idle_rules,
        requested=text.requested,
        corrects_biases=text.corrects_biases,
    )


def _slot(row: _SlotText) -> Slot:
    if [type(word) for word in row.slot] != [str, str, int, str]:
        raise ValueError(f"{list(row.slot)} for a slot")
    node, role, index, value = row.slot
    return Slot(node, Role(role), index, value)


def _decision(row: _SlotText) -> Decision:
    if row.kind == "float":
        return KeptFloat(row.reason)
    if row.kind == "dynamic":
        return Dynamic(QType.parse(row.qtype))
    qtype = QType.parse(row.qtype)
    try:
        qparams = QParams(
            row.scale,
            row.zero_point,
            qtype,
            axis=row.axis,
            block_size=row.block_size,
            narrow_range=row.narrow_range,
        )
    except (TypeError, OverflowError) as error:  # numpy raises these for lists of anything but numbers
        raise ValueError(f"parameters of {row.slot[0]!r} that are not all numbers") from error
    match row.kind:
        case "static":
            return Static(qparams, row.note)
        case "fixed":
            return Fixed(qparams)
        case "shared":
            return Shared(qparams, row.source)
        case "given":
            return Given(qparams, row.source)
        case "derived":
            return Derived(qparams, row.sources, row.note)
        case kind:
            raise ValueError(f"unknown kind of decision {kind!r}")

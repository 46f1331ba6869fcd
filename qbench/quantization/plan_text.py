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
from qbench.storage import digest_arrays, digest_bytes, write_text

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
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"))
        return _plan(table)
    except OSError as error:
        raise InputError(
            doing, found=error.strerror or str(error), expected="a plan", remedy="Check the path."
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(
            doing,
            found=f"a file that is none ({error})",
            expected=f"a {FORMAT} of version {VERSION}",
            remedy="Make the plan again, and save it with save_plan.",
        ) from error


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


def _plan(table: Mapping[str, Any]) -> Plan:
    if (table["format"], table["version"]) != (FORMAT, VERSION):
        raise ValueError("another format or version")
    return Plan(
        schema=table["schema"],
        canonical=table["canonical"],
        graph=table["graph"],
        profile=table["profile"],
        decisions={_slot(row["slot"]): _decision(row) for row in table["slots"]},
        clips={name: ClipForm(form) for name, form in table["clips"].items()},
        floats={name: Float(f["reason"], f["refused"]) for name, f in table["floats"].items()},
        macs=table["macs"],
        integer_mac_count=table["integer_mac_count"],
        weight_mac_count=table.get("weight_mac_count", 0),
        saturated={_slot(row["slot"]): row["saturated"] for row in table["slots"] if "saturated" in row},
        idle_rules=tuple(table["idle_rules"]),
        requested=table["requested"],
        corrects_biases=table.get("corrects_biases", False),
    )


def _slot(row: list[Any]) -> Slot:
    return Slot(row[0], Role(row[1]), row[2], row[3])


def _decision(row: Mapping[str, Any]) -> Decision:
    if row["kind"] == "float":
        return KeptFloat(row["reason"])
    if row["kind"] == "dynamic":
        return Dynamic(QType.parse(row["qtype"]))
    qparams = QParams(
        row["scale"],
        row["zero_point"],
        QType.parse(row["qtype"]),
        axis=row["axis"],
        block_size=row["block_size"],
        narrow_range=row["narrow_range"],
    )
    match row["kind"]:
        case "static":
            return Static(qparams, row["note"])
        case "fixed":
            return Fixed(qparams)
        case "shared":
            return Shared(qparams, row["source"])
        case "given":
            return Given(qparams, row["source"])
        case "derived":
            return Derived(qparams, tuple(row["sources"]), row["note"])
        case kind:
            raise ValueError(f"unknown kind of decision {kind!r}")

"""A plan as text: JSON, one slot a line, numbers that read back to the same bits.

{"format": "qbench-plan", "version": 1, "schema", "graph", "profile", "macs", "integer_mac_count",
 "floats": {unit: {"reason", "refused"}},
 "slots": [{"slot": [node, role, index, value], "kind": "static" | "fixed" | "shared" | "derived" | "float",
            "qtype", "scale", "zero_point", "axis", "narrow_range", "note" | "source" | "sources" | "reason"}]}
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbench.errors import InputError
from qbench.numerics import QParams, QType
from qbench.quantization.candidates import Float
from qbench.quantization.clips import ClipForm
from qbench.quantization.decision import Decision, Derived, Fixed, KeptFloat, Shared, Static
from qbench.quantization.plan import Plan
from qbench.quantization.slot import Role, Slot
from qbench.storage import write_text

FORMAT, VERSION = "qbench-plan", 1


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
    head = {
        "format": FORMAT,
        "version": VERSION,
        "schema": plan.schema,
        "graph": plan.graph,
        "profile": plan.profile,
        "macs": plan.macs,
        "integer_mac_count": plan.integer_mac_count,
        "clips": {name: form.value for name, form in plan.clips.items()},
        "floats": {name: {"reason": f.reason, "refused": f.refused} for name, f in plan.floats.items()},
    }
    rows = ",\n".join(json.dumps(_row(slot, decision)) for slot, decision in plan.decisions.items())
    return json.dumps(head)[:-1] + ',\n "slots": [\n' + rows + "\n]}\n"


def _row(slot: Slot, decision: Decision) -> dict[str, Any]:
    place: dict[str, Any] = {"slot": [slot.node, slot.role.value, slot.index, slot.value]}
    match decision:
        case Static(qparams, note):
            return {**place, "kind": "static", **_numbers(qparams), "note": note}
        case Fixed(qparams):
            return {**place, "kind": "fixed", **_numbers(qparams)}
        case Shared(qparams, source):
            return {**place, "kind": "shared", **_numbers(qparams), "source": source}
        case Derived(qparams, sources):
            return {**place, "kind": "derived", **_numbers(qparams), "sources": list(sources)}
        case KeptFloat(reason):
            return {**place, "kind": "float", "reason": reason}


def _numbers(qparams: QParams) -> dict[str, Any]:
    return {
        "qtype": qparams.qtype.name,
        "scale": qparams.scale.tolist(),
        "zero_point": qparams.zero_point.tolist(),
        "axis": qparams.axis,
        "narrow_range": qparams.narrow_range,
    }


def _plan(table: Mapping[str, Any]) -> Plan:
    if (table["format"], table["version"]) != (FORMAT, VERSION):
        raise ValueError("another format or version")
    return Plan(
        schema=table["schema"],
        graph=table["graph"],
        profile=table["profile"],
        decisions={_slot(row["slot"]): _decision(row) for row in table["slots"]},
        clips={name: ClipForm(form) for name, form in table["clips"].items()},
        floats={name: Float(f["reason"], f["refused"]) for name, f in table["floats"].items()},
        macs=table["macs"],
        integer_mac_count=table["integer_mac_count"],
    )


def _slot(row: list[Any]) -> Slot:
    return Slot(row[0], Role(row[1]), row[2], row[3])


def _decision(row: Mapping[str, Any]) -> Decision:
    if row["kind"] == "float":
        return KeptFloat(row["reason"])
    qparams = QParams(
        row["scale"], row["zero_point"], QType.parse(row["qtype"]), axis=row["axis"], narrow_range=row["narrow_range"]
    )
    match row["kind"]:
        case "static":
            return Static(qparams, row["note"])
        case "fixed":
            return Fixed(qparams)
        case "shared":
            return Shared(qparams, row["source"])
        case "derived":
            return Derived(qparams, tuple(row["sources"]))
        case kind:
            raise ValueError(f"unknown kind of decision {kind!r}")

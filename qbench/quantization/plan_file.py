"""A plan as a file of JSON, and its digest."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from qbench.errors import InputError
from qbench.graph import stored_scales
from qbench.numerics import QParams, QType
from qbench.quantization.candidates import ClipForm, Float
from qbench.quantization.decision import (
    Decision,
    Derived,
    Dynamic,
    Fixed,
    Given,
    KeptFloat,
    Shared,
    Static,
)
from qbench.quantization.edited_plan import derived_again
from qbench.quantization.plan import Plan
from qbench.quantization.spec import Role, Slot
from qbench.storage import (
    digest_arrays,
    digest_bytes,
    digest_plain,
    read_json,
    refuse_newer,
    value_from_table,
    write_text,
)

# A plan as text: JSON, one slot a line, numbers that read back to the same bits.
#
# {"format": "qbench-plan", "version": 2, "schema", "canonical", "graph", "profile", "macs",
# "integer_mac_count",
# "requested": {unit: words}, "clips": {node: form}, "floats": {unit: {"reason", "refused"}},
# "idle_rules": [rule],
#  "corrects_biases", "fits_weights": true (where the schema wants it),
#  "run_in_float": {unit: reason} and
#  "quantized_outputs": [value] (where there are any),
#  "checksums": {"chosen": digest, "derived": digest} (of the slots, by which edits are found),
#  "slots": [{"slot": [node, role, index, value],
#             "kind": "static" | "fixed" | "shared" | "derived" | "given" | "dynamic" | "float",
#             "qtype", "scale", "zero_point", "axis", "block_size", "narrow_range",
#             "scale_type", "tensor_scale" (where scales are not stored as float32),
#             "note" | "source" | "sources" | "reason",
#             "saturated" (entries of a constant out of the range of their codes, where there are
#             any)}]}

Array = npt.NDArray[Any]

FORMAT, VERSION = "qbench-plan", 2


def save_plan(plan: Plan, path: Path | str) -> None:
    """Write ``plan`` to ``path`` as described above.

    Raises:
        StoreError: the file cannot be written.
    """
    write_text(Path(path), plan_text(plan))


def load_plan(path: Path | str) -> Plan:
    """The plan in the file at ``path``; what is derived is derived again where it was edited.

    Raises:
        InputError: the file is not there, or is no plan of this version, or was edited so that
            one value has two parameters or a bias is not at the scale of its product.
    """
    doing = f"Loading the plan '{path}'"
    table = read_json(Path(path), doing)
    refuse_newer(doing, f"{table.get('format')}/{table.get('version')}", f"{FORMAT}/{VERSION}")
    if (table.get("format"), table.get("version")) != (FORMAT, VERSION):
        raise _no_plan(doing, "another format or version")
    text = value_from_table(_PlanText, table, f"the plan '{path}'")
    try:
        plan = _plan(text)
    except ValueError as error:
        raise _no_plan(doing, str(error)) from error
    now = _checksums(plan)
    if text.checksums == now:
        return plan
    follows = text.checksums.get("derived") == now["derived"]
    return replace(plan, decisions=derived_again(plan.decisions, doing, follows=follows))


def _no_plan(doing: str, found: str) -> InputError:
    return InputError(
        doing,
        found=f"a file in another form ({found})",
        expected=f"a {FORMAT} of version {VERSION}",
        remedy="Correct what was edited, or make the plan again.",
    )


def plan_text(plan: Plan) -> str:
    """The text of ``plan``."""
    run_in_float = {"run_in_float": dict(plan.run_in_float)} if plan.run_in_float else {}
    return _text(plan, _listed, {**run_in_float, "checksums": _checksums(plan)})


def plan_digest(plan: Plan) -> str:
    """The digest of ``plan``; arrays go into it as bytes, for scales per block are millions of
    numbers.
    """
    return digest_bytes(_text(plan, _digested, {}).encode())


def _checksums(plan: Plan) -> dict[str, str]:
    """Digests: of the slots, of the chosen decisions, and of the derived ones."""
    rows: dict[str, list[dict[str, Any]]] = {"chosen": [], "derived": []}
    for slot, decision in plan.decisions.items():
        row = _plan_text_row(slot, decision, _digested)
        rows["derived" if isinstance(decision, Derived | Shared) else "chosen"].append(row)
    return {kind: digest_plain(found) for kind, found in rows.items()}


def _listed(array: Array) -> Any:  # noqa: ANN401 - a number or nested lists of them
    return array.tolist()


def _digested(array: Array) -> str:
    return digest_arrays({"": array})


def _text(plan: Plan, as_json: Callable[[Array], Any], more: Mapping[str, Any]) -> str:
    """The text with the keys ``more``, and with scales and zero points converted by ``as_json``."""
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
        "floats": {
            name: {"reason": f.reason, "refused": f.refused} for name, f in plan.floats.items()
        },
        "idle_rules": list(plan.idle_rules),
        **({"corrects_biases": True} if plan.corrects_biases else {}),
        **({"fits_weights": True} if plan.fits_weights else {}),
        **({"quantized_outputs": list(plan.quantized_outputs)} if plan.quantized_outputs else {}),
        **more,
    }
    counts = (
        {"saturated": plan.saturated[slot]} if slot in plan.saturated else {}
        for slot in plan.decisions
    )
    slots = zip(plan.decisions.items(), counts, strict=True)
    rows = ",\n".join(
        json.dumps({**_plan_text_row(slot, decision, as_json), **count})
        for (slot, decision), count in slots
    )
    return json.dumps(head)[:-1] + ',\n "slots": [\n' + rows + "\n]}\n"


def _plan_text_row(
    slot: Slot, decision: Decision, as_json: Callable[[Array], Any]
) -> dict[str, Any]:
    place: dict[str, Any] = {"slot": [slot.node, slot.role.value, slot.index, slot.value]}
    match decision:
        case Static(qparams, note):
            return {**place, "kind": "static", **_numbers(qparams, as_json), "note": note}
        case Fixed(qparams):
            return {**place, "kind": "fixed", **_numbers(qparams, as_json)}
        case Shared(qparams, source):
            return {**place, "kind": "shared", **_numbers(qparams, as_json), "source": source}
        case Derived(qparams, sources, note):
            return {
                **place,
                "kind": "derived",
                **_numbers(qparams, as_json),
                "sources": list(sources),
                "note": note,
            }
        case Given(qparams, source):
            return {**place, "kind": "given", **_numbers(qparams, as_json), "source": source}
        case Dynamic(qtype):
            return {**place, "kind": "dynamic", "qtype": qtype.name}
        case KeptFloat(reason):
            return {**place, "kind": "float", "reason": reason}


def _numbers(qparams: QParams, as_json: Callable[[Array], Any]) -> dict[str, Any]:
    return {
        "qtype": qparams.qtype.name,
        "scale": as_json(qparams.scale),
        "zero_point": as_json(qparams.zero_point),
        "axis": qparams.axis,
        "block_size": qparams.block_size,
        "narrow_range": qparams.narrow_range,
        **stored_scales(qparams),
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
    scale_type: str | None = None
    tensor_scale: float | None = None
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
    fits_weights: bool = False
    run_in_float: Mapping[str, str] = field(default_factory=dict)
    quantized_outputs: tuple[str, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
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
        fits_weights=text.fits_weights,
        run_in_float=text.run_in_float,
        quantized_outputs=text.quantized_outputs,
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
            scale_type=row.scale_type,
            tensor_scale=row.tensor_scale,
        )
    except (TypeError, OverflowError) as error:
        # numpy raises these for lists of anything but numbers
        raise ValueError(f"parameters of {row.slot[0]!r} that are not all numbers") from error
    except ValueError as error:
        node, role, index, value = row.slot
        raise ValueError(f"'{value}' at {node}.{role}[{index}]: {error}") from error
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

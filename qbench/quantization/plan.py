"""A plan: what was decided about every slot, what stays in float and why; as text and as JSON."""

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

from qbench.errors import InputError
from qbench.graph import stored_scales
from qbench.number_text import counted
from qbench.numerics import QParams, QType
from qbench.quantization.candidates import ClipForm, Float
from qbench.quantization.decision import (
    BY_FILE,
    BY_SCHEMA,
    Decision,
    Derived,
    Dynamic,
    Fixed,
    Given,
    KeptFloat,
    Shared,
    Static,
    describe,
    qparams_of,
)
from qbench.quantization.edited_plan import derived_again
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

# The layout of a plan for people: sections of names and words in columns, which fold under their
# names when narrow.
#
# asked for
#   A  input …; weight …; output …           every different request once
# unit: A → as asked                         or what of it stays float
#   input[0]  value  uint8 scale … zero point …

_ROOM = 40
"""Columns that words need next to names; with fewer they go below them."""
_WIDEST = 48
"""A name longer than this does not push the column of all others."""
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Row = tuple[str, ...]
"""Names, then words."""


@dataclass(frozen=True, slots=True)
class Block:
    """A line and the rows below it."""

    head: str
    rows: tuple[Row, ...] = ()


def letters(requests: Mapping[str, str]) -> dict[str, str]:
    """Every different request, in order, and the letters that stand for it: A … Z, AA, AB and
    so on.
    """
    found: dict[str, str] = {}
    for words in requests.values():
        if words not in found and words != "float":
            found[words] = _letters(len(found))
    return found


def layout(blocks: Sequence[Block], width: int | None) -> list[str]:
    """The lines of ``blocks``, columns aligned over all; none longer than ``width`` where words
    can be folded.
    """
    names = [row[:-1] for block in blocks for row in block.rows]
    depth = max(map(len, names), default=0)
    widths = [
        max((len(n[i]) for n in names if i < len(n) and len(n[i]) <= _WIDEST), default=0)
        for i in range(depth)
    ]
    lines: list[str] = []
    for block in blocks:
        lines += _folded(block.head, "", "    ", width)
        for row in block.rows:
            lines += _row(row, widths, width)
    return lines


def _row(row: Row, widths: Sequence[int], width: int | None) -> list[str]:
    *names, words = row
    cells = [name.ljust(size) for name, size in zip(names, widths, strict=False)]
    start = "  " + "  ".join([*cells, ""])
    if width is None or len(start) + _ROOM <= width:
        return _folded(words, start, " " * len(start), width)
    return _folded("  ".join(names), "  ", "    ", width) + _folded(
        words, "      ", "      ", width
    )


def _folded(words: str, first: str, later: str, width: int | None) -> list[str]:
    if width is None:
        return [f"{first}{words}"]
    return textwrap.wrap(
        words,
        max(width, len(later) + 8),
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def _letters(index: int) -> str:
    text = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, len(_ALPHABET))
        text = _ALPHABET[digit] + text
    return text


# A plan refers to the graph by names and digests only, so it can be kept and read without the
# model.

_NAMED = 4
"""Units of one reason, and reasons, that ``str(plan)`` names."""
_FIT = "codes of weights are fitted on samples once it is written"
_CORRECTION = "biases are corrected on samples once it is written"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Decisions about one canonical graph under one schema.

    Args:
        schema: its name.
        canonical: the canonical passes that made the graph.
        graph: digest of the canonical graph.
        profile: digest of the profile.
        decisions: slot → decision, in graph order.
        clips: Relu and Clip nodes whose result is quantized, and where they are done.
        floats: units that stay float, with the reason.
        macs: multiply-accumulates of one sample.
        integer_mac_count: how many of them multiply integers.
        weight_mac_count: how many have a quantized weight, whatever it is multiplied with.
        saturated: slots of constants that hold entries out of the range of their codes, and how
            many.
        idle_rules: the rules of the schema that spoke about no unit of this graph, in words.
        requested: every unit with a float result, in graph order, and what the schema asks of it,
            in words.
        corrects_biases: the schema wants biases corrected on samples, once the plan is written
            (``correct_biases``).
        fits_weights: likewise the codes of weights fitted, before that (``fit_weights``).
        run_in_float: products of quantized operands that the backend runs in floats, and why; not
            part of the digest.
        quantized_outputs: the graph outputs that are quantized and dequantized again; all others
            leave it as computed.
        node_macs: node → multiply-accumulates of one sample.
        integer_nodes: those planned in integers.
        float8_nodes: those that multiply float8 by float8. All three are not part of the digest,
            and files do not hold them.
    """

    schema: str
    canonical: str
    graph: str
    profile: str
    decisions: Mapping[Slot, Decision]
    clips: Mapping[str, ClipForm]
    floats: Mapping[str, Float]
    macs: int
    integer_mac_count: int
    weight_mac_count: int = 0
    saturated: Mapping[Slot, int] = field(default_factory=dict)
    idle_rules: tuple[str, ...] = ()
    requested: Mapping[str, str] = field(default_factory=dict)
    corrects_biases: bool = False
    fits_weights: bool = False
    run_in_float: Mapping[str, str] = field(default_factory=dict)
    quantized_outputs: tuple[str, ...] = ()
    node_macs: Mapping[str, int] = field(default_factory=dict)
    integer_nodes: frozenset[str] = frozenset()
    float8_nodes: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in (
            "decisions",
            "clips",
            "floats",
            "saturated",
            "requested",
            "run_in_float",
            "node_macs",
        ):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.schema, self.graph, self.profile))

    def __repr__(self) -> str:
        return f"<Plan {self._headline()}>"

    def __str__(self) -> str:
        """The headline, how much is covered, and what stays in float for which reason;
        ``lines`` has every unit.
        """
        by_reason: dict[str, list[str]] = {}
        for name, found in self.floats.items():
            by_reason.setdefault(found.reason, []).append(name)
        floats = [
            f"float: {', '.join(names[:_NAMED])}"
            f"{f' and {len(names) - _NAMED} more' * (len(names) > _NAMED)}: {reason}"
            for reason, names in by_reason.items()
        ]
        more = [f"and {len(floats) - _NAMED} more reasons"] if len(floats) > _NAMED else []
        lines = [
            *self._coverage("the backend"),
            *floats[:_NAMED],
            *more,
            "every unit: '\\n'.join(plan.lines())",
        ]
        return "\n  ".join([self._headline(), *lines])

    def _key(self) -> tuple[object, ...]:
        tables = (self.decisions, self.clips, self.floats, self.saturated, self.requested)
        names = (
            self.schema,
            self.canonical,
            self.graph,
            self.profile,
            self.idle_rules,
            self.corrects_biases,
            self.fits_weights,
        )
        return (
            *names,
            self.quantized_outputs,
            *(dict(table) for table in tables),
            self.macs,
            self.integer_mac_count,
            self.weight_mac_count,
        )

    @property
    def integer_macs(self) -> float:
        """The share of multiply-accumulates planned in integers, 0 to 1; 0 for a graph without
        any.
        """
        return self.integer_mac_count / self.macs if self.macs else 0.0

    @property
    def float8_mac_count(self) -> int:
        """How many multiply-accumulates are of float8 by float8."""
        return sum(self.node_macs[name] for name in self.float8_nodes)

    @property
    def float_types(self) -> frozenset[str]:
        """The names of the types of floats of few bits among its decisions."""
        known = (qparams_of(decision) for decision in self.decisions.values())
        return frozenset(
            qparams.qtype.name
            for qparams in known
            if qparams is not None and qparams.qtype.is_float
        )

    @property
    def cached_values(self) -> dict[str, QParams]:
        """Key or value that a decoder keeps → its qparams."""
        pairs = ((slot, qparams_of(decision)) for slot, decision in self.decisions.items())
        return {s.value: q for s, q in pairs if q is not None and s.role is Role.CACHE}

    @property
    def quantized_units(self) -> tuple[str, ...]:
        """The units of which at least one slot is quantized, known beforehand or made at run
        time; in graph order.
        """
        quantized = {
            slot.node for slot, d in self.decisions.items() if not isinstance(d, KeptFloat)
        }
        return tuple(
            name for name in self.requested if name in quantized and name not in self.floats
        )

    @property
    def refusals(self) -> tuple[str, ...]:
        """A sentence for every unit that the schema wanted quantized and that stays float."""
        return tuple(
            f"{name} stays float: {f.reason}" for name, f in self.floats.items() if f.refused
        )

    @property
    def values(self) -> dict[str, QParams]:
        """Computed or fed value → its qparams."""
        found = {}
        for slot, decision in self.decisions.items():
            qparams = qparams_of(decision)
            if (
                slot.role in (Role.INPUT, Role.CORRELATION, Role.SUM, Role.OUTPUT, Role.CACHE)
                and qparams is not None
            ):
                found[slot.value] = qparams
        return found

    @property
    def constants(self) -> dict[Slot, QParams]:
        """Slots of constants that become integers, with their qparams."""
        pairs = ((slot, qparams_of(decision)) for slot, decision in self.decisions.items())
        return {s: q for s, q in pairs if q is not None and s.role in (Role.WEIGHT, Role.BIAS)}

    @property
    def is_of_weights_alone(self) -> bool:
        """Whether it quantizes weights and, but for what a decoder keeps, no other value, neither
        beforehand nor at run time.
        """
        made = any(isinstance(decision, Dynamic) for decision in self.decisions.values())
        others = self.values.keys() - self.cached_values.keys()
        return bool(self.constants) and not others and not made

    @property
    def is_of_cache_alone(self) -> bool:
        """Whether it quantizes what a decoder keeps, and nothing else."""
        return bool(self.decisions) and all(
            slot.role is Role.CACHE or isinstance(one, KeptFloat)
            for slot, one in self.decisions.items()
        )

    @property
    def own_biases(self) -> tuple[Slot, ...]:
        """The biases at scales of their own, which most engines add in float."""
        return tuple(
            slot
            for slot, one in self.decisions.items()
            if slot.role is Role.BIAS and isinstance(one, Static)
        )

    def lines(self, width: int | None = None, backend: str = "the backend") -> list[str]:
        """The plan for people: a headline, coverage, what was asked for, and every unit with
        what became of it.

        Args:
            width: columns of the terminal; None: lines are as long as they get.
            backend: the name of the one that it is made for.
        """
        asked = letters(self.requested)
        requests = Block("asked for", tuple((letter, words) for words, letter in asked.items()))
        clips = Block("clips", tuple((name, form.value) for name, form in self.clips.items()))
        coverage = [Block(line) for line in self._coverage(backend)]
        sections = (
            coverage,
            [requests] if asked else [],
            list(self._units(asked, backend)),
            [clips] if self.clips else [],
        )
        return [
            self._headline(),
            *(line for section in sections for line in layout(section, width)),
        ]

    def diff(self, other: "Plan") -> list[str]:
        """What ``other`` decides otherwise, slot by slot: ``-`` is this plan's, ``+`` the
        other's; empty when equal.
        """
        mine, theirs = dict(_entries(self)), dict(_entries(other))
        lines = []
        for key in dict.fromkeys((*mine, *theirs)):
            if mine.get(key) != theirs.get(key):
                lines += [
                    f"{sign} {key}: {table[key]}"
                    for sign, table in (("-", mine), ("+", theirs))
                    if key in table
                ]
        return lines

    def _headline(self) -> str:
        quantized, count, kind = self._quantized, self.integer_mac_count, "planned in integers"
        if self.is_of_weights_alone:
            count, kind = self.weight_mac_count, "by quantized weights"
        share = count / self.macs if self.macs else 0.0
        return (
            f"{self.schema}: {quantized}, {counted(len(self.floats), 'unit')} in float, "
            f"{share:.1%} of {self.macs:,} multiply-accumulates {kind}"
        )

    @property
    def _quantized(self) -> str:
        """How many values are quantized; of weights alone, how many of these, and of what a decoder
        keeps.
        """
        if self.is_of_weights_alone:
            weights = counted(len(self.constants), "weight")
            kept = len(self.cached_values)
            return f"{weights}{f' and {kept} keys and values' * bool(kept)} quantized"
        made = {slot.value for slot, one in self.decisions.items() if isinstance(one, Dynamic)}
        values = f"{counted(len(self.values), 'value')} quantized"
        return f"{values}, {len(made)} by qparams made at run time" if made else values

    def _coverage(self, backend: str) -> Iterator[str]:
        if self.requested:
            refused = sum(f.refused for f in self.floats.values())
            yield (
                f"{len(self.quantized_units)} of {len(self.requested)} units quantized, "
                f"{refused} refused"
            )
        if self.run_in_float:
            reasons = "; ".join(dict.fromkeys(self.run_in_float.values()))
            yield f"{backend} runs {len(self.run_in_float)} of them in float: {reasons}"
        if self.quantized_outputs:
            yield f"{', '.join(self.quantized_outputs)} quantized where the graph ends"
        if self.cached_values:
            count, types = cached_types((self,))
            yield f"{count} keys and values kept in {types}"
        if self.saturated:
            yield (
                f"{sum(self.saturated.values()):,} entries of {len(self.saturated)} constants "
                "saturate"
            )
        yield from (f"{rule} matches nothing" for rule in self.idle_rules)
        if self.fits_weights:
            yield _FIT
        if self.corrects_biases:
            yield _CORRECTION

    def _units(self, asked: Mapping[str, str], backend: str) -> Iterator[Block]:
        """A block for every unit; slots of a node that is not a unit's head belong to the unit
        before them.
        """
        slots: dict[str, list[Slot]] = {name: [] for name in (*self.requested, *self.floats)}
        unit = ""
        for slot in self.decisions:
            unit = slot.node if slot.node in slots or not unit or not self.requested else unit
            slots.setdefault(unit, []).append(slot)
        for name, found in slots.items():
            letter = asked.get(self.requested.get(name, ""))
            effective = self._effective(name, found)
            if name in self.run_in_float:
                effective = f"{effective}; {backend} runs this in float: {self.run_in_float[name]}"
            head = f"{name}: {letter} → {effective}" if letter else f"{name}: {effective}"
            yield Block(
                head,
                tuple(
                    (f"{s.role.value}[{s.index}]", s.value, self.said_of(s, name)) for s in found
                ),
            )

    def _effective(self, unit: str, slots: list[Slot]) -> str:
        """What became of the request."""
        if unit in self.floats:
            found = self.floats[unit]
            return f"float, {'refused: ' * found.refused}{found.reason}"
        if unit not in self.requested:
            return "as it came"
        asked = self.requested[unit].split("; ")
        kept = dict.fromkeys(
            s.role.value for s in slots if isinstance(self.decisions[s], KeptFloat)
        )
        missing = [role for role in kept if f"{role} float" not in asked]
        came = dict.fromkeys(s.role.value for s in slots if _came(self.decisions[s]))
        words = [f"float {' and '.join(missing)}"] * bool(missing) + [
            f"{' and '.join(came)} as it came"
        ] * bool(came)
        return f"in part, {'; '.join(words)}" if words else "as asked"

    def said_of(self, slot: Slot, within: str = "") -> str:
        """What was decided about ``slot``, in words; slots of the unit ``within`` without its
        name.
        """
        count = self.saturated.get(slot)
        return describe(self.decisions[slot], within) + (
            f", {count:,} entries saturate" if count else ""
        )


def cached_types(plans: Iterable[Plan]) -> tuple[int, str]:
    """How many keys and values decoders of ``plans`` keep in codes, and in which types."""
    kept = [qparams for plan in plans for qparams in plan.cached_values.values()]
    return len(kept), " and ".join(dict.fromkeys(str(qparams.qtype) for qparams in kept))


def _entries(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every fact of a plan under a name of its own."""
    for name in ("schema", "canonical", "graph", "profile"):
        yield name, str(getattr(plan, name))
    yield "multiply-accumulates planned in integers", f"{plan.integer_mac_count:,} of {plan.macs:,}"
    yield from ((f"{unit} asked for", words) for unit, words in plan.requested.items())
    yield from ((f"{slot} '{slot.value}'", plan.said_of(slot)) for slot in plan.decisions)
    yield from ((f"{name} clip", form.value) for name, form in plan.clips.items())
    yield from (
        (name, f"float, {'refused: ' * f.refused}{f.reason}") for name, f in plan.floats.items()
    )
    yield from ((rule, "matches nothing") for rule in plan.idle_rules)
    if plan.fits_weights:
        yield "weights", _FIT
    if plan.corrects_biases:
        yield "biases", _CORRECTION


def _came(decision: Decision) -> bool:
    """Whether the model brought these parameters, whatever the schema asked for."""
    return (
        isinstance(decision, Given)
        and decision.source != BY_SCHEMA
        and not decision.source.startswith(BY_FILE)
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

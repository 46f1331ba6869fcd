"""A plan: what was decided about every slot, what stays in float and why."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from qbench.number_text import counted
from qbench.numerics import QParams
from qbench.quantization.candidates import ClipForm, Float
from qbench.quantization.decision import (
    BY_FILE,
    BY_SCHEMA,
    Decision,
    Dynamic,
    Given,
    KeptFloat,
    Static,
    describe,
    qparams_of,
)
from qbench.quantization.plan_lines import Block, layout, letters
from qbench.quantization.spec import Role, Slot

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
        time; in graph order. Of a file that came quantized nothing was requested: every node is a
        unit.
        """
        quantized = dict.fromkeys(
            slot.node for slot, d in self.decisions.items() if not isinstance(d, KeptFloat)
        )
        units = self.requested or quantized
        return tuple(name for name in units if name in quantized and name not in self.floats)

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
